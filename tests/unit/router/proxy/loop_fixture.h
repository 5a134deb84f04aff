/*
 * loop_fixture.h - one event loop without its thread, turned by the test itself.
 *
 * The client is one end of a socket pair whose other end the test holds; the worker is a listener on
 * loopback. Sockets can be made to take what the test says (struct taps), so that what depends on a
 * full buffer or a loss at one moment happens every time.
 */
#ifndef KVW_TEST_LOOP_FIXTURE_H
#define KVW_TEST_LOOP_FIXTURE_H

#include <check.h>

#include "proxy/exchange.h"

/* Check's own assertions allocate, also where they hold: these do not. */
#define EXPECT(condition)                                                                          \
	do {                                                                                       \
		if (!(condition))                                                                  \
			ck_abort_msg("%s", #condition);                                            \
	} while (0)

struct loop_fixture {
	struct kvw_config *config;
	struct kvw_fleet *fleet;
	struct kvw_strategy *strategy;
	struct kvw_metrics *metrics;
	struct kvw_access_log *access_log;
	struct kvw_account memory;
	struct kvw_shared shared;
	struct kvw_loop loop;
	_Atomic int64_t turn_ns;
	int listener; /* of the worker */
	int second;   /* of the second one; 0: there is none */
};

void loop_fixture_init(struct loop_fixture *f);
/* The model tiny is divided between a group of the worker and one of a second worker, which calls it tiny-next. */
void loop_fixture_init_divided(struct loop_fixture *f);
void loop_fixture_finish(struct loop_fixture *f);

/* Makes the loop alone, where there is none (loop_fixture_init makes one). */
enum kvw_err loop_fixture_loop(struct loop_fixture *f);

/* A new client of the loop; *peer is the test's end. */
struct kvw_client *loop_fixture_client(struct loop_fixture *f, int *peer);
/* The same where the loop may be unable to take it. */
void loop_fixture_offer(struct loop_fixture *f, int *peer);

/* A second worker joins, whose models are not known yet. */
struct kvw_worker *loop_fixture_join(struct loop_fixture *f);
/* The worker of that index gets no new requests, or does again. */
void loop_fixture_bar(struct loop_fixture *f, size_t worker, bool barred);

/* Looks at the sockets until nothing more is to be done, and frees what ended. */
void loop_fixture_turn(struct loop_fixture *f);

/* All that must be zero when no request is being served. */
void loop_fixture_check_idle(struct loop_fixture *f);

/* What a tapped socket takes: each write the next of these, then the last for ever. Bytes of one
 * write; 0: EAGAIN; below 0: EPIPE. */
struct taps {
	const ssize_t *takes;
	size_t count, next;
	char data[1 << 17]; /* what was taken */
	size_t len;
};

/* From now on io writes into taps. Reading stays the socket's own. */
void loop_fixture_tap(struct kvw_io *io, struct taps *taps);

#endif
