/*
 * peers.c - keeps the other replicas' messages about their load, and how far each replica is
 * trusted.
 */
#include "sharing/peers.h"

#include <stdlib.h>
#include <string.h>

#define PEERS_MOST_QUEUE_NS INT64_C(60000000000)
#define PEERS_MOST_INFLIGHT (1u << 16)
#define PEERS_MOST_CONTEXT  (1u << 30)

#define TRUST_LOST     0.5f
#define TRUST_WON      0.1f
#define TRUST_LEAST    (1.0f / 64) /* less counts as 0 */
#define TRUST_LOOKED   (1.0f / 16) /* a peer is only judged if it has at least this much trust */
#define TRUST_BACK_NS  INT64_C(10000000000) /* the time in which full trust returns ... */
/* ... which begins this long after the last wrong claim */
#define TRUST_QUIET_NS INT64_C(30000000000)

/* The last message of a replica. */
struct peer {
	struct kvw_load_news *news; /* owned; NULL: this entry is free */
	int64_t heard_ns;
	uint32_t id; /* names the peer in claims and verdicts; never used again for another one */
	float trust;        /* 0..1 */
	int64_t trusted_ns; /* time from which on trust returns */
};

struct kvw_peers {
	uint64_t own;
	int64_t life_ns;
	uint32_t last_id;
	/* a message is read into this one, which is then exchanged with a peer's */
	struct kvw_load_news *read;
	struct peer items[KVW_PEERS];
	/* Used while sums are computed: for each worker, the peer that was added last. */
	uint8_t added[KVW_MAX_WORKERS];
	/* used in the same way: for each worker, the weight of the largest claim */
	int64_t weights_ns[KVW_MAX_WORKERS];
};

struct kvw_peers *kvw_peers_create(uint64_t own_origin, int64_t life_ns)
{
	struct kvw_peers *peers = calloc(1, sizeof(*peers));

	if (peers == NULL)
		return NULL;
	peers->own = own_origin;
	peers->life_ns = life_ns;
	peers->read = malloc(sizeof(*peers->read));
	if (peers->read == NULL) {
		free(peers);
		return NULL;
	}
	return peers;
}

void kvw_peers_destroy(struct kvw_peers *peers)
{
	if (peers == NULL)
		return;
	for (size_t i = 0; i < KVW_PEERS; i++)
		free(peers->items[i].news);
	free(peers->read);
	free(peers);
}

static bool counts(const struct kvw_peers *peers, const struct peer *peer, int64_t now_ns)
{
	return peer->news != NULL && now_ns - peer->heard_ns < peers->life_ns;
}

/* Returns the entry of an origin, else a free one, else the oldest one that has expired; NULL:
 * there is none. */
static struct peer *place_of(struct kvw_peers *peers, uint64_t origin, int64_t now_ns)
{
	struct peer *empty = NULL, *oldest = NULL;

	for (size_t i = 0; i < KVW_PEERS; i++) {
		struct peer *peer = &peers->items[i];

		if (peer->news != NULL && peer->news->origin == origin)
			return peer;
		/* An entry is kept longer than its message counts, so that old messages are
		 * recognised. */
		if (peer->news != NULL && now_ns - peer->heard_ns > 10 * peers->life_ns) {
			free(peer->news);
			peer->news = NULL;
		}
		if (empty == NULL && peer->news == NULL)
			empty = peer;
		if (peer->news != NULL && !counts(peers, peer, now_ns) &&
			(oldest == NULL || peer->heard_ns < oldest->heard_ns))
			oldest = peer;
	}
	if (empty != NULL || oldest == NULL)
		return empty;
	free(oldest->news);
	oldest->news = NULL;
	return oldest;
}

enum kvw_heard kvw_peers_hear(struct kvw_peers *peers, const char *data, size_t len, int64_t now_ns)
{
	struct kvw_load_news *news = peers->read, *before;
	struct peer *peer;

	if (kvw_load_read(data, len, news) != KVW_OK)
		return KVW_HEARD_BAD;
	if (news->origin == peers->own)
		return KVW_HEARD_OWN;
	peer = place_of(peers, news->origin, now_ns);
	if (peer == NULL)
		return KVW_HEARD_FULL;
	before = peer->news;
	if (before != NULL && before->sequence >= news->sequence)
		return KVW_HEARD_OLD;
	if (before == NULL) {
		before = malloc(sizeof(*before));
		if (before == NULL)
			return KVW_HEARD_FULL;
		peers->last_id = peers->last_id == UINT32_MAX ? 1 : peers->last_id + 1;
		peer->id = peers->last_id;
		peer->trust = 1;
		peer->trusted_ns = now_ns;
	}
	peer->news = news;
	peer->heard_ns = now_ns;
	peers->read = before;
	return KVW_HEARD_NEW;
}

static int64_t left(int64_t ns, int64_t age_ns)
{
	return ns > age_ns ? ns - age_ns : 0;
}

static int64_t least_of(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

static int64_t share(int64_t of, float trust)
{
	return trust >= 1 ? of : (int64_t)((double)of * (double)trust);
}

static void add_part(
	struct kvw_load_part *to, const struct kvw_load_part *part, int64_t age_ns, float trust)
{
	to->queue_ns = least_of(
		to->queue_ns + share(left(part->queue_ns, age_ns), trust), PEERS_MOST_QUEUE_NS);
	to->waiting_ns = least_of(
		to->waiting_ns + share(left(part->waiting_ns, age_ns), trust), PEERS_MOST_QUEUE_NS);
	to->inflight = (uint32_t)least_of(
		to->inflight + share(part->inflight, trust), PEERS_MOST_INFLIGHT);
	to->context =
		(uint32_t)least_of(to->context + share(part->context, trust), PEERS_MOST_CONTEXT);
	to->sequences = (uint32_t)least_of(
		to->sequences + share(part->sequences, trust), PEERS_MOST_INFLIGHT);
	to->unanswered = (uint32_t)least_of(
		to->unanswered + share(part->unanswered, trust), PEERS_MOST_INFLIGHT);
}

/* --- trust --- */

static float trust_of(float trust)
{
	return trust < TRUST_LEAST ? 0 : trust > 1 ? 1 : trust;
}

/* Restores trust with time. */
static void forgive(struct peer *peer, int64_t now_ns)
{
	if (now_ns <= peer->trusted_ns)
		return;
	peer->trust += (float)(now_ns - peer->trusted_ns) / (float)TRUST_BACK_NS;
	peer->trust = peer->trust > 1 ? 1 : peer->trust;
	peer->trusted_ns = now_ns;
}

void kvw_peers_judge(
	struct kvw_peers *peers, const struct kvw_load_verdict *verdict, int64_t now_ns)
{
	for (size_t i = 0; verdict->of != 0 && i < KVW_PEERS; i++) {
		struct peer *peer = &peers->items[i];

		if (peer->news == NULL || peer->id != verdict->of)
			continue;
		peer->trust = trust_of(peer->trust + (float)verdict->right * TRUST_WON);
		for (uint32_t n = 0; n < verdict->wrong && peer->trust > 0; n++)
			peer->trust = trust_of(peer->trust * TRUST_LOST);
		if (verdict->wrong > 0)
			peer->trusted_ns = now_ns + TRUST_QUIET_NS;
	}
}

/* Sets the claim to judge: the largest one. The claim of a peer with little trust is given little
 * weight, so that others are judged, too. */
static void claim(
	const struct peer *peer, int64_t queue_ns, struct kvw_load_claim *most, int64_t *weight_ns)
{
	int64_t weighs_ns =
		share(queue_ns, peer->trust > TRUST_LOOKED ? peer->trust : TRUST_LOOKED);

	if (weighs_ns <= *weight_ns)
		return;
	*weight_ns = weighs_ns;
	*most = (struct kvw_load_claim){peer->id, queue_ns};
}

/* --- all together --- */

/* Returns the index of a key; count if there is none. */
static size_t index_of_key(const uint64_t *keys, size_t count, uint64_t key)
{
	size_t low = 0, high = count;

	while (low < high) {
		size_t middle = (low + high) / 2;

		if (keys[middle] < key)
			low = middle + 1;
		else
			high = middle;
	}
	return low < count && keys[low] == key ? low : count;
}

void kvw_peers_sum(struct kvw_peers *peers, const uint64_t *keys, size_t count,
	struct kvw_load_part *parts, struct kvw_load_claim *claims, struct kvw_admission_work *work,
	int64_t now_ns)
{
	for (size_t i = 0; i < count; i++) {
		parts[i] = (struct kvw_load_part){0};
		claims[i] = (struct kvw_load_claim){0};
		peers->weights_ns[i] = 0;
	}
	memset(peers->added, 0, sizeof(peers->added));
	*work = (struct kvw_admission_work){0};
	for (size_t p = 0; p < KVW_PEERS; p++) {
		struct peer *peer = &peers->items[p];
		int64_t age_ns = now_ns - peer->heard_ns;

		if (!counts(peers, peer, now_ns))
			continue;
		forgive(peer, now_ns);
		work->waiting_ns += share(peer->news->work.waiting_ns, peer->trust);
		work->first_waiting_ns += share(peer->news->work.first_waiting_ns, peer->trust);
		work->offered_per_s += share(peer->news->work.offered_per_s, peer->trust);
		for (size_t e = 0; e < peer->news->count; e++) {
			size_t at = index_of_key(keys, count, peer->news->entries[e].key);

			/* If a peer's message has several entries for a worker, only the first one
			 * counts. */
			if (at == count || peers->added[at] == p + 1)
				continue;
			peers->added[at] = (uint8_t)(p + 1);
			add_part(&parts[at], &peer->news->entries[e].part, age_ns, peer->trust);
			claim(peer, left(peer->news->entries[e].part.queue_ns, age_ns), &claims[at],
				&peers->weights_ns[at]);
		}
	}
}

size_t kvw_peers_count(
	const struct kvw_peers *peers, int64_t now_ns, int64_t *oldest_ns, float *trust)
{
	size_t count = 0;

	*oldest_ns = 0;
	*trust = 1;
	for (size_t i = 0; i < KVW_PEERS; i++) {
		if (!counts(peers, &peers->items[i], now_ns))
			continue;
		count++;
		if (peers->items[i].trust < *trust)
			*trust = peers->items[i].trust;
		if (now_ns - peers->items[i].heard_ns > *oldest_ns)
			*oldest_ns = now_ns - peers->items[i].heard_ns;
	}
	return count;
}
