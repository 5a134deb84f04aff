/*
 * resp.h - reads replies in Redis' protocol (RESP2), in whatever pieces they arrive.
 *
 * kvw_redis_resp_begin gives the parser the command whose reply comes next; it fills in that
 * command's results.
 * Most bytes of a value never pass through it: while a bulk string is being read,
 * kvw_redis_resp_room names the memory that its next bytes belong in, the caller receives straight
 * into that, and says how many came (kvw_redis_resp_arrived). Everything else goes through
 * kvw_redis_resp_feed.
 *
 * Strict: numbers are digits, lines end in CRLF, nothing of RESP3 is known (it is never asked for).
 * Bounded: lines to 64 KiB (what is kept of them: KVW_REDIS_TEXT), bulk strings to 512 MiB, arrays
 * to 2^20 elements, 8 deep, and what is kept of them to the command's element_limit. A reply that
 * the command has no room for is read to its end and its status is KVW_ELIMIT; one that is not RESP
 * ends the stream.
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
	KVW_REDIS_RESP_DONE, /* it is: command->status and results are set */
	/* Not RESP: nothing that follows can be understood; kvw_redis_resp.why says what. */
	KVW_REDIS_RESP_BROKEN,
};

/* One stream. Plain memory: nothing to release but what command->found holds. */
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
	bool full;           /* no room for this reply: the rest is thrown away */
	uint32_t line_len;   /* bytes of the line so far; the first of them in line */
	uint64_t body_left;  /* bytes of the bulk string still to come */
	uint64_t body_at;    /* bytes of it that have come */
	uint32_t segment;    /* the next byte's: 0 is lead, then into[segment - 1] */
	uint64_t segment_at; /* bytes in it already */
	uint32_t depth;      /* arrays that are open */
	uint32_t left[KVW_REDIS_RESP_DEPTH];  /* elements that each of them still lacks */
	uint32_t index[KVW_REDIS_RESP_DEPTH]; /* and has had */
	uint64_t element_bytes;               /* counted against element_limit */
	size_t element_room;                  /* allocated in command->found */
	char line[KVW_REDIS_TEXT];
};

/* The next reply is this command's. Clears its results.
 * A parser of all zeroes is ready for this. */
void kvw_redis_resp_begin(struct kvw_redis_resp *p, struct kvw_redis_command *command);

/* Where the next bytes belong, as far as known: up to `max` pieces, in order; 0: use feed. */
size_t kvw_redis_resp_room(const struct kvw_redis_resp *p, struct iovec *pieces, size_t max);
/* The first `bytes` of that room are filled; at most as many as it offered. */
void kvw_redis_resp_arrived(struct kvw_redis_resp *p, uint64_t bytes);

/* Takes bytes up to the end of this reply; *used says how many. */
enum kvw_redis_resp_state kvw_redis_resp_feed(
	struct kvw_redis_resp *p, const char *data, size_t len, size_t *used);

/* Gives up a reply that will not be finished: frees what it has gathered and clears the command's
 * results. Nothing happens between replies. */
void kvw_redis_resp_abandon(struct kvw_redis_resp *p);

#endif
