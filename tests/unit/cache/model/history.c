/*
 * history.c - random histories of a whole cache, through the public header only, against the
 * oracle.
 *
 * Presence is proved in two ways. In a roomy profile nothing is ever evicted, so whatever was put
 * must be found until it is erased, expires, or a fault may have hit it. In a tight one a chunk
 * must be found right after its put, and a pinned one as long as nothing else takes room.
 *
 * The cache's own events are a third witness. Copies are counted, as an engine's are: a chunk that
 * was erased under a lease leaves when the lease does, and may have been put again by then. A tier
 * never loses what it had not reported, memory shows nothing that was not reported, and in the end
 * all has left.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "history_parts.h"

static void quiet(void *self, uint32_t level, const char *line)
{
	(void)self;
	if (getenv("MODEL_LOG") != NULL)
		fprintf(stderr, "%u %s\n", level, line);
}

/* --- life ------------------------------------------------------------------------------------- */

static void open_cache(struct history *h)
{
	struct kvt_config config;
	enum kvt_status status;

	kvt_config_init(&config, sizeof(config));
	memset(config.fingerprint.bytes, 0x5a, sizeof(config.fingerprint.bytes));
	config.threads = KVT_THREADS_CALLER;
	config.l1_capacity = h->p->l1_capacity;
	config.l1_backing = "anon";
	if (h->p->policy != NULL)
		config.l1_policy = config.nvme_policy = h->p->policy;
	config.nvme_path = h->p->nvme_capacity > 0 ? "/store" : "";
	config.nvme_capacity = h->p->nvme_capacity;
	config.protect_keys = h->p->keys;
	config.ttl_ns = h->p->ttl_ns;
	config.fetch_when_slower = 1;
	config.tokens_per_chunk = 16;
	config.events_queue = 65536;
	config.clock = &h->clock;
	config.log = quiet;
	config.io = files_layer(h->files);
	status = kvt_open(&config, &h->k);
	if (status != KVT_OK)
		model_wrong(h, "open says %s", kvt_status_text(status));
	for (int t = 0; t < KVT_TIER_COUNT; t++)
		memset(h->told[t], 0, h->p->chains * h->p->depth * sizeof(int));
	h->sequence = 0;
	model_hear(h);
}

static void close_cache(struct history *h)
{
	for (int i = 0; i < LEASES; i++)
		model_let_go(h, &h->held[i]);
	for (int i = 0; i < RESERVATIONS; i++)
		if (h->filling[i].reservation != NULL)
			model_abort_filling(h, &h->filling[i]);
	model_hear(h);
	kvt_close(h->k);
	h->k = NULL;
}

static void do_reopen(struct history *h)
{
	bool crash = h->p->crashes && model_random_below(h, 2) == 0;
	/* a disk that fails may refuse what close would make durable */
	bool lossy = crash || h->faulty;

	if (model_random_below(h, 2) == 0)
		model_drain(h);
	if (crash)
		files_crash(h->files, model_random_below(h, 2) == 0,
			model_chance(h)); /* what close does comes too late */
	model_trace(h, "%s", crash ? "crash" : "clean");
	close_cache(h);
	files_go_on(h->files);
	h->faulty = false;
	oracle_excuse(&h->oracle, !h->p->faults);
	for (uint32_t id = 0; lossy && id < h->p->chains * h->p->depth; id++)
		if (model_entry(h, id)->oldest < model_entry(h, id)->generation) {
			/* its erase was not known to be durable */
			if (model_entry(h, id)->presence == GONE)
				model_entry(h, id)->presence = MAY;
			model_entry(h, id)->risen = true;
		}
	open_cache(h);
	model_do_survey(h);
}

static void do_faults(struct history *h)
{
	if (!h->p->faults)
		return;
	h->faulty = !h->faulty;
	files_faults(h->files, h->faulty);
	model_trace(h, "%s", h->faulty ? "begin" : "end");
	if (h->faulty)
		oracle_excuse(&h->oracle, false);
}

static const struct {
	const char *name;
	void (*run)(struct history *h);
	uint32_t weight;
} operations[] = {
	{"put", model_do_put, 220},
	{"reserve", model_do_reserve, 60},
	{"commit or abort", model_do_finish, 70},
	{"get", model_do_get, 200},
	{"async get", model_do_async, 40},
	{"release", model_do_release, 80},
	{"lookup", model_do_lookup, 80},
	{"survey", model_do_survey, 10},
	{"prefetch", model_do_prefetch, 30},
	{"pin", model_do_pin, 20},
	{"erase", model_do_erase, 25},
	{"erase tenant", model_do_erase_tenant, 3},
	{"reset", model_do_reset, 1},
	{"time", model_do_time, 30},
	{"step", model_do_steps, 100},
	{"drain", model_do_drain, 5},
	{"stats", model_do_stats, 5},
	{"reopen", do_reopen, 5},
	{"faults", do_faults, 4},
};
#define OPERATIONS (sizeof(operations) / sizeof(operations[0]))

static size_t choose(struct history *h)
{
	uint32_t total = 0, at;
	size_t i = 0;

	for (size_t o = 0; o < OPERATIONS; o++)
		total += operations[o].weight;
	at = model_random_below(h, total);
	while (at >= operations[i].weight)
		at -= operations[i++].weight;
	return i;
}

/* Everything is let go and erased: nothing may be left. */
static void check_the_end(struct history *h)
{
	struct kvt_stats stats = {.size = sizeof(stats)};

	h->doing = "the end";
	for (int i = 0; i < LEASES; i++)
		model_let_go(h, &h->held[i]);
	for (int i = 0; i < RESERVATIONS; i++)
		if (h->filling[i].reservation != NULL)
			model_abort_filling(h, &h->filling[i]);
	model_unpin_all(h);
	if (h->faulty)
		do_faults(h);
	/* a get that left early may have loads under way on a slow disk */
	model_pass_time(h, 4 * SECOND);
	model_do_reset(h);
	model_step_until_idle(h);
	model_hear(h);
	if (kvt_stats(h->k, &stats) != KVT_OK)
		model_wrong(h, "no stats");
	for (int t = 0; t < KVT_TIER_COUNT; t++) {
		if (stats.tiers[t].chunks != 0 || stats.tiers[t].payload != 0 ||
			stats.tiers[t].leased != 0)
			model_wrong(h, "tier %d is not empty: %" PRIu64 " chunks, %" PRIu64 " held",
				t, stats.tiers[t].chunks, stats.tiers[t].leased);
		for (uint32_t id = 0; id < h->p->chains * h->p->depth; id++)
			if (h->told[t][id] != 0)
				model_wrong(h, "tier %d never reported that chunk %u left", t, id);
	}
}

void history_run(const struct profile *profile, uint64_t seed)
{
	struct history h = {.p = profile,
		.seed = seed,
		.random = seed * UINT64_C(0xd1342543de82ef95) + 1,
		.doing = "open"};

	h.files = files_create(profile->nvme_capacity > 0, profile->crashes, seed);
	h.clock = files_clock(h.files);
	oracle_init(&h.oracle, profile->chains, profile->depth, profile->least, profile->most,
		profile->ttl_ns);
	for (int t = 0; t < KVT_TIER_COUNT; t++)
		h.told[t] = calloc((size_t)profile->chains * profile->depth, sizeof(int));
	open_cache(&h);
	for (h.operation = 0; h.operation < profile->operations; h.operation++) {
		size_t i = choose(&h);

		h.doing = operations[i].name;
		operations[i].run(&h);
		oracle_age(&h.oracle, model_now(&h));
		model_hear(&h);
	}
	check_the_end(&h);
	close_cache(&h);
	files_destroy(h.files);
	for (int t = 0; t < KVT_TIER_COUNT; t++)
		free(h.told[t]);
	oracle_finish(&h.oracle);
}
