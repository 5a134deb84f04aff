/*
 * keep.h - records of state that outlives the process: the interface between the parts of kvway
 * that have such state and the writer of the state file (src/router/state).
 *
 * A part of kvway (a strategy, a table) writes its state record by record, while other threads use
 * that state; the next process reads the same records before it serves a request. A record is at
 * most KVW_KEPT_MOST bytes in the byte order of the machine. Records read back were checked for
 * damage, not for plausible values, so the reader checks each number that it uses.
 *
 * Records name workers by their ids in the writing process. The next process has other ids;
 * `workers` translates.
 */
#ifndef KVW_KEEP_H
#define KVW_KEEP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kvway/err.h"

#define KVW_KEPT_MOST 16384 /* bytes of a record */
#define KVW_KEPT_GONE UINT32_MAX

/* Kinds of records. The numbers are part of the format: none is ever reused for another kind. */
enum kvw_keep_kind {
	KVW_KEPT_END = 0,     /* written by the file's writer: no record follows */
	KVW_KEPT_WORKER = 1,  /* written by the file's writer: a worker and its id */
	KVW_KEPT_MODEL = 2,   /* bytes per token of a model */
	KVW_KEPT_RATE = 3,    /* use of a limit by a key, tenant or model */
	KVW_KEPT_OWNER = 4,   /* the worker that made a response */
	/* The records of LMCache's registry are only among those that a process hands to its
	 * successor at a takeover, never in the file. */
	KVW_KEPT_INSTANCE = 5, /* an instance and its worker */
	KVW_KEPT_RANK = 6,     /* a rank of the preceding instance */
	KVW_KEPT_LOCATION = 7, /* a location of the preceding rank, with its next sequence number */
	KVW_KEPT_KEYS = 8,     /* keys that the preceding location holds */
	/* The coordinator's directory of LMCache's servers. */
	KVW_KEPT_QUOTA = 9,      /* of a cache salt, or the default */
	KVW_KEPT_PIN = 10,       /* of a chunk */
	KVW_KEPT_SERVER = 11,    /* a server and the cursor of its reports */
	KVW_KEPT_CAPACITY = 12,  /* that the preceding server has declared */
	KVW_KEPT_TOKENS = 13,    /* of a chunk hash */
	KVW_KEPT_PLACEMENT = 14, /* a chunk that a server has, perhaps with the preceding tokens */
	KVW_KEPT_USAGE = 15,  /* what a key, tenant and model used in an hour */
	KVW_KEPT_TREE = 16,   /* the prefix tree: what concerns all nodes */
	KVW_KEPT_NODE = 17,   /* a node with its holders */
	KVW_KEPT_VIEW = 18,   /* the window of a worker's view */
	KVW_KEPT_SHARE = 19,  /* share of a worker's cache that predictions assume */
	KVW_KEPT_PLACES = 20, /* the table of sessions: what concerns all sessions */
	KVW_KEPT_SESSION = 21,
	KVW_KEPT_KINDS = 32 /* every kind is below this number */
};

#define KVW_KEPT_FIRST_OF_STRATEGY KVW_KEPT_TREE
#define KVW_KEPT_LAST_OF_STRATEGY  (KVW_KEPT_KINDS - 1)

/* Where records are written. */
struct kvw_keep_out {
	/* Writes a record, which is borrowed during the call. After an error the part writes no
	 * more, and returns that error. */
	enum kvw_err (*put)(void *arg, enum kvw_keep_kind kind, const void *record, size_t len);
	void *arg;
	int64_t now_ns; /* monotonic */
	bool heir;      /* the records go to a process that takes over */
};

/* Where records are read. */
struct kvw_keep_in {
	/* Reads the next record; its bytes may lie at any address, and stay valid until the next
	 * call. False: there are no more records for this part. */
	bool (*next)(void *arg, enum kvw_keep_kind *kind, const uint8_t **record, size_t *len);
	void *arg;
	/* [KVW_MAX_WORKERS] old id -> present id; KVW_KEPT_GONE: the worker has left, or its cache
	 * is lost. */
	const uint32_t *workers;
	const uint32_t *generations; /* [KVW_MAX_WORKERS] present id -> generation of its cache */
	int64_t now_ns;          /* monotonic */
	int64_t passed_ns;       /* time since the records were written; >= 0 */
};

#endif
