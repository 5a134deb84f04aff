/*
 * vllm_feed.c - opens and closes the streams of KV events of all workers.
 *
 * A worker that is one data-parallel rank has one stream; its server is asked once for the
 * endpoints of all ranks. Any other worker has a stream for each rank of its engine. A set of
 * endpoints, from the configuration or from the worker itself, replaces the one before: streams
 * whose endpoint stays the same go on. A worker is asked again when it comes back, when its cache
 * was lost, and when a replay socket no longer answers, because its endpoints may have changed.
 */
#include "feeds/vllm_feed.h"

#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "feeds/listener.h"
#include "feeds/vllm_discover.h"
#include "feeds/vllm_names.h"
#include "feeds/vllm_socket.h"
#include "feeds/vllm_stream.h"

#define DISCOVER_TICK_NS (20 * KVW_NS_PER_MS)
#define TICK_NS          (100 * KVW_NS_PER_MS)
#define NONE_AGAIN_NS    (60 * KVW_NS_PER_S) /* until a worker without events is asked again */
#define STRANGER_NS      (60 * KVW_NS_PER_S) /* between log lines about unknown workers */

struct vllm_feed;

struct vllm_worker {
	struct vllm_feed *owner;
	struct kvw_worker *worker; /* held; NULL: the slot has no worker */
	const struct kvw_worker_config *config; /* its own */
	uint32_t address_version;
	char host[NI_MAXHOST]; /* numeric */
	struct kvw_vllm_map map;
	struct kvw_vllm_stream *streams[KVW_VLLM_RANKS]; /* owned; [count] */
	size_t count;
	bool fixed; /* its own endpoints are configured, so that it is not asked */
	bool was_up;
	bool told; /* it has answered the question for its endpoints, or failed to */
	bool registered; /* its registration was logged */
	bool more;        /* it has more ranks than KVW_VLLM_RANKS */
	bool by_template; /* its endpoints come from the configured template, or would */
	uint32_t global;  /* a rank's number, by which ports and batches name it */
	int64_t again_ns; /* when it is asked again; INT64_MAX: only after an event */
	char none[200];   /* why it has no stream; "": it has one */
};

/* A socket to which the engines of one rank connect. */
struct bound {
	struct vllm_feed *owner;
	uint32_t rank;
	void *sub;      /* NULL: engines may not connect now */
	int fd;         /* owned; -1: libzmq has it, or binds the address itself */
	char *endpoint; /* owned */
};

struct vllm_feed {
	struct kvw_feed *feed;
	const struct kvw_config *config;
	struct kvw_vllm_applier applier;
	struct vllm_worker *workers; /* [KVW_MAX_WORKERS], by slot */
	size_t worker_count;         /* number of workers that have been used */
	struct kvw_vllm_discover *discover; /* NULL: no worker is asked */
	struct bound bound[KVW_VLLM_RANKS];
	size_t bound_count;
	struct kvw_vllm_names names; /* workers by topic, for sockets to which engines connect */
	int64_t stranger_ns; /* earliest time of the next line about an unknown worker */
};

/* --- coverages --- */

static void report_coverage(struct vllm_worker *w)
{
	enum kvw_coverage coverage = w->count == 0 ? KVW_COVERAGE_NONE : KVW_COVERAGE_FULL;
	const char *wrong = w->count == 0 ? w->none : "";
	char text[256];

	for (size_t i = 0; i < w->count; i++) {
		if (kvw_vllm_stream_sees_all(w->streams[i]))
			continue;
		coverage = KVW_COVERAGE_BLIND;
		snprintf(text, sizeof(text), "rank %u: %s", w->streams[i]->endpoint.rank,
			w->streams[i]->wrong);
		wrong = w->count == 1 ? w->streams[i]->wrong : text;
		break;
	}
	if (w->more && coverage == KVW_COVERAGE_FULL) {
		coverage = KVW_COVERAGE_BLIND;
		wrong = "it has more data-parallel ranks than are listened to";
	}
	kvw_feed_set_coverage(w->owner->feed, w->worker->id, KVW_REPORTER_ENGINE, coverage,
		(uint32_t)w->count, wrong);
	/* The line is like that for LMCache's instances, which users look for. */
	if (coverage == KVW_COVERAGE_FULL && !w->registered)
		kvw_info("feed", "Worker registered: %s reports=\"vLLM's KV events\"",
			w->worker->url);
	w->registered = coverage == KVW_COVERAGE_FULL || (w->registered && w->count > 0);
}

/* Requests that the worker's server is asked for its endpoints. */
static void want_sources(const struct vllm_worker *w)
{
	kvw_vllm_discover_want(w->owner->discover, w->worker->lead);
}

static bool is_rank(const struct vllm_worker *w)
{
	return w->worker->rank != KVW_RANK_NONE;
}

static void stream_changed(struct kvw_vllm_stream *stream, void *ctx)
{
	struct vllm_worker *w = ctx;

	if (stream->unanswered && w->owner->discover != NULL && !w->fixed)
		want_sources(w);
	report_coverage(w);
}

/* Records why a worker has no streams. */
static void report_none(struct vllm_worker *w, const char *why)
{
	if (w->count == 0 && strcmp(w->none, why) != 0)
		kvw_info("feed", "cache events: none url=%s why=\"%s\"", w->worker->url, why);
	snprintf(w->none, sizeof(w->none), "%s", why);
	report_coverage(w);
}

/* --- streams --- */

static void close_stream(struct vllm_worker *w, size_t i)
{
	kvw_vllm_stream_close(w->streams[i]);
	free(w->streams[i]);
	w->streams[i] = w->streams[--w->count];
}

static void open_stream(struct vllm_worker *w, struct kvw_vllm_endpoint *take, bool listen)
{
	struct vllm_feed *f = w->owner;
	const struct kvw_vllm_stream_deps deps = {.feed = f->feed,
		.applier = &f->applier,
		.map = &w->map,
		.url = w->worker->url,
		.topic = f->config->kvaware_events_topic,
		.changed = stream_changed,
		.ctx = w};
	struct kvw_vllm_stream *stream = malloc(sizeof(*stream));

	if (stream == NULL || w->count == KVW_VLLM_RANKS ||
		kvw_vllm_stream_open(stream, &deps, take, listen) != KVW_OK) {
		free(stream);
		snprintf(w->none, sizeof(w->none), "its events cannot be subscribed to");
		return;
	}
	w->streams[w->count++] = stream;
}

static struct kvw_vllm_stream *stream_of_rank(const struct vllm_worker *w, uint32_t rank)
{
	for (size_t i = 0; i < w->count; i++)
		if (w->streams[i]->endpoint.rank == rank)
			return w->streams[i];
	return NULL;
}

static bool is_in(const struct kvw_vllm_endpoints *list, const struct kvw_vllm_endpoint *item)
{
	for (size_t i = 0; i < list->count; i++)
		if (kvw_vllm_endpoint_equal(&list->items[i], item))
			return true;
	return false;
}

/* Replaces a worker's endpoints; takes the list's contents. */
static void set_endpoints(struct vllm_worker *w, struct kvw_vllm_endpoints *take)
{
	for (size_t i = w->count; i-- > 0;)
		if (!is_in(take, &w->streams[i]->endpoint))
			close_stream(w, i);
	w->more = take->more;
	for (size_t i = 0; i < take->count; i++) {
		struct kvw_vllm_endpoint *item = &take->items[i];

		if (stream_of_rank(w, item->rank) == NULL)
			open_stream(w, item, !item->connects);
	}
	kvw_vllm_endpoints_finish(take);
	report_coverage(w);
}

/* --- workers' endpoints --- */

static const char *template_of(const char *own, const char *common)
{
	return own[0] != '\0' ? own : common;
}

/* Makes the configured endpoints of a worker; empty: none are configured. */
static enum kvw_err configured(const struct vllm_worker *w, struct kvw_vllm_endpoints *out)
{
	const struct kvw_config *config = w->owner->config;
	const char *events =
		template_of(w->config->events_endpoint, config->kvaware_events_endpoint);

	*out = (struct kvw_vllm_endpoints){.count = 0};
	if (events[0] == '\0')
		return KVW_OK;
	return kvw_vllm_endpoints_make(events,
		template_of(w->config->events_replay, config->kvaware_events_replay),
		is_rank(w) ? w->global : 0,
		is_rank(w) ? 1 : (uint32_t)config->kvaware_events_ranks, w->host, out);
}

static void use_configured(struct vllm_worker *w, const char *why_not_asked)
{
	struct kvw_vllm_endpoints list;
	enum kvw_err err = configured(w, &list);

	w->by_template = true;
	if (err == KVW_OK && list.count > 0) {
		set_endpoints(w, &list);
		return;
	}
	if (w->owner->bound_count > 0)
		report_none(w, "it was not heard at kvaware.events.bind yet; its topic must be "
			     "kv@HOST:PORT@MODEL with the HOST:PORT of its URL");
	else
		report_none(w, err == KVW_OK ? why_not_asked : "out of memory");
}

/* Adds the configured replay socket if the engine does not report its own. */
static enum kvw_err add_replay(const struct vllm_worker *w, struct kvw_vllm_endpoint *item)
{
	const char *replay =
		template_of(w->config->events_replay, w->owner->config->kvaware_events_replay);
	struct kvw_vllm_endpoints made;
	enum kvw_err err;

	if (item->replay[0] != '\0' || replay[0] == '\0')
		return KVW_OK;
	err = kvw_vllm_endpoints_make(replay, "", item->rank, 1, w->host, &made);
	if (err != KVW_OK)
		return err;
	free(item->replay);
	item->replay = made.items[0].events;
	made.items[0].events = NULL;
	kvw_vllm_endpoints_finish(&made);
	return KVW_OK;
}

/* Keeps only the endpoint of the worker's own rank, at the place of its index. */
static void keep_own_rank(struct vllm_worker *w, struct kvw_vllm_endpoints *list)
{
	struct kvw_vllm_endpoints own = {.count = 0};
	size_t at = (size_t)w->worker->rank;

	if (at < list->count) {
		own.items[own.count++] = list->items[at];
		list->items[at] = (struct kvw_vllm_endpoint){.rank = 0};
		w->global = own.items[0].rank;
		atomic_store(&w->worker->global_rank, w->global);
	}
	kvw_vllm_endpoints_finish(list);
	*list = own;
}

static void take_sources(struct vllm_worker *w, const char *body, size_t len)
{
	struct kvw_vllm_endpoints list;
	char why[200];
	enum kvw_err err = kvw_vllm_endpoints_parse(body, len, w->host, &list);

	w->by_template = false;
	if (err == KVW_OK && is_rank(w))
		keep_own_rank(w, &list);
	if (err != KVW_OK) {
		report_none(w, err == KVW_ENOMEM ? "out of memory"
					       : "its /kv_event_sources cannot be understood");
		return;
	}
	w->again_ns = INT64_MAX;
	for (size_t i = 0; i < list.count; i++)
		if (add_replay(w, &list.items[i]) != KVW_OK)
			kvw_warn("feed", "kvaware.events.replay cannot be used url=%s",
				w->worker->url);
	if (list.count > 0 && list.items[0].connects && w->owner->bound_count == 0) {
		snprintf(why, sizeof(why),
			"its publisher connects to %.100s: set "
			"kvaware.events.bind to that address",
			list.items[0].events);
		kvw_vllm_endpoints_finish(&list);
		report_none(w, why);
		return;
	}
	if (list.count == 0) {
		w->again_ns = kvw_feed_now(w->owner->feed) + NONE_AGAIN_NS;
		report_none(w, "it publishes nothing: start it with --kv-events-config");
	}
	set_endpoints(w, &list);
}

static void found_one(struct vllm_feed *f, struct vllm_worker *w, uint32_t lead, long status,
	const char *body, size_t len)
{
	w->told = true;
	if (status == 200) {
		take_sources(w, body, len);
		return;
	}
	if (status != 0) {
		use_configured(w, "it has no /kv_event_sources, and kvaware.events.endpoint is not "
				  "set");
		return;
	}
	kvw_debug("feed", "no answer from /kv_event_sources url=%s error=\"%s\"", w->worker->url,
		kvw_vllm_discover_error(f->discover, lead));
	if (w->count == 0) {
		snprintf(w->none, sizeof(w->none), "no answer from its /kv_event_sources: %.120s",
			kvw_vllm_discover_error(f->discover, lead));
		report_coverage(w);
	}
}

/* Handles the answer of a server, which covers all its ranks. */
static void found(void *ctx, uint32_t lead, long status, const char *body, size_t len)
{
	struct vllm_feed *f = ctx;

	for (size_t i = 0; i < f->worker_count; i++) {
		struct vllm_worker *w = &f->workers[i];

		if (w->worker != NULL && w->worker->lead->id == lead && !w->fixed)
			found_one(f, w, lead, status, body, len);
	}
}

/* --- engines that connect --- */

/* Indexes each worker by its names; of a server with ranks only the lead. */
static enum kvw_err make_names(struct vllm_feed *f)
{
	enum kvw_err err = kvw_vllm_names_begin(&f->names, f->worker_count);

	for (size_t i = 0; i < f->worker_count && err == KVW_OK; i++) {
		struct kvw_worker *worker = f->workers[i].worker;

		if (worker != NULL && worker->lead == worker)
			err = kvw_vllm_names_add(&f->names, worker);
	}
	if (err == KVW_OK)
		kvw_vllm_names_end(&f->names);
	return err;
}

static struct vllm_worker *worker_of_topic(struct vllm_feed *f, struct kvw_slice topic)
{
	uint32_t worker;

	return kvw_vllm_names_find(&f->names, topic, &worker) ? &f->workers[worker] : NULL;
}

/* Logs, at most now and then, that a process that is not a worker publishes events. */
static void warn_stranger(struct vllm_feed *f, struct kvw_slice topic)
{
	char text[64];
	size_t len = topic.len < sizeof(text) - 1 ? topic.len : sizeof(text) - 1;

	if (kvw_feed_now(f->feed) < f->stranger_ns)
		return;
	f->stranger_ns = kvw_feed_now(f->feed) + STRANGER_NS;
	for (size_t i = 0; i < len; i++)
		text[i] = topic.data[i] > ' ' && topic.data[i] < 0x7f && topic.data[i] != '"'
				  ? topic.data[i]
				  : '?';
	text[len] = '\0';
	kvw_warn("feed",
		"cache events of an unknown worker topic=\"%s\"; the topic must be "
		"kv@HOST:PORT@MODEL with the HOST:PORT of a worker's URL",
		text);
}

/* Returns the worker of the rank that publishes, given its server's lead. NULL: there is none. */
static struct vllm_worker *worker_of_rank(
	struct vllm_feed *f, struct vllm_worker *lead, uint32_t rank)
{
	if (lead == NULL || !is_rank(lead))
		return lead;
	for (size_t i = 0; i < f->worker_count; i++) {
		struct vllm_worker *w = &f->workers[i];

		if (w->worker != NULL && w->worker->lead == lead->worker && w->global == rank)
			return w;
	}
	return NULL;
}

/* Adds the stream of a worker when its first message arrives. */
static struct kvw_vllm_stream *add_bound_stream(struct vllm_worker *w, const struct bound *bound)
{
	struct kvw_vllm_endpoint item = {.rank = bound->rank, .connects = true};
	size_t before = w->count;

	item.events = strdup(bound->endpoint);
	item.replay = strdup("");
	item.topic = strdup("");
	if (item.events != NULL && item.replay != NULL && item.topic != NULL &&
		add_replay(w, &item) == KVW_OK)
		open_stream(w, &item, false);
	free(item.events);
	free(item.replay);
	free(item.topic);
	return w->count > before ? w->streams[before] : NULL;
}

static bool read_bound(void *socket, void *ctx)
{
	struct bound *bound = ctx;
	struct vllm_feed *f = bound->owner;
	struct kvw_vllm_frames frames;
	struct kvw_vllm_message message;
	struct kvw_vllm_stream *stream = NULL;
	struct vllm_worker *w;

	if (!kvw_vllm_receive(socket, &frames))
		return false;
	kvw_feed_heard_there(f->feed);
	kvw_feed_count(f->feed, KVW_FEED_MESSAGES, 1);
	kvw_feed_count(f->feed, KVW_FEED_BYTES, frames.bytes);
	if (kvw_vllm_published(frames.slices, frames.count, &message) == KVW_OK) {
		w = worker_of_rank(f, worker_of_topic(f, message.topic), bound->rank);
		if (w == NULL)
			warn_stranger(f, message.topic);
		else
			stream = stream_of_rank(w, bound->rank);
		if (w != NULL && stream == NULL)
			stream = add_bound_stream(w, bound);
	}
	if (stream != NULL)
		kvw_vllm_stream_live(stream, message.sequence, &frames.frames[2]);
	else
		kvw_feed_count(f->feed, KVW_FEED_REFUSED, 1);
	kvw_vllm_message_finish(&frames);
	return true;
}

/* Makes one socket listen, so that engines can connect. */
static enum kvw_err bind_one(struct vllm_feed *f, struct bound *bound, FILE *errors)
{
	void *sub = kvw_vllm_sub(kvw_feed_context(f->feed), NULL, f->config->kvaware_events_topic);
	int fd = bound->fd;

	if (sub != NULL)
		bound->fd = -1;
	if (sub == NULL || !kvw_listener_give(sub, bound->endpoint, fd)) {
		fprintf(errors, "kvaware.events.bind: cannot listen at %s: %s\n", bound->endpoint,
			zmq_strerror(zmq_errno()));
		if (sub != NULL)
			zmq_close(sub);
		return KVW_EINVAL;
	}
	bound->sub = sub;
	kvw_info("feed", "cache events: engines may connect endpoint=%s rank=%u", bound->endpoint,
		bound->rank);
	return kvw_feed_watch(f->feed, bound->sub, read_bound, bound);
}

static enum kvw_err bind_all(struct vllm_feed *f, FILE *errors)
{
	const struct kvw_feed_deps *deps = kvw_feed_deps(f->feed);
	const char *endpoint = f->config->kvaware_events_bind;
	const char *any = strstr(endpoint, "0.0.0.0") != NULL ? "0.0.0.0" : "*";
	struct kvw_vllm_endpoints list;
	enum kvw_err err;

	if (endpoint[0] == '\0')
		return KVW_OK;
	err = kvw_vllm_endpoints_make(
		endpoint, "", 0, (uint32_t)f->config->kvaware_events_ranks, any, &list);
	if (err == KVW_EINVAL)
		fprintf(errors, "kvaware.events.bind: found `%s`, expected tcp://ADDRESS:PORT\n",
			endpoint);
	if (err != KVW_OK)
		return err;
	for (size_t i = 0; i < list.count && err == KVW_OK; i++) {
		struct bound *bound = &f->bound[f->bound_count++];

		*bound = (struct bound){
			.owner = f, .rank = list.items[i].rank, .endpoint = list.items[i].events};
		list.items[i].events = NULL;
		bound->fd = kvw_listener_open(deps->sockets, bound->endpoint, true);
		if (!deps->waits || bound->fd < 0)
			err = bind_one(f, bound, errors);
	}
	kvw_vllm_endpoints_finish(&list);
	return err;
}

/* --- workers that join and leave --- */

static uint32_t global_of(const struct vllm_worker *w)
{
	uint32_t global = atomic_load(&w->worker->global_rank);

	return global == KVW_RANK_UNKNOWN && is_rank(w) ? (uint32_t)w->worker->rank : global;
}

/* Uses the rank number that the worker's metrics show. */
static void follow_rank(struct vllm_worker *w)
{
	if (!is_rank(w) || w->global == global_of(w))
		return;
	w->global = global_of(w);
	if (w->by_template)
		use_configured(w, "neither kvaware.events.discover nor an endpoint is set");
}

/* Begins to listen to a worker that is held already. Faults of its endpoints are printed. */
static enum kvw_err start_worker(struct vllm_feed *f, struct vllm_worker *w, FILE *errors)
{
	const struct kvw_config *config = f->config;
	struct kvw_vllm_endpoints list;
	enum kvw_err err;

	w->owner = f;
	w->config = &w->worker->config;
	w->map.worker = w->worker->id;
	w->map.one_rank = is_rank(w);
	w->global = global_of(w);
	w->was_up = true;
	w->again_ns = INT64_MAX;
	w->address_version = atomic_load(&w->worker->address_version);
	kvw_worker_ip(w->worker, w->host, sizeof(w->host));
	w->fixed = w->config->events_endpoint[0] != '\0' || !config->kvaware_events_discover;
	err = configured(w, &list); /* checked at the start even if the worker is asked first */
	if (err == KVW_EINVAL)
		fprintf(errors,
			"worker %s: found `%s` and `%s` for its events and their replay, expected "
			"tcp://HOST:PORT\n",
			w->worker->url,
			template_of(w->config->events_endpoint, config->kvaware_events_endpoint),
			template_of(w->config->events_replay, config->kvaware_events_replay));
	if (err != KVW_OK)
		return err;
	kvw_vllm_endpoints_finish(&list);
	if (w->fixed)
		use_configured(w, "neither kvaware.events.discover nor an endpoint is set");
	else
		want_sources(w);
	return KVW_OK;
}

static void stop_worker(struct vllm_worker *w)
{
	struct kvw_worker *worker = w->worker;

	if (worker == NULL)
		return;
	while (w->count > 0)
		close_stream(w, 0);
	if (w->owner->discover != NULL)
		kvw_vllm_discover_drop(w->owner->discover, worker);
	kvw_feed_set_coverage(
		w->owner->feed, worker->id, KVW_REPORTER_ENGINE, KVW_COVERAGE_NONE, 0, "");
	*w = (struct vllm_worker){.worker = NULL};
	kvw_worker_let_go(worker);
}

/* Handles a change of a worker's address. */
static void move_worker(struct vllm_worker *w)
{
	w->address_version = atomic_load(&w->worker->address_version);
	kvw_worker_ip(w->worker, w->host, sizeof(w->host));
	if (w->fixed)
		use_configured(w, "neither kvaware.events.discover nor an endpoint is set");
	else
		want_sources(w);
}

/* Compares one slot with the fleet's; returns whether its worker has changed. */
static bool follow_slot(struct vllm_feed *f, size_t slot, FILE *errors, enum kvw_err *err)
{
	struct kvw_worker *worker = kvw_feed_deps(f->feed)->fleet->workers[slot];
	struct vllm_worker *w = &f->workers[slot];
	bool changed = false;

	if (w->worker != NULL && kvw_worker_life(worker) != KVW_WORKER_LIVE) {
		stop_worker(w);
		changed = true;
	}
	if (w->worker == NULL && kvw_worker_hold(worker)) {
		w->worker = worker;
		*err = start_worker(f, w, errors);
		changed = true;
	} else if (w->worker != NULL &&
		   w->address_version != atomic_load(&worker->address_version)) {
		move_worker(w);
		changed = true;
	}
	return changed;
}

/* Adds workers that have joined, and releases workers that have left. */
static enum kvw_err follow(struct vllm_feed *f, FILE *errors)
{
	const struct kvw_fleet *fleet = kvw_feed_deps(f->feed)->fleet;
	enum kvw_err err = KVW_OK;
	bool changed = false;

	f->worker_count = fleet->count;
	for (size_t i = 0; i < f->worker_count && err == KVW_OK; i++)
		changed = follow_slot(f, i, errors, &err) || changed;
	if (changed && f->bound_count > 0 && make_names(f) != KVW_OK)
		err = KVW_ENOMEM;
	return err;
}

static void follow_fleet(struct vllm_feed *f)
{
	char text[512] = "";
	FILE *errors = fmemopen(text, sizeof(text), "w");

	if (errors == NULL)
		return; /* out of memory: tried again at the next tick */
	if (follow(f, errors) == KVW_ENOMEM)
		kvw_warn("feed", "out of memory for a worker's cache events");
	fclose(errors);
	if (text[0] != '\0')
		kvw_warn("feed", "%.*s", (int)strcspn(text, "\n"), text);
}

/* --- the module --- */

static void discover_tick(struct kvw_feed *feed, void *ctx)
{
	struct vllm_feed *f = ctx;

	(void)feed;
	kvw_vllm_discover_tick(f->discover);
}

static void tick_vllm(struct kvw_feed *feed, void *ctx)
{
	struct vllm_feed *f = ctx;
	int64_t now_ns = kvw_feed_now(feed);

	follow_fleet(f);
	for (size_t i = 0; i < f->worker_count; i++) {
		struct vllm_worker *w = &f->workers[i];
		bool is_up;

		if (w->worker == NULL)
			continue;
		is_up = kvw_worker_is_up(w->worker);
		if (f->discover != NULL && !w->fixed &&
			((is_up && !w->was_up) || now_ns >= w->again_ns)) {
			w->again_ns = INT64_MAX;
			want_sources(w);
		}
		follow_rank(w);
		w->was_up = is_up;
		for (size_t k = 0; k < w->count; k++)
			kvw_vllm_stream_tick(w->streams[k]);
	}
}

static void purged(void *state, const uint32_t *workers, size_t count)
{
	struct vllm_feed *f = state;

	for (size_t i = 0; i < count; i++) {
		struct vllm_worker *w = &f->workers[workers[i]];

		if (w->worker == NULL)
			continue;
		for (size_t k = 0; k < w->count; k++)
			kvw_vllm_stream_purged(w->streams[k]);
		if (f->discover != NULL && !w->fixed)
			want_sources(w);
	}
}

static void listen_bound(void *state)
{
	struct vllm_feed *f = state;

	for (size_t i = 0; i < f->bound_count; i++)
		if (f->bound[i].sub == NULL && bind_one(f, &f->bound[i], stderr) != KVW_OK)
			kvw_error(
				"feed", "engines cannot connect endpoint=%s", f->bound[i].endpoint);
}

/* Closes the sockets to which engines connect; they connect to the new process then. */
static void hand_over_vllm(void *state)
{
	struct vllm_feed *f = state;

	for (size_t i = 0; i < f->bound_count; i++) {
		if (f->bound[i].sub == NULL)
			continue;
		kvw_feed_unwatch(f->feed, f->bound[i].sub);
		zmq_close(f->bound[i].sub);
		f->bound[i].sub = NULL;
	}
}

/* Returns whether all workers have answered. Replays are waited for only until their deadline. */
static bool settled(void *state)
{
	const struct vllm_feed *f = state;

	for (size_t i = 0; i < f->worker_count; i++) {
		const struct vllm_worker *w = &f->workers[i];

		if (w->worker == NULL || !kvw_worker_is_up(w->worker))
			continue;
		if (!w->told && !w->fixed)
			return false;
		for (size_t k = 0; k < w->count; k++)
			if (w->streams[k]->asking != KVW_VLLM_NOT_ASKING)
				return false;
	}
	return true;
}

static void stop(void *state)
{
	struct vllm_feed *f = state;

	for (size_t i = 0; i < f->worker_count; i++)
		stop_worker(&f->workers[i]);
	for (size_t i = 0; i < f->bound_count; i++) {
		if (f->bound[i].sub != NULL)
			zmq_close(f->bound[i].sub);
		if (f->bound[i].fd >= 0)
			close(f->bound[i].fd);
		free(f->bound[i].endpoint);
	}
	kvw_vllm_names_clear(&f->names);
	kvw_vllm_discover_destroy(f->discover);
	kvw_vllm_applier_finish(&f->applier);
	free(f->workers);
	free(f);
}

static enum kvw_err start_all(struct vllm_feed *f, FILE *errors)
{
	enum kvw_err err = KVW_OK;

	if (f->config->kvaware_events_discover) {
		err = kvw_vllm_discover_create(f->feed, found, f, &f->discover);
		if (err == KVW_OK)
			err = kvw_feed_every(f->feed, DISCOVER_TICK_NS, discover_tick, f);
	}
	if (err == KVW_OK)
		err = bind_all(f, errors);
	if (err == KVW_OK)
		err = follow(f, errors);
	if (err == KVW_OK)
		err = kvw_feed_every(f->feed, TICK_NS, tick_vllm, f);
	return err;
}

static enum kvw_err start_vllm(struct kvw_feed *feed, FILE *errors, void **state)
{
	const struct kvw_feed_deps *deps = kvw_feed_deps(feed);
	struct vllm_feed *f = calloc(1, sizeof(*f));
	enum kvw_err err;

	if (f == NULL)
		return KVW_ENOMEM;
	f->feed = feed;
	f->config = deps->config;
	f->workers = calloc(KVW_MAX_WORKERS, sizeof(*f->workers));
	if (f->workers == NULL) {
		free(f);
		return KVW_ENOMEM;
	}
	kvw_vllm_applier_init(&f->applier, kvw_exact_index(deps->exact), deps->spaces);
	err = start_all(f, errors);
	if (err == KVW_OK)
		*state = f;
	else
		stop(f);
	return err;
}

const struct kvw_feed_module kvw_vllm_feed = {
	.name = "vllm",
	.start = start_vllm,
	.purged = purged,
	.listen = listen_bound,
	.hand_over = hand_over_vllm,
	.settled = settled,
	.stop = stop,
};
