/*
 * controller.h - makes a cache a worker of LMCache's controller: the interface of this folder.
 *
 * From the tiers' reports of stored and lost chunks, the worker keeps the names by which the
 * controller knows chunks, queues the changes, and has a thread of its own that sends them (none
 * with KVT_THREADS_CALLER: then kvt_controller_step does its work). A report waits only for a short
 * lock; changes beyond the queue's room are dropped, and a full sync of all names follows. Whatever
 * a controller does, the cache goes on.
 *
 * Thread-safe but for create, stop and destroy.
 */
#ifndef KVT_CONTROLLER_H
#define KVT_CONTROLLER_H

#include <stdbool.h>

#include "lmcache/controller_link.h"
#include "chunk/note.h"

struct kvt_controller;

/* Functions that execute the controller's commands. Called on the controller's thread, with none of
 * its locks held. */
struct kvt_controller_actions {
	void *self;
	/* Empties memory except for pinned chunks; returns the number of tokens that were
	 * dropped. */
	uint64_t (*clear)(void *self);
	/* Pins or unpins chunks. */
	void (*pin)(void *self, const struct kvt_key *keys, size_t n, bool pin);
};

/* *config is only read during the call. KVT_MISS: no controller is configured, or it cannot be
 * used, which is logged. KVT_ENOMEM. */
enum kvt_status kvt_controller_create(const struct kvt_config *config,
	const struct kvt_surroundings *s, const struct kvt_controller_actions *actions,
	struct kvt_controller **out) KVT_MUST_CHECK;
/* Sends the good-bye and ends the thread; later reports are ignored. NULL is allowed. */
void kvt_controller_stop(struct kvt_controller *c);
void kvt_controller_destroy(struct kvt_controller *c); /* NULL is allowed */

/* These report that a tier has stored a chunk, or holds it no longer. names: as the caller of put
 * gave them; if it is NULL, or has no LMCache hash, the controller is not informed. Only memory and
 * NVMe are reported. */
void kvt_controller_stored(struct kvt_controller *c, uint32_t tier, const struct kvt_key *key,
	const struct kvt_blocks *names);
void kvt_controller_removed(struct kvt_controller *c, uint32_t tier, const struct kvt_key *key);

/* For KVT_THREADS_CALLER: reads, sends and executes commands; returns the number of actions. If the
 * next call must come before *next_ns, lowers *next_ns to that time. One thread at a time. */
size_t kvt_controller_step(struct kvt_controller *c, int64_t *next_ns);

struct kvt_controller_stats {
	struct kvt_controller_link_stats link;
	uint64_t registered;   /* 1: the controller has answered */
	uint64_t chunks;       /* named now */
	uint64_t unnamed; /* number of chunks whose names were not kept because there was no room */
	/* number of changes that were dropped because the queue was full; a full sync followed */
	uint64_t queue_drops;
	uint64_t pinned;       /* number of chunks that the controller has pinned now */
	uint64_t memory_bytes; /* memory of the names */
};
/* Reads the counters as of the last turn of the thread. Any thread. */
void kvt_controller_stats(struct kvt_controller *c, struct kvt_controller_stats *out);

#endif
