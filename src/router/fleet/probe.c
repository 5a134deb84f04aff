/*
 * probe.c - probes the workers and reports the results to the fleet.
 *
 * Each server has three asks (health, models, metrics), or four (bootstrap.h), however many
 * workers its data-parallel ranks are. An ask owns one curl handle, made again when the server's
 * addresses or health.path change, and one timer; it is either waiting for its timer or running,
 * never both:
 *
 *   timer fires -> start_ask() gives the handle to curl_loop -> finish_ask() reports to the
 *   fleet, sets the timer again
 *
 * Another, without a timer, verifies that a worker is awake. vLLM's metrics report that as soon as
 * /wake_up was called, even if ?tags= left a part asleep; /is_sleeping is true until all is awake.
 */
#include "fleet/probe.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/queue.h>

#include <event2/event.h>
#include <jansson.h>

#include "base/clock.h"
#include "fleet/curl_loop.h"
#include "base/log.h"
#include "base/random.h"
#include "fleet/bootstrap.h"
#include "fleet/probe_request.h"
#include "fleet/probe_share.h"
#include "fleet/scrape.h"

#define STAGGER_NS      KVW_NS_PER_MS /* delay between two workers in the first round */
#define FIRST_ROUND     1000
#define WANTED_POLL_MS  100           /* how often models_wanted is looked at */
#define STALL_READ_NS   KVW_NS_PER_S  /* time between readings of counters that may have stopped */
#define ASLEEP_READ_NS  KVW_NS_PER_S  /* ... of a sleeping worker, which may wake at any time */
#define FOREIGN_READ_NS KVW_NS_PER_S  /* ... of a worker where foreign requests wait, at least */
#define FOREIGN_EACH_NS (5 * KVW_NS_PER_MS) /* ... but at least this long for each worker */
/* a loop's wish for a new list is granted once per worker in this time */
#define WANTED_PAUSE_NS KVW_NS_PER_S
#define SCRAPE_LEAST_MS 10000         /* least timeout of the questions for models and metrics */
#define HEALTH_BODY     (64u << 10) /* so much of a health page is read, to empty the connection */

enum ask_kind {
	ASK_HEALTH,
	ASK_MODELS,
	ASK_METRICS,
	ASK_BOOTSTRAP,
	ASK_REPEATED,
	ASK_SLEEP = ASK_REPEATED,
	ASK_COUNT
};

static const char *const ask_names[ASK_COUNT] = {
	"health", "models", "metrics", "query", "is_sleeping"};

/* One kind of question to one worker; kinds before ASK_REPEATED are asked again and again. */
struct ask {
	struct target *target;
	enum ask_kind kind;
	struct kvw_probe_request request;
	CURL *easy; /* the handle in `request`; NULL: not made yet */
	uint32_t address_version; /* version of the worker's addresses when the handle was made */
	char *path;               /* the path with which the handle was made; owned */
	struct event *timer;
	bool running;
	int64_t started_ns; /* last start */
	char *body;         /* body of the running transfer; owned */
	size_t len, capacity;
	bool any_origin;    /* the answer allows web pages of all origins to read it */
	char error[CURL_ERROR_SIZE];
};

/* A probed server: one worker, or all its data-parallel ranks. */
struct target {
	struct kvw_prober *prober;
	struct kvw_worker *worker; /* rank 0, the lead; the worker of shares[0] */
	/* One share by rank, owned; NULL: that rank is not a worker. */
	struct kvw_probe_share *shares[KVW_RANKS_MOST];
	LIST_ENTRY(target) entry;
	struct ask asks[ASK_COUNT];
	bool first_done; /* a health probe has ended */
	bool failing;    /* the last health probe failed */
	bool unproven;          /* the start time is known only from a former process of kvway */
	bool asleep;            /* its metrics say that it sleeps; then its cache was lost */
	bool start_missed;      /* its metrics have no start time, which was logged once */
	/* Unusable files of upstream.tls were logged; cleared by a good probe. */
	bool files_complained;
};

struct kvw_prober {
	struct event_base *base;
	struct kvw_fleet *fleet;
	kvw_prober_ranks_fn *on_ranks; /* NULL: none */
	void *on_ranks_arg;
	struct kvw_curl_loop transfers;
	struct event *wanted;   /* polls models_wanted */
	LIST_HEAD(, target) targets;
	size_t added; /* number added since the start */
	size_t first_round_done;
	uint64_t random; /* state of the random jitter */
};

/* Returns the next share from *at on; NULL: there is none. */
static struct kvw_probe_share *next_share(const struct target *target, size_t *at)
{
	while (*at < KVW_RANKS_MOST)
		if (target->shares[(*at)++] != NULL)
			return target->shares[*at - 1];
	return NULL;
}

static void set_timer(struct event *timer, int64_t ns)
{
	struct timeval delay = {.tv_sec = ns / KVW_NS_PER_S, .tv_usec = ns % KVW_NS_PER_S / 1000};

	event_add(timer, &delay);
}

static int64_t interval_ns(const struct ask *ask)
{
	const struct kvw_config *config = ask->target->prober->fleet->config;

	switch (ask->kind) {
	case ASK_HEALTH:
		return config->health_interval_ms * KVW_NS_PER_MS;
	case ASK_MODELS:
		return config->health_models_interval_ms * KVW_NS_PER_MS;
	default:
		return config->health_metrics_interval_ms * KVW_NS_PER_MS;
	}
}

/* The first interval is random between half and a whole one, so that workers spread; later ones
 * vary by a tenth, so that they stay spread. */
static void schedule_next(struct ask *ask, bool first)
{
	double least = first ? 0.5 : 0.95, spread = first ? 0.5 : 0.1;
	double factor = least + spread * kvw_random_fraction(&ask->target->prober->random);

	if (ask->kind == ASK_HEALTH && ask->target->failing && !first)
		/* probes a failed worker sooner, to notice its return, or more failures, earlier */
		factor /= 4;
	set_timer(ask->timer, (int64_t)((double)interval_ns(ask) * factor));
}

static long timeout_ms(const struct ask *ask)
{
	int64_t ms = ask->target->prober->fleet->config->health_timeout_ms;

	if (ask->kind != ASK_HEALTH && ms < SCRAPE_LEAST_MS)
		ms = SCRAPE_LEAST_MS;
	return (long)ms;
}

/* --- results --- */

static void take_health(struct target *target, bool ok, const char *why)
{
	bool was_failing = target->failing;
	struct kvw_probe_share *share;

	if (!target->first_done)
		target->prober->first_round_done++;
	target->first_done = true;
	target->failing = !ok;
	for (size_t at = 0; (share = next_share(target, &at)) != NULL;)
		kvw_fleet_set_probe(target->prober->fleet, share->worker, ok, why);
	/* A worker that has come back may be another process: asks it at once. */
	if (!ok || !was_failing)
		return;
	kvw_rank_forget(target->worker);
	for (int kind = ASK_MODELS; kind < ASK_REPEATED; kind++)
		if (target->asks[kind].timer != NULL && !target->asks[kind].running)
			set_timer(target->asks[kind].timer, 0);
}

/* Logs that the worker's list cannot be read, if the fault differs from the last one. */
static void complain(struct target *target, unsigned fault, const char *why)
{
	if (atomic_exchange(&target->worker->models_fault, (uint16_t)fault) != fault)
		kvw_warn("probe",
			"cannot read /v1/models, so its models are not known url=%s error=\"%s%s\"",
			target->worker->url, why,
			fault == 401 || fault == 403
				? ": its api_key in kvway's configuration is missing or wrong"
				: "");
}

static void take_models(struct target *target, const struct ask *ask)
{
	struct kvw_model_names names;
	struct kvw_probe_share *share;
	enum kvw_err err = kvw_scrape_models(ask->body == NULL ? "" : ask->body, ask->len, &names);

	if (err != KVW_OK) {
		complain(target, KVW_MODELS_UNREADABLE,
			err == KVW_ENOMEM   ? "out of memory"
			: err == KVW_ELIMIT ? "too many or too long names"
					    : "not a list of models");
		return;
	}
	err = kvw_fleet_take_listed(target->prober->fleet, target->worker, &names, ask->started_ns);
	if (err != KVW_OK)
		complain(target, KVW_MODELS_UNREADABLE, "out of memory");
	else
		atomic_store(&target->worker->models_fault, 0);
	for (size_t at = 0; (share = next_share(target, &at)) != NULL;)
		atomic_store_explicit(
			&share->worker->any_origin, ask->any_origin, memory_order_relaxed);
}

/* Reports that the list cannot be read; not a timeout if health probes fail, too. */
static void refuse_models(struct target *target, long status, const char *why)
{
	if (status != 0)
		complain(target, (unsigned)status, why);
	else if (target->first_done && !target->failing && kvw_worker_is_up(target->worker))
		complain(target, KVW_MODELS_UNREADABLE, why);
}

static void take_sleep(struct target *target, bool asleep)
{
	struct kvw_probe_share *share;

	if (asleep && !target->asleep)
		kvw_fleet_cache_lost(target->prober->fleet, target->worker, "it sleeps");
	if (asleep != target->asleep)
		kvw_info("fleet", asleep ? "worker sleeps url=%s" : "worker is awake url=%s",
			target->worker->endpoint);
	for (size_t at = 0; (share = next_share(target, &at)) != NULL;)
		kvw_fleet_bar(target->prober->fleet, share->worker, KVW_BARRED_ASLEEP, asleep);
	target->asleep = asleep;
}

static void start_ask(struct ask *ask);

static bool is_asleep(const struct kvw_worker *worker)
{
	return (atomic_load_explicit(&worker->barred, memory_order_relaxed) & KVW_BARRED_ASLEEP) !=
	       0;
}

/* Reads the answer of /is_sleeping, which not all servers have: only "true" bars the worker. */
static void take_is_sleeping(struct target *target, const struct ask *ask, bool ok)
{
	json_t *answer =
		ok ? json_loadb(ask->body == NULL ? "" : ask->body, ask->len, 0, NULL) : NULL;
	bool asleep = json_is_true(json_object_get(answer, "is_sleeping"));

	json_decref(answer);
	if (ask->started_ns > atomic_load(&target->worker->sleep_said_ns))
		take_sleep(target, asleep);
}

/* Reads the metrics of a worker with foreign requests more often, since these change quickly. */
static void look_for_foreign(struct target *target, int64_t now_ns)
{
	const struct kvw_fleet *fleet = target->prober->fleet;
	struct ask *ask = &target->asks[ASK_METRICS];
	int64_t pause_ns = interval_ns(ask) / 10;
	struct kvw_probe_share *share;
	bool waits = false;

	for (size_t at = 0; (share = next_share(target, &at)) != NULL;)
		waits = kvw_probe_share_waits(
				share, target->prober->fleet,
				2 * interval_ns(ask) + KVW_NS_PER_S, now_ns) || waits;
	if (pause_ns < FOREIGN_READ_NS)
		pause_ns = FOREIGN_READ_NS;
	if (pause_ns < (int64_t)fleet->live * FOREIGN_EACH_NS)
		pause_ns = (int64_t)fleet->live * FOREIGN_EACH_NS;
	if (fleet->config->admission_enabled && waits && !ask->running &&
		now_ns - ask->started_ns >= pause_ns)
		start_ask(ask);
}

/* Handles a server that is another process than the one whose metrics were read before. */
static void take_restart(struct target *target)
{
	struct kvw_fleet *fleet = target->prober->fleet;
	struct kvw_probe_share *share;

	kvw_fleet_cache_lost(fleet, target->worker, "process_start_time_seconds changed");
	kvw_rank_forget(target->worker);
	for (size_t at = 0; (share = next_share(target, &at)) != NULL;) {
		kvw_ejection_hasten(&fleet->ejections, &share->worker->ejection, kvw_clock_ns());
		kvw_fleet_start_slowly(fleet, share->worker);
		kvw_foreign_restarted(&share->foreign);
		kvw_worker_set_kv_source(share->worker, KVW_SLICE(""));
	}
}

static void set_started(struct target *target, double started_s)
{
	struct kvw_probe_share *share;

	target->unproven = false;
	for (size_t at = 0; (share = next_share(target, &at)) != NULL;)
		atomic_store(&share->worker->started_s, started_s);
}

static void take_start_time(struct target *target, const struct kvw_scrape *scrape)
{
	double started_s = atomic_load(&target->worker->started_s);

	if (scrape->started_known) {
		if (started_s != 0 && scrape->started_s != started_s)
			take_restart(target);
		set_started(target, scrape->started_s);
	} else if (target->unproven && scrape->capacity_known) {
		set_started(target, 0);
		kvw_fleet_cache_lost(target->prober->fleet, target->worker,
			"its metrics do not say whether it is the process that kvway knew before "
			"its own restart");
	}
	if (!scrape->started_known && scrape->capacity_known && !target->start_missed) {
		target->start_missed = true;
		kvw_warn("probe",
			"/metrics has no process_start_time_seconds, as under several API servers: "
			"kvway learns of a restart only if a probe fails meanwhile url=%s",
			target->worker->endpoint);
	}
}

static void take_metrics(struct target *target, const struct ask *ask)
{
	struct kvw_prober *prober = target->prober;
	struct kvw_scrape_page page;

	kvw_scrape_ranks(ask->body == NULL ? "" : ask->body, ask->len, &page);
	take_start_time(target, &page.all);
	if (ask->started_ns > atomic_load(&target->worker->sleep_said_ns)) {
		if (!page.all.asleep && is_asleep(target->worker))
			start_ask(&target->asks[ASK_SLEEP]);
		else
			take_sleep(target, page.all.asleep);
	}
	if (target->worker->rank == KVW_RANK_NONE)
		kvw_probe_share_take(target->shares[0], prober->fleet, &page.all);
	else
		kvw_probe_shares_take(target->shares, prober->fleet, &page);
	if (page.rank_count > 0 && prober->on_ranks != NULL)
		prober->on_ranks(prober->on_ranks_arg, target->worker,
			page.more_ranks ? KVW_RANKS_MOST + 1 : (uint32_t)page.rank_count);
}

/* Returns whether the failure is kvway's own, and so no fault of the worker. */
static bool is_ours(struct ask *ask, CURLcode code, const char *why)
{
	struct target *target = ask->target;

	if (ask->request.lacking) {
		kvw_debug("probe", "no descriptor is left to ask kind=%s url=%s",
			ask_names[ask->kind], target->worker->url);
		return true;
	}
	/* libcurl reads the files each time; requests use the last valid contents. */
	if (code != CURLE_SSL_CERTPROBLEM && code != CURLE_SSL_CACERT_BADFILE)
		return false;
	if (!target->files_complained)
		kvw_warn("probe", "files of upstream.tls cannot be used url=%s error=\"%s\"",
			target->worker->url, why);
	target->files_complained = true;
	return true;
}

/* Records whether a failed probe only timed out. */
static void note_late(struct ask *ask, CURLcode code)
{
	struct target *target = ask->target;
	curl_off_t connected_us = 0;
	struct kvw_probe_share *share;

	curl_easy_getinfo(ask->easy, CURLINFO_CONNECT_TIME_T, &connected_us);
	for (size_t at = 0; (share = next_share(target, &at)) != NULL;)
		kvw_fleet_set_late(target->prober->fleet, share->worker,
			code == CURLE_OPERATION_TIMEDOUT && connected_us > 0);
}

/* status: 0: none. */
static void take_outcome(struct ask *ask, bool ok, long status, const char *why)
{
	struct target *target = ask->target;

	if (ask->kind == ASK_HEALTH)
		take_health(target, ok, why);
	else if (ask->kind == ASK_SLEEP)
		take_is_sleeping(target, ask, ok);
	else if (ask->kind == ASK_BOOTSTRAP)
		kvw_bootstrap_take(target->shares, target->prober->fleet->config,
			ok ? ask->body : NULL, ask->len);
	else if (!ok && ask->kind == ASK_MODELS)
		refuse_models(target, status, why);
	else if (!ok)
		kvw_debug("probe", "no answer kind=%s url=%s error=\"%s\"", ask_names[ask->kind],
			target->worker->url, why);
	else if (ask->kind == ASK_MODELS)
		take_models(target, ask);
	else
		take_metrics(target, ask);
}

static void finish_ask(void *user, CURLcode code)
{
	struct ask *ask = user;
	struct target *target = ask->target;
	bool first = ask->kind == ASK_HEALTH && !target->first_done;
	char why[CURL_ERROR_SIZE + 32];
	long status = 0;
	bool ok;

	ask->running = false;
	curl_easy_getinfo(ask->easy, CURLINFO_RESPONSE_CODE, &status);
	ok = code == CURLE_OK && status >= 200 && status < 300;
	if (code != CURLE_OK)
		snprintf(why, sizeof(why), "%s",
			ask->error[0] != '\0' ? ask->error : curl_easy_strerror(code));
	else
		snprintf(why, sizeof(why), "status %ld", status);
	if (ok && ask->kind == ASK_HEALTH)
		kvw_probe_request_connected(&ask->request, target->worker);
	if (ok)
		target->files_complained = false;
	if (!ok && ask->kind == ASK_HEALTH)
		note_late(ask, code);
	if (ok || !is_ours(ask, code, why))
		take_outcome(ask, ok, code == CURLE_OK ? status : 0, why);
	free(ask->body);
	ask->body = NULL;
	ask->len = ask->capacity = 0;
	if (ask->kind < ASK_REPEATED)
		schedule_next(ask, first);
}

/* --- transfers --- */

static size_t on_body(char *data, size_t size, size_t count, void *arg)
{
	struct ask *ask = arg;
	size_t len = size * count, limit = KVW_PROBE_MAX_BODY, capacity;
	char *body;

	if (ask->kind == ASK_HEALTH)
		limit = HEALTH_BODY;
	if (len > limit - ask->len)
		return 0; /* 0: libcurl ends the transfer with an error */
	if (ask->kind == ASK_HEALTH) {
		ask->len += len;
		return len;
	}
	if (len > ask->capacity - ask->len) {
		capacity = ask->capacity == 0 ? 16384 : ask->capacity;
		while (capacity - ask->len < len)
			capacity *= 2;
		body = realloc(ask->body, capacity);
		if (body == NULL)
			return 0;
		ask->body = body;
		ask->capacity = capacity;
	}
	memcpy(ask->body + ask->len, data, len);
	ask->len += len;
	return len;
}

/* Reads a header field of the answer to ASK_MODELS. */
static size_t on_field(char *line, size_t size, size_t count, void *arg)
{
	static const char name[] = "access-control-allow-origin:";
	struct ask *ask = arg;
	size_t len = size * count, at = sizeof(name) - 1;

	if (len < at || strncasecmp(line, name, at) != 0)
		return len;
	while (at < len && line[at] == ' ')
		at++;
	ask->any_origin = at < len && line[at] == '*';
	return len;
}

/* Sends an Origin that no server lists, so that only an answer for all origins allows it. */
static bool ask_as_page(struct ask *ask)
{
	struct curl_slist *headers = curl_slist_append(ask->request.headers, "Origin: null");

	return headers != NULL && /* `headers` stays the list's head */
	       curl_easy_setopt(ask->request.easy, CURLOPT_HEADERFUNCTION, on_field) == CURLE_OK &&
	       curl_easy_setopt(ask->request.easy, CURLOPT_HEADERDATA, ask) == CURLE_OK;
}

/* Makes the handle for the worker's present addresses and path. KVW_ENOTFOUND: no address. */
static enum kvw_err prepare_ask(struct ask *ask)
{
	struct kvw_worker *worker = ask->target->worker;
	const struct kvw_config *config = ask->target->prober->fleet->config;
	uint32_t version = atomic_load(&worker->address_version);
	const char *path = ask->kind == ASK_HEALTH   ? config->health_path
			   : ask->kind == ASK_MODELS ? "/v1/models"
			   : ask->kind == ASK_SLEEP  ? "/is_sleeping"
			   : ask->kind == ASK_BOOTSTRAP ? "/query"
						     : "/metrics";
	enum kvw_err err;

	if (ask->easy != NULL && ask->address_version == version && strcmp(ask->path, path) == 0)
		return KVW_OK;
	kvw_probe_request_finish(&ask->request);
	ask->easy = NULL;
	free(ask->path);
	ask->path = strdup(path);
	if (ask->path == NULL)
		return KVW_ENOMEM;
	err = kvw_probe_request_init(&ask->request, config, worker, path);
	if (err == KVW_OK && ask->kind == ASK_BOOTSTRAP)
		err = kvw_bootstrap_direct(&ask->request, config, worker);
	if (err != KVW_OK)
		return err;
	if (curl_easy_setopt(ask->request.easy, CURLOPT_WRITEFUNCTION, on_body) != CURLE_OK ||
		curl_easy_setopt(ask->request.easy, CURLOPT_WRITEDATA, ask) != CURLE_OK ||
		curl_easy_setopt(ask->request.easy, CURLOPT_ERRORBUFFER, ask->error) != CURLE_OK ||
		curl_easy_setopt(ask->request.easy, CURLOPT_PRIVATE, ask) != CURLE_OK ||
		(ask->kind == ASK_MODELS && !ask_as_page(ask)))
		return KVW_ENOMEM;
	ask->easy = ask->request.easy;
	ask->address_version = version;
	return KVW_OK;
}

static void start_ask(struct ask *ask)
{
	struct target *target = ask->target;
	struct kvw_probe_share *share;
	enum kvw_err err;

	if (ask->running)
		return;
	event_del(ask->timer);
	if ((ask->kind == ASK_MODELS && target->worker->models_given) ||
		(ask->kind == ASK_BOOTSTRAP &&
			!kvw_bootstrap_wanted(target->prober->fleet, target->worker))) {
		schedule_next(ask, false);
		return;
	}
	ask->error[0] = '\0';
	ask->request.lacking = false;
	ask->any_origin = false;
	ask->started_ns = kvw_clock_ns();
	for (size_t at = 0;
		ask->kind == ASK_METRICS && (share = next_share(target, &at)) != NULL;) {
		const struct kvw_load_sequences own = kvw_load_sequences(&share->worker->load);

		kvw_foreign_asked(&share->foreign, &own);
	}
	err = prepare_ask(ask);
	if (err == KVW_OK) {
		curl_easy_setopt(ask->easy, CURLOPT_TIMEOUT_MS, timeout_ms(ask));
		err = kvw_curl_loop_start(&target->prober->transfers, ask->easy);
	}
	if (err == KVW_OK) {
		ask->running = true;
		return;
	}
	if (err != KVW_ENOTFOUND)
		kvw_warn("probe", "cannot start kind=%s url=%s", ask_names[ask->kind],
			target->worker->url);
	else if (ask->kind == ASK_HEALTH)
		take_health(target, false, "its name does not resolve");
	if (ask->kind < ASK_REPEATED)
		schedule_next(ask, false);
}

static void on_ask_timer(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	start_ask(arg);
}

/* Judges workers that have been silent, and has their counters read once a second meanwhile. */
static void look_for_stall(struct target *target, int64_t now_ns)
{
	struct ask *ask = &target->asks[ASK_METRICS];
	struct kvw_probe_share *share;
	bool silent = false;

	if (is_asleep(target->worker) && !ask->running &&
		now_ns - ask->started_ns >= ASLEEP_READ_NS)
		start_ask(ask);
	for (size_t at = 0; (share = next_share(target, &at)) != NULL;)
		silent = kvw_probe_share_is_silent(share, target->prober->fleet, now_ns) || silent;
	if (silent && !ask->running && now_ns - ask->started_ns >= STALL_READ_NS)
		start_ask(ask);
}

static void on_wanted(evutil_socket_t fd, short what, void *arg)
{
	struct kvw_prober *prober = arg;
	struct target *target;
	int64_t now_ns = kvw_clock_ns();

	(void)fd;
	(void)what;
	LIST_FOREACH(target, &prober->targets, entry) {
		struct ask *ask = &target->asks[ASK_MODELS];
		_Atomic bool *wanted = &target->worker->models_wanted;

		look_for_stall(target, now_ns);
		look_for_foreign(target, now_ns);
		if (!atomic_load_explicit(wanted, memory_order_relaxed))
			continue;
		if (target->worker->models_given) {
			atomic_store_explicit(wanted, false, memory_order_relaxed);
			continue; /* the list of models is configured */
		}
		if (ask->running ||
			(now_ns - ask->started_ns < WANTED_PAUSE_NS &&
				ask->started_ns > atomic_load(&target->worker->models_changed_ns)))
			continue;
		atomic_store_explicit(wanted, false, memory_order_relaxed);
		start_ask(ask);
	}
}

/* --- setting up and taking down --- */

static enum kvw_err add_share(struct target *target, size_t at, struct kvw_worker *worker)
{
	return kvw_probe_share_create(worker, &target->shares[at]);
}

static void drop_share(struct target *target, size_t at)
{
	kvw_probe_share_destroy(target->shares[at]);
	target->shares[at] = NULL;
}

static void finish_target(struct target *target)
{
	for (int kind = 0; kind < ASK_COUNT; kind++) {
		struct ask *ask = &target->asks[kind];

		if (ask->running)
			kvw_curl_loop_abort(&target->prober->transfers, ask->easy);
		kvw_probe_request_finish(&ask->request);
		if (ask->timer != NULL)
			event_free(ask->timer);
		free(ask->body);
		free(ask->path);
	}
	for (size_t at = 0; at < KVW_RANKS_MOST; at++)
		drop_share(target, at);
	free(target);
}

/* Returns the target of the worker's endpoint; NULL: none. */
static struct target *find_target(struct kvw_prober *prober, const struct kvw_worker *worker)
{
	struct target *target;

	LIST_FOREACH(target, &prober->targets, entry)
		if (target->worker == worker->lead)
			return target;
	return NULL;
}

/* Returns the index of the worker's share. */
static size_t place_of(const struct kvw_worker *worker)
{
	return worker->rank == KVW_RANK_NONE ? 0 : (size_t)worker->rank;
}

static enum kvw_err add_target(struct kvw_prober *prober, struct kvw_worker *worker)
{
	/* The first round is spread a little; later ones spread by jitter. */
	int64_t delay_ns = (int64_t)(prober->added % FIRST_ROUND) * STAGGER_NS;
	struct target *target = calloc(1, sizeof(*target));
	enum kvw_err err;

	if (target == NULL)
		return KVW_ENOMEM;
	target->prober = prober;
	target->worker = worker;
	target->unproven = atomic_load(&worker->started_s) != 0;
	err = add_share(target, 0, worker);
	for (int kind = 0; kind < ASK_COUNT && err == KVW_OK; kind++) {
		struct ask *ask = &target->asks[kind];

		ask->target = target;
		ask->kind = (enum ask_kind)kind;
		ask->timer = event_new(prober->base, -1, 0, on_ask_timer, ask);
		if (ask->timer == NULL)
			err = KVW_ENOMEM;
		else if (kind < ASK_REPEATED)
			set_timer(ask->timer, delay_ns);
	}
	if (err != KVW_OK) {
		finish_target(target);
		return err;
	}
	prober->added++;
	LIST_INSERT_HEAD(&prober->targets, target, entry);
	return KVW_OK;
}

enum kvw_err kvw_prober_add(struct kvw_prober *prober, struct kvw_worker *worker)
{
	struct target *target;

	if (worker->lead == worker)
		return add_target(prober, worker);
	target = find_target(prober, worker);
	return target == NULL ? KVW_ENOTFOUND : add_share(target, place_of(worker), worker);
}

void kvw_prober_remove(struct kvw_prober *prober, struct kvw_worker *worker)
{
	struct target *target = find_target(prober, worker);

	if (target == NULL)
		return;
	if (worker->lead != worker) {
		drop_share(target, place_of(worker));
		return;
	}
	LIST_REMOVE(target, entry);
	finish_target(target);
}

void kvw_prober_hurry(struct kvw_prober *prober, struct kvw_worker *worker)
{
	struct target *target = find_target(prober, worker);

	for (int kind = 0; target != NULL && kind < ASK_REPEATED; kind++)
		if (target->asks[kind].timer != NULL && !target->asks[kind].running)
			set_timer(target->asks[kind].timer, 0);
}

void kvw_prober_on_ranks(struct kvw_prober *prober, kvw_prober_ranks_fn *fn, void *arg)
{
	prober->on_ranks = fn;
	prober->on_ranks_arg = arg;
}

static enum kvw_err init_events(struct kvw_prober *prober)
{
	const struct timeval poll = {.tv_usec = WANTED_POLL_MS * 1000};
	enum kvw_err err = kvw_curl_loop_init(&prober->transfers, prober->base, finish_ask);

	if (err != KVW_OK)
		return err;
	prober->wanted = event_new(prober->base, -1, EV_PERSIST, on_wanted, prober);
	return prober->wanted != NULL && event_add(prober->wanted, &poll) == 0 ? KVW_OK
									       : KVW_ENOMEM;
}

enum kvw_err kvw_prober_create(
	struct event_base *base, struct kvw_fleet *fleet, struct kvw_prober **out)
{
	struct kvw_prober *prober = calloc(1, sizeof(*prober));
	enum kvw_err err;

	if (prober == NULL)
		return KVW_ENOMEM;
	prober->base = base;
	prober->fleet = fleet;
	prober->random = (uint64_t)kvw_clock_ns();
	LIST_INIT(&prober->targets);
	err = init_events(prober);
	for (int follow = 0; follow < 2; follow++) /* leads first */
		for (size_t i = 0; i < fleet->count && err == KVW_OK; i++) {
			struct kvw_worker *worker = kvw_fleet_worker(fleet, i);

			if (worker != NULL && (worker->lead != worker) == follow)
				err = kvw_prober_add(prober, worker);
		}
	if (err == KVW_OK)
		*out = prober;
	else
		kvw_prober_destroy(prober);
	return err;
}

void kvw_prober_destroy(struct kvw_prober *prober)
{
	if (prober == NULL)
		return;
	while (!LIST_EMPTY(&prober->targets))
		kvw_prober_remove(prober, LIST_FIRST(&prober->targets)->worker);
	kvw_curl_loop_finish(&prober->transfers);
	if (prober->wanted != NULL)
		event_free(prober->wanted);
	free(prober);
}

size_t kvw_prober_first_round_done(const struct kvw_prober *prober)
{
	return prober->first_round_done;
}
