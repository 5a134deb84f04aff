/*
 * metrics_copy.h - the text of /metrics for the clients' address, which the control thread writes
 * and event loops send.
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

/* Immutable once loops can get it; freed with its last reference. */
struct kvw_metrics_text {
	_Atomic uint32_t references;
	int64_t made_ns; /* monotonic */
	size_t len;
	char *data;
};

struct kvw_metrics_copy {
	pthread_mutex_t lock;            /* of newest */
	struct kvw_metrics_text *newest; /* a reference; NULL: none was written yet */
	/* ask_fd was written to, and the control thread has not written a new text yet. */
	_Atomic bool asked;
	int ask_fd;                      /* readable while a new text is wanted */
};

/* KVW_EIO: no descriptor; the caller must call kvw_metrics_copy_finish() all the same. */
enum kvw_err kvw_metrics_copy_init(struct kvw_metrics_copy *copy) KVW_MUST_CHECK;
void kvw_metrics_copy_finish(struct kvw_metrics_copy *copy);

/* Returns a reference to a text that is at most a second old. NULL: a new text was requested and
 * will be there soon. */
struct kvw_metrics_text *kvw_metrics_copy_get(struct kvw_metrics_copy *copy, int64_t now_ns);
void kvw_metrics_text_put(struct kvw_metrics_text *text); /* NULL is allowed */

/* Writes a new text; called by the control thread when ask_fd is readable. If memory is out the old
 * text stays. */
void kvw_metrics_copy_renew(
	struct kvw_metrics_copy *copy, struct kvw_metrics *metrics, int64_t now_ns);

#endif
