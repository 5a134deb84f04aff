/*
 * fuzz_memo.c - any text as a file of calibrations.
 *
 * Checked: what is found are digits that exist; after an update the key has the new digits, the text is not
 * longer than allowed, and updating again changes nothing.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/memo.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds)
{
	if (!holds)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *in = (const char *)data;
	char digits[KVT_GPU_MEMO_DIGITS];
	char *once = malloc(KVT_GPU_MEMO_BYTES), *twice = malloc(KVT_GPU_MEMO_BYTES);
	size_t len, again;

	require(once != NULL && twice != NULL);
	if (size <= KVT_GPU_MEMO_BYTES) {
		if (kvt_gpu_memo_find(in, size, "a", digits))
			for (size_t i = 0; i < sizeof(digits); i++)
				require(digits[i] >= '1' && digits[i] <= '3');
		len = kvt_gpu_memo_update(in, size, "a", "321321", once);
		require(len <= KVT_GPU_MEMO_BYTES && kvt_gpu_memo_find(once, len, "a", digits) &&
			memcmp(digits, "321321", sizeof(digits)) == 0);
		again = kvt_gpu_memo_update(once, len, "a", "321321", twice);
		require(again == len && memcmp(once, twice, len) == 0);
	}
	free(once);
	free(twice);
	return 0;
}
