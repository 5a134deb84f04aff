/*
 * join.c - gives requests their place in a distributed trace, and keeps the ended ones that are to
 * be exported until another thread has taken them (src/router/otel).
 *
 *	client's traceparent -> join -> context -> traceparent of each attempt and leg
 *	                                   |
 *	end of the request -> sampled, slow, failed? -> outbox -> exporter -> loop's queues
 *
 * A record that waits in the outbox is in none of the loop's queues, so that no request takes it.
 * The exporter reads it where it lies: nothing is copied on the loop. The exporter moves `taken`
 * after it has read a record (release), and the loop looks at `taken` (acquire) before it uses the
 * record again. Half of the records may wait; what ends beyond that is dropped and counted.
 *
 * Whether a trace is sampled follows from its id, so that all programs that use the same share
 * sample the same traces. Span ids: a request's own has 16 zero bits at its end, and the n-th
 * attempt or leg has this id plus n; so the id that a worker gets need not be stored.
 *
 * Cost where tracing is on: one draw of a random number or the scan of 55 bytes, some ten stores.
 */
#include "trace/trace_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/random.h"

#define ID_BITS 56 /* bits that decide, the first of the id's last 64, which SDKs compare */

enum kvw_err kvw_trace_outbox_init(struct kvw_trace_ring *ring,
	const struct kvw_trace_sampling *sampling, size_t records, uint64_t seed)
{
	if (!sampling->on)
		return KVW_OK;
	ring->sampling = *sampling;
	ring->random = seed;
	ring->outbox.most = records > 1 ? records / 2 : 1;
	ring->outbox.indices = calloc(ring->outbox.most, sizeof(*ring->outbox.indices));
	return ring->outbox.indices == NULL ? KVW_ENOMEM : KVW_OK;
}

bool kvw_trace_joins(const struct kvw_trace_ring *ring)
{
	return ring != NULL && ring->sampling.on;
}

/* --- the context --- */

/* Returns whether the id of a trace is among those that are sampled. */
static bool draws(
	const struct kvw_trace_sampling *sampling, const struct kvw_trace_context *context)
{
	return context->trace[1] >> (64 - ID_BITS) < sampling->below;
}

void kvw_trace_join(struct kvw_trace_way *way, struct kvw_slice traceparent)
{
	struct kvw_trace_context context = {.span = 0};
	struct kvw_trace_ring *ring;
	bool continued;

	if (way == NULL)
		return;
	ring = way->ring;
	continued = kvw_traceparent_read(traceparent, &context);
	if (continued) {
		context.flags &= KVW_TRACE_SAMPLED | KVW_TRACE_RANDOM;
	} else {
		context.trace[0] = kvw_random(&ring->random);
		context.trace[1] = kvw_random(&ring->random) | 1; /* an id is not 0 */
	}
	if (!continued || !ring->sampling.parent)
		context.flags =
			(uint8_t)((context.flags & KVW_TRACE_RANDOM) |
				  (draws(&ring->sampling, &context) ? KVW_TRACE_SAMPLED : 0));
	context.span = kvw_random(&ring->random) << 16 | UINT64_C(1) << 63;
	way->context = context;
	store(&way->words[WORD_TRACE], context.trace[0]);
	store(&way->words[WORD_TRACE + 1], context.trace[1]);
	store(&way->words[WORD_PARENT], context.parent);
	store(&way->words[WORD_EXPORT], (uint64_t)context.flags << 8);
	store(&way->words[WORD_SPAN], context.span);
}

const struct kvw_trace_context *kvw_trace_context(const struct kvw_trace_way *way)
{
	return way == NULL || way->context.span == 0 ? NULL : &way->context;
}

bool kvw_trace_call(const struct kvw_trace_way *way, bool leg, char out[KVW_TRACEPARENT_LEN])
{
	if (kvw_trace_context(way) == NULL)
		return false;
	/* A leg is noted after its head was written, an attempt before. */
	kvw_traceparent_write(out, way->context.trace,
		way->context.span + (leg ? way->calls + 1U : way->attempt), way->context.flags);
	return true;
}

/* --- what a request asked and was answered --- */

void kvw_trace_asks(struct kvw_trace_way *way, struct kvw_slice line)
{
	if (kvw_trace_context(way) == NULL)
		return;
	way->names |= (uint64_t)kvw_trace_put_text(way, line, KVW_TRACE_LINE_MOST) << 32;
	kvw_trace_publish(way);
	store(&way->words[WORD_NAMES], way->names);
}

void kvw_trace_answered(
	struct kvw_trace_way *way, const struct kvw_trace_outcome *outcome, struct kvw_slice asked)
{
	uint64_t known = outcome->prompt_known | (uint64_t)outcome->completion_known << 1 |
			 (uint64_t)outcome->cached_known << 2 | (uint64_t)outcome->stream << 3 |
			 UINT64_C(1) << 4;

	if (kvw_trace_context(way) == NULL)
		return;
	store(&way->words[WORD_TOKENS], outcome->prompt | (uint64_t)outcome->completion << 32);
	store(&way->words[WORD_CACHED], outcome->cached);
	store(&way->words[WORD_STRATEGY], (uintptr_t)outcome->strategy);
	store(&way->words[WORD_EXPORT], load(&way->words[WORD_EXPORT]) | known << 16);
	if (asked.len == 0)
		return;
	way->names |= (uint64_t)kvw_trace_put_text(way, asked, KVW_TRACE_MODEL_MOST) << 48;
	kvw_trace_publish(way);
	store(&way->words[WORD_NAMES], way->names);
}

/* --- the outbox --- */

/* Returns whether one more request may be kept by its end in this second. */
static bool tail_allows(struct kvw_trace_ring *ring, int64_t now_ns)
{
	if (now_ns / KVW_NS_PER_S != ring->tail_second) {
		ring->tail_second = now_ns / KVW_NS_PER_S;
		ring->tail_count = 0;
	}
	if (ring->tail_count >= ring->sampling.tail_per_second)
		return false;
	ring->tail_count++;
	return true;
}

static void count_drop(struct kvw_trace_ring *ring, enum kvw_trace_drop why)
{
	atomic_store_explicit(&ring->dropped[why],
		atomic_load_explicit(&ring->dropped[why], memory_order_relaxed) + 1,
		memory_order_relaxed);
}

/* Returns why the request is exported. */
static enum kvw_trace_export reason_of(
	struct kvw_trace_way *way, int64_t now_ns, int64_t total_ns, bool failed)
{
	const struct kvw_trace_sampling *sampling = &way->ring->sampling;
	enum kvw_trace_export why = KVW_TRACE_EXPORT_NOT;

	if ((way->context.flags & KVW_TRACE_SAMPLED) != 0)
		return KVW_TRACE_EXPORT_SAMPLED;
	if (failed && sampling->failed)
		why = KVW_TRACE_EXPORT_FAILED;
	else if (sampling->slow_ns > 0 && total_ns >= sampling->slow_ns)
		why = KVW_TRACE_EXPORT_SLOW;
	if (why != KVW_TRACE_EXPORT_NOT && !tail_allows(way->ring, now_ns)) {
		count_drop(way->ring, KVW_TRACE_DROP_LIMIT);
		why = KVW_TRACE_EXPORT_NOT;
	}
	return why;
}

bool kvw_trace_export(struct kvw_trace_way *way, int64_t now_ns, int64_t total_ns, bool failed)
{
	struct outbox *outbox = &way->ring->outbox;
	enum kvw_trace_export why;
	uint64_t put;

	if (way->context.span == 0)
		return false;
	why = reason_of(way, now_ns, total_ns, failed);
	if (why == KVW_TRACE_EXPORT_NOT)
		return false;
	put = atomic_load_explicit(&outbox->put, memory_order_relaxed);
	if (put - outbox->reclaimed >= outbox->most)
		kvw_trace_reclaim(way->ring);
	if (put - outbox->reclaimed >= outbox->most) {
		count_drop(way->ring, KVW_TRACE_DROP_FULL);
		return false;
	}
	store(&way->words[WORD_EXPORT], load(&way->words[WORD_EXPORT]) | (uint64_t)why);
	atomic_store_explicit(&outbox->indices[put % outbox->most],
		(uint32_t)(way - way->ring->ways), memory_order_relaxed);
	atomic_store_explicit(&outbox->put, put + 1, memory_order_release);
	return true;
}

void kvw_trace_reclaim(struct kvw_trace_ring *ring)
{
	struct outbox *outbox = &ring->outbox;
	uint64_t taken = atomic_load_explicit(&outbox->taken, memory_order_acquire);

	for (; outbox->reclaimed < taken; outbox->reclaimed++)
		kvw_trace_give_back(ring,
			atomic_load_explicit(&outbox->indices[outbox->reclaimed % outbox->most],
				memory_order_relaxed));
}

uint64_t kvw_trace_dropped(const struct kvw_trace *trace, enum kvw_trace_drop why)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < trace->options.loops; i++)
		sum += atomic_load_explicit(&trace->rings[i]->dropped[why], memory_order_relaxed);
	return sum;
}
