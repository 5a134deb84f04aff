/*
 * fuzz_head.c - the first byte chooses request or response, the rest is a stream that begins with
 * one.
 */
#include <stdint.h>

#include "agree.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size > 0)
		(void)kvb_agree_head((const char *)data + 1, size - 1, data[0] == 'R');
	return 0;
}
