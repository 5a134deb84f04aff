/*
 * giver.h - the running kvway's side of a takeover: it listens on a Unix socket, gives its
 * listening sockets away, and serves on until the new process says that it is ready.
 *
 * 	LISTENS --hello--> GIVEN --ready--> HANDED
 * 	   ^                  |
 * 	   '--ended, late-----'
 *
 * Threads: the main thread. No call waits.
 */
#ifndef KVW_TAKEOVER_GIVER_H
#define KVW_TAKEOVER_GIVER_H

#include <poll.h>
#include <stdio.h>

#include "server/sockets.h"
#include "takeover/state.h"
#include "tls/watch.h"

#define KVW_GIVER_PEERS 8                     /* at once; more wait in the kernel */
#define KVW_GIVER_POLLS (KVW_GIVER_PEERS + 1) /* for kvw_giver_poll */

struct kvw_giver;

/* All borrowed until kvw_giver_destroy. */
struct kvw_giver_deps {
	const char *path;   /* of the Unix socket; "": none, only kvw_giver_serve_take */
	int64_t timeout_ns; /* for a new process, from its question until it is ready */
	struct kvw_sockets *sockets;
	struct kvw_takeover_state *state;
	/* How many workers can be chosen now; a new process that finds none of them is not
	 * whole. */
	uint32_t (*usable)(void *arg);
	void *usable_arg;
	bool keeps; /* a snapshot can be asked for */
	/* Whose keys of session tickets can be asked for; NULL: none. */
	struct kvw_tls_watch *certificates;
};

/* Adopts the socket at that path, or makes it with mode 0600, in place of one that a dead process
 * left.
 * KVW_EIO: neither is possible; `errors` says why. */
enum kvw_err kvw_giver_create(
	const struct kvw_giver_deps *deps, FILE *errors, struct kvw_giver **out) KVW_MUST_CHECK;
/* This process is in charge: from now on kvw_giver_destroy unlinks the path,
 * also where it was adopted. */
void kvw_giver_begin(struct kvw_giver *giver);
/* Unlinks the path unless another process listens there. NULL is allowed. */
void kvw_giver_destroy(struct kvw_giver *giver);

/* A connected socket whose other end a child has; takes it. pid: the child. */
void kvw_giver_serve_take(struct kvw_giver *giver, int channel, int64_t pid);

/* Fills the descriptors for poll(), at most KVW_GIVER_POLLS. *wait_ms is lowered to when
 * kvw_giver_turn is due. */
size_t kvw_giver_poll(const struct kvw_giver *giver, struct pollfd *polls, int *wait_ms);

/* Reads messages that have come. True, once: the new process is ready, and this one is to accept no
 * more. Then kvw_giver_say_goodbye is due. */
bool kvw_giver_turn(struct kvw_giver *giver) KVW_MUST_CHECK;
/* The new process waits for a snapshot: kvw_giver_give_snapshot is due. */
bool kvw_giver_owes_snapshot(const struct kvw_giver *giver);
/* Takes fd, of a snapshot; -1: it could not be made. Without one that waits it is closed. */
void kvw_giver_give_snapshot_take(struct kvw_giver *giver, int fd);
/* Process id of the new process that is ready. */
int64_t kvw_giver_heir(const struct kvw_giver *giver);
/* Does the new process read the caches that workers have reported to this one? Then
 * kvw_giver_give_caches_take may come before goodbye. */
bool kvw_giver_heir_reads_caches(const struct kvw_giver *giver);
/* Takes fd, of a memory file. Where it does not arrive, workers are asked again. */
void kvw_giver_give_caches_take(struct kvw_giver *giver, int fd);
void kvw_giver_say_goodbye(struct kvw_giver *giver);

/* From now on each process that asks, or has asked, is refused with this reason. */
void kvw_giver_close(struct kvw_giver *giver, const char *why);

#endif
