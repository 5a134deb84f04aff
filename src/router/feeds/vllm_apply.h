/*
 * vllm_apply.h - applies one engine's batches of KV events to the exact index.
 *
 * An event names a block by the engine's hash and lists its token ids; these functions compute the
 * router's own key (block_key.h), and the source within the worker: one for each pair of
 * data-parallel rank and cache group.
 *
 * Groups. A hybrid model keeps several groups of layers, each with blocks of its own. A prefix is a
 * hit when the groups with full attention hold it: these must hold a block together. Groups with a
 * window, or a state, need only the end of the prefix; they drop earlier blocks while the prefix
 * stays a hit. They are left out if there is a group with full attention.
 *
 * Threads: the feed's.
 */
#ifndef KVW_VLLM_APPLY_H
#define KVW_VLLM_APPLY_H

#include "routing/kvindex.h"
#include "feeds/kvspace.h"
#include "wire/vllm_events.h"

/* most pairs of rank and group of one worker, whether they count or not */
#define KVW_VLLM_GROUPS 64

/* State shared by the streams of all workers. */
struct kvw_vllm_applier {
	struct kvw_kvindex *index;   /* borrowed */
	struct kvw_kvspaces *spaces; /* borrowed */
	struct kvw_vllm_reader reader;
	uint64_t *keys; /* owned; scratch */
	size_t key_room;
	uint8_t *payload; /* scratch space for parked blocks; owned */
	size_t payload_room;
};

/* Sets the index's function that computes keys of parked blocks. */
void kvw_vllm_applier_init(
	struct kvw_vllm_applier *applier, struct kvw_kvindex *index, struct kvw_kvspaces *spaces);
void kvw_vllm_applier_finish(struct kvw_vllm_applier *applier);

struct kvw_vllm_group {
	uint32_t rank, group;
	bool windowed; /* the group's blocks do not reach back to the prompt's start */
	int source;    /* the group's source in the index; -1: left out */
};

/* The groups of one worker. The owner zeroes it, then sets worker and one_rank. */
struct kvw_vllm_map {
	uint32_t worker;
	uint32_t count;
	struct kvw_vllm_group groups[KVW_VLLM_GROUPS];
	/* the worker has more counted groups than the index has sources for an engine */
	bool overflow;
	/* the worker is one data-parallel rank: batches that name another rank show a fault */
	bool one_rank;
};

struct kvw_vllm_applied {
	uint64_t events;  /* taken */
	uint64_t dropped; /* events of unknown types, or dropped for lack of memory */
	bool cleared;     /* one of the events: the engine has emptied its cache */
	double time_s;    /* when the engine sent the batch */
	/* Why the index lacks blocks that the engine holds, as static text; NULL: it lacks none. */
	const char *hole;
};

/* Applies one batch. now_ns: monotonic, for parked blocks. */
void kvw_vllm_apply(struct kvw_vllm_applier *applier, struct kvw_vllm_map *map, uint32_t rank,
	struct kvw_slice payload, int64_t now_ns, struct kvw_vllm_applied *result);

/* Forgets all blocks of this rank. */
void kvw_vllm_map_clear(struct kvw_vllm_applier *applier, struct kvw_vllm_map *map, uint32_t rank);

#endif
