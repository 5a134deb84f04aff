/*
 * trace.h - what a handle did lately: why a chunk was no hit, and where the time of a get went.
 *
 * An event is what has ended: a get with the chunks that it had and why not more, each request to a tier
 * below with its time in line and in the tier, a put, a store that was dropped, a tier that is left alone.
 * A chunk is named by the first 4 bytes of its key, as in log lines; never more of it, never a byte of KV.
 *
 * Off (no trace) each hook costs one branch. Any thread writes and any thread reads, without a lock.
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
	KVT_TRACE_DROPPED, /* a store that was not begun; tier: where to */
	KVT_TRACE_REMOVED, /* from a tier: evicted, expired or erased; of chunks that have names for events */
	KVT_TRACE_AWAY, /* a tier is left alone */
	KVT_TRACE_READ, /* this and what follows: a request to a tier, in the order of enum kvt_tier_verb */
	KVT_TRACE_WRITE,
	KVT_TRACE_ERASE,
	KVT_TRACE_FLUSH,
	KVT_TRACE_PROBE,
	KVT_TRACE_WHATS
};

/* Why a get, lookup or put has not all that was asked for, or a read was not begun. */
enum kvt_trace_why {
	KVT_WHY_NONE,
	KVT_WHY_NOWHERE, /* no tier has the chunk */
	KVT_WHY_AWAY,    /* ... that may be used now; `tier` cannot be asked */
	KVT_WHY_SLOWER,  /* than computing it again */
	KVT_WHY_LATE,    /* the get's time was over */
	KVT_WHY_CANCELED,
	KVT_WHY_NO_ROOM,  /* in memory */
	KVT_WHY_TENANT,   /* ... below its tenant's limit */
	KVT_WHY_NOT_READ, /* its load failed, or was not begun: its READ says why */
	KVT_WHY_COUNT
};

struct kvt_trace_event {
	int64_t at_ns,
		took_ns;   /* monotonic, of its end; from its begin on, or (requests) in the tier */
	int64_t waited_ns; /* requests: in line before that */
	union {
		uint64_t bytes;    /* puts, requests */
		uint32_t below[2]; /* gets: chunks from KVT_TIER_NVME, from KVT_TIER_L2 */
	};
	uint32_t key, missing; /* first chunk; the first one that it did not have */
	uint32_t get;          /* number of a get that waited, and of requests for it; 0: none */
	uint32_t asked, had;   /* chunks */
	uint8_t what, tier, status, why; /* tier: enum kvt_tier_id; status: enum kvt_status */
};

/* events: how many are remembered, and a quarter more of what was slow or went wrong; 0: *out is NULL.
 * KVT_ENOMEM. */
enum kvt_status kvt_trace_create(uint32_t events, struct kvt_trace **out) KVT_MUST_CHECK;
void kvt_trace_destroy(struct kvt_trace *trace); /* NULL is allowed */

void kvt_trace_note(struct kvt_trace *trace, const struct kvt_trace_event *event);
/* A number for a get that waits; 0: nothing is traced. */
uint32_t kvt_trace_number(struct kvt_trace *trace);

/* A get or lookup without `why` that did not have all of it: what it names, from the tiers' state. */
void kvt_trace_explain(struct kvt *k, struct kvt_trace_event *event);
/* A request has ended. */
void kvt_trace_job(struct kvt *k, const struct kvt_job *job, int64_t now_ns);
/* One chunk, of a tier. */
void kvt_trace_chunk(struct kvt *k, enum kvt_trace_what what, uint32_t tier,
	const struct kvt_key *key, enum kvt_trace_why why);

static inline uint32_t kvt_trace_key(const struct kvt_key *key)
{
	return (uint32_t)key->bytes[0] << 24 | (uint32_t)key->bytes[1] << 16 |
	       (uint32_t)key->bytes[2] << 8 | key->bytes[3];
}

/* --- reading --- */

#define KVT_TRACE_RINGS 2 /* usual events; those that were slow or went wrong */

/* The request `trace 1 RING SINCE` of the admin socket, answered by one line of JSON:
 * {"events":[...],"next":N}, as many as there is room for, the oldest first; asked again from N on, until N
 * stays. False: it is another request. */
bool kvt_trace_answer(struct kvt *k, const char *request, char *out, size_t room);

#endif
