/*
 * preamble.h - what a stream brings before its engine has computed anything.
 *
 * An API server opens a stream on its own: with comments (`: keep-alive`, vLLM's
 * --sse-keep-alive-interval), with `response.created`, `response.queued` and
 * `response.in_progress`, with `message_start` and `ping`. None of them says that the engine behind
 * it works, and a server goes on with comments and pings when its engine has stopped. vLLM's first
 * event of a chat, which names the role, comes with the first token and is none of these
 * (tokenless.h).
 *
 * Events are taken by their first line, so a `response.created` that echoes 100 KB of tools is
 * skipped, not kept.
 */
#ifndef KVW_PREAMBLE_H
#define KVW_PREAMBLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KVW_PREAMBLE_ROOM 31 /* the longest first line that is known */

/* Where the stream stands. Zeroed: at its beginning. */
struct kvw_preamble {
	uint8_t state;
	bool opened;                  /* an event of it has come */
	bool commented;               /* a comment has come; the caller may clear it */
	uint8_t len;                  /* of text */
	char text[KVW_PREAMBLE_ROOM]; /* the first bytes of a line that is not known yet */
};

/*
 * Takes the next piece of the stream. Returns how many bytes at its front are preamble, or may be:
 * all of them until another event begins. From then on 0, and text[0..len) is what the pieces
 * before had of that event.
 */
size_t kvw_preamble_skip(struct kvw_preamble *preamble, const char *data, size_t len);

/* Is the piece, which begins where an event may begin, whole events of the preamble and nothing
 * else? */
bool kvw_preamble_only(const char *data, size_t len);

#endif
