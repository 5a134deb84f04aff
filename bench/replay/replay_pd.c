/* replay_pd.c - see replay_pd.h. */
#include "bench/replay/replay_pd.h"

#include <stdlib.h>
#include <string.h>

#include "bench/load/mem.h"
#include "bench/replay/replay_fleet.h"

const struct kvb_pd_rule kvb_pd_rules[] = {
	{"seconds", -1, 0, "routing/split.c of this project"},
	{"always", 0, 0, "vLLM's example proxies; llm-d's always-disagg-pd-decider"},
	{"llmd", 512, 0,
		"llm-d-router prefix-based-pd-decider: nonCachedTokens, without a default; 512 is that of"
		" BLIS, which simulates it"},
	{"hyperpod", 4096, 0, "HyperPod's InferenceEndpointConfig: pdSpec.routingThreshold"},
	{"dynamo", 4096, 0.6,
		"Dynamo's conditional disaggregation, isl_or_load with the thresholds that its document"
		" shows and none of load"},
	{0},
};

const struct kvb_pd_rule *kvb_pd_rule_find(const char *name)
{
	for (const struct kvb_pd_rule *rule = kvb_pd_rules; rule->name != NULL; rule++)
		if (strcmp(rule->name, name) == 0)
			return rule;
	return NULL;
}

static bool is_wrong(const struct kvb_fleet *fleet, uint32_t job)
{
	uint64_t state = kvb_mix(job);

	return kvb_random(&state) < fleet->options.pd.wrong_share;
}

static uint32_t job_of(const struct kvb_fleet *fleet, const struct kvb_seq *seq)
{
	return (uint32_t)((const struct kvb_course *)seq->user - fleet->courses);
}

/* Begins a decoder's pull of a prompt. It pulls once: after a preemption it computes the prompt. */
static bool ask(void *user, struct kvb_seq *seq, int64_t now_ns, uint32_t hits, uint32_t *tokens)
{
	struct kvb_fleet *fleet = user;
	struct kvb_course *course = seq->user;

	(void)now_ns;
	(void)hits;
	*tokens = 0;
	if (!course->to_pull)
		return true;
	course->to_pull = false;
	if (is_wrong(fleet, job_of(fleet, seq)))
		fleet->pd.counts.recomputed++;
	else
		*tokens = seq->prompt_len - 1;
	return true;
}

static bool fetch(void *user, struct kvb_seq *seq, int64_t now_ns, uint32_t hits, uint32_t tokens)
{
	struct kvb_fleet *fleet = user;
	const struct kvb_pd_options *o = &fleet->options.pd;
	struct kvb_pd *pd = &fleet->pd;
	struct kvb_course *course = seq->user;
	int64_t *in = &pd->in_ns[course->worker], *out = &pd->out_ns[course->prefiller];
	int64_t end_ns = now_ns > *in ? now_ns : *in;

	if (o->lease_ns > 0 && now_ns > course->prefilled_ns + o->lease_ns) {
		pd->counts.expired++;
		return false;
	}
	end_ns = end_ns > *out ? end_ns : *out;
	end_ns += (int64_t)((double)(tokens - hits) * fleet->options.profile->kv_bytes /
			    o->bytes_per_ns);
	*in = *out = end_ns;
	if (pd->pull_count == pd->pull_room) {
		pd->pull_room = pd->pull_room > 0 ? 2 * pd->pull_room : 64;
		pd->pulls = kvb_realloc(pd->pulls, pd->pull_room, sizeof(pd->pulls[0]));
	}
	pd->pulls[pd->pull_count++] =
		(struct kvb_pd_pull){end_ns + o->fixed_ns, job_of(fleet, seq)};
	pd->counts.pulled++;
	pd->counts.pulled_tokens += tokens - hits;
	return true;
}

static const struct kvb_engine_watch watch = {.ask = ask, .fetch = fetch};

void kvb_pd_begin(struct kvb_fleet *fleet)
{
	uint32_t workers = fleet->options.workers;

	if (!kvb_pd_on(&fleet->options.pd))
		return;
	fleet->pd.in_ns = kvb_alloc(workers, sizeof(int64_t));
	fleet->pd.out_ns = kvb_alloc(workers, sizeof(int64_t));
	for (uint32_t w = 0; w < workers; w++)
		kvb_engine_watch(fleet->workers[w].engine, &watch, fleet);
}

void kvb_pd_finish(struct kvb_fleet *fleet)
{
	free(fleet->pd.pulls);
	free(fleet->pd.in_ns);
	free(fleet->pd.out_ns);
}

int64_t kvb_pd_next_ns(const struct kvb_fleet *fleet)
{
	int64_t next = INT64_MAX;

	for (uint32_t i = 0; i < fleet->pd.pull_count; i++)
		if (fleet->pd.pulls[i].end_ns < next)
			next = fleet->pd.pulls[i].end_ns;
	return next;
}

void kvb_pd_loaded(struct kvb_fleet *fleet, int64_t now_ns)
{
	struct kvb_pd *pd = &fleet->pd;

	for (uint32_t i = 0; i < pd->pull_count;) {
		const struct kvb_course *course = &fleet->courses[pd->pulls[i].job];

		if (pd->pulls[i].end_ns > now_ns) {
			i++;
			continue;
		}
		kvb_engine_loaded(fleet->workers[course->worker].engine, course->seq,
			course->seq->prompt_len - 1);
		pd->pulls[i] = pd->pulls[--pd->pull_count];
	}
}
