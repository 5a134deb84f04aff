/*
 * reactor.h - the smallest event loop that can drive a benchmark: epoll and nothing else.
 *
 * kvb-load and the backends that it simulates share one core, and the proxy under test has the
 * other; CPU time that kvb-load itself uses makes the measurement worse, so it uses epoll without a
 * library. One thread, one reactor. A source may retire itself or another one inside ready(): it is
 * freed after the turn, so that a later event in the same batch never refers to freed memory.
 */
#ifndef KVB_REACTOR_H
#define KVB_REACTOR_H

#include <stdbool.h>
#include <stdint.h>

#include "kvway/err.h"

/* A descriptor and the callback for its events. Embed as the first member. */
struct kvb_source {
	int fd; /* owned by the source until it is retired */
	bool retired;
	struct kvb_source *next_dead; /* list of retired sources, used by the reactor */
	void (*ready)(struct kvb_source *self, uint32_t events);
	void (*destroy)(struct kvb_source *self); /* frees the object; fd is closed already */
};

struct kvb_reactor {
	int epoll_fd;
	struct kvb_source *dead;
};

enum kvw_err kvb_reactor_init(struct kvb_reactor *reactor) KVW_MUST_CHECK;
/* events: EPOLLIN and so on. On failure the source is not changed, and errno has the reason. */
enum kvw_err kvb_reactor_add(
	struct kvb_reactor *reactor, struct kvb_source *source, uint32_t events) KVW_MUST_CHECK;
/* Closes the descriptor now, and frees the object after the turn. A second call does nothing. */
void kvb_reactor_retire(struct kvb_reactor *reactor, struct kvb_source *source);
/* Frees retired sources; kvb_reactor_turn() does that itself. Not allowed inside ready(). */
void kvb_reactor_bury(struct kvb_reactor *reactor);
/* Handles one batch of events; waits at most timeout_ns; 0: does not wait; negative: waits without
 * limit. */
void kvb_reactor_turn(struct kvb_reactor *reactor, int64_t timeout_ns);
void kvb_reactor_finish(struct kvb_reactor *reactor);

/* Opens a non-blocking TCP socket with TCP_NODELAY that connects to host:port (numeric). -1: errno
 * has the reason. */
int kvb_connect(const char *host, uint16_t port, const char *source_address);
/* Opens a listening socket; if *port is 0, a free port is chosen and stored there. -1: errno has
 * the reason. */
int kvb_listen(const char *host, uint16_t *port);

#endif
