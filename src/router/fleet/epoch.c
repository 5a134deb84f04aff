/*
 * epoch.c - frees retired objects when no loop can use them any more.
 *
 * A retired object records every loop's turn count; it may be freed when each count has grown by
 * two: the running turn, and a whole one. Counts and the pointers that the control thread replaces
 * are written in one total order: a loop whose new turn the control thread has seen cannot find the
 * old pointer any more. With a plain store the count could become visible after the reads of its
 * own turn.
 */
#include "fleet/epoch.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

/* One loop's count, alone on its cache line. */
struct turn {
	_Alignas(64) _Atomic uint64_t count;
};

struct retired {
	struct retired *next;
	void *object;
	void (*free_fn)(void *object);
	uint64_t seen[]; /* [loops] each loop's count when the object was retired */
};

struct kvw_epochs {
	struct turn *turns; /* [loops] */
	size_t loops;
	struct retired *retired; /* control thread only */
};

enum kvw_err kvw_epochs_create(size_t loops, struct kvw_epochs **out)
{
	struct kvw_epochs *epochs = calloc(1, sizeof(*epochs));

	if (epochs == NULL)
		return KVW_ENOMEM;
	epochs->turns = aligned_alloc(64, loops * sizeof(struct turn));
	if (epochs->turns == NULL) {
		free(epochs);
		return KVW_ENOMEM;
	}
	for (size_t i = 0; i < loops; i++)
		atomic_init(&epochs->turns[i].count, 0);
	epochs->loops = loops;
	*out = epochs;
	return KVW_OK;
}

void kvw_epochs_destroy(struct kvw_epochs *epochs)
{
	if (epochs == NULL)
		return;
	while (epochs->retired != NULL) {
		struct retired *r = epochs->retired;

		epochs->retired = r->next;
		r->free_fn(r->object);
		free(r);
	}
	free(epochs->turns);
	free(epochs);
}

void kvw_epochs_turn(struct kvw_epochs *epochs, size_t loop)
{
	(void)atomic_fetch_add(&epochs->turns[loop].count, 1);
}

enum kvw_err kvw_epochs_retire(
	struct kvw_epochs *epochs, void *object, void (*free_fn)(void *object))
{
	struct retired *r = malloc(sizeof(*r) + epochs->loops * sizeof(r->seen[0]));

	if (r == NULL)
		return KVW_ENOMEM;
	r->object = object;
	r->free_fn = free_fn;
	for (size_t i = 0; i < epochs->loops; i++)
		r->seen[i] = atomic_load_explicit(&epochs->turns[i].count, memory_order_seq_cst);
	r->next = epochs->retired;
	epochs->retired = r;
	return KVW_OK;
}

static bool all_turned(const struct kvw_epochs *epochs, const struct retired *r)
{
	for (size_t i = 0; i < epochs->loops; i++)
		/* Two turns must end: the one that was running when the object was retired, and a
		 * whole one. */
		if (atomic_load_explicit(&epochs->turns[i].count, memory_order_acquire) <
			r->seen[i] + 2)
			return false;
	return true;
}

void kvw_epochs_reclaim(struct kvw_epochs *epochs)
{
	struct retired **link = &epochs->retired;

	while (*link != NULL) {
		struct retired *r = *link;

		if (!all_turned(epochs, r)) {
			link = &r->next;
			continue;
		}
		*link = r->next;
		r->free_fn(r->object);
		free(r);
	}
}
