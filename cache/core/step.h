/*
 * step.h - the threads that do the work (the library's or, with KVT_THREADS_CALLER, the caller's),
 * and waits for it.
 */
#ifndef KVT_STEP_H
#define KVT_STEP_H

#include "core/ops.h"

/* Starts and ends the library's threads; no effect with KVT_THREADS_CALLER. */
enum kvt_status kvt_threads_start(struct kvt *k) KVT_MUST_CHECK;
/* Returns when no request is under way in any tier. `closing` must be set. */
void kvt_threads_stop(struct kvt *k);

/* KVT_THREADS_CALLER: does all work that is due, letting tiers wait up to wait_ns. The caller does
 * not hold `lock`. */
size_t kvt_step_all(struct kvt *k, int64_t wait_ns, int64_t *next_ns);

/* Waits for the next change of an operation or question, until the deadline, for at most a second.
 * The caller holds `lock`. */
void kvt_wait_changed(struct kvt *k, int64_t deadline_ns);

/* Waits until a synchronous operation is done, doing the work itself if the library has no threads;
 * the caller then owns the operation and frees it with free(). The caller does not hold `lock`. */
void kvt_op_wait(struct kvt *k, struct kvt_op *op);

#endif
