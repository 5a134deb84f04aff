/*
 * controller.h - a cache as a worker of LMCache's controller: the room's front.
 *
 * From what tiers report as stored and lost, it keeps the names that the controller knows chunks
 * by, queues the changes, and has a thread of its own that speaks (none with KVT_THREADS_CALLER:
 * then kvt_controller_step does its work). Reporting never waits for anything but a short lock;
 * what is too much for the queue is dropped, and a full sync of all names follows. Whatever a
 * controller does or says, the cache goes on.
 *
 * Thread-safe but for create, stop and destroy.
 */
#ifndef KVT_CONTROLLER_H
#define KVT_CONTROLLER_H

#include <stdbool.h>

#include "lmcache/controller_link.h"
#include "chunk/note.h"

struct kvt_controller;

/* What commands do. Called on the controller's thread with none of its locks held. */
struct kvt_controller_actions {
	void *self;
	/* Empties memory but for what is pinned; returns the tokens that went. */
	uint64_t (*clear)(void *self);
	/* Pins or unpins chunks. */
	void (*pin)(void *self, const struct kvt_key *keys, size_t n, bool pin);
};

/* The configuration is read during the call only. KVT_MISS: none is configured, or it cannot be
 * (logged). KVT_ENOMEM. */
enum kvt_status kvt_controller_create(const struct kvt_config *config,
	const struct kvt_surroundings *s, const struct kvt_controller_actions *actions,
	struct kvt_controller **out) KVT_MUST_CHECK;
/* Says good-bye and ends the thread; reports from then on are dropped. NULL is allowed. */
void kvt_controller_stop(struct kvt_controller *c);
void kvt_controller_destroy(struct kvt_controller *c); /* NULL is allowed */

/* A tier holds a chunk, or does not any more. names: as put gave them; NULL, or without LMCache's
 * hash: the controller does not hear of it. Other tiers than memory and NVMe are passed over. */
void kvt_controller_stored(struct kvt_controller *c, uint32_t tier, const struct kvt_key *key,
	const struct kvt_blocks *names);
void kvt_controller_removed(struct kvt_controller *c, uint32_t tier, const struct kvt_key *key);

/* KVT_THREADS_CALLER: reads, sends, carries out; returns how many things it did. *next_ns becomes
 * less if this wants to be called again before it. One thread at a time. */
size_t kvt_controller_step(struct kvt_controller *c, int64_t *next_ns);

struct kvt_controller_stats {
	struct kvt_controller_link_stats link;
	uint64_t registered;   /* 1: the controller has answered */
	uint64_t chunks;       /* named now */
	uint64_t unnamed;      /* chunks that there was no room to name */
	uint64_t queue_drops;  /* changes that the queue had no room for; a full sync followed */
	uint64_t pinned;       /* by it, now */
	uint64_t memory_bytes; /* of the names */
};
/* Any thread; as of the thread's last turn. */
void kvt_controller_stats(struct kvt_controller *c, struct kvt_controller_stats *out);

#endif
