/*
 * problems_workers.c - finds what is wrong with workers: none is usable, one is out and why, one is
 * slower than its peers, or what it caches is not known.
 */
#include <stdio.h>
#include <string.h>

#include "feeds/sources.h"
#include "fleet/wake/wakes.h"
#include "status/problems.h"

#define ADMIN(problems) ((problems)->facts->admin)

/* --- the fleet --- */

/* Adds that the fleet is scaled to zero, or sleeps. False: it is neither, or requests would not
 * wake it. */
static bool add_fleet_asleep(struct kvw_problems *problems)
{
	const struct kvw_workers_now *workers = problems->facts->workers;
	const struct kvw_fleet *fleet = ADMIN(problems)->deps->fleet;
	const struct kvw_wake_model *model;

	for (size_t i = 0; i < workers->list.count; i++)
		if (workers->items[i].worker != NULL && !workers->items[i].leaves &&
			!kvw_worker_sleeps(workers->items[i].worker))
			return false;
	if (fleet->config->discovery_wake_hold_ms == 0 ||
		!kvw_wakes_any(fleet->wakes, fleet->config))
		return false;
	model = kvw_wakes_stuck(fleet->wakes, fleet->config->discovery_wake_hold_ms,
		problems->facts->now_ns);
	if (model != NULL)
		kvw_problem_add(problems, KVW_SEVERITY_ERROR, "no_worker", NULL,
			"All workers are asleep, and none could be woken.\n"
			"For %.200s the last call failed (the log says why), or no worker came "
			"within discovery.wake.hold.\n"
			"Look at discovery.wake.webhook, or at the `scale` of its pool.",
			model->name);
	else
		kvw_problem_add(problems, KVW_SEVERITY_NOTE, "no_worker", NULL,
			"All workers are asleep: the first request for a model wakes one, and "
			"waits for it.\n"
			"The fleet is scaled to zero or sleeps, and discovery.wake is on.\n"
			"Nothing, if it is meant so.");
	return true;
}

static void find_unusable_fleet(struct kvw_problems *problems)
{
	const struct kvw_workers_now *workers = problems->facts->workers;
	size_t out = 0;
	char why[300] = "";
	size_t used = 0;

	if (kvw_fleet_usable_count(ADMIN(problems)->deps->fleet) > 0 || add_fleet_asleep(problems))
		return;
	for (size_t i = 0; i < workers->list.count; i++) {
		struct kvw_worker *worker = workers->items[i].worker;

		if (worker == NULL || used >= sizeof(why) / 2)
			continue;
		used += (size_t)snprintf(why + used, sizeof(why) - used, "%s%.100s is %s",
			out++ == 0 ? "" : ", ", worker->url, kvw_worker_state_name(worker));
	}
	if (out == 0)
		kvw_problem_add(problems, KVW_SEVERITY_ERROR, "no_worker", NULL,
			"No worker can be used: requests get 503, or wait.\n"
			"There is none.\n"
			"Add one: kvway workers add URL, or list it in the configuration.");
	else
		kvw_problem_add(problems, KVW_SEVERITY_ERROR, "no_worker", NULL,
			"No worker can be used: requests get 503, or wait.\n"
			"%s.\n"
			"What to do about each stands with it.",
			why);
}

/* --- one worker that is out --- */

static void add_down(struct kvw_problems *problems, const struct kvw_worker *worker)
{
	const struct kvw_config *config = ADMIN(problems)->deps->fleet->config;
	const char *fault = worker->probe_fault;
	bool certificate = strcasestr(fault, "certificate") != NULL;

	kvw_problem_add(problems, KVW_SEVERITY_ERROR,
		certificate ? "worker_certificate" : "worker_down", worker->url,
		"%s is down: it gets no requests.\n"
		"GET %s there: %s.\n"
		"%s",
		worker->url, config->health_path, fault[0] == '\0' ? "no answer" : fault,
		certificate ? "Renew the worker's certificate if it has expired; "
			      "upstream.tls.ca_file says which authorities kvway trusts, "
			      "workers[].tls_server_name which name it must have."
			    : "Start it again, or look at its log. kvway goes on asking and takes "
			      "it back by itself.");
}

/* Adds that a worker sleeps, with the command that wakes it at this configuration's address. */
static void add_asleep(struct kvw_problems *problems, const struct kvw_worker_fact *fact)
{
	const struct kvw_config *config = ADMIN(problems)->deps->config;
	const char *trust = config->admin_tls_certificate;
	bool keys = ADMIN(problems)->deps->admin_auth != NULL, tls = trust[0] != '\0',
	     certified = tls && config->admin_tls_client_ca[0] != '\0' &&
			 config->admin_tls_client_certificate == KVW_CLIENT_CERTIFICATE_REQUIRED;

	kvw_problem_add(problems, KVW_SEVERITY_WARNING, "worker_asleep", fact->worker->url,
		"%s is asleep: it gets no requests.\n"
		"It is in vLLM's sleep mode, by its own metrics or by a request that went "
		"through kvway.\n"
		"Wake it: curl -X POST%s%s%s%s -H '%s' "
		"'%s://%s/broadcast/wake_up?workers=%.*s'%s%s.",
		fact->worker->url, tls ? " --cacert '" : "", trust, tls ? "'" : "",
		certified ? " --cert CLIENT.pem --key CLIENT.key" : "",
		keys ? "Authorization: Bearer KEY" : "X-Requested-With: curl",
		tls ? "https" : "http", config->admin_listen, (int)fact->id.len, fact->id.data,
		keys ? ", with a key of admin.keys_file as KEY" : "",
		certified ? ", with a certificate by admin.tls.client_ca as CLIENT" : "");
}

/* Adds why a worker gets no requests although it answers. */
static void add_barred(
	struct kvw_problems *problems, const struct kvw_worker_fact *fact, uint8_t barred)
{
	const char *url = fact->worker->url;
	int id_len = (int)fact->id.len;

	if ((barred & KVW_BARRED_NO_ADDRESS) != 0)
		kvw_problem_add(problems, KVW_SEVERITY_ERROR, "worker_no_address", url,
			"%s has no address: it gets no requests.\n"
			"Its name does not resolve.\n"
			"Look it up on this machine: getent hosts %s.",
			url, fact->worker->host);
	else if ((barred & KVW_BARRED_DRAINING) != 0 && fact->leaves)
		kvw_problem_add(problems, KVW_SEVERITY_NOTE, "worker_draining", url,
			"%s drains: it gets no new requests.\n"
			"No list names it any more: it leaves when its last request has ended.\n"
			"Nothing, if it shall go.",
			url);
	else if ((barred & KVW_BARRED_DRAINING) != 0)
		kvw_problem_add(problems, KVW_SEVERITY_NOTE, "worker_draining", url,
			"%s drains: it gets no new requests.\n"
			"The admin address lets it rest.\n"
			"Give it requests again: kvway workers undrain %.*s.",
			url, id_len, fact->id.data);
	else
		add_asleep(problems, fact);
}

static void find_out(struct kvw_problems *problems, const struct kvw_worker_fact *fact)
{
	const struct kvw_worker *worker = fact->worker;
	uint8_t barred = atomic_load(&worker->barred);

	if ((barred & KVW_BARRED_NO_ADDRESS) != 0 || (barred != 0 && kvw_worker_is_up(worker)))
		add_barred(problems, fact, barred);
	else if (!kvw_worker_is_up(worker))
		add_down(problems, worker);
	else if (kvw_stall_state(&worker->stall) != KVW_STALL_NONE)
		kvw_problem_add(problems, KVW_SEVERITY_ERROR, "worker_stalled", worker->url,
			"%s stands still: it gets no new requests.\n"
			"It has requests, sends nothing, and its counters do not move.\n"
			"Restart its engine. kvway has moved what it could.",
			worker->url);
	else if (!kvw_worker_usable(worker))
		kvw_problem_add(problems, KVW_SEVERITY_ERROR, "worker_ejected", worker->url,
			"%s is ejected: it gets one request at a time, to try it.\n"
			"It gave %llu bad answers: lost connections, timeouts, 5xx, or answers "
			"without a token.\n"
			"kvway trace --worker %.*s --status 5xx shows them; look at its log.",
			worker->url, (unsigned long long)atomic_load(&worker->ejection.bad),
			(int)fact->id.len, fact->id.data);
	else if (worker->probe_fault[0] != '\0')
		kvw_problem_add(problems, KVW_SEVERITY_WARNING, "probe_failed", worker->url,
			"%s did not answer its last probe; it still gets requests.\n"
			"GET %s there: %s.\n"
			"Nothing yet: after health.fall failed probes in a row it gets no more.",
			worker->url, ADMIN(problems)->deps->fleet->config->health_path,
			worker->probe_fault);
}

/* --- one worker that serves --- */

static void find_models_fault(struct kvw_problems *problems, const struct kvw_worker *worker)
{
	char fault[KVW_MODELS_FAULT_ROOM];

	if (!kvw_worker_is_up(worker) || !kvw_worker_models_fault(worker, fault))
		return;
	kvw_problem_add(problems, KVW_SEVERITY_ERROR, "models_unreadable", worker->url,
		"%s does not list its models: it gets requests for none.\n"
		"GET /v1/models there: %s.\n"
		"Set workers[].api_key if it asks for a key, or name its models in "
		"workers[].models.",
		worker->url, fault);
}

static void find_slow(struct kvw_problems *problems, const struct kvw_worker_fact *fact)
{
	int len = (int)fact->id.len;

	if (fact->slow[0] == '\0')
		return;
	kvw_problem_add(problems, KVW_SEVERITY_WARNING, "worker_slow", fact->worker->url,
		"%s is slower than its peers: %s.\n"
		"What kvway sees: %s.\n"
		"Compare the machine and the engine's flags with a peer's. Less load: kvway "
		"workers weight %.*s 0.5; none: kvway workers drain %.*s.",
		fact->worker->url, fact->slow, fact->slow_why, len, fact->id.data, len,
		fact->id.data);
}

/* Pairs of workers whose KV connector does not work: the decoder computes prompts again. */
static void find_recomputed(struct kvw_problems *problems, const struct kvw_worker *worker)
{
	struct kvw_moved moved = kvw_history_moved(problems->facts->history, worker);

	if (moved.recomputed < 4 || 2 * moved.recomputed < moved.transfers)
		return;
	kvw_problem_add(problems, KVW_SEVERITY_WARNING, "kv_not_transferred", worker->url,
		"%s computed %llu of %llu prompts again that were prefilled for it in the last 5 "
		"minutes.\n"
		"Its KV connector does not get them from the prefiller.\n"
		"Look at --kv-transfer-config of both, and at the network between them.",
		worker->url, (unsigned long long)moved.recomputed,
		(unsigned long long)moved.transfers);
}

/* --- what a worker caches --- */

static void add_unknown_cache(
	struct kvw_problems *problems, const struct kvw_worker *worker, const char *wrong)
{
	if (strstr(wrong, "no routed prompt is found") != NULL)
		kvw_problem_add(problems, KVW_SEVERITY_WARNING, "kvaware_no_match", worker->url,
			"kvaware never matches %s: its prompts are routed by text.\n"
			"LMCache names its chunks by another hash than kvway: %s.\n"
			"Set kvaware.lmcache.hash_seed to the engines' PYTHONHASHSEED, hash to "
			"their pre_caching_hash_algorithm, and chunk_size to theirs.",
			worker->url, wrong);
	else
		kvw_problem_add(problems, KVW_SEVERITY_WARNING, "kvaware_blind", worker->url,
			"What %s caches is not known: its prompts are routed by text.\n"
			"%s.\n"
			"Start the engine with --kv-events-config (publisher zmq, and a "
			"replay_endpoint), or LMCache's controller; the log says more (feed, "
			"lmcache).",
			worker->url, wrong[0] != '\0' ? wrong : "It reports nothing");
}

/* Finds a worker of which no reporter says all that it caches. */
static void find_blind(struct kvw_problems *problems, const struct kvw_worker *worker)
{
	struct kvw_feed *feed = ADMIN(problems)->deps->feed;
	char wrong[sizeof(((struct kvw_feed_status *)0)->wrong)] = "";

	if (feed == NULL || !kvw_worker_usable(worker))
		return;
	for (int reporter = KVW_REPORTER_COUNT; reporter-- > 0;) {
		struct kvw_feed_status status;

		if (kvw_feed_worker_status(
			    feed, worker->id, (enum kvw_reporter)reporter, &status) != KVW_OK)
			continue;
		if (status.coverage == KVW_COVERAGE_FULL)
			return;
		if (status.wrong[0] != '\0' && wrong[0] == '\0')
			memcpy(wrong, status.wrong, sizeof(wrong));
	}
	add_unknown_cache(problems, worker, wrong);
}

static void find_mispredicted(struct kvw_problems *problems, const struct kvw_worker *worker)
{
	const struct kvw_sources *sources = ADMIN(problems)->deps->sources;

	if (sources == NULL || !atomic_load(&sources->checks[worker->id].complained))
		return;
	kvw_problem_add(problems, KVW_SEVERITY_WARNING, "kvaware_mispredicted", worker->url,
		"Most predictions of what %s caches are wrong.\n"
		"Its events are another engine's, it hashes its blocks otherwise, or its tokens "
		"differ (another tokenizer or chat template).\n"
		"Look at workers[].events_endpoint, and at the line `most predictions are wrong` "
		"in the log.",
		worker->url);
}

void kvw_problems_of_workers(struct kvw_problems *problems)
{
	const struct kvw_workers_now *workers = problems->facts->workers;

	find_unusable_fleet(problems);
	for (size_t i = 0; i < workers->list.count; i++) {
		const struct kvw_worker_fact *fact = &workers->items[i];

		if (fact->worker == NULL)
			continue;
		find_out(problems, fact);
		find_models_fault(problems, fact->worker);
		find_slow(problems, fact);
		find_recomputed(problems, fact->worker);
		find_blind(problems, fact->worker);
		find_mispredicted(problems, fact->worker);
	}
}
