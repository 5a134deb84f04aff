/*
 * watch.h - the contexts of a process, whose certificates are renewed while it runs.
 *
 * Whatever makes a context adds it; one thread looks at all of them about once a second; what shows
 * them (metrics) goes through the list. A context is removed before it is destroyed.
 *
 * Threads: any, but kvw_tls_watch_look by one at a time.
 */
#ifndef KVW_TLS_WATCH_H
#define KVW_TLS_WATCH_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include "tls/tls.h"

#define KVW_TLS_HEIRLOOMS 4 /* uses whose keys of tickets wait for their context */

/* Zeroed and initialised by kvw_tls_watch_init. */
struct kvw_tls_watch {
	/* Of items; held while one reads its files, for which new connections do not wait. */
	pthread_mutex_t lock;
	struct kvw_tls_watch_item {
		struct kvw_tls *tls; /* borrowed until it is removed */
		const char *use;     /* static: what it is for, such as "listen"; a label */
	} *items; /* owned, [count], room for `room` */
	size_t count, room;
	_Atomic uint64_t renewed, refused; /* contexts, since the start */
	uint64_t floods_before;             /* of contexts that were removed; locked */
	struct kvw_tls_heirloom *heirlooms; /* owned; NULL: none; locked */
};

void kvw_tls_watch_init(struct kvw_tls_watch *watch);
void kvw_tls_watch_finish(struct kvw_tls_watch *watch);

/* Out of memory: it is not watched, which is logged as an error. */
void kvw_tls_watch_add(struct kvw_tls_watch *watch, struct kvw_tls *tls, const char *use);
/* NULL is allowed. */
void kvw_tls_watch_remove(struct kvw_tls_watch *watch, const struct kvw_tls *tls);

/* Keys of session tickets of the nth server's context, and what it is for.
 * False: there are no more. Wipe *out. */
bool kvw_tls_watch_pass(struct kvw_tls_watch *watch, size_t n, int64_t now_ns, const char **use,
	struct kvw_tls_passed *out) KVW_MUST_CHECK;
/* The next context that is added for this use begins with these keys.
 * False: too many, or out of memory. */
bool kvw_tls_watch_inherit(struct kvw_tls_watch *watch, const char *use, int64_t now_ns,
	const struct kvw_tls_passed *passed) KVW_MUST_CHECK;
/* Wipes what no context has asked for. */
void kvw_tls_watch_disinherit(struct kvw_tls_watch *watch);

/* kvw_tls_look for each, of which it logs and counts what came, and kvw_tls_rotate_tickets.
 * now_ns: monotonic. */
void kvw_tls_watch_look(struct kvw_tls_watch *watch, bool now_too, int64_t now_ns);

/* Connections, since the start, that were ended since the peer asked for renegotiation or key
 * updates too often. */
uint64_t kvw_tls_watch_floods(struct kvw_tls_watch *watch);

/* Calls fn for every file that holds certificates, once for each use; not_after_s: the first end,
 * by any context that has it in force. */
typedef void (*kvw_tls_watch_fn)(void *arg, const char *use, const char *path, int64_t not_after_s);
void kvw_tls_watch_each(struct kvw_tls_watch *watch, kvw_tls_watch_fn fn, void *arg);

#endif
