/*
 * gate_test.c - which request is sent, waits or is refused.
 */
#include <math.h>

#include "gate_scene.h"

/* A request that no test looks at keeps this worker busy for so long. */
static void occupy(uint32_t worker, int64_t ns, int64_t now_ns)
{
	kvw_pace_sent(&admission->paces[worker], 0, now_ns);
	set_queue(worker, now_ns + ns);
}

START_TEST(open_while_every_worker_can_take_one)
{
	struct kvw_entrant promised = {.promise = {.ttft_ns = SECOND}};
	struct kvw_entrant free = {0};

	gate.terms.ahead_ns = 2 * SECOND;
	ck_assert(kvw_gate_open(&gate, &promised, &set, BEGIN));
	occupy(0, SECOND, BEGIN);
	ck_assert(!kvw_gate_open(&gate, &promised, &set, BEGIN + MS));
	/* One that was promised nothing may have more before it. */
	ck_assert(kvw_gate_open(&gate, &free, &set, BEGIN + MS));
	ck_assert(!kvw_gate_open(&gate, &promised, &set, BEGIN + MS));
	ck_assert(kvw_gate_open(&gate, &promised, &set, BEGIN + 900 * MS));
	items[0].usable = false;
	gate.open_until_ns = 0;
	ck_assert(kvw_gate_open(&gate, &promised, &set, BEGIN + MS));
}
END_TEST

START_TEST(what_workers_did_corrects_what_they_have_to_do)
{
	struct kvw_entrant promised = {.promise = {.ttft_ns = SECOND}};

	occupy(0, SECOND, BEGIN);
	ck_assert(!kvw_gate_open(&gate, &promised, &set, BEGIN + MS));
	/* They turned out to compute ten times as fast as predicted. */
	atomic_store(&admission->done_per_ns, 10.0f);
	ck_assert(kvw_gate_open(&gate, &promised, &set, BEGIN + MS));
	gate.open_until_ns = 0;
	atomic_store(&admission->done_per_ns, 0.5f);
	ck_assert(!kvw_gate_open(&gate, &promised, &set, BEGIN + 850 * MS));
}
END_TEST

/* What is said to wait for KV memory is a price of the strategy's. A prompt is held for what is not computed. */
START_TEST(a_wait_for_kv_memory_holds_nothing)
{
	struct kvw_entrant any = {0};
	struct kvw_lease lease = {0};
	struct kvw_entrant *out = NULL;

	kvw_lease_take(&lease, &loads[0], 0, BEGIN);
	kvw_lease_hold(&lease, 1000);
	kvw_lease_first_token(&lease, BEGIN);
	kvw_lease_release(&lease, BEGIN + 100 * SECOND);
	kvw_lease_take(&lease, &loads[0], 0, BEGIN);
	kvw_lease_hold(&lease, 1000);
	kvw_load_set_room(&loads[0], 10);
	ck_assert_double_gt(kvw_load_room_wait_ns(&loads[0], 0), 1e12);
	ck_assert(kvw_gate_open(&gate, &any, &set, BEGIN));
	come(0, 0, MS, 0, BEGIN);
	ck_assert_int_eq(next(&out, BEGIN + SECOND), KVW_SEND);
	kvw_lease_release(&lease, BEGIN + SECOND);
}
END_TEST

START_TEST(a_prediction_is_corrected_as_admission_counts_on_it)
{
	struct kvw_decision decision = {.prefill_ns = SECOND, .queue_ns = SECOND};

	atomic_store(&admission->done_per_ns, 4.0f);
	gate.lag = 0.5;
	kvw_gate_passed(&gate, &requests[0].e, &decision, BEGIN);
	ck_assert_int_eq(requests[0].e.counted_ns, 750 * MS);
	kvw_gate_ended(&gate, &requests[0].e, BEGIN);
}
END_TEST

START_TEST(waits_and_is_sent)
{
	struct kvw_entrant *out = NULL;
	struct kvw_entrant *e;

	occupy(0, SECOND, BEGIN);
	e = come(0, 0, 100 * MS, 5 * SECOND, BEGIN);
	ck_assert_int_eq(kvw_gate_waiting(&gate), 1);
	ck_assert_int_eq(admission->waiting_ns, 100 * MS);
	ck_assert_int_eq(next(&out, BEGIN), KVW_NOTHING);
	ck_assert_int_lt(kvw_gate_wake_ns(&gate, BEGIN), BEGIN + 100 * MS);
	relieve(0, BEGIN + SECOND);
	ck_assert_int_eq(next(&out, BEGIN + SECOND), KVW_SEND);
	ck_assert_ptr_eq(out, e);
	ck_assert_int_eq(admission->waiting_ns, 0);
	pass(e, BEGIN + SECOND);
	ck_assert_int_eq(admission->paces[0].unanswered, 1);
	kvw_gate_first_token(&gate, e, true, BEGIN + 2 * SECOND);
	kvw_gate_first_token(&gate, e, true, BEGIN + 2 * SECOND);
	ck_assert_int_eq(admission->paces[0].answering, 0);
	kvw_gate_token(&gate, e, 20 * MS, BEGIN + 2020 * MS);
	kvw_gate_token(&gate, e, 20 * MS, BEGIN + 2040 * MS);
	ck_assert_int_eq(admission->paces[0].answering, 1);
	kvw_gate_ended(&gate, e, BEGIN + 3 * SECOND);
	kvw_gate_ended(&gate, e, BEGIN + 3 * SECOND);
	ck_assert_int_eq(admission->paces[0].answering, 0);
	ck_assert_int_eq(next(&out, BEGIN + 3 * SECOND), KVW_NOTHING);
}
END_TEST

/* The workers have been busy for a while. */
static void fill_up(void)
{
	atomic_store(&admission->busy_share, 1.0f);
}

/* What becomes of a request that no worker can take, at the last moment; not sooner. */
static enum kvw_next late_one(struct kvw_entrant **out)
{
	occupy(0, 60 * SECOND, BEGIN);
	(void)come(0, 0, 100 * MS, 2 * SECOND, BEGIN);
	ck_assert_int_eq(next(out, BEGIN + SECOND), KVW_NOTHING);
	return next(out, BEGIN + 2 * SECOND);
}

/* A worker is looked at once at a time, but what goes there counts at once. */
START_TEST(one_moment_fills_each_worker_once)
{
	struct kvw_entrant *out = NULL;

	set.count = WORKERS;
	for (size_t i = 0; i < 2 * WORKERS; i++)
		(void)come(i, 0, SECOND, 20 * SECOND, BEGIN);
	for (size_t i = 0; i < WORKERS; i++) {
		ck_assert_int_eq(next(&out, BEGIN), KVW_SEND);
		pass(out, BEGIN);
	}
	ck_assert_int_eq(next(&out, BEGIN), KVW_NOTHING);
	for (uint32_t i = 0; i < WORKERS; i++)
		ck_assert_int_eq(admission->paces[i].unanswered, 1);
	/* Its first token, still at that time. */
	set_queue(out->wait.worker, BEGIN);
	kvw_gate_first_token(&gate, out, false, BEGIN);
	ck_assert_int_eq(next(&out, BEGIN), KVW_SEND);
	pass(out, BEGIN);
	ck_assert_int_eq(next(&out, BEGIN), KVW_NOTHING);
	for (size_t i = 0; i < 2 * WORKERS; i++)
		kvw_gate_leave(&gate, &requests[i].e);
}
END_TEST

/* Another loop fills a worker after this one has looked. */
START_TEST(the_worker_that_it_would_go_to_is_looked_at_again)
{
	struct kvw_entrant *out = NULL;

	(void)come(0, 0, SECOND, 20 * SECOND, BEGIN);
	ck_assert_int_eq(requests[0].e.wait_ns, 0);
	occupy(0, SECOND, BEGIN);
	ck_assert_int_eq(next(&out, BEGIN), KVW_NOTHING);
	kvw_gate_leave(&gate, &requests[0].e);
}
END_TEST

START_TEST(late_but_sent_while_the_workers_have_time_left)
{
	struct kvw_entrant *out = NULL;

	ck_assert_int_eq(late_one(&out), KVW_SEND);
}
END_TEST

/* Not for long: those that are sent late make others late. */
START_TEST(late_and_refused_when_others_were_late_before)
{
	struct kvw_entrant *out = NULL;
	int64_t now_ns = BEGIN;
	size_t sent = 0;
	size_t refused = 0;

	occupy(0, 60 * SECOND, BEGIN);
	for (size_t i = 0; i < 40; i++)
		(void)come(i, 0, 10 * MS, SECOND + (int64_t)i * 100 * MS, BEGIN);
	for (; kvw_gate_waiting(&gate) > 0; now_ns += 10 * MS)
		for (enum kvw_next word = next(&out, now_ns); word != KVW_NOTHING; word = next(&out, now_ns))
			*(word == KVW_SEND ? &sent : &refused) += 1;
	ck_assert_int_ge(sent, 9);
	ck_assert_int_le(sent, 12);
	ck_assert_int_eq(sent + refused, 40);
	/* None was overdue for a while: that was a burst, and the next may be late. */
	now_ns += 3 * SECOND;
	(void)come(40, 0, 100 * MS, 2 * SECOND, now_ns);
	ck_assert_int_eq(next(&out, now_ns + 2 * SECOND), KVW_SEND);
}
END_TEST

/* An engine may run no more requests at once, which no prediction of their prefill knows. */
START_TEST(a_worker_that_does_not_answer_gets_no_more)
{
	struct kvw_entrant *out = NULL;

	for (size_t i = 0; i < 3; i++) {
		struct kvw_entrant *e = come(i, 0, 150 * MS, 20 * SECOND, BEGIN);

		ck_assert_int_eq(next(&out, BEGIN), KVW_SEND);
		e->shows = true;
		pass(e, BEGIN);
		set_queue(0, BEGIN); /* by its predictions it has done it */
		if (i == 1)
			break;
	}
	(void)come(2, 0, 150 * MS, 20 * SECOND, BEGIN);
	ck_assert_int_eq(next(&out, BEGIN), KVW_NOTHING);
	ck_assert_int_eq(next(&out, BEGIN + SECOND / 2), KVW_SEND);
	out->shows = true;
	pass(out, BEGIN + SECOND / 2);
	set_queue(0, BEGIN);
	(void)come(3, 0, 150 * MS, 20 * SECOND, BEGIN + SECOND / 2);
	ck_assert_int_eq(next(&out, BEGIN + 10 * SECOND), KVW_NOTHING);
	kvw_gate_first_token(&gate, &requests[0].e, true, BEGIN + 10 * SECOND);
	ck_assert_int_eq(next(&out, BEGIN + 11 * SECOND), KVW_SEND);
}
END_TEST

START_TEST(a_worker_that_should_have_answered_is_not_the_next)
{
	struct kvw_entrant *out = NULL;
	struct kvw_entrant *e;

	set.count = 2;
	e = come(0, 0, 150 * MS, 20 * SECOND, BEGIN);
	ck_assert_int_eq(next(&out, BEGIN), KVW_SEND);
	ck_assert_int_eq(e->wait.worker, 0);
	e->shows = true;
	pass(e, BEGIN);
	come(1, 0, 150 * MS, 20 * SECOND, BEGIN);
	ck_assert_int_eq(next(&out, BEGIN), KVW_SEND);
	ck_assert_int_eq(out->wait.worker, 1);
	out->shows = true;
	pass(out, BEGIN);
	/* Both should have. The first did, and takes the next. */
	set_queue(0, BEGIN);
	set_queue(1, BEGIN);
	kvw_gate_first_token(&gate, e, true, BEGIN);
	come(2, 0, 150 * MS, 20 * SECOND, BEGIN);
	ck_assert_int_eq(next(&out, BEGIN), KVW_SEND);
	ck_assert_int_eq(out->wait.worker, 0);
	out->shows = true;
	pass(out, BEGIN);
	kvw_gate_first_token(&gate, &requests[1].e, true, BEGIN);
	set_queue(0, BEGIN);
	come(3, 0, 150 * MS, 20 * SECOND, BEGIN);
	ck_assert_int_eq(next(&out, BEGIN), KVW_SEND);
	ck_assert_int_eq(out->wait.worker, 1);
}
END_TEST

/* One whose answer comes as a whole shows no first token: it says nothing of prefill. */
START_TEST(whole_answers_do_not_count_as_undone)
{
	struct kvw_entrant *out = NULL;

	for (size_t i = 0; i < 20; i++) {
		struct kvw_entrant *e = come(i, 0, 150 * MS, 20 * SECOND, BEGIN);

		ck_assert_int_eq(next(&out, BEGIN), KVW_SEND);
		pass(e, BEGIN);
		set_queue(0, BEGIN);
	}
	for (size_t i = 0; i < 20; i++)
		kvw_gate_ended(&gate, &requests[i].e, BEGIN + SECOND);
	ck_assert_int_eq(admission->paces[0].undone_ns, 0);
}
END_TEST

/* First tokens that come later than predicted by the same time whatever the prompt: sent so much sooner. */
START_TEST(sent_sooner_where_first_tokens_come_later)
{
	struct kvw_entrant *e;
	int64_t before_ns;

	before_ns = come(0, 0, 10 * MS, 2 * SECOND, BEGIN)->wait.start_ns;
	kvw_gate_leave(&gate, &requests[0].e);
	for (size_t i = 1; i < 100; i++) {
		e = come(i, 0, 10 * MS, 2 * SECOND, BEGIN);
		pass(e, BEGIN);
		set_queue(0, BEGIN);
		kvw_gate_first_token(&gate, e, true, BEGIN + 800 * MS);
		kvw_gate_ended(&gate, e, BEGIN + SECOND);
	}
	e = come(100, 0, 10 * MS, 2 * SECOND, BEGIN);
	ck_assert_int_lt(e->wait.start_ns, before_ns - 600 * MS);
	ck_assert_int_gt(e->wait.start_ns, before_ns - 900 * MS);
	kvw_gate_leave(&gate, e);
}
END_TEST

/* What waits shows a crowd at once, what the workers did in the last half minute only when it is too late: all
 * that are late would be sent then, and the workers be behind for minutes. */
START_TEST(a_crowd_is_refused_although_the_workers_had_time_left)
{
	struct kvw_entrant *out = NULL;

	occupy(0, 60 * SECOND, BEGIN);
	for (size_t i = 0; i < 40; i++)
		(void)come(i, 0, 100 * MS, 2 * SECOND, BEGIN);
	ck_assert_int_eq(next(&out, BEGIN + SECOND), KVW_NOTHING);
	ck_assert(!kvw_admission_full(admission));
	ck_assert(isinf(gate.price.limit[0]));
	ck_assert_int_eq(next(&out, BEGIN + 2 * SECOND), KVW_REFUSE);
	ck_assert_int_eq(out->refusal, KVW_REFUSED_SERVICE_LEVEL);
	while (kvw_gate_waiting(&gate) > 0)
		ck_assert_int_ne(next(&out, BEGIN + 2 * SECOND), KVW_NOTHING);
}
END_TEST

/* Its own work makes no crowd, however much it is. */
START_TEST(one_alone_is_no_crowd)
{
	struct kvw_entrant *out = NULL;

	occupy(0, 60 * SECOND, BEGIN);
	(void)come(0, 0, 4 * SECOND, 3 * SECOND, BEGIN);
	ck_assert_int_eq(next(&out, BEGIN + 3 * SECOND), KVW_SEND);
}
END_TEST

/* However late first tokens have been, it has half of its time to wait in. */
START_TEST(late_first_tokens_leave_half_of_the_time)
{
	struct kvw_entrant *e;

	gate.more_ns = 5e9;
	e = come(0, 0, 10 * MS, 2 * SECOND, BEGIN);
	ck_assert_int_eq(e->wait.first_ns, 2 * SECOND);
	ck_assert_int_ge(e->wait.start_ns, BEGIN + 900 * MS);
	kvw_gate_leave(&gate, e);
}
END_TEST

/* However many of a lesser class wait: they yield. */
START_TEST(those_of_a_lesser_class_are_no_crowd)
{
	struct kvw_entrant *out = NULL;
	struct kvw_entrant *e;

	occupy(0, 60 * SECOND, BEGIN);
	for (size_t i = 1; i < 40; i++)
		(void)come(i, 1, 100 * MS, 20 * SECOND, BEGIN);
	e = come(0, 0, 100 * MS, 2 * SECOND, BEGIN);
	ck_assert_int_eq(next(&out, BEGIN + SECOND), KVW_NOTHING);
	ck_assert_int_eq(next(&out, BEGIN + 2 * SECOND), KVW_SEND);
	ck_assert_ptr_eq(out, e);
	for (size_t i = 1; i < 40; i++)
		kvw_gate_leave(&gate, &requests[i].e);
}
END_TEST

START_TEST(refused_when_its_promise_cannot_be_kept)
{
	struct kvw_entrant *out = NULL;

	fill_up();
	ck_assert_int_eq(late_one(&out), KVW_REFUSE);
	ck_assert_int_eq(out->refusal, KVW_REFUSED_SERVICE_LEVEL);
	ck_assert_int_ge(out->retry_after_ns, SECOND);
	ck_assert_int_eq(kvw_gate_waiting(&gate), 0);
}
END_TEST

START_TEST(refused_at_the_deadline)
{
	struct kvw_entrant *out = NULL;

	occupy(0, 100 * SECOND, BEGIN);
	requests[1].e.deadline_ns = BEGIN + 3 * SECOND;
	(void)come(0, 0, 100 * MS, 0, BEGIN);
	(void)come(1, 0, 100 * MS, 0, BEGIN);
	ck_assert_int_eq(next(&out, BEGIN + 2 * SECOND), KVW_NOTHING);
	ck_assert_int_eq(next(&out, BEGIN + 3 * SECOND), KVW_REFUSE);
	ck_assert_ptr_eq(out, &requests[1].e);
	ck_assert_int_eq(out->refusal, KVW_REFUSED_DEADLINE);
	ck_assert_int_eq(next(&out, BEGIN + 30 * SECOND - 1), KVW_NOTHING);
	kvw_gate_leave(&gate, &requests[0].e);
}
END_TEST

/* Its engine queues it. */
START_TEST(sent_at_the_longest_wait_without_a_promise)
{
	struct kvw_entrant *out = NULL;
	struct kvw_entrant *e;

	occupy(0, 100 * SECOND, BEGIN);
	e = come(0, 0, 100 * MS, 0, BEGIN);
	ck_assert_int_eq(next(&out, BEGIN + 30 * SECOND - 1), KVW_NOTHING);
	ck_assert_int_eq(next(&out, BEGIN + 30 * SECOND), KVW_SEND);
	ck_assert_ptr_eq(out, e);
	ck_assert_int_gt(out->wait_ns, 0);
}
END_TEST

START_TEST(refused_at_the_longest_wait_where_engines_are_full)
{
	struct kvw_entrant *out = NULL;
	struct kvw_lease lease = {0};

	kvw_lease_take(&lease, &loads[0], 100 * SECOND, BEGIN);
	kvw_load_refused(&loads[0], 0, 40 * SECOND, BEGIN);
	(void)come(0, 0, 100 * MS, 0, BEGIN);
	ck_assert_int_eq(next(&out, BEGIN + 30 * SECOND), KVW_REFUSE);
	ck_assert_int_eq(out->refusal, KVW_REFUSED_DEADLINE);
	kvw_lease_release(&lease, BEGIN + 30 * SECOND);
}
END_TEST

/* The first request fits worker 0 alone. */
static bool judge_lengths(void *user, struct kvw_entrant *e, int64_t now_ns)
{
	bool judged;

	items[1].usable = items[2].usable = e != &requests[0].e;
	judged = judge(user, e, now_ns);
	items[1].usable = items[2].usable = true;
	return judged;
}

START_TEST(a_full_engine_holds_up_no_request_that_fits_elsewhere)
{
	struct kvw_entrant *out = NULL;
	struct kvw_lease lease = {0};

	set.count = WORKERS;
	kvw_lease_take(&lease, &loads[0], 0, BEGIN);
	kvw_load_refused(&loads[0], 0, 20 * SECOND, BEGIN);
	(void)come(0, 0, 100 * MS, 0, BEGIN);
	(void)come(1, 0, 100 * MS, 0, BEGIN);
	ck_assert_int_eq(kvw_gate_next(&gate, BEGIN + MS, judge_lengths, NULL, &out), KVW_SEND);
	ck_assert_ptr_eq(out, &requests[1].e);
	kvw_gate_leave(&gate, &requests[0].e);
	kvw_lease_release(&lease, BEGIN + MS);
}
END_TEST

START_TEST(endless_patience_does_not_wrap)
{
	struct kvw_entrant *out = NULL;

	gate.terms.max_wait_ns = INT64_MAX;
	occupy(0, 100 * SECOND, BEGIN);
	(void)come(0, 0, 100 * MS, 0, BEGIN);
	ck_assert_int_eq(next(&out, BEGIN + 90 * SECOND), KVW_NOTHING);
}
END_TEST

/* However long its prompt, also where it needs about what it is promised, an idle worker takes it. */
START_TEST(an_idle_worker_takes_any_prompt)
{
	for (int64_t prefill = 0; prefill < 20 * SECOND; prefill += 70 * MS) {
		struct kvw_entrant *out = NULL;
		struct kvw_entrant *e = come(0, 0, prefill, 2 * SECOND, BEGIN);

		ck_assert_int_eq(next(&out, BEGIN + MS), KVW_SEND);
		ck_assert_ptr_eq(out, e);
		memset(&requests[0], 0, sizeof(requests[0]));
		kvw_price_init(&gate.price); /* not too many of them */
	}
}
END_TEST

START_TEST(one_that_all_were_given_up_for_is_sent_when_a_worker_opens)
{
	struct kvw_entrant *out = NULL;

	occupy(0, 3 * SECOND, BEGIN);
	(void)come(0, 0, 100 * MS, 2 * SECOND, BEGIN);
	ck_assert_int_eq(next(&out, BEGIN), KVW_NOTHING);
	ck_assert(requests[0].e.wait.given_up);
	relieve(0, BEGIN + SECOND);
	ck_assert_int_eq(next(&out, BEGIN + SECOND), KVW_SEND);
}
END_TEST

START_TEST(a_client_leaves)
{
	struct kvw_entrant *out = NULL;
	struct kvw_entrant *e;

	occupy(0, SECOND, BEGIN);
	e = come(0, 0, 100 * MS, 2 * SECOND, BEGIN);
	kvw_gate_leave(&gate, e);
	kvw_gate_leave(&gate, e);
	ck_assert_int_eq(admission->waiting_ns, 0);
	ck_assert_int_eq(next(&out, BEGIN + 5 * SECOND), KVW_NOTHING);
}
END_TEST

/* Late answers keep a prompt out, but not a short one whose own time is nearly over. */
START_TEST(a_short_prompt_is_urgent_at_the_end)
{
	struct kvw_entrant *out = NULL;

	kvw_pace_sent(&admission->paces[0], 0, BEGIN);
	kvw_pace_first_token(&admission->paces[0], 0, BEGIN);
	kvw_pace_follows(&admission->paces[0]);
	kvw_pace_token(&admission->paces[0], 10 * SECOND, 80 * MS, BEGIN);
	(void)come(0, 0, 100 * MS, 2 * SECOND, BEGIN);
	(void)come(1, 0, 750 * MS, 2800 * MS, BEGIN);
	ck_assert_int_eq(next(&out, BEGIN), KVW_NOTHING);
	ck_assert_int_eq(next(&out, BEGIN + 1650 * MS), KVW_SEND);
	ck_assert_ptr_eq(out, &requests[0].e);
	/* Nor a middling one. */
	(void)come(2, 1, 350 * MS, 2200 * MS, BEGIN);
	ck_assert_int_eq(next(&out, BEGIN + 1650 * MS), KVW_NOTHING);
	kvw_gate_leave(&gate, &requests[1].e);
	kvw_gate_leave(&gate, &requests[2].e);
}
END_TEST

START_TEST(the_important_class_is_sent_first)
{
	struct kvw_entrant *out = NULL;

	occupy(0, SECOND, BEGIN);
	(void)come(0, 1, 100 * MS, 2 * SECOND, BEGIN);
	(void)come(1, 0, 100 * MS, 5 * SECOND, BEGIN);
	relieve(0, BEGIN + MS);
	ck_assert_int_eq(next(&out, BEGIN + MS), KVW_SEND);
	ck_assert_ptr_eq(out, &requests[1].e);
	kvw_gate_leave(&gate, &requests[0].e);
}
END_TEST

START_TEST(nobody_starves)
{
	struct kvw_entrant *out = NULL;
	struct kvw_entrant *e;

	occupy(0, 100 * SECOND, BEGIN);
	e = come(0, 1, 100 * MS, 0, BEGIN);
	(void)come(1, 0, 100 * MS, 0, BEGIN + 5 * SECOND);
	ck_assert_int_eq(next(&out, BEGIN + 10 * SECOND), KVW_NOTHING);
	ck_assert_int_eq(next(&out, BEGIN + 16 * SECOND), KVW_NOTHING);
	relieve(0, BEGIN + 16 * SECOND);
	ck_assert_int_eq(next(&out, BEGIN + 16 * SECOND), KVW_SEND);
	ck_assert_ptr_eq(out, e);
	ck_assert_uint_eq(e->wait.class, 1); /* its own again */
	kvw_gate_leave(&gate, &requests[1].e);
}
END_TEST

/* More important work alone is too much, and then there is none of it. */
START_TEST(a_class_without_room_gets_an_idle_worker)
{
	struct kvw_waiter dear = {.class = 0, .work_ns = 100 * SECOND, .value = 1};
	struct kvw_entrant *out = NULL;

	for (int i = 0; i < 20; i++)
		kvw_price_offer(&gate.price, &dear, BEGIN);
	occupy(0, 100 * MS, BEGIN);
	(void)come(0, 1, 100 * MS, 5 * SECOND, BEGIN);
	ck_assert_int_eq(next(&out, BEGIN), KVW_NOTHING);
	ck_assert_double_eq(gate.price.limit[1], 0);
	relieve(0, BEGIN + 10 * MS);
	ck_assert_int_eq(next(&out, BEGIN + 10 * MS), KVW_SEND);
}
END_TEST

/* All programs are counted. */
static void look_at_programs(int64_t now_ns)
{
	for (int slice = 0; slice < 16; slice++)
		kvw_programs_look(admission->programs, true, now_ns);
}

START_TEST(a_new_program_waits_for_those_that_run)
{
	struct kvw_entrant *out = NULL;
	struct kvw_turn running = {.key = 7};
	int64_t at = BEGIN;

	fill_up();
	kvw_programs_sent(admission->programs, &running, 300000, at);
	for (int i = 0; i < 50; i++) {
		kvw_programs_lost(admission->programs, 900, 1000);
		look_at_programs(at);
		at += SECOND;
	}
	requests[0].e.turn.key = 8;
	requests[0].e.tokens = 1000;
	(void)come(0, 0, 100 * MS, 2 * SECOND, at);
	ck_assert_int_eq(next(&out, at), KVW_NOTHING);
	/* A turn of the one that runs does not. */
	requests[1].e.turn = (struct kvw_turn){.key = 7, .before = 7, .turns = 1, .context = 0};
	(void)come(1, 0, 100 * MS, 2 * SECOND, at);
	ck_assert_int_eq(next(&out, at), KVW_SEND);
	ck_assert_ptr_eq(out, &requests[1].e);
	ck_assert_int_eq(next(&out, at + 2 * SECOND), KVW_REFUSE);
	ck_assert_int_eq(out->retry_after_ns, 30 * SECOND);
	/* Where none runs, it goes whatever the limit. */
	kvw_programs_ended(admission->programs, &running, at);
	at += 1000 * SECOND;
	look_at_programs(at);
	requests[2].e.turn.key = 9;
	requests[2].e.tokens = 1000000;
	(void)come(2, 0, 100 * MS, 2 * SECOND, at);
	ck_assert_int_eq(next(&out, at), KVW_SEND);
}
END_TEST

/* An idle loop takes no part of the workers from the others. */
START_TEST(what_was_offered_is_forgotten_in_time)
{
	struct kvw_entrant *out = NULL;
	int64_t at = BEGIN;

	(void)come(0, 0, SECOND, 0, at);
	ck_assert_int_eq(next(&out, at), KVW_SEND);
	ck_assert_int_gt(admission->offered_per_s, 0);
	while (kvw_gate_wake_ns(&gate, at) != INT64_MAX) {
		at = kvw_gate_wake_ns(&gate, at);
		ck_assert_int_eq(next(&out, at), KVW_NOTHING);
		ck_assert_int_lt(at, BEGIN + 3600 * SECOND);
	}
	ck_assert_int_eq(admission->offered_per_s, 0);
}
END_TEST

/* What may happen to those that were sent, at random. */
static void live(size_t count, int64_t now_ns)
{
	for (size_t i = 0; i < count; i++) {
		struct kvw_entrant *e = &requests[i].e;

		if (e->sent && !e->answered && now_ns > e->sent_ns + requests[i].prefill_ns)
			kvw_gate_first_token(&gate, e, rand() % 4 != 0, now_ns);
		else if (e->sent && e->answered)
			kvw_gate_token(&gate, e, (rand() % 200) * MS, now_ns);
		if (e->sent && rand() % 40 == 0)
			kvw_gate_ended(&gate, e, now_ns);
		if (e->wait.waits && rand() % 500 == 0) {
			kvw_gate_leave(&gate, e);
			requests[i].seen++;
		}
	}
}

static void take_all(int64_t now_ns)
{
	struct kvw_entrant *out = NULL;
	enum kvw_next word;

	while ((word = next(&out, now_ns)) != KVW_NOTHING) {
		ck_assert(!out->wait.waits);
		((struct request *)out)->seen++;
		if (word == KVW_SEND)
			pass(out, now_ns);
		else
			ck_assert_int_ne(out->refusal, KVW_REFUSED_NONE);
	}
}

/* The clock that the proxy passes never goes back; should it, or stand still and then leap, none is lost. */
START_TEST(each_is_sent_refused_or_left_once)
{
	bool jumps = _i >= 4;
	int64_t at = 100 * BEGIN;

	srand((unsigned)_i + 1);
	set.count = WORKERS;
	for (size_t i = 0; i < MANY; i++) {
		at += (rand() % 100) * MS;
		if (jumps && rand() % 20 == 0)
			at += (rand() % 2 ? rand() % 100 : -(rand() % 20)) * SECOND;
		requests[i].e.turn.key = rand() % 2 ? (uint64_t)(rand() % 50) + 1 : 0;
		requests[i].e.tokens = (uint64_t)(rand() % 20000);
		(void)come(i, (uint8_t)(rand() % 3), (rand() % 1000) * MS, rand() % 3 ? 2 * SECOND : 0, at);
		take_all(at);
		live(i + 1, at);
		kvw_admission_look(admission, WORKERS, WORKERS, at);
		kvw_programs_look(admission->programs, true, at);
	}
	while (kvw_gate_waiting(&gate) > 0) {
		at += 50 * MS;
		take_all(at);
		live(MANY, at);
	}
	ck_assert_int_eq(admission->waiting_ns, 0);
	for (size_t i = 0; i < MANY; i++) {
		kvw_gate_ended(&gate, &requests[i].e, at);
		ck_assert_int_eq(requests[i].seen, 1);
	}
	for (size_t w = 0; w < WORKERS; w++) {
		ck_assert_int_eq(admission->paces[w].unanswered, 0);
		ck_assert_int_eq(admission->paces[w].answering, 0);
	}
	ck_assert(kvw_admission_rate(admission) > 0);
}
END_TEST

/* Slots of workers that have left are no idle workers: a fleet that has shrunk is full when all that is left is busy. */
START_TEST(workers_that_left_are_not_idle)
{
	int64_t at = BEGIN;

	kvw_pace_sent(&admission->paces[0], SECOND, at);
	for (; at < BEGIN + 120 * SECOND; at += 10 * MS)
		kvw_admission_look(admission, 8, 1, at);
	ck_assert(kvw_admission_full(admission));
	kvw_pace_ended(&admission->paces[0], SECOND, false, false);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("gate");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_set_timeout(tcase, 60);
	tcase_add_test(tcase, open_while_every_worker_can_take_one);
	tcase_add_test(tcase, a_wait_for_kv_memory_holds_nothing);
	tcase_add_test(tcase, what_workers_did_corrects_what_they_have_to_do);
	tcase_add_test(tcase, a_prediction_is_corrected_as_admission_counts_on_it);
	tcase_add_test(tcase, waits_and_is_sent);
	tcase_add_test(tcase, one_moment_fills_each_worker_once);
	tcase_add_test(tcase, the_worker_that_it_would_go_to_is_looked_at_again);
	tcase_add_test(tcase, refused_when_its_promise_cannot_be_kept);
	tcase_add_test(tcase, late_but_sent_while_the_workers_have_time_left);
	tcase_add_test(tcase, late_and_refused_when_others_were_late_before);
	tcase_add_test(tcase, a_worker_that_does_not_answer_gets_no_more);
	tcase_add_test(tcase, a_worker_that_should_have_answered_is_not_the_next);
	tcase_add_test(tcase, whole_answers_do_not_count_as_undone);
	tcase_add_test(tcase, sent_sooner_where_first_tokens_come_later);
	tcase_add_test(tcase, a_crowd_is_refused_although_the_workers_had_time_left);
	tcase_add_test(tcase, one_alone_is_no_crowd);
	tcase_add_test(tcase, late_first_tokens_leave_half_of_the_time);
	tcase_add_test(tcase, those_of_a_lesser_class_are_no_crowd);
	tcase_add_test(tcase, refused_at_the_deadline);
	tcase_add_test(tcase, a_full_engine_holds_up_no_request_that_fits_elsewhere);
	tcase_add_test(tcase, sent_at_the_longest_wait_without_a_promise);
	tcase_add_test(tcase, refused_at_the_longest_wait_where_engines_are_full);
	tcase_add_test(tcase, endless_patience_does_not_wrap);
	tcase_add_test(tcase, an_idle_worker_takes_any_prompt);
	tcase_add_test(tcase, one_that_all_were_given_up_for_is_sent_when_a_worker_opens);
	tcase_add_test(tcase, a_client_leaves);
	tcase_add_test(tcase, a_short_prompt_is_urgent_at_the_end);
	tcase_add_test(tcase, the_important_class_is_sent_first);
	tcase_add_test(tcase, nobody_starves);
	tcase_add_test(tcase, a_class_without_room_gets_an_idle_worker);
	tcase_add_test(tcase, a_new_program_waits_for_those_that_run);
	tcase_add_test(tcase, what_was_offered_is_forgotten_in_time);
	tcase_add_test(tcase, workers_that_left_are_not_idle);
	tcase_add_loop_test(tcase, each_is_sent_refused_or_left_once, 0, 8);
	return run_tcase("admission gate", tcase);
}
