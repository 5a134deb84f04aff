/*
 * objects_lease.c - grants leases on objects, and ends them.
 *
 * A lease is a hold of libkvtier's, known to the client by an id. A lease on an object in memory is
 * granted by the calling thread; an object that only a lower tier has is loaded first, and its
 * lease granted by the granting thread. Before a grant all bytes of the object are read and
 * checked, because clients can write to the segment; a damaged object is dropped, and loaded from a
 * lower tier. Loaded objects are checked again: the tier has checked them, but they may have waited
 * for the granting thread since. For a client that checks its own copy nothing is checked here.
 * Nothing is loaded while the segment must not be written, and no lease is granted while clients
 * may have opened another segment under its name.
 *
 * An object's key depends on generations, and another process may have replaced the object without
 * this process knowing it yet (after a stop of this process, say). So the key is computed again
 * once the bytes are loaded, and an object under a former key is not granted.
 *
 * A hold is released in one place: by the thread that took the lease out of the table, or, if the
 * lease was never granted, by the thread that had the hold.
 */
#include <stdlib.h>
#include <string.h>

#include "memory/extents.h"
#include "daemon/objects_parts.h"

#define AT_A_TIME 64
#define WAIT_MOST 60000000000u /* longest wait for a load */

/* Ends a lease call without a grant; its reservation was given back before. */
static void refuse(
	struct kvt_objects *o, kvt_lease_done_fn done, void *user, enum kvt_status status)
{
	bool miss = status == KVT_MISS || status == KVT_ECANCELED;

	kvt_objects_count(miss ? &o->counters.lease_misses : &o->counters.lease_refused, 1);
	done(user, status, NULL);
}

/* --- granting --------------------------------------------------------------------------------- */

/* Grants a lease on a hold whose bytes are right; takes the hold and the reservation. */
static void grant(struct kvt_objects *o, const struct kvt_key *key, struct kvt_lease *hold,
	uint64_t ttl_ns, kvt_lease_done_fn done, void *user)
{
	const struct kvt_view *view = &hold->views[0];
	uint64_t lasts_ns = ttl_ns + o->grace_ns;
	struct kvt_grant out = {
		.fragments = &hold->segments[view->first_segment],
		.count = view->segment_count,
		.bytes = view->bytes,
	};
	int64_t now_ns = kvt_now(o->surroundings);
	struct kvt_segment fragments[KVT_MAX_EXTENTS];
	enum kvt_status status = KVT_EIO;

	/* Copied first: once the lease is in the table it may end, and the hold be gone. */
	memcpy(fragments, out.fragments, out.count * sizeof(fragments[0]));
	out.fragments = fragments;
	if (kvt_segment_promise_for(o->segment, lasts_ns))
		status = kvt_lease_table_add(
			o->leases, key, hold, now_ns, now_ns + (int64_t)lasts_ns, out.id);
	if (status != KVT_OK) {
		kvt_release(o->cache, hold);
		kvt_lease_table_unreserve(o->leases);
		refuse(o, done, user, KVT_BUSY);
		return;
	}
	kvt_objects_count(&o->counters.lease_hits, 1);
	done(user, KVT_OK, &out);
}

/* Returns whether the object's bytes are right; if not, releases the hold. */
static bool check(struct kvt_objects *o, struct kvt_lease *hold)
{
	if (kvt_verify(o->cache, hold) == KVT_OK)
		return true;
	kvt_objects_count(&o->counters.corrupt, 1);
	kvt_release(o->cache, hold);
	return false;
}

/* --- objects that have to be loaded
 * ------------------------------------------------------------- */

static void add_pending(struct kvt_objects *o, struct kvt_pending *p)
{
	pthread_mutex_lock(&o->pending_lock);
	p->next = o->pending;
	if (p->next != NULL)
		p->next->prev = p;
	o->pending = p;
	pthread_mutex_unlock(&o->pending_lock);
}

static void remove_pending(struct kvt_objects *o, struct kvt_pending *p)
{
	pthread_mutex_lock(&o->pending_lock);
	*(p->prev != NULL ? &p->prev->next : &o->pending) = p->next;
	if (p->next != NULL)
		p->next->prev = p->prev;
	pthread_mutex_unlock(&o->pending_lock);
}

/* Takes the reservation. */
static void fetch(struct kvt_objects *o, const struct kvt_object_name *name,
	const struct kvt_key *key, const struct kvt_lease_wish *wish, kvt_lease_done_fn done,
	void *user)
{
	struct kvt_pending *p = calloc(1, sizeof(*p) + name->bucket.len + name->key.len);
	enum kvt_status status = KVT_ENOMEM;
	uint64_t op;

	if (p != NULL) {
		p->key = *key;
		p->name = kvt_object_name_copy(name, (char *)(p + 1));
		p->ttl_ns = wish->ttl_ns;
		p->unchecked = wish->unchecked;
		p->done = done;
		p->user = user;
		add_pending(o, p);
		status = kvt_get_begin(o->cache, key, 1,
			wish->timeout_ns < WAIT_MOST ? wish->timeout_ns : WAIT_MOST,
			(uint64_t)(uintptr_t)p, &op);
	}
	if (status == KVT_OK)
		return; /* the granting thread owns p from here on */
	if (p != NULL)
		remove_pending(o, p);
	free(p);
	kvt_lease_table_unreserve(o->leases);
	refuse(o, done, user, status == KVT_MISS ? KVT_MISS : KVT_BUSY);
}

static bool is_present(struct kvt_objects *o, const struct kvt_object_name *name, const struct kvt_key *key)
{
	struct kvt_key now;

	kvt_object_key(o, name, &now);
	return memcmp(&now, key, sizeof(now)) == 0;
}

/* Ends the wait of a lease call; hold NULL: the object did not come. */
static void fetched(struct kvt_objects *o, struct kvt_pending *p, struct kvt_lease *hold)
{
	remove_pending(o, p);
	if (hold != NULL && !is_present(o, &p->name, &p->key)) {
		kvt_release(o->cache, hold);
		hold = NULL;
	}
	if (hold != NULL && (p->unchecked || check(o, hold))) {
		kvt_catalog_note(o->catalog, &p->name, hold->views[0].bytes);
		grant(o, &p->key, hold, p->ttl_ns, p->done, p->user);
	} else {
		kvt_lease_table_unreserve(o->leases);
		refuse(o, p->done, p->user,
			kvt_object_is_nowhere(o, &p->key) ? KVT_MISS : KVT_ECANCELED);
	}
	free(p);
}

void kvt_leases_poll(struct kvt_objects *o)
{
	struct kvt_completion done[AT_A_TIME];
	size_t n = kvt_poll(o->cache, done, AT_A_TIME);

	for (size_t i = 0; i < n; i++) {
		struct kvt_lease *hold = NULL;

		if (o->refused_all)
			continue; /* a get whose pending lease has ended */
		if (done[i].status != KVT_OK || kvt_get_take(o->cache, done[i].op, &hold) != KVT_OK)
			hold = NULL;
		fetched(o, (struct kvt_pending *)(uintptr_t)done[i].user, hold);
	}
}

/* --- asking ----------------------------------------------------------------------------------- */

/* Returns a hold on an object in memory, checked if `check`; NULL: not in memory or damaged. */
static struct kvt_lease *at_hand(
	struct kvt_objects *o, const struct kvt_object_name *name, const struct kvt_key *key, bool checked)
{
	struct kvt_lease *hold;

	if (kvt_object_tier(o, key) != KVT_TIER_L1 || kvt_get(o->cache, key, 1, 0, &hold) != KVT_OK)
		return NULL;
	if (!is_present(o, name, key)) {
		kvt_release(o->cache, hold);
		return NULL;
	}
	return !checked || check(o, hold) ? hold : NULL;
}

void kvt_object_lease(struct kvt_objects *o, const struct kvt_object_name *name,
	const struct kvt_lease_wish *wish, kvt_lease_done_fn done, void *user)
{
	struct kvt_lease_wish cut = *wish;
	enum kvt_status status = KVT_OK;
	struct kvt_lease *hold;
	struct kvt_key key;

	kvt_objects_count(&o->counters.leases, 1);
	if (!kvt_object_name_valid(name))
		status = KVT_EINVAL;
	else if (kvt_segment_is_quiet(o->segment) || !kvt_segment_is_ours(o->segment))
		status = KVT_ECANCELED;
	else if (!kvt_lease_table_reserve(o->leases))
		status = KVT_BUSY;
	if (status != KVT_OK) {
		refuse(o, done, user, status);
		return;
	}
	if (cut.ttl_ns > o->ttl_max_ns)
		cut.ttl_ns = o->ttl_max_ns;
	kvt_object_key(o, name, &key);
	hold = at_hand(o, name, &key, !cut.unchecked);
	if (hold != NULL) {
		grant(o, &key, hold, cut.ttl_ns, done, user);
	} else if (o->shared || kvt_object_tier(o, &key) != KVT_TIER_NONE) {
		fetch(o, name, &key, &cut, done, user);
	} else {
		kvt_lease_table_unreserve(o->leases);
		refuse(o, done, user,
			kvt_object_is_nowhere(o, &key) ? KVT_MISS : KVT_ECANCELED);
	}
}

/* --- ends ------------------------------------------------------------------------------------- */

enum kvt_status kvt_object_release(struct kvt_objects *o, struct kvw_slice id)
{
	struct kvt_lease *hold = kvt_lease_table_take(o->leases, id);

	if (hold == NULL)
		return KVT_MISS;
	kvt_release(o->cache, hold);
	kvt_objects_count(&o->counters.releases, 1);
	return KVT_OK;
}

size_t kvt_leases_expire(struct kvt_objects *o)
{
	struct kvt_lease *holds[AT_A_TIME];
	size_t n = kvt_lease_table_expire(o->leases, kvt_now(o->surroundings), holds, AT_A_TIME);

	for (size_t i = 0; i < n; i++)
		kvt_release(o->cache, holds[i]);
	kvt_objects_count(&o->counters.expired, n);
	return n;
}

void kvt_leases_end(struct kvt_objects *o)
{
	int64_t last_ns = kvt_lease_table_last_end(o->leases), now_ns = kvt_now(o->surroundings);
	struct kvt_lease *holds[AT_A_TIME];
	size_t n;

	kvt_segment_settle(o->segment, last_ns > now_ns ? (uint64_t)(last_ns - now_ns) : 0);
	while ((n = kvt_lease_table_drain(o->leases, holds, AT_A_TIME)) != 0)
		for (size_t i = 0; i < n; i++)
			kvt_release(o->cache, holds[i]);
	o->refused_all = true;
	while (o->pending != NULL) {
		struct kvt_pending *p = o->pending;

		remove_pending(o, p);
		kvt_lease_table_unreserve(o->leases);
		refuse(o, p->done, p->user, KVT_ECANCELED);
		free(p);
	}
}
