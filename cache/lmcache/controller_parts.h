/*
 * controller_parts.h - the shared parts of a link's files. controller_link.c calls
 * controller_sync.c, and both call controller_send.c.
 */
#ifndef KVT_CONTROLLER_PARTS_H
#define KVT_CONTROLLER_PARTS_H

#include "lmcache/controller_link.h"

enum kvt_controller_state {
	KVT_CONTROLLER_ASKING, /* a registration was sent */
	KVT_CONTROLLER_UP,
	/* with `stock`: no answer came, so the link sends nothing any more */
	KVT_CONTROLLER_SILENT,
};

enum kvt_controller_sync_state {
	KVT_CONTROLLER_NO_SYNC,
	KVT_CONTROLLER_SYNC_ASKED,   /* Start was sent */
	KVT_CONTROLLER_SYNC_SENDING, /* batches leave */
	KVT_CONTROLLER_SYNC_SENT,    /* End was sent, and the link asks for Status */
};

struct kvt_controller_sync {
	enum kvt_controller_sync_state state;
	uint32_t location;
	char id[KVT_CONTROLLER_TEXT_MAX + 32];
	uint64_t *keys; /* owned */
	uint32_t count, batches, next_batch;
	uint32_t tries;   /* number of tries to send Start, then of questions for Status */
	int64_t again_ns; /* time of the next try */
};

/* The changes of one location that wait to be sent. */
struct kvt_controller_changes {
	struct kvt_controller_operation *at; /* owned */
	uint32_t count, room;
	uint64_t next_number;
};

struct kvt_controller_link {
	struct kvt_controller_link_config config; /* its texts are the ones below, or not used */
	char pull[KVT_CONTROLLER_TEXT_MAX], reply[KVT_CONTROLLER_TEXT_MAX];
	char heartbeat[KVT_CONTROLLER_TEXT_MAX], instance[KVT_CONTROLLER_TEXT_MAX];
	char ip[KVT_CONTROLLER_TEXT_MAX], bind[KVT_CONTROLLER_TEXT_MAX];
	struct kvt_controller_sender sender;
	void *push, *request, *beat, *command;  /* sockets; NULL: none */
	char beat_url[KVT_CONTROLLER_TEXT_MAX]; /* "": no heartbeats */

	enum kvt_controller_state state;
	int64_t asked_ns;                  /* time of the registration */
	int64_t patience_ns;               /* how long to wait for an answer to a heartbeat */
	/* beat_sent_ns is 0 when the last heartbeat was answered */
	int64_t beat_due_ns, beat_sent_ns;
	uint32_t unanswered;               /* unanswered heartbeats in a row */

	struct kvt_controller_sync sync;
	uint32_t sync_number;
	uint64_t seed;     /* seed for random delays */
	bool resync;       /* the controller lacks changes */
	int64_t resync_ns; /* when the resync begins */

	struct kvt_controller_changes changes[KVT_CONTROLLER_LOCATIONS];
	struct kvt_controller_buf out;
	struct kvt_controller_link_stats stats;
};

static inline bool kvt_controller_is_old(const struct kvt_controller_link *link)
{
	return link->reply[0] == '\0';
}

/* --- controller_send.c --- */
const char *kvt_controller_location(uint32_t location);

/* Sends the message in link->out on a DEALER socket. */
void kvt_controller_ask(struct kvt_controller_link *link, void *socket);
/* Sends link->out as a frame to the pull socket. Returns false if the socket takes no more now; the
 * frame stays in `out` until that is cleared. */
bool kvt_controller_push(struct kvt_controller_link *link, bool more);

/* --- controller_sync.c --- */
void kvt_controller_sync_begin(struct kvt_controller_link *link, int64_t now_ns);
/* ends a sync, whatever its state */
void kvt_controller_sync_end(struct kvt_controller_link *link);
/* These handle the answers to Start and to Status. */
void kvt_controller_sync_started(struct kvt_controller_link *link, bool accepted, int64_t now_ns);
void kvt_controller_sync_status(
	struct kvt_controller_link *link, const struct kvt_controller_message *m, int64_t now_ns);
/* Does the work of a sync that is due. Returns false if the controller no longer answers. */
bool kvt_controller_sync_tick(struct kvt_controller_link *link, int64_t now_ns);

#endif
