/*
 * log_ring.h - passes whole lines from one thread to another, through a bounded ring of bytes.
 *
 * One producer, one consumer. head and tail count bytes ever written and taken; each side owns one
 * of them and reads the other's with acquire. A line is either in the ring as a whole or not at
 * all.
 */
#ifndef KVW_LOG_RING_H
#define KVW_LOG_RING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kvway/err.h"

struct kvw_log_ring {
	_Alignas(64) _Atomic uint64_t head; /* written by the producer, with release */
	uint64_t tail_seen;                 /* value of tail when the producer last read it */
	_Atomic uint64_t dropped;           /* lines that did not fit; written by the producer */
	_Alignas(64) _Atomic uint64_t tail; /* written by the consumer, with release */
	_Alignas(64) char *data;            /* owned */
	size_t size;                        /* a power of two */
};

/* Allocates a ring. size is rounded up to a power of two. */
enum kvw_err kvw_log_ring_init(struct kvw_log_ring *ring, size_t size) KVW_MUST_CHECK;
void kvw_log_ring_finish(struct kvw_log_ring *ring);

/* Called by the producer. False: no room; the line is counted as dropped. *half: more than half of
 * the ring is in use. */
bool kvw_log_ring_put(struct kvw_log_ring *ring, const char *line, size_t len, bool *half);

/* Called by the consumer. Copies as many whole lines (each ends in \n) as fit, and removes them.
 * Returns their bytes. */
size_t kvw_log_ring_take(struct kvw_log_ring *ring, char *out, size_t room);

#endif
