/*
 * generations_wait.c - waits for an answer of the table of generations before something is read.
 */
#include "core/generations.h"
#include "core/names.h"
#include "core/step.h"

#define SLICE_NS      1000000
#define STILL_AT_MOST 250 /* as in step.c */

static bool await_stepping(struct kvt *k, int64_t deadline_ns)
{
	int64_t then_ns = kvt_clock(k), next_ns;
	int still = 0;

	while (!kvt_names_fresh(k) && still < STILL_AT_MOST) {
		size_t did;
		int64_t now_ns;

		pthread_mutex_lock(&k->lock);
		(void)kvt_generations_ask(k);
		pthread_mutex_unlock(&k->lock);
		did = kvt_step_all(k, SLICE_NS, &next_ns);
		now_ns = kvt_clock(k);
		if (now_ns >= deadline_ns)
			break;
		still = did == 0 && now_ns == then_ns ? still + 1 : 0;
		then_ns = now_ns;
	}
	return kvt_names_fresh(k);
}

bool kvt_generations_await(struct kvt *k, uint64_t timeout_ns)
{
	int64_t deadline_ns;

	if (kvt_names_fresh(k))
		return true;
	deadline_ns = kvt_deadline(k, timeout_ns);
	if (k->config.threads == KVT_THREADS_CALLER)
		return await_stepping(k, deadline_ns);
	pthread_mutex_lock(&k->lock);
	while (!kvt_names_fresh(k) && !k->closing && kvt_clock(k) < deadline_ns) {
		(void)kvt_generations_ask(k);
		kvt_wait_changed(k, deadline_ns);
	}
	pthread_mutex_unlock(&k->lock);
	return kvt_names_fresh(k);
}
