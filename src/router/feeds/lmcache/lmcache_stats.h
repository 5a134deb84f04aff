/*
 * lmcache_stats.h - counters of LMCache's controller. Plain data.
 */
#ifndef KVW_LMCACHE_STATS_H
#define KVW_LMCACHE_STATS_H

#include <stdint.h>

#include "wire/lmcache_wire.h"

/* Reason of a refused message. */
enum kvw_lmcache_refusal {
	KVW_LMCACHE_MALFORMED,    /* malformed, or a member missing or malformed */
	KVW_LMCACHE_TOO_LARGE,    /* the message, a text or a count in it */
	KVW_LMCACHE_UNKNOWN_TYPE, /* of no type that a worker sends */
	KVW_LMCACHE_ENVELOPE,     /* not [identity] [""] [message] */
	KVW_LMCACHE_MISPLACED,    /* of a type for another socket */
	KVW_LMCACHE_STALE,        /* a batch or end without a running sync */
	KVW_LMCACHE_NO_ROOM,      /* no room for instances, ranks, locations or memory */
	KVW_LMCACHE_REFUSALS
};

/* Label text, for example "malformed". */
const char *kvw_lmcache_refusal_name(enum kvw_lmcache_refusal refusal);

/* Label text of a type, for example "heartbeat". */
const char *kvw_lmcache_type_name(enum kvw_lmc_type type);

struct kvw_lmcache_stats {
	/* now */
	uint64_t instances; /* known */
	uint64_t unmapped;  /* of these, without a worker of the fleet */
	uint64_t blind;     /* mapped instances of which a report was missed */
	uint64_t syncing;   /* ranks in a full sync */
	uint64_t ranks;     /* alive */
	uint64_t keys;      /* in all locations of all ranks */

	/* since start */
	uint64_t messages[KVW_LMC_TYPE_COUNT]; /* understood, by type */
	uint64_t refused[KVW_LMCACHE_REFUSALS];
	uint64_t admits, evicts;
	uint64_t unknown_evicts; /* of keys that the location did not hold */
	uint64_t dropped;        /* admits for which there was no room */
	uint64_t gaps;           /* in sequence numbers */
	uint64_t restarts;       /* sequences that began again without a registration */
	uint64_t registered, deregistered;
	uint64_t timeouts; /* ranks whose heartbeats ended */
	uint64_t lost;     /* instances forgotten because their worker refuses connections */
	uint64_t recalled; /* keys handed over by the former process, by location */
	uint64_t syncs_asked, syncs_done, syncs_failed;
	uint64_t p2p_hits;
	uint64_t routed;                     /* prompts searched among admits */
	uint64_t routed_dropped;             /* not searched, for lack of room */
	uint64_t matched, unmatched;         /* of routed */
	/* Instances mapped by their admitted keys. */
	uint64_t learned;
	uint64_t detected;                   /* recipes detected */
};

#endif
