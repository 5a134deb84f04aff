/*
 * generations_test.c - a shared tier has a table of generations: what is erased loses its name, here and for other
 * processes. Without threads, so that each step is the test's.
 */
#include <stdlib.h>
#include <string.h>

#include "core/generations.h"
#include "core/names.h"
#include "support.h"
#include "tests/unit/suite.h"

#define LONG (1000 * SECOND)

static struct rig rig;
static const struct kvt_tier_ops *const both[] = {&fake_table_ops, &fake_tier_ops, NULL};

static void open_rig(void)
{
	fake_table_begin();
	rig_init(&rig);
	rig.config.l2_seen_ns = 5 * SECOND;
	ck_assert_int_eq(kvt_open_with(&rig.config, both, &rig.k), KVT_OK);
}

static void close_rig(void)
{
	rig_close(&rig);
}

static struct kvt_tenant tenant_of(uint32_t chain)
{
	struct kvt_tenant tenant = {{0}};

	memcpy(tenant.bytes, &chain, sizeof(chain));
	return tenant;
}

/* The name of a chain's first chunk, now. */
static struct kvt_key name_of(uint32_t chain)
{
	struct kvt_key key = key_of(chain, 0), name, back;

	ck_assert(kvt_name_below(rig.k, &key, &name));
	kvt_name_above(rig.k, &name, &back);
	ck_assert_mem_eq(&back, &key, sizeof(key));
	return name;
}

static uint64_t counted(void)
{
	return rig_stats(&rig).erased_elsewhere[KVT_TIER_L2];
}

START_TEST(tiers_know_names_and_not_keys)
{
	struct kvt_key key = key_of(1, 0), name;

	rig_put_chain(&rig, 1, 4);
	rig_settle(&rig);
	name = name_of(1);
	ck_assert_mem_ne(&name, &key, KVT_SLOT_AT);
	ck_assert_mem_eq(&name.bytes[KVT_SLOT_AT], &key.bytes[KVT_SLOT_AT], sizeof(key) - KVT_SLOT_AT);
	ck_assert(fake_has(fake_remote(), &name) && fake_has(fake_tier(), &name));
	ck_assert(!fake_has(fake_remote(), &key) && !fake_has(fake_tier(), &key));
	rig_push_out(&rig);
	ck_assert_uint_eq(rig_get(&rig, 1, 4, LONG), 4);
}
END_TEST

START_TEST(an_erased_tenant_has_another_name)
{
	struct kvt_tenant tenant = tenant_of(1);
	struct kvt_key before;
	size_t erased = 0;

	rig_put_chain(&rig, 1, 4);
	rig_put_chain(&rig, 2, 4);
	rig_settle(&rig);
	before = name_of(1);
	ck_assert_int_eq(kvt_erase_tenant(rig.k, &tenant, LONG, &erased), KVT_OK);
	ck_assert_uint_eq(erased, 4);
	ck_assert(fake_has(fake_remote(), &before)); /* it lies there, and is not asked for */
	ck_assert_uint_eq(fake_chunks(fake_tier()), 4);
	ck_assert_uint_eq(rig_get(&rig, 1, 4, LONG), 0);
	ck_assert_uint_eq(rig_get(&rig, 2, 4, LONG), 4);
	ck_assert_uint_eq(counted(), 0);
	rig_put_chain(&rig, 1, 4);
	rig_settle(&rig);
	rig_push_out(&rig);
	ck_assert_uint_eq(rig_get(&rig, 1, 4, LONG), 4);
	before = name_of(2);
	ck_assert_int_eq(kvt_reset(rig.k), KVT_OK);
	ck_assert_uint_eq(rig_get(&rig, 1, 4, LONG) + rig_get(&rig, 2, 4, LONG), 0);
	ck_assert_mem_ne(&before, &(struct kvt_key[]){name_of(2)}[0], sizeof(before));
}
END_TEST

/* Nothing is promised where the change is not known to have been made. */
START_TEST(an_erase_that_does_not_arrive)
{
	struct kvt_tenant tenant = tenant_of(1);

	rig_put_chain(&rig, 1, 4);
	rig_settle(&rig);
	fake_answer(fake_remote(), KVT_TIER_TABLE, KVT_EIO, 1);
	ck_assert_int_eq(kvt_erase_tenant(rig.k, &tenant, LONG, NULL), KVT_EIO);
	fake_hold(fake_remote(), KVT_TIER_TABLE, true);
	ck_assert_int_eq(kvt_erase_tenant(rig.k, &tenant, SECOND / 1000, NULL), KVT_EIO);
	fake_hold(fake_remote(), KVT_TIER_TABLE, false);
	rig_settle(&rig);
	ck_assert_int_eq(kvt_erase_tenant(rig.k, &tenant, LONG, NULL), KVT_OK);
	ck_assert_uint_eq(rig_get(&rig, 1, 4, LONG), 0);
}
END_TEST

/* Nor where the caller's time is over before the disk has flushed. */
START_TEST(an_erase_that_fails_and_is_late)
{
	struct kvt_tenant tenant = tenant_of(1);

	fake_answer(fake_remote(), KVT_TIER_TABLE, KVT_EIO, 1);
	fake_hold(fake_tier(), KVT_TIER_FLUSH, true);
	ck_assert_int_eq(kvt_erase_tenant(rig.k, &tenant, SECOND / 1000, NULL), KVT_EIO);
	fake_hold(fake_tier(), KVT_TIER_FLUSH, false);
}
END_TEST

/* Another model's: its processes, which may run anywhere, have other names from then on. */
START_TEST(an_erase_of_another_model)
{
	struct kvt_fingerprint own = rig.config.fingerprint, other = own;
	struct kvt_key before, after;
	size_t erased = 1;

	other.bytes[0] ^= 1;
	kvt_close(rig.k);
	rig.config.fingerprint = other;
	ck_assert_int_eq(kvt_open_with(&rig.config, both, &rig.k), KVT_OK);
	before = name_of(1);
	kvt_close(rig.k);
	rig.config.fingerprint = own;
	ck_assert_int_eq(kvt_open_with(&rig.config, both, &rig.k), KVT_OK);
	ck_assert_int_eq(kvt_erase_version(rig.k, &other, LONG, &erased), KVT_OK);
	ck_assert_uint_eq(erased, 0);
	fake_answer(fake_remote(), KVT_TIER_TABLE, KVT_EIO, 1);
	ck_assert_int_eq(kvt_erase_version(rig.k, &other, LONG, NULL), KVT_EIO);
	kvt_close(rig.k);
	rig.config.fingerprint = other;
	ck_assert_int_eq(kvt_open_with(&rig.config, both, &rig.k), KVT_OK);
	after = name_of(1);
	ck_assert_mem_ne(&before, &after, sizeof(before));
}
END_TEST

/* By the clock, and with all that this handle has of it: memory, disk, stores in line. */
START_TEST(an_erase_by_another)
{
	rig_put_chain(&rig, 1, 4);
	rig_put_chain(&rig, 2, 4);
	rig_settle(&rig);
	fake_hold(fake_remote(), KVT_TIER_WRITE, true);
	rig_put_chain(&rig, 3, 30); /* more than are written at once */
	rig_settle(&rig);
	fake_table_raise(1);
	fake_table_raise(3);
	fake_table_raise(KVT_TENANT_SLOTS + 7); /* another model's */
	rig_advance(&rig, 5 * SECOND - 1);
	ck_assert_uint_eq(rig_lookup(&rig, 1, 4, NULL) + rig_lookup(&rig, 3, 30, NULL), 0);
	ck_assert_uint_eq(rig_lookup(&rig, 2, 4, NULL), 4);
	ck_assert_uint_eq(fake_chunks(fake_tier()), 4);
	ck_assert_uint_eq(counted(), 2);
	fake_hold(fake_remote(), KVT_TIER_WRITE, false);
	rig_settle(&rig);
	ck_assert_uint_eq(rig_get(&rig, 1, 4, LONG) + rig_get(&rig, 3, 30, LONG), 0); /* nor by its new name */
	ck_assert_uint_eq(rig_get(&rig, 2, 4, LONG), 4);
}
END_TEST

/* A process that was stopped for longer than an answer is believed reads nothing before it has asked. */
START_TEST(a_process_that_was_away)
{
	struct kvt_lookup found;
	struct kvt_key keys[4];
	uint64_t op;

	rig_put_chain(&rig, 1, 4);
	rig_put_chain(&rig, 2, 4);
	rig_settle(&rig);
	keys_of(2, 4, keys);
	fake_table_raise(1);
	rig.now_ns += 60 * SECOND;
	ck_assert_int_eq(kvt_lookup(rig.k, keys, 4, KVT_ALL_TIERS, NULL, &found), KVT_OK);
	ck_assert_uint_eq(found.hits, 0);
	ck_assert_int_eq(kvt_get_begin(rig.k, keys, 4, LONG, 0, &op), KVT_BUSY);
	ck_assert_uint_eq(rig_get(&rig, 1, 4, LONG), 0); /* asks */
	ck_assert_uint_eq(rig_get(&rig, 2, 4, LONG), 4);
}
END_TEST

/* The next process on this disk: what was erased while none ran is not read, the rest is. */
START_TEST(an_erase_while_no_process_ran)
{
	struct kvt_key first, second;

	rig_put_chain(&rig, 1, 1);
	rig_put_chain(&rig, 2, 1);
	rig_settle(&rig);
	first = name_of(1);
	second = name_of(2);
	kvt_close(rig.k);
	fake_table_raise(1);
	ck_assert_int_eq(kvt_open_with(&rig.config, both, &rig.k), KVT_OK);
	ck_assert_mem_ne(&(struct kvt_key[]){name_of(1)}[0], &first, sizeof(first));
	ck_assert_mem_eq(&(struct kvt_key[]){name_of(2)}[0], &second, sizeof(second));
}
END_TEST

START_TEST(a_lost_table_is_a_cold_cache)
{
	rig_put_chain(&rig, 1, 4);
	rig_settle(&rig);
	fake_table_begin();
	rig_advance(&rig, 5 * SECOND);
	ck_assert_uint_eq(rig_get(&rig, 1, 4, LONG), 0);
	ck_assert_uint_eq(rig_stats(&rig).tables_lost, 1);
	ck_assert_uint_eq(counted(), 0);
	rig_put_chain(&rig, 1, 4);
	rig_settle(&rig);
	ck_assert_uint_eq(rig_get(&rig, 1, 4, LONG), 4);
}
END_TEST

/* A failover lost a change that this handle knows; then others erased, until the table had got
 * further than before. */
START_TEST(a_table_that_lost_its_last_change)
{
	for (uint32_t chain = 1; chain < 5; chain++)
		rig_put_chain(&rig, chain, 4);
	rig_settle(&rig);
	fake_table_raise(1);
	rig_advance(&rig, 5 * SECOND);
	ck_assert_uint_eq(rig_get(&rig, 2, 4, LONG), 4);
	fake_table_forget_last();
	for (uint32_t i = 0; i < 3; i++)
		fake_table_raise(2 + i % 2);
	rig_advance(&rig, 3 * SECOND);
	rig_advance(&rig, SECOND / 2);
	ck_assert_uint_eq(rig_stats(&rig).tables_lost, 1);
	for (uint32_t chain = 1; chain < 5; chain++)
		ck_assert_uint_eq(rig_get(&rig, chain, 4, LONG), 0);
	rig_put_chain(&rig, 4, 4);
	ck_assert_uint_eq(rig_get(&rig, 4, 4, LONG), 4);
	rig_advance(&rig, 60 * SECOND);
	ck_assert_uint_eq(rig_stats(&rig).tables_lost, 1);
}
END_TEST

/* While the table cannot be asked the handle goes on by what it knows; what it missed counts afterwards. */
START_TEST(a_table_that_cannot_be_asked)
{
	rig_put_chain(&rig, 1, 4);
	rig_settle(&rig);
	fake_answer(fake_remote(), KVT_TIER_TABLE, KVT_EIO, UINT32_MAX);
	fake_table_raise(1);
	for (int i = 0; i < 100; i++)
		rig_advance(&rig, SECOND);
	ck_assert_uint_eq(rig_get(&rig, 1, 4, LONG), 4);
	fake_answer(fake_remote(), KVT_TIER_TABLE, KVT_OK, 0);
	for (int i = 0; i < 400; i++)
		rig_advance(&rig, SECOND);
	ck_assert_uint_eq(rig_get(&rig, 1, 4, LONG), 0);
}
END_TEST

/* How many of a chain's first 4 chunks this tier has, as a lookup says. */
static size_t shown(uint32_t chain, uint32_t tier)
{
	struct kvt_lookup found;
	struct kvt_key keys[4];

	keys_of(chain, 4, keys);
	ck_assert_int_eq(kvt_lookup(rig.k, keys, 4, KVT_IN(tier), NULL, &found), KVT_OK);
	return found.hits;
}

static void wait_and_look(size_t memory, size_t disk, size_t shared)
{
	for (int i = 0; i < 20; i++)
		rig_advance(&rig, SECOND);
	ck_assert_uint_eq(shown(1, KVT_TIER_L1), memory);
	ck_assert_uint_eq(shown(1, KVT_TIER_NVME), disk);
	ck_assert_uint_eq(shown(1, KVT_TIER_L2), shared);
}

/* A tier that cannot be reached hides its own chunks alone; one that is reached, and refuses the
 * question, the disk's, too, and says so once. */
START_TEST(a_table_without_an_answer)
{
	struct kvt_table_ask *ask = calloc(1, sizeof(*ask));
	uint64_t lines;

	rig_put_chain(&rig, 1, 4);
	rig_settle(&rig);
	wait_and_look(4, 4, 4);
	ck_assert_int_eq(kvt_table_read(rig.k, ask), KVT_OK);
	fake_answer(fake_remote(), KVT_TIER_TABLE, KVT_EIO, UINT32_MAX);
	wait_and_look(4, 4, 0);
	ck_assert_int_eq(kvt_table_read(rig.k, ask), KVT_OK);
	ck_assert_uint_eq(rig_stats(&rig).tables_refused, 0);
	lines = rig.lines;
	fake_answer(fake_remote(), KVT_TIER_TABLE, KVT_ENOTSUP, UINT32_MAX);
	wait_and_look(4, 0, 0);
	ck_assert_int_eq(kvt_table_read(rig.k, ask), KVT_BUSY);
	ck_assert_uint_gt(rig_stats(&rig).tables_refused, 10);
	ck_assert_uint_eq(rig.lines, lines + 1);
	fake_answer(fake_remote(), KVT_TIER_TABLE, KVT_OK, 0);
	wait_and_look(4, 4, 4);
	free(ask);
}
END_TEST

/* A process that was stopped asks, whatever the last answer was. */
START_TEST(a_process_that_was_away_and_cut_off)
{
	static const enum kvt_status answers[] = {KVT_EIO, KVT_ENOTSUP};
	struct kvt_table_ask *ask = calloc(1, sizeof(*ask));

	rig_put_chain(&rig, 1, 4);
	rig_settle(&rig);
	for (size_t i = 0; i < 2; i++) {
		fake_answer(fake_remote(), KVT_TIER_TABLE, answers[i], UINT32_MAX);
		for (int j = 0; j < 20; j++)
			rig_advance(&rig, SECOND);
		ck_assert_uint_eq(shown(1, KVT_TIER_L1), 4);
		rig.now_ns += 60 * SECOND;
		ck_assert_uint_eq(shown(1, KVT_TIER_L1), 0);
		ck_assert_int_eq(kvt_table_read(rig.k, ask), KVT_BUSY);
		rig_settle(&rig);
		ck_assert_uint_eq(shown(1, KVT_TIER_L1), 4);
	}
	free(ask);
}
END_TEST

/* In a Cluster the table is one shard's matter: whether the tier is used does not depend on it. */
START_TEST(a_table_says_nothing_of_its_tier)
{
	rig_put_chain(&rig, 1, 4);
	rig_settle(&rig);
	fake_answer(fake_remote(), KVT_TIER_TABLE, KVT_EIO, UINT32_MAX);
	for (int i = 0; i < 100; i++)
		rig_advance(&rig, SECOND);
	ck_assert_uint_eq(rig_stats(&rig).tiers[KVT_TIER_L2].breaker_trips, 0);
	ck_assert_int_eq(rig_stats(&rig).tiers[KVT_TIER_L2].state, KVT_TIER_WORKS);
}
END_TEST

/* Until the table was read no tier below memory is used. */
START_TEST(a_table_that_was_never_read)
{
	kvt_close(rig.k);
	fake_table_fails(true);
	ck_assert_int_eq(kvt_open_with(&rig.config, both, &rig.k), KVT_OK);
	rig_put_chain(&rig, 1, 4);
	rig_settle(&rig);
	ck_assert_uint_eq(fake_chunks(fake_tier()) + fake_chunks(fake_remote()), 0);
	ck_assert_uint_eq(rig_get(&rig, 1, 4, LONG), 4);
	fake_table_fails(false);
	for (int i = 0; i < 400; i++)
		rig_advance(&rig, SECOND);
	rig_put_chain(&rig, 2, 4);
	rig_settle(&rig);
	ck_assert_uint_eq(fake_chunks(fake_tier()), 4);
}
END_TEST

/* A shared tier that is left out for good (a setting that it does not know) is as none: the disk is used. */
START_TEST(a_table_that_will_never_be_there)
{
	kvt_close(rig.k);
	fake_tier_refuse(KVT_ENOTSUP); /* of the first one, the shared one */
	ck_assert_int_eq(kvt_open_with(&rig.config, both, &rig.k), KVT_OK);
	ck_assert_uint_eq(rig_stats(&rig).tiers[KVT_TIER_L2].state, KVT_TIER_BROKEN);
	rig_put_chain(&rig, 1, 4);
	rig_settle(&rig);
	ck_assert_uint_eq(fake_chunks(fake_tier()), 4);
	rig_push_out(&rig);
	ck_assert_uint_eq(rig_get(&rig, 1, 4, LONG), 4);
	ck_assert_int_eq(kvt_erase_tenant(rig.k, &(struct kvt_tenant[]){tenant_of(1)}[0], LONG, NULL), KVT_OK);
	ck_assert_uint_eq(rig_get(&rig, 1, 4, LONG), 0);
}
END_TEST

/* Requests without a name never reach the disk: that they fail says nothing about it. */
START_TEST(a_disk_is_not_blamed_for_names_that_are_unknown)
{
	struct kvt_key keys[4];

	kvt_close(rig.k);
	fake_table_fails(true);
	rig.config.breaker_failures = 3;
	ck_assert_int_eq(kvt_open_with(&rig.config, both, &rig.k), KVT_OK);
	keys_of(1, 4, keys);
	for (int i = 0; i < 8; i++)
		ck_assert_int_ne(kvt_erase(rig.k, keys, 4, 0, NULL), KVT_OK);
	rig_advance(&rig, 5 * SECOND);
	ck_assert_uint_eq(rig_stats(&rig).tiers[KVT_TIER_NVME].state, KVT_TIER_WORKS);
	ck_assert_uint_eq(rig_stats(&rig).tiers[KVT_TIER_NVME].io_errors, 0);
	fake_table_fails(false);
}
END_TEST

/* The disk comes while names are unknown, and a key was erased meanwhile: nothing else leaves the disk. */
START_TEST(a_disk_that_comes_before_the_names)
{
	static const struct kvt_tier_ops *const disk_first[] = {&fake_tier_ops, &fake_table_ops, NULL};
	struct kvt_key key = key_of(1, 0), other = key_of(7, 0);
	struct kvt_tenant tenant = tenant_of(7);
	uint8_t data[64] = {0};

	kvt_close(rig.k);
	fake_table_fails(true);
	fake_tier_refuse(KVT_ELOCKED);
	ck_assert_int_eq(kvt_open_with(&rig.config, disk_first, &rig.k), KVT_OK);
	fake_tier_begin_with(&other, &tenant, data, sizeof(data));
	(void)!kvt_erase(rig.k, &key, 1, 0, NULL);
	for (int i = 0; i < 100; i++)
		rig_advance(&rig, SECOND);
	fake_table_fails(false);
	for (int i = 0; i < 400; i++)
		rig_advance(&rig, SECOND);
	ck_assert_uint_eq(rig_stats(&rig).tiers[KVT_TIER_NVME].state, KVT_TIER_WORKS);
	ck_assert_uint_eq(fake_chunks(fake_tier()), 1);
}
END_TEST

START_TEST(a_long_table_comes_in_parts)
{
	struct kvt_key before, after;

	rig_put_chain(&rig, 20, 1);
	rig_settle(&rig);
	before = name_of(20);
	fake_table_page(3);
	for (uint32_t i = 0; i < 20; i++)
		fake_table_raise(1 + i);
	rig_advance(&rig, 5 * SECOND);
	after = name_of(20);
	ck_assert_mem_ne(&before, &after, sizeof(before));
	kvt_close(rig.k);
	ck_assert_int_eq(kvt_open_with(&rig.config, both, &rig.k), KVT_OK);
	ck_assert_mem_eq(&after, &(struct kvt_key[]){name_of(20)}[0], sizeof(after));
}
END_TEST

/* A server that always says that there is more, and never what. */
START_TEST(a_table_without_end)
{
	rig_put_chain(&rig, 1, 4);
	rig_settle(&rig);
	fake_table_page(0);
	fake_table_raise(9);
	rig_advance(&rig, 3 * SECOND);
	ck_assert_uint_le(fake_begun(fake_remote(), KVT_TIER_TABLE), 1000);
	fake_table_page(1000);
	rig_advance(&rig, SECOND);
	ck_assert_uint_eq(rig_get(&rig, 1, 4, LONG), 4);
	ck_assert_uint_eq(counted(), 1);
}
END_TEST

/* Erases that a stopped server does not answer do not pile up. */
START_TEST(erases_in_line)
{
	struct kvt_tenant tenant = tenant_of(1);
	size_t before = fake_begun(fake_remote(), KVT_TIER_TABLE);

	fake_hold(fake_remote(), KVT_TIER_TABLE, true);
	for (int i = 0; i < 400; i++)
		ck_assert_int_eq(kvt_erase_tenant(rig.k, &tenant, 0, NULL), KVT_EIO);
	fake_hold(fake_remote(), KVT_TIER_TABLE, false);
	rig_settle(&rig);
	ck_assert_uint_le(fake_begun(fake_remote(), KVT_TIER_TABLE) - before, 300);
	ck_assert_int_eq(kvt_erase_tenant(rig.k, &tenant, LONG, NULL), KVT_OK);
}
END_TEST

/* A chunk that is being brought up was read under the name of before. */
START_TEST(a_load_brings_nothing_back)
{
	struct kvt_completion done;
	struct kvt_key keys[2];
	uint64_t op;

	rig_put_chain(&rig, 1, 2);
	rig_settle(&rig);
	rig_push_out(&rig);
	fake_hold(fake_remote(), KVT_TIER_READ, true);
	keys_of(1, 2, keys);
	ck_assert_int_eq(kvt_get_begin(rig.k, keys, 2, LONG, 0, &op), KVT_OK);
	rig_settle(&rig);
	fake_table_raise(1);
	rig_advance(&rig, 3 * SECOND);
	fake_hold(fake_remote(), KVT_TIER_READ, false);
	rig_settle(&rig);
	ck_assert_uint_eq(kvt_poll(rig.k, &done, 1), 1);
	ck_assert_uint_eq(done.status, KVT_MISS);
}
END_TEST

START_TEST(a_reader_keeps_what_it_has)
{
	struct kvt_lease *lease;
	struct kvt_key keys[3];

	rig_put_chain(&rig, 1, 3);
	rig_settle(&rig);
	keys_of(1, 3, keys);
	ck_assert_int_eq(kvt_get(rig.k, keys, 3, LONG, &lease), KVT_OK);
	fake_table_raise(1);
	rig_advance(&rig, 5 * SECOND);
	ck_assert_uint_eq(rig_lookup(&rig, 1, 3, NULL), 0);
	check_lease(lease, keys, 3);
	kvt_release(rig.k, lease);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("generations");

	tcase_add_checked_fixture(tc, open_rig, close_rig);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, tiers_know_names_and_not_keys);
	tcase_add_test(tc, an_erased_tenant_has_another_name);
	tcase_add_test(tc, an_erase_that_does_not_arrive);
	tcase_add_test(tc, an_erase_that_fails_and_is_late);
	tcase_add_test(tc, an_erase_of_another_model);
	tcase_add_test(tc, an_erase_by_another);
	tcase_add_test(tc, a_process_that_was_away);
	tcase_add_test(tc, an_erase_while_no_process_ran);
	tcase_add_test(tc, a_lost_table_is_a_cold_cache);
	tcase_add_test(tc, a_table_that_lost_its_last_change);
	tcase_add_test(tc, a_table_that_cannot_be_asked);
	tcase_add_test(tc, a_table_without_an_answer);
	tcase_add_test(tc, a_process_that_was_away_and_cut_off);
	tcase_add_test(tc, a_table_says_nothing_of_its_tier);
	tcase_add_test(tc, a_table_that_was_never_read);
	tcase_add_test(tc, a_table_that_will_never_be_there);
	tcase_add_test(tc, a_disk_is_not_blamed_for_names_that_are_unknown);
	tcase_add_test(tc, a_disk_that_comes_before_the_names);
	tcase_add_test(tc, a_long_table_comes_in_parts);
	tcase_add_test(tc, a_table_without_end);
	tcase_add_test(tc, erases_in_line);
	tcase_add_test(tc, a_load_brings_nothing_back);
	tcase_add_test(tc, a_reader_keeps_what_it_has);
	return run_tcase("generations", tc);
}
