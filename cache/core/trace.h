/*
 * trace.h - recent events of a handle: why a chunk was no hit, and how a get spent its time.
 *
 * An event describes an action that has ended: a get with its chunks and the reason why not more, each request to a
 * lower tier with its time in line and in the tier, a put, a dropped store, a tier that is left alone. The first 4
 * bytes of its key name a chunk, as in log lines; events have no more of the key, and no byte of KV.
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
	KVT_TRACE_DROPPED, /* a store that was not begun; tier: its target */
	KVT_TRACE_REMOVED, /* removed from a tier: evicted, expired or erased; only chunks with names for events */
	KVT_TRACE_AWAY, /* a tier is left alone */
	KVT_TRACE_READ, /* this and the following: a request to a tier, in the order of enum kvt_tier_verb */
	KVT_TRACE_WRITE,
	KVT_TRACE_ERASE,
	KVT_TRACE_FLUSH,
	KVT_TRACE_PROBE,
	KVT_TRACE_WHATS
};

/* Why a get, lookup or put did not succeed completely, or a read was not begun. */
enum kvt_trace_why {
	KVT_WHY_NONE,
	KVT_WHY_NOWHERE, /* no tier has the chunk */
	KVT_WHY_AWAY,    /* no usable tier has it; `tier` cannot be asked */
	KVT_WHY_SLOWER,  /* computing it again is faster */
	KVT_WHY_LATE,    /* the get's time was over */
	KVT_WHY_CANCELED,
	KVT_WHY_NO_ROOM,  /* in memory */
	KVT_WHY_TENANT,   /* no room below its tenant's limit */
	KVT_WHY_NOT_READ, /* its load failed, or was not begun: its READ has the cause */
	KVT_WHY_COUNT
};

struct kvt_trace_event {
	int64_t at_ns,
		took_ns;   /* monotonic, of its end; duration, for requests in the tier */
	int64_t waited_ns; /* requests: time in line before that */
	union {
		uint64_t bytes;    /* puts, requests */
		uint32_t below[2]; /* gets: chunks from KVT_TIER_NVME, from KVT_TIER_L2 */
	};
	uint32_t key, missing; /* first chunk; first missing chunk */
	uint32_t get;          /* number of a waiting get, and of requests for it; 0: none */
	uint32_t asked, had;   /* chunks */
	uint8_t what, tier, status, why; /* tier: enum kvt_tier_id; status: enum kvt_status */
};

/* events: number of remembered events, and a quarter more for slow and failed ones; 0: *out is NULL. KVT_ENOMEM. */
enum kvt_status kvt_trace_create(uint32_t events, struct kvt_trace **out) KVT_MUST_CHECK;
void kvt_trace_destroy(struct kvt_trace *trace); /* NULL is allowed */

void kvt_trace_note(struct kvt_trace *trace, const struct kvt_trace_event *event);
/* A number for a get that waits; 0: tracing is off. */
uint32_t kvt_trace_number(struct kvt_trace *trace);

/* Sets `why` of a get or lookup that lacks chunks and a reason, from the tiers' state. */
void kvt_trace_explain(struct kvt *k, struct kvt_trace_event *event);
/* Notes the end of a request. */
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

#define KVT_TRACE_RINGS 2 /* usual events; slow and failed ones */

/* Answers the request `trace 1 RING SINCE` of the admin socket with one line of JSON: {"events":[...],"next":N}, as
 * many as there is room for, the oldest first; the peer asks again from N on, until N stays. False: another request. */
bool kvt_trace_answer(struct kvt *k, const char *request, char *out, size_t room);

#endif
