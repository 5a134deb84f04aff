/*
 * owners_test.c - which worker made which response: the bound of the table, and ids in answers.
 */
#include <check.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proxy/owners.h"
#include "tests/unit/suite.h"

#define LIMIT 16

static struct kvw_slice id_of(unsigned number)
{
	static _Thread_local char text[32];

	return (struct kvw_slice){text, (size_t)snprintf(text, sizeof(text), "resp_%08x", number)};
}

START_TEST(oldest_goes_when_the_table_is_full)
{
	struct kvw_owners *owners;
	uint32_t worker;

	ck_assert_int_eq(kvw_owners_create(LIMIT, &owners), KVW_OK);
	ck_assert(!kvw_owners_find(owners, id_of(0), 0, &worker)); /* nothing was allocated yet */
	for (unsigned i = 0; i < 5 * LIMIT + 3; i++) {
		kvw_owners_set(owners, id_of(i), 0, i % 7);
		for (unsigned seen = 0; seen <= i; seen++) {
			bool found = kvw_owners_find(owners, id_of(seen), 0, &worker);

			ck_assert_msg(found == (seen + LIMIT > i), "%u after %u", seen, i);
			if (found)
				ck_assert_uint_eq(worker, seen % 7);
		}
	}
	kvw_owners_destroy(owners);
	kvw_owners_destroy(NULL);
}
END_TEST

START_TEST(same_id_again_takes_no_second_place)
{
	struct kvw_owners *owners;
	uint32_t worker;

	ck_assert_int_eq(kvw_owners_create(LIMIT, &owners), KVW_OK);
	kvw_owners_set(owners, id_of(1), 0, 1);
	for (unsigned i = 0; i < 3 * LIMIT; i++)
		kvw_owners_set(owners, id_of(2), 0, i);
	ck_assert(kvw_owners_find(owners, id_of(1), 0, &worker));
	ck_assert(kvw_owners_find(owners, id_of(2), 0, &worker));
	ck_assert_uint_eq(worker, 3 * LIMIT - 1);
	kvw_owners_destroy(owners);
}
END_TEST

static void *set_and_find(void *arg)
{
	struct kvw_owners *owners = arg;
	size_t wrong = 0;

	for (unsigned i = 0; i < 5000; i++) {
		uint32_t worker;

		kvw_owners_set(owners, id_of(i % 40), 0, i % 40);
		if (kvw_owners_find(owners, id_of((i * 7) % 40), 0, &worker))
			wrong += worker != (i * 7) % 40;
	}
	return (void *)wrong;
}

START_TEST(threads_share_it)
{
	struct kvw_owners *owners;
	pthread_t threads[4];

	ck_assert_int_eq(kvw_owners_create(LIMIT, &owners), KVW_OK);
	for (size_t i = 0; i < 4; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, set_and_find, owners), 0);
	for (size_t i = 0; i < 4; i++) {
		void *wrong;

		pthread_join(threads[i], &wrong);
		ck_assert_ptr_null(wrong);
	}
	kvw_owners_destroy(owners);
}
END_TEST

START_TEST(an_id_is_its_tenants)
{
	const uint64_t a = kvw_owners_tenant(KVW_SLICE("a")), b = kvw_owners_tenant(KVW_SLICE("b"));
	struct kvw_owners *owners;
	struct kvw_owner copied;
	uint32_t worker = 9;
	size_t at = 0;

	ck_assert(a != 0 && b != 0 && a != b);
	ck_assert_uint_eq(kvw_owners_tenant(KVW_SLICE("")), 0);
	ck_assert_int_eq(kvw_owners_create(LIMIT, &owners), KVW_OK);
	kvw_owners_set(owners, id_of(1), a, 3);
	kvw_owners_set(owners, id_of(1), b, 4);
	kvw_owners_set(owners, id_of(1), 0, 5);
	ck_assert_int_eq(kvw_owners_find(owners, id_of(1), a, &worker), KVW_OWNED_KNOWN);
	ck_assert_uint_eq(worker, 3);
	ck_assert_int_eq(kvw_owners_find(owners, id_of(1), b, &worker), KVW_OWNED_FOREIGN);
	ck_assert_int_eq(kvw_owners_find(owners, id_of(1), 0, &worker), KVW_OWNED_FOREIGN);
	ck_assert_int_eq(kvw_owners_find(owners, id_of(2), b, &worker), KVW_OWNED_UNKNOWN);
	ck_assert_uint_eq(kvw_owners_copy(owners, &at, &copied, 1), 1);
	ck_assert(copied.tenant == a && copied.worker == 3);
	kvw_owners_forget(owners, 3);
	kvw_owners_recall(owners, &copied);
	ck_assert_int_eq(kvw_owners_find(owners, id_of(1), b, &worker), KVW_OWNED_FOREIGN);
	kvw_owners_forget(owners, 3);
	ck_assert_int_eq(kvw_owners_find(owners, id_of(1), b, &worker), KVW_OWNED_UNKNOWN);
	kvw_owners_set(owners, id_of(1), b, 4);
	ck_assert_int_eq(kvw_owners_find(owners, id_of(1), b, &worker), KVW_OWNED_KNOWN);
	kvw_owners_destroy(owners);
}
END_TEST

/* Beginnings of answers, and the id in each; "" where there is none. */
static const struct {
	const char *text, *id;
} answers[] = {
	{"{\"id\":\"resp_0123\",\"created_at\":1}", "resp_0123"},
	{"{\n  \"id\" : \"resp_a\" , \"x\":1}", "resp_a"},
	{"event: response.created\ndata: "
	 "{\"response\":{\"id\":\"resp_77\",\"x\":1},\"type\":\"c\"}\n\n",
		"resp_77"},
	{"{\"object\":\"id\",\"id\":\"resp_b\"}", "resp_b"},
	{"{\"id\":\"evt_1\",\"response\":{\"id\":\"resp_c\"}}", "resp_c"},
	{"{\"id\":12,\"id\":\"resp\"}", "resp"},
	{"{\"error\":{\"message\":\"no\"}}", ""},
	{"{\"id\":\"chatcmpl-1\"}", ""},
	{"{\"identity\":\"resp_1\"}", ""},
};

START_TEST(id_is_found_as_soon_as_it_is_whole)
{
	const char *text = answers[_i].text, *id = answers[_i].id;
	size_t id_len = strlen(id);
	const char *place = id_len == 0 ? NULL : strstr(text, id);

	/* "resp" also begins other words: the id is what stands between quotes. */
	while (place != NULL && (place[-1] != '"' || place[id_len] != '"'))
		place = strstr(place + 1, id);
	for (size_t len = 0; len <= strlen(text); len++) {
		char *copy = strndup(text, len); /* exact bounds, for sanitizers */
		struct kvw_slice found = kvw_owners_id_in(copy, len, KVW_SLICE("resp"));

		if (place == NULL || len < (size_t)(place - text) + id_len + 1) {
			ck_assert_uint_eq(found.len, 0);
		} else {
			ck_assert_uint_eq(found.len, id_len);
			ck_assert(memcmp(found.data, id, id_len) == 0);
		}
		free(copy);
	}
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("owners");

	tcase_set_timeout(tcase, 120);
	tcase_add_test(tcase, oldest_goes_when_the_table_is_full);
	tcase_add_test(tcase, same_id_again_takes_no_second_place);
	tcase_add_test(tcase, an_id_is_its_tenants);
	tcase_add_test(tcase, threads_share_it);
	tcase_add_loop_test(tcase, id_is_found_as_soon_as_it_is_whole, 0,
		(int)(sizeof(answers) / sizeof(answers[0])));
	return run_tcase("owners", tcase);
}
