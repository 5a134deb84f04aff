/*
 * redis.h - a small asynchronous client of Redis and Valkey that moves values between sockets and
 * their caller's memory without a copy in between.
 *
 * Commands are RESP bytes that the caller lays out as pieces (a value's bytes stay where they are);
 * replies of bulk strings go straight into segments that the caller names. Commands to one server
 * are pipelined over a few connections; those of one command's key go to the server that owns its
 * slot (Cluster), to the present master (Sentinel), or to the one server there is. What a topology
 * change breaks (MOVED, ASK, TRYAGAIN, READONLY, a lost master) is tried again until the command's
 * deadline; only commands that may be sent twice exist here (SET, GET, DEL, ...).
 *
 * Bounded: bytes and commands in flight; what is beyond waits in line until its deadline. A command
 * whose deadline passes while its reply is outstanding takes its connection with it, since the
 * bytes of a late reply would be written to memory that the caller may have freed by then; the
 * other commands of that connection are sent again on another one.
 *
 * Threads: everything from one thread (the one that calls kvw_redis_step), but kvw_redis_wake.
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
#define KVW_REDIS_REASON    160 /* room for why something failed */
#define KVW_REDIS_MAX_PARTS 64  /* pieces of one request, and segments of one reply */

struct kvw_redis;

/* Borrowed during create. Empty texts are NULL or "". */
struct kvw_redis_options {
	const struct kvw_redis_url *url;
	const char *username, *password; /* before the URL's */
	const char *service;             /* Sentinel */
	const char *tls_ca, *tls_certificate, *tls_key;
	uint32_t connections;    /* to each server */
	uint64_t inflight_bytes; /* of requests and expected replies, all connections */
	uint64_t connect_ns;
	struct kvw_redis_env env; /* copied */
};

enum kvw_redis_reply {
	KVW_REDIS_NONE,    /* no reply; status says why */
	KVW_REDIS_STATUS,  /* +OK: in text */
	KVW_REDIS_ERROR,   /* -ERR ...: in text, cut */
	KVW_REDIS_INTEGER, /* in integer */
	KVW_REDIS_BULK,    /* bulk_bytes long: the first lead_bytes in lead, the rest in segments */
	KVW_REDIS_NIL,
	/* Flattened into elements (integers as text), if `elements` was asked for. */
	KVW_REDIS_ARRAY,
};

/* Elements of an array reply, in order, nested ones too; for control commands (SCAN, MGET of small
 * values). The client allocates, within element_limit; the caller frees with
 * kvw_redis_elements_free. */
struct kvw_redis_element {
	char *data; /* NULL: nil; NUL behind its end */
	size_t len;
	uint32_t depth; /* 1: of the outermost array */
	uint32_t index; /* its place in its own array, arrays counted too; 0: the first */
};

struct kvw_redis_server;

/* How far a command is; the client's, set up by submit. */
struct kvw_redis_progress {
	struct kvw_redis_server
		*to;           /* sent there next, whatever its slot; NULL: as the topology says */
	int64_t not_before_ns; /* not sent again earlier */
	uint64_t bytes;        /* counted against inflight_bytes: request and expected reply */
	uint64_t sent;         /* bytes of the request that have left on the present connection */
	uint32_t tries;        /* how often it was handed to a connection */
	uint32_t redirects;    /* MOVED, ASK, TRYAGAIN, ... so far */
	bool asking;           /* ASKING goes before it */
	bool exact;            /* for `to` and no other server; errors are its sender's to read */
	bool counted;          /* its bytes count as in flight at present */
};

/* One command. Filled by the caller, its results by the client; it and all that it names belong to
 * the client from submit to done. */
struct kvw_redis_command {
	const struct iovec *parts; /* the whole request, RESP: *3\r\n$3\r\nSET... */
	uint32_t part_count;
	uint32_t slot; /* kvw_redis_slot() of its key; KVW_REDIS_ANY_SLOT: any master */
	/* Where a bulk string goes. One that is longer than lead_room and segments together is read
	 * and thrown away (status KVW_ELIMIT); bytes beyond its own length are left as they are. */
	void *lead;
	uint32_t lead_room;
	const struct iovec *into;
	uint32_t into_count;
	bool elements; /* an array is expected, at most element_limit bytes in all */
	uint32_t element_limit;
	int64_t deadline_ns; /* by env's clock */

	/* KVW_OK: there is a reply (of any kind, also an error of the server's). KVW_ETIMEDOUT: the
	 * deadline passed first. KVW_EIO: no server to be had; text says why. KVW_ELIMIT: see
	 * above.
	 * KVW_ECLOSED: the client ends. KVW_EPROTO: what came is not RESP. */
	enum kvw_err status;
	enum kvw_redis_reply reply;
	int64_t integer;
	uint64_t bulk_bytes;
	uint32_t lead_bytes;
	struct kvw_redis_element *found; /* element_count; owned by the caller after done */
	size_t element_count;
	char text[KVW_REDIS_TEXT];

	void (*done)(struct kvw_redis_command *command); /* from inside step or destroy */
	void *user;
	struct kvw_redis_command *next; /* the client's */
	struct kvw_redis_command *prev;
	struct kvw_redis_progress progress;
};

/* Connects lazily: a server that is down is no failure here. KVW_EINVAL: certificate files that
 * cannot be used, in `why` (KVW_REDIS_REASON). KVW_ENOMEM. */
enum kvw_err kvw_redis_create(
	const struct kvw_redis_options *options, char *why, struct kvw_redis **out) KVW_MUST_CHECK;
void kvw_redis_destroy(struct kvw_redis *r); /* ends all commands with KVW_ECLOSED; NULL allowed */

void kvw_redis_submit(struct kvw_redis *r, struct kvw_redis_command *command);

/* Sends, receives and calls done, waiting up to wait_ns for something to happen. Returns what was
 * done. *next_ns: lowered to when it wants to be called again. */
size_t kvw_redis_step(struct kvw_redis *r, int64_t wait_ns, int64_t *next_ns);
void kvw_redis_wake(struct kvw_redis *r); /* any thread: ends a wait */

/* The slot of a key: CRC16 of what stands in its first non-empty {}, else of all of it. */
uint32_t kvw_redis_slot(const void *key, size_t len);

void kvw_redis_elements_free(struct kvw_redis_element *elements, size_t count);

struct kvw_redis_stats {
	uint64_t commands, replies, errors, timeouts, retries, redirects, reconnects;
	uint64_t sent_bytes, received_bytes;
	uint64_t waiting, in_flight, in_flight_bytes; /* now */
	uint32_t servers, connections;                /* now */
	char mode[32]; /* "redis 7.0.15 standalone", "valkey 8.0 cluster of 3", ... */
	char reason[KVW_REDIS_REASON]; /* of the last failure, "" after a success */
};
void kvw_redis_stats(struct kvw_redis *r, struct kvw_redis_stats *out); /* any thread */

#endif
