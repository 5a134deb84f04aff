/*
 * timer_test.c - order, restarts, and callbacks that set and clear timers.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "base/timer.h"
#include "tests/unit/suite.h"

#define COUNT 200

/* A timer and what became of it. */
struct probe {
	struct kvw_timer timer; /* first */
	int fired;
	int64_t fired_ns;
	struct probe *victim; /* cleared by the callback */
	int64_t again_in_ns;  /* for which the callback sets it again; 0: not */
};

static struct kvw_timers timers;
static struct probe probe;       /* for tests that need one */
static int64_t last_deadline_ns; /* of the timer that fired last */

static void fired(struct kvw_timer *timer, int64_t now_ns)
{
	struct probe *self = (struct probe *)timer;

	ck_assert(!kvw_timer_running(timer));
	self->fired++;
	self->fired_ns = now_ns;
	if (self->victim != NULL)
		kvw_timer_clear(&timers, &self->victim->timer);
	if (self->again_in_ns != 0)
		kvw_timer_set(&timers, timer, timer->kind, now_ns + self->again_in_ns);
}

static void in_order(struct kvw_timer *timer, int64_t now_ns)
{
	const struct probe *self = (const struct probe *)timer;

	(void)now_ns;
	ck_assert_int_ge(self->fired_ns, last_deadline_ns);
	last_deadline_ns = self->fired_ns;
}

static void setup(void)
{
	kvw_timers_init(&timers);
	probe = (struct probe){0};
}

static void set(struct probe *which, uint8_t kind, int64_t deadline_ns)
{
	which->timer.fn = fired;
	kvw_timer_set(&timers, &which->timer, kind, deadline_ns);
}

START_TEST(fires_once_when_due_and_not_before)
{
	set(&probe, 3, 100);
	ck_assert(kvw_timer_running(&probe.timer));
	kvw_timers_run(&timers, 99);
	ck_assert_int_eq(probe.fired, 0);
	kvw_timers_run(&timers, 100);
	ck_assert_int_eq(probe.fired, 1);
	ck_assert_int_eq(probe.fired_ns, 100);
	kvw_timers_run(&timers, 1000);
	ck_assert_int_eq(probe.fired, 1);
}
END_TEST

START_TEST(cleared_never_fires)
{
	set(&probe, 0, 100);
	kvw_timer_clear(&timers, &probe.timer);
	ck_assert(!kvw_timer_running(&probe.timer));
	kvw_timer_clear(&timers, &probe.timer);
	kvw_timers_run(&timers, 1000);
	ck_assert_int_eq(probe.fired, 0);
}
END_TEST

START_TEST(setting_again_moves_it)
{
	set(&probe, 0, 100);
	set(&probe, 0, 300);
	kvw_timers_run(&timers, 200);
	ck_assert_int_eq(probe.fired, 0);
	set(&probe, 5, 250); /* another kind, and earlier */
	kvw_timers_run(&timers, 250);
	ck_assert_int_eq(probe.fired, 1);
	kvw_timers_run(&timers, 300);
	ck_assert_int_eq(probe.fired, 1);
}
END_TEST

START_TEST(shorter_durations_are_due_earlier)
{
	/* Durations change with a reload: later timers of a kind may be due before earlier ones. */
	static struct probe probes[COUNT];
	unsigned seed = 7;

	memset(probes, 0, sizeof(probes));
	last_deadline_ns = 0;
	for (int i = 0; i < COUNT; i++) {
		probes[i].fired_ns = 1 + rand_r(&seed) % 1000;
		probes[i].timer.fn = in_order;
		kvw_timer_set(&timers, &probes[i].timer, 1, probes[i].fired_ns);
		if (i % 5 == 0)
			kvw_timer_clear(&timers, &probes[rand_r(&seed) % (i + 1)].timer);
	}
	kvw_timers_run(&timers, 500);
	for (int i = 0; i < COUNT; i++)
		ck_assert(!kvw_timer_running(&probes[i].timer) || probes[i].fired_ns > 500);
	kvw_timers_run(&timers, 1000);
	for (int i = 0; i < COUNT; i++)
		ck_assert(!kvw_timer_running(&probes[i].timer));
	ck_assert_int_gt(last_deadline_ns, 500);
}
END_TEST

START_TEST(callback_may_clear_those_that_are_due_too)
{
	struct probe probes[3] = {{.fired = 0}};

	for (int i = 0; i < 3; i++)
		set(&probes[i], i == 2 ? 4 : 2, 100);
	probes[0].victim = &probes[1];
	kvw_timers_run(&timers, 100);
	ck_assert_int_eq(probes[0].fired, 1);
	ck_assert_int_eq(probes[1].fired, 0);
	ck_assert_int_eq(probes[2].fired, 1);
	set(&probes[0], 2, 200);
	set(&probes[2], 4, 200);
	probes[0].victim = &probes[2]; /* of a kind that comes later in the same run */
	kvw_timers_run(&timers, 200);
	ck_assert_int_eq(probes[0].fired, 2);
	ck_assert_int_eq(probes[2].fired, 1);
}
END_TEST

START_TEST(callback_may_set_its_own_timer_again)
{
	probe.again_in_ns = 10;
	set(&probe, 2, 100);
	kvw_timers_run(&timers, 100);
	ck_assert_int_eq(probe.fired, 1);
	ck_assert(kvw_timer_running(&probe.timer));
	kvw_timers_run(&timers, 109);
	ck_assert_int_eq(probe.fired, 1);
	kvw_timers_run(&timers, 110);
	ck_assert_int_eq(probe.fired, 2);
	kvw_timer_clear(&timers, &probe.timer);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("timer");

	tcase_add_checked_fixture(tcase, setup, NULL);
	tcase_add_test(tcase, fires_once_when_due_and_not_before);
	tcase_add_test(tcase, cleared_never_fires);
	tcase_add_test(tcase, setting_again_moves_it);
	tcase_add_test(tcase, shorter_durations_are_due_earlier);
	tcase_add_test(tcase, callback_may_clear_those_that_are_due_too);
	tcase_add_test(tcase, callback_may_set_its_own_timer_again);
	return run_tcase("timer", tcase);
}
