/*
 * fuzz_accept.c - the weights of Accept: no more than 1,000, and the same with another element
 * before it that does not count.
 */
#include <stdlib.h>
#include <string.h>

#include "http/accept.h"

#define OTHER "a/b;q=1,"

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
	const struct kvw_slice type = KVW_SLICE("text/plain"), version = KVW_SLICE("0.0.4");
	char *text = malloc(size + sizeof(OTHER));
	unsigned weight, again;

	if (text == NULL)
		return 0;
	memcpy(text, OTHER, sizeof(OTHER) - 1);
	memcpy(text + sizeof(OTHER) - 1, data, size);
	weight = kvw_accept_weight(
		(struct kvw_slice){text + sizeof(OTHER) - 1, size}, type, version);
	again = kvw_accept_weight(
		(struct kvw_slice){text, size + sizeof(OTHER) - 1}, type, version);
	if (weight > 1000 || weight != again)
		abort();
	free(text);
	return 0;
}
