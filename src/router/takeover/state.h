/*
 * state.h - how takeovers went, for /metrics and /health.
 *
 * Threads: the main thread writes, any reads. Each member stands for itself (relaxed).
 */
#ifndef KVW_TAKEOVER_STATE_H
#define KVW_TAKEOVER_STATE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct kvw_takeover_state {
	_Atomic uint64_t asked;   /* processes that asked for our sockets and were given them */
	/* part of these: ended, or not ready in time, so that this process served on */
	_Atomic uint64_t failed;
	/* peers: of another user, no takeover's words, or while there is one already. */
	_Atomic uint64_t refused;
	_Atomic bool under_way;   /* one has our sockets and is not ready yet */
	_Atomic bool handed;      /* it accepts, we do not any more */
	_Atomic int64_t heir;     /* its process id; 0: there is none */
	/* Process id of the one whose sockets we have; 0: there was none. */
	_Atomic int64_t forebear;
	_Atomic int64_t took_ns;  /* from our question to its answer that it accepts no more */
	_Atomic uint32_t adopted; /* sockets in use here that another process had before us */
};

#endif
