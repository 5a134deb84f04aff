/*
 * kvb_replay.c - replays a trace or a scenario in simulated time under one policy.
 *
 * One JSON object on standard output, figures of one run; bench/run.sh replay runs many of these,
 * compares them and draws. Everything is simulated but the routing library.
 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kvway/route.h"
#include "bench/replay/replay_limit.h"
#include "bench/replay/replay_print.h"
#include "bench/replay/replay_routers.h"
#include "bench/replay/replay_scenarios.h"

static const char usage[] =
	"usage: kvb-replay (--trace FILE | --scenario NAME) [options]\n"
	"       kvb-replay --list\n"
	"\n"
	"  --policy NAME    routing policy (default kvway); `limit`: a bound for every policy\n"
	"  --admission NAME what stands before the policy (default none); shows what is refused\n"
	"  --retry on|off   refused clients come back, five times at most (default: on where jobs "
	"follow others)\n"
	"  --scale X        arrivals X times as fast (default 1)\n"
	"  --spread         of a trace: requests of one moment come evenly until the next one\n"
	"  --pause-ms MS    of a trace: at least so long between two requests (default 0)\n"
	"  --workers N      (default 8)\n"
	"  --seed K         of the disturbed rate (at most 0.8 %) and of ties; 0: undisturbed "
	"(default 0)\n"
	"  --requests N     only the first N of the trace\n"
	"  --profile NAME   of the simulated engines (default reference-kv), see kvsim "
	"--list-profiles\n"
	"  --context-ns X   of the profile: KV read per token of a decoding sequence\n"
	"  --kv-tokens N    KV cache of each worker (default: the profile's)\n"
	"  --block-size N   of the engines, divides 512 (default 16)\n"
	"  --max-seqs N     running at once on a worker (default 256)\n"
	"  --max-batched-tokens N  of a step (default 8192)\n"
	"  --routers N      replicas of kvway, each with its share of the requests (default 1)\n"
	"  --sharing on|off|lost   they share their load; lost: only for the first 60 s (default on)\n"
	"  --redis-delay MS until one hears what another has said (default 2)\n"
	"  --sharing-interval MS  how often each speaks (default 100)\n"
	"  --balance random|prefix  which router a request comes to (default random)\n"
	"  --ranks N        of a server: N workers that compute their steps together (default 1)\n"
	"  --pd P:D         the first P workers only prefill, the next D decode, others do both\n"
	"  --pd-whole on|off  pd.whole: those that only prefill may have whole requests, with the\n"
	"                   rule seconds (default: that of the configuration, off)\n"
	"  --pd-rule NAME   when a prompt is split (default seconds); --list names them\n"
	"  --pd-gbytes X    of a worker's link, a second, each way (default 12.5)\n"
	"  --pd-fixed-ms X  of a transfer besides (default 30)\n"
	"  --pd-lease-s X   after which KV that was not pulled is gone (default 0: never)\n"
	"  --pd-wrong X     share of parameters that decoders do not understand (default 0)\n"
	"  --mp L1:L2       each worker has an LMCache server with L1 tokens, and all have L2 tokens\n"
	"  --mp-l1-gbytes X  from a server's L1 to its engine, a second (default 20)\n"
	"  --mp-l2-gbytes X  from L2 to a server, a second (default 2)\n"
	"  --mp-fixed-ms X  of each load from L2 besides (default 5)\n"
	"  --mp-prefetch on|off  the router has servers load from L2 when it sends (default off)\n"
	"  --odd-peer stale|lying|biased  one more peer, which says what is not so\n"
	"  --repeat N       of a trace: it comes N times, with other prompts each time (default 1)\n"
	"  --wave SWING     of a trace: the rate rises and falls, from 1 - SWING times the mean to\n"
	"                   1 + SWING times (below 1; default 0: it does not)\n"
	"  --waves N        so often (default 1)\n"
	"  --scale-by SIGNAL:TARGET  an autoscaler changes the number of workers, up to --workers;\n"
	"                   --list names signals\n"
	"  --scale-behavior kubernetes|calm  how fast: as by default, or slower (default kubernetes)\n"
	"  --scale-least N  the fewest, and those at the beginning (default 1)\n"
	"  --scale-start-s S  until a new worker serves (default 180)\n"
	"  -c, --config FILE       kvway's configuration (default: its defaults)\n"
	"  --list           prints policies, admissions and scenarios\n";

#define LOST_NS INT64_C(60000000000) /* with --sharing lost: when Redis becomes unreachable */

enum {
	OPT_TRACE = 256,
	OPT_SCENARIO,
	OPT_POLICY,
	OPT_ADMISSION,
	OPT_RETRY,
	OPT_SCALE,
	OPT_WORKERS,
	OPT_SEED,
	OPT_REQUESTS,
	OPT_PROFILE,
	OPT_CONTEXT,
	OPT_KV_TOKENS,
	OPT_BLOCK,
	OPT_SEQS,
	OPT_BATCHED,
	OPT_LIST,
	OPT_ROUTERS,
	OPT_SPREAD,
	OPT_PAUSE,
	OPT_SHARING,
	OPT_DELAY,
	OPT_INTERVAL,
	OPT_BALANCE,
	OPT_ODD,
	OPT_RANKS,
	OPT_PD,
	OPT_PD_RULE,
	OPT_PD_WHOLE,
	OPT_PD_GBYTES,
	OPT_PD_FIXED,
	OPT_PD_LEASE,
	OPT_PD_WRONG,
	OPT_MP,
	OPT_MP_L1,
	OPT_MP_L2,
	OPT_MP_FIXED,
	OPT_MP_PREFETCH,
	OPT_REPEAT,
	OPT_WAVE,
	OPT_WAVES,
	OPT_SCALE_BY,
	OPT_SCALE_BEHAVIOR,
	OPT_SCALE_LEAST,
	OPT_SCALE_START,
};

/* Parses a number; ends the program unless it lies within low..high. */
static double number(const char *option, const char *text, double low, double high)
{
	char *end = NULL;
	double value = strtod(text, &end);

	if (end == text || *end != '\0' || !(value >= low && value <= high)) {
		fprintf(stderr, "kvb-replay: %s: found %s, expected a number from %g to %g\n",
			option, text, low, high);
		exit(2);
	}
	return value;
}

/* Returns the index of text among the words, which end with NULL; ends the program if it is none of
 * them. */
static int word(const char *option, const char *text, const char *const *words)
{
	for (int i = 0; words[i] != NULL; i++)
		if (strcmp(text, words[i]) == 0)
			return i;
	fprintf(stderr, "kvb-replay: %s: found %s\n%s", option, text, usage);
	exit(2);
}

/* Takes an option about several routers. Returns false if the option is another one. */
static bool take_routers(struct kvb_routers *routers, int option, const char *text)
{
	static const char *const sharing[] = {"off", "on", "lost", NULL};
	static const char *const balance[] = {"random", "prefix", NULL};
	static const char *const odd[] = {"none", "stale", "lying", "biased", NULL};

	switch (option) {
	case OPT_ROUTERS:
		routers->count = (uint32_t)number("--routers", text, 1, KVB_MOST_ROUTERS);
		return true;
	case OPT_SHARING:
		routers->shared = word("--sharing", text, sharing) > 0;
		routers->lost_ns = word("--sharing", text, sharing) == 2 ? LOST_NS : INT64_MAX;
		return true;
	case OPT_DELAY:
		routers->delay_ns = (int64_t)(number("--redis-delay", text, 0, 1000) * 1e6);
		return true;
	case OPT_INTERVAL:
		routers->interval_ns = (int64_t)(number("--sharing-interval", text, 20, 10000) * 1e6);
		return true;
	case OPT_BALANCE:
		routers->sticky = word("--balance", text, balance) == 1;
		return true;
	case OPT_ODD:
		routers->odd = (enum kvb_odd_peer)word("--odd-peer", text, odd);
		return true;
	default:
		return false;
	}
}

/* Takes an option about workers with roles. Returns false if the option is another one. */
static bool take_pd(struct kvb_pd_options *pd, int option, const char *text)
{
	static const char *const whole[] = {"off", "on", NULL};
	char rest;

	switch (option) {
	case OPT_PD:
		if (sscanf(text, "%" SCNu32 ":%" SCNu32 "%c", &pd->prefillers, &pd->decoders,
			    &rest) == 2)
			return true;
		fprintf(stderr, "kvb-replay: --pd: found %s, expected two numbers, as 2:6\n", text);
		exit(2);
	case OPT_PD_WHOLE:
		pd->whole = word("--pd-whole", text, whole);
		return true;
	case OPT_PD_RULE:
		pd->rule = kvb_pd_rule_find(text);
		if (pd->rule != NULL)
			return true;
		fprintf(stderr, "kvb-replay: no rule %s; --list names them\n", text);
		exit(2);
	case OPT_PD_GBYTES:
		pd->bytes_per_ns = number("--pd-gbytes", text, 1e-3, 1e4);
		return true;
	case OPT_PD_FIXED:
		pd->fixed_ns = (int64_t)(number("--pd-fixed-ms", text, 0, 1e5) * 1e6);
		return true;
	case OPT_PD_LEASE:
		pd->lease_ns = (int64_t)(number("--pd-lease-s", text, 0, 1e5) * 1e9);
		return true;
	case OPT_PD_WRONG:
		pd->wrong_share = number("--pd-wrong", text, 0, 1);
		return true;
	default:
		return false;
	}
}

/* Options of LMCache servers. False: it is another one. */
static bool take_mp(struct kvb_mp_options *mp, int option, const char *text)
{
	static const char *const prefetch[] = {"off", "on", NULL};
	char rest;

	switch (option) {
	case OPT_MP:
		if (sscanf(text, "%" SCNu32 ":%" SCNu32 "%c", &mp->l1_tokens, &mp->l2_tokens,
			    &rest) == 2 && mp->l1_tokens > 0)
			return true;
		fprintf(stderr, "kvb-replay: --mp: found %s, expected two numbers, as 100000:800000\n",
			text);
		exit(2);
	case OPT_MP_L1:
		mp->l1_bytes_per_ns = number("--mp-l1-gbytes", text, 1e-3, 1e4);
		return true;
	case OPT_MP_L2:
		mp->l2_bytes_per_ns = number("--mp-l2-gbytes", text, 1e-3, 1e4);
		return true;
	case OPT_MP_FIXED:
		mp->l2_fixed_ns = (int64_t)(number("--mp-fixed-ms", text, 0, 1e5) * 1e6);
		return true;
	case OPT_MP_PREFETCH:
		mp->prefetch = word("--mp-prefetch", text, prefetch) == 1;
		return true;
	default:
		return false;
	}
}

static void take(struct kvb_replay_options *o, int option, const char *text);

/* NAME:TARGET. */
static void take_signal(struct kvb_scale_options *scale, const char *text)
{
	const char *colon = strchr(text, ':');
	char name[32];

	(void)snprintf(name, sizeof(name), "%.*s", colon == NULL ? 0 : (int)(colon - text), text);
	scale->signal = kvb_scale_signal_find(name);
	if (scale->signal == NULL) {
		fprintf(stderr, "kvb-replay: --scale-by: found %s, expected SIGNAL:TARGET; --list names signals\n",
			text);
		exit(2);
	}
	scale->target = number("--scale-by", colon + 1, 1e-3, 1e6);
}

/* How the load and the fleet change. Returns false if it is another option. */
static bool take_scale(struct kvb_replay_options *o, int option, const char *text)
{
	struct kvb_scale_options *scale = &o->fleet.scale;

	switch (option) {
	case OPT_REPEAT:
		o->repeat = (uint32_t)number("--repeat", text, 1, 1000);
		return true;
	case OPT_WAVE:
		o->wave = number("--wave", text, 0, 0.99);
		return true;
	case OPT_WAVES:
		o->waves = number("--waves", text, 1, 1000);
		return true;
	case OPT_SCALE_BY:
		take_signal(scale, text);
		return true;
	case OPT_SCALE_BEHAVIOR:
		scale->behavior = kvb_scale_behavior_find(text);
		if (scale->behavior == NULL)
			take(o, '?', NULL);
		return true;
	case OPT_SCALE_LEAST:
		scale->least = (uint32_t)number("--scale-least", text, 1, KVB_MAX_WORKERS);
		return true;
	case OPT_SCALE_START:
		scale->start_ns = (int64_t)(number("--scale-start-s", text, 0, 1e5) * 1e9);
		return true;
	default:
		return false;
	}
}

static void take(struct kvb_replay_options *o, int option, const char *text)
{
	if (take_routers(&o->routers, option, text) || take_pd(&o->fleet.pd, option, text) ||
		take_mp(&o->fleet.mp, option, text) ||
		take_scale(o, option, text))
		return;
	switch (option) {
	case OPT_TRACE:
		o->trace = text;
		break;
	case OPT_SCENARIO:
		o->scenario = text;
		break;
	case OPT_POLICY:
		o->policy = text;
		break;
	case OPT_ADMISSION:
		o->admission = text;
		break;
	case OPT_RETRY:
		o->retry = text;
		break;
	case OPT_SCALE:
		o->scale = number("--scale", text, 1e-3, 1e3);
		break;
	case OPT_WORKERS:
		o->fleet.workers = (uint32_t)number("--workers", text, 1, KVB_MAX_WORKERS);
		break;
	case OPT_SEED:
		o->seed = (uint64_t)number("--seed", text, 0, 1e9);
		break;
	case OPT_REQUESTS:
		o->requests = (size_t)number("--requests", text, 1, 1e9);
		break;
	case OPT_PROFILE:
		o->fleet.profile = kvb_profile_find(text);
		break;
	case OPT_CONTEXT:
		o->context_ns = number("--context-ns", text, 0, 1e6);
		break;
	case OPT_KV_TOKENS:
		o->fleet.kv_tokens = (uint32_t)number("--kv-tokens", text, 1024, 1e9);
		break;
	case OPT_BLOCK:
		o->fleet.block_size = (uint32_t)number("--block-size", text, 1, KVB_ID_TOKENS);
		break;
	case OPT_SEQS:
		o->fleet.max_seqs = (uint32_t)number("--max-seqs", text, 1, 1 << 20);
		break;
	case OPT_BATCHED:
		o->fleet.max_batched_tokens =
			(uint32_t)number("--max-batched-tokens", text, 1, 1 << 30);
		break;
	case OPT_RANKS:
		o->fleet.ranks = (uint32_t)number("--ranks", text, 1, KVB_MAX_WORKERS);
		break;
	case OPT_SPREAD:
		o->spread = true;
		break;
	case OPT_PAUSE:
		o->pause_ns = (int64_t)(number("--pause-ms", text, 0, 1e4) * 1e6);
		break;
	case OPT_LIST:
		o->list = true;
		break;
	case 'c':
		o->config = text;
		break;
	default:
		fputs(usage, option == 'h' ? stdout : stderr);
		exit(option == 'h' ? 0 : 2);
	}
}

static const struct option names[] = {
	{"trace", required_argument, NULL, OPT_TRACE},
	{"scenario", required_argument, NULL, OPT_SCENARIO},
	{"policy", required_argument, NULL, OPT_POLICY},
	{"admission", required_argument, NULL, OPT_ADMISSION},
	{"retry", required_argument, NULL, OPT_RETRY},
	{"scale", required_argument, NULL, OPT_SCALE},
	{"workers", required_argument, NULL, OPT_WORKERS},
	{"seed", required_argument, NULL, OPT_SEED},
	{"requests", required_argument, NULL, OPT_REQUESTS},
	{"profile", required_argument, NULL, OPT_PROFILE},
	{"context-ns", required_argument, NULL, OPT_CONTEXT},
	{"kv-tokens", required_argument, NULL, OPT_KV_TOKENS},
	{"block-size", required_argument, NULL, OPT_BLOCK},
	{"max-seqs", required_argument, NULL, OPT_SEQS},
	{"max-batched-tokens", required_argument, NULL, OPT_BATCHED},
	{"spread", no_argument, NULL, OPT_SPREAD},
	{"pause-ms", required_argument, NULL, OPT_PAUSE},
	{"list", no_argument, NULL, OPT_LIST},
	{"routers", required_argument, NULL, OPT_ROUTERS},
	{"sharing", required_argument, NULL, OPT_SHARING},
	{"redis-delay", required_argument, NULL, OPT_DELAY},
	{"sharing-interval", required_argument, NULL, OPT_INTERVAL},
	{"balance", required_argument, NULL, OPT_BALANCE},
	{"odd-peer", required_argument, NULL, OPT_ODD},
	{"ranks", required_argument, NULL, OPT_RANKS},
	{"pd", required_argument, NULL, OPT_PD},
	{"pd-whole", required_argument, NULL, OPT_PD_WHOLE},
	{"pd-rule", required_argument, NULL, OPT_PD_RULE},
	{"pd-gbytes", required_argument, NULL, OPT_PD_GBYTES},
	{"pd-fixed-ms", required_argument, NULL, OPT_PD_FIXED},
	{"pd-lease-s", required_argument, NULL, OPT_PD_LEASE},
	{"pd-wrong", required_argument, NULL, OPT_PD_WRONG},
	{"mp", required_argument, NULL, OPT_MP},
	{"mp-l1-gbytes", required_argument, NULL, OPT_MP_L1},
	{"mp-l2-gbytes", required_argument, NULL, OPT_MP_L2},
	{"mp-fixed-ms", required_argument, NULL, OPT_MP_FIXED},
	{"mp-prefetch", required_argument, NULL, OPT_MP_PREFETCH},
	{"repeat", required_argument, NULL, OPT_REPEAT},
	{"wave", required_argument, NULL, OPT_WAVE},
	{"waves", required_argument, NULL, OPT_WAVES},
	{"scale-by", required_argument, NULL, OPT_SCALE_BY},
	{"scale-behavior", required_argument, NULL, OPT_SCALE_BEHAVIOR},
	{"scale-least", required_argument, NULL, OPT_SCALE_LEAST},
	{"scale-start-s", required_argument, NULL, OPT_SCALE_START},
	{"config", required_argument, NULL, 'c'},
	{"help", no_argument, NULL, 'h'},
	{0},
};

static struct kvb_replay_options parse(int argc, char **argv)
{
	struct kvb_replay_options o = {.policy = "kvway",
		.scale = 1,
		.waves = 1,
		.repeat = 1,
		.context_ns = -1,
		.routers = {.count = 1,
			.shared = true,
			.interval_ns = 100000000,
			.life_ns = 2000000000,
			.delay_ns = 2000000,
			.lost_ns = INT64_MAX},
		.fleet = {.workers = 8,
			.ranks = 1,
			.scale = {.least = 1,
				.start_ns = 180000000000,
				.period_ns = 15000000000,
				.behavior = kvb_scale_behaviors},
			.profile = kvb_profile_find("reference-kv"),
			.block_size = 16,
			.max_batched_tokens = 8192,
			.max_seqs = 256,
			.mp = {.l1_bytes_per_ns = 20, .l2_bytes_per_ns = 2, .l2_fixed_ns = 5000000},
			.pd = {.whole = -1,
				.rule = kvb_pd_rules,
				.bytes_per_ns = 12.5,
				.fixed_ns = 30000000}}};
	int option;

	while ((option = getopt_long(argc, argv, "c:h", names, NULL)) != -1)
		take(&o, option, optarg);
	if (optind != argc || (!o.list && (o.trace == NULL) == (o.scenario == NULL)) ||
		o.fleet.profile == NULL || KVB_ID_TOKENS % o.fleet.block_size != 0 ||
		o.fleet.workers % o.fleet.ranks != 0 ||
		(o.retry != NULL && strcmp(o.retry, "on") != 0 && strcmp(o.retry, "off") != 0))
		take(&o, '?', NULL);
	if (o.fleet.kv_tokens == 0)
		o.fleet.kv_tokens = o.fleet.profile->kv_tokens;
	return o;
}

static struct kvw_config *load_config(const char *path)
{
	static const char *const workers[] = {"http://127.0.0.1:1"};
	struct kvw_config_flags flags = {.workers = workers, .worker_count = 1};
	struct kvw_config *config = NULL;
	enum kvw_err err = path != NULL ? kvw_config_load(path, kvw_strategies, stderr, &config)
					: kvw_config_from_flags(&flags, kvw_strategies, stderr, &config);

	if (err != KVW_OK)
		exit(2);
	return config;
}

/* Sets pd.whole as the router does: by the key, and false where the rule compares no prices. */
static void set_whole(struct kvb_pd_options *pd, const struct kvw_config *config)
{
	if (pd->whole < 0)
		pd->whole = config->pd_whole;
	if (pd->rule->threshold >= 0)
		pd->whole = 0;
}

static void make_jobs(struct kvb_replay_options *o, struct kvb_jobs *jobs)
{
	const struct kvb_scenario *scenario = NULL;
	struct kvb_trace trace;

	if (o->trace != NULL) {
		if (kvb_trace_load(o->trace, o->requests, &trace, stderr) != KVW_OK)
			exit(1);
		kvb_jobs_from_trace(jobs, &trace, o->scale);
		kvb_trace_finish(&trace);
		if (o->spread)
			kvb_jobs_spread(jobs);
		kvb_jobs_repeat(jobs, o->repeat);
		if (o->wave > 0)
			kvb_jobs_wave(jobs, o->wave, o->waves);
		kvb_jobs_pause(jobs, o->pause_ns);
		return;
	}
	scenario = kvb_scenario_find(o->scenario);
	if (scenario == NULL) {
		fprintf(stderr, "kvb-replay: no scenario %s; --list names them\n", o->scenario);
		exit(2);
	}
	scenario->make(jobs, o->scale, o->fleet.workers, o->seed);
	o->fleet.odd = scenario->odd;
	o->fleet.resets = scenario->resets;
}

/* Replaces policy and admission by those that stand for several routers with one of each. */
static void take_several(struct kvb_replay_options *o, const struct kvb_policy **policy,
	const struct kvb_admission **admission)
{
	static const struct kvb_policy policies = {"routers", &kvb_routers_ops, false, 0, ""};
	static const struct kvb_admission admissions = {"routers", &kvb_admission_routers_ops, false, 0, ""};

	if (o->routers.count == 1 && o->routers.odd == KVB_PEER_NONE)
		return;
	if (*policy == NULL || (strcmp(o->policy, "kvway") != 0 && strcmp(o->policy, "kvaware") != 0) ||
		(*admission != NULL && (*admission)->ops != NULL && strcmp(o->admission, "kvway") != 0)) {
		fprintf(stderr, "kvb-replay: --routers and --odd-peer are for kvway's policies and admission\n");
		exit(2);
	}
	o->routers.policy = *policy;
	*policy = &policies;
	if (*admission != NULL && (*admission)->ops != NULL) {
		o->routers.admission = *admission;
		*admission = &admissions;
	}
	o->fleet.routers = &o->routers;
}

/* Ends the program where workers cannot have these roles. */
static void check_pd(const struct kvb_replay_options *o, const struct kvb_policy *policy)
{
	const struct kvb_pd_options *pd = &o->fleet.pd;
	const char *why = NULL;

	if (!kvb_pd_on(pd))
		return;
	if (pd->prefillers == 0 || pd->prefillers + pd->decoders > o->fleet.workers ||
		pd->prefillers == o->fleet.workers)
		why = "expected one or more that prefill, others that do not, no more than there are";
	else if (policy == NULL || policy->ops->prefiller == NULL || policy->param > 0)
		why = "for policies kvway and round_robin";
	else if (o->admission != NULL || o->routers.count > 1 || o->routers.odd != KVB_PEER_NONE)
		why = "neither with an admission nor with several routers";
	else if (o->scenario != NULL && kvb_scenario_find(o->scenario) != NULL &&
		 kvb_scenario_find(o->scenario)->resets.every_ns > 0)
		why = "not with caches that are emptied";
	if (why == NULL)
		return;
	fprintf(stderr, "kvb-replay: --pd %" PRIu32 ":%" PRIu32 ": %s\n", pd->prefillers,
		pd->decoders, why);
	exit(2);
}

/* Ends the program where there cannot be LMCache servers: one watch has each engine. */
static void check_mp(const struct kvb_replay_options *o, const struct kvb_policy *policy)
{
	if (o->fleet.mp.l1_tokens == 0 ||
		(policy != NULL && strcmp(o->policy, "kvaware") != 0 && !kvb_pd_on(&o->fleet.pd) &&
			KVB_MP_CHUNK % o->fleet.block_size == 0 &&
			(o->scenario == NULL || kvb_scenario_find(o->scenario) == NULL ||
				kvb_scenario_find(o->scenario)->resets.every_ns == 0)))
		return;
	fprintf(stderr,
		"kvb-replay: --mp: neither with kvaware, --pd, nor with caches that are emptied, and "
		"with blocks that divide %u\n",
		KVB_MP_CHUNK);
	exit(2);
}

/* Ends the program where no autoscaler can work. */
static void check_scale(const struct kvb_replay_options *o)
{
	const struct kvb_scale_options *scale = &o->fleet.scale;
	const char *why = NULL;

	if (o->wave > 0 && o->trace == NULL)
		why = "--wave is for traces";
	else if (scale->signal == NULL)
		return;
	else if (scale->least > o->fleet.workers)
		why = "--scale-least: expected at most --workers";
	else if ((strcmp(o->policy, "kvway") != 0 && strcmp(o->policy, "kvaware") != 0) ||
		 o->admission == NULL || strcmp(o->admission, "kvway") != 0 ||
		 o->routers.count > 1 || kvb_pd_on(&o->fleet.pd) || o->fleet.ranks > 1)
		why = "--scale-by is for one kvway with its admission, and workers without roles or ranks";
	if (why == NULL)
		return;
	fprintf(stderr, "kvb-replay: %s\n", why);
	exit(2);
}

/* Ends the program where a worker's KV cache cannot hold each request alone. */
static void check_kv(const struct kvb_replay_options *o, const struct kvb_jobs *jobs)
{
	uint32_t room = o->fleet.kv_tokens / o->fleet.block_size * o->fleet.block_size;
	uint64_t longest = 0;

	for (size_t i = 0; i < jobs->count; i++) {
		uint64_t tokens = (uint64_t)jobs->items[i].input + jobs->items[i].output;

		longest = tokens > longest ? tokens : longest;
	}
	if (longest <= room)
		return;
	fprintf(stderr,
		"kvb-replay: --kv-tokens: found %" PRIu32 ", expected at least the %" PRIu64
		" tokens of the longest request (prompt and answer), in whole blocks of %" PRIu32
		"\n",
		o->fleet.kv_tokens, longest, o->fleet.block_size);
	exit(2);
}

int main(int argc, char **argv)
{
	struct kvb_replay_options o = parse(argc, argv);
	const struct kvb_policy *policy = kvb_policy_find(o.policy);
	const struct kvb_admission *admission =
		o.admission != NULL ? kvb_admission_find(o.admission) : NULL;
	uint64_t random = o.seed;
	double late = o.seed == 0 ? 1 : 1 / (1 + 0.008 * (2 * kvb_random(&random) - 1));
	struct kvb_replay_result result;
	struct kvw_config *config;
	struct kvb_jobs jobs = {0};

	if (o.list) {
		kvb_replay_print_list();
		return 0;
	}
	if (policy == NULL && strcmp(o.policy, "limit") != 0) {
		fprintf(stderr, "kvb-replay: no policy %s; --list names them\n", o.policy);
		return 2;
	}
	if (admission == NULL && o.admission != NULL) {
		fprintf(stderr, "kvb-replay: no admission %s; --list names them\n", o.admission);
		return 2;
	}
	if (admission != NULL && admission->ops != NULL && admission->ops->takes != NULL &&
		policy != NULL && policy->ops->done != NULL) {
		fprintf(stderr,
			"kvb-replay: --admission %s lets workers refuse; policy %s cannot take a "
			"choice back\n",
			o.admission, o.policy);
		return 2;
	}
	check_pd(&o, policy);
	check_mp(&o, policy);
	check_scale(&o);
	o.profile = *o.fleet.profile;
	if (o.context_ns >= 0)
		o.profile.context_ns = o.context_ns;
	o.fleet.profile = &o.profile;
	take_several(&o, &policy, &admission);
	config = load_config(o.config);
	set_whole(&o.fleet.pd, config);
	make_jobs(&o, &jobs);
	check_kv(&o, &jobs);
	jobs.retry = o.retry != NULL ? strcmp(o.retry, "on") == 0 : kvb_jobs_closed_loop(&jobs);
	if (policy == NULL)
		result = kvb_replay_limit(&o.fleet, &jobs, late);
	else
		result = kvb_replay_run(
			&o.fleet, &jobs, late, policy, admission, config, kvb_mix(o.seed));
	kvb_replay_print(&o, &result);
	kvb_replay_result_finish(&result);
	kvb_jobs_finish(&jobs);
	kvw_config_destroy(config);
	return 0;
}
