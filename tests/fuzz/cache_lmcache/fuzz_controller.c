/*
 * fuzz_controller.c - whatever a controller sends is read whole or refused, and what is read is within its
 * bounds. What a worker writes in answer is a message that the other side's reader takes.
 */
#include <stdlib.h>
#include <string.h>

#include "lmcache/controller_wire.h"
#include "wire/msgpack.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool good)
{
	if (!good)
		abort();
}

static void check_texts(const struct kvt_controller_message *m)
{
	require(memchr(m->type, 0, sizeof(m->type)) != NULL);
	require(memchr(m->heartbeat_url, 0, sizeof(m->heartbeat_url)) != NULL);
	require(memchr(m->event_id, 0, sizeof(m->event_id)) != NULL);
	require(memchr(m->location, 0, sizeof(m->location)) != NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct kvt_controller_buf answer = {0};
	struct kvt_controller_message m;
	uint64_t sum = 0;
	struct kvw_mp mp;

	if (!kvt_controller_read(data, size, &m))
		return 0;
	check_texts(&m);
	require(m.missing_count <= KVT_CONTROLLER_MISSING_MAX && m.missing_count <= size);
	require(m.token_count <= size);
	for (uint32_t i = 0; i < m.token_count; i++)
		sum += m.tokens[i];
	for (uint32_t i = 0; i < m.missing_count; i++)
		sum += m.missing[i];
	kvt_controller_put_error(&answer, m.type);
	kvt_controller_put_number(&answer, "PinWorkerRetMsg", "num_tokens", sum);
	require(!answer.failed);
	kvw_mp_init(&mp, answer.data, answer.len);
	require(kvw_mp_skip(&mp) == KVW_OK && kvw_mp_skip(&mp) == KVW_OK && kvw_mp_left(&mp) == 0);
	kvt_controller_buf_free(&answer);
	kvt_controller_message_free(&m);
	return 0;
}
