/*
 * keep.h - what is to outlive the process, as records: between those that know something and the
 * room that writes it to a file (src/router/state).
 *
 * A part of kvway (a strategy, a table) gives its knowledge away record by record, while it is in
 * use by other threads; a part of the next process gets the same records, before that serves a
 * request. A record is at most KVW_KEPT_MOST bytes in the byte order of the machine. What comes
 * back may be anything: it was checked for damage, not for sense, so its reader checks each number
 * that it uses.
 *
 * Workers are named by their ids in the process that wrote. The next one has other ids; `workers`
 * translates.
 */
#ifndef KVW_KEEP_H
#define KVW_KEEP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kvway/err.h"

#define KVW_KEPT_MOST 16384 /* bytes of a record */
#define KVW_KEPT_GONE UINT32_MAX

/* Kinds of records. Numbers are part of the format: never used again for another kind. */
enum kvw_keep_kind {
	KVW_KEPT_END = 0,     /* the file's: nothing follows */
	KVW_KEPT_WORKER = 1,  /* the file's: a worker and its id */
	KVW_KEPT_MODEL = 2,   /* bytes per token of a model */
	KVW_KEPT_RATE = 3,    /* what a key, a tenant or a model with limits has used */
	KVW_KEPT_OWNER = 4,   /* the worker that made a response */
	/* Only in what a process hands to the one that takes over, never in the file:
	 * LMCache's registry. */
	KVW_KEPT_INSTANCE = 5, /* an instance, and whose it is */
	KVW_KEPT_RANK = 6,     /* of the instance before */
	KVW_KEPT_LOCATION = 7, /* of one of its ranks, with the sequence number to come */
	KVW_KEPT_KEYS = 8,     /* that the location before holds */
	KVW_KEPT_TREE = 16,   /* the prefix tree: what its nodes have in common */
	KVW_KEPT_NODE = 17,   /* a node with its holders */
	KVW_KEPT_VIEW = 18,   /* the window of a worker's view */
	KVW_KEPT_SHARE = 19,  /* the share of a worker's cache that predictions count on */
	KVW_KEPT_PLACES = 20, /* the table of sessions: what they have in common */
	KVW_KEPT_SESSION = 21,
	KVW_KEPT_KINDS = 32 /* all are below */
};

#define KVW_KEPT_FIRST_OF_STRATEGY KVW_KEPT_TREE
#define KVW_KEPT_LAST_OF_STRATEGY  (KVW_KEPT_KINDS - 1)

/* Where records go. */
struct kvw_keep_out {
	/* An error ends the writing: the part returns it. Borrows the record during the call. */
	enum kvw_err (*put)(void *arg, enum kvw_keep_kind kind, const void *record, size_t len);
	void *arg;
	int64_t now_ns; /* monotonic */
};

/* Where they come from. */
struct kvw_keep_in {
	/* The next record; its bytes may lie at any address, and stay until the next call. False:
	 * there are no more for this part. */
	bool (*next)(void *arg, enum kvw_keep_kind *kind, const uint8_t **record, size_t *len);
	void *arg;
	/* [KVW_MAX_WORKERS] id then -> id now; KVW_KEPT_GONE: it is not the same. */
	const uint32_t *workers;
	const uint32_t *generations; /* [KVW_MAX_WORKERS] id now -> generation of its cache */
	int64_t now_ns;          /* monotonic */
	int64_t passed_ns;       /* since the records were written; >= 0 */
};

#endif
