/*
 * fake_control.c - how a test has its way with the fake driver.
 */
#include <stdio.h>
#include <stdlib.h>

#include "fake_state.h"

static void control_seed(uint64_t seed)
{
	fake.random = seed * 2 + 1;
}

static void control_arm(uint64_t nth, int error)
{
	fake.calls = 0;
	fake.nth = nth;
	fake.error = error;
	fake.failed = NULL;
}

static uint64_t control_calls(void)
{
	return fake.calls;
}

static const char *control_failed(void)
{
	return fake.failed;
}

static void control_persist(const char *name, int error)
{
	fake.persistent = name;
	fake.persistent_error = error;
}

static void control_hold(bool hold)
{
	fake.held = hold;
}

static void control_pause(bool pause)
{
	fake.paused = pause;
}

static void control_idle(bool idle)
{
	fake.idle = idle;
}

static void control_no_batches(bool none)
{
	fake.no_batches = none;
}

static void control_cost(enum fake_cost what, int64_t fixed_ns, int64_t kib_ns)
{
	fake.fixed[what] = fixed_ns;
	fake.kib[what] = kib_ns;
}

static int64_t control_now(void *self)
{
	int64_t now;

	(void)self;
	pthread_mutex_lock(&fake.lock); /* the engine's clock, in every thread that waits */
	now = fake.now;
	pthread_mutex_unlock(&fake.lock);
	return now;
}

static uint64_t control_misuses(void)
{
	return fake.misuses;
}

static uint64_t control_launches(void)
{
	return fake.launches;
}

static uint64_t control_turns(void)
{
	return fake.turns;
}

static uint64_t control_batches(void)
{
	return fake.batches;
}

static uint64_t control_widest(void)
{
	return fake.widest;
}

static uint64_t control_alive(void)
{
	uint64_t n = fake.others;

	for (int i = 1; i < 64; i++)
		n += fake.streams[i].alive;
	for (int i = 0; i < MOST; i++)
		n += fake.ranges[i].bytes > 0;
	for (int i = 0; i < EVENTS; i++)
		n += fake.events[i].alive;
	return n;
}

static void control_keep(void)
{
	for (int i = 0; i < 64; i++)
		fake.streams[i].kept = fake.streams[i].alive;
	for (int i = 0; i < EVENTS; i++)
		fake.events[i].kept = fake.events[i].alive;
	for (int i = 0; i < MOST; i++)
		fake.ranges[i].kept = fake.ranges[i].bytes > 0;
	fake.others_kept = fake.others;
}

static void control_forget(void)
{
	while (fake_step())
		continue;
	for (int i = 0; i < 64; i++)
		fake.streams[i].alive = fake.streams[i].kept;
	for (int i = 0; i < EVENTS; i++)
		fake.events[i].alive = fake.events[i].kept;
	for (int i = 0; i < MOST; i++) {
		if (fake.ranges[i].bytes == 0 || fake.ranges[i].kept)
			continue;
		fake.ranges[i].bytes = 0;
		if (fake.ranges[i].kind != 'r')
			free((void *)(uintptr_t)fake.ranges[i].base);
	}
	fake.others = fake.others_kept;
}

static void control_order(char *text, uint32_t bytes)
{
	snprintf(text, bytes, "%.*s", (int)fake.ordered, fake.order);
	fake.ordered = 0;
}

EXPORT const struct fake_control *fake_cuda_control(void)
{
	static const struct fake_control control = {
		.seed = control_seed,
		.arm = control_arm,
		.calls = control_calls,
		.failed = control_failed,
		.persist = control_persist,
		.hold = control_hold,
		.pause = control_pause,
		.idle = control_idle,
		.no_batches = control_no_batches,
		.cost = control_cost,
		.now = control_now,
		.misuses = control_misuses,
		.launches = control_launches,
		.turns = control_turns,
		.batches = control_batches,
		.widest = control_widest,
		.alive = control_alive,
		.keep = control_keep,
		.forget = control_forget,
		.order = control_order,
		.delay = fake_cuda_delay,
	};

	return &control;
}
