/*
 * reactor.h - the smallest event loop that can drive a benchmark: epoll and nothing else.
 *
 * kvb-load shares one core with the backends it plays, while the proxy under test has the other;
 * what it spends itself is lost to the measurement. Hence no library between it and epoll. One
 * thread, one reactor. A source may retire itself or another one inside ready(): it is freed
 * after the turn, so that an event later in the same batch never meets freed memory.
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
	struct kvb_source *next_dead; /* list of the retired, the reactor's */
	void (*ready)(struct kvb_source *self, uint32_t events);
	void (*destroy)(struct kvb_source *self); /* frees the object; fd is closed already */
};

struct kvb_reactor {
	int epoll_fd;
	struct kvb_source *dead;
};

enum kvw_err kvb_reactor_init(struct kvb_reactor *reactor) KVW_MUST_CHECK;
/* events: EPOLLIN and so on. On failure the source is untouched and errno says why. */
enum kvw_err kvb_reactor_add(
	struct kvb_reactor *reactor, struct kvb_source *source, uint32_t events) KVW_MUST_CHECK;
/* Closes the descriptor now, frees the object after the turn. Twice is once. */
void kvb_reactor_retire(struct kvb_reactor *reactor, struct kvb_source *source);
/* Frees what was retired; kvb_reactor_turn() does it by itself. Never inside ready(). */
void kvb_reactor_bury(struct kvb_reactor *reactor);
/* One batch of events; waits at most timeout_ns, 0: not at all, negative: without end. */
void kvb_reactor_turn(struct kvb_reactor *reactor, int64_t timeout_ns);
void kvb_reactor_finish(struct kvb_reactor *reactor);

/* A non-blocking TCP socket with TCP_NODELAY, connecting to host:port (numeric); -1: errno. */
int kvb_connect(const char *host, uint16_t port, const char *source_address);
/* A listening socket; *port 0 picks a free one and sets it. -1: errno says why. */
int kvb_listen(const char *host, uint16_t *port);

#endif
