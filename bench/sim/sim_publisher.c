/*
 * sim_publisher.c - PUB and replay sockets of one simulated engine.
 *
 * Kept batches are a ring of buffer_steps entries; the batch with number n is at n % buffer_steps. The
 * replay socket has no limit of its own on what waits in it: a ROUTER drops what exceeds its limit,
 * which would look like a hole in the buffer.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zmq.h>

#include "bench/sim/sim_publisher.h"

struct kept {
	void *data; /* owned; NULL: nothing yet, or no memory for it */
	size_t len;
};

struct kvb_publisher {
	void *pub, *replay; /* replay: NULL without one */
	char endpoint[KVB_ENDPOINT_MAX], replay_endpoint[KVB_ENDPOINT_MAX]; /* as listed */
	char topic[KVB_ENDPOINT_MAX];
	bool old_replay;
	struct kept *ring; /* owned, `steps` entries */
	uint32_t steps;
	uint64_t next; /* number of the next batch */
	uint64_t replays;
};

static void write_number(uint64_t number, unsigned char out[8])
{
	for (int i = 0; i < 8; i++)
		out[i] = (unsigned char)(number >> (56 - 8 * i));
}

static uint64_t read_number(const unsigned char in[8])
{
	uint64_t number = 0;

	for (int i = 0; i < 8; i++)
		number = number << 8 | in[i];
	return number;
}

static bool is_bound(const char *endpoint)
{
	return strchr(endpoint, '*') != NULL || strstr(endpoint, "::") != NULL ||
	       strncmp(endpoint, "ipc://", 6) == 0 || strncmp(endpoint, "inproc://", 9) == 0;
}

/* The address to bind: host in place of '*', the worker's number added to the port. */
static bool bind_address(
	const char *endpoint, const char *host, uint32_t index, char *out, size_t size)
{
	const char *colon = strrchr(endpoint, ':');
	unsigned long port;
	char *end;
	int len;

	if (strncmp(endpoint, "tcp://", 6) != 0) { /* an inproc name gets the worker's number */
		len = index == 0 ? snprintf(out, size, "%s", endpoint)
				 : snprintf(out, size, "%s_dp%u", endpoint, index);
		return (size_t)len < size;
	}
	if (colon <= endpoint + 6)
		return false;
	port = strtoul(colon + 1, &end, 10);
	if (*end != '\0' || end == colon + 1 || port + index > 65535)
		return false;
	if (colon - endpoint == 7 && endpoint[6] == '*')
		len = snprintf(out, size, "tcp://%s:", host);
	else
		len = snprintf(out, size, "%.*s:", (int)(colon - endpoint), endpoint);
	if ((size_t)len >= size)
		return false;
	len += port == 0 ? snprintf(out + len, size - (size_t)len, "*")
			 : snprintf(out + len, size - (size_t)len, "%lu", port + index);
	return (size_t)len < size;
}

/* Writes a bound socket's address as an engine reports it: as configured, with the real port. */
static void report_address(void *socket, const char *endpoint, char told[KVB_ENDPOINT_MAX])
{
	char real[KVB_ENDPOINT_MAX];
	size_t len = sizeof(real);
	const char *host_end = strrchr(endpoint, ':'), *port;

	if (zmq_getsockopt(socket, ZMQ_LAST_ENDPOINT, real, &len) != 0)
		real[0] = '\0';
	port = strrchr(real, ':');
	if (strncmp(endpoint, "tcp://", 6) == 0 && port != NULL)
		snprintf(told, KVB_ENDPOINT_MAX, "%.*s%s", (int)(host_end - endpoint), endpoint,
			port);
	else
		snprintf(told, KVB_ENDPOINT_MAX, "%s", real);
}

static void *open_socket(void *zmq, int type, const struct kvb_publisher_config *config,
	const char *endpoint, int hwm, char told[KVB_ENDPOINT_MAX])
{
	void *socket = zmq_socket(zmq, type);
	char address[KVB_ENDPOINT_MAX];
	int linger = 0;

	if (socket == NULL)
		goto fail;
	zmq_setsockopt(socket, ZMQ_LINGER, &linger, sizeof(linger));
	zmq_setsockopt(socket, ZMQ_SNDHWM, &hwm, sizeof(hwm));
	if (!is_bound(endpoint)) {
		snprintf(told, KVB_ENDPOINT_MAX, "%s", endpoint);
		if (zmq_connect(socket, endpoint) != 0)
			goto fail;
		return socket;
	}
	if (!bind_address(endpoint, config->host, config->index, address, sizeof(address))) {
		errno = EINVAL;
		goto fail;
	}
	if (zmq_bind(socket, address) != 0)
		goto fail;
	report_address(socket, endpoint, told);
	return socket;
fail:
	fprintf(stderr, "kvsim: KV events at %s: %s\n", endpoint, zmq_strerror(errno));
	if (socket != NULL)
		zmq_close(socket);
	return NULL;
}

struct kvb_publisher *kvb_publisher_create(void *zmq, const struct kvb_publisher_config *config)
{
	struct kvb_publisher *p = calloc(1, sizeof(*p));

	if (p == NULL)
		return NULL;
	p->steps = config->buffer_steps > 0 ? config->buffer_steps : 1;
	p->ring = calloc(p->steps, sizeof(*p->ring));
	p->old_replay = config->old_replay;
	snprintf(p->topic, sizeof(p->topic), "%s", config->topic);
	if (p->ring == NULL)
		goto fail;
	p->pub = open_socket(zmq, ZMQ_PUB, config, config->endpoint, config->hwm, p->endpoint);
	if (p->pub == NULL)
		goto fail;
	if (config->replay_endpoint[0] != '\0') {
		p->replay = open_socket(
			zmq, ZMQ_ROUTER, config, config->replay_endpoint, 0, p->replay_endpoint);
		if (p->replay == NULL)
			goto fail;
	}
	return p;
fail:
	kvb_publisher_destroy(p);
	return NULL;
}

static void forget(struct kvb_publisher *p)
{
	for (uint32_t i = 0; p->ring != NULL && i < p->steps; i++) {
		free(p->ring[i].data);
		p->ring[i] = (struct kept){0};
	}
}

void kvb_publisher_destroy(struct kvb_publisher *p)
{
	if (p == NULL)
		return;
	forget(p);
	free(p->ring);
	if (p->pub != NULL)
		zmq_close(p->pub);
	if (p->replay != NULL)
		zmq_close(p->replay);
	free(p);
}

void kvb_publisher_restart(struct kvb_publisher *p)
{
	forget(p);
	p->next = 0;
}

void kvb_publisher_send(struct kvb_publisher *p, const void *batch, size_t len)
{
	struct kept *kept = &p->ring[p->next % p->steps];
	unsigned char number[8];

	write_number(p->next++, number);
	if (zmq_send(p->pub, p->topic, strlen(p->topic), ZMQ_DONTWAIT | ZMQ_SNDMORE) >= 0 &&
		zmq_send(p->pub, number, sizeof(number), ZMQ_DONTWAIT | ZMQ_SNDMORE) >= 0)
		(void)!zmq_send(p->pub, batch, len, ZMQ_DONTWAIT);
	if (p->replay == NULL)
		return;
	free(kept->data);
	kept->data = malloc(len);
	kept->len = kept->data == NULL ? 0 : len;
	if (kept->data != NULL)
		memcpy(kept->data, batch, len);
}

/* Sends one reply: the asker's identity, an empty frame, and the reply's own frames. */
static void reply(struct kvb_publisher *p, zmq_msg_t *asker, const char *topic,
	const unsigned char number[8], const void *data, size_t len)
{
	int more = ZMQ_DONTWAIT | ZMQ_SNDMORE;

	if (zmq_send(p->replay, zmq_msg_data(asker), zmq_msg_size(asker), more) < 0)
		return;
	zmq_send(p->replay, "", 0, more);
	if (topic != NULL)
		zmq_send(p->replay, topic, strlen(topic), more);
	zmq_send(p->replay, number, 8, more);
	zmq_send(p->replay, data, len, ZMQ_DONTWAIT);
}

static void replay_from(struct kvb_publisher *p, zmq_msg_t *asker, uint64_t first)
{
	static const unsigned char end[8] = {255, 255, 255, 255, 255, 255, 255, 255};
	uint64_t oldest = p->next > p->steps ? p->next - p->steps : 0;

	for (uint64_t n = first > oldest ? first : oldest; n < p->next; n++) {
		const struct kept *kept = &p->ring[n % p->steps];
		unsigned char number[8];

		write_number(n, number);
		if (kept->data != NULL)
			reply(p, asker, p->old_replay ? NULL : p->topic, number, kept->data,
				kept->len);
	}
	reply(p, asker, p->old_replay ? NULL : "", end, "", 0);
	p->replays++;
}

bool kvb_publisher_serve(struct kvb_publisher *p)
{
	zmq_msg_t frames[3];
	unsigned count = 0;
	bool more = true, good;

	if (p->replay == NULL)
		return false;
	while (more) { /* identity, empty, number; what exceeds that is read and dropped */
		zmq_msg_t *frame = &frames[count < 3 ? count : 2];

		if (count >= 3)
			zmq_msg_close(frame);
		zmq_msg_init(frame);
		if (zmq_msg_recv(frame, p->replay, ZMQ_DONTWAIT) < 0) {
			for (unsigned i = 0; i <= count && i < 3; i++)
				zmq_msg_close(&frames[i]);
			return false;
		}
		more = zmq_msg_more(frame);
		count++;
	}
	good = count == 3 && zmq_msg_size(&frames[1]) == 0 && zmq_msg_size(&frames[2]) == 8;
	if (good)
		replay_from(p, &frames[0], read_number(zmq_msg_data(&frames[2])));
	for (unsigned i = 0; i < count && i < 3; i++)
		zmq_msg_close(&frames[i]);
	return true;
}

void *kvb_publisher_replay_socket(struct kvb_publisher *p)
{
	return p->replay;
}

const char *kvb_publisher_endpoint(const struct kvb_publisher *p)
{
	return p->endpoint;
}

const char *kvb_publisher_replay_endpoint(const struct kvb_publisher *p)
{
	return p->replay_endpoint;
}

uint64_t kvb_publisher_sent(const struct kvb_publisher *p)
{
	return p->next;
}

uint64_t kvb_publisher_replays(const struct kvb_publisher *p)
{
	return p->replays;
}
