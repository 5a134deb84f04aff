/*
 * samples.h - what `/metrics` says of one group: its requests, promises, tokens and times.
 *
 * Counts are doubles, as the text has them; all below 2^53. Pure functions.
 */
#ifndef KVW_GROUPS_SAMPLES_H
#define KVW_GROUPS_SAMPLES_H

#include <stdbool.h>
#include <stddef.h>

#include "kvway/slice.h"

#define KVW_SAMPLES_BUCKETS 64
#define KVW_SAMPLES_NAME    320

/* A histogram: cumulative counts by upper bound, in seconds; the last bound may be infinite. */
struct kvw_samples_times {
	double bounds[KVW_SAMPLES_BUCKETS], counts[KVW_SAMPLES_BUCKETS];
	size_t buckets;
	double sum, count;
};

struct kvw_group_samples {
	bool found; /* there is any sample of it */
	double ok, error, refused, left;
	double kept, broken; /* promises: broken are late, slow, failed, refused */
	double prompt, cached, completion; /* tokens */
	struct kvw_samples_times first_token, gap;
};

/* Of this model and group, from a text as Prometheus reads it. What is not understood is passed over. */
void kvw_samples_read(struct kvw_slice text, const char *model, const char *group, struct kvw_group_samples *out);

/* What came between the two, of one process; false: the process was restarted between them. */
bool kvw_samples_subtract(struct kvw_group_samples *later, const struct kvw_group_samples *earlier);

/* A model that has both groups. *count: how many models have. False: none has. */
bool kvw_samples_model(struct kvw_slice text, const char *one, const char *other, char model[KVW_SAMPLES_NAME],
	size_t *count);

#endif
