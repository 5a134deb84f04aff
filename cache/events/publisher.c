/*
 * publisher.c - sends batches on the PUB socket, and answers requests for replays.
 *
 * A PUB socket silently drops messages beyond its limit. With ZMQ_XPUB_NODROP it reports a drop,
 * but then sends to no subscriber; so the publisher sends a refused batch once more with dropping
 * allowed. ZeroMQ then skips the slow subscriber until that has read, without a report: the counter
 * shows how often a subscriber began to lose batches, not how many batches it lost.
 *
 * A ROUTER with ZMQ_ROUTER_MANDATORY reports that an asker's queue is full or the asker is gone.
 * The report comes at a message's first frame, so no message is cut in two.
 */
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zmq.h>

#include "events/publisher.h"
#include "events/record_ring.h"

#define PUBLISH_HWM   1000                      /* most messages that wait for one subscriber */
#define REPLAY_HWM    64 /* most messages that wait for one receiver of a replay */
#define LINGER_MS     100 /* when the sockets are closed, messages have this time to be sent */
#define REQUEST_MAX   4096                      /* most bytes of a received frame */
#define REPLAY_TURN   64                        /* most messages of a replay in one turn */
/* a replay is dropped after this time without progress */
#define GIVE_UP_NS    (5 * INT64_C(1000000000))
#define BATCH_BYTES   256u /* a kept batch is assumed to have at least this many bytes */
#define BATCHES_MAX   65536u                    /* most batches that are kept */
#define ADDRESS_BYTES 256

/* The replay that is being sent. */
struct answer {
	bool active;
	zmq_msg_t asker;    /* identity of the receiver; set while a replay is being sent */
	uint64_t next, end; /* batches still to send */
	int64_t moved_ns;   /* time when the last message was sent */
};

struct counters {
	_Atomic uint64_t batches, bytes, drops, replays, given_up, held; /* relaxed */
};

struct kvt_publisher {
	const struct kvt_surroundings *s; /* borrowed */
	void *zmq, *pub, *replay;         /* replay: NULL without one */
	char *topic;
	size_t topic_len;
	char address[ADDRESS_BYTES], replay_address[ADDRESS_BYTES];
	struct kvt_record_ring kept; /* the kept batches, if there is a replay socket */
	uint64_t next;               /* number of the next batch */
	struct answer answer;
	struct counters count;
};

static void bump(_Atomic uint64_t *counter, uint64_t n)
{
	atomic_fetch_add_explicit(counter, n, memory_order_relaxed);
}

static uint64_t read_counter(const _Atomic uint64_t *counter)
{
	return atomic_load_explicit(counter, memory_order_relaxed);
}

static void write_number(uint64_t number, uint8_t out[8])
{
	for (int i = 0; i < 8; i++)
		out[i] = (uint8_t)(number >> (56 - 8 * i));
}

static uint64_t read_number(const uint8_t in[8])
{
	uint64_t number = 0;

	for (int i = 0; i < 8; i++)
		number = number << 8 | in[i];
	return number;
}

/* --- sockets ---------------------------------------------------------------------------------- */

static bool set(void *socket, int option, int value)
{
	return zmq_setsockopt(socket, option, &value, sizeof(value)) == 0;
}

static bool is_set(const char *text)
{
	return text != NULL && text[0] != '\0';
}

/* Opens a bound socket and finds its real address. Returns NULL on failure, which is logged. */
static void *open_socket(
	struct kvt_publisher *p, int type, const char *address, int hwm, char *real)
{
	int64_t request_max = REQUEST_MAX;
	size_t len = ADDRESS_BYTES;
	void *socket = zmq_socket(p->zmq, type);
	bool good =
		socket != NULL && set(socket, ZMQ_LINGER, LINGER_MS) &&
		set(socket, ZMQ_SNDHWM, hwm) && set(socket, ZMQ_RCVHWM, REPLAY_HWM) &&
		set(socket, ZMQ_IPV6, strchr(address, '[') != NULL) &&
		zmq_setsockopt(socket, ZMQ_MAXMSGSIZE, &request_max, sizeof(request_max)) == 0 &&
		set(socket, type == ZMQ_PUB ? ZMQ_XPUB_NODROP : ZMQ_ROUTER_MANDATORY, 1) &&
		zmq_bind(socket, address) == 0;

	if (good) {
		if (zmq_getsockopt(socket, ZMQ_LAST_ENDPOINT, real, &len) != 0)
			snprintf(real, ADDRESS_BYTES, "%s", address);
		return socket;
	}
	kvt_note(p->s, KVT_LOG_WARN, "events: cannot bind %s: %s; %s", address, zmq_strerror(errno),
		type == ZMQ_PUB ? "nothing is published" : "nothing is replayed");
	if (socket != NULL)
		zmq_close(socket);
	return NULL;
}

/* Opens the replay socket; if that fails, the publisher works without one. KVT_ENOMEM: there is no
 * memory for the batches. */
static enum kvt_status open_replay(struct kvt_publisher *p, const struct kvt_config *config)
{
	uint64_t bytes = config->events_replay_bytes, most = bytes / BATCH_BYTES;

	if (!is_set(config->events_replay) || bytes == 0)
		return KVT_OK;
	if (kvt_record_ring_init(&p->kept, bytes, most < BATCHES_MAX ? most : BATCHES_MAX, 0) !=
		KVT_OK)
		return KVT_ENOMEM;
	p->replay =
		open_socket(p, ZMQ_ROUTER, config->events_replay, REPLAY_HWM, p->replay_address);
	if (p->replay == NULL)
		kvt_record_ring_finish(&p->kept);
	return KVT_OK;
}

enum kvt_status kvt_publisher_create(const struct kvt_config *config,
	const struct kvt_surroundings *s, struct kvt_publisher **out)
{
	struct kvt_publisher *p;
	enum kvt_status status = KVT_ENOMEM;

	if (!is_set(config->events_publish)) {
		if (is_set(config->events_replay))
			kvt_note(s, KVT_LOG_WARN,
				"events.replay without events.publish: nothing to replay");
		return KVT_MISS;
	}
	p = calloc(1, sizeof(*p));
	if (p == NULL)
		return KVT_ENOMEM;
	p->s = s;
	p->topic = strdup(config->events_topic == NULL ? "" : config->events_topic);
	p->zmq = zmq_ctx_new();
	if (p->topic == NULL || p->zmq == NULL)
		goto fail;
	p->topic_len = strlen(p->topic);
	p->pub = open_socket(p, ZMQ_PUB, config->events_publish, PUBLISH_HWM, p->address);
	status = p->pub == NULL ? KVT_MISS : open_replay(p, config);
	if (status != KVT_OK)
		goto fail;
	kvt_note(s, KVT_LOG_INFO, "events: published at %s, replayed %s%s", p->address,
		p->replay == NULL ? "nowhere" : "at ", p->replay_address);
	*out = p;
	return KVT_OK;
fail:
	kvt_publisher_destroy(p);
	return status;
}

static void end_answer(struct kvt_publisher *p)
{
	if (p->answer.active)
		zmq_msg_close(&p->answer.asker);
	p->answer.active = false;
}

void kvt_publisher_destroy(struct kvt_publisher *p)
{
	if (p == NULL)
		return;
	end_answer(p);
	if (p->replay != NULL)
		zmq_close(p->replay);
	if (p->pub != NULL)
		zmq_close(p->pub);
	if (p->zmq != NULL)
		zmq_ctx_term(p->zmq);
	kvt_record_ring_finish(&p->kept);
	free(p->topic);
	free(p);
}

/* --- publishing ------------------------------------------------------------------------------- */

static bool send_frame(void *socket, const void *data, size_t len, bool more)
{
	int sent;

	do
		sent = zmq_send(socket, data, len, ZMQ_DONTWAIT | (more ? ZMQ_SNDMORE : 0));
	while (sent < 0 && errno == EINTR);
	return sent >= 0;
}

void kvt_publisher_send(struct kvt_publisher *p, const void *batch, size_t len)
{
	uint8_t number[8];
	bool begun = send_frame(p->pub, p->topic, p->topic_len, true),
	     full = !begun && errno == EAGAIN;
	void *kept;

	if (full) {
		bump(&p->count.drops, 1);
		begun = set(p->pub, ZMQ_XPUB_NODROP, 0) &&
			send_frame(p->pub, p->topic, p->topic_len, true);
	}
	write_number(p->next++, number);
	if (begun && send_frame(p->pub, number, sizeof(number), true))
		(void)!send_frame(p->pub, batch, len, false);
	if (full)
		set(p->pub, ZMQ_XPUB_NODROP, 1);
	bump(&p->count.batches, 1);
	bump(&p->count.bytes, len);
	if (p->replay == NULL)
		return;
	kept = kvt_record_ring_add(&p->kept, len);
	if (kept != NULL)
		memcpy(kept, batch, len);
	atomic_store_explicit(&p->count.held, p->kept.held, memory_order_relaxed);
}

void kvt_publisher_skip(struct kvt_publisher *p)
{
	p->next++;
	if (p->replay != NULL)
		(void)!kvt_record_ring_add(&p->kept, 0);
}

/* --- replay ----------------------------------------------------------------------------------- */

/* Sends one message to the receiver of a replay. Returns false if that is impossible now, or for
 * good (errno). */
static bool reply(struct kvt_publisher *p, const char *topic, size_t topic_len, uint64_t number,
	const void *batch, size_t len)
{
	struct answer *a = &p->answer;
	uint8_t bytes[8];

	write_number(number, bytes);
	return send_frame(p->replay, zmq_msg_data(&a->asker), zmq_msg_size(&a->asker), true) &&
	       send_frame(p->replay, "", 0, true) &&
	       send_frame(p->replay, topic, topic_len, true) &&
	       send_frame(p->replay, bytes, sizeof(bytes), true) &&
	       send_frame(p->replay, batch, len, false);
}

/* Sends the next message of the replay: a batch that is still kept, or the end marker. */
static bool answer_one(struct kvt_publisher *p)
{
	struct answer *a = &p->answer;
	const void *batch = NULL;
	size_t len = 0;

	if (a->next < p->kept.oldest)
		a->next = p->kept.oldest;
	while (a->next < a->end) {
		batch = kvt_record_ring_at(&p->kept, a->next, &len);
		if (len > 0)
			break;
		a->next++; /* this batch was not kept: the receiver sees the gap */
	}
	if (a->next < a->end) {
		if (!reply(p, p->topic, p->topic_len, a->next, batch, len))
			return false;
		a->next++;
	} else {
		if (!reply(p, "", 0, UINT64_MAX, "", 0))
			return false;
		bump(&p->count.replays, 1);
		end_answer(p);
	}
	return true;
}

/* Sends a part of the replay. Returns the number of messages. */
static size_t go_on(struct kvt_publisher *p, bool *waits)
{
	struct answer *a = &p->answer;
	size_t sent = 0;

	while (a->active && sent < REPLAY_TURN) {
		if (answer_one(p)) {
			a->moved_ns = kvt_now(p->s);
			sent++;
			continue;
		}
		if (errno == EAGAIN && kvt_now(p->s) - a->moved_ns < GIVE_UP_NS) {
			*waits = true;
			break;
		}
		bump(&p->count.given_up, 1); /* the receiver is gone, or does not read */
		end_answer(p);
	}
	return sent;
}

/* Reads a request and begins to answer it. Returns false if no request has come. */
static bool take_request(struct kvt_publisher *p)
{
	struct answer *a = &p->answer;
	zmq_msg_t frame;
	unsigned count = 0;
	bool good = true, more = true, has_asker = false;
	uint64_t first = 0;

	while (more) {
		zmq_msg_init(&frame);
		if (zmq_msg_recv(&frame, p->replay, ZMQ_DONTWAIT) < 0)
			break;
		more = zmq_msg_more(&frame);
		if (count == 0) {
			zmq_msg_init(&a->asker);
			zmq_msg_move(&a->asker, &frame);
			has_asker = true;
		} else if (count == 1) {
			good = zmq_msg_size(&frame) == 0;
		} else if (count == 2 && zmq_msg_size(&frame) == 8) {
			first = read_number(zmq_msg_data(&frame));
		} else {
			good = false;
		}
		zmq_msg_close(&frame);
		count++;
	}
	a->active = has_asker && good && count == 3;
	if (has_asker && !a->active)
		zmq_msg_close(&a->asker);
	if (a->active) {
		a->next = first;
		a->end = p->kept.next;
		a->moved_ns = kvt_now(p->s);
	}
	return has_asker;
}

size_t kvt_publisher_serve(struct kvt_publisher *p, bool *waits)
{
	size_t done = 0;

	*waits = false;
	if (p->replay == NULL)
		return 0;
	while (done < REPLAY_TURN && !*waits) {
		if (!p->answer.active) {
			if (!take_request(p))
				break;
			done++;
		}
		done += go_on(p, waits);
	}
	return done;
}

bool kvt_publisher_has_replay(const struct kvt_publisher *p)
{
	return p->replay != NULL;
}

void kvt_publisher_wait(struct kvt_publisher *p, int fd, long timeout_ms)
{
	zmq_pollitem_t items[] = {
		{.fd = fd, .events = ZMQ_POLLIN},
		{.socket = p->replay, .events = ZMQ_POLLIN},
	};
	/* while one replay waits for its receiver, further requests are not read */
	bool listen = p->replay != NULL && !p->answer.active;

	(void)!zmq_poll(items, listen ? 2 : 1, timeout_ms);
}

/* --- observation ------------------------------------------------------------------------------ */

const char *kvt_publisher_address(const struct kvt_publisher *p)
{
	return p->address;
}

const char *kvt_publisher_replay_address(const struct kvt_publisher *p)
{
	return p->replay_address;
}

void kvt_publisher_stats(const struct kvt_publisher *p, struct kvt_publisher_stats *out)
{
	*out = (struct kvt_publisher_stats){
		.batches = read_counter(&p->count.batches),
		.bytes = read_counter(&p->count.bytes),
		.drops = read_counter(&p->count.drops),
		.replays = read_counter(&p->count.replays),
		.replays_given_up = read_counter(&p->count.given_up),
		.replay_bytes_held = read_counter(&p->count.held),
		.memory_bytes = kvt_record_ring_bytes(&p->kept),
	};
}
