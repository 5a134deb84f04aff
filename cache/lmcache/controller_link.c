/*
 * controller_link.c - registration, heartbeats and commands of one worker.
 *
 * A step reads each socket and then does the work that is due. The link is ASKING until its
 * registration is answered and UP afterwards.
 *
 * Requests are answered in their order, without a number that matches an answer to its request:
 * after a request was given up, its socket is closed and opened again, so that a late answer is
 * lost. A worker that registers counts from 0, like a new process: so changes that waited for a
 * controller that went away are dropped, and the next controller gets all names by a full sync.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zmq.h>

#include "lmcache/controller_parts.h"

#define LINGER_MS      200 /* time for the good-bye to be sent */
#define OWN_HWM        256 /* most messages that wait for a controller that does not read */
#define RECEIVE_HWM    64
#define RECONNECT_MOST 5000                /* ms */
/* time after which a stock worker takes a heartbeat for unanswered */
#define STOCK_BEAT_NS  INT64_C(2000000000)
#define PATIENCE_MOST  INT64_C(60000000000)
#define BEATS_TO_AWAY  2 /* unanswered ones */
#define RETRY_NS       INT64_C(50000000)
#define TURN_MESSAGES  64 /* most messages of one socket in a step */

/* --- sockets ---------------------------------------------------------------------------------- */

static void set(void *socket, int option, int value)
{
	zmq_setsockopt(socket, option, &value, sizeof(value));
}

static const char *bare(const char *address)
{
	return strncmp(address, "tcp://", 6) == 0 ? address + 6 : address;
}

static void *open_socket(struct kvt_controller_link *link, int type, const char *address)
{
	const struct kvt_controller_link_user *user = &link->config.user;
	void *socket = zmq_socket(link->config.zmq, type);
	int64_t most = KVT_CONTROLLER_MESSAGE_MAX;
	char url[KVT_CONTROLLER_TEXT_MAX + 8];
	bool ipc = strncmp(address, "ipc://", 6) == 0;

	if (socket == NULL)
		return NULL;
	snprintf(url, sizeof(url), "%s%s", ipc ? "" : "tcp://", bare(address));
	set(socket, ZMQ_LINGER, type == ZMQ_PUSH || type == ZMQ_REP ? LINGER_MS : 0);
	set(socket, ZMQ_SNDHWM, link->config.stock ? 0 : OWN_HWM);
	set(socket, ZMQ_RCVHWM, RECEIVE_HWM);
	set(socket, ZMQ_RECONNECT_IVL_MAX, link->config.stock ? 0 : RECONNECT_MOST);
	set(socket, ZMQ_IPV6, strchr(url, '[') != NULL);
	zmq_setsockopt(socket, ZMQ_MAXMSGSIZE, &most, sizeof(most));
	if (type == ZMQ_REP ? zmq_bind(socket, url) != 0 : zmq_connect(socket, url) != 0) {
		int cause = errno;

		zmq_close(socket);
		errno = cause;
		return NULL;
	}
	if (user->opened != NULL && type != ZMQ_PUSH)
		user->opened(user->self, socket);
	return socket;
}

static void close_socket(struct kvt_controller_link *link, void **socket)
{
	const struct kvt_controller_link_user *user = &link->config.user;

	if (*socket == NULL)
		return;
	if (user->closing != NULL && *socket != link->push)
		user->closing(user->self, *socket);
	zmq_close(*socket);
	*socket = NULL;
}

static void open_again(struct kvt_controller_link *link, void **socket, const char *address)
{
	close_socket(link, socket);
	*socket = open_socket(link, ZMQ_DEALER, address);
}

/* --- registration and heartbeats -------------------------------------------------------------- */

/* Returns a random time from 0 to `most`, different for each worker. */
static int64_t some_of(struct kvt_controller_link *link, int64_t most)
{
	link->seed = link->seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return most <= 0 ? 0 : (int64_t)((link->seed >> 11) % (uint64_t)(most + 1));
}

void kvt_controller_link_resync(struct kvt_controller_link *link, int64_t now_ns)
{
	if (link->config.stock)
		return;
	if (!link->resync)
		link->resync_ns = now_ns + some_of(link, link->config.sync_delay_ns);
	link->resync = true;
}

static void registered(struct kvt_controller_link *link, const char *heartbeat_url, int64_t now_ns)
{
	const char *url = link->heartbeat[0] != '\0' ? link->heartbeat : heartbeat_url;

	if (link->state != KVT_CONTROLLER_ASKING)
		return;
	link->state = KVT_CONTROLLER_UP;
	link->unanswered = 0;
	link->patience_ns = link->config.answer_ns;
	link->beat_due_ns = now_ns + link->config.heartbeat_delay_ns;
	link->beat_sent_ns = 0;
	snprintf(link->beat_url, sizeof(link->beat_url), "%s", url);
	close_socket(link, &link->beat);
	if (link->beat_url[0] != '\0' && link->config.heartbeat_ns > 0)
		link->beat = open_socket(link, ZMQ_DEALER, link->beat_url);
	if (link->resync)
		link->resync_ns = now_ns + some_of(link, link->config.sync_delay_ns);
	kvt_controller_link_flush(link);
}

static void enrol(struct kvt_controller_link *link, int64_t now_ns)
{
	link->state = KVT_CONTROLLER_ASKING;
	link->asked_ns = now_ns;
	link->stats.registrations++;
	kvt_controller_put_presence(&link->out, "RegisterMsg", &link->sender);
	if (kvt_controller_is_old(link)) {
		(void)kvt_controller_push(link, false);
		registered(link, "", now_ns);
	} else {
		kvt_controller_ask(link, link->request);
	}
}

/* Called when the controller no longer answers. */
static void away(struct kvt_controller_link *link, int64_t now_ns)
{
	kvt_controller_sync_end(link);
	close_socket(link, &link->beat);
	open_again(link, &link->request, link->reply);
	set(link->push, ZMQ_LINGER, 0); /* drops waiting messages, because they are out of date */
	close_socket(link, &link->push);
	link->push = open_socket(link, ZMQ_PUSH, link->pull);
	for (uint32_t i = 0; i < link->config.locations; i++)
		link->changes[i].count = link->changes[i].next_number = 0;
	link->resync = true;
	link->resync_ns = now_ns;
	link->stats.silences++;
	enrol(link, now_ns);
}

static void asking_tick(struct kvt_controller_link *link, int64_t now_ns)
{
	if (now_ns - link->asked_ns < link->patience_ns)
		return;
	if (link->config.stock) {
		link->state = KVT_CONTROLLER_SILENT;
		for (uint32_t i = 0; i < link->config.locations; i++)
			link->changes[i].count = 0;
		return;
	}
	link->stats.silences++;
	link->patience_ns =
		link->patience_ns * 2 < PATIENCE_MOST ? link->patience_ns * 2 : PATIENCE_MOST;
	open_again(link, &link->request, link->reply);
	enrol(link, now_ns);
}

static void beat_tick(struct kvt_controller_link *link, int64_t now_ns)
{
	int64_t patience = link->config.stock ? STOCK_BEAT_NS : link->config.answer_ns;

	if (link->config.heartbeat_ns == 0 ||
		(!kvt_controller_is_old(link) && link->beat_url[0] == '\0'))
		return;
	if (link->beat_sent_ns != 0 && now_ns - link->beat_sent_ns > patience) {
		link->beat_sent_ns = 0; /* the answer will not arrive any more */
		if (++link->unanswered >= BEATS_TO_AWAY && !link->config.stock) {
			away(link, now_ns);
			return;
		}
		open_again(link, &link->beat, link->beat_url);
	}
	if (now_ns < link->beat_due_ns || link->beat_sent_ns != 0)
		return;
	link->beat_due_ns = now_ns + link->config.heartbeat_ns;
	link->stats.heartbeats++;
	kvt_controller_put_presence(&link->out, "HeartbeatMsg", &link->sender);
	if (kvt_controller_is_old(link)) {
		(void)kvt_controller_push(link, false);
		return;
	}
	link->beat_sent_ns = now_ns;
	kvt_controller_ask(link, link->beat);
}

/* --- input ------------------------------------------------------------------------------------ */

/* Receives a message of several frames, of which the last one is the payload. Returns false if
 * there is none. */
static bool receive(void *socket, zmq_msg_t *last)
{
	bool more = true;

	if (socket == NULL)
		return false;
	zmq_msg_init(last);
	while (more) {
		if (zmq_msg_recv(last, socket, ZMQ_DONTWAIT) < 0) {
			zmq_msg_close(last);
			return false;
		}
		more = zmq_msg_more(last);
	}
	return true;
}

static bool receive_message(struct kvt_controller_link *link, void *socket,
	struct kvt_controller_message *m, bool *good)
{
	zmq_msg_t frame;

	if (!receive(socket, &frame))
		return false;
	*good = kvt_controller_read(zmq_msg_data(&frame), zmq_msg_size(&frame), m);
	link->stats.bad_messages += !*good;
	zmq_msg_close(&frame);
	return true;
}

static bool on_request(struct kvt_controller_link *link, int64_t now_ns)
{
	struct kvt_controller_message m;
	bool good;

	if (!receive_message(link, link->request, &m, &good))
		return false;
	if (!good)
		return true;
	if (strcmp(m.type, "RegisterRetMsg") == 0)
		registered(link, m.heartbeat_url, now_ns);
	else if (strcmp(m.type, "FullSyncStartRetMsg") == 0)
		kvt_controller_sync_started(link, m.accepted, now_ns);
	else if (strcmp(m.type, "FullSyncStatusRetMsg") == 0)
		kvt_controller_sync_status(link, &m, now_ns);
	else if (strcmp(m.type, "ErrorMsg") == 0)
		kvt_controller_sync_started(link, false, now_ns);
	kvt_controller_message_free(&m);
	return true;
}

static bool on_beat(struct kvt_controller_link *link, int64_t now_ns)
{
	struct kvt_controller_message m;
	bool good;

	if (!receive_message(link, link->beat, &m, &good))
		return false;
	if (!good)
		return true;
	link->beat_sent_ns = 0;
	link->unanswered = 0;
	if (strcmp(m.type, "HeartbeatRetMsg") == 0 && m.full_sync) {
		if (link->config.stock)
			kvt_controller_sync_begin(link, now_ns);
		else if (link->sync.state == KVT_CONTROLLER_NO_SYNC)
			kvt_controller_link_resync(link, now_ns);
	}
	kvt_controller_message_free(&m);
	return true;
}

static bool on_command(struct kvt_controller_link *link)
{
	const struct kvt_controller_link_user *user = &link->config.user;
	struct kvt_controller_message m;
	struct kvt_controller_buf answer = {0};
	bool good;

	if (!receive_message(link, link->command, &m, &good))
		return false;
	link->stats.commands++;
	if (good)
		user->command(user->self, &m, &answer);
	else
		kvt_controller_put_error(&answer, "Worker error: Invalid MessagePack");
	if (good)
		kvt_controller_message_free(&m);
	kvt_controller_link_flush(link);
	(void)!zmq_send(link->command, answer.data, answer.len, ZMQ_DONTWAIT);
	kvt_controller_buf_free(&answer);
	return true;
}

static void sooner(int64_t *next_ns, int64_t at_ns)
{
	if (at_ns < *next_ns)
		*next_ns = at_ns;
}

static void when_next(const struct kvt_controller_link *link, int64_t now_ns, int64_t *next_ns)
{
	bool sync = link->sync.state != KVT_CONTROLLER_NO_SYNC, waiting = false;

	if (link->state == KVT_CONTROLLER_ASKING)
		sooner(next_ns, link->asked_ns + link->patience_ns);
	if (link->state != KVT_CONTROLLER_UP)
		return;
	if (link->config.heartbeat_ns != 0 && link->beat_sent_ns == 0)
		sooner(next_ns, link->beat_due_ns);
	if (link->beat_sent_ns != 0)
		sooner(next_ns, link->beat_sent_ns + link->config.answer_ns);
	if (sync)
		sooner(next_ns, link->sync.again_ns);
	else if (link->resync)
		sooner(next_ns, link->resync_ns);
	for (uint32_t i = 0; i < link->config.locations; i++)
		waiting = waiting || link->changes[i].count > 0;
	if (waiting && !sync)
		sooner(next_ns, now_ns + RETRY_NS);
}

size_t kvt_controller_link_step(struct kvt_controller_link *link, int64_t now_ns, int64_t *next_ns)
{
	size_t done = 0;

	for (size_t i = 0; i < TURN_MESSAGES && on_request(link, now_ns); i++)
		done++;
	for (size_t i = 0; i < TURN_MESSAGES && on_beat(link, now_ns); i++)
		done++;
	for (size_t i = 0; i < TURN_MESSAGES && on_command(link); i++)
		done++;
	if (link->state == KVT_CONTROLLER_ASKING)
		asking_tick(link, now_ns);
	if (link->state == KVT_CONTROLLER_UP)
		beat_tick(link, now_ns);
	if (link->state == KVT_CONTROLLER_UP) {
		if (!kvt_controller_sync_tick(link, now_ns))
			away(link, now_ns);
		if (!link->config.stock)
			kvt_controller_link_flush(link);
	}
	when_next(link, now_ns, next_ns);
	return done;
}

void kvt_controller_link_wait(struct kvt_controller_link *link, int fd, long timeout_ms)
{
	void *sockets[] = {link->request, link->beat, link->command};
	zmq_pollitem_t items[4] = {{.fd = fd, .events = ZMQ_POLLIN}};
	int count = 1;

	for (size_t i = 0; i < 3; i++)
		if (sockets[i] != NULL)
			items[count++] =
				(zmq_pollitem_t){.socket = sockets[i], .events = ZMQ_POLLIN};
	(void)!zmq_poll(items, count, timeout_ms);
}

/* --- life ------------------------------------------------------------------------------------- */

static bool open_command(struct kvt_controller_link *link)
{
	const char *host = link->bind[0] != '\0' ? link->bind : link->ip;
	char address[2 * KVT_CONTROLLER_TEXT_MAX];
	size_t len = sizeof(address);
	const char *port, *open = "", *shut = "";

	if (strchr(host, ':') != NULL) {
		open = "[";
		shut = "]";
	}
	if (link->config.port == 0)
		snprintf(address, sizeof(address), "%s%s%s:*", open, host, shut);
	else
		snprintf(
			address, sizeof(address), "%s%s%s:%u", open, host, shut, link->config.port);
	link->command = open_socket(link, ZMQ_REP, address);
	if (link->command == NULL ||
		zmq_getsockopt(link->command, ZMQ_LAST_ENDPOINT, address, &len) != 0)
		return false;
	port = strrchr(address, ':');
	link->sender.port = (uint16_t)(port == NULL ? 0 : strtoul(port + 1, NULL, 10));
	link->stats.port = link->sender.port;
	return true;
}

static bool open_all(struct kvt_controller_link *link, char *why)
{
	const char *at = link->pull;

	link->push = open_socket(link, ZMQ_PUSH, link->pull);
	if (link->push != NULL && !kvt_controller_is_old(link)) {
		at = link->reply;
		link->request = open_socket(link, ZMQ_DEALER, link->reply);
	}
	if (link->push == NULL || (link->request == NULL && !kvt_controller_is_old(link))) {
		snprintf(why, KVT_CONTROLLER_TEXT_MAX, "%.100s: %.100s", at, zmq_strerror(errno));
		return false;
	}
	if (open_command(link))
		return true;
	snprintf(why, KVT_CONTROLLER_TEXT_MAX, "commands at %.100s, port %u: %.100s",
		link->bind[0] != '\0' ? link->bind : link->ip, link->config.port,
		zmq_strerror(errno));
	return false;
}

static void copy(char out[KVT_CONTROLLER_TEXT_MAX], const char *text)
{
	snprintf(out, KVT_CONTROLLER_TEXT_MAX, "%s", text == NULL ? "" : text);
}

static void copy_texts(struct kvt_controller_link *link, const struct kvt_controller_link_config *c)
{
	copy(link->pull, c->pull);
	copy(link->reply, c->reply);
	copy(link->heartbeat, c->heartbeat);
	copy(link->instance, c->instance);
	copy(link->ip, c->ip);
	copy(link->bind, c->bind);
}

struct kvt_controller_link *kvt_controller_link_create(
	const struct kvt_controller_link_config *config, int64_t now_ns, char *why)
{
	struct kvt_controller_link *link = calloc(1, sizeof(*link));

	snprintf(why, KVT_CONTROLLER_TEXT_MAX, "out of memory");
	if (link == NULL)
		return NULL;
	link->config = *config;
	copy_texts(link, config);
	link->patience_ns = config->answer_ns;
	link->seed = (uint64_t)now_ns ^ config->worker;
	link->sender = (struct kvt_controller_sender){.instance = link->instance,
		.worker = config->worker,
		.ip = link->ip,
		.signed_keys = config->signed_keys};
	if (!open_all(link, why)) {
		kvt_controller_link_destroy(link);
		return NULL;
	}
	enrol(link, now_ns);
	return link;
}

void kvt_controller_link_restart(struct kvt_controller_link *link, int64_t now_ns)
{
	kvt_controller_sync_end(link);
	close_socket(link, &link->beat);
	link->beat_url[0] = '\0';
	link->beat_sent_ns = 0;
	for (uint32_t i = 0; i < link->config.locations; i++)
		link->changes[i].count = link->changes[i].next_number = 0;
	enrol(link, now_ns);
}

void kvt_controller_link_destroy(struct kvt_controller_link *link)
{
	if (link == NULL)
		return;
	if (link->push != NULL && link->state == KVT_CONTROLLER_UP) {
		kvt_controller_put_presence(&link->out, "DeRegisterMsg", &link->sender);
		(void)kvt_controller_push(link, false);
	}
	close_socket(link, &link->request);
	close_socket(link, &link->beat);
	close_socket(link, &link->command);
	close_socket(link, &link->push);
	kvt_controller_sync_end(link);
	for (uint32_t i = 0; i < KVT_CONTROLLER_LOCATIONS; i++)
		free(link->changes[i].at);
	kvt_controller_buf_free(&link->out);
	free(link);
}

void kvt_controller_link_stats(
	const struct kvt_controller_link *link, struct kvt_controller_link_stats *out)
{
	*out = link->stats;
	out->registered = link->state == KVT_CONTROLLER_UP;
	out->frozen = link->sync.state != KVT_CONTROLLER_NO_SYNC;
}
