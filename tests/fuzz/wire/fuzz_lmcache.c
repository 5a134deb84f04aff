/*
 * fuzz_lmcache.c - the bytes are a message of an LMCache worker, in msgpack or JSON.
 */
#include <string.h>

#include "wire/lmcache_wire.h"
#include "must.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A name may be logged as it is. */
static void check_name(struct kvw_slice name)
{
	MUST(name.len <= KVW_LMC_TEXT_MAX);
	for (size_t i = 0; i < name.len; i++)
		MUST((unsigned char)name.data[i] >= 0x20 && name.data[i] != 0x7f);
}

static void check(const struct kvw_lmc_message *message, size_t size)
{
	volatile uint64_t seen; /* reads every item, for the sanitizer */

	MUST(message->type < KVW_LMC_TYPE_COUNT && message->key_count <= size);
	check_name(message->instance_id);
	check_name(message->ip);
	check_name(message->p2p);
	check_name(message->location);
	check_name(message->sync_id);
	MUST(message->instance_id.len > 0);
	for (size_t i = 0; i < message->key_count; i++)
		seen = message->keys[i] + (message->numbers != NULL ? message->numbers[i] : 0);
	(void)seen;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct kvw_slice frame = {(const char *)data, size};
	struct kvw_lmc_reader reader;
	struct kvw_lmc_message message;
	enum kvw_err err;

	kvw_lmc_reader_init(&reader);
	for (int round = 0; round < 2; round++) {
		err = kvw_lmc_read(&reader, frame, &message);
		MUST((err == KVW_OK) == (reader.error == NULL));
		if (err == KVW_OK)
			check(&message, size);
	}
	kvw_lmc_reader_finish(&reader);
	return 0;
}
