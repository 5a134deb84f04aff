/*
 * seal_test.c - what was sealed opens where it belongs and nowhere else.
 */
#include "chunk.h"
#include "tests/unit/suite.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/wait.h>

static struct sealing s;

static void setup(void)
{
	sealing_start(&s, "1: " KEY_A "\n");
}

static void teardown(void)
{
	sealing_end(&s);
}

static const uint64_t sizes[] = {1, 15, 16, 17, 4096, KVT_SEAL_RECORD - 1, KVT_SEAL_RECORD,
	KVT_SEAL_RECORD + 1, 3 * KVT_SEAL_RECORD, 3 * KVT_SEAL_RECORD + 12345};

START_TEST(every_length_and_cut_comes_back)
{
	struct chunk c;

	chunk_start(&c, 5, sizes[_i]);
	chunk_seal(&c, s.sealer, 1);
	ck_assert(c.place.bytes < 16 || memcmp(c.sealed, c.plain, c.place.bytes) != 0);
	for (size_t pieces = 1; pieces <= MOST_PIECES; pieces += 3)
		chunk_must_open(&c, s.sealer, pieces);
	chunk_seal(&c, s.sealer, 7);
	chunk_must_open(&c, s.sealer, 3);
	chunk_end(&c);
}
END_TEST

START_TEST(opens_in_place)
{
	struct kvt_segment whole;
	struct chunk c;

	chunk_start(&c, 5, KVT_SEAL_RECORD + 333);
	chunk_seal(&c, s.sealer, 1);
	whole = (struct kvt_segment){.base = c.sealed, .bytes = c.place.bytes};
	ck_assert_int_eq(
		kvt_open_sealed(s.sealer, &c.place, &c.header, c.tags, c.sealed, &whole, 1),
		KVT_OK);
	ck_assert_mem_eq(c.sealed, c.plain, c.place.bytes);
	chunk_end(&c);
}
END_TEST

START_TEST(equal_chunks_look_different)
{
	struct chunk a, b;

	chunk_start(&a, 5, 5000);
	chunk_start(&b, 5, 5000);
	chunk_seal(&a, s.sealer, 1);
	chunk_seal(&b, s.sealer, 1);
	ck_assert_mem_ne(a.sealed, b.sealed, 5000);
	ck_assert_mem_ne(a.tags, b.tags, a.tag_bytes);
	chunk_end(&a);
	chunk_end(&b);
}
END_TEST

/* Each way to move a chunk to where it does not belong. */
START_TEST(a_moved_chunk_does_not_open)
{
	struct chunk c;
	struct kvt_seal_place right;
	struct kvt_tenant other;
	uint8_t wrapped[KVT_SEAL_WRAPPED_BYTES];
	bool fresh;

	chunk_start(&c, 4, 2 * KVT_SEAL_RECORD + 100);
	chunk_seal(&c, s.sealer, 1);
	right = c.place;

	c.place.key.bytes[31] ^= 1;
	chunk_must_fail(&c, s.sealer);
	c.place = right;
	c.place.fingerprint.bytes[0] ^= 0x80;
	chunk_must_fail(&c, s.sealer);
	c.place = right;
	c.place.store_id[15] ^= 1;
	chunk_must_fail(&c, s.sealer);
	c.place = right;
	c.place.tier = KVT_TIER_L2;
	chunk_must_fail(&c, s.sealer);
	c.place = right;
	memset(&c.place.tenant, 0x99, sizeof(c.place.tenant)); /* without a key */
	chunk_must_fail(&c, s.sealer);
	other = c.place.tenant; /* with one */
	ck_assert_int_eq(kvt_seal_tenant_key(s.sealer, &other, wrapped, &fresh), KVT_OK);
	chunk_must_fail(&c, s.sealer);
	c.place = right;
	c.place.bytes -= 1;
	chunk_must_fail(&c, s.sealer);
	c.place.bytes = KVT_SEAL_RECORD;
	chunk_must_fail(&c, s.sealer);
	c.place.bytes = 2 * KVT_SEAL_RECORD;
	chunk_must_fail(&c, s.sealer);
	c.place = right;
	chunk_must_open(&c, s.sealer, 2);
	chunk_end(&c);
}
END_TEST

static void swap_bytes(uint8_t *a, uint8_t *b, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++) {
		uint8_t x = a[i];

		a[i] = b[i];
		b[i] = x;
	}
}

START_TEST(records_keep_their_order)
{
	struct chunk c, other;
	const size_t r = KVT_SEAL_RECORD, t = KVT_SEAL_TAG_BYTES;

	chunk_start(&c, 4, 3 * KVT_SEAL_RECORD);
	chunk_start(&other, 7, 3 * KVT_SEAL_RECORD); /* of the same tenant */
	chunk_seal(&c, s.sealer, 1);
	chunk_seal(&other, s.sealer, 1);
	swap_bytes(c.sealed, c.sealed + r, r);
	swap_bytes(c.tags, c.tags + t, t);
	chunk_must_fail(&c, s.sealer);
	swap_bytes(c.sealed, c.sealed + r, r);
	swap_bytes(c.tags, c.tags + t, t);
	swap_bytes(c.sealed + r, other.sealed + r, r); /* the same place of another chunk */
	swap_bytes(c.tags + t, other.tags + t, t);
	chunk_must_fail(&c, s.sealer);
	swap_bytes(c.sealed + r, other.sealed + r, r);
	swap_bytes(c.tags + t, other.tags + t, t);
	swap_bytes((uint8_t *)&c.header, (uint8_t *)&other.header, sizeof(c.header));
	chunk_must_fail(&c, s.sealer);
	chunk_end(&c);
	chunk_end(&other);
}
END_TEST

/* Every bit of a small chunk, its tag and its header. */
START_TEST(every_flipped_bit_is_found)
{
	/* header.reserved bytes do not exist: all of the struct is meaningful */
	_Static_assert(sizeof(struct kvt_seal_header) == 40, "no padding");
	struct chunk c;
	struct {
		uint8_t *at;
		size_t bytes;
	} parts[3];

	chunk_start(&c, 3, 333);
	chunk_seal(&c, s.sealer, 1);
	parts[0].at = c.sealed, parts[0].bytes = c.place.bytes;
	parts[1].at = c.tags, parts[1].bytes = c.tag_bytes;
	parts[2].at = (uint8_t *)&c.header, parts[2].bytes = sizeof(c.header);
	for (size_t p = 0; p < 3; p++) {
		for (size_t bit = 0; bit < 8 * parts[p].bytes; bit++) {
			parts[p].at[bit / 8] ^= (uint8_t)(1 << bit % 8);
			chunk_must_fail(&c, s.sealer);
			parts[p].at[bit / 8] ^= (uint8_t)(1 << bit % 8);
		}
	}
	chunk_must_open(&c, s.sealer, 1);
	chunk_end(&c);
}
END_TEST

/* A bit in each record of a large one, and in each of its tags. */
START_TEST(a_flipped_bit_in_any_record_is_found)
{
	struct chunk c;

	chunk_start(&c, 3, 4 * KVT_SEAL_RECORD + 99);
	chunk_seal(&c, s.sealer, 1);
	for (uint32_t r = 0; r < kvt_seal_records(c.place.bytes); r++) {
		uint64_t at = (uint64_t)r * KVT_SEAL_RECORD + 98;

		c.sealed[at] ^= 1;
		chunk_must_fail(&c, s.sealer);
		c.sealed[at] ^= 1;
		c.tags[r * KVT_SEAL_TAG_BYTES + 15] ^= 1;
		chunk_must_fail(&c, s.sealer);
		c.tags[r * KVT_SEAL_TAG_BYTES + 15] ^= 1;
	}
	chunk_must_open(&c, s.sealer, 1);
	chunk_end(&c);
}
END_TEST

START_TEST(what_makes_no_sense_is_refused)
{
	struct chunk c;

	chunk_start(&c, 3, 100);
	/* no key made yet */
	ck_assert_int_eq(kvt_seal(s.sealer, &c.place, c.segments, chunk_cut(&c, c.plain, 1),
				 c.sealed, &c.header, c.tags),
		KVT_MISS);
	chunk_seal(&c, s.sealer, 1);
	c.segments[0].bytes = 99;
	ck_assert_int_eq(kvt_seal(s.sealer, &c.place, c.segments, 1, c.sealed, &c.header, c.tags),
		KVT_EINVAL);
	ck_assert_int_eq(
		kvt_open_sealed(s.sealer, &c.place, &c.header, c.tags, c.sealed, c.segments, 1),
		KVT_EINVAL);
	c.place.bytes = 0;
	ck_assert_int_eq(kvt_seal(s.sealer, &c.place, c.segments, 1, c.sealed, &c.header, c.tags),
		KVT_EINVAL);
	chunk_end(&c);
}
END_TEST

/* --- the format, once more and by hand -------------------------------------------------------- */

static void hkdf(const uint8_t key[32], const uint8_t salt[16], const char *info, uint8_t out[32])
{
	uint8_t prk[32], block[64];
	size_t len = strlen(info);
	unsigned n;

	HMAC(EVP_sha256(), salt, 16, key, 32, prk, &n);
	memcpy(block, info, len);
	block[len] = 1;
	HMAC(EVP_sha256(), prk, 32, block, len + 1, out, &n);
}

static void open_by_hand(const uint8_t key[32], const uint8_t iv[12], const uint8_t *aad,
	int aad_bytes, const uint8_t *from, int bytes, const uint8_t tag[16], uint8_t *to)
{
	EVP_CIPHER_CTX *ctx = EVP_CIPHER_CTX_new();
	int n;

	ck_assert_int_eq(EVP_DecryptInit_ex(ctx, EVP_aes_256_gcm(), NULL, key, iv), 1);
	ck_assert_int_eq(EVP_DecryptUpdate(ctx, NULL, &n, aad, aad_bytes), 1);
	ck_assert_int_eq(EVP_DecryptUpdate(ctx, to, &n, from, bytes), 1);
	ck_assert_int_eq(EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_GCM_SET_TAG, 16, (void *)tag), 1);
	ck_assert_int_eq(EVP_DecryptFinal_ex(ctx, to + bytes, &n), 1);
	EVP_CIPHER_CTX_free(ctx);
}

/* What lies on disk must be readable by the next version: nothing here calls the code. */
START_TEST(the_format_is_as_written_down)
{
	static const uint8_t master[32] = {0x00, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88,
		0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff, 0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd,
		0xef, 0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef};
	uint8_t wrapped[KVT_SEAL_WRAPPED_BYTES], wrapping[32], tenant_key[32], subkey[32];
	uint8_t aad[144] = "kvtier chunk", iv[12] = {0};
	struct chunk c;
	bool fresh;

	chunk_start(&c, 3, KVT_SEAL_RECORD + 77);
	chunk_seal(&c, s.sealer, 1);
	chunk_seal(&c, s.sealer, 1); /* so that the first nonce is not 0 */
	ck_assert_int_eq(kvt_seal_tenant_key(s.sealer, &c.place.tenant, wrapped, &fresh), KVT_OK);
	ck_assert(!fresh);
	ck_assert_uint_eq(wrapped[0], 1);
	ck_assert_mem_eq(wrapped + 8, &c.header.tenant_key_id, 8);
	ck_assert_mem_eq(wrapped + 16, c.place.tenant.bytes, 16);
	hkdf(master, wrapped + 32, "kvtier tenant key 1", wrapping);
	open_by_hand(
		wrapping, wrapped + 48, wrapped, 64, wrapped + 64, 32, wrapped + 96, tenant_key);
	hkdf(tenant_key, c.header.salt, "kvtier chunks 1", subkey);

	ck_assert_uint_eq(c.header.first_nonce, 2);
	iv[11] = 3; /* of the second record */
	aad[16] = 1;
	memcpy(aad + 20, c.place.key.bytes, 32);
	memcpy(aad + 52, c.place.fingerprint.bytes, 32);
	memcpy(aad + 84, c.place.tenant.bytes, 16);
	aad[100] = KVT_TIER_NVME;
	memcpy(aad + 104, c.place.store_id, 16);
	aad[120] = 1; /* master */
	memcpy(aad + 124, &c.header.tenant_key_id, 8);
	memcpy(aad + 132, &c.place.bytes, 8);
	aad[140] = 1; /* record */
	open_by_hand(subkey, iv, aad, sizeof(aad), c.sealed + KVT_SEAL_RECORD, 77, c.tags + 16,
		c.opened);
	ck_assert_mem_eq(c.opened, c.plain + KVT_SEAL_RECORD, 77);
	chunk_end(&c);
}
END_TEST

/* A child would repeat nonces: it gets nothing. */
START_TEST(a_forked_child_is_refused)
{
	struct chunk c;
	int status;
	pid_t child;

	chunk_start(&c, 3, 100);
	chunk_seal(&c, s.sealer, 1);
	child = fork();
	ck_assert_int_ge(child, 0);
	if (child == 0) {
		uint8_t wrapped[KVT_SEAL_WRAPPED_BYTES];
		bool fresh;
		bool refused = kvt_seal(s.sealer, &c.place, c.segments, chunk_cut(&c, c.plain, 1),
				       c.sealed, &c.header, c.tags) == KVT_EFORK &&
			       kvt_seal_tenant_key(s.sealer, &c.place.tenant, wrapped, &fresh) ==
				       KVT_EFORK &&
			       kvt_seal_take_tenant_key(s.sealer, wrapped) == KVT_EFORK &&
			       chunk_open(&c, s.sealer, 1) == KVT_EFORK;

		kvt_sealer_destroy(s.sealer);
		_exit(refused ? 0 : 1);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
	chunk_must_open(&c, s.sealer, 1);
	chunk_end(&c);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("seal");

	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_loop_test(
		tc, every_length_and_cut_comes_back, 0, sizeof(sizes) / sizeof(sizes[0]));
	tcase_add_test(tc, opens_in_place);
	tcase_add_test(tc, equal_chunks_look_different);
	tcase_add_test(tc, a_moved_chunk_does_not_open);
	tcase_add_test(tc, records_keep_their_order);
	tcase_add_test(tc, every_flipped_bit_is_found);
	tcase_add_test(tc, a_flipped_bit_in_any_record_is_found);
	tcase_add_test(tc, what_makes_no_sense_is_refused);
	tcase_add_test(tc, the_format_is_as_written_down);
	tcase_add_test(tc, a_forked_child_is_refused);
	return run_tcase("cache-protect-seal", tc);
}
