/*
 * keys_test.c - the life of tenants' keys: restart, rotation, erasure; several threads at once.
 */
#include "chunk.h"
#include "tests/unit/steps.h"
#include "tests/unit/suite.h"

#include <pthread.h>
#include <stdatomic.h>

static struct kvt_tenant tenant_of(unsigned number)
{
	struct kvt_tenant tenant = {{0}};

	tenant.bytes[0] = (uint8_t)number;
	tenant.bytes[1] = (uint8_t)(number >> 8);
	tenant.bytes[9] = 1;
	return tenant;
}

/* A store's part: it keeps what it is given. */
struct kept_key {
	uint8_t wrapped[KVT_SEAL_WRAPPED_BYTES];
};

static struct kept_key key_for(struct kvt_sealer *sealer, struct kvt_tenant tenant, bool fresh)
{
	struct kept_key kept;
	bool made;

	ck_assert_int_eq(kvt_seal_tenant_key(sealer, &tenant, kept.wrapped, &made), KVT_OK);
	ck_assert_int_eq(made, fresh);
	return kept;
}

START_TEST(a_restart_opens_what_was_sealed)
{
	struct sealing before, after;
	struct kept_key kept;
	struct chunk c;

	sealing_start(&before, "1: " KEY_A "\n");
	chunk_start(&c, 3, 5000);
	chunk_seal(&c, before.sealer, 1);
	kept = key_for(before.sealer, c.place.tenant, false);
	sealing_end(&before);

	sealing_start(&after, "1: " KEY_A "\n");
	ck_assert_int_eq(chunk_open(&c, after.sealer, 1), KVT_MISS); /* not handed back yet */
	ck_assert_int_eq(kvt_seal_take_tenant_key(after.sealer, kept.wrapped), KVT_OK);
	chunk_must_open(&c, after.sealer, 1);
	chunk_must_open(&c, after.sealer, 2); /* by the kept subkey */
	key_for(after.sealer, c.place.tenant, false);
	/* the new start seals by a subkey of its own */
	{
		uint8_t old_salt[16];

		memcpy(old_salt, c.header.salt, 16);
		chunk_seal(&c, after.sealer, 1);
		ck_assert_mem_ne(old_salt, c.header.salt, 16);
		chunk_must_open(&c, after.sealer, 1);
	}
	sealing_end(&after);
	chunk_end(&c);
}
END_TEST

/* More starts than subkeys are kept: each still opens, also when met again. */
START_TEST(chunks_of_many_starts_open)
{
	struct sealing s;
	struct kept_key kept = {{0}};
	struct chunk chunks[40];

	for (unsigned i = 0; i < 40; i++) {
		sealing_start(&s, "1: " KEY_A "\n");
		chunk_start(&chunks[i], 3, 100);
		if (i > 0)
			ck_assert_int_eq(kvt_seal_take_tenant_key(s.sealer, kept.wrapped), KVT_OK);
		kept = key_for(s.sealer, chunks[i].place.tenant, i == 0);
		chunk_seal(&chunks[i], s.sealer, 1);
		sealing_end(&s);
	}
	sealing_start(&s, "1: " KEY_A "\n");
	ck_assert_int_eq(kvt_seal_take_tenant_key(s.sealer, kept.wrapped), KVT_OK);
	for (unsigned round = 0; round < 2; round++)
		for (unsigned i = 0; i < 40; i++)
			chunk_must_open(&chunks[i], s.sealer, 1);
	sealing_end(&s);
	for (unsigned i = 0; i < 40; i++)
		chunk_end(&chunks[i]);
}
END_TEST

START_TEST(a_new_master_wraps_and_old_chunks_open)
{
	struct sealing s;
	struct kept_key by_1, by_2;
	struct chunk old, new;

	chunk_start(&old, 3, 3000);
	chunk_start(&new, 6, 3000); /* of the same tenant */
	sealing_start(&s, "1: " KEY_A "\n");
	by_1 = key_for(s.sealer, old.place.tenant, true);
	chunk_seal(&old, s.sealer, 1);
	ck_assert_uint_eq(old.header.key_id, 1);
	sealing_end(&s);

	sealing_start(&s, "1: " KEY_A "\n2: " KEY_B "\n");
	ck_assert_int_eq(kvt_seal_take_tenant_key(s.sealer, by_1.wrapped), KVT_OK);
	chunk_must_open(&old, s.sealer, 1);
	by_2 = key_for(s.sealer, old.place.tenant, true); /* wrapped again: to be written */
	key_for(s.sealer, old.place.tenant, false);
	ck_assert_mem_ne(by_1.wrapped, by_2.wrapped, sizeof(by_1.wrapped));
	chunk_seal(&new, s.sealer, 1);
	ck_assert_uint_eq(new.header.key_id, 2);
	sealing_end(&s);

	sealing_start(&s, "2: " KEY_B "\n"); /* the old master has left */
	ck_assert_int_eq(kvt_seal_take_tenant_key(s.sealer, by_1.wrapped), KVT_MISS);
	ck_assert_int_eq(chunk_open(&old, s.sealer, 1), KVT_MISS);
	ck_assert_int_eq(kvt_seal_take_tenant_key(s.sealer, by_2.wrapped), KVT_OK);
	chunk_must_open(&old, s.sealer, 1);
	chunk_must_open(&new, s.sealer, 1);
	sealing_end(&s);
	chunk_end(&old);
	chunk_end(&new);
}
END_TEST

/* The same id with another key: no tenant's chunks open, nothing crashes. */
START_TEST(another_master_under_the_same_id)
{
	struct sealing s;
	struct kept_key kept;
	struct kvt_tenant tenant = tenant_of(1);

	sealing_start(&s, "1: " KEY_A "\n");
	kept = key_for(s.sealer, tenant, true);
	sealing_end(&s);
	sealing_start(&s, "1: " KEY_B "\n");
	ck_assert_int_eq(kvt_seal_take_tenant_key(s.sealer, kept.wrapped), KVT_ECORRUPT);
	key_for(s.sealer, tenant, true);
	sealing_end(&s);
}
END_TEST

START_TEST(every_flipped_bit_of_a_wrapped_key_is_found)
{
	struct sealing s;
	struct kept_key kept;
	struct kvt_tenant tenant = tenant_of(1);

	sealing_start(&s, "1: " KEY_A "\n5: " KEY_B "\n");
	kept = key_for(s.sealer, tenant, true);
	for (size_t bit = 0; bit < 8 * sizeof(kept.wrapped); bit++) {
		kept.wrapped[bit / 8] ^= (uint8_t)(1 << bit % 8);
		ck_assert_int_ne(kvt_seal_take_tenant_key(s.sealer, kept.wrapped), KVT_OK);
		kept.wrapped[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
	ck_assert_int_eq(kvt_seal_take_tenant_key(s.sealer, kept.wrapped), KVT_OK);
	sealing_end(&s);
}
END_TEST

START_TEST(a_forgotten_tenant_is_gone)
{
	struct sealing s;
	struct kept_key first, second;
	struct chunk c, neighbour;

	chunk_start(&c, 3, 3000);
	chunk_start(&neighbour, 4, 3000); /* of another tenant */
	sealing_start(&s, "1: " KEY_A "\n");
	first = key_for(s.sealer, c.place.tenant, true);
	chunk_seal(&c, s.sealer, 1);
	chunk_seal(&neighbour, s.sealer, 1);
	kvt_seal_forget_tenant(s.sealer, &c.place.tenant);
	kvt_seal_forget_tenant(s.sealer, &c.place.tenant); /* twice is once */
	ck_assert_int_eq(chunk_open(&c, s.sealer, 1), KVT_MISS);
	chunk_must_open(&neighbour, s.sealer, 1);
	/* a tenant that comes back gets a new key, which opens nothing old */
	second = key_for(s.sealer, c.place.tenant, true);
	ck_assert_mem_ne(first.wrapped + 8, second.wrapped + 8, 8);
	ck_assert_int_eq(chunk_open(&c, s.sealer, 1), KVT_MISS);
	c.header.tenant_key_id = 0;
	memcpy(&c.header.tenant_key_id, second.wrapped + 8, 8);
	ck_assert_int_eq(chunk_open(&c, s.sealer, 1), KVT_ECORRUPT);
	sealing_end(&s);
	chunk_end(&c);
	chunk_end(&neighbour);
}
END_TEST

START_TEST(many_tenants_have_keys_of_their_own)
{
	enum { TENANTS = 3000 };
	struct sealing s;
	struct kept_key *kept = calloc(TENANTS, sizeof(*kept));

	ck_assert_ptr_nonnull(kept);
	sealing_start(&s, "1: " KEY_A "\n");
	for (unsigned i = 0; i < TENANTS; i++)
		kept[i] = key_for(s.sealer, tenant_of(i), true);
	for (unsigned i = 0; i < TENANTS; i++) {
		struct kept_key again = key_for(s.sealer, tenant_of(i), false);

		ck_assert_mem_eq(again.wrapped, kept[i].wrapped, sizeof(again.wrapped));
	}
	for (unsigned i = 0; i < TENANTS; i += 2)
		kvt_seal_forget_tenant(s.sealer, &(struct kvt_tenant){{0}});
	for (unsigned i = 0; i < TENANTS; i += 2) {
		struct kvt_tenant tenant = tenant_of(i);

		kvt_seal_forget_tenant(s.sealer, &tenant);
	}
	for (unsigned i = 0; i < TENANTS; i++)
		key_for(s.sealer, tenant_of(i), i % 2 == 0);
	sealing_end(&s);
	free(kept);
}
END_TEST

/* --- threads ---------------------------------------------------------------------------------- */

enum { THREADS = 4, ROUNDS = 120 / KVT_TEST_SHARE, STRESS_TENANTS = 3 };

struct stress {
	struct kvt_sealer *sealer;
	_Atomic uint8_t *seen; /* nonces that were used; shared */
	_Atomic size_t opened, gone;
	unsigned number;
	struct stress *shared;
};

static void note_nonces(struct stress *shared, const struct chunk *c)
{
	for (uint32_t r = 0; r < kvt_seal_records(c->place.bytes); r++)
		ck_assert_uint_eq(atomic_fetch_add(&shared->seen[c->header.first_nonce + r], 1), 0);
}

static void *seal_and_open(void *arg)
{
	struct stress *own = arg;

	for (unsigned i = 0; i < ROUNDS; i++) {
		uint8_t wrapped[KVT_SEAL_WRAPPED_BYTES];
		struct chunk c;
		enum kvt_status status;
		bool fresh;

		chunk_start(&c, own->number * ROUNDS + i, 1 + 7919u * i * (own->number + 1) * 3);
		c.place.tenant = tenant_of(i % STRESS_TENANTS);
		if (own->number == 0 && i % 10 == 9)
			kvt_seal_forget_tenant(own->sealer, &c.place.tenant);
		ck_assert_int_eq(
			kvt_seal_tenant_key(own->sealer, &c.place.tenant, wrapped, &fresh), KVT_OK);
		status = kvt_seal(own->sealer, &c.place, c.segments, chunk_cut(&c, c.plain, 3),
			c.sealed, &c.header, c.tags);
		ck_assert(status == KVT_OK || status == KVT_MISS);
		if (status == KVT_OK) {
			note_nonces(own->shared, &c);
			status = chunk_open(&c, own->sealer, 2);
			ck_assert(status == KVT_OK || status == KVT_MISS);
		}
		if (status == KVT_OK)
			ck_assert_mem_eq(c.opened, c.plain, c.place.bytes);
		atomic_fetch_add(status == KVT_OK ? &own->shared->opened : &own->shared->gone, 1);
		chunk_end(&c);
	}
	return NULL;
}

START_TEST(threads_share_a_sealer)
{
	struct sealing s;
	struct stress shared = {0}, own[THREADS];
	pthread_t threads[THREADS];

	sealing_start(&s, "1: " KEY_A "\n");
	shared.seen = calloc(1 << 20, 1);
	ck_assert_ptr_nonnull((void *)shared.seen);
	for (unsigned i = 0; i < THREADS; i++) {
		own[i] = (struct stress){.sealer = s.sealer, .number = i, .shared = &shared};
		ck_assert_int_eq(pthread_create(&threads[i], NULL, seal_and_open, &own[i]), 0);
	}
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	ck_assert_uint_eq(shared.opened + shared.gone, THREADS * ROUNDS);
	ck_assert_uint_ge(shared.opened, THREADS * ROUNDS / 2);
	free((void *)shared.seen);
	sealing_end(&s);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("keys");

	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, a_restart_opens_what_was_sealed);
	tcase_add_test(tc, chunks_of_many_starts_open);
	tcase_add_test(tc, a_new_master_wraps_and_old_chunks_open);
	tcase_add_test(tc, another_master_under_the_same_id);
	tcase_add_test(tc, every_flipped_bit_of_a_wrapped_key_is_found);
	tcase_add_test(tc, a_forgotten_tenant_is_gone);
	tcase_add_test(tc, many_tenants_have_keys_of_their_own);
	tcase_add_test(tc, threads_share_a_sealer);
	return run_tcase("cache-protect-keys", tc);
}
