/*
 * wakes.h - models that have no worker at the moment: which of them may be woken, and how many
 * requests wait for each.
 *
 * A model is known if the configuration names it (workers, pools, discovery.wake.models) or if a
 * worker has served it. Event loops count the requests that they hold for a model; the control
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
	/* no worker came in time (hold, the request's deadline or timeouts.request) */
	KVW_WAKE_EXPIRED,
	KVW_WAKE_LEFT,    /* the client left, or kvway ends */
	KVW_WAKE_REFUSED, /* the request did not wait: too many others did, or it must not wait */
	KVW_WAKE_RESULTS
};

struct kvw_wake_model {
	struct kvw_wake_model *next;  /* of all; fixed */
	struct kvw_wake_model *below; /* next entry of the same bucket; never changes */
	char *name;                   /* fixed */
	_Atomic bool served;          /* a worker has served the model */
	/* A request for the model came, whether it waits or not; cleared when a call is made for
	 * it. */
	_Atomic bool wanted;
	_Atomic bool asked;           /* the model has been requested at least once */
	_Atomic bool failed;          /* the last round of calls failed */
	_Atomic uint32_t held;        /* number of requests that wait for it */
	/* When its waking began (kvw_clock_ns); 0: it is not being woken. */
	_Atomic int64_t asleep_ns;
};

#define KVW_WAKE_BUCKETS 4096
/* Limit of stored models; further models that workers serve are not woken. */
#define KVW_WAKE_MODELS_MOST 65536

struct kvw_wakes {
	struct kvw_wake_model *_Atomic first;
	/* entries by a hash of the name */
	struct kvw_wake_model *_Atomic buckets[KVW_WAKE_BUCKETS];
	pthread_mutex_t lock;      /* guards `count` and additions to the lists */
	uint32_t count;
	_Atomic uint64_t calls;    /* number of calls of webhooks and of the API server */
	_Atomic uint64_t failures; /* of these */
	_Atomic uint64_t held_ns;  /* total waiting time of requests that wait no longer */
	_Atomic uint64_t results[KVW_WAKE_RESULTS];
};

enum kvw_err kvw_wakes_create(struct kvw_wakes **out) KVW_MUST_CHECK;
void kvw_wakes_destroy(struct kvw_wakes *wakes); /* NULL is allowed */

/* Records that a worker serves the model. If memory is out the model stays unknown. */
void kvw_wakes_served(struct kvw_wakes *wakes, const char *name);

/* Finds a model that may be woken; NULL: unknown, or out of memory. The entry stays valid. */
struct kvw_wake_model *kvw_wakes_find(
	struct kvw_wakes *wakes, const struct kvw_config *config, struct kvw_slice name);
/* Returns whether any model is known. */
bool kvw_wakes_any(const struct kvw_wakes *wakes, const struct kvw_config *config);

/* Returns a model for which the last call failed, or no worker came in the time that requests wait;
 * NULL: there is none. */
const struct kvw_wake_model *kvw_wakes_stuck(
	const struct kvw_wakes *wakes, int64_t hold_ms, int64_t now_ns);
/* Begin and end the wait of a request; not used for REFUSED. */
void kvw_wakes_hold(struct kvw_wake_model *model);
void kvw_wakes_release(struct kvw_wakes *wakes, struct kvw_wake_model *model,
	enum kvw_wake_result result, int64_t held_ns);
/* Counts a request that does not wait; its model is woken all the same. */
void kvw_wakes_refuse(struct kvw_wakes *wakes, struct kvw_wake_model *model);
/* Number of waiting requests for all models. */
uint64_t kvw_wakes_held(const struct kvw_wakes *wakes);

/* Returns whether the pool would have workers of the model: because it names the model, or because
 * no pool names the model and this one names none. */
bool kvw_wakes_pool_serves(const struct kvw_config *config, size_t pool, const char *model);

/* "woken", ... */
const char *kvw_wake_result_name(enum kvw_wake_result result);

#endif
