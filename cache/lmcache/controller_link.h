/*
 * controller_link.h - one LMCache worker's sockets to its controller, and whose turn it is.
 *
 *	PUSH    events                                   -> controller's pull address
 *	DEALER  register, full sync, one at a time      <-> controller's reply address (0.3.12 and later)
 *	DEALER  heartbeats                              <-> where the answer to register says
 *	REP     commands from the controller
 *
 * A controller before 0.3.12 has no reply address: registrations and heartbeats go to it on PUSH, and
 * are not answered.
 *
 * Two kinds of worker. One with `stock` has the habits of LMCache 0.5.6, to simulate it: a
 * registration is sent once, and unanswered for `answer_ns` it ends all that this worker ever says;
 * the controller alone asks for full syncs; during one, nothing may be stored. The other one does
 * not give up: it registers again until it is answered, notices by unanswered heartbeats that its
 * controller is gone, begins a full sync by itself whenever it could not report a change, and holds
 * changes back during one.
 *
 * Nothing in here waits but destroy, for a last message, and kvt_controller_link_wait. Not
 * thread-safe. Times are the caller's, nanoseconds that count up.
 */
#ifndef KVT_CONTROLLER_LINK_H
#define KVT_CONTROLLER_LINK_H

#include "lmcache/controller_wire.h"

#define KVT_CONTROLLER_LOCATIONS 2

struct kvt_controller_link;

/* What a link asks of its owner. None of it may call the link. */
struct kvt_controller_link_user {
	void *self;
	/* Carries a command out and writes the answer. */
	void (*command)(void *self, const struct kvt_controller_message *command,
		struct kvt_controller_buf *answer);
	/* All keys of a location, on the heap; the link frees them. False: out of memory. */
	bool (*keys)(void *self, uint32_t location, uint64_t **keys, uint32_t *count);
	/* A socket was opened, or will be closed: for loops that watch them. May be NULL. */
	void (*opened)(void *self, void *socket);
	void (*closing)(void *self, void *socket);
};

struct kvt_controller_link_config {
	void *zmq;             /* context; borrowed */
	const char *pull;      /* "HOST:PORT" or with "tcp://" before it, as the two that follow */
	const char *reply;     /* "": a controller before 0.3.12 */
	const char *heartbeat; /* "": what the answer to register says */
	const char *instance;
	const char *ip;   /* that is reported to the controller */
	const char *bind; /* where commands are awaited; "": at ip */
	uint16_t port;    /* of the command socket; 0: a free one */
	uint32_t worker;  /* rank */
	bool signed_keys;
	bool stock;
	uint32_t locations;         /* that are reported: KVT_CONTROLLER_CPU, then _DISK */
	int64_t heartbeat_ns;       /* 0: none */
	int64_t heartbeat_delay_ns; /* after registration */
	int64_t answer_ns;          /* an answer that is later is none */
	int64_t sync_delay_ns;      /* a sync of one's own begins at random within this */
	uint32_t sync_batch, queue; /* keys of a message; changes held back */
	struct kvt_controller_link_user user;
};

/* Texts are copied. `why` has room for KVT_CONTROLLER_TEXT_MAX; NULL is returned with a reason. */
struct kvt_controller_link *kvt_controller_link_create(
	const struct kvt_controller_link_config *config, int64_t now_ns, char *why);
void kvt_controller_link_destroy(
	struct kvt_controller_link *link); /* says good-bye; NULL is allowed */

/* A change of what is held; it leaves with the next flush. */
void kvt_controller_link_change(
	struct kvt_controller_link *link, uint32_t location, bool admit, uint64_t key);
void kvt_controller_link_flush(struct kvt_controller_link *link);

/* Changes went missing: the controller needs a full sync (not with `stock`). */
void kvt_controller_link_resync(struct kvt_controller_link *link, int64_t now_ns);

/* Reads what came and does what is due. Returns what it did; *next_ns becomes less if it wants to be
 * called again before it. */
size_t kvt_controller_link_step(struct kvt_controller_link *link, int64_t now_ns, int64_t *next_ns);

/* Returns when `fd` or a socket can be read, or after timeout_ms. */
void kvt_controller_link_wait(struct kvt_controller_link *link, int fd, long timeout_ms);

/* As a new process would, on the same sockets: registers, counts from 0. */
void kvt_controller_link_restart(struct kvt_controller_link *link, int64_t now_ns);

struct kvt_controller_link_stats {
	bool registered; /* the controller has answered, or is one that does not */
	bool frozen;     /* a full sync is under way: with `stock` nothing may be stored */
	uint64_t registrations, heartbeats, silences; /* sent, sent, times it did not answer */
	uint64_t changes, dropped;                    /* given, not sent: a full sync follows */
	uint64_t messages;                            /* frames of changes and of full syncs */
	uint64_t syncs, sync_keys, syncs_failed;
	uint64_t commands, bad_messages;
	uint16_t port; /* of the command socket */
};

void kvt_controller_link_stats(
	const struct kvt_controller_link *link, struct kvt_controller_link_stats *out);

#endif
