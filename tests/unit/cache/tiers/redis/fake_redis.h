/*
 * fake_redis.h - redis.h without sockets: a map in memory, and faults at a test's wish.
 *
 * All clients share one server. It knows the commands that the tier uses and no others; a command
 * that it does not know ends the test program.
 */
#ifndef FAKE_REDIS_H
#define FAKE_REDIS_H

#include "redis/redis.h"

struct fake_server {
	bool down;              /* commands end with KVW_EIO */
	bool stalled;           /* commands wait until their deadline */
	const char *error;      /* writes are answered by this; NULL: they are done */
	const char *stall_verb; /* only these are stalled; NULL: see above */
	uint64_t commands, gets, sets, unlinks, ranges;
	uint64_t largest; /* value that was ever set */
};

extern struct fake_server fake;

void fake_reset(void); /* forgets everything */
/* A key's value; NULL: none. Owned by the server; writable, for tests that damage it. */
uint8_t *fake_value(const char *name, size_t *len);
void fake_set(const char *name, const void *bytes, size_t len);
void fake_remove(const char *name);
void fake_make_list(const char *name); /* another type */
/* The i-th key, in no order; NULL: there are no more. */
const char *fake_name(size_t i);
size_t fake_count(const char *part); /* keys with this in their names */
void fake_expire(int64_t now_ns);
int64_t fake_ttl_ms(const char *name); /* as it was set; 0: none */

#endif
