/*
 * controller.h - the controller's internals. Private to this folder.
 */
#ifndef KVW_LMCACHE_CONTROLLER_H
#define KVW_LMCACHE_CONTROLLER_H

#include <netdb.h>
#include <pthread.h>

#include "feeds/lmcache/diagnose.h"
#include "feeds/lmcache/lmcache.h"
#include "feeds/lmcache/registry.h"

/* A worker of the fleet whose instance is being searched. */
struct kvw_lmcache_followed {
	struct kvw_worker *worker; /* held; NULL: the slot has none */
	uint32_t address_version;
	char ip[NI_MAXHOST];
};

struct kvw_lmcache {
	struct kvw_feed *feed;
	const struct kvw_feed_deps *deps;
	struct kvw_lmcache_recipe recipe; /* as configured; seed borrowed from the configuration */
	struct kvw_lmreg *reg;
	struct kvw_lmdiag *diag;
	struct kvw_lmreg_worker *workers; /* owned, [KVW_MAX_WORKERS]; texts are of `followed` */
	struct kvw_lmcache_followed *followed; /* owned, [KVW_MAX_WORKERS] */
	size_t worker_count;              /* slots of the fleet that have been used */
	int64_t *up_ns; /* [KVW_MAX_WORKERS] last time it was not DOWN; 0: never */
	bool *down;     /* [KVW_MAX_WORKERS] at the last look */

	struct kvw_lmcache_listener {
		void *socket; /* ZeroMQ's; NULL: not configured, not yet, or not any more */
		char url[300];
		int fd; /* owned; -1: libzmq has it, or binds itself */
	} pull, reply, heartbeat;
	struct kvw_lmc_reader reader;
	uint8_t *out; /* owned, KVW_LMREG_REPLY_MAX */
	int64_t ticked_ns;
	int64_t complained_ns; /* last log line on a refused message */
	uint64_t gaps_counted; /* part that the feed has counted */

	pthread_mutex_t lock;            /* guards the members below; held for copies only */
	/* Owned, [KVW_MAX_WORKERS]: each worker's instance; "": none. */
	char (*seen)[KVW_LMC_TEXT_MAX + 1];
	struct kvw_lmcache_stats stats;
};

/* Fills text with the heartbeat socket's "host:port" for a worker at ip; "" if there is no such
 * socket (sockets.c). */
void kvw_lmcache_heartbeat_url(
	const struct kvw_lmcache *lmcache, struct kvw_slice ip, char *text, size_t size);

/* Opens and binds the configured sockets. KVW_EINVAL: printed to errors (sockets.c). */
enum kvw_err kvw_lmcache_open(struct kvw_lmcache *lmcache, FILE *errors) KVW_MUST_CHECK;
/* With deps->waits: lets LMCache connect to the sockets of kvw_lmcache_open from now on. */
void kvw_lmcache_listen(struct kvw_lmcache *lmcache);
void kvw_lmcache_close(struct kvw_lmcache *lmcache);
/* Closes the sockets, whose addresses another process serves now: reads arrived messages first, and
 * still sends their answers. */
void kvw_lmcache_hand_over(struct kvw_lmcache *lmcache);

#endif
