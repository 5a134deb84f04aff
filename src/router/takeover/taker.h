/*
 * taker.h - the new kvway's side of a takeover.
 *
 * The new process asks for copies of the sockets, completes its start, begins to accept
 * connections, and then says that it is ready. Until it has said so it can end at any time, at the
 * cost of a line in the old process's log.
 *
 * Threads: the main thread. The calls wait, for some seconds at most.
 */
#ifndef KVW_TAKEOVER_TAKER_H
#define KVW_TAKEOVER_TAKER_H

#include <stdio.h>

#include "server/sockets.h"
#include "takeover/state.h"
#include "tls/watch.h"

struct kvw_taker;

/* Asks the old process, which listens at the path `from` or has the other end of the descriptor in
 * "fd:N", for its sockets, and puts them into the set. KVW_EIO: there is no such process, or it
 * refuses; `errors` says why. state is borrowed until kvw_taker_destroy. */
enum kvw_err kvw_taker_create(const char *from, struct kvw_sockets *sockets,
	struct kvw_takeover_state *state, FILE *errors, struct kvw_taker **out) KVW_MUST_CHECK;
void kvw_taker_destroy(struct kvw_taker *taker); /* NULL is allowed */

/* Returns how many workers the old process could choose. */
uint32_t kvw_taker_usable_before(const struct kvw_taker *taker);

/* Asks the old process for a snapshot, and waits for it. The caller owns *fd; -1: there is none, or
 * it did not come in time. False: as in kvw_taker_may_go_on. */
bool kvw_taker_snapshot(
	struct kvw_taker *taker, int64_t wait_ns, int *fd, char *why) KVW_MUST_CHECK;

/* Asks for the keys of session tickets, and adds them to contexts that are made afterwards. Without
 * them clients begin new TLS sessions. False: as in kvw_taker_may_go_on. */
bool kvw_taker_tickets(
	struct kvw_taker *taker, struct kvw_tls_watch *certificates, char *why) KVW_MUST_CHECK;

/* Checks, without waiting, whether the takeover may go on. False: the old process has refused after
 * all, or sent a message that cannot be read, and goes on serving; `why` has room for 256 bytes.
 * True also if it is silent or has ended without a message. */
bool kvw_taker_may_go_on(struct kvw_taker *taker, char *why) KVW_MUST_CHECK;

/* Says that this process accepts connections, and waits until the old one no longer does. The
 * caller owns *caches, a memory file with the caches that workers have reported to the old process;
 * -1: there is none, or it did not arrive. False: as in kvw_taker_may_go_on, and *caches is -1. */
bool kvw_taker_ready(struct kvw_taker *taker, int *caches, char *why) KVW_MUST_CHECK;

#endif
