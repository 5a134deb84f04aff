/*
 * presence.c - recent answers about a remote tier's chunks, in sets of eight places.
 *
 * A key's hash names its set; a new answer replaces an older one about the same key, else takes an
 * empty place, else that of an expired answer, else that of the oldest of the eight. So a flood of
 * answers costs only old ones, and no entry is ever moved. The hash is seeded per table: callers
 * that choose keys cannot put all of them into one set.
 *
 * A few locks are shared by the sets, each held for a walk over eight tags. Tags are kept apart
 * from the entries, so that a lookup reads one line of tags and, as a rule, one entry.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "tiers/presence.h"

#define WAYS  8u
#define LOCKS 64u

/* An answer. */
struct answer {
	struct kvt_key key;
	struct kvt_tier_known known; /* THERE only */
	int64_t told_ns;
	enum kvt_presence_word word; /* UNKNOWN marks an unused place */
};

struct set {
	uint32_t tags[WAYS]; /* hashes of the answers' keys, valid for used places */
	struct answer answers[WAYS];
};

struct kvt_presence {
	/* owned; each set is under the lock whose number is the set's number modulo LOCKS */
	struct set *sets;
	uint32_t set_count; /* a power of two */
	uint64_t seed;
	int64_t seen_ns, missing_ns;
	/* relaxed: the last time that a caller passed, used by the statistics */
	_Atomic int64_t latest_ns;
	pthread_mutex_t locks[LOCKS];
};

/* Where the answer about a key is, or would be stored. */
struct spot {
	struct set *set;
	pthread_mutex_t *lock;
	uint32_t tag;
};

static int64_t limited(uint64_t ns)
{
	return ns > INT64_MAX ? INT64_MAX : (int64_t)ns;
}

enum kvt_status kvt_presence_create(
	uint32_t max_entries, uint64_t seen_ns, uint64_t missing_ns, struct kvt_presence **out)
{
	struct kvt_presence *p = calloc(1, sizeof(*p));
	uint32_t sets = 1;

	if (p == NULL)
		return KVT_ENOMEM;
	while (sets < UINT32_MAX / 2 / WAYS && (uint64_t)sets * 2 * WAYS <= max_entries)
		sets *= 2;
	p->sets = calloc(sets, sizeof(p->sets[0]));
	if (p->sets == NULL) {
		free(p);
		return KVT_ENOMEM;
	}
	p->set_count = sets;
	p->seen_ns = limited(seen_ns);
	p->missing_ns = limited(missing_ns);
	p->seed = XXH3_64bits(&p, sizeof(p)) ^ (uint64_t)(uintptr_t)p->sets;
	for (size_t i = 0; i < LOCKS; i++)
		(void)pthread_mutex_init(&p->locks[i], NULL);
	*out = p;
	return KVT_OK;
}

void kvt_presence_destroy(struct kvt_presence *p)
{
	if (p == NULL)
		return;
	for (size_t i = 0; i < LOCKS; i++)
		(void)pthread_mutex_destroy(&p->locks[i]);
	free(p->sets);
	free(p);
}

static struct spot spot_of(struct kvt_presence *p, const struct kvt_key *key)
{
	uint64_t hash = XXH3_64bits_withSeed(key->bytes, sizeof(key->bytes), p->seed);
	uint32_t number = (uint32_t)hash & (p->set_count - 1);

	return (struct spot){
		.set = &p->sets[number],
		.lock = &p->locks[number % LOCKS],
		.tag = (uint32_t)(hash >> 32),
	};
}

static bool believed(const struct kvt_presence *p, const struct answer *a, int64_t now_ns)
{
	int64_t most = a->word == KVT_PRESENCE_THERE ? p->seen_ns : p->missing_ns;

	return a->word != KVT_PRESENCE_UNKNOWN && now_ns - a->told_ns < most;
}

/* Returns the answer about the key, or NULL. The caller holds the spot's lock. */
static struct answer *find(const struct spot *spot, const struct kvt_key *key)
{
	for (uint32_t i = 0; i < WAYS; i++) {
		struct answer *a = &spot->set->answers[i];

		if (spot->set->tags[i] == spot->tag && a->word != KVT_PRESENCE_UNKNOWN &&
			memcmp(&a->key, key, sizeof(*key)) == 0)
			return a;
	}
	return NULL;
}

/* Returns the place for a new answer. The caller holds the spot's lock. */
static struct answer *place_for(
	struct kvt_presence *p, const struct spot *spot, const struct kvt_key *key, int64_t now_ns)
{
	struct answer *best = find(spot, key);

	if (best != NULL)
		return best;
	best = &spot->set->answers[0];
	for (uint32_t i = 0; i < WAYS; i++) {
		struct answer *a = &spot->set->answers[i];

		if (!believed(p, a, now_ns)) {
			best = a;
			break;
		}
		if (a->told_ns < best->told_ns)
			best = a;
	}
	spot->set->tags[best - spot->set->answers] = spot->tag;
	return best;
}

enum kvt_presence_word kvt_presence_get(struct kvt_presence *p, const struct kvt_key *key,
	int64_t now_ns, struct kvt_tier_known *out)
{
	struct spot spot = spot_of(p, key);
	enum kvt_presence_word word = KVT_PRESENCE_UNKNOWN;
	const struct answer *a;

	pthread_mutex_lock(spot.lock);
	a = find(&spot, key);
	if (a != NULL && believed(p, a, now_ns)) {
		word = a->word;
		if (word == KVT_PRESENCE_THERE)
			*out = a->known;
	}
	pthread_mutex_unlock(spot.lock);
	atomic_store_explicit(&p->latest_ns, now_ns, memory_order_relaxed);
	return word;
}

size_t kvt_presence_match(
	struct kvt_presence *p, const struct kvt_key *keys, size_t n, int64_t now_ns)
{
	struct kvt_tier_known known;
	size_t found = 0;

	while (found < n && kvt_presence_get(p, &keys[found], now_ns, &known) == KVT_PRESENCE_THERE)
		found++;
	return found;
}

static void tell(struct kvt_presence *p, const struct kvt_key *key, enum kvt_presence_word word,
	const struct kvt_tier_known *known, int64_t now_ns)
{
	struct spot spot = spot_of(p, key);
	struct answer *a;

	pthread_mutex_lock(spot.lock);
	a = place_for(p, &spot, key, now_ns);
	a->key = *key;
	a->word = word;
	a->told_ns = now_ns;
	if (known != NULL)
		a->known = *known;
	pthread_mutex_unlock(spot.lock);
	atomic_store_explicit(&p->latest_ns, now_ns, memory_order_relaxed);
}

void kvt_presence_there(struct kvt_presence *p, const struct kvt_key *key,
	const struct kvt_tier_known *known, int64_t now_ns)
{
	tell(p, key, KVT_PRESENCE_THERE, known, now_ns);
}

void kvt_presence_missing(struct kvt_presence *p, const struct kvt_key *key, int64_t now_ns)
{
	tell(p, key, KVT_PRESENCE_MISSING, NULL, now_ns);
}

void kvt_presence_forget(struct kvt_presence *p, const struct kvt_key *key)
{
	struct spot spot = spot_of(p, key);
	struct answer *a;

	pthread_mutex_lock(spot.lock);
	a = find(&spot, key);
	if (a != NULL)
		a->word = KVT_PRESENCE_UNKNOWN;
	pthread_mutex_unlock(spot.lock);
}

void kvt_presence_forget_tenant(struct kvt_presence *p, const struct kvt_tenant *tenant)
{
	for (uint32_t i = 0; i < p->set_count; i++) {
		struct set *set = &p->sets[i];

		pthread_mutex_lock(&p->locks[i % LOCKS]);
		for (uint32_t j = 0; j < WAYS; j++) {
			struct answer *a = &set->answers[j];

			if (tenant == NULL ||
				(a->word == KVT_PRESENCE_THERE &&
					memcmp(&a->known.tenant, tenant, sizeof(*tenant)) == 0))
				a->word = KVT_PRESENCE_UNKNOWN;
		}
		pthread_mutex_unlock(&p->locks[i % LOCKS]);
	}
}

void kvt_presence_stats(struct kvt_presence *p, uint64_t *entries, uint64_t *bytes)
{
	int64_t now_ns = atomic_load_explicit(&p->latest_ns, memory_order_relaxed);
	uint64_t count = 0;

	for (uint32_t i = 0; i < p->set_count; i++) {
		pthread_mutex_lock(&p->locks[i % LOCKS]);
		for (uint32_t j = 0; j < WAYS; j++)
			count += believed(p, &p->sets[i].answers[j], now_ns);
		pthread_mutex_unlock(&p->locks[i % LOCKS]);
	}
	*entries = count;
	*bytes = sizeof(*p) + (uint64_t)p->set_count * sizeof(p->sets[0]);
}
