/*
 * secrets.h - memory for keys: 32 bytes each, wiped when given back, left out of core dumps, empty
 * in a forked child, and locked against swapping where the limit allows.
 *
 * Not thread-safe: the owner has a lock.
 */
#ifndef KVT_SECRETS_H
#define KVT_SECRETS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kvtier/kvtier.h"

#define KVT_SECRET_BYTES 32

struct kvt_secret_block;

struct kvt_secrets {
	struct kvt_secret_block *blocks; /* owned */
	void *free;                      /* list of free slots, linked through the slots */
};

void kvt_secrets_init(struct kvt_secrets *s);
void kvt_secrets_finish(struct kvt_secrets *s); /* wipes all slots that were not given back */

/* Takes a slot of zeros. NULL: no memory. */
uint8_t *kvt_secret_take(struct kvt_secrets *s);
void kvt_secret_give(struct kvt_secrets *s, uint8_t *secret); /* NULL is allowed */

/* Maps such memory in one piece, for a file's text. NULL: no memory. */
void *kvt_secret_map(size_t bytes);
void kvt_secret_unmap(void *memory, size_t bytes); /* wipes; NULL is allowed */

#endif
