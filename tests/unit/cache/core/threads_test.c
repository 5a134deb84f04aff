/*
 * threads_test.c - many threads on one cache with threads of its own, over a tier that fails now and
 * then. Whatever is got is what its key says; nothing hangs; nothing is left held.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support.h"
#include "tests/unit/suite.h"

#define THREADS 4
#define CHAINS  24
#define DEPTH   5
#define SMALL   (80u * 1024)

static struct rig rig;
/* gets that get_later has begun, and those whose completion was polled, by any thread */
static _Atomic size_t begun, polled;

struct worker {
	pthread_t thread;
	uint64_t seed;
	size_t rounds, got;
	uint8_t data[SMALL];
};

static uint32_t any(struct worker *w, uint32_t n)
{
	w->seed = w->seed * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(w->seed >> 33) % n;
}

/* Checks without Check, which is the main thread's. */
#define must(fine) ((fine) ? (void)0 : refuse(#fine, __LINE__))

static void refuse(const char *fine, int line)
{
	fprintf(stderr, "%s:%d: Assertion '%s' failed in a thread\n", __FILE__, line, fine);
	abort();
}

static bool right(struct worker *w, const struct kvt_lease *lease, const struct kvt_key *keys)
{
	static _Thread_local uint8_t found[SMALL];

	for (size_t i = 0; i < lease->count; i++) {
		bytes_of(&keys[i], w->data, SMALL);
		if (kvt_copy(lease, i, found, SMALL) != SMALL || memcmp(found, w->data, SMALL) != 0)
			return false;
	}
	return true;
}

static void put_some(struct worker *w, uint32_t chain, const struct kvt_key *keys)
{
	for (uint32_t i = 0; i < DEPTH; i++) {
		struct kvt_item item = {.size = sizeof(item),
			.key = keys[i],
			.parent = i > 0 ? &keys[i - 1] : NULL,
			.bytes = SMALL};
		enum kvt_status status;

		memcpy(item.tenant.bytes, &chain, sizeof(chain));
		bytes_of(&keys[i], w->data, SMALL);
		status = kvt_put(rig.k, &item, w->data);
		must(status == KVT_OK || status == KVT_EXISTS || status == KVT_FULL || status == KVT_MISS);
	}
}

static void get_some(struct worker *w, const struct kvt_key *keys)
{
	struct kvt_lease *lease;
	enum kvt_status status = kvt_get(rig.k, keys, DEPTH, any(w, 3) * 2000000, &lease);

	must(status == KVT_OK || status == KVT_MISS);
	if (status != KVT_OK)
		return;
	must(right(w, lease, keys));
	w->got += lease->count;
	kvt_release(rig.k, lease);
}

static void get_later(struct worker *w, const struct kvt_key *keys)
{
	struct kvt_completion c[4];
	struct kvt_lease *lease;
	uint64_t op;
	enum kvt_status status = kvt_get_begin(rig.k, keys, DEPTH, 20000000, any(w, 100), &op);

	must(status == KVT_OK || status == KVT_BUSY);
	begun += status == KVT_OK;
	if (status == KVT_OK && any(w, 4) == 0)
		must(kvt_cancel(rig.k, op) <= KVT_MISS); /* another may have polled and taken it */
	for (size_t n = kvt_poll(rig.k, c, 4); n > 0; n--) { /* of any thread's op */
		polled++;
		if (kvt_get_take(rig.k, c[n - 1].op, &lease) == KVT_OK) {
			for (size_t i = 0; i < lease->count;
				i++) /* whose keys are not known here */
				must(lease->views[i].bytes == SMALL);
			must(kvt_verify(rig.k, lease) == KVT_OK);
			kvt_release(rig.k, lease);
		}
	}
}

static void others(struct worker *w, uint32_t chain, const struct kvt_key *keys)
{
	struct kvt_tenant tenant = {{0}};
	struct kvt_lookup found;
	size_t count;

	switch (any(w, 8)) {
	case 0:
		must(kvt_erase(rig.k, &keys[any(w, DEPTH)], 1, any(w, 2) * 5000000, &count) <=
			KVT_MISS);
		break;
	case 1:
		memcpy(tenant.bytes, &chain, sizeof(chain));
		must(kvt_erase_tenant(rig.k, &tenant, 1000000, &count) <= KVT_MISS);
		break;
	case 2:
		must(kvt_prefetch(rig.k, keys, DEPTH) == KVT_OK);
		break;
	case 3:
		must(kvt_pin(rig.k, keys, 1, &count) == KVT_OK);
		must(kvt_unpin(rig.k, keys, 1, &count) == KVT_OK);
		break;
	case 4:
		must(kvt_drain(rig.k, 2000000) <= KVT_MISS);
		break;
	case 5:
		if (any(w, 10) == 0)
			must(kvt_reset(rig.k) <= KVT_MISS);
		break;
	default:
		kvt_report_prefill(rig.k, 1000, 10000000);
		must(kvt_lookup(rig.k, keys, DEPTH, 0, NULL, &found) == KVT_OK);
		must(found.hits <= DEPTH && found.worth <= found.hits);
	}
}

static void *work(void *self)
{
	struct worker *w = self;
	struct kvt_key keys[DEPTH];

	for (size_t round = 0; round < w->rounds; round++) {
		uint32_t chain = any(w, CHAINS);

		keys_of(chain, DEPTH, keys);
		switch (any(w, 6)) {
		case 0:
		case 1:
			put_some(w, chain, keys);
			break;
		case 2:
		case 3:
			get_some(w, keys);
			break;
		case 4:
			get_later(w, keys);
			break;
		default:
			others(w, chain, keys);
		}
	}
	return NULL;
}

static void run(size_t rounds)
{
	static struct worker workers[THREADS];
	size_t got = 0;

	for (uint32_t i = 0; i < THREADS; i++) {
		workers[i] = (struct worker){.seed = i + 1, .rounds = rounds};
		ck_assert_int_eq(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
	}
	for (uint32_t i = 0; i < THREADS; i++) {
		pthread_join(workers[i].thread, NULL);
		got += workers[i].got;
	}
	ck_assert_uint_gt(got, 0);
}

/* Takes and releases what the threads' gets have left; a get whose load waited in line ends after
 * a drain. */
static void take_all(void)
{
	struct kvt_completion c;
	struct kvt_lease *lease;

	while (polled < begun) {
		if (kvt_poll(rig.k, &c, 1) == 0) {
			usleep(1000);
			continue;
		}
		polled++;
		if (kvt_get_take(rig.k, c.op, &lease) == KVT_OK)
			kvt_release(rig.k, lease);
	}
}

static void open_threads(void)
{
	rig_init(&rig);
	rig.config.threads = KVT_THREADS_OWN;
	rig.config.clock = NULL;
	rig.config.l1_capacity = 60 * 128 * 1024;
	rig.config.l1_staging_share = 0.1;
	rig.config.l1_policy = "default";
	rig.config.l1_scrub_rate = 64u << 20;
	rig.config.l1_scrub_ns = 0;
	rig.config.breaker_open_ns = 20000000;
	rig.config.breaker_open_max_ns = 50000000;
	rig.config.store_inflight = 1u << 20;
	rig.config.load_inflight = 1u << 20;
	rig_open(&rig);
}

static uint64_t leased_in_l1(void)
{
	return rig_stats(&rig).tiers[KVT_TIER_L1].leased;
}

/* Checks that nothing is held any more: one look without a hold, since the scrubber holds each chunk
 * for a moment. */
static void check_nothing_leased(void)
{
	uint64_t leased = leased_in_l1();

	for (int i = 0; i < 10000 && leased != 0; i++) {
		usleep(1000);
		leased = leased_in_l1();
	}
	ck_assert_uint_eq(leased, 0);
}

START_TEST(threads_get_what_was_put)
{
	open_threads();
	run(400);
	ck_assert_int_eq(kvt_drain(rig.k, 60 * SECOND), KVT_OK);
	take_all();
	check_nothing_leased();
	ck_assert_uint_eq(rig_stats(&rig).tiers[KVT_TIER_L1].corrupt, 0);
	rig_close(&rig);
}
END_TEST

START_TEST(threads_over_a_tier_that_fails)
{
	open_threads();
	fake_answer(fake_tier(), KVT_TIER_READ, KVT_EIO, 30);
	run(200);
	fake_answer(fake_tier(), KVT_TIER_WRITE, KVT_EIO, 30);
	run(200);
	fake_answer(fake_tier(), KVT_TIER_ERASE, KVT_EIO, 5);
	run(200);
	rig_close(&rig); /* whatever is under way, and leases that were never taken */
}
END_TEST

/* A chunk that is not in L1, whatever the policy kept there. */
static uint32_t one_below(void)
{
	uint8_t tier = KVT_TIER_L1;
	uint32_t chain = 999;

	while (tier != KVT_TIER_NVME && chain < 1060)
		rig_lookup(&rig, ++chain, 1, &tier);
	ck_assert_uint_eq(tier, KVT_TIER_NVME);
	return chain;
}

START_TEST(a_get_waits_for_its_load)
{
	uint32_t chain;

	open_threads();
	rig_put_chain(&rig, 1, 3);
	ck_assert_int_eq(kvt_drain(rig.k, 60 * SECOND), KVT_OK);
	for (uint32_t i = 0; i < 60; i++) {
		ck_assert_int_eq(rig_put(&rig, 1000 + i, 0), KVT_OK);
		ck_assert_int_eq(kvt_drain(rig.k, 60 * SECOND), KVT_OK);
	}
	ck_assert_uint_eq(rig_get(&rig, 1, 3, 60 * SECOND), 3);
	chain = one_below();
	fake_hold(fake_tier(), KVT_TIER_READ, true);
	ck_assert_uint_eq(
		rig_get(&rig, chain, 1, 20000000), 0); /* its time is over, by the real clock */
	fake_hold(fake_tier(), KVT_TIER_READ, false);
	ck_assert_uint_eq(rig_get(&rig, chain, 1, 60 * SECOND), 1);
	rig_close(&rig);
}
END_TEST

/* Moves the caller's clock until *self: a get that begins late has its end moved past, too. */
static void *move_clock(void *self)
{
	struct timespec pause = {.tv_nsec = 30000000};

	while (!atomic_load((_Atomic bool *)self)) {
		nanosleep(&pause, NULL);
		atomic_fetch_add(&rig.now_ns, 10 * SECOND);
	}
	return NULL;
}

START_TEST(deadlines_count_by_the_callers_clock)
{
	_Atomic bool over = false;
	pthread_t mover;

	rig_init(&rig);
	rig.config.threads = KVT_THREADS_OWN;
	rig_open(&rig);
	rig_put_chain(&rig, 1, 1);
	ck_assert_int_eq(kvt_drain(rig.k, 60 * SECOND), KVT_OK);
	rig.config.threads = KVT_THREADS_OWN;
	for (uint32_t i = 0; i < 64; i++)
		ck_assert_int_eq(rig_put(&rig, 1000 + i, 0), KVT_OK);
	fake_hold(fake_tier(), KVT_TIER_READ, true);
	ck_assert_int_eq(pthread_create(&mover, NULL, move_clock, &over), 0);
	ck_assert_uint_eq(rig_get(&rig, 1, 1, 9 * SECOND), 0);
	atomic_store(&over, true);
	pthread_join(mover, NULL);
	ck_assert_int_ge(rig.now_ns, 1010 * SECOND);
	fake_hold(fake_tier(), KVT_TIER_READ, false);
	rig_close(&rig);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("threads");

	tcase_set_timeout(tc, 240);
	tcase_add_test(tc, threads_get_what_was_put);
	tcase_add_test(tc, threads_over_a_tier_that_fails);
	tcase_add_test(tc, a_get_waits_for_its_load);
	tcase_add_test(tc, deadlines_count_by_the_callers_clock);
	return run_tcase("cache/core threads", tc);
}
