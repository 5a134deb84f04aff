/*
 * outdated.c - keys under which a tier that cannot be asked now may have what must not be read any more.
 *
 * Each key has a tomb of its tier alone, so that all other tiers show and take what is put under it. A
 * tier that is used again gets the keys in requests of some hundred, one after another. A store to that tier
 * waits for the tomb (stores.c), so that the old chunk is erased before the new one is written.
 *
 * A server may answer reads and refuse to erase, or have lost only some of its nodes. So the probe that decides whether
 * the tier is used is left to other requests, if one comes within a second; and keys that were refused go to the
 * end, and are tried in smaller numbers.
 *
 * A key that a tomb covers there already needs none here: whatever has the tomb has it erased.
 *
 * The number of keys is bounded. Beyond, a put is refused: to empty a tier that others share, because this handle stores
 * much while it cannot reach it, would cost all of them more. What a caller erases is not refused: the tier erases
 * all that it has, as its own lists of erased keys do. To lose chunks is allowed, to read old ones is not.
 */
#include <stdlib.h>

#include "core/lower.h"
#include "core/outdated.h"
#include "core/refused.h"
#include "core/tombs.h"

#define PUTS_MOST 65536u          /* in a tier; some 64 bytes each */
#define KEYS_MOST (2 * PUTS_MOST) /* with what callers erase */
#define AT_ONCE   512u            /* in one request */
#define RETRY_NS  1000000000
#define PROBE_NS  1000000000 /* that others have to be the probe */

struct kvt_outdated_key {
	struct kvt_tomb tomb; /* first */
	struct kvt_outdated_key *next;
};

/* Keys that the tier is erasing. */
struct batch {
	struct kvt_job job; /* first */
	struct kvt_outdated_key *first, *last;
	size_t n;
	struct kvt_key keys[];
};

static bool is_shared(const struct kvt_tier *tier)
{
	return tier->ops->unsure != NULL;
}

/* --- the list; under lock --------------------------------------------------------------------- */

/* Frees this key and those after it: nothing has to be hidden any more. */
static void drop_all(struct kvt_lower *b, struct kvt_outdated_key *at)
{
	struct kvt_outdated_key *next;

	for (; at != NULL; at = next) {
		next = at->next;
		kvt_tomb_remove(b->k, &at->tomb);
		b->outdated.count--;
		free(at);
	}
}

/* All that the tier has is erased, and with it what the list names. */
static bool erase_all(struct kvt_lower *b)
{
	size_t erased;

	if (b->tier->ops->erase_all == NULL || b->tier->ops->erase_all(b->tier, &erased) != KVT_OK)
		return false;
	kvt_note(&b->k->surroundings, KVT_LOG_WARN,
		"%s: more than %u keys are to be erased there once it is used again: all that it has is erased",
		b->tier->ops->name, KEYS_MOST);
	drop_all(b, b->outdated.first);
	b->outdated.first = b->outdated.last = NULL;
	return true;
}

/* KVT_BUSY: there are too many. */
static enum kvt_status add(struct kvt_lower *b, const struct kvt_key *key, size_t most)
{
	struct kvt_outdated *o = &b->outdated;
	struct kvt_outdated_key *at;

	if (kvt_tomb_covers(b, key, true))
		return KVT_OK;
	if (o->count >= most)
		return KVT_BUSY;
	at = calloc(1, sizeof(*at));
	if (at == NULL)
		return KVT_ENOMEM;
	at->tomb.keyed.key = *key;
	at->tomb.tiers = kvt_tomb_of(b);
	kvt_tomb_add(b->k, &at->tomb);
	*(o->last != NULL ? &o->last->next : &o->first) = at;
	o->last = at;
	o->count++;
	return KVT_OK;
}

bool kvt_outdated_add(struct kvt_lower *b, const struct kvt_key *keys, size_t n)
{
	enum kvt_status status = KVT_OK;

	for (size_t i = 0; i < n && status == KVT_OK; i++)
		status = add(b, &keys[i], KEYS_MOST);
	return status == KVT_OK || (status == KVT_BUSY && erase_all(b));
}

void kvt_outdated_unwritten(struct kvt_lower *b, const struct kvt_key *key, bool refused)
{
	if (!b->k->outdates || !is_shared(b->tier) || (!refused && kvt_lower_works(b)))
		return;
	(void)!add(b, key, PUTS_MOST); /* as with what came before the handle knew that the tier fails */
}

void kvt_outdated_finish(struct kvt_lower *b)
{
	drop_all(b, b->outdated.first);
	b->outdated = (struct kvt_outdated){.first = NULL};
}

/* --- the tier is used again; under lock --------------------------------------------------------- */

static void erased(struct kvt *k, struct kvt_job *job);

static struct batch *take_some(struct kvt_outdated *o)
{
	size_t most = o->at_once != 0 ? o->at_once : AT_ONCE, n = o->count < most ? o->count : most;
	struct batch *batch = calloc(1, sizeof(*batch) + n * sizeof(batch->keys[0]));

	if (batch == NULL)
		return NULL;
	batch->first = o->first;
	while (o->first != NULL && batch->n < n) {
		batch->last = o->first;
		batch->keys[batch->n++] = o->first->tomb.keyed.key;
		o->first = o->first->next;
	}
	batch->last->next = NULL;
	if (o->first == NULL)
		o->last = NULL;
	return batch;
}

static void give_back(struct kvt_outdated *o, struct batch *batch)
{
	*(o->last != NULL ? &o->last->next : &o->first) = batch->first;
	o->last = batch->last;
	o->at_once = batch->n > 1 ? batch->n / 2 : 1;
}

/* Returns 1 if a request is under way from now on. */
static size_t erase_some(struct kvt_lower *b)
{
	struct kvt_outdated *o = &b->outdated;
	struct batch *batch = take_some(o);

	if (batch == NULL) {
		o->again_ns = kvt_clock(b->k) + RETRY_NS;
		return 0;
	}
	o->under_way = true;
	batch->job.request = (struct kvt_tier_request){
		.verb = KVT_TIER_ERASE,
		.keys = batch->keys,
		.key_count = batch->n,
	};
	kvt_lower_submit(b, &batch->job, erased);
	return 1;
}

static void erased(struct kvt *k, struct kvt_job *job)
{
	struct batch *batch = (struct batch *)job;
	struct kvt_lower *b = job->lower;
	struct kvt_outdated *o = &b->outdated;

	o->under_way = false;
	if (job->request.status == KVT_OK || job->request.status == KVT_MISS) {
		drop_all(b, batch->first);
		o->at_once = o->at_once < AT_ONCE / 2 ? 2 * o->at_once : 0;
	} else {
		give_back(o, batch);
		o->again_ns = kvt_clock(k) + RETRY_NS;
	}
	free(batch);
	kvt_kick(k); /* for the rest */
}

/* Until when another request may be the probe of a tier whose pause is over. */
static void leave_probe(struct kvt_lower *b, int64_t now_ns)
{
	struct kvt_outdated *o = &b->outdated;

	if (kvt_breaker_works(&b->breaker) || o->round == b->breaker.round)
		return;
	o->round = b->breaker.round;
	if (o->again_ns < now_ns + PROBE_NS)
		o->again_ns = now_ns + PROBE_NS;
}

size_t kvt_outdated_tick(struct kvt_lower *b, int64_t now_ns, int64_t *next_ns)
{
	struct kvt_outdated *o = &b->outdated;

	if (o->first == NULL || o->under_way || b->k->closing || !kvt_lower_shows(b))
		return 0;
	leave_probe(b, now_ns);
	if (now_ns >= o->again_ns && erase_some(b) != 0)
		return 1;
	if (o->again_ns < *next_ns)
		*next_ns = o->again_ns;
	return 0;
}

/* --- without lock ------------------------------------------------------------------------------- */

/* In a tier that is there. Under lock. */
static enum kvt_status outdate_in(struct kvt_lower *b, const struct kvt_key *key)
{
	struct kvt_tier_known known;

	if (is_shared(b->tier))
		return kvt_lower_works(b) ? KVT_OK : add(b, key, PUTS_MOST);
	return kvt_lower_knows(b, key, &known) && !kvt_tomb_covers(b, key, true)
		       ? KVT_EXISTS
		       : KVT_OK;
}

enum kvt_status kvt_outdate(struct kvt *k, const struct kvt_key *key)
{
	enum kvt_status status = KVT_OK;

	pthread_mutex_lock(&k->lock);
	k->outdates = true;
	for (size_t i = 0; i < k->lower_count && status == KVT_OK; i++)
		if (k->lower[i].tier != NULL)
			status = outdate_in(&k->lower[i], key);
	for (size_t i = 0; i < k->lower_count && status == KVT_OK; i++) /* last: a refused put owes it nothing */
		if (k->lower[i].tier == NULL)
			(void)!kvt_refused_erase(&k->lower[i], key, 1);
	pthread_mutex_unlock(&k->lock);
	return status;
}

size_t kvt_outdated_count(struct kvt *k)
{
	size_t count = 0;

	pthread_mutex_lock(&k->lock);
	for (size_t i = 0; i < k->lower_count; i++)
		count += k->lower[i].outdated.count;
	pthread_mutex_unlock(&k->lock);
	return count;
}
