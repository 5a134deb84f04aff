/*
 * answer_text.h - what a model wrote, out of an answer that streams by.
 *
 * Of completions and chat, as plain JSON or in SSE events: `text`, `content`, `reasoning` (and
 * `reasoning_content`), names and arguments of tool calls, in the order in which they come,
 * unescaped, as UTF-8. Two answers of the same form (both streams, or neither) wrote the same
 * exactly when the texts are equal, however events divide them.
 *
 * No DOM, and nothing is kept but the last key. Of bytes that are no such answer comes what looks
 * like one.
 */
#ifndef KVW_ANSWER_TEXT_H
#define KVW_ANSWER_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KVW_ANSWER_KEY 24 /* longer keys than this are none of ours */

/* Zeroed at first. */
struct kvw_answer_text {
	bool failed;  /* it has an error */
	bool several; /* it has further choices, whose texts are not told apart */
	/* private */
	bool in_choices;
	uint8_t state, meaning;
	uint8_t digits; /* of an escape that are still to come */
	uint32_t depth;
	/* Of the escape so far; a high surrogate that waits for its other half. */
	uint32_t code, high;
	size_t key_len;
	char key[KVW_ANSWER_KEY];
};

/* Borrows the text during the call; a character may be cut. */
typedef void kvw_answer_text_fn(void *user, const char *text, size_t len);

/* Next payload bytes (transfer coding removed), cut anywhere. */
void kvw_answer_text_feed(struct kvw_answer_text *answer, const char *data, size_t len,
	kvw_answer_text_fn *fn, void *user);

#endif
