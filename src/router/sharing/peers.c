/* peers.c - see peers.h. */
#include "sharing/peers.h"

#include <stdlib.h>
#include <string.h>

#define PEERS_MOST_QUEUE_NS INT64_C(60000000000)
#define PEERS_MOST_INFLIGHT (1u << 16)
#define PEERS_MOST_CONTEXT  (1u << 30)

/* The last message of one replica. */
struct peer {
	struct kvw_load_news *news; /* owned; NULL: the place is free */
	int64_t heard_ns;
};

struct kvw_peers {
	uint64_t own;
	int64_t life_ns;
	struct kvw_load_news *read; /* scratch; changes places with a peer's */
	struct peer items[KVW_PEERS];
	uint8_t added[KVW_MAX_WORKERS]; /* scratch of the sum: whose entry was added last, of each worker */
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

/* The place of an origin, or a free one, or that of the oldest which counts no more; NULL: there is none. */
static struct peer *place_of(struct kvw_peers *peers, uint64_t origin, int64_t now_ns)
{
	struct peer *empty = NULL, *oldest = NULL;

	for (size_t i = 0; i < KVW_PEERS; i++) {
		struct peer *peer = &peers->items[i];

		if (peer->news != NULL && peer->news->origin == origin)
			return peer;
		/* Kept for longer than it counts, so that its old messages are recognised. */
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

static int64_t least(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

static void add(struct kvw_load_part *to, const struct kvw_load_part *part, int64_t age_ns)
{
	to->queue_ns = least(to->queue_ns + left(part->queue_ns, age_ns), PEERS_MOST_QUEUE_NS);
	to->waiting_ns = least(to->waiting_ns + left(part->waiting_ns, age_ns), PEERS_MOST_QUEUE_NS);
	to->inflight = (uint32_t)least(to->inflight + part->inflight, PEERS_MOST_INFLIGHT);
	to->context = (uint32_t)least(to->context + part->context, PEERS_MOST_CONTEXT);
	to->sequences = (uint32_t)least(to->sequences + part->sequences, PEERS_MOST_INFLIGHT);
	to->unanswered = (uint32_t)least(to->unanswered + part->unanswered, PEERS_MOST_INFLIGHT);
}

/* count: not there. */
static size_t find(const uint64_t *keys, size_t count, uint64_t key)
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

void kvw_peers_sum(struct kvw_peers *peers, const uint64_t *keys, size_t count, struct kvw_load_part *parts,
	struct kvw_admission_work *work, int64_t now_ns)
{
	for (size_t i = 0; i < count; i++)
		parts[i] = (struct kvw_load_part){0};
	memset(peers->added, 0, sizeof(peers->added));
	*work = (struct kvw_admission_work){0};
	for (size_t p = 0; p < KVW_PEERS; p++) {
		const struct peer *peer = &peers->items[p];

		if (!counts(peers, peer, now_ns))
			continue;
		work->waiting_ns += peer->news->work.waiting_ns;
		work->first_waiting_ns += peer->news->work.first_waiting_ns;
		work->offered_per_s += peer->news->work.offered_per_s;
		for (size_t e = 0; e < peer->news->count; e++) {
			size_t at = find(keys, count, peer->news->entries[e].key);

			if (at == count || peers->added[at] == p + 1) /* named twice by one: that is no more */
				continue;
			peers->added[at] = (uint8_t)(p + 1);
			add(&parts[at], &peer->news->entries[e].part, now_ns - peer->heard_ns);
		}
	}
}

size_t kvw_peers_count(const struct kvw_peers *peers, int64_t now_ns, int64_t *oldest_ns)
{
	size_t count = 0;

	*oldest_ns = 0;
	for (size_t i = 0; i < KVW_PEERS; i++) {
		if (!counts(peers, &peers->items[i], now_ns))
			continue;
		count++;
		if (now_ns - peers->items[i].heard_ns > *oldest_ns)
			*oldest_ns = now_ns - peers->items[i].heard_ns;
	}
	return count;
}
