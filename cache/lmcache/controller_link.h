/*
 * controller_link.h - one LMCache worker's sockets to its controller, and its protocol state.
 *
 * 	PUSH    events                                   -> controller's pull address
 * 	DEALER  register, full sync, one at a time      <-> controller's reply address (0.3.12 and later)
 * 	DEALER  heartbeats                              <-> address in the answer to register
 * 	REP     commands from the controller
 *
 * A controller before 0.3.12 has no reply address: registrations and heartbeats are sent on PUSH, and get no answer.
 *
 * Two kinds of worker. A worker with `stock` behaves like LMCache 0.5.6, to simulate it: it sends a registration once,
 * and without an answer for `answer_ns` it never sends again; only the controller asks for full syncs; during a full
 * sync nothing may be stored. The other kind of worker does not give up: it registers again until it gets an answer,
 * notices by unanswered heartbeats that its controller is gone, begins a full sync by itself whenever it could not
 * report a change, and holds changes back during a sync.
 *
 * Only destroy waits, for a last message, and kvt_controller_link_wait. Not thread-safe. Times are the caller's
 * monotonic nanoseconds.
 */
#ifndef KVT_CONTROLLER_LINK_H
#define KVT_CONTROLLER_LINK_H

#include "lmcache/controller_wire.h"

#define KVT_CONTROLLER_LOCATIONS 2

struct kvt_controller_link;

/* Functions of the link's owner, called by the link. They must not call the link. */
struct kvt_controller_link_user {
	void *self;
	/* Executes a command and writes the answer to it. */
	void (*command)(void *self, const struct kvt_controller_message *command,
		struct kvt_controller_buf *answer);
	/* Lists all keys of a location, on the heap; the link frees them. Returns false if memory
	 * is short. */
	bool (*keys)(void *self, uint32_t location, uint64_t **keys, uint32_t *count);
	/* Called after a socket was opened, and before it is closed: for loops that watch sockets.
	 * May be NULL. */
	void (*opened)(void *self, void *socket);
	void (*closing)(void *self, void *socket);
};

struct kvt_controller_link_config {
	void *zmq;             /* context; borrowed */
	const char *pull; /* "HOST:PORT", perhaps after "tcp://"; the next two have the same form */
	const char *reply;     /* "": a controller before 0.3.12 */
	const char *heartbeat; /* "": the address that comes in the answer to the registration */
	const char *instance;
	const char *ip;   /* the address of this worker that the controller gets */
	const char *bind; /* address on which the worker listens for commands; "": ip */
	uint16_t port;    /* port for commands; 0: any free one */
	uint32_t worker;  /* rank */
	bool signed_keys;
	bool stock;
	/* number of locations that are reported: KVT_CONTROLLER_CPU, then _DISK */
	uint32_t locations;
	int64_t heartbeat_ns;       /* 0: none */
	int64_t heartbeat_delay_ns; /* after registration */
	int64_t answer_ns;          /* an answer that comes later is not counted as one */
	/* a sync that the worker begins starts after a random time of at most this */
	int64_t sync_delay_ns;
	uint32_t sync_batch, queue; /* most keys in a message; most changes that are held back */
	struct kvt_controller_link_user user;
};

/* Creates a link; copies the texts. Returns NULL on failure; then `why`, which has room for
 * KVT_CONTROLLER_TEXT_MAX, has the reason. */
struct kvt_controller_link *kvt_controller_link_create(
	const struct kvt_controller_link_config *config, int64_t now_ns, char *why);
void kvt_controller_link_destroy(
	struct kvt_controller_link *link); /* sends the good-bye; NULL is allowed */

/* Notes that a location has a chunk now, or no longer; the next flush reports it. */
void kvt_controller_link_change(
	struct kvt_controller_link *link, uint32_t location, bool admit, uint64_t key);
void kvt_controller_link_flush(struct kvt_controller_link *link);

/* Notes that changes were lost, so that the controller needs a full sync (ignored with `stock`). */
void kvt_controller_link_resync(struct kvt_controller_link *link, int64_t now_ns);

/* Reads the sockets and does the work that is due. Returns the number of actions. If the next call
 * must come before *next_ns, lowers *next_ns to that time. */
size_t kvt_controller_link_step(struct kvt_controller_link *link, int64_t now_ns, int64_t *next_ns);

/* Returns when `fd` or a socket can be read, or after timeout_ms. */
void kvt_controller_link_wait(struct kvt_controller_link *link, int fd, long timeout_ms);

/* Begins again like a new process, on the same sockets: registers, and counts from 0. */
void kvt_controller_link_restart(struct kvt_controller_link *link, int64_t now_ns);

struct kvt_controller_link_stats {
	bool registered; /* the controller has answered, or is of a version that does not answer */
	bool frozen; /* a full sync is under way; with `stock` nothing may be stored meanwhile */
	/* numbers of registrations and heartbeats sent, and of times that the controller did not
	 * answer */
	uint64_t registrations, heartbeats, silences;
	/* numbers of changes noted, and of changes lost, after which a full sync follows */
	uint64_t changes, dropped;
	uint64_t messages; /* number of frames sent with changes and full syncs */
	uint64_t syncs, sync_keys, syncs_failed;
	uint64_t commands, bad_messages;
	uint16_t port; /* the port for commands */
};

void kvt_controller_link_stats(
	const struct kvt_controller_link *link, struct kvt_controller_link_stats *out);

#endif
