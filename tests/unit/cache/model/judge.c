/*
 * judge.c - what is right and wrong in a history: answers against the oracle, events as a witness.
 */
#include <check.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "history_parts.h"

/* --- complaints, chance, time ----------------------------------------------------------------- */

void model_wrong(const struct history *h, const char *format, ...)
{
	char text[512];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	ck_abort_msg("%s, seed %" PRIu64 ", operation %" PRIu32 " (%s): %s", h->p->name, h->seed,
		h->operation, h->doing, text);
	abort();
}

/* What happens, to find a fault: MODEL_TRACE=1. */
void model_trace(const struct history *h, const char *format, ...)
{
	va_list args;

	if (getenv("MODEL_TRACE") == NULL)
		return;
	fprintf(stderr, "%" PRIu32 " %s: ", h->operation, h->doing);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
}

uint64_t model_chance(struct history *h)
{
	uint64_t x = h->random += UINT64_C(0x9e3779b97f4a7c15);

	x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
	return x ^ x >> 31;
}

uint32_t model_random_below(struct history *h, uint64_t n)
{
	return (uint32_t)(model_chance(h) % n);
}

int64_t model_now(const struct history *h)
{
	return h->clock.now_ns(h->clock.self);
}

uint32_t model_pick(struct history *h)
{
	uint32_t chain = model_random_below(h, h->p->chains);

	if (model_random_below(h, 2) == 0) /* some chains are more popular */
		chain = chain * chain / h->p->chains;
	return chain * h->p->depth + model_random_below(h, h->p->depth);
}

/* First chunk of a chunk's chain. */
uint32_t model_head_of(const struct history *h, uint32_t id)
{
	return id / h->p->depth * h->p->depth;
}

struct entry *model_entry(struct history *h, uint32_t id)
{
	return &h->oracle.entries[id];
}

void model_step_until_idle(struct history *h)
{
	int64_t next = 0;

	for (int i = 0; kvt_step(h->k, &next) > 0; i++)
		if (i > 1000000)
			model_wrong(h, "kvt_step never ends");
}

/* Time passes as it does between steps: in small steps while something is under way. */
void model_pass_time(struct history *h, int64_t ns)
{
	int64_t step = SECOND / 5000;

	model_step_until_idle(h); /* what is under way counts as used now */
	for (int i = 0; ns > 0; i++) {
		step = i < 200 ? step : SECOND / 2;
		step = step < ns ? step : ns;
		files_pass_time(h->files, step);
		model_step_until_idle(h);
		ns -= step;
	}
	model_trace(h, "it is %.3f s", (double)model_now(h) / 1e9);
	model_hear(h); /* what was stored meanwhile lives from then on */
	oracle_age(&h->oracle, model_now(h));
}

/* --- events ------------------------------------------------------------------------------------- */

void model_make_blocks(uint32_t id, uint8_t hashes[16], struct kvt_blocks *blocks)
{
	for (uint32_t b = 0; b < 2; b++)
		for (int i = 0; i < 8; i++)
			hashes[b * 8 + (uint32_t)i] =
				(uint8_t)((uint64_t)(id * 2 + b + 1) >> (56 - 8 * i));
	*blocks =
		(struct kvt_blocks){.hashes = hashes, .hash_bytes = 8, .count = 2, .block_size = 8};
}

static uint32_t id_of(struct history *h, const struct kvt_event *event)
{
	uint64_t name = 0, second = 0;

	if (event->hash_bytes != 8 || event->count != 2)
		model_wrong(
			h, "an event of %u blocks of %u bytes", event->count, event->hash_bytes);
	for (int i = 0; i < 8; i++) {
		name = name << 8 | event->hashes[i];
		second = second << 8 | event->hashes[8 + i];
	}
	if (name % 2 != 1 || second != name + 1 || name / 2 >= (uint64_t)h->p->chains * h->p->depth)
		model_wrong(h, "an event about blocks that were never put");
	return (uint32_t)(name / 2);
}

static void witness(struct history *h, const struct kvt_event *event)
{
	int *told = h->told[event->tier];
	uint32_t id;

	if (event->kind == KVT_EVENT_CLEARED) {
		memset(told, 0, h->p->chains * h->p->depth * sizeof(*told));
		return;
	}
	id = id_of(h, event);
	model_trace(h, "event: tier %u %s chunk %u", event->tier,
		event->kind == KVT_EVENT_STORED ? "stored" : "lost", id);
	told[id] += event->kind == KVT_EVENT_STORED ? 1 : -1;
	if (event->kind == KVT_EVENT_STORED)
		oracle_used(
			&h->oracle, id, model_now(h)); /* a copy's time to live begins with it */
	if (told[id] < 0)
		model_wrong(h, "tier %u reported that it lost chunk %u, which it had not",
			event->tier, id);
}

void model_hear(struct history *h)
{
	struct kvt_event events[EVENTS];
	size_t n;

	while ((n = kvt_events(h->k, events, EVENTS)) > 0) {
		for (size_t i = 0; i < n; i++) {
			if (events[i].sequence != h->sequence + 1)
				model_wrong(h, "event %" PRIu64 " after %" PRIu64,
					events[i].sequence, h->sequence);
			h->sequence = events[i].sequence;
			witness(h, &events[i]);
		}
	}
}

/* --- judging what a get gave ------------------------------------------------------------------ */

/* Copies what a lease shows of chunk i. */
uint8_t *model_copy_of(struct history *h, const struct kvt_lease *lease, size_t i)
{
	const struct kvt_view *view = &lease->views[i];
	uint8_t *bytes = malloc(view->bytes);
	uint64_t at = 0;

	if (bytes == NULL)
		abort();
	for (uint32_t s = 0; s < view->segment_count; s++) {
		const struct kvt_segment *segment = &lease->segments[view->first_segment + s];

		if (segment->bytes > view->bytes - at)
			model_wrong(h, "segments longer than their chunk");
		memcpy(bytes + at, segment->base, segment->bytes);
		at += segment->bytes;
	}
	if (at != view->bytes)
		model_wrong(h, "segments shorter than their chunk");
	return bytes;
}

/* Is there a reason to demand it? Not of one that a put fills: its place in memory is taken, so
 * that it cannot be brought up. */
bool model_demanded(struct history *h, uint32_t id)
{
	return h->p->roomy && model_entry(h, id)->presence == MUST &&
	       model_entry(h, id)->filling == 0;
}

bool model_is_filled(const struct history *h, uint32_t id)
{
	for (int r = 0; r < RESERVATIONS; r++) {
		const struct filling *f = &h->filling[r];

		for (size_t i = 0; f->reservation != NULL && i < f->count; i++)
			if (f->ids[i] == id && f->status[i] == KVT_OK &&
				f->generations[i] == h->oracle.entries[id].generation)
				return true;
	}
	return false;
}

void model_judge_lease(
	struct history *h, uint32_t first, size_t asked, const struct kvt_lease *lease)
{
	size_t got = lease == NULL ? 0 : lease->count;

	if (got > asked)
		model_wrong(h, "%zu chunks for %zu keys", got, asked);
	for (size_t i = 0; i < got; i++) {
		uint32_t id = first + (uint32_t)i;
		uint8_t *bytes = model_copy_of(h, lease, i);

		if (model_entry(h, id)->presence == GONE)
			model_wrong(h, "chunk %u is gone, and was got from tier %u", id,
				lease->views[i].tier);
		if (!oracle_agrees(&h->oracle, id, bytes, lease->views[i].bytes))
			model_wrong(h, "wrong bytes of chunk %u from tier %u", id,
				lease->views[i].tier);
		free(bytes);
		oracle_used(&h->oracle, id, model_now(h));
	}
	if (got < asked && model_demanded(h, first + (uint32_t)got)) {
		size_t later = got;

		while (later < asked && model_demanded(h, first + (uint32_t)later))
			later++;
		model_wrong(h, "chunk %u is missing, %zu of %zu got", first + (uint32_t)got, got,
			asked);
	}
}

/* Keeps a lease for a while, or lets it go. Takes it. */
void model_keep_or_release(struct history *h, uint32_t first, struct kvt_lease *lease)
{
	for (int i = 0; lease != NULL && i < LEASES; i++) {
		if (h->held[i].lease != NULL || model_random_below(h, 2) == 0)
			continue;
		h->held[i] = (struct held){lease, first, model_copy_of(h, lease, 0)};
		return;
	}
	kvt_release(h->k, lease);
}

/* What lies under a lease has not changed, whatever happened to the chunk. */
void model_let_go(struct history *h, struct held *held)
{
	uint8_t *bytes;

	if (held->lease == NULL)
		return;
	bytes = model_copy_of(h, held->lease, 0);
	if (memcmp(bytes, held->bytes, held->lease->views[0].bytes) != 0)
		model_wrong(h, "bytes under a lease of chunk %u changed", held->first);
	free(bytes);
	if (!h->p->faults && kvt_verify(h->k, held->lease) != KVT_OK)
		model_wrong(h, "a lease of chunk %u does not verify", held->first);
	kvt_release(h->k, held->lease);
	free(held->bytes);
	*held = (struct held){0};
}

size_t model_keys_of(const struct history *h, uint32_t first, size_t n, struct kvt_key *keys)
{
	size_t left = h->p->depth - first % h->p->depth;

	n = n < left ? n : left;
	for (size_t i = 0; i < n; i++)
		keys[i] = oracle_key(first + (uint32_t)i);
	return n;
}

void model_use_all(struct history *h, uint32_t first, size_t n)
{
	for (size_t i = 0; i < n; i++)
		oracle_used(&h->oracle, first + (uint32_t)i, model_now(h));
}
