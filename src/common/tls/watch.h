/*
 * watch.h - a list of all TLS contexts of a process, by which their certificates are renewed while
 * it runs.
 *
 * The creator of a context adds it; one thread checks all contexts about once a second; metrics
 * read the list. A context is removed before it is destroyed.
 *
 * Threads: any; kvw_tls_watch_look in one at a time.
 */
#ifndef KVW_TLS_WATCH_H
#define KVW_TLS_WATCH_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include "tls/tls.h"

#define KVW_TLS_HEIRLOOMS 4 /* ticket keys can wait for a context for this many uses */

/* Must be all zeroes before kvw_tls_watch_init. */
struct kvw_tls_watch {
	/* Guards the items. It is held while a context reads its files, which does not delay new
	 * connections. */
	pthread_mutex_t lock;
	struct kvw_tls_watch_item {
		struct kvw_tls *tls; /* borrowed until the context is removed */
		/* static text: the use of the context, such as "listen", which is also a label */
		const char *use;
	} *items; /* owned; `count` items, with room for `room` */
	size_t count, room;
	_Atomic uint64_t renewed, refused; /* contexts, since the start */
	uint64_t floods_before; /* floods of contexts that were removed; under the lock */
	struct kvw_tls_heirloom *heirlooms; /* owned; NULL: none; locked */
};

void kvw_tls_watch_init(struct kvw_tls_watch *watch);
void kvw_tls_watch_finish(struct kvw_tls_watch *watch);

/* If memory is short, the context is not watched, and an error is logged. */
void kvw_tls_watch_add(struct kvw_tls_watch *watch, struct kvw_tls *tls, const char *use);
/* NULL is allowed. */
void kvw_tls_watch_remove(struct kvw_tls_watch *watch, const struct kvw_tls *tls);

/* Copies the ticket keys and the use of server context number n. Returns false if there are no
 * more. The caller must overwrite *out after use. */
bool kvw_tls_watch_pass(struct kvw_tls_watch *watch, size_t n, int64_t now_ns, const char **use,
	struct kvw_tls_passed *out) KVW_MUST_CHECK;
/* Gives these keys to the next context that is added for this use. Returns false if there are too
 * many uses, or memory is short. */
bool kvw_tls_watch_inherit(struct kvw_tls_watch *watch, const char *use, int64_t now_ns,
	const struct kvw_tls_passed *passed) KVW_MUST_CHECK;
/* Overwrites the keys that no context has taken. */
void kvw_tls_watch_disinherit(struct kvw_tls_watch *watch);

/* Calls kvw_tls_look for each context, logs and counts the results, and calls
 * kvw_tls_rotate_tickets. now_ns: monotonic. */
void kvw_tls_watch_look(struct kvw_tls_watch *watch, bool now_too, int64_t now_ns);

/* Returns how many connections were ended since the start because the peer requested renegotiation
 * or key updates too often. */
uint64_t kvw_tls_watch_floods(struct kvw_tls_watch *watch);

/* Calls fn for every file with certificates, once for each use; not_after_s: the earliest end in
 * any context that has loaded it. */
typedef void (*kvw_tls_watch_fn)(void *arg, const char *use, const char *path, int64_t not_after_s);
void kvw_tls_watch_each(struct kvw_tls_watch *watch, kvw_tls_watch_fn fn, void *arg);

#endif
