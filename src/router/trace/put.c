/*
 * put.c - what trace.c and join.c stand on: texts of a record, and the queue to which the record of
 * an ended request goes back.
 */
#include "trace/trace_internal.h"

#include <string.h>

#include "base/clock.h"

#define QUICK_NS (100 * KVW_NS_PER_MS) /* requests below this share few records */

void kvw_trace_publish(struct kvw_trace_way *way)
{
	store(&way->words[WORD_STATE],
		way->notes | (uint64_t)way->texts << 8 | (uint64_t)way->skipped << 16);
}

size_t kvw_trace_room(const struct kvw_trace_way *way)
{
	return KVW_TRACE_TEXT - 8 * (size_t)way->texts;
}

unsigned kvw_trace_put_text(struct kvw_trace_way *way, struct kvw_slice text, size_t most)
{
	size_t room = kvw_trace_room(way), len = text.len < most ? text.len : most;
	unsigned at = way->texts;

	if (len > room)
		len = room;
	for (size_t done = 0; done < len; done += 8) {
		uint64_t piece = 0;

		if (len - done >= 8) /* of a known size, so that no function is called */
			memcpy(&piece, text.data + done, 8);
		else
			memcpy(&piece, text.data + done, len - done);
		store(&way->words[WORD_TEXT + way->texts++], piece);
	}
	return len == 0 ? 0 : at | (unsigned)len << 8;
}

/* Returns the queue for the record of a request that has ended. */
static struct queue *queue_of(struct kvw_trace_ring *ring, bool failed, int64_t total_ns)
{
	if (failed && ring->kept_most > 0)
		return &ring->kept;
	return total_ns < QUICK_NS ? &ring->quick : &ring->free;
}

void kvw_trace_give_back(struct kvw_trace_ring *ring, uint32_t index)
{
	const word *words = ring->ways[index].words;
	bool failed = (load(&words[WORD_RESULT]) >> 24 & 1) != 0;

	push(ring, queue_of(ring, failed, (int64_t)load(&words[WORD_TOTAL])), index);
	if (ring->kept.count > ring->kept_most)
		push(ring, &ring->free, pop(ring, &ring->kept));
}
