/* tokenless.c - detects answers of status 200 without any token. */
#include "openai/tokenless.h"

#include <string.h>

#include "base/find.h"
#include "kvway/slice.h"

static bool begins_with(const char *data, size_t len, struct kvw_slice what)
{
	return len >= what.len && memcmp(data, what.data, what.len) == 0;
}

static bool has(const char *data, size_t len, struct kvw_slice what)
{
	return kvw_find(data, len, what) != NULL;
}

static bool is_event(const char *data, size_t len)
{
	static const char end[] = {'\n', '\n'};

	return len > sizeof(end) && memcmp(data + len - sizeof(end), end, sizeof(end)) == 0 &&
	       memmem(data, len - sizeof(end), end, sizeof(end)) == NULL;
}

enum kvw_token_sign kvw_tokens_in_piece(enum kvw_token_sign so_far, const char *data, size_t len)
{
	bool first = so_far == KVW_TOKENS_UNKNOWN;

	if (begins_with(data, len, KVW_SLICE("data: [DONE]")))
		return KVW_TOKENS_NONE;
	if (!is_event(data, len))
		return KVW_TOKENS_SOME;
	if (begins_with(data, len, KVW_SLICE("event: message_delta")))
		return first ? KVW_TOKENS_SOME : KVW_TOKENS_NONE;
	if (!begins_with(data, len, KVW_SLICE("data: {")))
		return KVW_TOKENS_SOME;
	if (has(data, len, KVW_SLICE("\"choices\":[],\"usage\":{")) ||
		has(data, len, KVW_SLICE("\"finish_reason\":\"abort\"")))
		return KVW_TOKENS_NONE;
	if (first &&
		has(data, len, KVW_SLICE("\"delta\":{\"role\":\"assistant\",\"content\":\"\"}")))
		return KVW_TOKENS_OPENED;
	return KVW_TOKENS_SOME;
}

bool kvw_tokens_aborted(const char *data, size_t len)
{
	return has(data, len, KVW_SLICE("\"finish_reason\":\"abort\"")) ||
	       (has(data, len, KVW_SLICE("\"type\":\"message\"")) &&
		       has(data, len, KVW_SLICE("\"output_tokens\":0")));
}
