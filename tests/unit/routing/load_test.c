/*
 * load_test.c - leases: the queue is never negative, nothing is subtracted twice, all returns to
 * zero.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "support.h"
#include "tests/unit/suite.h"

#define MS INT64_C(1000000)

/* An idle worker, and leases that are not taken. */
static struct kvw_load *load;
static struct kvw_lease a, b, c;

static void setup(void)
{
	a = b = c = (struct kvw_lease){0};
	load = aligned_alloc(64, sizeof(*load));
	ck_assert_ptr_nonnull(load);
	kvw_load_init(load);
}

static void teardown(void)
{
	free(load);
}

START_TEST(idle_worker_has_no_queue)
{
	ck_assert_int_eq(kvw_load_queue_ns(load, 0), 0);
	ck_assert_int_eq(kvw_load_queue_ns(load, 1000 * MS), 0);
	ck_assert_uint_eq(kvw_load_inflight(load), 0);
}
END_TEST

START_TEST(time_drains_the_queue)
{
	kvw_lease_take(&a, load, 100 * MS, 1000 * MS);
	ck_assert_int_eq(kvw_load_queue_ns(load, 1000 * MS), 100 * MS);
	ck_assert_int_eq(kvw_load_queue_ns(load, 1030 * MS), 70 * MS);
	ck_assert_int_eq(kvw_load_queue_ns(load, 1100 * MS), 0);
	ck_assert_int_eq(kvw_load_queue_ns(load, 5000 * MS), 0);
	ck_assert_uint_eq(kvw_load_inflight(load), 1);
	kvw_lease_release(&a, 5000 * MS);
	ck_assert_uint_eq(kvw_load_inflight(load), 0);
	ck_assert_ptr_null(a.load);
}
END_TEST

/* Idle time is not credit for later work. */
START_TEST(idle_time_is_not_progress)
{
	kvw_lease_take(&a, load, 10 * MS, 0);
	kvw_lease_take(&b, load, 100 * MS, 1000 * MS);
	ck_assert_int_eq(kvw_load_queue_ns(load, 1000 * MS), 100 * MS);
	kvw_lease_release(&a, 1000 * MS);
	ck_assert_int_eq(kvw_load_queue_ns(load, 1000 * MS), 100 * MS);
	kvw_lease_release(&b, 1000 * MS);
	ck_assert_int_eq(kvw_load_queue_ns(load, 1000 * MS), 0);
}
END_TEST

START_TEST(first_token_proves_progress_once)
{
	kvw_lease_take(&a, load, 100 * MS, 0);
	kvw_lease_take(&b, load, 50 * MS, 0);
	ck_assert_int_eq(kvw_load_queue_ns(load, 0), 150 * MS);
	kvw_lease_first_token(&a, 20 * MS);
	ck_assert_int_eq(kvw_load_queue_ns(load, 20 * MS), 50 * MS);
	kvw_lease_first_token(&a, 20 * MS);
	ck_assert_int_eq(kvw_load_queue_ns(load, 20 * MS), 50 * MS);
	kvw_lease_release(&a, 20 * MS);
	kvw_lease_release(&a, 20 * MS);
	ck_assert_int_eq(kvw_load_queue_ns(load, 20 * MS), 50 * MS);
	ck_assert_uint_eq(kvw_load_inflight(load), 1);
	kvw_lease_first_token(&b, 21 * MS);
	ck_assert_int_eq(kvw_load_queue_ns(load, 21 * MS), 0);
	kvw_lease_release(&b, 30 * MS);
	ck_assert_uint_eq(kvw_load_inflight(load), 0);
}
END_TEST

/* Time passed, then the answer: what time had drained is not drained again. */
START_TEST(time_and_answer_do_not_add_up)
{
	kvw_lease_take(&a, load, 100 * MS, 0);
	kvw_lease_take(&b, load, 100 * MS, 0);
	ck_assert_int_eq(kvw_load_queue_ns(load, 120 * MS), 80 * MS);
	kvw_lease_first_token(&a, 120 * MS);
	ck_assert_int_eq(kvw_load_queue_ns(load, 120 * MS), 80 * MS);
	kvw_lease_release(&a, 120 * MS);
	ck_assert_int_eq(kvw_load_queue_ns(load, 120 * MS), 80 * MS);
	kvw_lease_release(&b, 120 * MS);
}
END_TEST

/* A cancelled request takes with it what was not done of it, not more. */
START_TEST(cancel_skips_only_what_is_left)
{
	kvw_lease_take(&a, load, 100 * MS, 0);
	kvw_lease_take(&b, load, 100 * MS, 0);
	kvw_lease_take(&c, load, 100 * MS, 0);
	kvw_lease_release(&a, 60 * MS); /* 40 left of it */
	ck_assert_int_eq(kvw_load_queue_ns(load, 60 * MS), 200 * MS);
	kvw_lease_release(&c, 60 * MS); /* from the end of the queue */
	ck_assert_int_eq(kvw_load_queue_ns(load, 60 * MS), 100 * MS);
	kvw_lease_first_token(&b, 70 * MS);
	ck_assert_int_eq(kvw_load_queue_ns(load, 70 * MS), 0);
	kvw_lease_release(&b, 80 * MS);
	ck_assert_int_eq(kvw_load_queue_ns(load, 80 * MS), 0);
	ck_assert_uint_eq(kvw_load_inflight(load), 0);
}
END_TEST

/* A loop whose clock is behind must not undo what another has seen. */
START_TEST(clock_of_another_loop_may_lag)
{
	kvw_lease_take(&a, load, 100 * MS, 50 * MS);
	kvw_lease_take(&b, load, 100 * MS, 49 * MS);
	ck_assert_int_eq(kvw_load_queue_ns(load, 150 * MS), 100 * MS);
	kvw_lease_release(&a, 48 * MS);
	kvw_lease_release(&b, 47 * MS);
	ck_assert_int_eq(kvw_load_queue_ns(load, 40 * MS), 0 + 10 * MS); /* idle at its clock */
	ck_assert_int_eq(kvw_load_queue_ns(load, 50 * MS), 0);
}
END_TEST

START_TEST(prompts_in_flight_are_counted)
{
	struct kvw_lease leases[2] = {{0}, {0}};

	for (uint32_t i = 0; i < 2; i++) {
		kvw_lease_take(&leases[i], load, MS, 0);
		kvw_lease_hold(&leases[i], 1000 * (i + 1));
	}
	ck_assert_uint_eq(kvw_load_context(load), 3000);
	kvw_lease_first_token(&leases[0], MS);
	ck_assert_uint_eq(kvw_load_context(load), 3000);
	kvw_lease_release(&leases[0], 2 * MS);
	kvw_lease_release(&leases[0], 3 * MS);
	ck_assert_uint_eq(kvw_load_context(load), 2000);
	kvw_lease_release(&leases[1], 3 * MS); /* unanswered */
	ck_assert_uint_eq(kvw_load_context(load), 0);
}
END_TEST

static void are_counted(uint32_t all, uint32_t unanswered, uint64_t sent)
{
	struct kvw_load_sequences now = kvw_load_sequences(load);

	ck_assert_uint_eq(now.all, all);
	ck_assert_uint_eq(now.unanswered, unanswered);
	ck_assert_uint_eq(now.sent, sent);
}

START_TEST(sequences_are_counted_until_they_end)
{
	kvw_lease_take(&a, load, MS, 0);
	are_counted(0, 0, 0);
	kvw_lease_hold(&a, 1000);
	kvw_lease_take(&b, load, MS, 0);
	b.plain = true; /* its first token will not be seen */
	kvw_lease_hold(&b, 1000);
	kvw_lease_widen(&b, 3);
	are_counted(5, 1, 5);
	kvw_lease_take(&c, load, MS, 0);
	kvw_lease_hold(&c, 0);
	kvw_lease_widen(&c, 7);
	are_counted(13, 9, 13);
	c.plain = true; /* its answer is no stream after all */
	kvw_lease_first_token(&c, MS);
	kvw_lease_first_token(&c, MS);
	are_counted(13, 1, 13);
	kvw_lease_first_token(&b, MS);
	kvw_lease_release(&b, MS);
	kvw_lease_release(&c, MS);
	are_counted(1, 1, 13);
	kvw_lease_release(&a, MS); /* unanswered */
	are_counted(0, 0, 13);
}
END_TEST

START_TEST(a_refusal_teaches_a_limit_for_a_while)
{
	int64_t grown = 10 * MS + KVW_LOAD_GROW_NS;

	ck_assert(!kvw_load_is_full(load, 0));
	kvw_lease_take(&a, load, 0, 0);
	kvw_lease_hold(&a, 1);
	kvw_lease_take(&b, load, 0, 0);
	kvw_lease_hold(&b, 1);
	kvw_load_refused(load, 0, 0, 10 * MS); /* b was too many */
	kvw_lease_release(&b, 10 * MS);
	ck_assert(kvw_load_is_full(load, 10 * MS) && kvw_load_will_have_room(load, 10 * MS));
	ck_assert_int_eq(kvw_load_before_ns(load, 0, 10 * MS), KVW_LOAD_FULL_NS);
	ck_assert(!kvw_load_is_full(load, grown)); /* two may be there now */
	kvw_lease_release(&a, 20 * MS);
	ck_assert(!kvw_load_is_full(load, 20 * MS));
	/* One that refuses although it has nothing: it may be asked, but others come first, for as long as it says. */
	kvw_load_refused(load, 0, 5 * KVW_LOAD_GROW_NS, 20 * MS);
	ck_assert(kvw_load_is_full(load, 20 * MS + 5 * KVW_LOAD_GROW_NS));
	ck_assert(!kvw_load_will_have_room(load, 20 * MS));
	ck_assert_int_eq(kvw_load_before_ns(load, 0, 20 * MS), 0);
	ck_assert(!kvw_load_is_full(load, 20 * MS + 6 * KVW_LOAD_GROW_NS));
	kvw_load_refused(load, 0, 0, 20 * MS);
	kvw_load_forget_refusals(load);
	ck_assert(!kvw_load_is_full(load, 20 * MS));
	/* A refusal that arrives when the two that filled the engine have ended. */
	kvw_load_refused(load, 3, 0, 20 * MS);
	ck_assert(!kvw_load_is_full(load, 20 * MS));
}
END_TEST

START_TEST(foreign_requests_delay_those_that_came_after_them)
{
	ck_assert_int_eq(kvw_load_foreign_ns(load, 0, 0), 0);
	kvw_load_set_foreign(load, 4, 9, 400 * MS, 1000 * MS);
	ck_assert_uint_eq(kvw_load_foreign_running(load), 9);
	ck_assert_int_eq(kvw_load_foreign_ns(load, 1100 * MS, 1100 * MS), 300 * MS);
	ck_assert_int_eq(kvw_load_foreign_ns(load, 1100 * MS, 1400 * MS), 0);
	/* One that came before: at most so much was there already. */
	ck_assert_int_eq(kvw_load_foreign_ns(load, 700 * MS, 1000 * MS), 100 * MS);
	ck_assert_int_eq(kvw_load_foreign_ns(load, 600 * MS, 1000 * MS), 0);
	ck_assert_int_eq(kvw_load_queue_ns(load, 1000 * MS), 0); /* apart from ours */
	kvw_load_set_foreign(load, 0, 0, 0, 1100 * MS);
	ck_assert_int_eq(kvw_load_foreign_ns(load, 1100 * MS, 1100 * MS), 0);
}
END_TEST

START_TEST(empty_lease_does_nothing)
{
	kvw_lease_first_token(&a, 5);
	kvw_lease_release(&a, 6);
	ck_assert_ptr_null(a.load);
}
END_TEST

/* Any order of takes, answers, ends and time: 0 <= Q <= work of those that still wait; and time
 * alone drains it to 0. */
START_TEST(queue_stays_within_what_waits)
{
	struct kvw_lease leases[20];
	uint64_t dice = (uint64_t)_i + 1;
	int64_t now = 0;

	memset(leases, 0, sizeof(leases));
	for (unsigned step = 0; step < 50000; step++) {
		struct kvw_lease *lease = &leases[test_random(&dice) % 20];
		int64_t waiting = 0;
		uint32_t held = 0;
		int64_t queue = 0;

		now += (int64_t)(test_random(&dice) % 3000);
		if (lease->load == NULL)
			kvw_lease_take(lease, load, (int64_t)(test_random(&dice) % 9000), now);
		else if (test_random(&dice) % 2 == 0)
			kvw_lease_first_token(lease, now);
		else
			kvw_lease_release(lease, now);
		for (unsigned i = 0; i < 20; i++) {
			held += leases[i].load != NULL;
			if (leases[i].load != NULL && !leases[i].answered)
				waiting += leases[i].prefill_ns;
		}
		queue = kvw_load_queue_ns(load, now);
		EXPECT(queue >= 0 && queue <= waiting);
		EXPECT(kvw_load_queue_ns(load, now + queue) == 0);
		EXPECT(queue == 0 || kvw_load_queue_ns(load, now + queue - 1) == 1);
		EXPECT(kvw_load_inflight(load) == held);
	}
	for (unsigned i = 0; i < 20; i++)
		kvw_lease_release(&leases[i], now);
	ck_assert_uint_eq(kvw_load_inflight(load), 0);
	ck_assert_int_eq(kvw_load_queue_ns(load, now), 0);
}
END_TEST

#define LOOPS    4
#define PER_LOOP 20000

struct loop {
	struct kvw_load *load;
	uint64_t dice;
	bool negative;
};

static void *run_loop(void *arg)
{
	struct loop *loop = arg;
	struct kvw_lease leases[8];
	int64_t now = 0;

	memset(leases, 0, sizeof(leases));
	for (unsigned i = 0; i < PER_LOOP; i++) {
		struct kvw_lease *lease = &leases[test_random(&loop->dice) % 8];

		now += (int64_t)(test_random(&loop->dice) % 500);
		if (lease->load == NULL)
			kvw_lease_take(
				lease, loop->load, (int64_t)(test_random(&loop->dice) % 4000), now);
		else if (test_random(&loop->dice) % 2 == 0)
			kvw_lease_first_token(lease, now);
		else
			kvw_lease_release(lease, now);
		if (kvw_load_queue_ns(loop->load, now) < 0)
			loop->negative = true;
	}
	for (unsigned i = 0; i < 8; i++)
		kvw_lease_release(&leases[i], now);
	return NULL;
}

START_TEST(loops_share_a_worker)
{
	struct loop loops[LOOPS];
	pthread_t threads[LOOPS];

	for (unsigned i = 0; i < LOOPS; i++) {
		loops[i] = (struct loop){load, i + 1, false};
		ck_assert_int_eq(pthread_create(&threads[i], NULL, run_loop, &loops[i]), 0);
	}
	for (unsigned i = 0; i < LOOPS; i++) {
		pthread_join(threads[i], NULL);
		ck_assert(!loops[i].negative);
	}
	ck_assert_uint_eq(kvw_load_inflight(load), 0);
	ck_assert_int_eq(load->waiting_ns, 0);
	ck_assert_int_eq(load->added_ns, load->done_ns);
}
END_TEST

START_TEST(peers_work_counts_and_shares_the_time)
{
	const struct kvw_load_part peers = {300 * MS, 300 * MS, 3, 5000, 4, 2};

	kvw_lease_take(&a, load, 100 * MS, 0);
	kvw_lease_hold(&a, 1000);
	ck_assert(kvw_load_set_peers(load, &peers, 0) == 1);
	ck_assert_int_eq(kvw_load_queue_ns(load, 0), 400 * MS);
	ck_assert_uint_eq(kvw_load_inflight(load), 4);
	ck_assert_uint_eq(kvw_load_own_inflight(load), 1);
	ck_assert_uint_eq(kvw_load_context(load), 6000);
	ck_assert_uint_eq(kvw_load_sequences(load).all, 5);
	ck_assert_uint_eq(kvw_load_sequences(load).unanswered, 3);
	/* The worker does both: a quarter of the time is ours. */
	ck_assert_int_eq(kvw_load_queue_ns(load, 200 * MS), 200 * MS);
	ck_assert_int_eq(kvw_load_own(load, 200 * MS).queue_ns, 50 * MS);
	ck_assert_uint_eq(kvw_load_own(load, 200 * MS).inflight, 1);
	ck_assert_uint_eq(kvw_load_own(load, 200 * MS).context, 1000);
	/* Set again it is replaced, not added. */
	(void)kvw_load_set_peers(load, &peers, 200 * MS);
	ck_assert_int_eq(kvw_load_queue_ns(load, 200 * MS), 350 * MS);
	ck_assert_uint_eq(kvw_load_inflight(load), 4);
	/* And all of it goes. */
	kvw_lease_release(&a, 300 * MS);
	(void)kvw_load_set_peers(load, &(const struct kvw_load_part){0}, 300 * MS);
	ck_assert_int_eq(kvw_load_queue_ns(load, 300 * MS), 0);
	ck_assert_uint_eq(kvw_load_inflight(load), 0);
	ck_assert_uint_eq(kvw_load_context(load), 0);
	ck_assert_uint_eq(kvw_load_sequences(load).all, 0);
}
END_TEST

START_TEST(peers_of_a_former_worker_are_forgotten_and_own_work_is_not)
{
	const struct kvw_load_part peers = {30000 * MS, 30000 * MS, 3, 5000, 4, 2};
	int64_t now = 0;

	while (kvw_load_set_peers(load, &peers, now) > 0 && now < 100000 * MS)
		now += 100 * MS;
	for (int i = 0; i < 2; i++, now += 2500 * MS) /* some trust comes back */
		(void)kvw_load_set_peers(load, &(const struct kvw_load_part){.inflight = 7, .context = 70}, now);
	ck_assert_uint_gt(kvw_load_inflight(load), 0);
	kvw_lease_take(&b, load, 100 * MS, now);
	kvw_load_forget_peers(load);
	ck_assert_uint_eq(kvw_load_inflight(load), 1);
	ck_assert_int_eq(kvw_load_queue_ns(load, now), 100 * MS);
	/* And what is said of the next worker is believed. */
	ck_assert(kvw_load_set_peers(load, &peers, now) == 1);
	kvw_load_forget_peers(load);
	kvw_lease_release(&b, now);
	ck_assert_uint_eq(kvw_load_inflight(load), 0);
	ck_assert_uint_eq(kvw_load_sequences(load).all, 0);
	ck_assert_int_eq(kvw_load_queue_ns(load, now), 0);
}
END_TEST

START_TEST(peers_whose_queue_is_not_there_count_less)
{
	const struct kvw_load_part peers = {.queue_ns = 8000 * MS, .waiting_ns = 8000 * MS, .inflight = 9};
	float trust = 1;

	for (int i = 0; i < 4; i++) {
		ck_assert(kvw_load_set_peers(load, &peers, i * 1000 * MS) == trust);
		kvw_lease_take(&a, load, 10 * MS, i * 1000 * MS);
		kvw_lease_first_token(&a, (i * 1000 + 20) * MS); /* it waited for nothing */
		kvw_lease_release(&a, (i * 1000 + 30) * MS);
		trust /= 2;
	}
	(void)kvw_load_set_peers(load, &peers, 4000 * MS);
	ck_assert_int_eq(kvw_load_queue_ns(load, 4000 * MS), 500 * MS);
	/* One that did wait raises it again. */
	kvw_lease_take(&a, load, 10 * MS, 4000 * MS);
	kvw_lease_first_token(&a, 6600 * MS);
	ck_assert(kvw_load_set_peers(load, &peers, 6600 * MS) > trust);
}
END_TEST

/* It keeps all requests off a worker: no first token can show that nothing is there. */
START_TEST(peers_that_claim_a_worker_for_ever_are_not_believed_for_ever)
{
	const struct kvw_load_part peers = {30000 * MS, 30000 * MS, 4096, 1 << 26, 4096, 4096};
	const struct kvw_load_part none = {0};
	int64_t now = 0;

	for (; now < 30000 * MS; now += 100 * MS)
		ck_assert(kvw_load_set_peers(load, &peers, now) == 1);
	ck_assert(kvw_load_set_peers(load, &peers, now += 100 * MS) == 0);
	ck_assert_int_eq(kvw_load_queue_ns(load, now), 0);
	ck_assert_uint_eq(kvw_load_inflight(load), 0);
	ck_assert_uint_eq(kvw_load_context(load), 0);
	ck_assert_uint_eq(kvw_load_sequences(load).unanswered, 0);
	/* A long prompt that was its own reason to wait does not bear them out. */
	kvw_lease_take(&a, load, 8000 * MS, now);
	ck_assert(kvw_load_set_peers(load, &peers, now + 4000 * MS) == 0);
	kvw_lease_first_token(&a, now += 8500 * MS);
	kvw_lease_release(&a, now);
	ck_assert(kvw_load_set_peers(load, &peers, now) == 0);
	/* By their own word it is gone: they are believed again after a while. */
	(void)kvw_load_set_peers(load, &none, now);
	(void)kvw_load_set_peers(load, &none, now + 2500 * MS);
	ck_assert(kvw_load_set_peers(load, &peers, now + 5000 * MS) > 0.4f);
	ck_assert(kvw_load_set_peers(load, &none, now + 5100 * MS) < 0.6f);
	ck_assert(kvw_load_set_peers(load, &none, now + 60000 * MS) == 1);
}
END_TEST

/* Requests wait there: their first tokens will show, however long that takes. */
START_TEST(peers_of_a_worker_where_requests_wait_are_believed)
{
	const struct kvw_load_part peers = {.queue_ns = 5000 * MS, .waiting_ns = 5000 * MS, .inflight = 9};

	kvw_lease_take(&a, load, 10 * MS, 0);
	for (int64_t now = 0; now < 100000 * MS; now += 100 * MS)
		ck_assert(kvw_load_set_peers(load, &peers, now) == 1);
	kvw_lease_first_token(&a, 100000 * MS);
	ck_assert(kvw_load_set_peers(load, &peers, 100000 * MS) == 1);
}
END_TEST

/* One request that waits for so long, behind a claim of 8 s by router 3. */
static void wait_for(int64_t ms, int64_t now)
{
	kvw_lease_take(&a, load, 10 * MS, now);
	kvw_lease_first_token(&a, now + (10 + ms) * MS);
	kvw_lease_release(&a, now + (10 + ms) * MS);
}

START_TEST(first_tokens_judge_the_router_that_claims_most)
{
	const struct kvw_load_claim claim = {3, 8000 * MS}, small = {4, 1900 * MS}, none = {0};
	struct kvw_load_verdict verdict = kvw_load_set_claim(load, &claim);

	ck_assert_uint_eq(verdict.of, 0);
	wait_for(0, 0);
	wait_for(1999, 10000 * MS);
	wait_for(2500, 20000 * MS); /* neither here nor there */
	wait_for(4000, 30000 * MS);
	verdict = kvw_load_set_claim(load, &small);
	ck_assert_uint_eq(verdict.of, 3);
	ck_assert_uint_eq(verdict.wrong, 2);
	ck_assert_uint_eq(verdict.right, 1);
	wait_for(0, 40000 * MS); /* what is as short may have ended since it was said */
	ck_assert_uint_eq(kvw_load_set_claim(load, &claim).of, 0);
	/* The verdict is of the router that claimed most when the request was sent. */
	kvw_lease_take(&a, load, 10 * MS, 50000 * MS);
	(void)kvw_load_set_claim(load, &small);
	kvw_lease_first_token(&a, 50020 * MS);
	kvw_lease_release(&a, 50020 * MS);
	verdict = kvw_load_set_claim(load, &claim);
	ck_assert(verdict.of == 3 && verdict.wrong == 1 && verdict.right == 0);
	/* Another worker has the slot. */
	wait_for(0, 60000 * MS);
	kvw_load_forget_peers(load);
	wait_for(0, 70000 * MS);
	ck_assert_uint_eq(kvw_load_set_claim(load, &none).of, 0);
}
END_TEST

/* A request that keeps `tokens` of the KV memory from its prefill at `from` until `to`. */
static void keep(uint32_t tokens, int64_t from, int64_t to)
{
	kvw_lease_take(&c, load, 0, from);
	kvw_lease_hold(&c, tokens);
	kvw_lease_first_token(&c, from);
	kvw_lease_release(&c, to);
}

START_TEST(what_does_not_fit_waits_until_as_much_was_given_back)
{
	kvw_lease_take(&a, load, 0, 0);
	kvw_lease_hold(&a, 8000);
	ck_assert_double_eq(kvw_load_room_wait_ns(load, 1e9), 0); /* no size is known */
	kvw_load_set_room(load, 10000);
	ck_assert_double_eq(kvw_load_room_wait_ns(load, 4000), 0); /* nor how long requests keep it */
	keep(1000, 0, 1000 * MS);
	ck_assert_double_eq(kvw_load_room_wait_ns(load, 2000), 0);
	/* 10,000 tokens come back in a second. */
	ck_assert_double_eq_tol(kvw_load_room_wait_ns(load, 4000), 200e6, 1e3);
	ck_assert_double_eq_tol(kvw_load_delay_ns(load, 4000, 0), 200e6, 1e3);
	/* Prefill passes meanwhile: the longer one counts. */
	kvw_lease_take(&b, load, 500 * MS, 0);
	ck_assert_double_eq_tol(kvw_load_delay_ns(load, 4000, 0), 500e6, 1e3);
	kvw_lease_release(&b, 0);
	/* By what ends there it is known without another page of metrics. */
	kvw_lease_release(&a, 0);
	ck_assert_double_eq(kvw_load_room_wait_ns(load, 4000), 0);
	kvw_load_forget_room(load);
	ck_assert_double_eq(kvw_load_room_wait_ns(load, 1e9), 0);
}
END_TEST

START_TEST(long_prompts_say_more_of_how_long_memory_is_kept)
{
	kvw_load_set_room(load, 1000);
	for (int i = 0; i < 1000; i++) {
		keep(3000, 0, 1000 * MS);
		keep(1000, 0, 5000 * MS);
	}
	/* (3 x 1 + 1 x 5) / 4 s for 1,000 tokens */
	ck_assert_double_eq_tol(kvw_load_room_wait_ns(load, 2000), 2000e6, 50e6);
}
END_TEST

/* Its only byte comes at its end: of two seconds of a worker that is full twice over it kept memory for one. */
START_TEST(plain_answers_kept_memory_for_a_part_of_their_time)
{
	kvw_load_set_room(load, 1000);
	kvw_lease_take(&a, load, 0, 0);
	kvw_lease_hold(&a, 1000);
	kvw_lease_take(&b, load, 0, 0);
	b.plain = true;
	kvw_lease_hold(&b, 1000);
	kvw_lease_first_token(&b, 2000 * MS);
	kvw_lease_release(&b, 2000 * MS);
	ck_assert_double_eq_tol(kvw_load_room_wait_ns(load, 1000), 1000e6, 1e3);
	kvw_lease_release(&a, 2000 * MS);
}
END_TEST

/* Nothing was computed for it. */
START_TEST(a_request_without_a_first_token_says_nothing_of_kv_memory)
{
	kvw_load_set_room(load, 1000);
	kvw_lease_take(&a, load, 0, 0);
	kvw_lease_hold(&a, 1000);
	kvw_lease_release(&a, 9000 * MS);
	ck_assert_double_eq(kvw_load_room_wait_ns(load, 5000), 0);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("load");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, idle_worker_has_no_queue);
	tcase_add_test(tcase, time_drains_the_queue);
	tcase_add_test(tcase, idle_time_is_not_progress);
	tcase_add_test(tcase, first_token_proves_progress_once);
	tcase_add_test(tcase, time_and_answer_do_not_add_up);
	tcase_add_test(tcase, cancel_skips_only_what_is_left);
	tcase_add_test(tcase, clock_of_another_loop_may_lag);
	tcase_add_test(tcase, prompts_in_flight_are_counted);
	tcase_add_test(tcase, sequences_are_counted_until_they_end);
	tcase_add_test(tcase, foreign_requests_delay_those_that_came_after_them);
	tcase_add_test(tcase, peers_work_counts_and_shares_the_time);
	tcase_add_test(tcase, peers_of_a_former_worker_are_forgotten_and_own_work_is_not);
	tcase_add_test(tcase, peers_whose_queue_is_not_there_count_less);
	tcase_add_test(tcase, peers_that_claim_a_worker_for_ever_are_not_believed_for_ever);
	tcase_add_test(tcase, peers_of_a_worker_where_requests_wait_are_believed);
	tcase_add_test(tcase, first_tokens_judge_the_router_that_claims_most);
	tcase_add_test(tcase, what_does_not_fit_waits_until_as_much_was_given_back);
	tcase_add_test(tcase, long_prompts_say_more_of_how_long_memory_is_kept);
	tcase_add_test(tcase, plain_answers_kept_memory_for_a_part_of_their_time);
	tcase_add_test(tcase, a_request_without_a_first_token_says_nothing_of_kv_memory);
	tcase_add_test(tcase, a_refusal_teaches_a_limit_for_a_while);
	tcase_add_test(tcase, empty_lease_does_nothing);
	tcase_add_loop_test(tcase, queue_stays_within_what_waits, 0, 5);
	tcase_add_test(tcase, loops_share_a_worker);
	tcase_set_timeout(tcase, 120);
	return run_tcase("load", tcase);
}
