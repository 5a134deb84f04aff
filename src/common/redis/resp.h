/*
 * resp.h - reads replies in Redis' protocol (RESP2), in whatever pieces they arrive.
 *
 * kvw_redis_resp_begin gives the parser the command whose reply comes next; the parser fills in
 * that command's results. Most bytes of a value bypass the parser: within a bulk string
 * kvw_redis_resp_room returns the memory for the next bytes, the caller receives directly into it
 * and reports their number (kvw_redis_resp_arrived). All other bytes go through
 * kvw_redis_resp_feed.
 *
 * Strict: numbers are digits, lines end in CRLF, RESP3 is unknown (the client never requests it).
 * Bounded: lines to 64 KiB (KVW_REDIS_TEXT bytes of them are kept), bulk strings to 512 MiB, arrays
 * to 2^20 elements, 8 deep, and kept elements to the command's element_limit. A reply too large for
 * the command is read to its end with status KVW_ELIMIT; bytes that are not RESP end the stream.
 *
 * Threads: one parser, one thread. No I/O.
 */
#ifndef KVW_REDIS_RESP_H
#define KVW_REDIS_RESP_H

#include "redis/redis.h"

#define KVW_REDIS_RESP_LINE_MAX  65536
#define KVW_REDIS_RESP_BULK_MAX  (UINT64_C(512) << 20)
#define KVW_REDIS_RESP_ARRAY_MAX (INT64_C(1) << 20)
#define KVW_REDIS_RESP_DEPTH     8

enum kvw_redis_resp_state {
	KVW_REDIS_RESP_MORE, /* the reply is not complete yet */
	KVW_REDIS_RESP_DONE, /* the reply is complete: command->status and the results are set */
	/* The bytes are not RESP: the rest of the stream cannot be read; kvw_redis_resp.why has the
	 * reason. */
	KVW_REDIS_RESP_BROKEN,
};

/* Parser of one stream. Holds no memory but command->found. */
struct kvw_redis_resp {
	struct kvw_redis_command *command; /* the command whose reply is being read; NULL: none */
	const char *why; /* after KVW_REDIS_RESP_BROKEN: static text with the reason */
	enum kvw_redis_resp_part {
		KVW_REDIS_RESP_TYPE,
		KVW_REDIS_RESP_LINE,
		KVW_REDIS_RESP_LINE_END, /* CR was seen */
		KVW_REDIS_RESP_BODY,
		KVW_REDIS_RESP_BODY_CR,
		KVW_REDIS_RESP_BODY_LF,
	} part;
	char type;
	bool full;           /* there is no room for this reply, so its rest is discarded */
	uint32_t line_len;   /* length of the line so far; `line` has its first bytes */
	uint64_t body_left;  /* bytes of the string that are still to come */
	uint64_t body_at;    /* bytes of it received */
	/* where the next byte goes: 0 is lead, a larger number into[segment - 1] */
	uint32_t segment;
	uint64_t segment_at; /* bytes in it already */
	uint32_t depth;      /* arrays that are open */
	uint32_t left[KVW_REDIS_RESP_DEPTH];  /* for each level: elements that are still to come */
	uint32_t index[KVW_REDIS_RESP_DEPTH]; /* elements read in each */
	uint64_t element_bytes;               /* counted against element_limit */
	size_t element_room;                  /* allocated in command->found */
	char line[KVW_REDIS_TEXT];
};

/* Begins to read the reply to this command, and clears the command's results. A new parser is all
 * zeroes. */
void kvw_redis_resp_begin(struct kvw_redis_resp *p, struct kvw_redis_command *command);

/* Returns where the next bytes are to be received, as far as that is known: the number of pieces,
 * at most `max`, in order. 0: kvw_redis_resp_feed is to be used. */
size_t kvw_redis_resp_room(const struct kvw_redis_resp *p, struct iovec *pieces, size_t max);
/* Reports that the first `bytes` bytes of that memory were received. */
void kvw_redis_resp_arrived(struct kvw_redis_resp *p, uint64_t bytes);

/* Parses bytes, up to the end of this reply; *used is how many that were. */
enum kvw_redis_resp_state kvw_redis_resp_feed(
	struct kvw_redis_resp *p, const char *data, size_t len, size_t *used);

/* Ends an incomplete reply: frees its elements and clears the command's results. Does nothing
 * between replies. */
void kvw_redis_resp_abandon(struct kvw_redis_resp *p);

#endif
