/*
 * event.c - recognizes error and end events of an answer's stream by their first or last bytes.
 */
#include "openai/event.h"

#include <string.h>

#include "kvway/slice.h"

/* First bytes of vLLM's error events in streams of completions and chat, of /v1/messages, and of
 * old versions. */
static const struct kvw_slice error_events[] = {
	KVW_SLICE("data: {\"error\""),
	KVW_SLICE("event: error"),
	KVW_SLICE("data: {\"object\":\"error\""),
	KVW_SLICE("data: {\"object\": \"error\""),
};

enum kvw_beginning kvw_event_beginning(const char *data, size_t len)
{
	enum kvw_beginning so_far = KVW_BEGINS_WELL;

	for (size_t i = 0; i < sizeof(error_events) / sizeof(error_events[0]); i++) {
		struct kvw_slice event = error_events[i];

		if (memcmp(data, event.data, len < event.len ? len : event.len) != 0)
			continue;
		if (len >= event.len)
			return KVW_BEGINS_WITH_ERROR;
		so_far = KVW_BEGINNING_UNKNOWN;
	}
	return so_far;
}

/* The error has a member "code", and comes in one piece. */
bool kvw_event_blames_client(const char *data, size_t len)
{
	static const char key[] = "\"code\":";
	const char *end = data + len, *code = memmem(data, len, key, sizeof(key) - 1);

	if (code == NULL)
		return false;
	code += sizeof(key) - 1;
	while (code < end && *code == ' ')
		code++;
	return code < end && *code == '4';
}

bool kvw_event_is_last(const char *data, size_t len)
{
	static const char done[] = "[DONE]\n\n", stop[] = "event: message_stop",
			  completed[] = "event: response.completed";

	if (len >= sizeof(done) - 1 &&
		memcmp(data + len - (sizeof(done) - 1), done, sizeof(done) - 1) == 0)
		return true;
	return (len >= sizeof(stop) - 1 && memcmp(data, stop, sizeof(stop) - 1) == 0) ||
	       (len >= sizeof(completed) - 1 &&
		       memcmp(data, completed, sizeof(completed) - 1) == 0);
}
