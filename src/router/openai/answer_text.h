/*
 * answer_text.h - extracts the generated text from an answer as it streams through.
 *
 * The text of completions and chat, as plain JSON or in SSE events, is `text`, `content`,
 * `reasoning` (and `reasoning_content`), names and arguments of tool calls, in the order in which
 * they come, unescaped, as UTF-8. Two answers of the same form (both streams, or neither) are equal
 * exactly when the texts are, however events divide them.
 *
 * No tree is built; only the last key is kept. If the bytes are not such an answer, the text is
 * arbitrary.
 */
#ifndef KVW_ANSWER_TEXT_H
#define KVW_ANSWER_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KVW_ANSWER_KEY 24 /* longer keys than this are none that matter */

/* Zeroed at first. */
struct kvw_answer_text {
	bool failed;  /* the answer has an error */
	bool several; /* the answer has several choices, whose texts are mixed */
	/* private */
	bool in_choices;
	uint8_t state, meaning;
	uint8_t digits; /* hex digits of a \u escape that are still to come */
	uint32_t depth;
	/* code: the escape's value so far; high: a high surrogate that waits for its low half. */
	uint32_t code, high;
	size_t key_len;
	char key[KVW_ANSWER_KEY];
};

/* Receives text, which is borrowed during the call; a character may be cut. */
typedef void kvw_answer_text_fn(void *user, const char *text, size_t len);

/* Takes the next payload bytes of the answer (without transfer coding), cut anywhere. */
void kvw_answer_text_feed(struct kvw_answer_text *answer, const char *data, size_t len,
	kvw_answer_text_fn *fn, void *user);

#endif
