/*
 * answer.h - reads text, usage and errors out of an OpenAI-style stream.
 *
 * Reads the JSON of one event of /v1/chat/completions or /v1/completions at a time. If the stream
 * has no usage, the counts are unknown, not zero.
 */
#ifndef KVB_ANSWER_H
#define KVB_ANSWER_H

#include <stdbool.h>
#include <stdint.h>

#include "kvway/err.h"
#include "bench/load/mem.h"

struct kvb_answer {
	struct kvb_buf text; /* as received so far */
	bool done;           /* [DONE] was read */
	bool usage_known, cached_known;
	int64_t prompt_tokens, completion_tokens, cached_tokens;
	bool failed;    /* the stream carried an error */
	char error[96]; /* its message, shortened */
};

/*
 * Reads the data of one event. *content: the event has output (text, reasoning or a tool call).
 * KVW_EPROTO: the data is not JSON, or no object.
 */
enum kvw_err kvb_answer_read(
	struct kvb_answer *answer, const char *data, size_t len, bool *content) KVW_MUST_CHECK;
void kvb_answer_finish(struct kvb_answer *answer);

#endif
