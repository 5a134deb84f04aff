/*
 * preamble.h - recognizes the part of a stream that comes before its engine has computed anything.
 *
 * An API server begins a stream by itself: with comments (`: keep-alive`, vLLM's
 * --sse-keep-alive-interval), with `response.created`, `response.queued` and
 * `response.in_progress`, with `message_start` and `ping`. None of them proves that the engine
 * works, and a server goes on with comments and pings when its engine has stopped. vLLM's first
 * event of a chat, which names the role, comes with the first token and is not part of it
 * (tokenless.h).
 *
 * The first line of an event decides, so that the rest of an event is skipped and not kept: a
 * `response.created` may echo 100 KB of tools.
 */
#ifndef KVW_PREAMBLE_H
#define KVW_PREAMBLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KVW_PREAMBLE_ROOM 31 /* length of the longest known first line */

/* Position in the stream. Zeroed: before its first byte. */
struct kvw_preamble {
	uint8_t state;
	bool opened;                  /* an event of the preamble has come */
	bool commented;               /* a comment has come; the caller may clear it */
	uint8_t len;                  /* length of `text` */
	char text[KVW_PREAMBLE_ROOM]; /* the first bytes of a line that is not recognized yet */
};

/*
 * Takes the next piece of the stream. Returns how many of its first bytes are preamble, or may be:
 * all, until another kind of event begins. From then on returns 0, and text[0..len) has those bytes
 * of that event that came in earlier pieces.
 */
size_t kvw_preamble_skip(struct kvw_preamble *preamble, const char *data, size_t len);

/* Returns whether the piece, which begins where an event may begin, consists only of whole events
 * of the preamble. */
bool kvw_preamble_only(const char *data, size_t len);

#endif
