/*
 * fake_routing.c - names that routing and openai give, where those rooms are not built.
 */
#include "kvway/route.h"
#include "api_path.h"

const char *kvw_reason_name(enum kvw_reason reason)
{
	static const char *const names[KVW_REASON_COUNT] = {"turn", "prefix", "load", "session",
		"session_new", "session_moved", "no_session", "no_content", "only", "owner"};

	return names[reason];
}

const char *kvw_api_name(enum kvw_api api)
{
	static const char *const names[KVW_API_COUNT] = {"other", "completions", "chat",
		"responses", "messages", "count_tokens", "embeddings", "rerank", "tokenize",
		"audio"};

	return names[api];
}
