/* ranks.c - the data-parallel ranks of one endpoint, each a worker of its own. */
#include "fleet/ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/find.h"
#include "base/log.h"
#include "fleet/fleet.h"

#define LOOKED_AT 160 /* the message of a refusal lies within this many bytes of the body */
#define UNSENT_NS (60 * KVW_NS_PER_S)

int kvw_rank_split(const char *url, size_t *len)
{
	const char *mark = strrchr(url, '@');
	int rank = 0;

	*len = strlen(url);
	if (mark == NULL || mark[1] == '\0' || (mark[1] == '0' && mark[2] != '\0'))
		return KVW_RANK_NONE;
	for (const char *at = mark + 1; *at != '\0'; at++) {
		if (*at < '0' || *at > '9')
			return KVW_RANK_NONE;
		rank = 10 * rank + (*at - '0');
		if (rank >= KVW_RANKS_MOST)
			return KVW_RANK_NONE;
	}
	*len = (size_t)(mark - url);
	return rank;
}

uint32_t kvw_ranks_configured(
	const struct kvw_config *config, const struct kvw_worker_config *entry)
{
	if (entry->ranks > 0)
		return (uint32_t)entry->ranks;
	return config->kvaware_events_ranks > 1 ? (uint32_t)config->kvaware_events_ranks : 0;
}

enum kvw_err kvw_rank_config(const struct kvw_worker_config *entry, uint32_t count, uint32_t rank,
	struct kvw_worker_config *out)
{
	struct kvw_worker_config named = *entry;
	size_t len = strlen(entry->url), room = len + KVW_RANK_ROOM;
	enum kvw_err err;

	while (len > 0 && entry->url[len - 1] == '/')
		len--;
	named.url = malloc(room);
	if (named.url == NULL)
		return KVW_ENOMEM;
	(void)snprintf(named.url, room, "%.*s@%u", (int)len, entry->url, rank);
	named.ranks = count;
	err = kvw_worker_config_copy(&named, out);
	free(named.url);
	return err;
}

struct kvw_worker *kvw_ranks_next(
	const struct kvw_fleet *fleet, struct kvw_worker *worker, size_t *at)
{
	struct kvw_worker *lead = worker->lead;

	if (*at == 0) {
		*at = 1;
		return lead;
	}
	if (atomic_load_explicit(&lead->followers, memory_order_relaxed) == 0)
		return NULL;
	for (size_t slot = *at - 1; slot < fleet->count; slot++) {
		struct kvw_worker *other = kvw_fleet_worker(fleet, slot);

		if (other == NULL || other == lead || other->lead != lead)
			continue;
		*at = slot + 2;
		return other;
	}
	return NULL;
}

static uint32_t global_of(const struct kvw_worker *worker)
{
	uint32_t global = atomic_load_explicit(&worker->global_rank, memory_order_relaxed);

	return global == KVW_RANK_UNKNOWN ? (uint32_t)worker->rank : global;
}

static int64_t number_of(const struct kvw_worker *worker, uint8_t index)
{
	return index == KVW_RANK_GLOBAL ? (int64_t)global_of(worker) : worker->rank;
}

int64_t kvw_rank_number(struct kvw_worker *worker, bool sure, int64_t now_ns)
{
	struct kvw_worker *lead = worker->lead;
	uint8_t index = atomic_load_explicit(&lead->rank_index, memory_order_relaxed);

	if (index == KVW_RANK_UNSENT && now_ns - atomic_load(&lead->rank_given_up_ns) > UNSENT_NS) {
		kvw_rank_forget(lead);
		index = KVW_RANK_INDEX;
	}
	if (index == KVW_RANK_UNSENT ||
		(sure && !atomic_load_explicit(&lead->rank_proven, memory_order_relaxed)))
		return KVW_RANK_NONE;
	return number_of(worker, index);
}

static bool denies_by(struct kvw_slice words, const char *data, size_t len, int64_t number)
{
	const char *end = data + (len < LOOKED_AT ? len : LOOKED_AT);
	const char *at = kvw_find(data, (size_t)(end - data), words);
	int64_t found = 0;

	if (at == NULL)
		return false;
	for (at += words.len; at < end && *at >= '0' && *at <= '9'; at++)
		found = 10 * found + (*at - '0');
	return found == number && at < end && *at == ' ';
}

/* vLLM's Python frontend: `data_parallel_rank 9 is out of range [0, 2).` Its Rust frontend: `data
 * parallel rank 9 is not connected to this frontend; connected ranks: [0, 1]`, or `... is out of
 * range for 2 engine(s)`. SGLang: `routed_dp_rank=9 out of range [0, 2)`. The message begins with
 * it and has the number, so that no text of a request that an error repeats passes for it. */
bool kvw_rank_denies(const char *data, size_t len, int64_t number)
{
	return denies_by(KVW_SLICE("\"data_parallel_rank "), data, len, number) ||
	       denies_by(KVW_SLICE("\"data parallel rank "), data, len, number) ||
	       denies_by(KVW_SLICE("\"routed_dp_rank="), data, len, number);
}

void kvw_rank_refused(struct kvw_worker *worker, int64_t number, int64_t now_ns)
{
	struct kvw_worker *lead = worker->lead;
	uint8_t index = atomic_load(&lead->rank_index);
	bool other = index == KVW_RANK_INDEX &&
		     number_of(worker, KVW_RANK_GLOBAL) != number_of(worker, KVW_RANK_INDEX);

	/* Several requests in flight may be refused for one wrong number: only the first refusal
	 * changes the kind of number that is sent. */
	if (index == KVW_RANK_UNSENT || number != number_of(worker, index))
		return;
	atomic_store(&lead->rank_proven, false);
	atomic_store(&lead->rank_given_up_ns, now_ns);
	if (!atomic_compare_exchange_strong(&lead->rank_index, &index,
		    (uint8_t)(other ? KVW_RANK_GLOBAL : KVW_RANK_UNSENT)))
		return;
	if (other)
		kvw_info("fleet",
			"the server refuses rank %lld: it counts ranks of all servers, and gets "
			"global ranks from now on url=%s",
			(long long)number, worker->endpoint);
	else
		kvw_warn("fleet",
			"the server refuses rank %lld: for a minute it gets requests without a "
			"rank, and predictions of its cache are guesses url=%s",
			(long long)number, worker->endpoint);
}

void kvw_rank_accepted(struct kvw_worker *worker, int64_t number)
{
	struct kvw_worker *lead = worker->lead;
	uint8_t index = atomic_load_explicit(&lead->rank_index, memory_order_relaxed);

	if (!atomic_load_explicit(&lead->rank_proven, memory_order_relaxed) &&
		index != KVW_RANK_UNSENT && number == number_of(worker, index))
		atomic_store_explicit(&lead->rank_proven, true, memory_order_relaxed);
}

void kvw_rank_forget(struct kvw_worker *worker)
{
	atomic_store(&worker->lead->rank_index, (uint8_t)KVW_RANK_INDEX);
	atomic_store(&worker->lead->rank_proven, false);
}
