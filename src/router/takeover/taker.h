/*
 * taker.h - the new kvway's side of a takeover.
 *
 * It asks first and gets copies of the sockets, becomes whole, accepts, and says so. As long as it
 * has not said so it can end at any time, and the process before it never notices more than a line
 * in its log.
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

/* Asks the process that listens at the path `from`, or that has the other end of the descriptor in
 * "fd:N", and puts its sockets into the set. KVW_EIO: there is none, or it refuses; `errors` says
 * why. state is borrowed until kvw_taker_destroy. */
enum kvw_err kvw_taker_create(const char *from, struct kvw_sockets *sockets,
	struct kvw_takeover_state *state, FILE *errors, struct kvw_taker **out) KVW_MUST_CHECK;
void kvw_taker_destroy(struct kvw_taker *taker); /* NULL is allowed */

/* How many workers the old process could choose. */
uint32_t kvw_taker_usable_before(const struct kvw_taker *taker);

/* Asks the old process for a snapshot, and waits for it. *fd is the caller's; -1: there is none, or
 * it did not come in time. False: as kvw_taker_may_go_on. */
bool kvw_taker_snapshot(
	struct kvw_taker *taker, int64_t wait_ns, int *fd, char *why) KVW_MUST_CHECK;

/* Asks for the keys of session tickets, for contexts that are added to the list afterwards. Without
 * them, clients begin new sessions. False: as kvw_taker_may_go_on. */
bool kvw_taker_tickets(
	struct kvw_taker *taker, struct kvw_tls_watch *certificates, char *why) KVW_MUST_CHECK;

/* False: the old process has refused after all, or says what cannot be read, and serves on; `why`
 * of 256 bytes. While it says nothing, and when it has ended without a word, we go on. Does not
 * wait. */
bool kvw_taker_may_go_on(struct kvw_taker *taker, char *why) KVW_MUST_CHECK;

/* We accept. Waits until the old process does not any more. *caches is the caller's: a memory file
 * with the caches that workers have reported to the old process; -1: there is none, or it did not
 * arrive. False: as above, and there is none. */
bool kvw_taker_ready(struct kvw_taker *taker, int *caches, char *why) KVW_MUST_CHECK;

#endif
