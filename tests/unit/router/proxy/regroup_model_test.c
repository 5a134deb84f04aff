/*
 * regroup_model_test.c - requests are divided among groups while weights, groups and workers change, compared with a
 * naive model of what each step means.
 *
 * The model keeps, by model and group, the file's weight and the one that counts, and which workers are up. From that
 * follows for each request: which groups may have it, in which order it would ask them, and what metrics must show.
 * What the order of all groups is by itself, tests of routing/group_choice.h say; here a session is compared with
 * itself before the step.
 */
#include <check.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "admin/groups_patch.h"
#include "admin/metrics_shard.h"
#include "base/random.h"
#include "config/model_groups.h"
#include "fleet/fleet_internal.h"
#include "proxy/exchange.h"
#include "proxy/groups.h"
#include "proxy/loop.h"
#include "routing/group_choice.h"
#include "tests/unit/steps.h"
#include "tests/unit/suite.h"

#define MODELS    2
#define GROUPS    6 /* g0.. of each model, with worker w0.. each */
#define SESSIONS  30
#define HISTORIES 60
#define STEPS     14
#define FRESH     300

static const char *const models[MODELS] = {"alpha", "beta"};
static const char *const names[GROUPS] = {"g0", "g1", "g2", "g3", "g4", "g5"};
static const double choices[] = {0, 0.5, 1, 3, 10, 90};

/* A group as the model has it. */
struct entry {
	bool there, renames;
	double file, now; /* weights */
	uint64_t chosen;  /* requests that it got */
	const struct kvw_gate *gate; /* NULL: not seen yet */
};

static struct entry table[MODELS][GROUPS];
static bool up[GROUPS];
static bool falls; /* groups.no_worker: others */

static struct kvw_config *config, *config_before;
static struct kvw_strategy *strategy;
static struct kvw_fleet *fleet;
static struct kvw_metrics *metrics;
static struct kvw_account memory;
static struct kvw_shared shared;
static struct kvw_loop loop;
static struct kvw_in_force *in_force_before;
static struct kvw_scan *scan;
static struct kvw_exchange x;
static uint64_t seed;

static uint32_t below(uint32_t limit)
{
	return kvw_random_below(&seed, limit);
}

/* --- the configuration --- */

static size_t write_groups(char *text, size_t room)
{
	size_t len = (size_t)snprintf(text, room, "groups: {no_worker: %s}\nmodel_groups:\n", falls ? "others" : "refuse");
	size_t first = below(MODELS * GROUPS); /* the order of the list says nothing */

	for (size_t i = 0; i < MODELS * GROUPS; i++) {
		size_t model = (first + i) % (MODELS * GROUPS) / GROUPS, group = (first + i) % GROUPS;
		const struct entry *entry = &table[model][group];

		if (entry->there)
			len += (size_t)snprintf(text + len, room - len,
				"  - {model: %s, group: %s, weight: %g, workers: [w%zu]%s%s%s}\n", models[model],
				names[group], entry->file, group, entry->renames ? ", to: " : "",
				entry->renames ? models[model] : "", entry->renames ? "-next" : "");
	}
	return len;
}

static struct kvw_config *read_config(void)
{
	struct kvw_config *made = NULL;
	char text[4096];
	size_t len = write_groups(text, sizeof(text));

	len += (size_t)snprintf(text + len, sizeof(text) - len, "routing: {strategy: roundrobin}\nworkers:\n");
	for (size_t i = 0; i < GROUPS; i++)
		len += (size_t)snprintf(text + len, sizeof(text) - len,
			"  - {url: \"http://127.0.0.1:%zu\", group: w%zu, models: [alpha, alpha-next, beta, beta-next]}\n",
			9000 + i, i);
	ck_assert_msg(kvw_config_parse("test", text, len, kvw_strategies, stderr, &made) == KVW_OK, "%s", text);
	return made;
}

/* What a file may say: each model has groups, one of them with a weight. */
static void draw_model(size_t model)
{
	double sum = 0;

	while (sum == 0)
		for (size_t i = 0; i < GROUPS; i++) {
			struct entry *entry = &table[model][i];

			entry->there = below(4) > 0;
			entry->renames = below(3) == 0;
			entry->file = choices[below(6)];
			entry->now = entry->file;
			sum += entry->there ? entry->file : 0;
		}
}

static void put_in_force(void)
{
	in_force_before = loop.in_force;
	ck_assert_int_eq(kvw_in_force_begin(&loop, config, strategy), KVW_OK);
}

static void drop_before(void)
{
	free(in_force_before);
	kvw_config_destroy(config_before);
	in_force_before = NULL;
	config_before = NULL;
}

/* --- steps --- */

/* A model's groups and weights in the file are the same: what PATCH has set stays. */
static void reload(void)
{
	struct entry was[MODELS][GROUPS];

	memcpy(was, table, sizeof(was));
	for (size_t m = 0; m < MODELS; m++) {
		bool same = true;

		if (below(2) == 0)
			draw_model(m);
		for (size_t i = 0; i < GROUPS; i++)
			same = same && table[m][i].there == was[m][i].there &&
			       (!was[m][i].there || table[m][i].file == was[m][i].file);
		for (size_t i = 0; i < GROUPS; i++)
			table[m][i].now = same ? was[m][i].now : table[m][i].file;
	}
	drop_before();
	config_before = config;
	config = read_config();
	kvw_model_groups_keep(config_before, config);
	put_in_force();
}

static void patch(void)
{
	size_t m = below(MODELS), len;
	bool odd = below(4) == 0, any = false;
	double sum = 0, new[GROUPS];
	struct kvw_groups_patch read;
	char text[1024], why[160];
	int status;

	len = (size_t)snprintf(text, sizeof(text), "{\"weights\": {");
	for (size_t i = 0; i < GROUPS; i++) {
		const struct entry *entry = &table[m][i];

		new[i] = entry->now;
		if (!entry->there)
			continue;
		if (below(2) == 0) {
			bool file = below(4) == 0;

			new[i] = file ? entry->file : odd ? 0 : choices[below(6)];
			len += (size_t)snprintf(text + len, sizeof(text) - len, any ? ", \"%s\": " : "\"%s\": ", names[i]);
			len += (size_t)snprintf(text + len, sizeof(text) - len, file ? "null" : "%g", new[i]);
			any = true;
		}
		sum += new[i];
	}
	len += (size_t)snprintf(text + len, sizeof(text) - len, "}, \"model\": \"%s\"}", models[m]);
	status = kvw_groups_patch_read(config, (struct kvw_slice){text, len}, &read, why);
	ck_assert_msg(status == (any && sum > 0 ? 200 : 400), "%s: %d", text, status);
	if (status != 200)
		return;
	kvw_groups_patch_apply(&read);
	for (size_t i = 0; i < GROUPS; i++)
		table[m][i].now = new[i];
}

static void worker_changes(void)
{
	size_t i = below(GROUPS);

	up[i] = !up[i];
	atomic_store(&fleet->workers[i]->barred, up[i] ? 0 : KVW_BARRED_DRAINING);
	kvw_fleet_changed(&fleet->changes);
}

static void all_up(void)
{
	for (size_t i = 0; i < GROUPS; i++) {
		up[i] = true;
		atomic_store(&fleet->workers[i]->barred, 0);
	}
	kvw_fleet_changed(&fleet->changes);
}

/* --- requests --- */

static void request(size_t model, const char *session, const char *wish)
{
	char body[128];
	size_t len = (size_t)snprintf(body, sizeof(body),
		"{\"model\":\"%s\",\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}", models[model]);

	memset(&x, 0, sizeof(x));
	x.loop = &loop;
	x.in_force = loop.in_force;
	x.config = loop.config;
	x.whole = x.scanned = true;
	x.scan = scan;
	x.request_id = KVW_SLICE("request");
	x.division.wish = kvw_slice_of(wish);
	kvw_scan_reset(scan, KVW_API_CHAT);
	kvw_scan_feed(scan, body, len);
	ck_assert_int_eq(kvw_scan_finish(scan, &x.route), KVW_OK);
	x.route.session = kvw_slice_of(session);
	kvw_groups_divide(&x);
}

static size_t group_of(const struct kvw_model_group *group)
{
	return group == NULL ? GROUPS : (size_t)(group->group[1] - '0');
}

static double weight_of(size_t model, size_t group)
{
	return table[model][group].there ? table[model][group].now : 0;
}

/* The first in the request's order of those that have a weight and are not left out; GROUPS: none. */
static size_t first_of(size_t model, bool up_only, size_t without)
{
	struct kvw_group_share shares[GROUPS];
	uint8_t order[KVW_GROUPS_MOST];

	for (size_t i = 0; i < GROUPS; i++)
		shares[i] = (struct kvw_group_share){kvw_group_key(names[i]),
			i == without || (up_only && !up[i]) ? 0 : weight_of(model, i)};
	return kvw_group_order(shares, GROUPS, x.division.key, order) > 0 ? order[0] : GROUPS;
}

static void check_gate(struct entry *entry, size_t model, size_t group)
{
	const struct kvw_gate *gate;

	ck_assert(kvw_gates_enter(&x));
	gate = x.admission.gate;
	kvw_gates_exit(&x);
	if (entry->gate == NULL) {
		for (size_t m = 0; m < MODELS; m++)
			for (size_t i = 0; i < GROUPS; i++)
				ck_assert_msg(table[m][i].gate != gate, "%s/%s has the gate of %s/%s", models[model],
					names[group], models[m], names[i]);
		entry->gate = gate;
	}
	ck_assert_msg(entry->gate == gate, "another gate than before: %s/%s", models[model], names[group]);
}

/* Returns the group. */
static size_t ask(size_t model, const char *session, size_t wish)
{
	size_t wanted, got;
	enum kvw_group_by by = KVW_GROUP_BY_SESSION;
	struct entry *entry;

	request(model, session, wish < GROUPS ? names[wish] : "");
	got = group_of(x.division.group);
	if (wish < GROUPS) {
		by = KVW_GROUP_BY_HEADER;
		wanted = table[model][wish].there ? wish : GROUPS;
		ck_assert_int_eq(x.division.fault, wanted == GROUPS ? KVW_GROUP_UNKNOWN : KVW_GROUP_GOOD);
	} else {
		size_t first = first_of(model, false, GROUPS), next = falls ? first_of(model, true, GROUPS) : first;

		wanted = next < GROUPS ? next : first;
		by = wanted != first ? KVW_GROUP_BY_FALLBACK : by;
	}
	ck_assert_msg(got == wanted, "%s of %s: group %zu, expected %zu", session, models[model], got, wanted);
	if (got == GROUPS)
		return got;
	entry = &table[model][got];
	entry->chosen++;
	ck_assert_int_eq(x.division.by, by);
	ck_assert_str_eq(x.division.group->model, models[model]);
	ck_assert(kvw_slice_equal(x.route.model, kvw_slice_of(x.division.group->serves)));
	ck_assert(wish < GROUPS || entry->now > 0);
	check_gate(entry, model, got);
	wanted = falls && wish == GROUPS ? first_of(model, true, got) : GROUPS;
	ck_assert_uint_eq(group_of(kvw_groups_other(&x, NULL)), wanted);
	return got;
}

/* --- what must hold after each step --- */

static uint64_t shown(size_t model, size_t group)
{
	uint64_t sum = 0, places = 0;

	for (size_t i = 0; i < KVW_GROUP_NAMES; i++) {
		const char *name = atomic_load(&metrics->groups.names[i]);
		const struct kvw_group_cell *cell = atomic_load(&metrics->shards[0].group_cells[i]);

		if (name == NULL || strcmp(name, models[model]) != 0 ||
			strcmp(name + strlen(name) + 1, names[group]) != 0)
			continue;
		places++;
		for (size_t by = 0; cell != NULL && by < KVW_GROUP_BY_COUNT; by++)
			sum += atomic_load(&cell->chosen[by]);
	}
	ck_assert_uint_le(places, 1);
	return sum;
}

static void check_metrics(void)
{
	ck_assert_ptr_null(atomic_load(&metrics->shards[0].group_cells[KVW_GROUP_OTHER]));
	for (size_t m = 0; m < MODELS; m++)
		for (size_t i = 0; i < GROUPS; i++)
			ck_assert_uint_eq(shown(m, i), table[m][i].chosen);
}

/* Where all workers are up before and after: a session leaves its group only for one whose weight has grown by more
 * than that of its own. */
static void check_moves(struct entry was[MODELS][GROUPS], size_t model, size_t before, size_t now)
{
	double own = was[model][before].there ? was[model][before].now : 0;
	double other = was[model][now].there ? was[model][now].now : 0;

	if (before != now)
		ck_assert_msg(weight_of(model, now) * own > weight_of(model, before) * other,
			"%s went from %s (%g, now %g) to %s (%g, now %g)", models[model], names[before], own,
			weight_of(model, before), names[now], other, weight_of(model, now));
}

static void check_shares(uint64_t history)
{
	for (size_t m = 0; m < MODELS; m++) {
		size_t got[GROUPS + 1] = {0};
		double sum = 0;

		for (size_t i = 0; i < FRESH; i++) {
			char session[48];

			(void)snprintf(session, sizeof(session), "fresh %llu %zu", (unsigned long long)history, i);
			got[ask(m, session, GROUPS)]++;
		}
		for (size_t i = 0; i < GROUPS; i++)
			sum += weight_of(m, i);
		for (size_t i = 0; i < GROUPS; i++) {
			double share = weight_of(m, i) / sum, expected = FRESH * share;

			ck_assert_msg(fabs((double)got[i] - expected) <= 6 * sqrt(expected * (1 - share)) + 1e-6,
				"%s/%s: %zu of %d, expected %.1f", models[m], names[i], got[i], FRESH, expected);
		}
	}
}

static void one_history(uint64_t history)
{
	size_t at[MODELS][SESSIONS];
	bool whole = true;

	falls = below(2) == 0;
	all_up();
	reload();
	for (size_t step = 0; step <= STEPS; step++) {
		struct entry was[MODELS][GROUPS];
		uint32_t kind = below(8);
		bool whole_before = whole;

		memcpy(was, table, sizeof(was));
		if (step > 0 && kind < 3)
			reload();
		else if (step > 0 && kind < 6)
			patch();
		else if (step > 0 && kind == 6)
			worker_changes();
		else if (step > 0)
			all_up();
		whole = !falls;
		for (size_t i = 0; i < GROUPS && !whole; i++)
			whole = up[i] ? i == GROUPS - 1 : (i = GROUPS, false);
		for (size_t m = 0; m < MODELS; m++)
			for (size_t i = 0; i < SESSIONS; i++) {
				char session[48];
				size_t now;

				(void)snprintf(session, sizeof(session), "%llu %zu", (unsigned long long)history, i);
				now = ask(m, session, GROUPS);
				if (step > 0 && whole && whole_before)
					check_moves(was, m, at[m][i], now);
				at[m][i] = now;
			}
		(void)ask(below(MODELS), "tester", below(GROUPS));
		check_metrics();
	}
	all_up();
	check_shares(history);
}

static void begin(void)
{
	static const struct kvw_scan_options options;

	for (size_t m = 0; m < MODELS; m++)
		draw_model(m);
	config = read_config();
	ck_assert_int_eq(kvw_strategy_find("roundrobin")->create(&(struct kvw_strategy_options){.seed = 1}, &strategy),
		KVW_OK);
	ck_assert_int_eq(kvw_fleet_create(config, 1, stderr, &fleet), KVW_OK);
	ck_assert_int_eq(kvw_metrics_create(1, fleet, &metrics), KVW_OK);
	ck_assert_int_eq(kvw_shared_init(&shared, config, &memory), KVW_OK);
	ck_assert_int_eq(kvw_scan_create(&options, &scan), KVW_OK);
	loop.shared = &shared;
	loop.fleet = fleet;
	loop.metrics = kvw_metrics_shard(metrics, 0);
	loop.candidates.items = calloc(KVW_MAX_WORKERS, sizeof(loop.candidates.items[0]));
	ck_assert_ptr_nonnull(loop.candidates.items);
	put_in_force();
}

static void end(void)
{
	drop_before();
	kvw_in_force_end(&loop);
	kvw_gates_finish(&loop.gates);
	free(loop.candidates.items);
	kvw_scan_destroy(scan);
	kvw_shared_finish(&shared);
	kvw_metrics_destroy(metrics);
	kvw_fleet_destroy(fleet);
	strategy->ops->destroy(strategy);
	kvw_config_destroy(config);
}

START_TEST(histories)
{
	begin();
	for (uint64_t i = 0; i < kvt_test_steps(HISTORIES); i++) {
		seed = i + 1;
		one_history(i);
	}
	end();
}
END_TEST

/* Weights go from one group to the other and back while a loop reads them. */
static _Atomic bool ending;

/* NULL: it could not. */
static void *exchange_weights(void *arg)
{
	static const char *const bodies[] = {"{\"model\":\"alpha\",\"weights\":{\"g0\":0,\"g1\":1}}",
		"{\"model\":\"alpha\",\"weights\":{\"g0\":1,\"g1\":0}}"};
	struct kvw_groups_patch patches[2];
	char why[160];

	(void)arg;
	for (size_t i = 0; i < 2; i++)
		if (kvw_groups_patch_read(config, kvw_slice_of(bodies[i]), &patches[i], why) != 200)
			return NULL;
	for (size_t i = 0; !atomic_load(&ending); i++)
		kvw_groups_patch_apply(&patches[i % 2]);
	return &ending;
}

START_TEST(no_moment_has_no_group)
{
	pthread_t thread;
	void *good;

	begin();
	memset(table, 0, sizeof(table));
	falls = false;
	table[0][0] = table[0][1] = table[1][0] = (struct entry){.there = true, .file = 1};
	table[0][1].file = 0;
	drop_before();
	config_before = config;
	config = read_config();
	put_in_force();
	ck_assert_int_eq(pthread_create(&thread, NULL, exchange_weights, NULL), 0);
	for (uint64_t i = 0; i < kvt_test_steps(40000); i++) {
		request(0, "session", "");
		ck_assert_ptr_nonnull(x.division.group);
	}
	atomic_store(&ending, true);
	pthread_join(thread, &good);
	ck_assert_ptr_nonnull(good);
	end();
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("regroup-model");

	tcase_set_timeout(tcase, 120);
	tcase_add_test(tcase, histories);
	tcase_add_test(tcase, no_moment_has_no_group);
	return run_tcase("regroup-model", tcase);
}
