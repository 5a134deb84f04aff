/*
 * fuzz_mask.c - any text that goes into a bundle: no crash, the known secret is gone, and what was masked stays as it is.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "bundle/mask.h"

#define SECRET "s3cret"

static void require(bool holds)
{
	if (!holds)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct kvw_mask mask = {0};
	char *once = NULL, *twice = NULL;
	size_t once_len = 0, twice_len = 0;

	require(kvw_mask_add(&mask, SECRET) == KVW_OK);
	require(kvw_mask_text(&mask, (const char *)data, size, &once, &once_len) == KVW_OK);
	require(once_len == 0 || memmem(once, once_len, SECRET, strlen(SECRET)) == NULL);
	require(kvw_mask_text(&mask, once, once_len, &twice, &twice_len) == KVW_OK);
	require(once_len == twice_len && (once_len == 0 || memcmp(once, twice, once_len) == 0));
	free(once);
	free(twice);
	kvw_mask_finish(&mask);
	return 0;
}
