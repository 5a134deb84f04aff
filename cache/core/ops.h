/*
 * ops.h - operations that take time: begun, done once, reported once.
 *
 * An operation has one owner at a time: while it runs, the thread that does its work, which calls
 * kvt_op_done or whose `expire` is called at the deadline; afterwards the caller, which receives it
 * by kvt_op_wait (synchronous operations; step.h) or through the table (kvt_poll, kvt_get_take).
 */
#ifndef KVT_OPS_H
#define KVT_OPS_H

#include "core/core.h"

/* First member of every operation's struct. */
struct kvt_op {
	/* links in the list of running operations, which is ordered by deadline, or (only `next`)
	 * in the list of completed ones for kvt_poll */
	struct kvt_op *next, *prev;
	int64_t deadline_ns;
	uint64_t id; /* 0: synchronous */
	uint64_t user;
	uint32_t kind;   /* enum kvt_op_kind */
	uint32_t status; /* once done */
	uint64_t count;
	struct kvt_hold *hold; /* the lease that a get found, until the caller takes it */
	bool done, polled;
	/* Ends the operation by calling kvt_op_done, with `lock` held; why: KVT_MISS (its deadline
	 * has passed) or KVT_ECANCELED. */
	void (*expire)(struct kvt *k, struct kvt_op *op, enum kvt_status why);
};

/* Parameters of kvt_op_begin. */
struct kvt_op_want {
	uint64_t *id; /* asynchronous: set to the operation's number; NULL: synchronous */
	uint64_t user;
};

enum kvt_status kvt_ops_init(struct kvt *k) KVT_MUST_CHECK;
/* frees operations that callers never took; none may be running */
void kvt_ops_finish(struct kvt *k);

/* --- under lock --- */
/* Begins an operation (calloc'ed, with kind and expire set). KVT_BUSY: the table is full. */
enum kvt_status kvt_op_begin(struct kvt *k, struct kvt_op *op, const struct kvt_op_want *want,
	int64_t deadline_ns) KVT_MUST_CHECK;
void kvt_op_done(struct kvt *k, struct kvt_op *op, enum kvt_status status, uint64_t count);
/* Ends operations whose deadline has passed; returns how many. *next_ns as in kvt_lower_tick. */
size_t kvt_ops_expire(struct kvt *k, int64_t now_ns, int64_t *next_ns);
void kvt_ops_stop(struct kvt *k); /* cancels all running operations */

#endif
