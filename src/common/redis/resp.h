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
	KVW_REDIS_RESP_MORE, /* the reply is not complete */
	KVW_REDIS_RESP_DONE, /* complete: command->status and results are set */
	/* Not RESP: the rest of the stream is unreadable; kvw_redis_resp.why has the reason. */
	KVW_REDIS_RESP_BROKEN,
};

/* Parser of one stream. Plain memory: nothing to release but command->found. */
struct kvw_redis_resp {
	struct kvw_redis_command *command; /* whose reply is being read; NULL: none */
	const char *why;                   /* KVW_REDIS_RESP_BROKEN: static text */
	enum kvw_redis_resp_part {
		KVW_REDIS_RESP_TYPE,
		KVW_REDIS_RESP_LINE,
		KVW_REDIS_RESP_LINE_END, /* CR was seen */
		KVW_REDIS_RESP_BODY,
		KVW_REDIS_RESP_BODY_CR,
		KVW_REDIS_RESP_BODY_LF,
	} part;
	char type;
	bool full;           /* no room for this reply: the rest is discarded */
	uint32_t line_len;   /* bytes of the line so far; `line` has the first ones */
	uint64_t body_left;  /* bytes of the bulk string still to come */
	uint64_t body_at;    /* bytes of it received */
	uint32_t segment;    /* of the next byte: 0 is lead, then into[segment - 1] */
	uint64_t segment_at; /* bytes in it already */
	uint32_t depth;      /* arrays that are open */
	uint32_t left[KVW_REDIS_RESP_DEPTH];  /* elements still missing in each */
	uint32_t index[KVW_REDIS_RESP_DEPTH]; /* elements read in each */
	uint64_t element_bytes;               /* counted against element_limit */
	size_t element_room;                  /* allocated in command->found */
	char line[KVW_REDIS_TEXT];
};

/* Begins to read the reply to this command. Clears its results. A parser may be all zeroes
 * before. */
void kvw_redis_resp_begin(struct kvw_redis_resp *p, struct kvw_redis_command *command);

/* Returns the memory for the next bytes, as far as known: up to `max` pieces, in order; 0: use
 * feed. */
size_t kvw_redis_resp_room(const struct kvw_redis_resp *p, struct iovec *pieces, size_t max);
/* Reports that the caller filled the first `bytes` of that memory. */
void kvw_redis_resp_arrived(struct kvw_redis_resp *p, uint64_t bytes);

/* Takes bytes up to the end of this reply; *used is their number. */
enum kvw_redis_resp_state kvw_redis_resp_feed(
	struct kvw_redis_resp *p, const char *data, size_t len, size_t *used);

/* Abandons an unfinished reply: frees its elements and clears the command's results. Does nothing
 * between replies. */
void kvw_redis_resp_abandon(struct kvw_redis_resp *p);

#endif
