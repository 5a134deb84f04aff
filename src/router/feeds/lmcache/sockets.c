/*
 * sockets.c - the controller's sockets, and the reading of their messages.
 *
 * On the pull socket each frame is a message that gets no answer. On the other two sockets a
 * request is [identity, "", message]; each gets one answer, perhaps an error, because the worker
 * waits for the answers in order. A frame above KVW_LMC_MESSAGE_MAX makes libzmq drop its
 * connection.
 */
#include "feeds/lmcache/controller.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zmq.h>

#include "base/clock.h"
#include "base/log.h"
#include "feeds/listener.h"

#define ENVELOPE    3    /* frames of a request */
/* limit of frames that are read of one multipart message on the pull socket */
#define FRAMES_MAX  4096
#define COMPLAIN_NS (10 * KVW_NS_PER_S)
#define DRAIN_NS    (50 * KVW_NS_PER_MS) /* longest time for reading a socket at its handover */
#define LINGER_MS   1000 /* time that libzmq may take to send answers after the socket was closed */

/* --- messages --- */

static void refuse_socket(struct kvw_lmcache *lmcache, enum kvw_lmcache_refusal refusal,
	const char *where, const char *why, const char *field)
{
	int64_t now_ns = kvw_feed_now(lmcache->feed);

	lmcache->reg->stats.refused[refusal]++;
	kvw_feed_count(lmcache->feed, KVW_FEED_REFUSED, 1);
	if (lmcache->complained_ns != 0 && now_ns - lmcache->complained_ns < COMPLAIN_NS)
		return;
	lmcache->complained_ns = now_ns;
	kvw_warn("lmcache", "refused a message socket=%s reason=%s: %s%s%s", where,
		kvw_lmcache_refusal_name(refusal), why, field != NULL ? " at " : "",
		field != NULL ? field : "");
}

static enum kvw_lmcache_refusal refusal_of(enum kvw_err err)
{
	switch (err) {
	case KVW_ELIMIT:
		return KVW_LMCACHE_TOO_LARGE;
	case KVW_ENOTFOUND:
		return KVW_LMCACHE_UNKNOWN_TYPE;
	case KVW_ENOMEM:
		return KVW_LMCACHE_NO_ROOM;
	default:
		return KVW_LMCACHE_MALFORMED;
	}
}

static void count_message(
	struct kvw_lmcache *lmcache, const struct kvw_lmc_message *message, size_t bytes)
{
	const struct kvw_lmreg_instance *instance;

	kvw_feed_count(lmcache->feed, KVW_FEED_MESSAGES, 1);
	kvw_feed_count(lmcache->feed, KVW_FEED_BYTES, bytes);
	if (message->type == KVW_LMC_OPERATIONS || message->type == KVW_LMC_SYNC_BATCH) {
		kvw_feed_count(lmcache->feed, KVW_FEED_BATCHES, 1);
		kvw_feed_count(lmcache->feed, KVW_FEED_EVENTS, message->key_count);
	}
	kvw_feed_count(
		lmcache->feed, KVW_FEED_GAPS, lmcache->reg->stats.gaps - lmcache->gaps_counted);
	lmcache->gaps_counted = lmcache->reg->stats.gaps;
	instance = kvw_lmreg_find(lmcache->reg, message->instance_id);
	if (instance != NULL && instance->worker != KVW_LMREG_NONE)
		kvw_feed_heard(lmcache->feed, instance->worker, KVW_REPORTER_LMCACHE,
			message->numbers != NULL && message->key_count > 0
				? message->numbers[message->key_count - 1]
				: 0,
			0);
}

/* Handles one message. Returns the length of its answer in lmcache->out, if one is expected. */
static size_t take_message(
	struct kvw_lmcache *lmcache, struct kvw_slice frame, const char *where, bool answered)
{
	struct kvw_lmc_message message;
	struct kvw_mp_out reply;
	struct kvw_lmreg_request request = {
		.message = &message,
		.answered = answered,
		.now_ns = kvw_feed_now(lmcache->feed),
	};
	char url[NI_MAXHOST + 8] = "";
	enum kvw_err err = kvw_lmc_read(&lmcache->reader, frame, &message);

	kvw_mp_out_init(&reply, lmcache->out, KVW_LMREG_REPLY_MAX);
	if (err != KVW_OK) {
		refuse_socket(lmcache, refusal_of(err), where, lmcache->reader.error,
			lmcache->reader.field);
		kvw_lmc_put_error(&reply, kvw_slice_of(lmcache->reader.error));
		return reply.len;
	}
	if (message.type == KVW_LMC_REGISTER)
		kvw_lmcache_heartbeat_url(lmcache, message.ip, url, sizeof(url));
	request.heartbeat_url = kvw_slice_of(url);
	kvw_lmreg_message(lmcache->reg, &request, &reply);
	count_message(lmcache, &message, frame.len);
	return reply.full ? 0 : reply.len;
}

/* --- reading --- */

static bool more_follows(zmq_msg_t *frame)
{
	return zmq_msg_more(frame) != 0;
}

static struct kvw_slice slice_of(zmq_msg_t *frame)
{
	return (struct kvw_slice){zmq_msg_data(frame), zmq_msg_size(frame)};
}

static bool read_pull(void *socket, void *ctx)
{
	struct kvw_lmcache *lmcache = ctx;
	zmq_msg_t frame;
	bool more = true;
	size_t count = 0;

	zmq_msg_init(&frame);
	for (; more && zmq_msg_recv(&frame, socket, ZMQ_DONTWAIT) >= 0; count++) {
		more = more_follows(&frame);
		if (count < FRAMES_MAX)
			(void)take_message(lmcache, slice_of(&frame), "pull", false);
		else if (count == FRAMES_MAX)
			refuse_socket(
				lmcache, KVW_LMCACHE_TOO_LARGE, "pull", "too many frames", NULL);
	}
	zmq_msg_close(&frame);
	return count > 0;
}

static void send_answer(void *socket, zmq_msg_t *identity, const uint8_t *data, size_t len)
{
	/* A worker that has gone, or takes no answers, is not waited for: it has a timeout of its
	 * own. */
	if (zmq_msg_send(identity, socket, ZMQ_DONTWAIT | ZMQ_SNDMORE) < 0)
		return;
	if (zmq_send(socket, "", 0, ZMQ_DONTWAIT | ZMQ_SNDMORE) < 0 ||
		zmq_send(socket, data, len, ZMQ_DONTWAIT) < 0)
		kvw_debug("lmcache", "an answer was not sent error=%s", zmq_strerror(errno));
}

static bool read_router(void *socket, struct kvw_lmcache *lmcache, const char *where)
{
	zmq_msg_t frames[ENVELOPE], rest;
	struct kvw_slice slices[ENVELOPE], message;
	size_t count = 0, envelope, len;
	bool more = true;

	for (size_t i = 0; i < ENVELOPE; i++)
		zmq_msg_init(&frames[i]);
	zmq_msg_init(&rest);
	while (more) {
		zmq_msg_t *frame = count < ENVELOPE ? &frames[count] : &rest;

		if (zmq_msg_recv(frame, socket, ZMQ_DONTWAIT) < 0)
			break;
		more = more_follows(frame);
		if (count < ENVELOPE)
			slices[count] = slice_of(frame);
		count++;
	}
	if (count > 0 && (count != ENVELOPE ||
				 kvw_lmc_request(slices, count, &message, &envelope) != KVW_OK)) {
		refuse_socket(lmcache, KVW_LMCACHE_ENVELOPE, where,
			"a request is [identity, empty frame, message]", NULL);
	} else if (count > 0) {
		len = take_message(lmcache, message, where, true);
		if (len > 0)
			send_answer(socket, &frames[0], lmcache->out, len);
	}
	for (size_t i = 0; i < ENVELOPE; i++)
		zmq_msg_close(&frames[i]);
	zmq_msg_close(&rest);
	return count > 0;
}

/* --- addresses --- */

/* Returns the address's "host:port". */
static const char *without_scheme(const char *address)
{
	return strncmp(address, "tcp://", 6) == 0 ? address + 6 : address;
}

static bool is_wildcard(const char *host, size_t len)
{
	struct kvw_slice text = {host, len};

	return kvw_slice_equal(text, KVW_SLICE("0.0.0.0")) ||
	       kvw_slice_equal(text, KVW_SLICE("*")) || kvw_slice_equal(text, KVW_SLICE("[::]")) ||
	       kvw_slice_equal(text, KVW_SLICE("::"));
}

/* Finds the source address that this host would use for a datagram to `to`; none is sent. */
static bool local_address(const char *to, char *text, size_t size)
{
	struct addrinfo hints = {
		.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV, .ai_socktype = SOCK_DGRAM};
	struct addrinfo *found = NULL;
	struct sockaddr_storage own;
	socklen_t len = sizeof(own);
	bool ok = false;
	int fd = -1;

	if (getaddrinfo(to, "9", &hints, &found) != 0)
		return false;
	fd = socket(found->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd >= 0 && connect(fd, found->ai_addr, found->ai_addrlen) == 0 &&
		getsockname(fd, (struct sockaddr *)&own, &len) == 0)
		ok = getnameinfo((struct sockaddr *)&own, len, text, (socklen_t)size, NULL, 0,
			     NI_NUMERICHOST) == 0;
	if (fd >= 0)
		close(fd);
	freeaddrinfo(found);
	return ok;
}

void kvw_lmcache_heartbeat_url(
	const struct kvw_lmcache *lmcache, struct kvw_slice ip, char *text, size_t size)
{
	const struct kvw_config *config = lmcache->deps->config;
	const char *bound = without_scheme(config->kvaware_lmcache_heartbeat);
	const char *colon = strrchr(bound, ':');
	char to[INET6_ADDRSTRLEN], own[INET6_ADDRSTRLEN];

	text[0] = '\0';
	if (lmcache->deps->config->kvaware_lmcache_heartbeat[0] == '\0' || colon == NULL)
		return;
	if (config->kvaware_lmcache_advertise[0] != '\0') {
		snprintf(text, size, "%s", without_scheme(config->kvaware_lmcache_advertise));
		return;
	}
	if (!is_wildcard(bound, (size_t)(colon - bound))) {
		snprintf(text, size, "%s", bound);
		return;
	}
	snprintf(to, sizeof(to), "%.*s", (int)ip.len, ip.len > 0 ? ip.data : "");
	if (!local_address(to, own, sizeof(own)))
		snprintf(own, sizeof(own), "127.0.0.1");
	snprintf(text, size, strchr(own, ':') != NULL ? "[%s]%s" : "%s%s", own, colon);
}

/* --- opening --- */

/* Properties of one of the three sockets. */
struct role {
	int type;
	const char *key;
	kvw_feed_read_fn *fn;
};

static bool read_there(struct kvw_lmcache *lmcache, bool read)
{
	if (read)
		kvw_feed_heard_there(lmcache->feed);
	return read;
}

static bool on_pull(void *socket, void *ctx)
{
	return read_there(ctx, read_pull(socket, ctx));
}

static bool on_reply(void *socket, void *ctx)
{
	return read_there(ctx, read_router(socket, ctx, "reply"));
}

static bool on_heartbeat(void *socket, void *ctx)
{
	return read_there(ctx, read_router(socket, ctx, "heartbeat"));
}

static const struct role pull_role = {ZMQ_PULL, "pull", on_pull};
static const struct role reply_role = {ZMQ_ROUTER, "reply", on_reply};
static const struct role heartbeat_role = {ZMQ_ROUTER, "heartbeat", on_heartbeat};

/* Makes a socket listen, so that workers can connect. */
static enum kvw_err listen_there(struct kvw_lmcache *lmcache, const struct role *role,
	struct kvw_lmcache_listener *listener, FILE *errors)
{
	const int off = 0, on = 1;
	const int64_t most = KVW_LMC_MESSAGE_MAX;
	const char *key = role->key, *address = listener->url + 6;
	void *socket = zmq_socket(kvw_feed_context(lmcache->feed), role->type);
	int failed, fd = listener->fd;

	if (socket == NULL) {
		fprintf(errors, "kvaware.lmcache.%s: cannot open a socket: %s\n", key,
			zmq_strerror(errno));
		return KVW_EIO;
	}
	zmq_setsockopt(socket, ZMQ_LINGER, &off, sizeof(off));
	zmq_setsockopt(socket, ZMQ_MAXMSGSIZE, &most, sizeof(most));
	zmq_setsockopt(socket, ZMQ_TCP_KEEPALIVE, &on, sizeof(on));
	if (strchr(address, '[') != NULL)
		zmq_setsockopt(socket, ZMQ_IPV6, &on, sizeof(on));
	listener->fd = -1;
	failed = kvw_listener_give(socket, listener->url, fd) ? 0 : zmq_errno();
	if (failed != 0) {
		fprintf(errors, "kvaware.lmcache.%s: cannot listen on %s: %s\n", key, address,
			failed == EADDRINUSE ? "the port is already taken"
			: failed == EINVAL   ? "not of the form HOST:PORT"
			: failed == ENODEV   ? "no such address on this host"
					     : zmq_strerror(failed));
		zmq_close(socket);
		return KVW_EINVAL;
	}
	listener->socket = socket;
	return kvw_feed_watch(lmcache->feed, socket, role->fn, lmcache);
}

static enum kvw_err open_socket(struct kvw_lmcache *lmcache, const struct role *role,
	const char *address, FILE *errors, struct kvw_lmcache_listener *listener)
{
	listener->fd = -1;
	if (address[0] == '\0')
		return KVW_OK;
	snprintf(listener->url, sizeof(listener->url), "tcp://%s", without_scheme(address));
	listener->fd = kvw_listener_open(
		lmcache->deps->sockets, listener->url, strchr(address, '[') != NULL);
	if (lmcache->deps->waits && listener->fd >= 0)
		return KVW_OK;
	return listen_there(lmcache, role, listener, errors);
}

enum kvw_err kvw_lmcache_open(struct kvw_lmcache *lmcache, FILE *errors)
{
	const struct kvw_config *config = lmcache->deps->config;
	enum kvw_err err;

	lmcache->pull.fd = lmcache->reply.fd = lmcache->heartbeat.fd = -1;
	err = open_socket(
		lmcache, &pull_role, config->kvaware_lmcache_pull, errors, &lmcache->pull);
	if (err == KVW_OK)
		err = open_socket(lmcache, &reply_role, config->kvaware_lmcache_reply, errors,
			&lmcache->reply);
	if (err == KVW_OK)
		err = open_socket(lmcache, &heartbeat_role, config->kvaware_lmcache_heartbeat,
			errors, &lmcache->heartbeat);
	return err;
}

static void listen_late(
	struct kvw_lmcache *lmcache, const struct role *role, struct kvw_lmcache_listener *listener)
{
	if (listener->url[0] != '\0' && listener->socket == NULL &&
		listen_there(lmcache, role, listener, stderr) != KVW_OK)
		kvw_error("lmcache", "workers cannot connect socket=%s endpoint=%s", role->key,
			listener->url);
}

void kvw_lmcache_listen(struct kvw_lmcache *lmcache)
{
	listen_late(lmcache, &pull_role, &lmcache->pull);
	listen_late(lmcache, &reply_role, &lmcache->reply);
	listen_late(lmcache, &heartbeat_role, &lmcache->heartbeat);
}

static void close_socket(struct kvw_lmcache *lmcache, struct kvw_lmcache_listener *listener)
{
	if (listener->socket != NULL) {
		kvw_feed_unwatch(lmcache->feed, listener->socket);
		zmq_close(listener->socket);
		listener->socket = NULL;
	} else if (listener->url[0] != '\0' && listener->fd >= 0) {
		close(listener->fd);
		listener->fd = -1;
	}
}

void kvw_lmcache_close(struct kvw_lmcache *lmcache)
{
	close_socket(lmcache, &lmcache->pull);
	close_socket(lmcache, &lmcache->reply);
	close_socket(lmcache, &lmcache->heartbeat);
}

/* Reads the messages that have arrived: a worker regards messages that it has written as received,
 * so that unread ones would be lost. */
static void drain_listener(
	struct kvw_lmcache *lmcache, const struct role *role, struct kvw_lmcache_listener *listener)
{
	const int linger_ms = LINGER_MS;
	int64_t until_ns = kvw_clock_ns() + DRAIN_NS;

	if (listener->socket == NULL)
		return;
	zmq_setsockopt(listener->socket, ZMQ_LINGER, &linger_ms, sizeof(linger_ms));
	while (role->fn(listener->socket, lmcache) && kvw_clock_ns() < until_ns)
		;
	close_socket(lmcache, listener);
}

void kvw_lmcache_hand_over(struct kvw_lmcache *lmcache)
{
	/* Registrations come first, since reports follow them. */
	drain_listener(lmcache, &reply_role, &lmcache->reply);
	drain_listener(lmcache, &heartbeat_role, &lmcache->heartbeat);
	drain_listener(lmcache, &pull_role, &lmcache->pull);
	kvw_lmcache_close(lmcache);
}
