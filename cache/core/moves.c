/*
 * moves.c - moves chunks between L1 and the tiers below it.
 *
 * The parts that send requests (loads, stores, probes, barriers) do not know of each other. This
 * file calls all of them: it gives each finished request back to its part, ends the waits for a
 * tier that is given up, and lets loads, then stores, begin wherever a request has ended.
 */
#include "core/barrier.h"
#include "core/generations.h"
#include "core/loads.h"
#include "core/lower.h"
#include "core/moves.h"
#include "core/probes.h"
#include "core/stores.h"

void kvt_pump(struct kvt *k)
{
	kvt_loads_pump(k);
	kvt_stores_pump(k);
}

/* Ends all waits for a tier that is given up, since they would be in vain. */
static void end_waits(struct kvt_lower *b)
{
	if (!b->given_up)
		return;
	b->given_up = false;
	kvt_loads_abandon(b->k, b);
	kvt_probes_abandon(b->k, b);
}

/* Gives finished requests back to their parts, oldest first; returns how many. */
static size_t reap(struct kvt_lower *b)
{
	struct kvt_job *job = kvt_lower_finished(b), *next;
	size_t count = 0;

	if (job == NULL)
		return 0;
	pthread_mutex_lock(&b->k->lock);
	for (; job != NULL; job = next) {
		next = job->next_finished;
		kvt_lower_take_back(b, job);
		end_waits(b);
		job->done(b->k, job);
		count++;
	}
	kvt_pump(b->k);
	pthread_mutex_unlock(&b->k->lock);
	return count;
}

size_t kvt_moves_step(struct kvt_lower *b, int64_t wait_ns, int64_t *next_ns)
{
	size_t done = b->tier->ops->step(b->tier, wait_ns, next_ns);

	return done + reap(b);
}

size_t kvt_moves_tick(struct kvt *k, int64_t now_ns, int64_t *next_ns)
{
	size_t done = 0;

	for (size_t i = 0; i < k->lower_count; i++) {
		done += kvt_lower_tick(&k->lower[i], now_ns, next_ns);
		end_waits(&k->lower[i]);
	}
	done += kvt_generations_tick(k, now_ns, next_ns);
	done += kvt_stores_tick(k, now_ns, next_ns);
	done += kvt_barriers_tick(k, now_ns, next_ns);
	kvt_pump(k);
	return done;
}
