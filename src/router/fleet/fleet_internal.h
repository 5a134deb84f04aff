/*
 * fleet_internal.h - internals of the fleet, shared by its files: fleet.c answers the loops'
 * questions, models.c has the model table, slots.c adds and removes workers.
 */
#ifndef KVW_FLEET_INTERNAL_H
#define KVW_FLEET_INTERNAL_H

#include "fleet/fleet.h"

struct kvw_expected; /* expected.c */

/* Models of one worker, kept by the control thread to rebuild views. */
struct kvw_model_list {
	char **names;
	/* [count]; NULL: the names are configured, and the worker's own list was not read */
	struct kvw_model_card *cards;
	/* [count] models of these names, looked up when a view first needs them; NULL before
	 * that. */
	struct kvw_model **models;
	size_t count;
};

/* The whole fleet: the public struct first, then members that only the control thread uses. */
struct fleet {
	struct kvw_fleet base;
	bool offline; /* a fleet that cannot connect: no TLS, no addresses */
	struct kvw_model_list lists[KVW_MAX_WORKERS];
	uint64_t good_in_row[KVW_MAX_WORKERS]; /* probes */
	uint64_t bad_in_row[KVW_MAX_WORKERS];
	struct kvw_model **by_name; /* the models in base.models, ascending by name; owned */
	size_t named;                          /* number of entries in by_name */
	size_t unlisted;                       /* number of models in no worker's list */
	size_t free_index;                     /* every lower index is in use */
	uint64_t serials;                      /* counter of the serial numbers that models get */
	/* workers that may join again, each with a reserved FREE slot; owned */
	struct kvw_expected *expected;
};

/* --- expected.c --- */

/* Takes a FREE worker: in the slot that is reserved for this URL (*started_s: the expected start),
 * else in any slot; if no slot is left, slots of expected workers are given up. */
enum kvw_err kvw_fleet_take_slot(struct kvw_fleet *fleet, const char *url, double *started_s,
	struct kvw_worker **out) KVW_MUST_CHECK;
/* Frees the records of workers that are still expected, when the fleet ends. */
void kvw_expected_finish(struct fleet *self);

/* --- models.c --- */

enum kvw_err kvw_model_list_copy(
	struct kvw_model_list *list, const char *const *names, size_t count) KVW_MUST_CHECK;
void kvw_model_list_clear(struct kvw_model_list *list);

void kvw_fleet_view_free(void *view); /* NULL is allowed */

/* Frees models that no list, no view and no request has, if more are unlisted than are kept. Called
 * after kvw_epochs_reclaim. */
void kvw_fleet_forget_models(struct fleet *self);
void kvw_model_destroy(struct kvw_model *model); /* NULL is allowed */

/* Builds a view of the LIVE workers from their lists and publishes it. On failure the old one
 * stays. */
enum kvw_err kvw_fleet_publish(struct fleet *self) KVW_MUST_CHECK;

/* Counts a change that candidates show. Called after the change, so that no loop's table misses
 * it. */
static inline void kvw_fleet_changed(_Atomic uint64_t *changes)
{
	atomic_fetch_add_explicit(changes, 1, memory_order_release);
}

#endif
