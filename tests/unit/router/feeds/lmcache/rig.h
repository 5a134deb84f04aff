/*
 * rig.h - a feed with the controller on free ports, for one worker whose instance is "i0".
 */
#ifndef KVT_LMCACHE_RIG_H
#define KVT_LMCACHE_RIG_H

#include "routing/exact.h"
#include "feeds/kvspace.h"
#include "feeds/lmcache/lmcache.h"

struct rig {
	struct kvw_config *config;
	struct kvw_fleet *fleet;
	struct kvw_exact *exact;
	struct kvw_kvspaces *spaces;
	struct kvw_feed *feed;
	struct kvw_lmcache *lmcache;
	int pull, reply, heartbeat; /* ports */
	void *context;              /* of the workers */
};

int rig_free_port(void);
void rig_init(struct rig *rig);

/* `more` follows in kvaware.lmcache. What is written to errors is in text. */
enum kvw_err rig_start(struct rig *rig, const char *more, char *text, size_t size);

/* Sockets of rig->context are closed. */
void rig_finish(struct rig *rig);

#endif
