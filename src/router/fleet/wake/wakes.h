/*
 * wakes.h - models without a worker now: those that may be woken, and the requests that wait for
 * each.
 *
 * A model is known if the configuration names it (workers, pools, discovery.wake.models) or if a
 * worker has served it. Event loops count the requests that they hold for a model, the control
 * thread wakes it (waker.h). Entries stay as long as the fleet, so that a loop may keep a pointer
 * to one.
 *
 * Threads: any, unless a function says otherwise. The list is read without a lock and grows at its
 * head.
 */
#ifndef KVW_WAKES_H
#define KVW_WAKES_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "config/config.h"
#include "kvway/slice.h"

/* The end of a request that was held. */
enum kvw_wake_result {
	KVW_WAKE_WOKEN,   /* a worker is ready */
	KVW_WAKE_EXPIRED, /* no worker in time (hold, its deadline or timeouts.request) */
	KVW_WAKE_LEFT,    /* its client left, or kvway ends */
	KVW_WAKE_REFUSED, /* did not wait: too many waited, or it must not wait */
	KVW_WAKE_RESULTS
};

struct kvw_wake_model {
	struct kvw_wake_model *next;  /* of all; fixed */
	struct kvw_wake_model *below; /* of the same bucket; fixed */
	char *name;                   /* fixed */
	_Atomic bool served;          /* a worker has served it */
	/* A request came, waiting or not; cleared when a call is made for it. */
	_Atomic bool wanted;
	_Atomic bool asked;           /* it has been requested */
	_Atomic bool failed;          /* the last round of calls failed */
	_Atomic uint32_t held;        /* requests that wait for it */
	/* Start of its waking (kvw_clock_ns); 0: not being woken. */
	_Atomic int64_t asleep_ns;
};

#define KVW_WAKE_BUCKETS 4096
/* Further models that workers serve are not stored, and not woken. */
#define KVW_WAKE_MODELS_MOST 65536

struct kvw_wakes {
	struct kvw_wake_model *_Atomic first;
	struct kvw_wake_model *_Atomic buckets[KVW_WAKE_BUCKETS]; /* by a hash of the name */
	pthread_mutex_t lock;      /* guards additions to the lists, and count */
	uint32_t count;
	_Atomic uint64_t calls;    /* of webhooks and to the API server */
	_Atomic uint64_t failures; /* of these */
	_Atomic uint64_t held_ns;  /* of requests that wait no longer */
	_Atomic uint64_t results[KVW_WAKE_RESULTS];
};

enum kvw_err kvw_wakes_create(struct kvw_wakes **out) KVW_MUST_CHECK;
void kvw_wakes_destroy(struct kvw_wakes *wakes); /* NULL is allowed */

/* Records that a worker serves the model. Without memory it stays unknown. */
void kvw_wakes_served(struct kvw_wakes *wakes, const char *name);

/* Finds a model that may be woken; NULL: unknown, or out of memory. Stays valid. */
struct kvw_wake_model *kvw_wakes_find(
	struct kvw_wakes *wakes, const struct kvw_config *config, struct kvw_slice name);
/* Whether any model is known. */
bool kvw_wakes_any(const struct kvw_wakes *wakes, const struct kvw_config *config);

/* Begins and ends the wait of a request. Not with REFUSED. */
void kvw_wakes_hold(struct kvw_wake_model *model);
void kvw_wakes_release(struct kvw_wakes *wakes, struct kvw_wake_model *model,
	enum kvw_wake_result result, int64_t held_ns);
/* Counts a request that does not wait: the model is woken all the same. */
void kvw_wakes_refuse(struct kvw_wakes *wakes, struct kvw_wake_model *model);
/* Number of waiting requests for all models. */
uint64_t kvw_wakes_held(const struct kvw_wakes *wakes);

/* Whether the pool would have workers of the model: if it names the model, or if no pool does and
 * this one names no model. */
bool kvw_wakes_pool_serves(const struct kvw_config *config, size_t pool, const char *model);

/* "woken", ... */
const char *kvw_wake_result_name(enum kvw_wake_result result);

#endif
