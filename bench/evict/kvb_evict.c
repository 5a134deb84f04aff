/*
 * kvb_evict.c - a trace, or a made workload, through a tier of some size under one eviction policy.
 *
 * One JSON object on standard output, figures of one run; bench/run.sh evict runs many of these.
 */
#include <getopt.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/evict/evict_made.h"
#include "bench/evict/evict_run.h"
#include "policies/policy.h"

#define OPTIMUM "optimum"

static const char usage[] =
	"usage: kvb-evict (--trace FILE | --scenario NAME) [options]\n"
	"       kvb-evict --list\n"
	"\n"
	"  --policy NAME    eviction policy (default `default`); `optimum`: the offline optimum\n"
	"  --capacity X     of the tier, in percent of the different chunks (default 5)\n"
	"  --requests N     only the first N of the trace\n"
	"  --seed K         of a scenario (default 1)\n"
	"  --list           prints policies and scenarios\n";

struct options {
	const char *trace, *scenario, *policy;
	double capacity; /* percent */
	size_t requests;
	uint64_t seed;
	bool list;
};

enum { OPT_TRACE = 256, OPT_SCENARIO, OPT_POLICY, OPT_CAPACITY, OPT_REQUESTS, OPT_SEED, OPT_LIST };

/* Parses a number; ends the program unless it lies within low..high. */
static double number(const char *option, const char *text, double low, double high)
{
	char *end = NULL;
	const double value = strtod(text, &end);

	if (end == text || *end != '\0' || !(value >= low && value <= high)) {
		fprintf(stderr, "kvb-evict: %s: found %s, expected a number from %g to %g\n",
			option, text, low, high);
		exit(2);
	}
	return value;
}

static void take(struct options *o, int option, const char *text)
{
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
	case OPT_CAPACITY:
		o->capacity = number("--capacity", text, 1e-3, 100);
		break;
	case OPT_REQUESTS:
		o->requests = (size_t)number("--requests", text, 1, 1e9);
		break;
	case OPT_SEED:
		o->seed = (uint64_t)number("--seed", text, 0, 1e9);
		break;
	case OPT_LIST:
		o->list = true;
		break;
	default:
		fputs(usage, option == 'h' ? stdout : stderr);
		exit(option == 'h' ? 0 : 2);
	}
}

static struct options parse(int argc, char **argv)
{
	static const struct option names[] = {
		{"trace", required_argument, NULL, OPT_TRACE},
		{"scenario", required_argument, NULL, OPT_SCENARIO},
		{"policy", required_argument, NULL, OPT_POLICY},
		{"capacity", required_argument, NULL, OPT_CAPACITY},
		{"requests", required_argument, NULL, OPT_REQUESTS},
		{"seed", required_argument, NULL, OPT_SEED},
		{"list", no_argument, NULL, OPT_LIST},
		{"help", no_argument, NULL, 'h'},
		{0},
	};
	struct options o = {.policy = "default", .capacity = 5, .seed = 1};
	int option;

	while ((option = getopt_long(argc, argv, "h", names, NULL)) != -1)
		take(&o, option, optarg);
	if (optind != argc || (!o.list && (o.trace == NULL) == (o.scenario == NULL)))
		take(&o, '?', NULL);
	return o;
}

static void print(json_t *out)
{
	json_dumpf(out, stdout, JSON_COMPACT | JSON_REAL_PRECISION(8));
	putchar('\n');
	json_decref(out);
}

static void print_list(void)
{
	json_t *policies = json_array(), *scenarios = json_array();

	for (const char *const *name = kvt_policy_names(); *name != NULL; name++)
		json_array_append_new(policies, json_string(*name));
	for (const struct kvb_made *made = kvb_made; made->name != NULL; made++)
		json_array_append_new(
			scenarios, json_pack("{s:s, s:s}", "name", made->name, "what", made->what));
	print(json_pack("{s:o, s:s, s:o}", "policies", policies, "default",
		kvt_policy_named("default")->name, "scenarios", scenarios));
}

static void load(const struct options *o, struct kvb_trace *trace)
{
	const struct kvb_made *made = NULL;

	if (o->trace != NULL) {
		if (kvb_trace_load(o->trace, o->requests, trace, stderr) != KVW_OK)
			exit(1);
		return;
	}
	made = kvb_made_find(o->scenario);
	if (made == NULL) {
		fprintf(stderr, "kvb-evict: no scenario %s; --list names them\n", o->scenario);
		exit(2);
	}
	kvb_made_trace(made, o->seed, trace);
}

int main(int argc, char **argv)
{
	const struct options o = parse(argc, argv);
	struct kvb_trace trace = {0};
	struct kvb_evict_result r;
	uint64_t distinct, longest;
	uint32_t chunks;

	if (o.list) {
		print_list();
		return 0;
	}
	if (strcmp(o.policy, OPTIMUM) != 0 && kvt_policy_named(o.policy) == NULL) {
		fprintf(stderr, "kvb-evict: no policy %s; --list names them\n", o.policy);
		return 2;
	}
	load(&o, &trace);
	kvb_evict_count(&trace, &distinct, &longest);
	chunks = (uint32_t)((double)distinct * o.capacity / 100);
	if (chunks == 0)
		chunks = 1;
	if (strcmp(o.policy, OPTIMUM) == 0) {
		kvb_evict_optimum(&trace, chunks, &r);
	} else if (kvb_evict_run(&trace, o.policy, chunks, &r) != KVT_OK) {
		fprintf(stderr, "kvb-evict: no memory\n");
		return 1;
	}
	print(json_pack("{s:s, s:f, s:I, s:I, s:f, s:f, s:I, s:I, s:I, s:I, s:I}", "policy",
		o.policy, "capacity", o.capacity, "chunks", (json_int_t)chunks, "distinct",
		(json_int_t)distinct, "hit_rate", (double)r.hit / (double)r.asked, "saved",
		r.cost_hit / r.cost_asked, "evictions", (json_int_t)r.evictions, "refused",
		(json_int_t)r.refused, "longest", (json_int_t)longest, "metadata_bytes",
		(json_int_t)r.metadata_bytes, "ghost_bytes", (json_int_t)r.ghost_bytes));
	kvb_trace_finish(&trace);
	return 0;
}
