/*
 * pin.c - finds the worker that a client names in the field x-kvway-pin (http.pin).
 */
#include "fleet/pin.h"

#include <stdio.h>
#include <string.h>

static bool is_name_of(const char *url, struct kvw_slice id)
{
	const char *begin = strstr(url, "://");

	if (kvw_slice_equal(id, kvw_slice_of(url)))
		return true;
	return begin != NULL &&
	       kvw_slice_equal(id, (struct kvw_slice){begin + 3, strcspn(begin + 3, "/")});
}

/* Returns whether the id names the worker: by its own name, or a rank by the name of its server. */
static bool is_named(const struct kvw_worker *worker, struct kvw_slice id)
{
	return is_name_of(worker->url, id) || is_name_of(worker->endpoint, id);
}

/* Finds the worker of this name; a leaving worker only if no other has its URL. *many: several
 * match. */
static const struct kvw_worker *find_pinned(
	const struct kvw_fleet *fleet, struct kvw_slice id, bool *many)
{
	const struct kvw_worker *found = NULL;

	*many = false;
	for (size_t i = 0; i < fleet->count; i++) {
		const struct kvw_worker *worker = kvw_fleet_worker(fleet, i);

		if (worker == NULL || !is_named(worker, id))
			continue;
		if (found != NULL && strcmp(found->endpoint, worker->endpoint) != 0)
			*many = true;
		if (found == NULL || atomic_load_explicit(&found->hidden, memory_order_relaxed))
			found = worker;
	}
	return found;
}

enum kvw_err kvw_pin_find(const struct kvw_fleet *fleet, const struct kvw_candidates *set,
	struct kvw_slice id, bool computes, size_t *pos, char *why, size_t room)
{
	bool many;
	const struct kvw_worker *worker = find_pinned(fleet, id, &many);
	int shown = (int)(id.len < 200 ? id.len : 200);
	size_t best = SIZE_MAX;

	for (size_t i = 0; worker != NULL && !many && i < set->count; i++) {
		const struct kvw_worker *item = fleet->workers[set->items[i].id];

		if (item->lead != worker->lead || !is_named(item, id) ||
			!(set->items[i].usable || kvw_worker_rests(item) ||
				(!computes && kvw_worker_sleeps(item))))
			continue;
		if (best == SIZE_MAX || kvw_load_inflight(set->items[i].load) <
						kvw_load_inflight(set->items[best].load))
			best = i;
	}
	if (best != SIZE_MAX) {
		*pos = best;
		return KVW_OK;
	}
	if (worker == NULL)
		(void)snprintf(why, room, KVW_PIN_FIELD ": no worker `%.*s`", shown, id.data);
	else if (many)
		(void)snprintf(why, room,
			KVW_PIN_FIELD ": several workers have `%.*s`; give the whole URL", shown,
			id.data);
	else
		(void)snprintf(why, room, KVW_PIN_FIELD ": `%.*s` is %s", shown, id.data,
			kvw_worker_usable(worker) ? "up, without this model"
						  : kvw_worker_state_name(worker));
	return KVW_ENOWORKER;
}
