/*
 * fuzz_answer.c - what a collector answers, in both encodings: any bytes are read without harm.
 */
#include "otel/otlp.h"

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
	(void)kvw_otlp_protobuf.rejected((const char *)data, size);
	(void)kvw_otlp_json.rejected((const char *)data, size);
	return 0;
}
