/*
 * trace.h - recent events of a handle: why a chunk was no hit, and how a get spent its time.
 *
 * An event describes an action that has ended: a get with its chunks and the reason why it has not
 * more, each request to a lower tier with its time in the queue and in the tier, a put, a dropped
 * store, a tier that was given up. The first 4 bytes of its key name a chunk, as in log lines;
 * events have no more of the key, and no byte of KV.
 *
 * With tracing off each hook costs one branch. Any thread writes and any thread reads, without a
 * lock.
 */
#ifndef KVT_TRACE_H
#define KVT_TRACE_H

#include "tiers/tier.h"

struct kvt;
struct kvt_job;
struct kvt_trace;

enum kvt_trace_what {
	KVT_TRACE_GET,
	KVT_TRACE_LOOKUP, /* kvt_lookup, kvt_find */
	KVT_TRACE_PUT,
	KVT_TRACE_DROPPED, /* a store was dropped before it began; tier: its target */
	/* a tier evicted, expired or erased a chunk that was put with the engine's block names
	 * (kvt_blocks) */
	KVT_TRACE_REMOVED,
	KVT_TRACE_AWAY, /* a tier is left alone */
	/* this value and the following ones: a request to a tier, in the order of enum
	 * kvt_tier_verb */
	KVT_TRACE_READ,
	KVT_TRACE_WRITE,
	KVT_TRACE_ERASE,
	KVT_TRACE_FLUSH,
	KVT_TRACE_PROBE,
	KVT_TRACE_WHATS
};

/* Why a get, lookup or put succeeded only in part, or a read was not begun. */
enum kvt_trace_why {
	KVT_WHY_NONE,
	KVT_WHY_NOWHERE, /* no tier has the chunk */
	KVT_WHY_AWAY,    /* no usable tier has the chunk; `tier` cannot be asked */
	KVT_WHY_SLOWER,  /* computing the chunk again is faster */
	KVT_WHY_LATE,    /* the get's deadline passed */
	KVT_WHY_CANCELED,
	KVT_WHY_NO_ROOM,  /* in memory */
	KVT_WHY_TENANT,   /* the tenant's limit left no room */
	/* the chunk's load failed or was not begun: the READ event has the cause */
	KVT_WHY_NOT_READ,
	KVT_WHY_COUNT
};

struct kvt_trace_event {
	int64_t at_ns;     /* end of the action, by the monotonic clock */
	int64_t took_ns;   /* duration of the action, of a request the time in the tier */
	int64_t waited_ns; /* requests: time in the queue before that */
	union {
		uint64_t bytes;    /* puts, requests */
		/* gets: number of chunks from KVT_TIER_NVME and from KVT_TIER_L2 */
		uint32_t below[2];
	};
	/* short keys (kvt_trace_key) of the first chunk and of the first missing one */
	uint32_t key, missing;
	uint32_t get; /* number of a waiting get, also in the requests that it caused; 0: none */
	uint32_t asked, had;   /* chunks */
	uint8_t what, tier, status, why; /* tier: enum kvt_tier_id; status: enum kvt_status */
};

/* events: size of the first ring, a quarter of which the second ring has in addition; 0: *out is
 * NULL. KVT_ENOMEM. */
enum kvt_status kvt_trace_create(uint32_t events, struct kvt_trace **out) KVT_MUST_CHECK;
void kvt_trace_destroy(struct kvt_trace *trace); /* NULL is allowed */

void kvt_trace_note(struct kvt_trace *trace, const struct kvt_trace_event *event);
/* Returns a number for a get that waits; 0: tracing is off. */
uint32_t kvt_trace_number(struct kvt_trace *trace);

/* Sets `why` of a get or lookup that lacks chunks and has no reason yet, from the tiers' state. */
void kvt_trace_explain(struct kvt *k, struct kvt_trace_event *event);
/* Notes the end of a request to a tier. */
void kvt_trace_job(struct kvt *k, const struct kvt_job *job, int64_t now_ns);
/* Notes an event of one chunk of a tier. */
void kvt_trace_chunk(struct kvt *k, enum kvt_trace_what what, uint32_t tier,
	const struct kvt_key *key, enum kvt_trace_why why);

static inline uint32_t kvt_trace_key(const struct kvt_key *key)
{
	return (uint32_t)key->bytes[0] << 24 | (uint32_t)key->bytes[1] << 16 |
	       (uint32_t)key->bytes[2] << 8 | key->bytes[3];
}

/* --- reading --- */

#define KVT_TRACE_RINGS 2 /* two rings: usual events; slow and failed ones */

/* Answers the request `trace 1 RING SINCE` of the admin socket with one line of JSON:
 * {"events":[...],"next":N}, as many as there is room for, the oldest first; the peer asks again
 * from N on, until N stays. False: another request. */
bool kvt_trace_answer(struct kvt *k, const char *request, char *out, size_t room);

#endif
