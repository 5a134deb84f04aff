/*
 * engine.c - a publisher of KV events as vLLM's is: PUB, and a ROUTER that replays what was
 * published.
 */
#include "engine.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <zmq.h>

#include "wire/msgpack.h"
#include "support.h"

static void put_number(uint8_t frame[8], uint64_t number)
{
	for (int i = 0; i < 8; i++)
		frame[i] = (uint8_t)(number >> (56 - 8 * i));
}

static void reply(struct engine *engine, const void *who, size_t who_len, uint64_t number,
	const void *data, size_t len)
{
	uint8_t frame[8];

	put_number(frame, number);
	zmq_send(engine->router, who, who_len, ZMQ_SNDMORE);
	zmq_send(engine->router, "", 0, ZMQ_SNDMORE);
	if (!engine->old_layout)
		zmq_send(engine->router, engine->topic, strlen(engine->topic), ZMQ_SNDMORE);
	zmq_send(engine->router, frame, sizeof(frame), ZMQ_SNDMORE);
	zmq_send(engine->router, data, len, 0);
}

static void answer(struct engine *engine)
{
	uint8_t who[256], first[8];
	int who_len = zmq_recv(engine->router, who, sizeof(who), 0);
	uint64_t from = 0;

	ck_assert_int_gt(who_len, 0);
	ck_assert_int_eq(zmq_recv(engine->router, first, 1, 0), 0);
	ck_assert_int_eq(zmq_recv(engine->router, first, sizeof(first), 0), 8);
	for (int i = 0; i < 8; i++)
		from = from << 8 | first[i];
	atomic_fetch_add(&engine->asked, 1);
	if (engine->mute)
		return;
	pthread_mutex_lock(&engine->lock);
	if (engine->next > engine->keep && from < engine->next - engine->keep)
		from = engine->next - engine->keep;
	for (; from < engine->next; from++)
		if (from != engine->drop)
			reply(engine, who, (size_t)who_len, from, engine->batches[from].data,
				engine->batches[from].len);
	pthread_mutex_unlock(&engine->lock);
	reply(engine, who, (size_t)who_len, UINT64_MAX, "", 0);
}

static void *serve(void *arg)
{
	struct engine *engine = arg;

	while (!engine->stop) {
		zmq_pollitem_t item = {.socket = engine->router, .events = ZMQ_POLLIN};

		if (zmq_poll(&item, 1, 20) > 0)
			answer(engine);
	}
	return NULL;
}

static void bind_at(void *socket, uint16_t *port)
{
	char endpoint[64];
	int rc = -1;

	zmq_setsockopt(socket, ZMQ_LINGER, &(int){0}, sizeof(int));
	zmq_setsockopt(socket, ZMQ_SNDHWM, &(int){100000}, sizeof(int));
	if (*port == 0)
		*port = free_port();
	snprintf(endpoint, sizeof(endpoint), "tcp://127.0.0.1:%u", *port);
	/* The port of an engine that has just ended may be closing still. */
	for (int i = 0; i < 500 && rc != 0; i++) {
		rc = zmq_bind(socket, endpoint);
		if (rc != 0)
			nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
	}
	ck_assert_msg(rc == 0, "%s: %s", endpoint, zmq_strerror(zmq_errno()));
}

void engine_start(struct engine *engine, uint16_t port, uint16_t replay_port, bool replay)
{
	*engine = (struct engine){.port = port,
		.replay_port = replay_port,
		.topic = "kv@tiny",
		.keep = UINT64_MAX,
		.drop = UINT64_MAX};
	engine->context = zmq_ctx_new();
	/* A PUB that reports subscriptions. */
	engine->pub = zmq_socket(engine->context, ZMQ_XPUB);
	bind_at(engine->pub, &engine->port);
	engine->batches = calloc(ENGINE_BATCHES, sizeof(*engine->batches));
	pthread_mutex_init(&engine->lock, NULL);
	if (!replay)
		return;
	engine->router = zmq_socket(engine->context, ZMQ_ROUTER);
	bind_at(engine->router, &engine->replay_port);
	ck_assert_int_eq(pthread_create(&engine->thread, NULL, serve, engine), 0);
}

void engine_await_subscriber(struct engine *engine)
{
	char topic[64];

	zmq_setsockopt(engine->pub, ZMQ_RCVTIMEO, &(int){20000}, sizeof(int));
	ck_assert_int_gt(zmq_recv(engine->pub, topic, sizeof(topic), 0), 0);
	ck_assert_int_eq(topic[0], 1);
}

void engine_stop(struct engine *engine)
{
	engine->stop = true;
	if (engine->router != NULL) {
		pthread_join(engine->thread, NULL);
		zmq_close(engine->router);
	}
	zmq_close(engine->pub);
	zmq_ctx_term(engine->context);
	for (uint64_t i = 0; i < engine->next; i++)
		free(engine->batches[i].data);
	free(engine->batches);
	pthread_mutex_destroy(&engine->lock);
	engine->context = NULL;
}

void engine_restart(struct engine *engine)
{
	uint16_t port = engine->port, replay_port = engine->replay_port;
	bool replay = engine->router != NULL;

	engine_stop(engine);
	engine_start(engine, port, replay_port, replay);
}

/* Keeps a batch and returns its number. */
static uint64_t keep(struct engine *engine, const void *data, size_t len)
{
	struct engine_batch batch = {malloc(len + 1), len};
	uint64_t number;

	memcpy(batch.data, data, len);
	pthread_mutex_lock(&engine->lock);
	ck_assert_uint_lt(engine->next, ENGINE_BATCHES);
	number = engine->next++;
	engine->batches[number] = batch;
	pthread_mutex_unlock(&engine->lock);
	return number;
}

void engine_send(struct engine *engine, const char *topic, const void *number, size_t number_len,
	const void *data, size_t len)
{
	zmq_send(engine->pub, topic, strlen(topic), ZMQ_SNDMORE);
	zmq_send(engine->pub, number, number_len, ZMQ_SNDMORE);
	zmq_send(engine->pub, data, len, 0);
}

void engine_publish(struct engine *engine, const void *data, size_t len)
{
	uint8_t frame[8];

	put_number(frame, keep(engine, data, len));
	engine_send(engine, engine->topic, frame, sizeof(frame), data, len);
}

void engine_lose(struct engine *engine, const void *data, size_t len)
{
	(void)keep(engine, data, len);
}

/* --- batches --- */

static void put_text(struct kvw_mp_out *out, const char *text)
{
	if (text == NULL)
		kvw_mp_put_nil(out);
	else
		kvw_mp_put_str(out, kvw_slice_of(text));
}

static void begin_batch(struct kvw_mp_out *out, uint8_t *data, size_t size)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	kvw_mp_out_init(out, data, size);
	kvw_mp_put_array(out, 3);
	kvw_mp_put_real(out, (double)now.tv_sec + (double)now.tv_nsec / 1e9);
	kvw_mp_put_array(out, 1);
}

static size_t end_batch(struct kvw_mp_out *out)
{
	kvw_mp_put_uint(out, 0);
	ck_assert(!out->full);
	return out->len;
}

/* Keys besides the tokens, in vLLM's order: adapter, image, salt. */
static void put_extra(struct kvw_mp_out *out, const struct engine_stored *stored, uint32_t block)
{
	const char *image = block == 0 ? stored->image : NULL;
	const char *salt = block == 0 && stored->parent == 0 ? stored->salt : NULL;
	uint32_t count = (stored->lora != NULL) + (image != NULL) + (salt != NULL);

	if (count == 0) {
		kvw_mp_put_nil(out);
		return;
	}
	kvw_mp_put_array(out, count);
	if (stored->lora != NULL)
		put_text(out, stored->lora);
	if (image != NULL) {
		kvw_mp_put_array(out, 2);
		put_text(out, image);
		kvw_mp_put_uint(out, 3);
	}
	if (salt != NULL)
		put_text(out, salt);
}

size_t engine_put_stored(uint8_t *data, size_t size, const struct engine_stored *stored)
{
	uint32_t tokens = stored->without_tokens ? 0 : stored->blocks * stored->block_size;
	struct kvw_mp_out out;

	begin_batch(&out, data, size);
	kvw_mp_put_array(&out, 11);
	put_text(&out, "BlockStored");
	kvw_mp_put_array(&out, stored->blocks);
	for (uint32_t i = 0; i < stored->blocks; i++)
		kvw_mp_put_uint(&out, stored->base + i);
	if (stored->parent == 0)
		kvw_mp_put_nil(&out);
	else
		kvw_mp_put_uint(&out, stored->parent);
	kvw_mp_put_array(&out, tokens);
	for (uint32_t i = 0; i < tokens; i++)
		kvw_mp_put_uint(&out, stored->tokens[i]);
	kvw_mp_put_uint(&out, stored->block_size);
	kvw_mp_put_nil(&out);
	put_text(&out, stored->medium != NULL ? stored->medium : "GPU");
	put_text(&out, stored->lora);
	kvw_mp_put_array(&out, stored->blocks);
	for (uint32_t i = 0; i < stored->blocks; i++)
		put_extra(&out, stored, i);
	kvw_mp_put_uint(&out, stored->group);
	put_text(&out, stored->kind);
	return end_batch(&out);
}

size_t engine_put_removed(
	uint8_t *data, size_t size, const uint64_t *hashes, uint32_t count, uint32_t group)
{
	struct kvw_mp_out out;

	begin_batch(&out, data, size);
	kvw_mp_put_array(&out, 4);
	put_text(&out, "BlockRemoved");
	kvw_mp_put_array(&out, count);
	for (uint32_t i = 0; i < count; i++)
		kvw_mp_put_uint(&out, hashes[i]);
	put_text(&out, "GPU");
	kvw_mp_put_uint(&out, group);
	return end_batch(&out);
}

size_t engine_put_cleared(uint8_t *data, size_t size)
{
	struct kvw_mp_out out;

	begin_batch(&out, data, size);
	kvw_mp_put_array(&out, 1);
	put_text(&out, "AllBlocksCleared");
	return end_batch(&out);
}

void engine_stored(struct engine *engine, const struct engine_stored *stored)
{
	static uint8_t data[1 << 16];

	engine_publish(engine, data, engine_put_stored(data, sizeof(data), stored));
}

void engine_removed(struct engine *engine, uint64_t hash, uint32_t group)
{
	uint8_t data[256];

	engine_publish(engine, data, engine_put_removed(data, sizeof(data), &hash, 1, group));
}

void engine_cleared(struct engine *engine)
{
	uint8_t data[256];

	engine_publish(engine, data, engine_put_cleared(data, sizeof(data)));
}
