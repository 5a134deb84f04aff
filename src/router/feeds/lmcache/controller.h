/*
 * controller.h - the members of the LMCache controller. Private to this folder.
 */
#ifndef KVW_LMCACHE_CONTROLLER_H
#define KVW_LMCACHE_CONTROLLER_H

#include <netdb.h>
#include <pthread.h>

#include "feeds/lmcache/diagnose.h"
#include "feeds/lmcache/lmcache.h"
#include "feeds/lmcache/registry.h"

/* A worker of the fleet for which LMCache's instance is looked for. */
struct kvw_lmcache_followed {
	struct kvw_worker *worker; /* held by the controller; NULL: the slot has no worker */
	uint32_t address_version;
	char ip[NI_MAXHOST];
};

struct kvw_lmcache {
	struct kvw_feed *feed;
	const struct kvw_feed_deps *deps;
	/* the configured recipe; its seed is borrowed from the configuration */
	struct kvw_lmcache_recipe recipe;
	struct kvw_lmreg *reg;
	struct kvw_lmdiag *diag;
	/* owned, [KVW_MAX_WORKERS]; its texts are borrowed from `followed` */
	struct kvw_lmreg_worker *workers;
	struct kvw_lmcache_followed *followed; /* owned, [KVW_MAX_WORKERS] */
	size_t worker_count;              /* slots of the fleet that have been used */
	int64_t *up_ns; /* [KVW_MAX_WORKERS] when each worker was last not DOWN; 0: never */
	bool *down;     /* [KVW_MAX_WORKERS] whether each was DOWN at the last look */

	struct kvw_lmcache_listener {
		void *socket; /* ZeroMQ's socket; NULL: not configured, not open yet, or closed */
		char url[300];
		/* the listening socket, owned; -1: libzmq has it, or binds the address itself */
		int fd;
	} pull, reply, heartbeat;
	struct kvw_lmc_reader reader;
	uint8_t *out; /* owned, KVW_LMREG_REPLY_MAX */
	int64_t ticked_ns;
	int64_t complained_ns; /* when a refused message was last logged */
	uint64_t gaps_counted; /* part of the registry's gaps that the feed has counted */

	pthread_mutex_t lock; /* guards the members below; held only while they are copied */
	/* Owned, [KVW_MAX_WORKERS]: the name of each worker's instance; "": none. */
	char (*seen)[KVW_LMC_TEXT_MAX + 1];
	struct kvw_lmcache_stats stats;
};

/* Writes the heartbeat socket's "host:port", as a worker at `ip` reaches it; "" if there is no such
 * socket (sockets.c). */
void kvw_lmcache_heartbeat_url(
	const struct kvw_lmcache *lmcache, struct kvw_slice ip, char *text, size_t size);

/* Opens and binds the configured sockets. KVW_EINVAL: the cause is printed to errors
 * (sockets.c). */
enum kvw_err kvw_lmcache_open(struct kvw_lmcache *lmcache, FILE *errors) KVW_MUST_CHECK;
/* With deps->waits: from now on LMCache may connect to the sockets of kvw_lmcache_open. */
void kvw_lmcache_listen(struct kvw_lmcache *lmcache);
void kvw_lmcache_close(struct kvw_lmcache *lmcache);
/* Closes the sockets, whose addresses another process serves now. Messages that have arrived are
 * read first, and their answers are still sent. */
void kvw_lmcache_hand_over(struct kvw_lmcache *lmcache);

#endif
