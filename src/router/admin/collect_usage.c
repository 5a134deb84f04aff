/*
 * collect_usage.c - writes samples of what keys, tenants and models have used.
 *
 * A part of a request that is missing (no key, an unknown model) is an empty label.
 */
#include "admin/collect.h"
#include "usage/ledger.h"

/* A counter, split by a last label, or not (count 1, and name NULL). */
struct family {
	struct kvw_collect *collect;
	const char *label;
	const char *const *names;
	size_t count;
	void (*values)(const struct kvw_used *used, uint64_t values[3]);
};

static void put_series(void *arg, const struct kvw_user *user, const struct kvw_used *used)
{
	static const struct kvw_user others = {
		KVW_SLICE("other"), KVW_SLICE("other"), KVW_SLICE("other")};
	const struct family *family = arg;
	struct kvw_label labels[4];
	uint64_t values[3];

	if (user == NULL)
		user = &others;
	labels[0] = (struct kvw_label){"key", user->key};
	labels[1] = (struct kvw_label){"tenant", user->tenant};
	labels[2] = (struct kvw_label){"model", user->model};
	family->values(used, values);
	for (size_t i = 0; i < family->count; i++) {
		labels[3] = (struct kvw_label){family->label, kvw_slice_of(family->names[i])};
		kvw_sample_u64(&family->collect->out, labels, 4, values[i]);
	}
}

static void put_family(struct kvw_collect *collect, struct family family)
{
	family.collect = collect;
	kvw_ledger_series(collect->metrics->sources.ledger, put_series, &family);
}

static void tokens_of(const struct kvw_used *used, uint64_t values[3])
{
	values[0] = used->n[KVW_USED_PROMPT];
	values[1] = used->n[KVW_USED_CACHED];
	values[2] = used->n[KVW_USED_COMPLETION];
}

void kvw_collect_usage_tokens(struct kvw_collect *collect)
{
	static const char *const names[] = {"prompt", "cached", "completion"};

	put_family(collect, (struct family){.label = "kind",
				    .names = names,
				    .count = 3,
				    .values = tokens_of});
}

static void requests_of(const struct kvw_used *used, uint64_t values[3])
{
	values[1] = used->n[KVW_USED_REFUSED];
	values[2] = used->n[KVW_USED_FAILED];
	values[0] = used->n[KVW_USED_REQUESTS] - values[1] - values[2];
}

void kvw_collect_usage_requests(struct kvw_collect *collect)
{
	static const char *const names[] = {"ok", "refused", "failed"};

	put_family(collect, (struct family){.label = "result",
				    .names = names,
				    .count = 3,
				    .values = requests_of});
}

static void put_seconds(void *arg, const struct kvw_user *user, const struct kvw_used *used)
{
	struct kvw_collect *collect = arg;
	const struct kvw_slice other = KVW_SLICE("other");
	const struct kvw_label labels[] = {{"key", user == NULL ? other : user->key},
		{"tenant", user == NULL ? other : user->tenant},
		{"model", user == NULL ? other : user->model}};

	kvw_sample_double(
		&collect->out, labels, 3, (double)used->n[KVW_USED_MICROSECONDS] / 1e6);
}

void kvw_collect_usage_seconds(struct kvw_collect *collect)
{
	kvw_ledger_series(collect->metrics->sources.ledger, put_seconds, collect);
}

void kvw_collect_usage_users(struct kvw_collect *collect)
{
	struct kvw_ledger_stats stats;

	kvw_ledger_stats(collect->metrics->sources.ledger, &stats);
	kvw_sample_u64(&collect->out, NULL, 0,
		collect->arg == KVW_OF_USERS ? stats.entries : stats.unnamed);
}

void kvw_collect_usage_overflow(struct kvw_collect *collect)
{
	struct kvw_ledger_stats stats;

	kvw_ledger_stats(collect->metrics->sources.ledger, &stats);
	kvw_sample_u64(&collect->out, NULL, 0, stats.overflowed);
}
