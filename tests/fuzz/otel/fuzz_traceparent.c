/*
 * fuzz_traceparent.c - the header field traceparent: what is read is what a second, simpler reader
 * finds, and what is written is read again as the same.
 */
#include <stdlib.h>
#include <string.h>

#include "trace/context.h"

/* Returns whether the bytes match 00-32 digits-16 digits-2 digits, or a later version. */
static int matches(const char *text, size_t len)
{
	static const char form[] = "hh-hhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhh-hhhhhhhhhhhhhhhh-hh";

	if (len < KVW_TRACEPARENT_LEN)
		return 0;
	for (size_t i = 0; i < KVW_TRACEPARENT_LEN; i++)
		if (form[i] == '-' ? text[i] != '-'
				   : text[i] == '\0' || strchr("0123456789abcdef", text[i]) == NULL)
			return 0;
	if (memcmp(text, "ff", 2) == 0 || strspn(text + 3, "0") >= 32 ||
		strspn(text + 36, "0") >= 16)
		return 0;
	return len == KVW_TRACEPARENT_LEN ||
	       (memcmp(text, "00", 2) != 0 && text[KVW_TRACEPARENT_LEN] == '-');
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
	char *text = malloc(size + 1), written[KVW_TRACEPARENT_LEN];
	struct kvw_trace_context read = {.span = 1}, again = {.span = 1};
	int good;

	if (text == NULL)
		return 0;
	memcpy(text, data, size);
	text[size] = '\0';
	good = kvw_traceparent_read((struct kvw_slice){text, size}, &read);
	if (good != matches(text, size))
		abort();
	if (good) {
		kvw_traceparent_write(written, read.trace, read.parent, read.flags);
		if (memcmp(written + 2, text + 2, sizeof(written) - 2) != 0 ||
			!kvw_traceparent_read(
				(struct kvw_slice){written, sizeof(written)}, &again) ||
			memcmp(&read, &again, sizeof(read)) != 0)
			abort();
	}
	free(text);
	return 0;
}
