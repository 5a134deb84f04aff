/*
 * lmcache_stats.h - counters of LMCache's controller. Plain data.
 */
#ifndef KVW_LMCACHE_STATS_H
#define KVW_LMCACHE_STATS_H

#include <stdint.h>

#include "wire/lmcache_wire.h"

/* Reason of a refused message. */
enum kvw_lmcache_refusal {
	KVW_LMCACHE_MALFORMED,    /* malformed, or a member is missing or malformed */
	KVW_LMCACHE_TOO_LARGE,    /* the message, or a text or count in it, is too large */
	KVW_LMCACHE_UNKNOWN_TYPE, /* a type that no worker sends */
	KVW_LMCACHE_ENVELOPE,     /* not [identity] [""] [message] */
	KVW_LMCACHE_MISPLACED,    /* a type that belongs on another socket */
	KVW_LMCACHE_STALE,        /* a batch or an end of a sync that is not running */
	KVW_LMCACHE_NO_ROOM, /* no room for another instance, rank or location, or out of memory */
	KVW_LMCACHE_REFUSALS
};

/* Label text, for example "malformed". */
const char *kvw_lmcache_refusal_name(enum kvw_lmcache_refusal refusal);

/* Label text of a type, for example "heartbeat". */
const char *kvw_lmcache_type_name(enum kvw_lmc_type type);

struct kvw_lmcache_stats {
	/* now */
	uint64_t instances; /* known */
	uint64_t unmapped;  /* instances without a worker of the fleet */
	uint64_t blind;     /* mapped instances of which a report was missed */
	uint64_t syncing;   /* ranks that are in a full sync */
	uint64_t ranks;     /* alive */
	uint64_t keys;      /* keys in all locations of all ranks */

	/* since start */
	uint64_t messages[KVW_LMC_TYPE_COUNT]; /* understood, by type */
	uint64_t refused[KVW_LMCACHE_REFUSALS];
	uint64_t admits, evicts;
	uint64_t unknown_evicts; /* evictions of keys that the location did not have */
	uint64_t dropped;        /* admitted keys that were dropped for lack of room */
	uint64_t gaps;           /* in sequence numbers */
	uint64_t restarts;       /* sequences of numbers that began again without a registration */
	uint64_t registered, deregistered;
	uint64_t timeouts; /* ranks whose heartbeats ended */
	uint64_t lost;     /* instances forgotten because their worker refuses connections */
	uint64_t recalled; /* keys handed over by the former process, by location */
	uint64_t syncs_asked, syncs_done, syncs_failed;
	uint64_t p2p_hits;
	uint64_t routed;                     /* prompts that were looked for among admitted keys */
	uint64_t routed_dropped;             /* prompts that were not, for lack of room */
	uint64_t matched, unmatched;         /* of routed */
	/* Instances that were mapped by the keys that they admitted. */
	uint64_t learned;
	uint64_t detected;                   /* recipes detected */
};

#endif
