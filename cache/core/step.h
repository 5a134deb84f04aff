/*
 * step.h - which threads do the work, the library's or, with KVT_THREADS_CALLER, the caller's; and
 * waiting for it.
 */
#ifndef KVT_STEP_H
#define KVT_STEP_H

#include "core/ops.h"

/* Starts and ends the library's threads; nothing to do with KVT_THREADS_CALLER. */
enum kvt_status kvt_threads_start(struct kvt *k) KVT_MUST_CHECK;
/* Returns when nothing is under way in any tier. `closing` is set. */
void kvt_threads_stop(struct kvt *k);

/* KVT_THREADS_CALLER: everything that is due, letting tiers wait up to wait_ns. Without lock. */
size_t kvt_step_all(struct kvt *k, int64_t wait_ns, int64_t *next_ns);

/* Until something that operations or questions wait for has ended, the deadline, or a second. Under lock. */
void kvt_wait_changed(struct kvt *k, int64_t deadline_ns);

/* Waits until a synchronous op is done, doing the work if no thread of the library does; it is then
 * the caller's, to free with free(). Without lock. */
void kvt_op_wait(struct kvt *k, struct kvt_op *op);

#endif
