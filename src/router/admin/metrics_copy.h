/*
 * metrics_copy.h - /metrics for the clients' address: a text that the control thread writes and
 * event loops hand out.
 *
 * Writing it takes milliseconds where there are many workers, too long for a loop that has streams
 * to serve. A loop therefore only asks; the control thread writes a new text if the newest one is
 * older than a second, and nothing while no client asks. The loop looks again in its next tick.
 *
 * Threads: the control thread renews, any other gets and puts. The lock is held for a few
 * instructions.
 */
#ifndef KVW_METRICS_COPY_H
#define KVW_METRICS_COPY_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kvway/err.h"

struct kvw_metrics;

/* Immutable once it can be got; freed with its last reference. */
struct kvw_metrics_text {
	_Atomic uint32_t references;
	int64_t made_ns; /* monotonic */
	size_t len;
	char *data;
};

struct kvw_metrics_copy {
	pthread_mutex_t lock;            /* of newest */
	struct kvw_metrics_text *newest; /* a reference; NULL: none was written yet */
	/* ask_fd was written to and the control thread has not answered. */
	_Atomic bool asked;
	int ask_fd;                      /* readable: a new text is wanted */
};

/* KVW_EIO: no descriptor; kvw_metrics_copy_finish() is due all the same. */
enum kvw_err kvw_metrics_copy_init(struct kvw_metrics_copy *copy) KVW_MUST_CHECK;
void kvw_metrics_copy_finish(struct kvw_metrics_copy *copy);

/* A reference to a text that is a second old at most.
 * NULL: one was asked for and will be there soon. */
struct kvw_metrics_text *kvw_metrics_copy_get(struct kvw_metrics_copy *copy, int64_t now_ns);
void kvw_metrics_text_put(struct kvw_metrics_text *text); /* NULL is allowed */

/* On the control thread, when ask_fd is readable. Without memory the old text stays. */
void kvw_metrics_copy_renew(
	struct kvw_metrics_copy *copy, struct kvw_metrics *metrics, int64_t now_ns);

#endif
