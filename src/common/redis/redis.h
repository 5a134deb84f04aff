/*
 * redis.h - a small asynchronous client of Redis and Valkey that moves values between sockets and
 * their caller's memory without a copy in between.
 *
 * Commands are RESP bytes that the caller lays out as pieces (a value's bytes stay where they are);
 * replies of bulk strings go straight into segments that the caller names. Commands to one server
 * are pipelined over a few connections; a command goes to the server that owns its key's slot
 * (Cluster), to the present master (Sentinel), or to the only server. Commands that fail by a
 * topology change (MOVED, ASK, TRYAGAIN, READONLY, a lost master) are tried again until their
 * deadline, so callers submit only commands that may be sent twice (SET, GET, DEL, ...).
 *
 * Bounded: bytes and commands in flight; further commands wait in line until their deadline. A
 * command whose deadline passes while its reply is outstanding ends its connection, since the bytes
 * of a late reply would be written to memory that the caller may have freed by then; the other
 * commands of that connection are sent again on another one.
 *
 * Threads: all functions from one thread (that of kvw_redis_step), except kvw_redis_wake and
 * kvw_redis_stats.
 */
#ifndef KVW_REDIS_H
#define KVW_REDIS_H

#include <stdbool.h>
#include <sys/uio.h>

#include "kvway/err.h"
#include "redis/env.h"
#include "redis/url.h"

#define KVW_REDIS_SLOTS     16384
#define KVW_REDIS_ANY_SLOT  UINT32_MAX
#define KVW_REDIS_TEXT      192
#define KVW_REDIS_REASON    160 /* bytes of a failure's reason */
#define KVW_REDIS_MAX_PARTS 64  /* most pieces of one request, and most segments of one reply */

struct kvw_redis;

/* Borrowed during create. Empty texts are NULL or "". */
struct kvw_redis_options {
	const struct kvw_redis_url *url;
	const char *username, *password; /* override the URL's */
	const char *service;             /* Sentinel */
	const char *tls_ca, *tls_certificate, *tls_key;
	uint32_t connections;    /* to each server */
	/* most bytes of requests and expected replies under way, over all connections */
	uint64_t inflight_bytes;
	uint64_t connect_ns;
	struct kvw_redis_env env; /* copied */
};

enum kvw_redis_reply {
	KVW_REDIS_NONE,    /* there is no reply; status has the cause */
	KVW_REDIS_STATUS,  /* +OK: stored in text */
	KVW_REDIS_ERROR,   /* an error, -ERR ...: its text, cut, is in `text` */
	KVW_REDIS_INTEGER, /* in integer */
	/* a string of bulk_bytes: the first lead_bytes are in `lead`, the rest in the segments */
	KVW_REDIS_BULK,
	KVW_REDIS_NIL,
	/* An array: its elements, with integers as text, are in `found`, if `elements` is set. */
	KVW_REDIS_ARRAY,
};

/* One element of an array in a reply. The elements are in order, those of nested arrays included.
 * For control commands (SCAN, MGET of small values). The client allocates them, within
 * element_limit; the caller frees them with kvw_redis_elements_free. */
struct kvw_redis_element {
	char *data; /* the bytes, with a NUL after them; NULL: nil */
	size_t len;
	uint32_t depth; /* 1: of the outermost array */
	/* its index in its own array, where nested arrays count, too; 0: the first */
	uint32_t index;
};

struct kvw_redis_server;

/* Progress of a command. Belongs to the client; submit initializes it. */
struct kvw_redis_progress {
	struct kvw_redis_server
		*to;           /* server to which it is sent next; NULL: the topology decides */
	int64_t not_before_ns; /* time before which it is not sent again */
	/* bytes that it counts against inflight_bytes: request and expected reply */
	uint64_t bytes;
	uint64_t sent;         /* bytes of the request that were sent on the present connection */
	uint32_t tries;        /* number of connections that it was given to */
	uint32_t redirects;    /* number of MOVED, ASK, TRYAGAIN, ... so far */
	bool asking;           /* send ASKING before it */
	bool exact; /* it may only go to the server in `to`, and its owner handles errors */
	bool counted;          /* its bytes are counted as in flight now */
};

/* A command. The caller fills it, the client sets its results. The command and all memory to which
 * it points belong to the client from submit to done. */
struct kvw_redis_command {
	const struct iovec *parts; /* the whole request in RESP: *3\r\n$3\r\nSET... */
	uint32_t part_count;
	/* kvw_redis_slot() of the command's key; KVW_REDIS_ANY_SLOT: any master may get it */
	uint32_t slot;
	/* Memory for a string in the reply. A string longer than lead_room and the segments
	 * together is read and discarded (status KVW_ELIMIT); bytes of the memory beyond the
	 * string's end are not changed. */
	void *lead;
	uint32_t lead_room;
	const struct iovec *into;
	uint32_t into_count;
	/* the reply is expected to be an array of at most element_limit bytes in all */
	bool elements;
	uint32_t element_limit;
	int64_t deadline_ns; /* on env's clock */

	/* KVW_OK: there is a reply of any kind, which may be an error of the server. KVW_ETIMEDOUT:
	 * the deadline passed before the reply came. KVW_EIO: no server could be reached; `text`
	 * has the reason. KVW_ELIMIT: the reply was too long, see above. KVW_ECLOSED: the client is
	 * being destroyed. KVW_EPROTO: the received bytes are not RESP. */
	enum kvw_err status;
	enum kvw_redis_reply reply;
	int64_t integer;
	uint64_t bulk_bytes;
	uint32_t lead_bytes;
	/* array of element_count elements; the caller owns it after done */
	struct kvw_redis_element *found;
	size_t element_count;
	char text[KVW_REDIS_TEXT];

	void (*done)(struct kvw_redis_command *command); /* called from inside step or destroy */
	void *user;
	struct kvw_redis_command *next; /* the client's */
	struct kvw_redis_command *prev;
	struct kvw_redis_progress progress;
};

/* Creates a client. Connections are made when the first command needs them, so a server that is
 * down is no failure here. KVW_EINVAL: certificate files cannot be used; `why` (KVW_REDIS_REASON)
 * has the cause. KVW_ENOMEM. */
enum kvw_err kvw_redis_create(
	const struct kvw_redis_options *options, char *why, struct kvw_redis **out) KVW_MUST_CHECK;
/* ends all commands with KVW_ECLOSED; NULL is allowed */
void kvw_redis_destroy(struct kvw_redis *r);

void kvw_redis_submit(struct kvw_redis *r, struct kvw_redis_command *command);

/* Sends, receives and calls done, and waits up to wait_ns for events. Returns the number of
 * actions. If the next call must come before *next_ns, *next_ns is lowered to that time. */
size_t kvw_redis_step(struct kvw_redis *r, int64_t wait_ns, int64_t *next_ns);
void kvw_redis_wake(struct kvw_redis *r); /* any thread: ends a wait */

/* Returns the slot of a key: CRC16 of the text in its first {}, if that is not empty, else of the
 * whole key. */
uint32_t kvw_redis_slot(const void *key, size_t len);

void kvw_redis_elements_free(struct kvw_redis_element *elements, size_t count);

struct kvw_redis_stats {
	uint64_t commands, replies, errors, timeouts, retries, redirects, reconnects;
	uint64_t sent_bytes, received_bytes;
	uint64_t waiting, in_flight, in_flight_bytes; /* now */
	uint32_t servers, connections;                /* now */
	char mode[32]; /* for example "redis 7.0.15 standalone" or "valkey 8.0 cluster of 3" */
	char reason[KVW_REDIS_REASON]; /* reason of the last failure; "" after a success */
};
void kvw_redis_stats(struct kvw_redis *r, struct kvw_redis_stats *out); /* any thread */

#endif
