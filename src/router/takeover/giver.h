/*
 * giver.h - the running kvway's side of a takeover: it listens on a Unix socket, passes copies of
 * its listening sockets to a new process, and goes on serving until that process says that it is
 * ready.
 *
 *	LISTENS --hello--> GIVEN --ready--> HANDED
 *	   ^                  |
 *	   '--ended, late-----'
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

#define KVW_GIVER_PEERS 8 /* limit of connected new processes; others wait in the kernel's queue */
#define KVW_GIVER_POLLS (KVW_GIVER_PEERS + 1) /* room that kvw_giver_poll needs */

struct kvw_giver;

/* All members are borrowed until kvw_giver_destroy. */
struct kvw_giver_deps {
	const char *path;   /* path of the Unix socket; "": none, only kvw_giver_serve_take */
	int64_t timeout_ns; /* time for a new process from its hello until it is ready */
	struct kvw_sockets *sockets;
	struct kvw_takeover_state *state;
	/* Returns how many workers this process can choose now. The new process learns the number,
	 * and is not complete while it finds none of them. */
	uint32_t (*usable)(void *arg);
	void *usable_arg;
	bool keeps; /* a new process may ask for a snapshot of what this one knows */
	/* The certificates whose keys of session tickets a new process may ask for; NULL: none. */
	struct kvw_tls_watch *certificates;
};

/* Adopts an inherited socket at that path, or makes one with mode 0600, in place of one that a dead
 * process left. KVW_EIO: neither is possible; `errors` says why. */
enum kvw_err kvw_giver_create(
	const struct kvw_giver_deps *deps, FILE *errors, struct kvw_giver **out) KVW_MUST_CHECK;
/* Called when this process is in charge: from now on kvw_giver_destroy unlinks the path, even if
 * its socket was adopted. */
void kvw_giver_begin(struct kvw_giver *giver);
/* Ends the giver, and unlinks the path unless another process listens there. NULL is allowed. */
void kvw_giver_destroy(struct kvw_giver *giver);

/* Serves a child over a connected socket, whose other end the child has; takes the socket. pid: the
 * child. */
void kvw_giver_serve_take(struct kvw_giver *giver, int channel, int64_t pid);

/* Fills the descriptors for poll(), at most KVW_GIVER_POLLS. Lowers *wait_ms to the time until
 * kvw_giver_turn must be called. */
size_t kvw_giver_poll(const struct kvw_giver *giver, struct pollfd *polls, int *wait_ms);

/* Reads messages that have come. Returns true once, when the new process is ready: the caller must
 * stop accepting, and then call kvw_giver_say_goodbye. */
bool kvw_giver_turn(struct kvw_giver *giver) KVW_MUST_CHECK;
/* Returns whether the new process waits for a snapshot, so that kvw_giver_give_snapshot_take must
 * be called. */
bool kvw_giver_owes_snapshot(const struct kvw_giver *giver);
/* Sends a snapshot and takes its descriptor; -1: it could not be made. If no process waits for it,
 * it is closed. */
void kvw_giver_give_snapshot_take(struct kvw_giver *giver, int fd);
/* Returns the process id of the new process that is ready. */
int64_t kvw_giver_heir(const struct kvw_giver *giver);
/* Returns whether the new process wants the caches that workers have reported to this one. Then
 * kvw_giver_give_caches_take may be called before goodbye. */
bool kvw_giver_heir_reads_caches(const struct kvw_giver *giver);
/* Sends a memory file with the reported caches and takes its descriptor. If it does not arrive, the
 * new process asks the workers again. */
void kvw_giver_give_caches_take(struct kvw_giver *giver, int fd);
void kvw_giver_say_goodbye(struct kvw_giver *giver);

/* From now on every process that asks, or has asked, for the sockets is refused with this
 * reason. */
void kvw_giver_close(struct kvw_giver *giver, const char *why);

#endif
