/*
 * samples.h - numbers of one group in `/metrics`: its requests, promises, tokens and times; and of
 * two groups: whether copies of one group's requests had the same answers from the other.
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
	bool found; /* the group has a sample */
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

/* Reads the samples of this model and group from a text for Prometheus. Unknown lines are
 * skipped. */
void kvw_samples_read(
	struct kvw_slice text, const char *model, const char *group, struct kvw_group_samples *out);

/* Reads the samples of copies of either group's requests for the other. */
void kvw_samples_fidelity(struct kvw_slice text, const char *model, const char *const groups[2],
	struct kvw_fidelity_samples *out);

/* Subtracts the earlier numbers of one process; false: the process was restarted between the
 * two. */
bool kvw_samples_subtract(struct kvw_group_samples *later, const struct kvw_group_samples *earlier);
bool kvw_samples_subtract_fidelity(
	struct kvw_fidelity_samples *later, const struct kvw_fidelity_samples *earlier);

/* A model that has both groups. *count: number of such models. False: none. */
bool kvw_samples_model(struct kvw_slice text, const char *one, const char *other,
	char model[KVW_SAMPLES_NAME], size_t *count);

#endif
