/*
 * fuzz_scan.c - bodies of any bytes, understood by the scan and by a tree of jansson.
 *
 * The first byte chooses the API and the inner loops, the second how the body is cut. Where both
 * accept, all fields and chains must be equal; where one refuses, for a reason that reference.c
 * lists.
 */
#include <stdio.h>
#include <stdlib.h>

#include "tests/unit/router/openai/reference.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *problem;
	enum kvw_api api;

	if (size < 2)
		return 0;
	api = (enum kvw_api)((data[0] & 0x0f) % KVW_API_COUNT);
	test_kernel = test_kernel_at(data[0] >> 4);
	problem = reference_compare(api, (const char *)data + 2, size - 2, data[1]);
	if (problem != NULL) {
		fprintf(stderr, "api %d: %s\n", (int)api, problem);
		abort();
	}
	return 0;
}
