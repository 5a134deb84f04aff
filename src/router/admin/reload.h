/*
 * reload.h - takes over a changed configuration file while requests run.
 *
 * The file is read and checked whole first: with one mistake in it nothing changes. Then every key
 * that config/keys.def marks `reload` is in force at once; a key that needs a restart keeps its
 * value, and is reported. Connections, requests, the prefix tree, learned rates and sessions stay;
 * workers that the file adds join, those that it no longer lists are drained and removed
 * (members.h).
 *
 * A strategy that needs tokens and feeds (kvaware) is started and stopped with the process:
 * changing to it or from it needs a restart.
 *
 * Threads: the control thread; kvw_reload_state by any.
 */
#ifndef KVW_RELOAD_H
#define KVW_RELOAD_H

#include <stdatomic.h>
#include <stdbool.h>

#include "fleet/fleet.h"

struct event_base;
struct json_t;
struct kvw_auth;
struct kvw_feed;
struct kvw_members;
struct kvw_reload;
struct kvw_sources;
struct kvw_tokens;

/* For metrics and /health. */
struct kvw_reload_state {
	_Atomic uint64_t ok, refused;  /* reloads since start */
	_Atomic bool last_refused;
	_Atomic int64_t last_ok_s;     /* wall clock; the start counts */
	/* number of keys that differ between the file and what is in force */
	_Atomic uint32_t need_restart;
};

/* All members are borrowed, and must outlive the object. */
struct kvw_reload_deps {
	const char *path; /* the configuration's file; NULL: it was given by flags */
	struct kvw_fleet *fleet;
	struct kvw_members *members;
	/* NULL: the strategy needs none; the same holds for the next two members */
	struct kvw_tokens *tokens;
	struct kvw_sources *sources;
	struct kvw_feed *feed;
	struct kvw_auth *auth; /* its file is read again, too; NULL: clients need no keys */
};

/* Creates the object. With config.watch it looks at the file every second. */
enum kvw_err kvw_reload_create(struct event_base *base, const struct kvw_reload_deps *deps,
	struct kvw_reload **out) KVW_MUST_CHECK;
void kvw_reload_destroy(struct kvw_reload *reload); /* NULL is allowed */

/* Reads the file now. Returns the HTTP status of the result and sets *answer, the result in JSON;
 * NULL: out of memory. by: what caused the reload, for the log. */
int kvw_reload_run(struct kvw_reload *reload, const char *by, struct json_t **answer);

const struct kvw_reload_state *kvw_reload_state(const struct kvw_reload *reload);

#endif
