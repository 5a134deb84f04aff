/*
 * lease_table_test.c - leases by id, time and key, against a plain list.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/lease_table.h"
#include "tests/unit/suite.h"

#define SECOND 1000000000ll
#define MOST   500

static struct kvt_key key_of(uint64_t n)
{
	struct kvt_key key = {{0}};

	memcpy(key.bytes, &n, sizeof(n));
	return key;
}

/* What stands for a hold: the table never looks at it. */
static struct kvt_lease *hold_of(uint64_t n)
{
	return (struct kvt_lease *)(uintptr_t)(n + 1);
}

START_TEST(an_id_finds_its_lease_once)
{
	struct kvt_lease_table *t;
	char a[KVT_LEASE_ID_BYTES], b[KVT_LEASE_ID_BYTES], wrong[KVT_LEASE_ID_BYTES];
	struct kvt_key key = key_of(1);

	ck_assert_int_eq(kvt_lease_table_create(2, 30 * SECOND, 0, &t), KVT_OK);
	ck_assert(kvt_lease_table_reserve(t));
	ck_assert(kvt_lease_table_reserve(t));
	ck_assert(!kvt_lease_table_reserve(t));
	ck_assert_int_eq(kvt_lease_table_add(t, &key, hold_of(1), 0, SECOND, a), KVT_OK);
	ck_assert_int_eq(kvt_lease_table_add(t, &key, hold_of(2), 0, SECOND, b), KVT_OK);
	ck_assert_str_ne(a, b);
	ck_assert_uint_eq(kvt_lease_table_count(t), 2);
	ck_assert_uint_eq(kvt_lease_table_count_of(t, &key), 2);
	ck_assert(!kvt_lease_table_reserve(t));
	memcpy(wrong, a, sizeof(wrong));
	wrong[31] = wrong[31] == '0' ? '1' : '0';
	ck_assert_ptr_null(kvt_lease_table_take(t, kvw_slice_of(wrong)));
	wrong[31] = 'G';
	ck_assert_ptr_null(kvt_lease_table_take(t, kvw_slice_of(wrong)));
	ck_assert_ptr_null(kvt_lease_table_take(t, (struct kvw_slice){a, 31}));
	ck_assert_ptr_null(kvt_lease_table_take(t, (struct kvw_slice){NULL, 0}));
	ck_assert_ptr_eq(kvt_lease_table_take(t, kvw_slice_of(a)), hold_of(1));
	ck_assert_ptr_null(kvt_lease_table_take(t, kvw_slice_of(a)));
	ck_assert(kvt_lease_table_reserve(t));
	kvt_lease_table_unreserve(t);
	ck_assert_ptr_eq(kvt_lease_table_take(t, kvw_slice_of(b)), hold_of(2));
	ck_assert_ptr_null(kvt_lease_table_take(t, KVW_SLICE("00000000000000000000000000000000")));
	ck_assert_uint_eq(kvt_lease_table_count_of(t, &key), 0);
	kvt_lease_table_destroy(t);
}
END_TEST

/* A lease of the plain list. */
struct plain {
	bool there;
	int64_t begun_ns, ends_ns;
	uint64_t key;
	char id[KVT_LEASE_ID_BYTES];
};

struct plains {
	struct plain at[MOST];
	size_t count;
};

static void end_plain(struct plains *p, size_t i)
{
	ck_assert(p->at[i].there);
	p->at[i].there = false;
	p->count--;
}

static void expire_both(struct kvt_lease_table *t, struct plains *p, int64_t now_ns)
{
	struct kvt_lease *holds[7];
	size_t n;

	while ((n = kvt_lease_table_expire(t, now_ns, holds, 7)) != 0)
		for (size_t i = 0; i < n; i++) {
			size_t which = (size_t)(uintptr_t)holds[i] - 1;

			ck_assert_int_le(p->at[which].ends_ns, now_ns); /* never early */
			end_plain(p, which);
		}
	for (size_t i = 0; i < MOST; i++) /* and never much too late */
		if (p->at[i].there)
			ck_assert_int_gt(p->at[i].ends_ns + 31 * SECOND / 1000 + 1, now_ns);
}

static void look_at_both(struct kvt_lease_table *t, const struct plains *p, int64_t now_ns)
{
	uint64_t oldest = 0, last = 0;
	uint32_t of_key = 0;
	struct kvt_key key = key_of(3);

	for (size_t i = 0; i < MOST; i++) {
		if (!p->at[i].there)
			continue;
		if ((uint64_t)(now_ns - p->at[i].begun_ns) > oldest)
			oldest = (uint64_t)(now_ns - p->at[i].begun_ns);
		if ((uint64_t)p->at[i].ends_ns > last)
			last = (uint64_t)p->at[i].ends_ns;
		of_key += p->at[i].key == 3;
	}
	ck_assert_uint_eq(kvt_lease_table_count(t), p->count);
	ck_assert_uint_eq(kvt_lease_table_oldest(t, now_ns), oldest);
	ck_assert_int_eq(kvt_lease_table_last_end(t), (int64_t)last);
	ck_assert_uint_eq(kvt_lease_table_count_of(t, &key), of_key);
	ck_assert_int_eq(kvt_lease_table_due(t) == INT64_MAX, p->count == 0);
}

static void add_both(struct kvt_lease_table *t, struct plains *p, int64_t now_ns)
{
	struct kvt_key key;
	size_t i = 0;

	if (!kvt_lease_table_reserve(t)) {
		ck_assert_uint_eq(p->count, MOST);
		return;
	}
	while (p->at[i].there)
		i++;
	p->at[i] = (struct plain){.there = true,
		.begun_ns = now_ns,
		.ends_ns = now_ns + (int64_t)(drand48() * 31 * SECOND),
		.key = (uint64_t)lrand48() % 8};
	key = key_of(p->at[i].key);
	ck_assert_int_eq(
		kvt_lease_table_add(t, &key, hold_of(i), now_ns, p->at[i].ends_ns, p->at[i].id),
		KVT_OK);
	p->count++;
}

START_TEST(random_leases_as_in_a_plain_list)
{
	struct plains *p = calloc(1, sizeof(*p));
	struct kvt_lease *holds[16];
	int64_t now_ns = 1000 * SECOND;
	struct kvt_lease_table *t;
	size_t n;

	srand48(7);
	ck_assert_int_eq(kvt_lease_table_create(MOST, 31 * SECOND, now_ns, &t), KVT_OK);
	for (int i = 0; i < 30000; i++) {
		size_t which = (size_t)lrand48() % MOST;

		if (lrand48() % 3 != 0) {
			add_both(t, p, now_ns);
		} else if (p->at[which].there) {
			ck_assert_ptr_eq(kvt_lease_table_take(t, kvw_slice_of(p->at[which].id)),
				hold_of(which));
			end_plain(p, which);
		}
		now_ns += (int64_t)(drand48() * SECOND / 5);
		if (lrand48() % 5000 == 0)
			now_ns += 100 * SECOND; /* no calls for a while */
		if (lrand48() % 4 == 0)
			expire_both(t, p, now_ns);
		if (i % 100 == 0)
			look_at_both(t, p, now_ns);
	}
	while ((n = kvt_lease_table_drain(t, holds, 16)) != 0)
		for (size_t i = 0; i < n; i++)
			end_plain(p, (size_t)(uintptr_t)holds[i] - 1);
	look_at_both(t, p, now_ns);
	kvt_lease_table_destroy(t);
	free(p);
}
END_TEST

int main(void)
{
	TCase *cases = tcase_create("lease_table");

	tcase_set_timeout(cases, 60);
	tcase_add_test(cases, an_id_finds_its_lease_once);
	tcase_add_test(cases, random_leases_as_in_a_plain_list);
	return run_tcase("cache/daemon/lease_table", cases);
}
