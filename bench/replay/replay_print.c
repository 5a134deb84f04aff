/*
 * replay_print.c - figures of a run, and names to choose from, as JSON.
 *
 * A figure that a run does not have (NaN) is left out.
 */
#include "bench/replay/replay_print.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>

#include "bench/replay/replay_scenarios.h"

void kvb_replay_print_list(void)
{
	json_t *all = json_pack("{s:[], s:[], s:[], s:[], s:[]}", "policies", "admissions",
		"pd_rules", "scenarios", "signals");
	json_t *signals = json_object_get(all, "signals");
	json_t *policies = json_object_get(all, "policies");
	json_t *admissions = json_object_get(all, "admissions");
	json_t *rules = json_object_get(all, "pd_rules");
	json_t *scenarios = json_object_get(all, "scenarios");

	for (const struct kvb_policy *p = kvb_policies; p->name != NULL; p++)
		json_array_append_new(policies, json_pack("{s:s, s:b, s:s}", "name", p->name,
							"peer", p->peer, "source", p->source));
	for (const struct kvb_admission *a = kvb_admissions; a->name != NULL; a++)
		json_array_append_new(admissions, json_pack("{s:s, s:b, s:s}", "name", a->name,
							  "peer", a->peer, "source", a->source));
	for (const struct kvb_pd_rule *rule = kvb_pd_rules; rule->name != NULL; rule++)
		json_array_append_new(
			rules, json_pack("{s:s, s:s}", "name", rule->name, "source", rule->source));
	for (const struct kvb_scenario *s = kvb_scenarios; s->name != NULL; s++)
		json_array_append_new(
			scenarios, json_pack("{s:s, s:s}", "name", s->name, "what", s->what));
	for (const struct kvb_scale_signal *s = kvb_scale_signals; s->name != NULL; s++)
		json_array_append_new(
			signals, json_pack("{s:s, s:s}", "name", s->name, "what", s->what));
	json_dumpf(all, stdout, JSON_INDENT(1));
	putchar('\n');
	json_decref(all);
}

/* Adds a figure to the object; leaves out figures that are not known. */
static void set(json_t *out, const char *key, double value)
{
	if (!isnan(value))
		json_object_set_new(out, key, json_real(value));
}

static void set_admission(json_t *out, const char *name, const struct kvb_replay_result *r)
{
	json_object_set_new(out, "admission", json_string(name));
	set(out, "refused_share", r->refused_share);
	set(out, "refusals_per_request", r->refusals);
	set(out, "refused_late_s", r->refused_late_s);
	set(out, "refused_slow_share", r->refused_slow_share);
	set(out, "busy_share", r->busy_share);
	if (isnan(r->turn_goodput))
		return;
	set(out, "turn_goodput", r->turn_goodput);
	set(out, "programs", r->programs);
	set(out, "programs_per_hour", r->programs_per_hour);
	set(out, "programs_given_up", r->programs_given_up);
}

static void set_pd(
	json_t *out, const struct kvb_replay_options *o, const struct kvb_replay_result *r)
{
	const struct kvb_pd_counts *pd = &r->pd;
	json_t *roles = json_sprintf(
		"%" PRIu32 ":%" PRIu32, o->fleet.pd.prefillers, o->fleet.pd.decoders);

	json_object_set_new(out, "pd", roles);
	json_object_set_new(out, "pd_rule", json_string(o->fleet.pd.rule->name));
	json_object_set_new(out, "pd_whole", json_boolean(o->fleet.pd.whole));
	set(out, "split_share", (double)pd->split / (double)r->requests);
	set(out, "pulled", (double)pd->pulled);
	set(out, "pulled_tokens", pd->pulled_tokens);
	set(out, "expired", (double)pd->expired);
	set(out, "recomputed", (double)pd->recomputed);
}

static void set_mp(
	json_t *out, const struct kvb_replay_options *o, const struct kvb_replay_result *r)
{
	const struct kvb_mp_counts *mp = &r->mp;

	json_object_set_new(out, "mp_prefetch", json_boolean(o->fleet.mp.prefetch));
	set(out, "mp_l1_tokens", mp->l1_tokens);
	set(out, "mp_l2_tokens", mp->l2_tokens);
	set(out, "mp_waited_for_l2_share", (double)mp->asked / (double)r->requests);
	set(out, "mp_prefetches", (double)mp->prefetches);
	set(out, "mp_prefetched_tokens", mp->prefetched_tokens);
}

static void set_scale(
	json_t *out, const struct kvb_replay_options *o, const struct kvb_replay_result *r)
{
	const struct kvb_scale_options *scale = &o->fleet.scale;

	set(out, "wave", o->wave);
	set(out, "worker_hours", r->worker_hours);
	set(out, "workers_most", r->workers_most);
	if (scale->signal == NULL)
		return;
	json_object_set_new(out, "scale_by", json_string(scale->signal->name));
	set(out, "scale_target", scale->target);
	json_object_set_new(out, "scale_behavior", json_string(scale->behavior->name));
	set(out, "scale_start_s", (double)scale->start_ns / 1e9);
}

static json_t *pack_classes(const struct kvb_replay_result *r)
{
	json_t *all = json_array();

	for (uint32_t c = 0; c < r->class_count; c++) {
		json_t *one = json_pack("{s:i, s:I}", "class", (int)c, "requests",
			(json_int_t)r->classes[c].requests);

		set(one, "goodput", r->classes[c].goodput);
		set(one, "ttft_p99_s", r->classes[c].ttft_p99);
		set(one, "refused_share", r->classes[c].refused_share);
		set(one, "wait_max_s", r->classes[c].wait_max_s);
		json_array_append_new(all, one);
	}
	return all;
}

void kvb_replay_print(
	const struct kvb_replay_options *o, const struct kvb_replay_result *r)
{
	json_t *out = json_pack("{s:s, s:i, s:i, s:f, s:I, s:I, s:b}", "policy", o->policy, "routers",
		(int)o->routers.count, "workers",
		(int)o->fleet.workers, "scale", o->scale, "seed", (json_int_t)o->seed, "requests",
		(json_int_t)r->requests, "simulated", 1);

	set(out, "cached_share", r->cached_share);
	set(out, "ttft_mean_s", r->ttft_mean);
	set(out, "ttft_p50_s", r->ttft_p50);
	set(out, "ttft_p90_s", r->ttft_p90);
	set(out, "ttft_p99_s", r->ttft_p99);
	set(out, "tpot_mean_s", r->tpot_mean);
	set(out, "tpot_p99_s", r->tpot_p99);
	set(out, "gap_p99_s", r->gap_p99);
	set(out, "e2e_mean_s", r->e2e_mean);
	set(out, "e2e_p99_s", r->e2e_p99);
	set(out, "goodput", r->goodput);
	if (o->admission != NULL)
		set_admission(out, o->admission, r);
	if (kvb_pd_on(&o->fleet.pd))
		set_pd(out, o, r);
	if (o->fleet.mp.l1_tokens > 0)
		set_mp(out, o, r);
	if (r->class_count > 1)
		json_object_set_new(out, "classes", pack_classes(r));
	set(out, "imbalance", r->imbalance);
	set(out, "foretold", r->foretold);
	set(out, "last_s", r->last_s);
	set(out, "preemptions", (double)r->preemptions);
	if (o->wave > 0 || o->fleet.scale.signal != NULL)
		set_scale(out, o, r);
	if (r->share != NULL) {
		json_t *share = json_array();

		for (uint32_t w = 0; w < o->fleet.workers; w++)
			json_array_append_new(share, json_real(r->share[w]));
		json_object_set_new(out, "worker_share", share);
		set(out, "stalled_share", r->odd_share);
		set(out, "holders", r->holders);
	}
	json_dumpf(out, stdout, JSON_COMPACT | JSON_REAL_PRECISION(8));
	putchar('\n');
	json_decref(out);
}
