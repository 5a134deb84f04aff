/*
 * fuzz_message.c - any bytes as a packet of a takeover.
 *
 * What is read can be written, and reads the same again.
 */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "takeover/message.h"

static void require(bool holds)
{
	if (!holds)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct kvw_takeover_message first, second;
	char text[KVW_TAKEOVER_BYTES];
	char *exact = malloc(size > 0 ? size : 1); /* a byte too far is a byte past its end */
	enum kvw_err err;

	memcpy(exact, data, size);
	err = kvw_takeover_parse(exact, size, &first);
	free(exact);
	require(err == KVW_OK || err == KVW_EPROTO || err == KVW_EINVAL);
	if (err != KVW_OK || first.use == KVW_SOCKET_USES)
		return 0;
	require(kvw_takeover_parse(text, kvw_takeover_format(&first, text), &second) == KVW_OK);
	require(first.kind == second.kind && first.count == second.count && first.pid == second.pid);
	require(strcmp(first.address, second.address) == 0 && strcmp(first.why, second.why) == 0 &&
		strcmp(first.version, second.version) == 0);
	require(first.keys_len == second.keys_len && memcmp(first.keys, second.keys, first.keys_len) == 0);
	return 0;
}
