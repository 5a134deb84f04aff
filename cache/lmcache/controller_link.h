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

/* Functions of the owner that a link calls. None of them may call the link. */
struct kvt_controller_link_user {
	void *self;
	/* Executes a command and writes the answer. */
	void (*command)(void *self, const struct kvt_controller_message *command,
		struct kvt_controller_buf *answer);
	/* All keys of a location, on the heap; the link frees them. False: out of memory. */
	bool (*keys)(void *self, uint32_t location, uint64_t **keys, uint32_t *count);
	/* A socket was opened, or will be closed: for loops that watch sockets. May be NULL. */
	void (*opened)(void *self, void *socket);
	void (*closing)(void *self, void *socket);
};

struct kvt_controller_link_config {
	void *zmq;             /* context; borrowed */
	const char *pull;      /* "HOST:PORT" or with "tcp://" before it, like the next two */
	const char *reply;     /* "": a controller before 0.3.12 */
	const char *heartbeat; /* "": the address in the answer to register */
	const char *instance;
	const char *ip;   /* the address reported to the controller */
	const char *bind; /* address that awaits commands; "": ip */
	uint16_t port;    /* port of the command socket; 0: a free one */
	uint32_t worker;  /* rank */
	bool signed_keys;
	bool stock;
	uint32_t locations;         /* number of reported locations: KVT_CONTROLLER_CPU, then _DISK */
	int64_t heartbeat_ns;       /* 0: none */
	int64_t heartbeat_delay_ns; /* after registration */
	int64_t answer_ns;          /* a later answer counts as none */
	int64_t sync_delay_ns;      /* a sync begun by the worker starts at random within this time */
	uint32_t sync_batch, queue; /* keys of a message; most changes held back */
	struct kvt_controller_link_user user;
};

/* Makes a link; copies the texts. `why` has room for KVT_CONTROLLER_TEXT_MAX, and the reason if NULL is returned. */
struct kvt_controller_link *kvt_controller_link_create(
	const struct kvt_controller_link_config *config, int64_t now_ns, char *why);
void kvt_controller_link_destroy(
	struct kvt_controller_link *link); /* sends the good-bye; NULL is allowed */

/* Notes a change of a location's chunks; the next flush sends it. */
void kvt_controller_link_change(
	struct kvt_controller_link *link, uint32_t location, bool admit, uint64_t key);
void kvt_controller_link_flush(struct kvt_controller_link *link);

/* Notes that changes were lost: the controller needs a full sync (not with `stock`). */
void kvt_controller_link_resync(struct kvt_controller_link *link, int64_t now_ns);

/* Reads the sockets and does the work that is due. Returns the number of actions; lowers *next_ns to the time of the
 * next call, if earlier. */
size_t kvt_controller_link_step(struct kvt_controller_link *link, int64_t now_ns, int64_t *next_ns);

/* Returns when `fd` or a socket can be read, or after timeout_ms. */
void kvt_controller_link_wait(struct kvt_controller_link *link, int fd, long timeout_ms);

/* Restarts like a new process, on the same sockets: registers, counts from 0. */
void kvt_controller_link_restart(struct kvt_controller_link *link, int64_t now_ns);

struct kvt_controller_link_stats {
	bool registered; /* the controller has answered, or is of a version that does not answer */
	bool frozen;     /* a full sync is under way: with `stock` nothing may be stored */
	uint64_t registrations, heartbeats, silences; /* sent, sent, times the controller did not answer */
	uint64_t changes, dropped;                    /* noted, lost: a full sync follows */
	uint64_t messages;                            /* frames of changes and of full syncs */
	uint64_t syncs, sync_keys, syncs_failed;
	uint64_t commands, bad_messages;
	uint16_t port; /* port of the command socket */
};

void kvt_controller_link_stats(
	const struct kvt_controller_link *link, struct kvt_controller_link_stats *out);

#endif
