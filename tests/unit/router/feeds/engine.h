/*
 * engine.h - a publisher of KV events as vLLM's is: PUB, and a ROUTER that replays what was published.
 *
 * All calls from the test's thread; one thread of its own answers replay requests.
 */
#ifndef KVT_FEED_ENGINE_H
#define KVT_FEED_ENGINE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ENGINE_BATCHES 20000u

struct engine_batch {
	uint8_t *data; /* owned */
	size_t len;
};

struct engine {
	uint16_t port, replay_port;
	void *context, *pub, *router;
	const char *topic;
	pthread_t thread;
	_Atomic bool stop;
	_Atomic bool mute;            /* does not answer */
	_Atomic bool old_layout;      /* replies without a topic */
	_Atomic uint64_t keep;        /* batches that it still has; older ones are gone */
	_Atomic uint64_t drop;        /* number that its replay skips; UINT64_MAX: none */
	_Atomic int asked;            /* replay requests */
	pthread_mutex_t lock;         /* of what follows */
	struct engine_batch *batches; /* [next] */
	uint64_t next;
};

/* Ports may be 0: any. replay false: no ROUTER. */
void engine_start(struct engine *engine, uint16_t port, uint16_t replay_port, bool replay);
void engine_stop(struct engine *engine);

/* Until a subscription has come since the start. */
void engine_await_subscriber(struct engine *engine);

/* The same with everything forgotten, on the same ports. */
void engine_restart(struct engine *engine);

/* Publishes, or only keeps, the next batch. */
void engine_publish(struct engine *engine, const void *data, size_t len);
void engine_lose(struct engine *engine, const void *data, size_t len);

/* Sends these frames as they are. */
void engine_send(struct engine *engine, const char *topic, const void *number, size_t number_len,
	const void *data, size_t len);

/* Batches of one event. hash i of a prompt: base + i. */
struct engine_stored {
	uint64_t base;   /* hash of the first block */
	uint64_t parent; /* 0: none */
	const uint32_t *tokens;
	uint32_t blocks, block_size;
	const char *lora, *salt, *kind, *image, *medium; /* NULL: none */
	uint32_t group;
	bool without_tokens;
};

size_t engine_put_stored(uint8_t *data, size_t size, const struct engine_stored *stored);
size_t engine_put_removed(
	uint8_t *data, size_t size, const uint64_t *hashes, uint32_t count, uint32_t group);
size_t engine_put_cleared(uint8_t *data, size_t size);

/* The three above, published. */
void engine_stored(struct engine *engine, const struct engine_stored *stored);
void engine_removed(struct engine *engine, uint64_t hash, uint32_t group);
void engine_cleared(struct engine *engine);

#endif
