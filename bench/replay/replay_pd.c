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
	if (is_wrong(fleet, kvb_fleet_job(fleet, seq)))
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
	int64_t end_ns;

	if (o->lease_ns > 0 && now_ns > course->prefilled_ns + o->lease_ns) {
		pd->counts.expired++;
		return false;
	}
	end_ns = kvb_links_take(&pd->out_ns[course->prefiller], &pd->in_ns[course->worker], now_ns,
		kvb_fleet_way_ns(fleet, tokens - hits, o->bytes_per_ns));
	kvb_loads_add(&fleet->loads,
		(struct kvb_load){.end_ns = end_ns + o->fixed_ns,
			.worker = course->worker,
			.job = kvb_fleet_job(fleet, seq),
			.tokens = tokens});
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
	free(fleet->pd.in_ns);
	free(fleet->pd.out_ns);
}
