/*
 * bodies.h - makes chat requests of one size that all differ but share prefixes, at almost no cost.
 *
 * A body is a system message shared by its group (three quarters of the size, 64 groups) and a user
 * message that begins with a number used once. From that number on every prompt differs from every
 * other, so that a router that remembers prompts meets a new one with each request and a known
 * prefix in it. Unique bodies begin with their number instead: none shares a prefix with another,
 * and a router that remembers prompts remembers all of each. The pieces lie in memory and are sent
 * with one writev; only the number is written per request.
 */
#ifndef KVB_BODIES_H
#define KVB_BODIES_H

#include <stdint.h>
#include <sys/uio.h>

#include "bench/load/mem.h"

#define KVB_BODY_GROUPS 64
#define KVB_BODY_PIECES 4
#define KVB_BODY_STAMP  64 /* bytes of memory that each request needs for its number */

struct kvb_bodies {
	struct kvb_buf open;   /* HTTP head, and the JSON before the shared text */
	struct kvb_buf shared; /* KVB_BODY_GROUPS texts of shared_len bytes */
	size_t shared_len;
	struct kvb_buf close; /* the text after the number, or the shared text of unique bodies */
	const char *turn;     /* before the number */
	int unique;
	uint64_t next;        /* number of the next request */
};

/* body_bytes: size of each body, at least 512. stream: the requests ask for an event stream.
 * unique: they share no prefixes. */
void kvb_bodies_init(struct kvb_bodies *bodies, const char *host, size_t body_bytes, int stream, int unique);
/* Makes the next request. The pieces point into bodies and stamp, and are valid until one of these
 * changes. */
void kvb_bodies_next(struct kvb_bodies *bodies, struct iovec pieces[KVB_BODY_PIECES],
	char stamp[KVB_BODY_STAMP]);
void kvb_bodies_finish(struct kvb_bodies *bodies);

#endif
