/*
 * fuzz_body.c - the bytes are a chunked body and what follows it.
 */
#include <stdint.h>

#include "agree.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	(void)kvb_agree_body((const char *)data, size);
	return 0;
}
