/*
 * tombs.c - the table of erased keys that no lookup may show (tombs.h). kvt_tomb_covers takes the
 * core's lock only while the table has entries.
 */
#include "core/tombs.h"

void kvt_tomb_add(struct kvt *k, struct kvt_tomb *tomb)
{
	kvt_keyed_add(&k->tombs.by_key, &tomb->keyed);
	atomic_fetch_add(&k->tombs.count, 1);
}

void kvt_tomb_remove(struct kvt *k, struct kvt_tomb *tomb)
{
	kvt_keyed_remove(&k->tombs.by_key, &tomb->keyed);
	atomic_fetch_sub(&k->tombs.count, 1);
}

bool kvt_tomb_covers(const struct kvt_lower *b, const struct kvt_key *key, bool locked)
{
	struct kvt *k = b->k;
	struct kvt_keyed *at;

	if (atomic_load(&k->tombs.count) == 0)
		return false;
	if (!locked)
		pthread_mutex_lock(&k->lock);
	at = kvt_keyed_find(&k->tombs.by_key, key);
	while (at != NULL && (((struct kvt_tomb *)at)->tiers & kvt_tomb_of(b)) == 0)
		at = kvt_keyed_from(at->next, key);
	if (!locked)
		pthread_mutex_unlock(&k->lock);
	return at != NULL;
}
