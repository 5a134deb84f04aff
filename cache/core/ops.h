/*
 * ops.h - operations that take time: begun, done once, reported once.
 *
 * An operation has one owner at a time: while it runs, the thread that does its work, which calls
 * kvt_op_done or gets `expire` when the time is over; afterwards the caller, by kvt_op_wait
 * (synchronous operations; step.h) or through the table (kvt_poll, kvt_get_take).
 */
#ifndef KVT_OPS_H
#define KVT_OPS_H

#include "core/core.h"

/* First member of every operation's struct. */
struct kvt_op {
	struct kvt_op *next, *prev; /* running: by deadline; done: for kvt_poll, only next */
	int64_t deadline_ns;
	uint64_t id; /* 0: synchronous */
	uint64_t user;
	uint32_t kind;   /* enum kvt_op_kind */
	uint32_t status; /* once done */
	uint64_t count;
	struct kvt_hold *hold; /* result of a get that found chunks, until it is taken */
	bool done, polled;
	/* Ends the operation with kvt_op_done, under lock; why: KVT_MISS (its time is over),
	 * KVT_ECANCELED. */
	void (*expire)(struct kvt *k, struct kvt_op *op, enum kvt_status why);
};

/* Parameters of an operation's begin. */
struct kvt_op_want {
	uint64_t *id; /* asynchronous: receives the operation's number; NULL: synchronous */
	uint64_t user;
};

enum kvt_status kvt_ops_init(struct kvt *k) KVT_MUST_CHECK;
void kvt_ops_finish(struct kvt *k); /* frees operations that were never taken; none runs */

/* --- under lock --- */
/* Begins an op (calloc'ed, kind and expire set). KVT_BUSY: the table is full. */
enum kvt_status kvt_op_begin(struct kvt *k, struct kvt_op *op, const struct kvt_op_want *want,
	int64_t deadline_ns) KVT_MUST_CHECK;
void kvt_op_done(struct kvt *k, struct kvt_op *op, enum kvt_status status, uint64_t count);
/* Ends operations whose time is over; returns how many. *next_ns as in kvt_lower_tick. */
size_t kvt_ops_expire(struct kvt *k, int64_t now_ns, int64_t *next_ns);
void kvt_ops_stop(struct kvt *k); /* cancels all running operations */

#endif
