/*
 * sim_lmcache_link.c - registration, heartbeats, events and full sync of one worker.
 *
 * A timer of TICK_MS looks at what is due; answers are read as they come. The link is ASKING until its
 * registration is answered, UP afterwards, and SILENT for ever if it was not: operations wait while it
 * asks, and are dropped (with their numbers) once it is silent.
 *
 * A full sync: the controller asks for it in a heartbeat's answer; Start is sent and, once accepted, all
 * batches and an End; then Status is asked until the controller lets go. Batches that it misses are sent
 * again, each time with another End. The keys are those of the moment in which it was asked for.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zmq.h>

#include "clock.h"
#include "sim_lmcache_link.h"
#include "sim_zmq.h"

#define TICK_MS          50
#define LINGER_MS        200    /* for the good-bye */
#define WAITING_MOST     100000 /* operations kept while the registration is not answered */
#define FRAME_MOST       200    /* operations of one message */
#define FRAMES_MOST      50     /* messages of one multipart */
#define SYNC_STARTS      3      /* tries */
#define SYNC_START_NS    INT64_C(2000000000)
#define SYNC_POLLS       60
#define SYNC_POLL_NS     INT64_C(200000000)
#define BEAT_PATIENCE_NS INT64_C(2000000000)

enum state { ASKING, UP, SILENT };
enum sync_state { NO_SYNC, SYNC_ASKED, SYNC_SENT };

struct sync {
	enum sync_state state;
	char id[KVB_LMC_TEXT_MAX + 32];
	uint64_t *keys; /* owned */
	uint32_t count, batches;
	uint32_t tries;   /* of Start, then of Status */
	int64_t again_ns; /* when to try again */
};

struct kvb_lmc_link {
	struct kvb_lmc_link_config config;
	char instance[KVB_LMC_TEXT_MAX], ip[64];
	struct kvb_lmc_identity who;
	struct event *ev_tick;
	void *push, *request, *beat, *command; /* sockets; NULL where there is none */
	struct kvb_zmq_watch request_watch, beat_watch, command_watch;
	char beat_url[KVB_LMC_TEXT_MAX]; /* "": no heartbeats */

	enum state state;
	int64_t asked_ns;
	int64_t beat_due_ns, beat_sent_ns; /* sent: 0 once it is answered */
	struct sync sync;
	uint32_t sync_number;

	struct kvb_lmc_operation *waiting; /* owned */
	uint32_t waiting_count, waiting_room;
	uint64_t next_number;
	struct kvb_buf out;
	uint64_t operations, syncs, heartbeats, commands;
};

static bool on_request(void *user);
static bool on_beat(void *user);

static bool is_old(const struct kvb_lmc_link *link)
{
	return link->config.options->version == KVB_LMCACHE_03;
}

static void *open_socket(struct kvb_lmc_link *link, int type, const char *address)
{
	void *socket = zmq_socket(link->config.zmq, type);
	int linger = LINGER_MS, any = 0;
	char url[KVB_LMC_TEXT_MAX + 8];

	snprintf(url, sizeof(url), "tcp://%s", address);
	if (socket == NULL)
		return NULL;
	zmq_setsockopt(socket, ZMQ_LINGER, &linger, sizeof(linger));
	zmq_setsockopt(socket, ZMQ_SNDHWM, &any, sizeof(any));
	if (type == ZMQ_REP ? zmq_bind(socket, url) == 0 : zmq_connect(socket, url) == 0)
		return socket;
	fprintf(stderr, "kvsim: LMCache at %s: %s\n", url, zmq_strerror(errno));
	zmq_close(socket);
	return NULL;
}

static void close_socket(struct kvb_zmq_watch *watch, void **socket)
{
	if (watch != NULL)
		kvb_zmq_unwatch(watch);
	if (*socket != NULL)
		zmq_close(*socket);
	*socket = NULL;
}

/* What was written into link->out, as one message of a DEALER. */
static void ask(struct kvb_lmc_link *link, void *socket, struct kvb_zmq_watch *watch)
{
	if (!link->out.failed && zmq_send(socket, "", 0, ZMQ_DONTWAIT | ZMQ_SNDMORE) >= 0)
		(void)!zmq_send(socket, link->out.data, link->out.len, ZMQ_DONTWAIT);
	kvb_buf_clear(&link->out);
	kvb_zmq_poke(watch);
}

static void push(struct kvb_lmc_link *link, bool more)
{
	if (!link->out.failed)
		(void)!zmq_send(link->push, link->out.data, link->out.len,
			ZMQ_DONTWAIT | (more ? ZMQ_SNDMORE : 0));
	kvb_buf_clear(&link->out);
}

/* --- operations -------------------------------------------------------------------------------- */

void kvb_lmc_link_operation(struct kvb_lmc_link *link, bool admit, uint64_t key)
{
	struct kvb_lmc_operation *grown;
	uint32_t room;

	link->operations++;
	if (link->waiting_count == link->waiting_room && link->waiting_room < WAITING_MOST) {
		room = link->waiting_room == 0 ? 256 : 2 * link->waiting_room;
		grown = realloc(link->waiting, room * sizeof(*grown));
		if (grown != NULL) {
			link->waiting = grown;
			link->waiting_room = room;
		}
	}
	if (link->state != SILENT && link->waiting_count < link->waiting_room)
		link->waiting[link->waiting_count++] =
			(struct kvb_lmc_operation){key, link->next_number, admit};
	link->next_number++;
}

void kvb_lmc_link_flush(struct kvb_lmc_link *link)
{
	uint32_t done = 0, frames = 0;

	if (link->state != UP)
		return;
	while (done < link->waiting_count) {
		uint32_t now = link->waiting_count - done;

		now = now < FRAME_MOST ? now : FRAME_MOST;
		kvb_lmc_put_operations(&link->out, &link->who, link->waiting + done, now);
		done += now;
		frames++;
		push(link, done < link->waiting_count && frames % FRAMES_MOST != 0);
	}
	link->waiting_count = 0;
}

/* --- full sync --------------------------------------------------------------------------------- */

static void sync_end(struct kvb_lmc_link *link)
{
	free(link->sync.keys);
	link->sync = (struct sync){0};
}

static void sync_ask(struct kvb_lmc_link *link)
{
	struct sync *sync = &link->sync;

	kvb_lmc_put_sync_start(&link->out, &link->who, sync->id, sync->count, sync->batches);
	ask(link, link->request, &link->request_watch);
	sync->tries++;
	sync->again_ns = kvw_clock_ns() + SYNC_START_NS;
}

static void sync_begin(struct kvb_lmc_link *link)
{
	uint32_t batch = link->config.options->sync_batch;
	struct sync *sync = &link->sync;

	if (sync->state != NO_SYNC)
		return;
	kvb_lmc_link_flush(link);
	sync->count = kvb_tier_count(link->config.tier);
	sync->keys = malloc(((size_t)sync->count + 1) * sizeof(*sync->keys));
	if (sync->keys == NULL)
		return;
	kvb_tier_copy(link->config.tier, sync->keys);
	sync->batches = (sync->count + batch - 1) / batch;
	snprintf(sync->id, sizeof(sync->id), "%s_%u_%08x", link->instance, link->who.worker,
		++link->sync_number);
	sync->state = SYNC_ASKED;
	link->syncs++;
	sync_ask(link);
}

static void sync_send_batch(struct kvb_lmc_link *link, uint32_t batch)
{
	const struct sync *sync = &link->sync;
	uint32_t size = link->config.options->sync_batch, from = batch * size;

	if (batch >= sync->batches)
		return;
	kvb_lmc_put_sync_batch(&link->out, &link->who, sync->id, batch, sync->keys + from,
		sync->count - from < size ? sync->count - from : size);
	push(link, false);
}

static void sync_send_end(struct kvb_lmc_link *link)
{
	kvb_lmc_put_sync_end(&link->out, &link->who, link->sync.id, link->sync.count);
	push(link, false);
	link->sync.again_ns = kvw_clock_ns() + SYNC_POLL_NS;
}

static void sync_started(struct kvb_lmc_link *link, bool accepted)
{
	if (link->sync.state != SYNC_ASKED)
		return;
	if (!accepted) {
		sync_end(link);
		return;
	}
	for (uint32_t i = 0; i < link->sync.batches; i++)
		sync_send_batch(link, i);
	link->sync.state = SYNC_SENT;
	link->sync.tries = 0;
	sync_send_end(link);
}

static void sync_status(struct kvb_lmc_link *link, const struct kvb_lmc_message *m)
{
	if (link->sync.state != SYNC_SENT)
		return;
	if (m->can_exit_freeze) {
		sync_end(link);
		return;
	}
	for (uint32_t i = 0; i < m->missing_count; i++)
		sync_send_batch(link, m->missing[i]);
	if (m->missing_count > 0)
		sync_send_end(link);
}

static void sync_tick(struct kvb_lmc_link *link, int64_t now_ns)
{
	struct sync *sync = &link->sync;

	if (sync->state == NO_SYNC || now_ns < sync->again_ns)
		return;
	if (sync->tries >= (sync->state == SYNC_ASKED ? SYNC_STARTS : SYNC_POLLS)) {
		sync_end(link);
		return;
	}
	if (sync->state == SYNC_ASKED) {
		sync_ask(link);
		return;
	}
	kvb_lmc_put_sync_status(&link->out, &link->who, sync->id);
	ask(link, link->request, &link->request_watch);
	sync->tries++;
	sync->again_ns = now_ns + SYNC_POLL_NS;
}

/* --- registration and heartbeats ---------------------------------------------------------------- */

static int64_t beat_interval_ns(const struct kvb_lmc_link *link)
{
	return (int64_t)(link->config.options->heartbeat_s * 1e9);
}

static void open_beat(struct kvb_lmc_link *link)
{
	close_socket(&link->beat_watch, &link->beat);
	link->beat_sent_ns = 0;
	link->beat = open_socket(link, ZMQ_DEALER, link->beat_url);
	if (link->beat != NULL &&
		!kvb_zmq_watch(&link->beat_watch, link->config.base, link->beat, on_beat, link))
		close_socket(&link->beat_watch, &link->beat);
}

static void registered(struct kvb_lmc_link *link, const char *heartbeat_url)
{
	if (link->state != ASKING)
		return;
	link->state = UP;
	link->beat_due_ns = kvw_clock_ns() + beat_interval_ns(link);
	snprintf(link->beat_url, sizeof(link->beat_url), "%s", heartbeat_url);
	if (link->beat_url[0] != '\0' && link->config.options->heartbeat_s > 0)
		open_beat(link);
	kvb_lmc_link_flush(link);
}

static void enrol(struct kvb_lmc_link *link)
{
	link->state = ASKING;
	link->asked_ns = kvw_clock_ns();
	kvb_lmc_put_presence(&link->out, "RegisterMsg", &link->who);
	if (is_old(link)) {
		push(link, false);
		registered(link, "");
	} else {
		ask(link, link->request, &link->request_watch);
	}
}

static void beat_tick(struct kvb_lmc_link *link, int64_t now_ns)
{
	int64_t interval = beat_interval_ns(link);

	if (interval == 0 || (!is_old(link) && link->beat_url[0] == '\0'))
		return;
	if (link->beat_sent_ns != 0 && now_ns - link->beat_sent_ns > BEAT_PATIENCE_NS)
		open_beat(link); /* the answer will not come any more */
	if (now_ns < link->beat_due_ns || link->beat_sent_ns != 0)
		return;
	link->beat_due_ns = now_ns + interval;
	link->heartbeats++;
	kvb_lmc_put_presence(&link->out, "HeartbeatMsg", &link->who);
	if (is_old(link)) {
		push(link, false);
	} else if (link->beat != NULL) {
		link->beat_sent_ns = now_ns;
		ask(link, link->beat, &link->beat_watch);
	} else {
		kvb_buf_clear(&link->out);
	}
}

static void on_tick(evutil_socket_t fd, short what, void *arg)
{
	struct kvb_lmc_link *link = arg;
	int64_t now_ns = kvw_clock_ns();

	(void)fd;
	(void)what;
	if (link->state == ASKING &&
		(double)(now_ns - link->asked_ns) > link->config.options->timeout_s * 1e9) {
		link->state = SILENT;
		link->waiting_count = 0;
	}
	if (link->state != UP)
		return;
	beat_tick(link, now_ns);
	sync_tick(link, now_ns);
}

/* --- what comes ---------------------------------------------------------------------------------- */

/* One multipart message; its last frame is the payload. False: none was there. */
static bool receive(void *socket, zmq_msg_t *last)
{
	zmq_msg_init(last);
	do {
		if (zmq_msg_recv(last, socket, ZMQ_DONTWAIT) < 0) {
			zmq_msg_close(last);
			return false;
		}
	} while (zmq_msg_more(last));
	return true;
}

static bool receive_message(void *socket, struct kvb_lmc_message *m, bool *good)
{
	zmq_msg_t frame;

	if (!receive(socket, &frame))
		return false;
	*good = kvb_lmc_read(zmq_msg_data(&frame), zmq_msg_size(&frame), m);
	zmq_msg_close(&frame);
	return true;
}

static bool on_request(void *user)
{
	struct kvb_lmc_link *link = user;
	struct kvb_lmc_message m;
	bool good;

	if (!receive_message(link->request, &m, &good))
		return false;
	if (!good)
		return true;
	if (strcmp(m.type, "RegisterRetMsg") == 0)
		registered(link, m.heartbeat_url);
	else if (strcmp(m.type, "FullSyncStartRetMsg") == 0)
		sync_started(link, m.accepted);
	else if (strcmp(m.type, "FullSyncStatusRetMsg") == 0)
		sync_status(link, &m);
	free(m.tokens);
	return true;
}

static bool on_beat(void *user)
{
	struct kvb_lmc_link *link = user;
	struct kvb_lmc_message m;
	bool good;

	if (!receive_message(link->beat, &m, &good))
		return false;
	if (!good)
		return true;
	link->beat_sent_ns = 0;
	if (strcmp(m.type, "HeartbeatRetMsg") == 0 && m.full_sync)
		sync_begin(link);
	free(m.tokens);
	return true;
}

static bool on_command(void *user)
{
	struct kvb_lmc_link *link = user;
	struct kvb_lmc_message m;
	struct kvb_buf answer = {0};
	bool good;

	if (!receive_message(link->command, &m, &good))
		return false;
	link->commands++;
	if (good)
		link->config.command(link->config.user, &m, &answer);
	else
		kvb_lmc_put_error(&answer, "Worker error: Invalid MessagePack");
	if (good)
		free(m.tokens);
	kvb_lmc_link_flush(link);
	zmq_send(link->command, answer.data, answer.len, ZMQ_DONTWAIT);
	kvb_buf_free(&answer);
	return true;
}

/* --- life ----------------------------------------------------------------------------------------- */

static bool open_command(struct kvb_lmc_link *link)
{
	char address[KVB_LMC_TEXT_MAX];
	size_t len = sizeof(address);
	const char *port;

	if (link->config.port == 0)
		snprintf(address, sizeof(address), "%s:*", link->ip);
	else
		snprintf(address, sizeof(address), "%s:%u", link->ip, link->config.port);
	link->command = open_socket(link, ZMQ_REP, address);
	if (link->command == NULL ||
		zmq_getsockopt(link->command, ZMQ_LAST_ENDPOINT, address, &len) != 0)
		return false;
	port = strrchr(address, ':');
	link->who.port = (uint16_t)(port == NULL ? 0 : strtoul(port + 1, NULL, 10));
	return kvb_zmq_watch(
		&link->command_watch, link->config.base, link->command, on_command, link);
}

static bool open_all(struct kvb_lmc_link *link)
{
	const struct kvb_lmcache_options *o = link->config.options;
	struct timeval tick = {0, TICK_MS * 1000};

	link->push = open_socket(link, ZMQ_PUSH, o->pull);
	if (link->push == NULL || !open_command(link))
		return false;
	if (!is_old(link)) {
		link->request = open_socket(link, ZMQ_DEALER, o->reply);
		if (link->request == NULL || !kvb_zmq_watch(&link->request_watch, link->config.base,
						     link->request, on_request, link))
			return false;
	}
	link->ev_tick = event_new(link->config.base, -1, EV_PERSIST, on_tick, link);
	return link->ev_tick != NULL && event_add(link->ev_tick, &tick) == 0;
}

struct kvb_lmc_link *kvb_lmc_link_create(const struct kvb_lmc_link_config *config)
{
	struct kvb_lmc_link *link = calloc(1, sizeof(*link));

	if (link == NULL)
		return NULL;
	link->config = *config;
	snprintf(link->instance, sizeof(link->instance), "%s", config->instance);
	snprintf(link->ip, sizeof(link->ip), "%s", config->ip);
	link->who = (struct kvb_lmc_identity){.instance = link->instance,
		.ip = link->ip,
		.signed_keys = config->options->recipe.algorithm == KVW_LMCACHE_BUILTIN};
	if (!open_all(link)) {
		kvb_lmc_link_destroy(link);
		return NULL;
	}
	enrol(link);
	return link;
}

void kvb_lmc_link_restart(struct kvb_lmc_link *link)
{
	sync_end(link);
	close_socket(&link->beat_watch, &link->beat);
	link->beat_url[0] = '\0';
	link->beat_sent_ns = 0;
	link->waiting_count = 0;
	link->next_number = 0;
	enrol(link);
}

void kvb_lmc_link_destroy(struct kvb_lmc_link *link)
{
	if (link == NULL)
		return;
	if (link->push != NULL && link->state == UP) {
		kvb_lmc_put_presence(&link->out, "DeRegisterMsg", &link->who);
		push(link, false);
	}
	if (link->ev_tick != NULL)
		event_free(link->ev_tick);
	close_socket(&link->request_watch, &link->request);
	close_socket(&link->beat_watch, &link->beat);
	close_socket(&link->command_watch, &link->command);
	close_socket(NULL, &link->push);
	sync_end(link);
	free(link->waiting);
	kvb_buf_free(&link->out);
	free(link);
}

void kvb_lmc_link_stats(const struct kvb_lmc_link *link, struct kvb_lmc_link_stats *out)
{
	*out = (struct kvb_lmc_link_stats){.registered = link->state == UP,
		.frozen = link->sync.state != NO_SYNC,
		.operations = link->operations,
		.syncs = link->syncs,
		.heartbeats = link->heartbeats,
		.commands = link->commands,
		.port = link->who.port};
}
