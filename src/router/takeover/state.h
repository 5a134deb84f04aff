/*
 * state.h - numbers about takeovers, for /metrics and /health.
 *
 * Threads: the main thread writes, any thread reads. Each member is independent of the others
 * (relaxed).
 */
#ifndef KVW_TAKEOVER_STATE_H
#define KVW_TAKEOVER_STATE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct kvw_takeover_state {
	_Atomic uint64_t asked;   /* processes that asked for the sockets and received them */
	/* those of them that ended, or were not ready in time, so that this process went on
	 * serving */
	_Atomic uint64_t failed;
	/* connections that were refused: another user, not a takeover's message, or a takeover was
	 * under way already. */
	_Atomic uint64_t refused;
	_Atomic bool under_way;   /* a process has received the sockets and is not ready yet */
	_Atomic bool handed; /* another process accepts connections now, and this one does not */
	_Atomic int64_t heir;     /* process id of the process that took over; 0: there is none */
	/* Process id of the process whose sockets this one took over; 0: there was none. */
	_Atomic int64_t forebear;
	_Atomic int64_t took_ns;  /* time from this process's hello to the old process's goodbye */
	_Atomic uint32_t adopted; /* sockets in use here that another process had before */
};

#endif
