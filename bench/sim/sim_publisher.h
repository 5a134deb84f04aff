/*
 * sim_publisher.h - the two sockets on which a vLLM engine publishes KV events.
 *
 * PUB: [topic][sequence, 8 bytes big-endian, from 0][batch]. Never blocks: when `hwm` messages wait
 * for a slow subscriber, it loses further ones, as with vLLM.
 *
 * ROUTER: a client that sends ["", first sequence] gets the batches that are still kept, one
 * message each, then an end marker; see src/common/wire/vllm_frames.h for the layouts. The last
 * buffer_steps batches are kept. A request of another form is not answered at all.
 *
 * Addresses are vLLM's: one with `*` or `::` is bound, any other connects. Two liberties: `*`
 * stands for the host that the worker itself listens on, and port 0 takes a free one. Several
 * workers bind at port + their number.
 *
 * Not thread-safe. Nothing in here waits.
 */
#ifndef KVB_SIM_PUBLISHER_H
#define KVB_SIM_PUBLISHER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KVB_ENDPOINT_MAX 256

struct kvb_publisher_config {
	const char *endpoint;        /* address, as configured */
	const char *replay_endpoint; /* "": no replay */
	const char *topic;
	const char *host;      /* what `*` stands for */
	uint32_t index;        /* number of the worker, which is added to ports */
	uint32_t buffer_steps; /* batches kept for replay */
	int hwm;               /* most messages that wait for one subscriber; 0: no limit */
	bool old_replay;       /* replies have no topic: vLLM before 0.25 */
};

struct kvb_publisher;

/* `zmq` is a ZeroMQ context. Returns NULL on failure, with a message on standard error. */
struct kvb_publisher *kvb_publisher_create(void *zmq, const struct kvb_publisher_config *config);
void kvb_publisher_destroy(struct kvb_publisher *publisher); /* NULL is allowed */

/* Sends a batch and keeps it for replay. */
void kvb_publisher_send(struct kvb_publisher *publisher, const void *batch, size_t len);

/* Answers one request for a replay. Returns false if there was none. */
bool kvb_publisher_serve(struct kvb_publisher *publisher);

/* Begins again like a new process: numbers begin at 0, and no batch is kept. */
void kvb_publisher_restart(struct kvb_publisher *publisher);

void *kvb_publisher_replay_socket(struct kvb_publisher *publisher); /* NULL: no replay */
/* Returns the address as an engine reports it, with real ports: "tcp://" and "*", or the configured
 * host. */
const char *kvb_publisher_endpoint(const struct kvb_publisher *publisher);
const char *kvb_publisher_replay_endpoint(const struct kvb_publisher *publisher); /* "": none */
uint64_t kvb_publisher_sent(const struct kvb_publisher *publisher);    /* next sequence number */
uint64_t kvb_publisher_replays(const struct kvb_publisher *publisher); /* requests answered */

#endif
