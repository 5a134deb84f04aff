/*
 * kubernetes_source.c - workers from the API of Kubernetes (`discovery.kubernetes`).
 *
 * Each pool lists its objects, page by page, and then watches them from the version of that list.
 * Every discovery.kubernetes.relist it lists them again, while the watch goes on, and begins a new
 * watch from there, so that a change missed by the watch is corrected within that time.
 *
 * 	list ----all pages----> the table is as the list says; a new watch; the list again after
 * 	                        `relist`
 * 	     ----a failure----> nothing changes; the list again, after a delay that grows
 * 	watch --event--------> the table changes
 * 	      --it ends, is cut, is silent--> a new watch from the last version that was seen
 * 	      --410, ERROR, an event that is none--> the list
 * 	      --it cannot be begun, several times--> the list
 *
 * Only a list of which all pages came, or an event, removes a worker: an outage of the API server,
 * however long, leaves the fleet as it is. The knowledge about a worker belongs to its pod as long
 * as the UID stays the same: the UID is the worker's `identity`.
 *
 * Delays double from DELAY_LEAST_MS to DELAY_MOST_MS, but not above `relist`, with jitter, so that
 * replicas of kvway do not ask at the same time. An event or a bookmark ends a series of failures,
 * but not in the first SHORT_NS of a watch: so neither a watch that is cut after each event nor a
 * 410 after each list becomes a busy loop.
 *
 * Changes within SETTLE_MS are reported together. The first report waits until each pool has been
 * listed or has failed, so that a start does not look like workers that join one by one.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <curl/curl.h>
#include <event2/event.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/random.h"
#include "config/pools.h"
#include "fleet/discovery/kube_call.h"
#include "fleet/discovery/kube_table.h"
#include "fleet/discovery/kube_workers.h"
#include "fleet/discovery/source.h"
#include "kvway/route.h"

#define ROOM           "discovery"
#define SETTLE_MS      20
#define DELAY_LEAST_MS 100
#define DELAY_MOST_MS  30000
#define SHORT_NS       KVW_NS_PER_S        /* a watch that ends sooner than this counts as failed */
/* least time between two log lines on a lasting failure */
#define LOG_AGAIN_NS   (60 * KVW_NS_PER_S)
/* Failures of the watch after which the list comes first. */
#define WATCH_TRIES    3
#define PAGES_MOST     20000               /* most pages of one list */

_Static_assert(sizeof(((struct kvw_source_part *)0)->name) == KVW_POOL_SHOWN,
	"a part is named as its pool");
_Static_assert(KVW_KUBE_FAULTS <= KVW_SOURCE_ERRORS, "a part counts each kind of error");

struct pool {
	struct kubernetes_source *source;
	const struct kvw_pool_config *config;
	struct kvw_source_part *part; /* the pool's numbers for metrics */
	struct kvw_kube_call *list, *watch;
	struct event *relist; /* timer of the next list, regular or after a failure */
	struct event *again;  /* timer of the next watch, after the end of one */
	struct kvw_kube_table table, incoming;
	/* version from which the next watch starts; "": no complete list yet */
	char version[KVW_KUBE_VERSION];
	char list_version[KVW_KUBE_VERSION]; /* version of the list that is being read */
	char next[KVW_KUBE_CONTINUE];        /* token of its next page; "": its first page */
	size_t pages;                        /* pages of the list */
	int64_t page;                        /* number of objects that are requested per page */
	unsigned list_failures, watch_failures; /* in a row */
	bool list_fails, watch_fails;           /* failures that have been reported */
	bool answered; /* the pool has been listed, or a list has failed, at least once */
	bool open;                              /* the server has accepted the watch */
	int64_t watch_began_ns, logged_ns;
	/* fault of the line that ended the watch; NONE: no line did */
	enum kvw_kube_fault line_fault;
	char line_why[KVW_KUBE_WHY];
};

struct kubernetes_source {
	struct kvw_source base;
	kvw_source_found_fn *found;
	void *arg;
	struct kvw_config *config; /* a copy with only the keys of discovery.kubernetes; owned */
	struct kvw_curl_loop loop;
	struct event *settle;
	uint64_t random;
	uint64_t mark; /* hash of the list that was last reported; 0: none */
	const struct kvw_kube_table **tables; /* [pool_count] */
	struct kvw_source_part *parts;        /* [pool_count] */
	struct pool *pools;                   /* [pool_count], in the order of `config` */
};

static void after(struct event *event, int64_t ms)
{
	const struct timeval delay = {
		.tv_sec = (time_t)(ms / 1000), .tv_usec = (suseconds_t)(ms % 1000 * 1000)};

	event_add(event, &delay);
}

/* Adds jitter: returns a time between three quarters and five quarters of ms. */
static int64_t vary(struct kubernetes_source *source, int64_t ms)
{
	return ms * 3 / 4 + (int64_t)((double)ms / 2 * kvw_random_fraction(&source->random));
}

/* Returns the delay before the next try. failures: in a row, the last one included. wait_ms: the
 * server's Retry-After. */
static int64_t delay_ms(struct pool *pool, unsigned failures, int64_t wait_ms)
{
	const struct kvw_config *config = pool->source->config;
	int64_t ms = DELAY_LEAST_MS, most = DELAY_MOST_MS;

	if (config->discovery_kube_relist_ms < most)
		most = config->discovery_kube_relist_ms;
	while (failures-- > 1 && ms < most)
		ms *= 2;
	ms = vary(pool->source, ms < most ? ms : most);
	return ms > wait_ms ? ms : wait_ms;
}

/* --- reports --- */

/* Returns the age in seconds, for log lines. */
static long long age_s(const _Atomic int64_t *since_ns)
{
	return (long long)((kvw_clock_ns() - atomic_load(since_ns)) / KVW_NS_PER_S);
}

static void say_failure(struct kubernetes_source *source, const char *why)
{
	source->found(source->arg, source->base.ops, NULL, 0, false, why);
}

static const struct pool *failing_pool(const struct kubernetes_source *source)
{
	for (size_t i = 0; i < source->config->pool_count; i++)
		if (source->pools[i].list_fails || source->pools[i].watch_fails)
			return &source->pools[i];
	return NULL;
}

/* Returns whether each pool has been listed or has failed, and at least one was listed. */
static bool is_known(const struct kubernetes_source *source)
{
	bool any = false;

	for (size_t i = 0; i < source->config->pool_count; i++) {
		if (!source->pools[i].answered)
			return false;
		any = any || source->pools[i].version[0] != '\0';
	}
	return any;
}

/* Reports the list of all pools, if it differs from the last report, or if a failure has ended. */
static void report_workers(struct kubernetes_source *source, bool always)
{
	struct kvw_config *list = NULL;
	size_t count;
	uint64_t mark = 0;
	char why[80];
	enum kvw_err err;

	if (!is_known(source))
		return;
	err = kvw_kube_workers(source->config, source->tables, &count, &mark, &list);
	if (err == KVW_OK && mark == source->mark && !always) {
		kvw_config_destroy(list);
		return;
	}
	source->mark = err == KVW_OK ? mark : 0;
	if (list != NULL) {
		kvw_info(ROOM, "kubernetes: %zu workers", count);
		source->found(source->arg, source->base.ops, list->workers, list->worker_count,
			failing_pool(source) != NULL, NULL);
	} else {
		if (err == KVW_OK)
			snprintf(why, sizeof(why), "found %zu workers in all, expected at most %d",
				count, KVW_MAX_WORKERS);
		else
			snprintf(why, sizeof(why), "%s",
				err == KVW_ENOMEM ? "out of memory" : "not a worker's URL");
		kvw_error(ROOM, "kubernetes: %s; the workers that were found before stay", why);
		say_failure(source, why);
	}
	kvw_config_destroy(list);
}

static void on_settle(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	report_workers(arg, false);
}

static void count_fault(struct pool *pool, enum kvw_kube_fault fault)
{
	atomic_fetch_add(&pool->part->errors[fault], 1);
}

/* Handles a failed list or watch: reports it once per series, and logs it from time to time. */
static void failed(struct pool *pool, bool *fails, const char *what, enum kvw_kube_fault fault,
	const char *why)
{
	bool first = !pool->list_fails && !pool->watch_fails;
	int64_t now_ns = kvw_clock_ns();
	char text[KVW_KUBE_WHY + 128];

	*fails = true;
	if (first)
		atomic_store(&pool->part->failing_since_ns, now_ns);
	else if (now_ns - pool->logged_ns < LOG_AGAIN_NS)
		return;
	pool->logged_ns = now_ns;
	snprintf(text, sizeof(text), "kubernetes pool %s: cannot %s: %s: %s", pool->part->name,
		what, kvw_kube_fault_name(fault), why);
	kvw_warn(ROOM,
		"%s; the workers that were found before stay failing_s=%lld last_list_s=%lld", text,
		age_s(&pool->part->failing_since_ns), age_s(&pool->part->list_ns));
	if (first)
		say_failure(pool->source, text);
}

/* Ends a failure. True: no other failure of any pool is left. */
static bool recovered(struct pool *pool, bool *fails)
{
	bool failing = *fails;

	*fails = false;
	if (!failing || pool->list_fails || pool->watch_fails)
		return false;
	kvw_info(ROOM, "kubernetes pool %s: can be read again after_s=%lld", pool->part->name,
		age_s(&pool->part->failing_since_ns));
	atomic_store(&pool->part->failing_since_ns, 0);
	return failing_pool(pool->source) == NULL;
}

/* --- paths --- */

/* Builds the path of the resource with its selector, without the parameters of a list or watch.
 * NULL: `why` has the cause. */
static char *resource_of(const struct pool *pool, char *why, size_t room)
{
	bool slices = pool->config->service[0] != '\0';
	const struct kvw_config *config = pool->source->config;
	char *namespace =
		kvw_kube_namespace(config, (size_t)(pool->config - config->pools), why, room);
	char *name, *value, *path = NULL;

	if (namespace == NULL)
		return NULL;
	name = curl_easy_escape(NULL, namespace, 0);
	value = curl_easy_escape(NULL, slices ? pool->config->service : pool->config->selector, 0);
	if (name == NULL || value == NULL ||
		asprintf(&path, "%s/namespaces/%s/%s?labelSelector=%s%s",
			slices ? "/apis/discovery.k8s.io/v1" : "/api/v1", name,
			slices ? "endpointslices" : "pods",
			slices ? "kubernetes.io%2Fservice-name%3D" : "", value) < 0)
		path = NULL;
	curl_free(name);
	curl_free(value);
	free(namespace);
	return path;
}

/* Takes the resource. */
static char *list_path(const struct pool *pool, char *resource)
{
	char *next = curl_easy_escape(NULL, pool->next, 0), *path = NULL;

	if (next != NULL &&
		asprintf(&path, "%s&limit=%lld%s%s", resource, (long long)pool->page,
			next[0] != '\0' ? "&continue=" : "", next) < 0)
		path = NULL;
	curl_free(next);
	free(resource);
	return path;
}

static char *watch_path(const struct pool *pool, char *resource)
{
	char *version = curl_easy_escape(NULL, pool->version, 0), *path = NULL;

	if (version != NULL &&
		asprintf(&path, "%s&watch=1&allowWatchBookmarks=true&resourceVersion=%s", resource,
			version) < 0)
		path = NULL;
	curl_free(version);
	free(resource);
	return path;
}

/* --- lists --- */

static void list_failed(
	struct pool *pool, enum kvw_kube_fault fault, const char *why, int64_t wait_ms)
{
	bool started = !pool->answered;

	kvw_kube_table_finish(&pool->incoming);
	count_fault(pool, fault);
	pool->list_failures++;
	pool->answered = true;
	failed(pool, &pool->list_fails, "list", fault, why);
	after(pool->relist, delay_ms(pool, pool->list_failures, wait_ms));
	if (started)
		report_workers(pool->source, false);
}

static void ask_page(struct pool *pool)
{
	char why[KVW_KUBE_WHY] = "out of memory";
	char *path = resource_of(pool, why, sizeof(why));

	if (path != NULL)
		path = list_path(pool, path);
	if (path != NULL)
		kvw_kube_call_start(pool->list, path, false);
	else
		list_failed(pool, KVW_KUBE_LOCAL, why, 0);
	free(path);
}

static void begin_list(struct pool *pool)
{
	event_del(pool->relist);
	kvw_kube_table_list_begin(&pool->table, &pool->incoming);
	pool->next[0] = '\0';
	pool->pages = 0;
	ask_page(pool);
}

static void on_relist(evutil_socket_t fd, short what, void *arg)
{
	struct pool *pool = arg;

	(void)fd;
	(void)what;
	if (!kvw_kube_call_runs(pool->list))
		begin_list(pool);
}

static void begin_watch(struct pool *pool);

/* Handles a complete list. */
static void list_ends(struct pool *pool)
{
	struct kubernetes_source *source = pool->source;

	if (kvw_kube_table_list_end(&pool->table, &pool->incoming,
		    kvw_kube_version_number(pool->list_version)) != KVW_OK) {
		list_failed(pool, KVW_KUBE_LOCAL, "out of memory", 0);
		return;
	}
	memcpy(pool->version, pool->list_version, sizeof(pool->version));
	pool->list_failures = 0;
	pool->answered = true;
	atomic_store(&pool->part->list_ns, kvw_clock_ns());
	after(pool->relist, vary(source, source->config->discovery_kube_relist_ms));
	begin_watch(pool);
	report_workers(source, recovered(pool, &pool->list_fails));
}

static void take_page(struct pool *pool, struct kvw_slice body)
{
	struct kvw_kube_page page;
	enum kvw_err err = kvw_kube_page_read(pool->config, body.data, body.len, &page);

	if (err == KVW_OK && ++pool->pages > PAGES_MOST) {
		kvw_kube_page_finish(&page);
		err = KVW_EINVAL;
	}
	if (err == KVW_OK) {
		memcpy(pool->list_version, page.version, sizeof(pool->list_version));
		memcpy(pool->next, page.next, sizeof(pool->next));
		err = kvw_kube_table_list_page(&pool->incoming, &page);
		if (err == KVW_OK && pool->next[0] != '\0')
			ask_page(pool);
		else if (err == KVW_OK)
			list_ends(pool);
	}
	if (err == KVW_ELIMIT)
		list_failed(pool, KVW_KUBE_TOO_LARGE,
			"too many objects or endpoints: the selector is too wide", 0);
	else if (err == KVW_ENOMEM)
		list_failed(pool, KVW_KUBE_LOCAL, "out of memory", 0);
	else if (err != KVW_OK)
		list_failed(pool, KVW_KUBE_MALFORMED, "not a page of a list", 0);
}

static void on_list_ended(void *arg, const struct kvw_kube_result *result)
{
	struct pool *pool = arg;

	if (result->fault == KVW_KUBE_NONE) {
		take_page(pool, result->body);
	} else if (result->fault == KVW_KUBE_TOO_LARGE && pool->page > 1) {
		pool->page /= 2;
		kvw_info(ROOM, "kubernetes pool %s: %s; pages get smaller objects=%lld",
			pool->part->name, result->why, (long long)pool->page);
		count_fault(pool, result->fault);
		begin_list(pool);
	} else {
		list_failed(pool, result->fault, result->why, result->wait_ms);
	}
}

static const struct kvw_kube_call_ops list_ops = {.ended = on_list_ended};

/* --- the watch --- */

static void begin_watch(struct pool *pool)
{
	char why[KVW_KUBE_WHY] = "out of memory";
	char *path = resource_of(pool, why, sizeof(why));

	event_del(pool->again);
	if (path != NULL)
		path = watch_path(pool, path);
	if (path == NULL) { /* without a path the former watch goes on */
		count_fault(pool, KVW_KUBE_LOCAL);
		pool->watch_failures++;
		failed(pool, &pool->watch_fails, "watch", KVW_KUBE_LOCAL, why);
		after(pool->again, delay_ms(pool, pool->watch_failures, 0));
		return;
	}
	pool->line_fault = KVW_KUBE_NONE;
	pool->open = false;
	pool->watch_began_ns = kvw_clock_ns();
	kvw_kube_call_start(pool->watch, path, true);
	free(path);
}

static void on_again(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	begin_watch(arg);
}

static void on_watch_open(void *arg)
{
	struct pool *pool = arg;

	pool->open = true;
	if (recovered(pool, &pool->watch_fails))
		report_workers(pool->source, true);
}

/* Notes the version from which the next watch starts; only a list may lower it. */
static void note_version(struct pool *pool, const char *version)
{
	uint64_t before = kvw_kube_version_number(pool->version);
	uint64_t now = kvw_kube_version_number(version);

	if (version[0] != '\0' && (now == 0 || before == 0 || now > before))
		snprintf(pool->version, sizeof(pool->version), "%s", version);
}

static bool line_fails(struct pool *pool, enum kvw_kube_fault fault, const char *why)
{
	pool->line_fault = fault;
	snprintf(pool->line_why, sizeof(pool->line_why), "%s", why);
	return false;
}

static bool has_lived(const struct pool *pool)
{
	return pool->open && kvw_clock_ns() - pool->watch_began_ns >= SHORT_NS;
}

static bool take_event(struct pool *pool, struct kvw_kube_event *event)
{
	bool changed = false;

	if (event->kind == KVW_KUBE_ERROR)
		return line_fails(pool,
			event->code == 410   ? KVW_KUBE_GONE
			: event->code == 429 ? KVW_KUBE_THROTTLED
			: event->code >= 500 ? KVW_KUBE_SERVER
					     : KVW_KUBE_STATUS,
			event->message[0] != '\0' ? event->message : "an ERROR event");
	if (event->kind != KVW_KUBE_BOOKMARK) {
		enum kvw_err err = kvw_kube_table_apply(&pool->table, event, &changed);

		if (err != KVW_OK)
			return line_fails(pool,
				err == KVW_ELIMIT ? KVW_KUBE_TOO_LARGE : KVW_KUBE_LOCAL,
				err == KVW_ELIMIT ? "too many objects or endpoints"
						  : "out of memory");
	}
	note_version(pool, event->version);
	if (has_lived(pool))
		pool->watch_failures = 0;
	atomic_store(&pool->part->event_ns, kvw_clock_ns());
	if (changed && !event_pending(pool->source->settle, EV_TIMEOUT, NULL))
		after(pool->source->settle, SETTLE_MS);
	return true;
}

static bool on_watch_line(void *arg, struct kvw_slice line)
{
	struct pool *pool = arg;
	struct kvw_kube_event event;
	enum kvw_err err = kvw_kube_event_read(pool->config, line.data, line.len, &event);
	bool on;

	if (err != KVW_OK)
		return line_fails(pool, err == KVW_ENOMEM ? KVW_KUBE_LOCAL : KVW_KUBE_MALFORMED,
			err == KVW_ENOMEM ? "out of memory" : "not an event");
	on = take_event(pool, &event);
	kvw_kube_event_finish(&event);
	return on;
}

/* Returns whether a fault of the watch requires a new list. */
static bool needs_list(const struct pool *pool, enum kvw_kube_fault fault)
{
	return fault == KVW_KUBE_GONE || fault == KVW_KUBE_MALFORMED ||
	       fault == KVW_KUBE_TOO_LARGE || pool->line_fault != KVW_KUBE_NONE ||
	       pool->watch_failures >= WATCH_TRIES;
}

static void on_watch_ended(void *arg, const struct kvw_kube_result *result)
{
	struct pool *pool = arg;
	bool worked = has_lived(pool);
	enum kvw_kube_fault fault = result->fault;
	const char *why = result->why;
	int64_t ms;

	if (fault == KVW_KUBE_NONE && pool->line_fault != KVW_KUBE_NONE) {
		fault = pool->line_fault;
		why = pool->line_why;
	}
	/* A watch that worked ends the series of failures, even if it is cut or silent now and
	 * then. */
	if (worked && pool->line_fault == KVW_KUBE_NONE)
		pool->watch_failures = 0;
	/* not logged: the server ends each watch after some minutes */
	if (!worked || fault != KVW_KUBE_NONE)
		pool->watch_failures++;
	if (fault != KVW_KUBE_NONE) {
		count_fault(pool, fault);
		if (pool->watch_failures <= WATCH_TRIES) /* otherwise failed() reports it */
			kvw_info(ROOM, "kubernetes pool %s: the watch has ended: %s: %s",
				pool->part->name, kvw_kube_fault_name(fault), why);
	}
	if (fault != KVW_KUBE_NONE && fault != KVW_KUBE_GONE && pool->watch_failures > 1)
		failed(pool, &pool->watch_fails, "watch", fault, why);
	ms = delay_ms(pool, pool->watch_failures, result->wait_ms);
	if (!needs_list(pool, fault))
		after(pool->again, ms);
	/* a list that is running will begin a watch at its end */
	else if (!kvw_kube_call_runs(pool->list))
		after(pool->relist, ms);
}

static const struct kvw_kube_call_ops watch_ops = {
	.open = on_watch_open,
	.line = on_watch_line,
	.ended = on_watch_ended,
};

/* --- life --- */

static bool kubernetes_configured(const struct kvw_config *config)
{
	return config->pool_count > 0;
}

static size_t kubernetes_parts(
	const struct kvw_source *base, const struct kvw_source_part **out)
{
	const struct kubernetes_source *source = (const struct kubernetes_source *)base;

	*out = source->parts;
	return source->config->pool_count;
}

static void pool_finish(struct pool *pool)
{
	kvw_kube_call_destroy(pool->list);
	kvw_kube_call_destroy(pool->watch);
	if (pool->relist != NULL)
		event_free(pool->relist);
	if (pool->again != NULL)
		event_free(pool->again);
	kvw_kube_table_finish(&pool->table);
	kvw_kube_table_finish(&pool->incoming);
}

static void kubernetes_stop(struct kvw_source *base)
{
	struct kubernetes_source *source = (struct kubernetes_source *)base;

	if (source == NULL)
		return;
	for (size_t i = 0; source->pools != NULL && i < source->config->pool_count; i++)
		pool_finish(&source->pools[i]);
	kvw_curl_loop_finish(&source->loop);
	if (source->settle != NULL)
		event_free(source->settle);
	free(source->pools);
	free(source->parts);
	free(source->tables);
	kvw_config_destroy(source->config);
	free(source);
}

/* Copies the configuration's keys that a source needs as long as it lives. */
static enum kvw_err copy_config(const struct kvw_config *from, struct kvw_config **out)
{
	static const size_t keys[] = {KVW_KEY_discovery_kube_api, KVW_KEY_discovery_kube_token_file,
		KVW_KEY_discovery_kube_ca_file, KVW_KEY_discovery_kube_namespace,
		KVW_KEY_discovery_kube_relist_ms, KVW_KEY_discovery_kube_idle_ms,
		KVW_KEY_discovery_kube_timeout_ms, KVW_KEY_discovery_kube_page};
	struct kvw_config *copy = calloc(1, sizeof(*copy));
	enum kvw_err err = copy == NULL ? KVW_ENOMEM : kvw_pools_copy(from, copy);

	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]) && err == KVW_OK; i++)
		err = kvw_key_copy(&kvw_keys[keys[i]], from, copy);
	if (err == KVW_OK)
		*out = copy;
	else
		kvw_config_destroy(copy);
	return err;
}

static enum kvw_err pool_init(
	struct pool *pool, struct event_base *base, struct kubernetes_source *source, size_t index)
{
	struct kvw_source_part *part = &source->parts[index];
	enum kvw_err err;

	pool->source = source;
	pool->config = &source->config->pools[index];
	pool->page = source->config->discovery_kube_page;
	pool->line_fault = KVW_KUBE_NONE;
	pool->part = part;
	source->tables[index] = &pool->table;
	kvw_pool_shown(source->config, index, part->name);
	atomic_store(&part->event_ns, kvw_clock_ns());
	atomic_store(&part->list_ns, kvw_clock_ns());
	pool->relist = event_new(base, -1, 0, on_relist, pool);
	pool->again = event_new(base, -1, 0, on_again, pool);
	if (pool->relist == NULL || pool->again == NULL)
		return KVW_ENOMEM;
	err = kvw_kube_call_create(&source->loop, source->config, &list_ops, pool, &pool->list);
	if (err == KVW_OK)
		err = kvw_kube_call_create(
			&source->loop, source->config, &watch_ops, pool, &pool->watch);
	return err;
}

static enum kvw_err init(struct kubernetes_source *source, struct event_base *base)
{
	size_t count = source->config->pool_count;
	enum kvw_err err;

	source->tables = calloc(count, sizeof(source->tables[0]));
	source->parts = calloc(count, sizeof(*source->parts));
	source->pools = calloc(count, sizeof(*source->pools));
	source->settle = event_new(base, -1, 0, on_settle, source);
	if (source->tables == NULL || source->parts == NULL || source->pools == NULL ||
		source->settle == NULL)
		return KVW_ENOMEM;
	err = kvw_curl_loop_init(&source->loop, base, kvw_kube_call_done);
	for (size_t i = 0; i < count && err == KVW_OK; i++)
		err = pool_init(&source->pools[i], base, source, i);
	return err;
}

static enum kvw_err kubernetes_start(struct event_base *base, const struct kvw_config *config,
	kvw_source_found_fn *found, void *arg, struct kvw_source **out)
{
	struct kubernetes_source *source = calloc(1, sizeof(*source));
	enum kvw_err err;

	if (source == NULL)
		return KVW_ENOMEM;
	source->base.ops = &kvw_source_kubernetes;
	source->found = found;
	source->arg = arg;
	source->random = (uint64_t)kvw_clock_ns();
	err = copy_config(config, &source->config);
	if (err == KVW_OK)
		err = init(source, base);
	if (err != KVW_OK) {
		kubernetes_stop(&source->base);
		return err;
	}
	*out = &source->base;
	for (size_t i = 0; i < source->config->pool_count; i++)
		begin_list(&source->pools[i]);
	return KVW_OK;
}

static const char *kubernetes_error_name(size_t kind)
{
	return kind < KVW_KUBE_FAULTS ? kvw_kube_fault_name((enum kvw_kube_fault)kind) : NULL;
}

const struct kvw_source_ops kvw_source_kubernetes = {
	.name = "kubernetes",
	.configured = kubernetes_configured,
	.start = kubernetes_start,
	.stop = kubernetes_stop,
	.parts = kubernetes_parts,
	.error_name = kubernetes_error_name,
};
