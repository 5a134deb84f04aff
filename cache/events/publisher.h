/*
 * publisher.h - two ZeroMQ sockets on which a cache publishes its events, like a vLLM engine.
 *
 *   PUB     [topic][sequence, 8 bytes big-endian, from 0][batch]
 *   ROUTER  a DEALER sends   [""][first sequence wanted, 8 bytes big-endian]
 *           and receives     [""][topic][sequence][batch]   for each batch that is kept
 *           at last          [""][""][ff x 8][""]
 *
 * A request of any other form is not answered. Both addresses are bound.
 *
 * No function here waits for a peer. A subscriber for which PUBLISH_HWM messages wait loses further messages until it
 * has read some (it sees the gap and may ask for a replay). A replay that its asker does not take goes on in later
 * calls, and is given up after some seconds without progress.
 *
 * Not thread-safe; the owner calls from one thread at a time.
 */
#ifndef KVT_PUBLISHER_H
#define KVT_PUBLISHER_H

#include <stdbool.h>

#include "chunk/note.h"

struct kvt_publisher;

/* KVT_MISS: no address is configured, or it cannot be bound, which is logged. KVT_ENOMEM. */
enum kvt_status kvt_publisher_create(const struct kvt_config *config,
	const struct kvt_surroundings *s, struct kvt_publisher **out) KVT_MUST_CHECK;
/* Waits a tenth of a second at most for messages to be sent. NULL is allowed. */
void kvt_publisher_destroy(struct kvt_publisher *p);

/* Gives a batch its number, sends it, and keeps it for replay. */
void kvt_publisher_send(struct kvt_publisher *p, const void *batch, size_t len);

/* Uses up a number without a batch, so that subscribers notice the loss. */
void kvt_publisher_skip(struct kvt_publisher *p);

/* Answers requests for replays, a part at a time. Returns the number of actions. *waits: a replay
 * is under way whose receiver is not ready. */
size_t kvt_publisher_serve(struct kvt_publisher *p, bool *waits);

bool kvt_publisher_has_replay(const struct kvt_publisher *p);

/* Returns when `fd` can be read, a replay is requested, or after timeout_ms (-1: never). */
void kvt_publisher_wait(struct kvt_publisher *p, int fd, long timeout_ms);

/* Return the bound addresses, with the real port for "*" or 0; "": none is bound. Static. */
const char *kvt_publisher_address(const struct kvt_publisher *p);
const char *kvt_publisher_replay_address(const struct kvt_publisher *p);

struct kvt_publisher_stats {
	uint64_t batches, bytes; /* sent */
	uint64_t drops; /* how often a subscriber was too slow and began to lose batches */
	uint64_t replays, replays_given_up;
	uint64_t replay_bytes_held; /* bytes of batches kept */
	uint64_t memory_bytes;      /* most memory of kept batches */
};
/* Any thread. */
void kvt_publisher_stats(const struct kvt_publisher *p, struct kvt_publisher_stats *out);

#endif
