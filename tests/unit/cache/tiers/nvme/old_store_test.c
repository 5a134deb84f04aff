/*
 * old_store_test.c - a store that format 1.1 wrote is read, goes on as a mixed one, and may go back.
 */
#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "old_store.h"
#include "store.h"
#include "tiers/bytes.h"
#include "tiers/nvme/nvme_format.h"
#include "tiers/nvme/nvme_inspect.h"
#include "tests/unit/suite.h"

static struct store s;
static uint8_t store_id[16];
static uint64_t log_number;

static int open_file(const char *name, int how)
{
	char path[512];
	int fd;

	store_path(&s, name, path, sizeof(path));
	fd = open(path, how, 0600);
	ck_assert_int_ge(fd, 0);
	return fd;
}

static void write_at(const char *name, uint64_t at, const void *bytes, size_t n)
{
	int fd = open_file(name, O_WRONLY | O_CREAT);

	ck_assert_int_eq(pwrite(fd, bytes, n, (off_t)at), (ssize_t)n);
	ck_assert_int_eq(close(fd), 0);
}

static size_t from_hex(const char *hex, uint8_t *out)
{
	size_t n = strlen(hex) / 2;

	for (size_t i = 0; i < n; i++) {
		unsigned byte;

		ck_assert_int_eq(sscanf(hex + 2 * i, "%2x", &byte), 1);
		out[i] = (uint8_t)byte;
	}
	return n;
}

/* Chunks 10 and, longer by OLD_MORE, 11 and 12. */
static uint64_t length_of(uint64_t n)
{
	s.more_bytes = n == 10 ? 0 : OLD_MORE;
	return bytes_of(n) + s.more_bytes;
}

static void write_payload(uint64_t n, const char *file, uint64_t at)
{
	uint64_t bytes = length_of(n);
	uint8_t *payload = malloc(bytes);

	ck_assert_ptr_nonnull(payload);
	fill(n, payload, bytes);
	write_at(file, at + NVME_PAGE, payload, bytes);
	free(payload);
}

/* The store's folder, as 1.1 left it. */
static void setup(void)
{
	char path[512], *slash;
	uint8_t block[NVME_PAGE];

	store_init(&s);
	store_path(&s, "", path, sizeof(path));
	for (slash = strchr(path + strlen(s.folder) + 1, '/'); slash != NULL;
		slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		ck_assert_int_eq(mkdir(path, 0700), 0);
		*slash = '/';
	}
	for (size_t i = 0; i < sizeof(old_rows) / sizeof(old_rows[0]); i++) {
		const struct old_row *row = &old_rows[i];
		size_t n;

		memset(block, 0, sizeof(block));
		n = from_hex(row->hex, block);
		write_at(row->file, row->at, block, strcmp(row->file, "format") == 0 ? NVME_PAGE : n);
		if (strcmp(row->file, "format") == 0)
			memcpy(store_id, block + 32, 16);
		else if (strcmp(row->file, "log") == 0 && row->at == 0)
			log_number = kvt_get64(block + 48);
	}
	for (unsigned i = 0; i < OLD_DATA; i++) {
		(void)snprintf(path, sizeof(path), "data-%05u", i);
		write_at(path, (1u << 20) - 1, "", 1);
	}
	write_at("log", OLD_LOG_BYTES - 1, "", 1);
	write_payload(10, "data-00000", 0);
	write_payload(11, "data-00000", 5 * 65536);
	write_payload(12, "data-00001", 0);
}

static void teardown(void)
{
	store_finish(&s);
}

static enum kvt_status get(uint64_t n)
{
	(void)length_of(n);
	return store_get(&s, n);
}

static void all_three_are_right(void)
{
	for (uint64_t n = 10; n <= 12; n++)
		ck_assert_int_eq(get(n), KVT_OK);
	ck_assert_int_eq(get(13), KVT_MISS);
	ck_assert_uint_eq(store_stats(&s).corrupt, 0);
}

/* Opens it from outside; chunks whose pieces have checksums. */
static size_t look(size_t *right, uint32_t *minor)
{
	struct kvt_inspect *x = NULL;
	struct kvt_inspect_chunk chunk;
	struct kvt_inspect_store store;
	char folder[512], why[KVT_REASON_BYTES];
	size_t by_pieces = 0;

	store_path(&s, "", folder, sizeof(folder));
	ck_assert_int_eq(kvt_inspect_open(folder, NULL, &s.surroundings, why, &x), KVT_OK);
	kvt_inspect_store(x, &store);
	*minor = store.minor;
	*right = 0;
	for (size_t i = 0; i < kvt_inspect_count(x); i++) {
		kvt_inspect_chunk(x, i, &chunk);
		by_pieces += chunk.has_pieces;
		*right += kvt_inspect_verify(x, i, 0, NULL) == KVT_OK;
	}
	kvt_inspect_close(x);
	return by_pieces;
}

START_TEST(it_is_read)
{
	uint32_t minor;
	size_t right;
	struct wish *w;

	ck_assert_uint_eq(look(&right, &minor), 0);
	ck_assert_uint_eq(right, 3);
	ck_assert_uint_eq(minor, 1);
	ck_assert_int_eq(store_open(&s), KVT_OK);
	all_three_are_right();
	(void)length_of(12);
	w = wish_new(&s, KVT_TIER_READ, 12, 4096);
	s.tier->ops->submit(s.tier, &w->request);
	ck_assert_int_eq(wish_wait(&s, w), KVT_OK);
	ck_assert(w->had_names);
	wish_free(w);
}
END_TEST

START_TEST(it_goes_on_as_a_mixed_one)
{
	uint32_t minor;
	size_t right;

	for (unsigned round = 0; round < 3; round++) {
		ck_assert_int_eq(store_open(&s), KVT_OK);
		all_three_are_right();
		(void)length_of(20 + round);
		ck_assert_int_eq(store_put(&s, 20 + round), KVT_OK);
		for (unsigned n = 0; n <= round; n++)
			ck_assert_int_eq(get(20 + n), KVT_OK);
		ck_assert_int_eq(store_flush(&s), KVT_OK);
		ck_assert_uint_eq(look(&right, &minor), round + 1);
		ck_assert_uint_eq(right, 3 + round + 1);
		store_close(&s);
	}
}
END_TEST

START_TEST(its_damage_is_found)
{
	int fd = open_file("data-00000", O_RDWR);
	uint8_t byte;

	ck_assert_int_eq(pread(fd, &byte, 1, 5 * 65536 + NVME_PAGE + 500000), 1);
	byte ^= 1;
	ck_assert_int_eq(pwrite(fd, &byte, 1, 5 * 65536 + NVME_PAGE + 500000), 1);
	(void)close(fd);
	ck_assert_int_eq(store_open(&s), KVT_OK);
	ck_assert_int_eq(get(11), KVT_ECORRUPT);
	ck_assert_int_eq(get(11), KVT_MISS);
	ck_assert_int_eq(get(10), KVT_OK);
	ck_assert_int_eq(get(12), KVT_OK);
}
END_TEST

/* Sets or clears a flag in every ADD of the log. */
static void change_flags(const char *log, uint8_t clear, uint8_t set)
{
	int fd = open_file(log, O_RDWR);
	uint8_t block[NVME_PAGE], record[NVME_RECORD];
	unsigned changed = 0;

	ck_assert_int_eq(pread(fd, block, NVME_PAGE, 0), NVME_PAGE);
	log_number = kvt_get64(block + 48);
	memcpy(store_id, block + 32, 16);
	for (uint64_t i = 0; i < 64; i++) {
		off_t at = (off_t)(NVME_PAGE + i * NVME_RECORD);

		ck_assert_int_eq(pread(fd, record, NVME_RECORD, at), NVME_RECORD);
		if (kvt_get32(record) == 0 || record[4] != NVME_ADD)
			continue;
		record[5] = (uint8_t)((record[5] & ~clear) | set);
		nvme_record_stamp(record, store_id, log_number, i);
		ck_assert_int_eq(pwrite(fd, record, NVME_RECORD, at), NVME_RECORD);
		changed++;
	}
	ck_assert_uint_gt(changed, 0);
	(void)close(fd);
}

/* The log says that they have checksums of pieces, their headers do not: what they are counts. */
START_TEST(a_log_that_promises_pieces_does_no_harm)
{
	uint32_t minor;
	size_t right;

	change_flags("log", 0, NVME_HAS_PIECES);
	ck_assert_uint_eq(look(&right, &minor), 3);
	ck_assert_uint_eq(right, 3);
	ck_assert_int_eq(store_open(&s), KVT_OK);
	all_three_are_right();
	store_close(&s);
	for (unsigned round = 0; round < 2; round++) { /* the log that opening writes is made before a read */
		ck_assert_int_eq(store_open(&s), KVT_OK);
		all_three_are_right();
		store_close(&s);
	}
}
END_TEST

/* 1.1 rewrote the log of a newer store, and knows no such flag. */
START_TEST(a_log_without_the_flag_does_no_harm)
{
	uint32_t minor;
	size_t right;

	ck_assert_int_eq(store_open(&s), KVT_OK);
	(void)length_of(20);
	ck_assert_int_eq(store_put(&s, 20), KVT_OK);
	store_close(&s);
	ck_assert_uint_eq(look(&right, &minor), 1);
	change_flags("log", NVME_HAS_PIECES, 0);
	ck_assert_uint_eq(look(&right, &minor), 0);
	ck_assert_uint_eq(right, 4);
	ck_assert_int_eq(store_open(&s), KVT_OK);
	ck_assert_int_eq(get(20), KVT_OK); /* its header says it */
	store_close(&s);
	ck_assert_int_eq(store_open(&s), KVT_OK);
	ck_assert_int_eq(get(20), KVT_OK);
	all_three_are_right();
}
END_TEST

/* What 1.1 checks of a header and a payload holds for 1.2's, too. */
START_TEST(a_new_chunk_is_one_for_the_old_version)
{
	uint8_t *bytes = malloc(2u << 20);
	struct kvt_segment payload;
	struct kvt_checksum sum;
	uint64_t at, found = UINT64_MAX;
	int fd;

	ck_assert_ptr_nonnull(bytes);
	ck_assert_int_eq(store_open(&s), KVT_OK);
	(void)length_of(20);
	ck_assert_int_eq(store_put(&s, 20), KVT_OK);
	store_close(&s);
	for (unsigned file = 0; file <= OLD_DATA && found == UINT64_MAX; file++) {
		char name[16];

		(void)snprintf(name, sizeof(name), "data-%05u", file);
		fd = open_file(name, O_RDONLY);
		for (at = 0; at < 1u << 20 && found == UINT64_MAX; at += NVME_UNIT) {
			struct kvt_key key = key_of(20);

			ck_assert_int_eq(pread(fd, bytes, NVME_PAGE, (off_t)at), NVME_PAGE);
			if (memcmp(bytes, "kvtchunk", 8) == 0 &&
				memcmp(bytes + 48, key.bytes, sizeof(key.bytes)) == 0)
				found = at;
		}
		if (found != UINT64_MAX)
			ck_assert_int_gt(pread(fd, bytes, 1u << 20, (off_t)found), NVME_PAGE);
		(void)close(fd);
	}
	ck_assert_uint_ne(found, UINT64_MAX);
	ck_assert_uint_eq(kvt_get16(bytes + 8), 1);
	ck_assert_uint_eq(kvt_get16(bytes + 10), 2);
	ck_assert_uint_eq(kvt_get32(bytes + 316), NVME_PIECE_BYTES);
	ck_assert(kvt_bytes_prove(bytes, kvt_get32(bytes + 12),
		kvt_get64(store_id) ^ kvt_get64(store_id + 8)));
	if (found + NVME_PAGE + length_of(20) <= 1u << 20) { /* else it goes on in another file */
		payload = (struct kvt_segment){.base = bytes + NVME_PAGE, .bytes = length_of(20)};
		kvt_checksum_segments(&payload, 1, payload.bytes, &sum);
		ck_assert_uint_eq(kvt_get64(bytes + 216), sum.low);
		ck_assert_uint_eq(kvt_get64(bytes + 224), sum.high);
	}
	free(bytes);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("old store");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, it_is_read);
	tcase_add_test(tc, it_goes_on_as_a_mixed_one);
	tcase_add_test(tc, its_damage_is_found);
	tcase_add_test(tc, a_log_that_promises_pieces_does_no_harm);
	tcase_add_test(tc, a_log_without_the_flag_does_no_harm);
	tcase_add_test(tc, a_new_chunk_is_one_for_the_old_version);
	return run_tcase("cache-tiers-old-store", tc);
}
