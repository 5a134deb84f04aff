/*
 * breaker_test.c - a tier that fails, stalls or is not there, and what is worth fetching.
 */
#include <string.h>
#include <time.h>

#include "support.h"
#include "tests/unit/suite.h"

#define LONG (100000 * SECOND)

static struct rig rig;
static struct kvt_key keys[16];

static void open_rig(void)
{
	rig_init(&rig);
	rig.config.breaker_failures = 3;
	rig.config.breaker_open_ns = 5 * SECOND;
	rig.config.breaker_open_max_ns = 20 * SECOND;
	rig_open(&rig);
	keys_of(1, 16, keys);
}

static void close_rig(void)
{
	if (rig.k != NULL)
		rig_close(&rig);
}

static void below_only(uint32_t n)
{
	rig_put_chain(&rig, 1, n);
	rig_settle(&rig);
	rig_push_out(&rig);
}

static uint32_t state(void)
{
	return rig_stats(&rig).tiers[KVT_TIER_NVME].state;
}

/* Fails as often as it takes. */
static void trip(void)
{
	fake_answer(fake_tier(), KVT_TIER_READ, KVT_EIO, UINT32_MAX);
	for (int i = 0; i < 3; i++)
		ck_assert_uint_eq(rig_get(&rig, 1, 1, SECOND), 0);
	ck_assert_uint_eq(state(), KVT_TIER_PAUSED);
}

START_TEST(failures_in_a_row_open_it)
{
	below_only(2);
	fake_answer(fake_tier(), KVT_TIER_READ, KVT_EIO, 2);
	ck_assert_uint_eq(rig_get(&rig, 1, 1, SECOND), 0);
	ck_assert_uint_eq(rig_get(&rig, 1, 1, SECOND), 0);
	ck_assert_uint_eq(rig_get(&rig, 1, 1, SECOND), 1); /* not in a row */
	rig_push_out(&rig);
	ck_assert_uint_eq(state(), KVT_TIER_WORKS);
	trip();
	ck_assert_uint_eq(rig_lookup(&rig, 1, 1, NULL), 0);
	ck_assert_uint_eq(rig_stats(&rig).tiers[KVT_TIER_NVME].breaker_trips, 1);
	ck_assert_uint_eq(rig_stats(&rig).tiers[KVT_TIER_NVME].io_errors, 5);
	ck_assert_int_eq(rig_put(&rig, 5, 0), KVT_OK); /* the rest goes on */
	ck_assert_uint_eq(rig_get(&rig, 5, 1, 0), 1);
}
END_TEST

START_TEST(a_probe_closes_it)
{
	size_t begun;

	below_only(3);
	trip();
	fake_answer(fake_tier(), KVT_TIER_READ, KVT_OK, 0);
	begun = fake_begun(fake_tier(), KVT_TIER_READ);
	ck_assert_uint_eq(rig_get(&rig, 1, 3, SECOND), 0);
	ck_assert_uint_eq(fake_begun(fake_tier(), KVT_TIER_READ), begun);
	rig_advance(&rig, 6 * SECOND); /* with the jitter it is over */
	ck_assert_uint_eq(rig_lookup(&rig, 1, 3, NULL), 3);
	ck_assert_uint_eq(rig_get(&rig, 1, 3, SECOND), 1); /* one at a time until it has answered */
	ck_assert_uint_eq(state(), KVT_TIER_WORKS);
	ck_assert_uint_eq(rig_get(&rig, 1, 3, SECOND), 3);
}
END_TEST

START_TEST(a_failed_probe_doubles_the_pause)
{
	below_only(3);
	trip();
	rig_advance(&rig, 6 * SECOND);
	ck_assert_uint_eq(rig_get(&rig, 1, 1, SECOND), 0); /* the probe */
	ck_assert_uint_eq(state(), KVT_TIER_PAUSED);
	rig_advance(&rig, 9 * SECOND);
	ck_assert_uint_eq(state(), KVT_TIER_PAUSED);
	rig_advance(&rig, 3 * SECOND);
	ck_assert_uint_eq(state(), KVT_TIER_WORKS);
	ck_assert_uint_eq(rig_get(&rig, 1, 1, SECOND), 0);
	rig_advance(&rig, 19 * SECOND);
	ck_assert_uint_eq(state(), KVT_TIER_PAUSED);
	rig_advance(&rig, 4 * SECOND);
	ck_assert_uint_eq(rig_get(&rig, 1, 1, SECOND), 0);
	rig_advance(&rig, 23 * SECOND); /* no longer than the longest */
	ck_assert_uint_eq(state(), KVT_TIER_WORKS);
	ck_assert_uint_eq(rig_stats(&rig).tiers[KVT_TIER_NVME].breaker_trips, 4);
}
END_TEST

/* A disk that cannot be written to (EROFS, EDQUOT, EIO) is read from; it is asked to store again after a pause. */
START_TEST(writes_that_fail_leave_reads_on)
{
	below_only(3);
	fake_answer(fake_tier(), KVT_TIER_WRITE, KVT_EIO, UINT32_MAX);
	rig_put_chain(&rig, 7, 6);
	rig_settle(&rig);
	ck_assert_uint_eq(fake_begun(fake_tier(), KVT_TIER_WRITE), 64 + 3 + 6); /* all at once */
	ck_assert_uint_eq(state(), KVT_TIER_PAUSED);
	ck_assert_uint_eq(rig_stats(&rig).tiers[KVT_TIER_NVME].breaker_trips, 1);
	rig_put_chain(&rig, 8, 1);
	rig_settle(&rig);
	ck_assert_uint_eq(fake_begun(fake_tier(), KVT_TIER_WRITE), 64 + 3 + 6);
	ck_assert_uint_eq(rig_lookup(&rig, 1, 3, NULL), 3);
	ck_assert_uint_eq(rig_get(&rig, 1, 3, SECOND), 3);
	ck_assert_uint_eq(state(), KVT_TIER_PAUSED); /* that says nothing about writes */
	fake_answer(fake_tier(), KVT_TIER_WRITE, KVT_OK, 0);
	rig_advance(&rig, 6 * SECOND); /* the one that waits is the probe */
	ck_assert_uint_eq(fake_begun(fake_tier(), KVT_TIER_WRITE), 64 + 3 + 7);
	ck_assert_uint_eq(state(), KVT_TIER_WORKS);
}
END_TEST

/* A drain between two failures had nothing to flush, and is no success. */
START_TEST(drains_do_not_hide_that_writes_fail)
{
	fake_answer(fake_tier(), KVT_TIER_WRITE, KVT_EIO, UINT32_MAX);
	for (uint32_t i = 0; i < 3; i++) {
		ck_assert_uint_eq(state(), KVT_TIER_WORKS);
		ck_assert_int_eq(rig_put(&rig, 7 + i, 0), KVT_OK);
		ck_assert_int_eq(kvt_drain(rig.k, SECOND), KVT_OK);
	}
	ck_assert_uint_eq(state(), KVT_TIER_PAUSED);
}
END_TEST

START_TEST(reads_that_fail_leave_writes_on)
{
	below_only(1);
	trip();
	ck_assert_int_eq(rig_put(&rig, 7, 0), KVT_OK);
	rig_settle(&rig);
	ck_assert_uint_eq(fake_begun(fake_tier(), KVT_TIER_WRITE), 66);
	ck_assert_uint_eq(state(), KVT_TIER_PAUSED);
}
END_TEST

START_TEST(misses_and_bad_chunks_are_answers)
{
	below_only(8);
	fake_answer(fake_tier(), KVT_TIER_READ, KVT_ECORRUPT, 4);
	for (int i = 0; i < 4; i++)
		ck_assert_uint_eq(rig_get(&rig, 1, 1, SECOND), 0);
	fake_answer(fake_tier(), KVT_TIER_READ, KVT_MISS, 4);
	for (int i = 0; i < 4; i++)
		ck_assert_uint_eq(rig_get(&rig, 1, 1, SECOND), 0);
	fake_answer(fake_tier(), KVT_TIER_WRITE, KVT_FULL, 10);
	rig_put_chain(&rig, 3, 10);
	rig_settle(&rig);
	ck_assert_uint_eq(state(), KVT_TIER_WORKS);
	ck_assert_uint_ge(rig_stats(&rig).stores_dropped, 10);
}
END_TEST

START_TEST(a_stalled_tier_is_left_alone)
{
	struct kvt_completion c[4];
	uint64_t op;

	below_only(3);
	fake_hold(fake_tier(), KVT_TIER_READ, true);
	ck_assert_int_eq(kvt_get_begin(rig.k, keys, 1, LONG, 0, &op), KVT_OK);
	rig_advance(&rig, 8 * SECOND);
	rig_advance(&rig, 8 * SECOND);
	ck_assert_uint_eq(state(), KVT_TIER_WORKS);
	ck_assert_uint_eq(kvt_poll(rig.k, c, 4), 0);
	rig_advance(&rig, 8 * SECOND);
	ck_assert_uint_eq(state(), KVT_TIER_PAUSED);
	ck_assert_uint_eq(kvt_poll(rig.k, c, 4), 1); /* the waiting op completes */
	ck_assert_uint_eq(c[0].status, KVT_MISS);
	fake_hold(fake_tier(), KVT_TIER_READ, false); /* a late answer opens nothing ... */
	rig_settle(&rig);
	ck_assert_uint_eq(state(), KVT_TIER_PAUSED);
	ck_assert_uint_eq(rig_get(&rig, 1, 1, 0), 1); /* ... but its chunk is as good as any */
}
END_TEST

START_TEST(without_the_tier_memory_works)
{
	rig_close(&rig);
	rig_init(&rig);
	fake_tier_refuse(KVT_ELOCKED);
	rig_open(&rig);
	ck_assert_uint_eq(state(), KVT_TIER_BROKEN);
	ck_assert_str_eq(rig_stats(&rig).tiers[KVT_TIER_NVME].reason, "the test says so");
	ck_assert_uint_ge(rig.lines, 1);
	rig_put_chain(&rig, 1, 3);
	ck_assert_uint_eq(rig_get(&rig, 1, 3, 0), 3);
	ck_assert_int_eq(kvt_drain(rig.k, 0), KVT_OK);
	ck_assert_int_eq(kvt_erase(rig.k, keys, 3, 0, NULL), KVT_MISS); /* a store may come */
	rig_close(&rig);
	rig_init(&rig);
	fake_tier_refuse(KVT_MISS); /* not configured */
	rig_open(&rig);
	ck_assert_uint_eq(state(), KVT_TIER_ABSENT);
	ck_assert_int_eq(kvt_erase(rig.k, keys, 3, 0, NULL), KVT_OK);
}
END_TEST

/* --- a store that another process owns --------------------------------------------------------- */

static void open_refused(void)
{
	rig_close(&rig);
	rig_init(&rig);
	fake_tier_refuse(KVT_ELOCKED);
	rig_open(&rig);
	ck_assert_uint_eq(state(), KVT_TIER_BROKEN);
	ck_assert_uint_eq(rig_stats(&rig).lock_refusals, 1);
}

/* Lies in the store of the process that owns it now. */
static void of_the_owner(uint32_t chain, uint32_t index)
{
	struct kvt_key key = key_of(chain, index);
	struct kvt_tenant tenant = {{0}};
	static uint8_t data[CHUNK];

	bytes_of(&key, data, CHUNK);
	memcpy(tenant.bytes, &chain, sizeof(chain));
	fake_tier_begin_with(&key, &tenant, data, CHUNK);
}

START_TEST(a_refused_store_is_asked_for_again_until_it_is_free)
{
	open_refused();
	rig_put_chain(&rig, 1, 3);
	fake_tier_refuse(KVT_ELOCKED);
	rig_advance(&rig, 4 * SECOND);
	ck_assert_uint_eq(rig_stats(&rig).lock_refusals, 1);
	rig_advance(&rig, 1 * SECOND);
	ck_assert_uint_eq(rig_stats(&rig).lock_refusals, 2);
	ck_assert_uint_eq(state(), KVT_TIER_BROKEN);
	ck_assert_str_eq(rig_stats(&rig).tiers[KVT_TIER_NVME].reason, "the test says so");
	of_the_owner(7, 0);
	rig_advance(&rig, 9 * SECOND); /* the second pause is twice as long */
	ck_assert_uint_eq(state(), KVT_TIER_BROKEN);
	rig_advance(&rig, 1 * SECOND);
	ck_assert_uint_eq(state(), KVT_TIER_WORKS);
	ck_assert_str_eq(rig_stats(&rig).tiers[KVT_TIER_NVME].reason, "");
	ck_assert_uint_eq(rig_stats(&rig).lock_refusals, 2);
	ck_assert_uint_eq(rig_get(&rig, 7, 1, SECOND), 1); /* what the former owner stored */
	rig_put_chain(&rig, 2, 3);
	rig_settle(&rig);
	ck_assert_uint_eq(fake_chunks(fake_tier()), 4);
}
END_TEST

/* A disk that is full, read-only or not this user's at the start, for now; another format stays. */
START_TEST(a_store_that_cannot_be_opened_is_tried_again)
{
	static const enum kvt_status passing[] = {KVT_EIO, KVT_FULL}, staying[] = {KVT_EFORMAT, KVT_ENOTSUP};

	rig_close(&rig);
	for (int i = 0; i < 4; i++) {
		bool passes = i < 2;

		rig_init(&rig);
		fake_tier_refuse(passes ? passing[i] : staying[i - 2]);
		rig_open(&rig);
		ck_assert_uint_eq(state(), KVT_TIER_BROKEN);
		ck_assert_uint_eq(rig_stats(&rig).lock_refusals, 0);
		ck_assert_int_eq(kvt_erase(rig.k, keys, 1, 0, NULL), passes ? KVT_MISS : KVT_OK);
		rig_advance(&rig, 5 * SECOND);
		ck_assert_uint_eq(state(), passes ? KVT_TIER_WORKS : KVT_TIER_BROKEN);
		rig_close(&rig);
	}
	rig_init(&rig);
	rig_open(&rig);
}
END_TEST

START_TEST(pauses_between_questions_are_bounded)
{
	open_refused();
	for (int i = 0; i < 10; i++) {
		fake_tier_refuse(KVT_ELOCKED);
		rig_advance(&rig, 30 * SECOND);
	}
	ck_assert_uint_eq(rig_stats(&rig).lock_refusals, 11);
	fake_tier_refuse(KVT_OK);
	rig_advance(&rig, 30 * SECOND);
	ck_assert_uint_eq(state(), KVT_TIER_WORKS);
}
END_TEST

/* The store holds what its owner put, also under keys that this handle has erased. */
START_TEST(what_was_erased_before_a_store_came_is_not_read_from_it)
{
	struct kvt_key key = key_of(7, 1);
	struct kvt_tenant tenant = {{8}};

	open_refused();
	for (uint32_t i = 0; i < 2; i++) {
		of_the_owner(7, i);
		of_the_owner(8, i);
		of_the_owner(9, i);
	}
	ck_assert_int_eq(kvt_erase(rig.k, &key, 1, 0, NULL), KVT_MISS);
	ck_assert_int_eq(kvt_erase_tenant(rig.k, &tenant, 0, NULL), KVT_MISS);
	ck_assert_int_eq(kvt_forget(rig.k, 0), KVT_OK); /* only this handle's own */
	rig_advance(&rig, 5 * SECOND);
	ck_assert_uint_eq(state(), KVT_TIER_WORKS);
	ck_assert_uint_eq(rig_get(&rig, 7, 2, SECOND), 1);
	ck_assert_uint_eq(rig_get(&rig, 8, 2, SECOND), 0);
	ck_assert_uint_eq(rig_get(&rig, 9, 2, SECOND), 2);
	ck_assert_uint_eq(fake_chunks(fake_tier()), 3);
}
END_TEST

START_TEST(all_that_was_erased_before_a_store_came_is_not_in_it)
{
	open_refused();
	of_the_owner(7, 0);
	ck_assert_int_eq(kvt_reset(rig.k), KVT_MISS);
	rig_put_chain(&rig, 7, 1);
	rig_advance(&rig, 5 * SECOND);
	ck_assert_uint_eq(state(), KVT_TIER_WORKS);
	ck_assert_uint_eq(fake_chunks(fake_tier()), 0);
	ck_assert_uint_eq(rig_get(&rig, 7, 1, SECOND), 1);
}
END_TEST

/* The handle ends before it has the store: the next one finds there what it was to erase. */
START_TEST(an_erase_is_durable_only_once_the_store_came)
{
	struct kvt_key key = key_of(7, 0);
	struct kvt_completion c;
	uint64_t op;

	open_refused();
	ck_assert_int_eq(kvt_erase_begin(rig.k, &key, 1, LONG, 0, &op), KVT_OK);
	rig_settle(&rig);
	ck_assert_uint_eq(kvt_poll(rig.k, &c, 1), 1);
	ck_assert_uint_eq(c.status, KVT_MISS);
	ck_assert_int_eq(kvt_reset(rig.k), KVT_MISS);
	ck_assert_int_eq(kvt_reset(rig.k), KVT_MISS); /* also where all is owed already */
	ck_assert_int_eq(kvt_erase(rig.k, &key, 1, 0, NULL), KVT_MISS);
	rig_close(&rig);
	rig_init(&rig);
	of_the_owner(7, 0);
	rig_open(&rig);
	ck_assert_uint_eq(rig_get(&rig, 7, 1, SECOND), 1);
	ck_assert_int_eq(kvt_reset(rig.k), KVT_OK);
	open_refused();
	rig_advance(&rig, 5 * SECOND);
	ck_assert_uint_eq(state(), KVT_TIER_WORKS);
	ck_assert_int_eq(kvt_erase(rig.k, &key, 1, LONG, NULL), KVT_OK);
}
END_TEST

START_TEST(limits_are_kept_until_a_store_is_used)
{
	struct kvt_tenant one = {{1}}, two = {{2}};

	open_refused();
	ck_assert_int_eq(kvt_limit_tenant(rig.k, &one, 0, 8 * CHUNK), KVT_OK);
	ck_assert_int_eq(kvt_limit_tenant(rig.k, &two, 0, 4 * CHUNK), KVT_OK);
	ck_assert_int_eq(kvt_reset(rig.k), KVT_MISS);
	fake_tier_refuse_erase_all(1); /* it comes, and cannot be brought up to date */
	rig_advance(&rig, 5 * SECOND);
	ck_assert_uint_eq(state(), KVT_TIER_BROKEN);
	ck_assert_int_eq(kvt_limit_tenant(rig.k, &two, 0, 2 * CHUNK), KVT_OK);
	rig_advance(&rig, 10 * SECOND);
	ck_assert_uint_eq(state(), KVT_TIER_WORKS);
	ck_assert_uint_eq(fake_tier()->limits, 2);
	ck_assert_mem_eq(&fake_tier()->limited, &two, sizeof(two)); /* its last one */
	ck_assert_uint_eq(fake_tier()->limit, 2 * CHUNK);
}
END_TEST

/* With threads: the handle closes at once while it waits for a store, and works once that is free. */
START_TEST(a_handle_with_threads_asks_again_and_closes)
{
	rig_close(&rig);
	for (int round = 0; round < 2; round++) {
		rig_init(&rig);
		rig.config.threads = KVT_THREADS_OWN;
		rig.config.clock = NULL;
		rig.config.breaker_open_ns = round == 0 ? 3600 * SECOND : SECOND / 1000;
		fake_tier_refuse(KVT_ELOCKED);
		rig_open(&rig);
		rig_put_chain(&rig, 1, 3);
		while (round == 1 && state() != KVT_TIER_WORKS)
			nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
		rig_close(&rig);
	}
	rig_init(&rig);
	rig_open(&rig);
}
END_TEST

/* --- fetch or recompute ----------------------------------------------------------------------- */

/* Reads at `rate` bytes a second from now on, as far as the library sees. */
static void teach_read_rate(uint64_t rate)
{
	uint64_t op;
	struct kvt_completion c;

	fake_answer(fake_tier(), KVT_TIER_WRITE, KVT_FULL, UINT32_MAX);
	for (int i = 0; i < 4; i++) {
		fake_hold(fake_tier(), KVT_TIER_READ, true);
		ck_assert_int_eq(kvt_get_begin(rig.k, keys, 1, LONG, 0, &op), KVT_OK);
		rig_settle(&rig);
		atomic_fetch_add(&rig.now_ns, (int64_t)(CHUNK * SECOND / rate));
		fake_hold(fake_tier(), KVT_TIER_READ, false);
		rig_settle(&rig);
		ck_assert_uint_eq(kvt_poll(rig.k, &c, 1), 1);
		if (c.status == KVT_OK) {
			struct kvt_lease *lease;

			ck_assert_int_eq(kvt_get_take(rig.k, op, &lease), KVT_OK);
			kvt_release(rig.k, lease);
		}
		rig_push_out(&rig);
	}
	fake_answer(fake_tier(), KVT_TIER_WRITE, KVT_OK, 0);
}

static struct kvt_lookup look(uint32_t n)
{
	struct kvt_lookup found;

	ck_assert_int_eq(kvt_lookup(rig.k, keys, n, KVT_ALL_TIERS, NULL, &found), KVT_OK);
	return found;
}

START_TEST(with_unknown_rates_all_is_worth_it)
{
	struct kvt_lookup found;

	below_only(4);
	found = look(4);
	ck_assert_uint_eq(found.hits, 4);
	ck_assert_uint_eq(found.worth, 4);
	ck_assert_uint_eq(found.recompute_ns, 0);
}
END_TEST

START_TEST(a_slow_tier_is_not_fetched_from)
{
	struct kvt_stats s;
	struct kvt_lookup found;

	rig.config.fetch_when_slower = 0;
	below_only(4);
	teach_read_rate(10000000); /* 10 MB/s: a chunk takes 20 ms */
	s = rig_stats(&rig);
	ck_assert_uint_gt(s.tiers[KVT_TIER_NVME].read_bytes_per_second, 9000000);
	ck_assert_uint_lt(s.tiers[KVT_TIER_NVME].read_bytes_per_second, 11000000);
	kvt_report_prefill(rig.k, 100000, 1 * SECOND); /* a chunk's 256 tokens take 2.6 ms */
	ck_assert_uint_eq(rig_stats(&rig).prefill_tokens_per_second, 100000);
	found = look(4);
	ck_assert_uint_eq(found.hits, 4);
	ck_assert_uint_eq(found.worth, 0);
	ck_assert_uint_eq(rig_get(&rig, 1, 4, LONG), 0);
	ck_assert_uint_eq(rig_stats(&rig).not_worth_fetching, 8);
	kvt_report_prefill(rig.k, 10000000, 10000 * SECOND); /* 1,000 tokens a second: 256 ms */
	found = look(4);
	ck_assert_uint_eq(found.worth, 4);
	ck_assert_uint_gt(found.recompute_ns, found.fetch_ns);
	ck_assert_uint_gt(found.fetch_ns, 4 * 15000000);
	ck_assert_uint_eq(rig_get(&rig, 1, 4, LONG), 4);
}
END_TEST

START_TEST(what_lies_in_memory_is_worth_it)
{
	struct kvt_lookup found;

	below_only(6);
	teach_read_rate(10000000);
	kvt_report_prefill(rig.k, 100000, 1 * SECOND);
	ck_assert_int_eq(rig_put(&rig, 1, 0), KVT_OK);
	ck_assert_uint_eq(look(6).worth, 1);
	for (uint32_t i = 2; i < 16; i++)
		ck_assert_int_eq(rig_put(&rig, 1, i), KVT_OK);
	found = look(16); /* the second is slow, but fourteen fast ones lie behind it */
	ck_assert_uint_eq(found.hits, 16);
	ck_assert_uint_eq(found.worth, 16);
	ck_assert_uint_eq(rig_get(&rig, 1, 16, LONG), 16);
}
END_TEST

START_TEST(a_tier_that_was_slow_is_looked_at_again)
{
	below_only(2);
	teach_read_rate(10000000);
	kvt_report_prefill(rig.k, 100000, 1 * SECOND);
	ck_assert_uint_eq(look(1).worth, 0);
	rig_advance(&rig, 11 * SECOND);
	ck_assert_uint_eq(look(1).worth, 1);
	ck_assert_uint_eq(look(1).worth, 0); /* once */
}
END_TEST

START_TEST(asked_to_it_fetches_anyway)
{
	rig_close(&rig);
	rig_init(&rig);
	rig.config.fetch_when_slower = 1;
	rig.config.prefill_tokens_per_second = 1e9;
	rig_open(&rig);
	below_only(2);
	teach_read_rate(10000000);
	ck_assert_uint_eq(look(2).worth, 2);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("breaker and worth");

	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, open_rig, close_rig);
	tcase_add_test(tc, failures_in_a_row_open_it);
	tcase_add_test(tc, a_probe_closes_it);
	tcase_add_test(tc, a_failed_probe_doubles_the_pause);
	tcase_add_test(tc, writes_that_fail_leave_reads_on);
	tcase_add_test(tc, drains_do_not_hide_that_writes_fail);
	tcase_add_test(tc, reads_that_fail_leave_writes_on);
	tcase_add_test(tc, misses_and_bad_chunks_are_answers);
	tcase_add_test(tc, a_stalled_tier_is_left_alone);
	tcase_add_test(tc, without_the_tier_memory_works);
	tcase_add_test(tc, a_refused_store_is_asked_for_again_until_it_is_free);
	tcase_add_test(tc, a_store_that_cannot_be_opened_is_tried_again);
	tcase_add_test(tc, pauses_between_questions_are_bounded);
	tcase_add_test(tc, what_was_erased_before_a_store_came_is_not_read_from_it);
	tcase_add_test(tc, all_that_was_erased_before_a_store_came_is_not_in_it);
	tcase_add_test(tc, an_erase_is_durable_only_once_the_store_came);
	tcase_add_test(tc, limits_are_kept_until_a_store_is_used);
	tcase_add_test(tc, a_handle_with_threads_asks_again_and_closes);
	tcase_add_test(tc, with_unknown_rates_all_is_worth_it);
	tcase_add_test(tc, a_slow_tier_is_not_fetched_from);
	tcase_add_test(tc, what_lies_in_memory_is_worth_it);
	tcase_add_test(tc, a_tier_that_was_slow_is_looked_at_again);
	tcase_add_test(tc, asked_to_it_fetches_anyway);
	return run_tcase("cache/core breaker", tc);
}
