/*
 * sim_mp.c - see sim_mp.h. One kept-alive connection with one request at a time; a timer sends what
 * is due: the registration first, then heartbeats and posts of events.
 */
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "bench/load/mem.h"
#include "bench/sim/sim_mp.h"

#define PATIENCE_S 10
#define CHUNK_BYTES_OF_TOKEN 128u /* as reported; nothing depends on it */

enum asked { ASKED_NOTHING, ASKED_PLACE, ASKED_BEAT, ASKED_EVENTS };

struct kvb_mp {
	const struct kvb_options *options;
	const char *instance;
	struct event_base *base;
	struct event *ev_tick;
	struct bufferevent *io; /* NULL: not connected */
	char host[KVB_ADDRESS_MAX];
	uint16_t port;
	enum asked asked; /* that the answer is to */
	uint64_t sent;    /* entries of the post under way */
	int64_t beat_ns;

	uint64_t incarnation, seq;
	struct kvb_buf batches; /* of the next post; the last one is still open */
	const char *type;       /* of the open batch; NULL: none is */
	uint64_t entries;       /* in `batches` */
	struct kvb_mp_stats stats;
};

/* --- batches ------------------------------------------------------------------------------------ */

static void end_batch(struct kvb_mp *mp)
{
	if (mp->type != NULL)
		kvb_buf_text(&mp->batches, "]}");
	mp->type = NULL;
}

/* Goes on with the batch of this type, or begins one. */
static void begin_batch(struct kvb_mp *mp, const char *type, uint64_t capacity)
{
	if (mp->type != NULL && strcmp(mp->type, type) == 0) {
		kvb_buf_text(&mp->batches, ",");
		return;
	}
	end_batch(mp);
	kvb_buf_text(&mp->batches, mp->batches.len == 0 ? "{\"batches\":[" : ",");
	kvb_buf_text(&mp->batches, "{\"instance_id\":");
	kvb_buf_json(&mp->batches, mp->instance, strlen(mp->instance));
	kvb_buf_printf(&mp->batches,
		",\"incarnation\":%llu,\"seq\":%llu,\"event_type\":\"%s\",\"tier\":\"l1\","
		"\"backend\":\"dram\",\"shared\":false,\"ts\":%.6f,\"capacity_bytes\":%llu,"
		"\"capacity_revision\":%d,\"entries\":[",
		(unsigned long long)mp->incarnation, (unsigned long long)++mp->seq, type,
		(double)kvw_clock_wall_ns() / 1e9, (unsigned long long)capacity, capacity > 0);
	mp->type = type;
}

static void put_entry(struct kvb_mp *mp, const uint8_t hash[KVW_BLAKE3_BYTES], uint32_t bytes,
	const uint32_t *tokens, uint64_t offset)
{
	kvb_buf_text(&mp->batches, "{\"key\":{\"chunk_hash_hex\":\"");
	for (size_t i = 0; i < KVW_BLAKE3_BYTES; i++)
		kvb_buf_printf(&mp->batches, "%02x", hash[i]);
	kvb_buf_text(&mp->batches, "\",\"model_name\":");
	kvb_buf_json(&mp->batches, mp->options->model, strlen(mp->options->model));
	kvb_buf_printf(&mp->batches,
		",\"kv_rank\":16777472,\"object_group_id\":0,\"cache_salt\":\"\"},"
		"\"size_bytes\":%u,\"token_ids\":",
		bytes);
	kvb_buf_ids(&mp->batches, tokens,
		tokens == NULL ? 0 : mp->options->lmcache.recipe.chunk_size);
	if (tokens != NULL)
		kvb_buf_printf(&mp->batches, ",\"token_offset\":%llu}", (unsigned long long)offset);
	else
		kvb_buf_text(&mp->batches, ",\"token_offset\":-1}");
	mp->entries++;
}

static void declare(struct kvb_mp *mp)
{
	begin_batch(mp, "config", (uint64_t)mp->options->lmcache.cpu_tokens * CHUNK_BYTES_OF_TOKEN);
	end_batch(mp);
}

void kvb_mp_stored(struct kvb_mp *mp, const uint8_t hash[KVW_BLAKE3_BYTES], const uint32_t *tokens,
	uint64_t offset)
{
	begin_batch(mp, "store", 0);
	put_entry(mp, hash, mp->options->lmcache.recipe.chunk_size * CHUNK_BYTES_OF_TOKEN, tokens,
		offset);
}

void kvb_mp_deleted(struct kvb_mp *mp, const uint8_t hash[KVW_BLAKE3_BYTES])
{
	begin_batch(mp, "delete", 0);
	put_entry(mp, hash, 0, NULL, 0);
}

/* --- requests ----------------------------------------------------------------------------------- */

/* A post was not taken: what it had is lost, and only capacities are reported again. */
static void lose_post(struct kvb_mp *mp)
{
	mp->stats.lost++;
	declare(mp);
}

static void hang_up(struct kvb_mp *mp)
{
	if (mp->io != NULL)
		bufferevent_free(mp->io);
	mp->io = NULL;
	if (mp->asked == ASKED_EVENTS)
		lose_post(mp);
	mp->asked = ASKED_NOTHING;
}

static void take_answer(struct kvb_mp *mp, bool good, bool unknown)
{
	enum asked asked = mp->asked;

	mp->asked = ASKED_NOTHING;
	if (asked == ASKED_PLACE) {
		mp->stats.registered = good;
	} else if (asked == ASKED_BEAT) {
		mp->stats.beats += good;
		if (unknown)
			mp->stats.registered = false;
	} else if (good) {
		mp->stats.posts++;
		mp->stats.reported += mp->sent;
	} else {
		lose_post(mp);
	}
}

static void on_read(struct bufferevent *io, void *arg)
{
	struct kvb_mp *mp = arg;
	struct evbuffer *in = bufferevent_get_input(io);
	char head[1024] = "";
	const char *end, *field;
	size_t whole;

	evbuffer_copyout(in, head, sizeof(head) - 1);
	end = strstr(head, "\r\n\r\n");
	if (end == NULL)
		return;
	field = strcasestr(head, "\r\ncontent-length:");
	whole = (size_t)(end + 4 - head) +
		(field != NULL && field < end ? strtoul(field + 17, NULL, 10) : 0);
	if (evbuffer_get_length(in) < whole)
		return;
	evbuffer_drain(in, whole);
	take_answer(mp, strncmp(head, "HTTP/1.1 200", 12) == 0,
		strncmp(head, "HTTP/1.1 404", 12) == 0);
}

static void on_event(struct bufferevent *io, short what, void *arg)
{
	(void)io;
	if ((what & BEV_EVENT_CONNECTED) == 0)
		hang_up(arg);
}

static void ask(struct kvb_mp *mp, enum asked asked, const char *method, const char *path,
	const struct kvb_buf *body)
{
	const struct timeval patience = {PATIENCE_S, 0};
	struct evbuffer *out;

	if (mp->io == NULL) {
		mp->io = bufferevent_socket_new(mp->base, -1, BEV_OPT_CLOSE_ON_FREE);
		if (mp->io == NULL)
			return;
		bufferevent_setcb(mp->io, on_read, NULL, on_event, mp);
		bufferevent_enable(mp->io, EV_READ | EV_WRITE);
		bufferevent_socket_connect_hostname(mp->io, NULL, AF_INET, mp->host, mp->port);
	}
	bufferevent_set_timeouts(mp->io, &patience, &patience);
	out = bufferevent_get_output(mp->io);
	evbuffer_add_printf(out,
		"%s %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\n"
		"Content-Length: %zu\r\n\r\n",
		method, path, mp->host, body->len);
	if (body->len > 0)
		evbuffer_add(out, body->data, body->len);
	mp->asked = asked;
}

static void post_events(struct kvb_mp *mp)
{
	end_batch(mp);
	kvb_buf_text(&mp->batches, "]}");
	ask(mp, ASKED_EVENTS, "POST", "/events", &mp->batches);
	mp->sent = mp->entries;
	mp->entries = 0;
	kvb_buf_clear(&mp->batches);
}

static void on_tick(evutil_socket_t fd, short what, void *arg)
{
	struct kvb_mp *mp = arg;
	int64_t now_ns = kvw_clock_ns();
	double beat_s = mp->options->lmcache.heartbeat_s;
	struct kvb_buf body = {0};
	char path[KVB_ADDRESS_MAX];

	(void)fd;
	(void)what;
	if (mp->asked != ASKED_NOTHING)
		return;
	if (!mp->stats.registered) {
		kvb_buf_text(&body, "{\"instance_id\":");
		kvb_buf_json(&body, mp->instance, strlen(mp->instance));
		kvb_buf_printf(&body,
			",\"ip\":\"%s\",\"http_port\":1,\"metadata\":{},\"p2p_advertised_url\":\"\","
			"\"mq_port\":0}",
			mp->options->host);
		ask(mp, ASKED_PLACE, "POST", "/instances", &body);
		mp->beat_ns = now_ns;
	} else if (beat_s > 0 && (double)(now_ns - mp->beat_ns) >= beat_s * 1e9) {
		snprintf(path, sizeof(path), "/instances/%s/heartbeat", mp->instance);
		ask(mp, ASKED_BEAT, "PUT", path, &body);
		mp->beat_ns = now_ns;
	} else if (mp->batches.len > 0) {
		post_events(mp);
	}
	kvb_buf_finish(&body);
}

/* --- life --------------------------------------------------------------------------------------- */

struct kvb_mp *kvb_mp_create(
	struct event_base *base, const struct kvb_options *options, const char *instance)
{
	const struct kvb_lmcache_options *o = &options->lmcache;
	struct kvb_mp *mp = calloc(1, sizeof(*mp));
	struct timeval every = {(time_t)o->flush_s, (suseconds_t)((o->flush_s - (time_t)o->flush_s) * 1e6)};

	if (mp == NULL)
		return NULL;
	mp->options = options;
	mp->instance = instance;
	mp->base = base;
	mp->incarnation = (uint64_t)(kvw_clock_wall_ns() / KVW_NS_PER_S);
	snprintf(mp->host, sizeof(mp->host), "%.*s", (int)strcspn(o->coordinator, ":"),
		o->coordinator);
	mp->port = (uint16_t)strtoul(strchr(o->coordinator, ':') + 1, NULL, 10);
	mp->ev_tick = event_new(base, -1, EV_PERSIST, on_tick, mp);
	if (mp->ev_tick == NULL || event_add(mp->ev_tick, &every) != 0) {
		kvb_mp_destroy(mp);
		return NULL;
	}
	declare(mp);
	on_tick(-1, 0, mp);
	return mp;
}

void kvb_mp_destroy(struct kvb_mp *mp)
{
	if (mp == NULL)
		return;
	if (mp->ev_tick != NULL)
		event_free(mp->ev_tick);
	hang_up(mp);
	kvb_buf_finish(&mp->batches);
	free(mp);
}

void kvb_mp_restart(struct kvb_mp *mp)
{
	hang_up(mp);
	kvb_buf_clear(&mp->batches);
	mp->type = NULL;
	mp->entries = 0;
	mp->seq = 0;
	mp->incarnation++;
	mp->stats.registered = false;
	declare(mp);
}

void kvb_mp_stats(const struct kvb_mp *mp, struct kvb_mp_stats *out)
{
	*out = mp->stats;
}
