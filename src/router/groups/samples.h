/*
 * samples.h - reads numbers from `/metrics`: of one group, its requests, promises, tokens and
 * times; of two groups, whether copies of one group's requests got the same answers from the other.
 *
 * Counts are doubles, as in the text; all are below 2^53. Pure functions.
 */
#ifndef KVW_GROUPS_SAMPLES_H
#define KVW_GROUPS_SAMPLES_H

#include <stdbool.h>
#include <stddef.h>

#include "kvway/slice.h"

#define KVW_SAMPLES_BUCKETS 64
#define KVW_SAMPLES_NAME    320

/* A histogram: cumulative counts, by upper bounds in seconds or characters; the last bound may be
 * infinite. */
struct kvw_samples_times {
	double bounds[KVW_SAMPLES_BUCKETS], counts[KVW_SAMPLES_BUCKETS];
	size_t buckets;
	double sum, count;
};

struct kvw_group_samples {
	bool found; /* the group has a sample */
	double ok, error, refused, left;
	/* number of promises; broken ones are those that were late, slow, failed or refused */
	double kept, broken;
	double prompt, cached, completion; /* tokens */
	double drafted, accepted; /* tokens of speculative decoding */
	struct kvw_samples_times first_token, gap, per_token;
};

/* Numbers about answers to copies, compared with the answers that clients got. */
struct kvw_fidelity_samples {
	double equal, different, unfinished, unread;
	/* characters of the first group's answers, and of the second group's */
	double characters[2];
	struct kvw_samples_times difference;
};

/* Reads the samples of this model and group from a text in Prometheus' format. Unknown lines are
 * skipped. */
void kvw_samples_read(
	struct kvw_slice text, const char *model, const char *group, struct kvw_group_samples *out);

/* Reads the samples about copies of either group's requests to the other group. */
void kvw_samples_fidelity(struct kvw_slice text, const char *model, const char *const groups[2],
	struct kvw_fidelity_samples *out);

/* Subtracts earlier numbers from later ones. Returns false if the process was restarted between the
 * two. */
bool kvw_samples_subtract(struct kvw_group_samples *later, const struct kvw_group_samples *earlier);
bool kvw_samples_subtract_fidelity(
	struct kvw_fidelity_samples *later, const struct kvw_fidelity_samples *earlier);

/* Finds a model that has both groups. *count: number of such models. Returns false if there is
 * none. */
bool kvw_samples_model(struct kvw_slice text, const char *one, const char *other,
	char model[KVW_SAMPLES_NAME], size_t *count);

#endif
