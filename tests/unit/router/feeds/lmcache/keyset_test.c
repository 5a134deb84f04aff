/*
 * keyset_test.c - a set of keys against a plain list of what is in it.
 */
#include <check.h>
#include <stdlib.h>

#include "feeds/lmcache/keyset.h"
#include "tests/unit/suite.h"

#define KEYS 700 /* distinct ones, so that additions and removals meet */

static uint64_t random_of(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

/* Adjacent, far apart, and 0: collisions and ends of the table. */
static uint64_t key_of(uint64_t number)
{
	return number % 3 == 0 ? number / 3 : number * UINT64_C(0x123456789abcdef1);
}

static void check_listed(const struct kvw_keyset *set, const bool *in, size_t expected)
{
	static uint64_t listed[7];
	bool seen[KEYS] = {false};
	size_t at = 0, count, total = 0;

	while ((count = kvw_keyset_list(set, &at, listed, 7)) > 0)
		for (size_t i = 0; i < count; i++, total++) {
			size_t k = 0;

			while (k < KEYS && (seen[k] || key_of(k) != listed[i]))
				k++;
			ck_assert_uint_lt(k, KEYS);
			ck_assert(in[k]);
			seen[k] = true;
		}
	ck_assert_uint_eq(total, expected);
}

START_TEST(against_a_list)
{
	struct kvw_keyset set = {.seed = (uint64_t)_i};
	uint64_t state = (uint64_t)_i + 1;
	bool in[KEYS] = {false};
	size_t count = 0;

	for (unsigned step = 0; step < 30000; step++) {
		uint64_t number = random_of(&state) % KEYS;
		uint64_t key = key_of(number);

		ck_assert(kvw_keyset_has(&set, key) == in[number]);
		if (random_of(&state) % 8 < (step / 5000 % 2 == 0 ? 6 : 2)) {
			ck_assert_int_eq(
				kvw_keyset_add(&set, key), in[number] ? KVW_EAGAIN : KVW_OK);
			count += !in[number];
			in[number] = true;
		} else {
			ck_assert(kvw_keyset_remove(&set, key) == in[number]);
			count -= in[number];
			in[number] = false;
		}
		ck_assert_uint_eq(set.count, count);
		if (step % 3000 == 0)
			check_listed(&set, in, count);
	}
	for (uint64_t number = 0; number < KEYS; number++)
		ck_assert(kvw_keyset_has(&set, key_of(number)) == in[number]);
	kvw_keyset_clear(&set);
	ck_assert_uint_eq(set.count, 0);
	ck_assert(!kvw_keyset_has(&set, 0));
	check_listed(&set, in, 0);
}
END_TEST

START_TEST(room_is_made_once)
{
	struct kvw_keyset set = {.seed = 5};
	size_t room;

	ck_assert_int_eq(kvw_keyset_add(&set, 7), KVW_OK);
	ck_assert_int_eq(kvw_keyset_reserve(&set, KEYS), KVW_OK);
	room = set.room;
	ck_assert(kvw_keyset_has(&set, 7));
	for (uint64_t i = 0; i < KEYS; i++)
		ck_assert_int_ne(kvw_keyset_add(&set, key_of(i)), KVW_ENOMEM);
	ck_assert_uint_eq(set.room, room);
	ck_assert_int_eq(kvw_keyset_reserve(&set, 1), KVW_OK);
	ck_assert_uint_eq(set.room, room);
	kvw_keyset_clear(&set);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("keyset");

	tcase_add_loop_test(tc, against_a_list, 0, 5);
	tcase_add_test(tc, room_is_made_once);
	tcase_set_timeout(tc, 60);
	return run_tcase("lmcache keyset", tc);
}
