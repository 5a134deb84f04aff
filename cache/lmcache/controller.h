/*
 * controller.h - a cache as a worker of LMCache's controller: the interface of this folder.
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

/* Actions of commands. Called on the controller's thread with none of its locks held. */
struct kvt_controller_actions {
	void *self;
	/* Empties memory except pinned chunks; returns the tokens that went. */
	uint64_t (*clear)(void *self);
	/* Pins or unpins chunks. */
	void (*pin)(void *self, const struct kvt_key *keys, size_t n, bool pin);
};

/* The call only reads the configuration. KVT_MISS: no controller is configured, or it is unusable
 * (logged). KVT_ENOMEM. */
enum kvt_status kvt_controller_create(const struct kvt_config *config,
	const struct kvt_surroundings *s, const struct kvt_controller_actions *actions,
	struct kvt_controller **out) KVT_MUST_CHECK;
/* Sends the good-bye and ends the thread; later reports are dropped. NULL is allowed. */
void kvt_controller_stop(struct kvt_controller *c);
void kvt_controller_destroy(struct kvt_controller *c); /* NULL is allowed */

/* Report that a tier holds a chunk, or no longer holds it. names: as given to put; with NULL, or
 * without LMCache's hash, the controller gets no report. Only memory and NVMe are reported. */
void kvt_controller_stored(struct kvt_controller *c, uint32_t tier, const struct kvt_key *key,
	const struct kvt_blocks *names);
void kvt_controller_removed(struct kvt_controller *c, uint32_t tier, const struct kvt_key *key);

/* KVT_THREADS_CALLER: reads, sends, executes commands; returns the number of actions. Lowers
 * *next_ns to the time of the next call, if earlier. One thread at a time. */
size_t kvt_controller_step(struct kvt_controller *c, int64_t *next_ns);

struct kvt_controller_stats {
	struct kvt_controller_link_stats link;
	uint64_t registered;   /* 1: the controller has answered */
	uint64_t chunks;       /* named now */
	uint64_t unnamed;      /* chunks without a name for lack of room */
	/* changes dropped for lack of room in the queue; a full sync followed */
	uint64_t queue_drops;
	uint64_t pinned;       /* chunks pinned by the controller now */
	uint64_t memory_bytes; /* memory of the names */
};
/* Reads the counters, as of the thread's last turn. Any thread. */
void kvt_controller_stats(struct kvt_controller *c, struct kvt_controller_stats *out);

#endif
