/*
 * fuzz_proxy.c - any bytes as the beginning of a connection from a proxy.
 *
 * Whatever is read is within the bytes, and more bytes behind a whole header change nothing. What is refused or not
 * one stays so when more comes.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "wire/proxy_protocol.h"

static void require(bool holds)
{
	if (!holds)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct kvw_proxy_header header, shorter;
	const char *why = NULL;
	enum kvw_proxy_verdict verdict = kvw_proxy_header_read((const char *)data, size, &header, &why), cut;

	require((verdict == KVW_PROXY_BAD) == (why != NULL));
	if (verdict == KVW_PROXY_WHOLE) {
		char *exact = malloc(header.len); /* a byte too far is a byte past its end */

		require(header.len <= size && header.len <= KVW_PROXY_HEADER_MOST && exact != NULL);
		require(!header.known || header.client.ss_family == AF_INET || header.client.ss_family == AF_INET6);
		memcpy(exact, data, header.len);
		require(kvw_proxy_header_read(exact, header.len, &shorter, &why) == KVW_PROXY_WHOLE);
		require(shorter.len == header.len && shorter.known == header.known);
		free(exact);
	}
	if (size > 0) {
		cut = kvw_proxy_header_read((const char *)data, size - 1, &shorter, &why);
		require(cut == KVW_PROXY_MORE || cut == verdict);
	}
	return 0;
}
