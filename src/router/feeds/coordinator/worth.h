/*
 * worth.h - whether prefetches at one server are worth their loads.
 *
 * A prefetch was in vain when it failed, loaded nothing, or still ran when its prompt's first token
 * had come. What one gains cannot be measured: it is less than the load takes, and lost among the
 * errors of predicted times. So these are counted, and when more than half of a server's last ones
 * were such, it rests, and is tried again later.
 *
 * Threads: belongs to the feed's.
 */
#ifndef KVW_COORDINATOR_WORTH_H
#define KVW_COORDINATOR_WORTH_H

#include <stdbool.h>
#include <stdint.h>

#define KVW_WORTH_WINDOW  32u                          /* of the last prefetches */
#define KVW_WORTH_ENOUGH  16u                          /* of them, before a server is judged */
#define KVW_WORTH_REST_NS (INT64_C(600) * 1000000000)

/* Zeroed: none was made. */
struct kvw_worth {
	uint32_t vain;   /* the last prefetches, the newest in the lowest bit */
	uint32_t count;  /* noted since the begin or the last rest */
	int64_t rest_ns; /* rests until then; 0: it never did */
};

static inline bool kvw_worth_rests(const struct kvw_worth *worth, int64_t now_ns)
{
	return now_ns < worth->rest_ns;
}

/* Notes how one ended. Returns whether that makes the server rest. */
static inline bool kvw_worth_note(struct kvw_worth *worth, bool vain, int64_t now_ns)
{
	uint32_t of = ++worth->count < KVW_WORTH_WINDOW ? worth->count : KVW_WORTH_WINDOW;

	worth->vain = worth->vain << 1 | vain;
	if (of < KVW_WORTH_ENOUGH || 2 * (uint32_t)__builtin_popcount(worth->vain) <= of)
		return false;
	*worth = (struct kvw_worth){.rest_ns = now_ns + KVW_WORTH_REST_NS};
	return true;
}

#endif
