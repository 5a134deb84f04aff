/*
 * sim_reporter.c - reports what an engine's watch and the lower tiers see, by the two protocols.
 *
 * The tiers work while the engine does not: their events leave with a step's if there is one, else
 * by a timer.
 */
#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "bench/sim/sim_kv_events.h"
#include "bench/sim/sim_lmcache.h"
#include "bench/sim/sim_openai.h"
#include "bench/sim/sim_options.h"
#include "bench/sim/sim_publisher.h"
#include "bench/sim/sim_store.h"
#include "bench/sim/sim_reporter.h"
#include "bench/sim/sim_worker.h"
#include "bench/sim/sim_zmq.h"

#define LOWER_MS    50   /* interval in ms at which the events of the tiers are read */
#define LOWER_MOST  64u  /* events that are read at once */
#define HASHES_MOST 256u /* hashes in one event; more of them make several events */

struct kvb_reporter {
	const struct kvb_options *options;
	struct kvb_kv_style style;
	struct kvb_engine_watch watch;
	struct kvb_publisher *publisher; /* NULL: no KV events */
	struct kvb_zmq_watch replay;
	struct kvb_buf events, batch; /* events of the step under way, which make one batch */
	uint32_t event_count;
	char topic[KVB_ENDPOINT_MAX];
	struct kvb_lmcache *lmcache; /* NULL: none */
	struct kvb_store *store;     /* NULL: none; borrowed */
	struct kvb_fragments *fragments; /* NULL: none */
	struct event *ev_lower;      /* NULL: no store, or nothing is published */
};

static const struct kvb_exchange *exchange_of(const struct kvb_seq *seq)
{
	return ((const struct kvb_choice *)seq->user)->exchange;
}

static void on_stored(void *user, const struct kvb_seq *seq, uint32_t first, uint32_t count)
{
	struct kvb_reporter *reporter = user;
	const struct kvb_exchange *x = exchange_of(seq);
	uint32_t size = reporter->options->block_size;
	struct kvb_kv_stored stored = {.hashes = &seq->hashes[first + 1],
		.count = count,
		.block_size = size,
		.tokens = seq->tokens + (size_t)first * size,
		.parent = first == 0 ? NULL : &seq->hashes[first],
		.salt = json_string_value(json_object_get(x->body, "cache_salt"))};

	if (x->lora) {
		stored.lora = x->model;
		while (stored.lora_id < reporter->options->lora_count &&
			strcmp(reporter->options->loras[stored.lora_id++], x->model) != 0)
			;
	}
	kvb_kv_put_stored(&reporter->events, &reporter->style, &stored);
	reporter->event_count++;
}

static void on_removed(void *user, uint64_t hash)
{
	struct kvb_reporter *reporter = user;

	kvb_kv_put_removed(&reporter->events, &reporter->style, &hash, 1);
	reporter->event_count++;
}

static void on_cleared(void *user)
{
	struct kvb_reporter *reporter = user;

	kvb_kv_put_cleared(&reporter->events, &reporter->style);
	reporter->event_count++;
}

static bool passes_by(const struct kvb_seq *seq)
{
	return exchange_of(seq)->salt != 0;
}

static uint32_t on_find(void *user, struct kvb_seq *seq)
{
	struct kvb_reporter *reporter = user;

	return passes_by(seq) ? 0 : kvb_lmcache_find(reporter->lmcache, seq);
}

static void on_load(void *user, struct kvb_seq *seq, uint32_t tokens)
{
	kvb_lmcache_load(((struct kvb_reporter *)user)->lmcache, seq, tokens);
}

static void on_computed(void *user, struct kvb_seq *seq)
{
	struct kvb_reporter *reporter = user;

	if (!passes_by(seq))
		kvb_lmcache_computed(reporter->lmcache, seq);
}

static bool on_ask(void *user, struct kvb_seq *seq, int64_t now_ns, uint32_t hits, uint32_t *tokens)
{
	return kvb_store_ask(((struct kvb_reporter *)user)->store, seq, now_ns, hits, tokens);
}

static bool on_fetch(
	void *user, struct kvb_seq *seq, int64_t now_ns, uint32_t hits, uint32_t tokens)
{
	return kvb_store_fetch(((struct kvb_reporter *)user)->store, seq, now_ns, hits, tokens);
}

static void on_drop(void *user, struct kvb_seq *seq)
{
	kvb_store_drop(((struct kvb_reporter *)user)->store, seq);
}

static void on_chunks(void *user, struct kvb_seq *seq)
{
	const struct kvb_exchange *x = exchange_of(seq);

	kvb_store_computed(((struct kvb_reporter *)user)->store, seq,
		json_string_value(json_object_get(x->body, "cache_salt")),
		x->lora ? x->model : NULL);
}

static void on_blend(void *user, struct kvb_seq *seq, uint32_t from)
{
	const struct kvb_exchange *x = exchange_of(seq);

	kvb_fragments_blend(
		((struct kvb_reporter *)user)->fragments, seq, x->salt, from, x->exact);
}

static void on_passed(void *user, struct kvb_seq *seq)
{
	kvb_fragments_passed(((struct kvb_reporter *)user)->fragments, seq);
}

/* --- events of the lower tiers
 * ------------------------------------------------------------------ */

static uint64_t read_hash(const uint8_t *bytes)
{
	uint64_t hash = 0;

	for (int i = 0; i < 8; i++)
		hash = hash << 8 | bytes[i];
	return hash;
}

static void report_stored(struct kvb_reporter *reporter, const struct kvt_event *event,
	const char *medium, const char *locality, const uint64_t *hashes)
{
	uint64_t parent = event->parent == NULL ? 0 : read_hash(event->parent);
	struct kvb_kv_stored stored = {.hashes = hashes,
		.count = event->count,
		.block_size = event->block_size,
		.tokens = event->tokens,
		.parent = event->parent == NULL ? NULL : &parent,
		.lora = event->lora_name,
		.medium = medium,
		.locality = locality};

	while (stored.lora != NULL && stored.lora_id < reporter->options->lora_count &&
		strcmp(reporter->options->loras[stored.lora_id++], stored.lora) != 0)
		;
	kvb_kv_put_stored(&reporter->events, &reporter->style, &stored);
}

static void report_lower(struct kvb_reporter *reporter, const struct kvt_event *event)
{
	const char *medium = event->tier == KVT_TIER_L1 ? "CPU" : "STORAGE";
	const char *locality = event->tier == KVT_TIER_NVME ? "LOCAL"
			       : event->tier == KVT_TIER_L2 ? "REMOTE"
							    : NULL;
	uint64_t hashes[HASHES_MOST];

	if (event->kind == KVT_EVENT_CLEARED || event->hash_bytes != 8 ||
		event->count > HASHES_MOST)
		return;
	for (uint32_t i = 0; i < event->count; i++)
		hashes[i] = read_hash(event->hashes + (size_t)i * 8);
	if (event->kind == KVT_EVENT_STORED)
		report_stored(reporter, event, medium, locality, hashes);
	else
		kvb_kv_put_removed_from(&reporter->events, &reporter->style, medium,
			locality, hashes, event->count);
	reporter->event_count++;
}

static void take_lower(struct kvb_reporter *reporter)
{
	struct kvt_event events[LOWER_MOST];
	size_t count = LOWER_MOST;

	while (reporter->store != NULL && reporter->publisher != NULL && count == LOWER_MOST) {
		count = kvt_events(kvb_store_cache(reporter->store), events, LOWER_MOST);
		for (size_t i = 0; i < count; i++)
			report_lower(reporter, &events[i]);
	}
}

static void publish(struct kvb_reporter *reporter)
{
	kvb_buf_clear(&reporter->batch);
	kvb_kv_put_batch(&reporter->batch, &reporter->style,
		(double)kvw_clock_wall_ns() / 1e9, &reporter->events, reporter->event_count);
	kvb_publisher_send(reporter->publisher, reporter->batch.data, reporter->batch.len);
	kvb_buf_clear(&reporter->events);
	reporter->event_count = 0;
}

static void on_lower(evutil_socket_t fd, short what, void *arg)
{
	struct kvb_reporter *reporter = arg;
	/* events of a step under way are sent when it ends */
	bool engine = reporter->event_count > 0;

	(void)fd;
	(void)what;
	if (engine)
		return;
	take_lower(reporter);
	if (reporter->event_count > 0)
		publish(reporter);
}

static bool on_replay(void *user)
{
	return kvb_publisher_serve(((struct kvb_reporter *)user)->publisher);
}

/* The configured topic, with the worker's port in place of {port}. */
static void make_topic(struct kvb_reporter *reporter, uint16_t http_port)
{
	const char *topic = reporter->options->events.topic, *at = strstr(topic, "{port}");

	if (at == NULL)
		snprintf(reporter->topic, sizeof(reporter->topic), "%s", topic);
	else
		snprintf(reporter->topic, sizeof(reporter->topic), "%.*s%u%s", (int)(at - topic),
			topic, http_port, at + strlen("{port}"));
}

static bool start_events(struct kvb_reporter *reporter, struct event_base *base, void *zmq,
	uint32_t index, uint16_t http_port)
{
	const struct kvb_events_options *o = &reporter->options->events;
	struct kvb_publisher_config config = {.endpoint = o->endpoint,
		.replay_endpoint = o->replay_endpoint,
		.topic = reporter->topic,
		.host = reporter->options->host,
		.index = index,
		.buffer_steps = o->buffer_steps,
		.hwm = o->hwm,
		.old_replay = o->old_replay};

	make_topic(reporter, http_port);
	reporter->publisher = kvb_publisher_create(zmq, &config);
	if (reporter->publisher == NULL)
		return false;
	reporter->watch.stored = on_stored;
	reporter->watch.removed = on_removed;
	reporter->watch.cleared = on_cleared;
	return kvb_publisher_replay_socket(reporter->publisher) == NULL ||
	       kvb_zmq_watch(&reporter->replay, base,
		       kvb_publisher_replay_socket(reporter->publisher), on_replay, reporter);
}

static bool start_lmcache(
	struct kvb_reporter *reporter, struct event_base *base, void *zmq, uint32_t index)
{
	reporter->lmcache = kvb_lmcache_create(base, zmq, reporter->options, index);
	reporter->watch.find = on_find;
	reporter->watch.load = on_load;
	reporter->watch.computed = on_computed;
	reporter->watch.load_ns = reporter->options->lmcache.load_ns;
	return reporter->lmcache != NULL;
}

static bool start_tiers(struct kvb_reporter *reporter, struct event_base *base)
{
	struct timeval every = {0, LOWER_MS * 1000};

	reporter->watch.ask = on_ask;
	reporter->watch.fetch = on_fetch;
	reporter->watch.drop = on_drop;
	reporter->watch.computed = on_chunks;
	if (reporter->publisher == NULL)
		return true;
	reporter->ev_lower = event_new(base, -1, EV_PERSIST, on_lower, reporter);
	return reporter->ev_lower != NULL && event_add(reporter->ev_lower, &every) == 0;
}

static bool start_fragments(struct kvb_reporter *reporter)
{
	reporter->fragments = kvb_fragments_create(&reporter->options->fragments);
	reporter->watch.blend = on_blend;
	reporter->watch.passed = on_passed;
	return reporter->fragments != NULL;
}

const struct kvb_fragments *kvb_reporter_fragments(const struct kvb_reporter *reporter)
{
	return reporter == NULL ? NULL : reporter->fragments;
}

void kvb_reporter_set_store(struct kvb_reporter *reporter, struct kvb_store *store)
{
	if (reporter != NULL)
		reporter->store = store;
}

bool kvb_reporter_create(struct event_base *base, void *zmq, const struct kvb_options *options,
	uint32_t index, uint32_t rank, uint16_t http_port, struct kvb_reporter **out)
{
	struct kvb_reporter *reporter;

	*out = NULL;
	if (!options->events.on && !options->lmcache.on && !options->tier.on &&
		!options->fragments.on)
		return true;
	reporter = calloc(1, sizeof(*reporter));
	if (reporter == NULL)
		return false;
	reporter->options = options;
	reporter->style = options->events.style;
	reporter->style.rank = rank;
	if ((options->events.on && !start_events(reporter, base, zmq, index, http_port)) ||
		(options->lmcache.on && !options->tier.on &&
			!start_lmcache(reporter, base, zmq, index)) ||
		(options->tier.on && !start_tiers(reporter, base)) ||
		(options->fragments.on && !start_fragments(reporter))) {
		kvb_reporter_destroy(reporter);
		return false;
	}
	*out = reporter;
	return true;
}

void kvb_reporter_destroy(struct kvb_reporter *reporter)
{
	if (reporter == NULL)
		return;
	if (reporter->ev_lower != NULL)
		event_free(reporter->ev_lower);
	kvb_zmq_unwatch(&reporter->replay);
	kvb_publisher_destroy(reporter->publisher);
	kvb_lmcache_destroy(reporter->lmcache);
	kvb_fragments_destroy(reporter->fragments);
	kvb_buf_finish(&reporter->events);
	kvb_buf_finish(&reporter->batch);
	free(reporter);
}

void kvb_reporter_watch(struct kvb_reporter *reporter, struct kvb_engine *engine)
{
	if (reporter != NULL)
		kvb_engine_watch(engine, &reporter->watch, reporter);
}

void kvb_reporter_step_ends(struct kvb_reporter *reporter)
{
	if (reporter == NULL)
		return;
	take_lower(reporter);
	if (reporter->event_count > 0)
		publish(reporter);
	if (reporter->lmcache != NULL)
		kvb_lmcache_flush(reporter->lmcache);
}

void kvb_reporter_restart(struct kvb_reporter *reporter)
{
	if (reporter == NULL)
		return;
	kvb_buf_clear(&reporter->events);
	reporter->event_count = 0;
	if (reporter->publisher != NULL)
		kvb_publisher_restart(reporter->publisher);
	if (reporter->lmcache != NULL)
		kvb_lmcache_restart(reporter->lmcache);
	if (reporter->fragments != NULL)
		kvb_fragments_restart(reporter->fragments);
}

void kvb_reporter_sources(const struct kvb_reporter *reporter, bool first, struct kvb_buf *out)
{
	const char *replay;

	if (reporter == NULL || reporter->publisher == NULL)
		return;
	replay = kvb_publisher_replay_endpoint(reporter->publisher);
	kvb_buf_printf(out,
		"%s\"%u\":{\"enable_kv_cache_events\":true,\"publisher\":\"zmq\",\"endpoint\":",
		first ? "" : ",", reporter->style.rank);
	kvb_buf_json(out, kvb_publisher_endpoint(reporter->publisher),
		strlen(kvb_publisher_endpoint(reporter->publisher)));
	kvb_buf_text(out, ",\"replay_endpoint\":");
	if (replay[0] == '\0')
		kvb_buf_text(out, "null");
	else
		kvb_buf_json(out, replay, strlen(replay));
	kvb_buf_printf(out, ",\"buffer_steps\":%u,\"hwm\":%d,\"max_queue_size\":%u,\"topic\":",
		reporter->options->events.buffer_steps, reporter->options->events.hwm,
		reporter->options->events.max_queue_size);
	kvb_buf_json(out, reporter->topic, strlen(reporter->topic));
	kvb_buf_text(out, "}");
}

static void add_fragments(const struct kvb_reporter *reporter, struct kvb_buf *out)
{
	struct kvb_fragments_stats s;

	if (reporter->fragments == NULL)
		return;
	kvb_fragments_stats(reporter->fragments, &s);
	kvb_buf_printf(out,
		",\"fragments\":{\"share\":%g,\"segments\":%llu,\"found\":%llu,"
		"\"reused_tokens\":%llu,\"moved_bytes\":%llu,\"stored\":%llu,"
		"\"memory_units\":%u,\"disk_units\":%u}",
		reporter->options->fragments.share, (unsigned long long)s.segments,
		(unsigned long long)s.found, (unsigned long long)s.reused_tokens,
		(unsigned long long)s.moved_bytes, (unsigned long long)s.stored, s.memory_units,
		s.disk_units);
}

void kvb_reporter_stats(const struct kvb_reporter *reporter, struct kvb_buf *out)
{
	struct kvb_lmcache_stats l;

	if (reporter == NULL)
		return;
	if (reporter->publisher != NULL)
		kvb_buf_printf(out, ",\"kv_batches\":%llu,\"kv_replays\":%llu",
			(unsigned long long)kvb_publisher_sent(reporter->publisher),
			(unsigned long long)kvb_publisher_replays(reporter->publisher));
	add_fragments(reporter, out);
	if (reporter->lmcache == NULL)
		return;
	kvb_lmcache_stats(reporter->lmcache, &l);
	kvb_buf_text(out, ",\"lmcache\":{\"instance\":");
	kvb_buf_json(out, l.instance, strlen(l.instance));
	if (l.coordinated) {
		kvb_buf_printf(out,
			",\"registered\":%s,\"chunks\":%u,\"posts\":%llu,\"lost\":%llu,"
			"\"reported\":%llu,\"heartbeats\":%llu}",
			l.mp.registered ? "true" : "false", l.chunks,
			(unsigned long long)l.mp.posts, (unsigned long long)l.mp.lost,
			(unsigned long long)l.mp.reported, (unsigned long long)l.mp.beats);
		return;
	}
	kvb_buf_printf(out,
		",\"registered\":%s,\"frozen\":%s,\"chunks\":%u,\"operations\":%llu,"
		"\"syncs\":%llu,\"heartbeats\":%llu,\"commands\":%llu,\"port\":%u}",
		l.link.registered ? "true" : "false", l.link.frozen ? "true" : "false", l.chunks,
		(unsigned long long)l.link.changes, (unsigned long long)l.link.syncs,
		(unsigned long long)l.link.heartbeats, (unsigned long long)l.link.commands,
		l.link.port);
}
