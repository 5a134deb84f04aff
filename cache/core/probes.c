/*
 * probes.c - asks shared tiers which chunks they have.
 *
 * A probe lives from its request to the tier's answer, even if no caller waits any longer; its keys
 * are copies, since the asker may be gone by then. Only the tier's own deadline limits a probe: a
 * caller's short deadline shows nothing about the server, and a late answer is useful to the next
 * caller.
 */
#include <stdlib.h>
#include <string.h>

#include "core/lower.h"
#include "core/probes.h"

#define AT_ONCE   256  /* probes under way */
#define KEYS_MOST 4096 /* in one */

struct kvt_probe {
	struct kvt_job job;
	struct kvt_asker *asker; /* NULL: no caller waits */
	struct kvt_key keys[];
};

static struct kvt_probe *probe_of(struct kvt_job *job)
{
	return (struct kvt_probe *)((char *)job - offsetof(struct kvt_probe, job));
}

static struct kvt_lower *whom_to_ask(struct kvt *k, const struct kvt_key *key, uint32_t tier_mask)
{
	for (size_t i = 0; i < k->lower_count; i++) {
		struct kvt_lower *b = &k->lower[i];

		if (tier_mask != KVT_ALL_TIERS && (tier_mask & KVT_IN(b->id)) == 0)
			continue;
		if (kvt_lower_readable(b) && kvt_lower_unsure(b, key))
			return b;
	}
	return NULL;
}

bool kvt_probe_helps(struct kvt *k, const struct kvt_key *key, uint32_t tier_mask)
{
	return whom_to_ask(k, key, tier_mask) != NULL;
}

void kvt_probe_leave(struct kvt_asker *asker)
{
	if (asker->probe != NULL)
		asker->probe->asker = NULL;
	asker->probe = NULL;
}

static void tell(struct kvt *k, struct kvt_probe *probe)
{
	struct kvt_asker *asker = probe->asker;

	if (asker == NULL)
		return;
	kvt_probe_leave(asker);
	asker->resolve(k, asker);
}

static void probe_done(struct kvt *k, struct kvt_job *job)
{
	struct kvt_probe *probe = probe_of(job);

	k->probes_under_way--;
	if (job->request.status == KVT_OK)
		kvt_count(&k->counters.probe_hits, job->request.found);
	kvt_took(k, KVT_LATENCY_PROBE, job->begun_ns);
	tell(k, probe);
	free(probe);
}

enum kvt_status kvt_probe_begin(struct kvt *k, const struct kvt_key *keys, size_t n,
	uint32_t tier_mask, struct kvt_asker *asker)
{
	struct kvt_lower *b = n != 0 ? whom_to_ask(k, keys, tier_mask) : NULL;
	struct kvt_probe *probe;

	if (b == NULL || k->closing)
		return KVT_MISS;
	if (k->probes_under_way == AT_ONCE)
		return KVT_BUSY;
	if (n > KEYS_MOST)
		n = KEYS_MOST;
	probe = calloc(1, sizeof(*probe) + n * sizeof(*keys));
	if (probe == NULL)
		return KVT_ENOMEM;
	memcpy(probe->keys, keys, n * sizeof(*keys));
	probe->asker = asker;
	asker->probe = probe;
	k->probes_under_way++;
	kvt_count(&k->counters.probes, 1);
	kvt_count(&k->counters.probe_chunks, n);
	probe->job.get = asker->get;
	probe->job.request = (struct kvt_tier_request){
		.verb = KVT_TIER_PROBE,
		.keys = probe->keys,
		.key_count = n,
	};
	kvt_lower_submit(b, &probe->job, probe_done);
	return KVT_OK;
}

void kvt_probes_abandon(struct kvt *k, const struct kvt_lower *b)
{
	for (struct kvt_job *job = b->oldest; job != NULL; job = job->next)
		if (job->done == probe_done)
			tell(k, probe_of(job));
}
