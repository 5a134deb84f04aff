/*
 * samples.h - what `/metrics` says of one group: its requests, promises, tokens and times; and of
 * two: whether copies of the one's requests had the same answers from the other.
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

/* A histogram: cumulative counts by upper bound, in seconds or characters;
 * the last bound may be infinite. */
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
	double drafted, accepted; /* tokens of speculative decoding */
	struct kvw_samples_times first_token, gap, per_token;
};

/* Answers to copies, compared with those of the clients. */
struct kvw_fidelity_samples {
	double equal, different, unfinished, unread;
	double characters[2]; /* of the first group's answers, and of the second's */
	struct kvw_samples_times difference;
};

/* Of this model and group, from a text as Prometheus reads it.
 * What is not understood is passed over. */
void kvw_samples_read(
	struct kvw_slice text, const char *model, const char *group, struct kvw_group_samples *out);

/* Of copies of either one's requests for the other. */
void kvw_samples_fidelity(struct kvw_slice text, const char *model, const char *const groups[2],
	struct kvw_fidelity_samples *out);

/* What came between the two, of one process; false: the process was restarted between them. */
bool kvw_samples_subtract(struct kvw_group_samples *later, const struct kvw_group_samples *earlier);
bool kvw_samples_subtract_fidelity(
	struct kvw_fidelity_samples *later, const struct kvw_fidelity_samples *earlier);

/* A model that has both groups. *count: how many models have. False: none has. */
bool kvw_samples_model(struct kvw_slice text, const char *one, const char *other,
	char model[KVW_SAMPLES_NAME], size_t *count);

#endif
