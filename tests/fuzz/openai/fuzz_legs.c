/*
 * fuzz_legs.c - bodies of any bytes that are made into a prefiller's and a decoder's, and answers of any bytes that are
 * looked through for parameters.
 *
 * The first byte chooses the API. Where jansson reads the body, the two bodies must mean what the client's means with
 * the members changed that are meant.
 */
#include <stdio.h>
#include <stdlib.h>

#include "tests/unit/router/openai/legs_check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const enum kvw_api apis[] = {KVW_API_CHAT, KVW_API_COMPLETIONS, KVW_API_RESPONSES, KVW_API_MESSAGES};
	struct kvw_leg_params params;
	const char *problem;
	bool split;

	if (size < 1)
		return 0;
	problem = legs_check(apis[data[0] % 4], (const char *)data + 1, size - 1, &split);
	if (problem != NULL) {
		fprintf(stderr, "%s\n", problem);
		abort();
	}
	if (kvw_leg_params_read((struct kvw_slice){(const char *)data + 1, size - 1}, &params) == KVW_OK &&
		(params.text.data < (const char *)data ||
			params.text.data + params.text.len > (const char *)data + size))
		abort();
	return 0;
}
