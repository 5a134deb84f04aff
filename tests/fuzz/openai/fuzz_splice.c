/*
 * fuzz_splice.c - bodies of any bytes that get another model and another salt.
 *
 * The first byte chooses the API, the second how the body is cut. Where the scan accepts the body and jansson reads
 * it, the changed body must mean what the body with these two members means.
 */
#include <stdio.h>
#include <stdlib.h>

#include "tests/unit/router/openai/splice_check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *problem;
	enum kvw_api api;
	bool changed;

	if (size < 2)
		return 0;
	api = (enum kvw_api)(data[0] % KVW_API_COUNT);
	if (api == KVW_API_AUDIO) /* a form has no salt */
		return 0;
	problem = splice_check(api, (const char *)data + 2, size - 2, data[1], &changed);
	if (problem != NULL) {
		fprintf(stderr, "api %d: %s\n", (int)api, problem);
		abort();
	}
	return 0;
}
