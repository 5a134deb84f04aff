/*
 * replica.c - the part of load sharing in one replica: writes its messages and applies those of the
 * others.
 */
#include "sharing/replica.h"

#include <stdlib.h>

/* most that the others' queue counts on a worker while this replica sends nothing */
#define STUCK_MOST_NS INT64_C(100000000)

struct kvw_replica {
	struct kvw_peers *peers;
	/* These detect that this replica sends no requests. */
	uint64_t sent;    /* sequences of all workers */
	uint64_t refused; /* when `sent` last changed */
	int64_t sent_ns;  /* time when that was noted; 0: never */
	/* for each worker, whether others were last said to have load there */
	bool loaded[KVW_MAX_WORKERS];
	struct kvw_load_news news;    /* own message */
	/* Scratch of apply. */
	struct kvw_replica_worker sorted[KVW_MAX_WORKERS];
	uint64_t keys[KVW_MAX_WORKERS];
	struct kvw_load_part parts[KVW_MAX_WORKERS];
	struct kvw_load_claim claims[KVW_MAX_WORKERS];
};

struct kvw_replica *kvw_replica_create(uint64_t origin, int64_t life_ns)
{
	struct kvw_replica *replica = calloc(1, sizeof(*replica));

	if (replica == NULL)
		return NULL;
	replica->news.origin = origin;
	replica->peers = kvw_peers_create(origin, life_ns);
	if (replica->peers == NULL) {
		free(replica);
		return NULL;
	}
	return replica;
}

void kvw_replica_destroy(struct kvw_replica *replica)
{
	if (replica == NULL)
		return;
	kvw_peers_destroy(replica->peers);
	free(replica);
}

size_t kvw_replica_write(struct kvw_replica *replica, const struct kvw_replica_worker *workers,
	size_t count, const struct kvw_admission *admission, int64_t now_ns, char *out)
{
	struct kvw_load_news *news = &replica->news;

	news->sequence++;
	news->work = (struct kvw_admission_work){0};
	if (admission != NULL)
		news->work = kvw_admission_own(admission);
	news->count = 0;
	for (size_t i = 0; i < count && news->count < KVW_MAX_WORKERS; i++) {
		struct kvw_load_part part = kvw_load_own(workers[i].load, now_ns);

		if (part.inflight > 0 || part.sequences > 0)
			news->entries[news->count++] =
				(struct kvw_load_entry){workers[i].key, part};
	}
	return kvw_load_write(news, out);
}

enum kvw_heard kvw_replica_hear(
	struct kvw_replica *replica, const char *data, size_t len, int64_t now_ns)
{
	return kvw_peers_hear(replica->peers, data, len, now_ns);
}

static int by_key(const void *a, const void *b)
{
	const struct kvw_replica_worker *x = a, *y = b;

	return x->key < y->key ? -1 : x->key > y->key;
}

/* Returns whether the replica has requests, but has sent none for a long time: then the peers'
 * claims on all workers may be wrong. */
static bool is_stuck(struct kvw_replica *replica, const struct kvw_replica_worker *workers,
	size_t count, const struct kvw_admission *admission, int64_t now_ns)
{
	uint64_t sent = 0, refused;
	bool wants;

	if (admission == NULL)
		return false;
	for (size_t i = 0; i < count; i++)
		sent += kvw_load_sequences(workers[i].load).sent;
	refused = atomic_load_explicit(&admission->refused, memory_order_relaxed);
	wants = refused != replica->refused ||
		atomic_load_explicit(&admission->waiting_ns, memory_order_relaxed) > 0;
	if (replica->sent_ns == 0 || sent != replica->sent || !wants) {
		replica->sent = sent;
		replica->refused = refused;
		replica->sent_ns = now_ns;
	}
	return now_ns - replica->sent_ns >= KVW_REPLICA_STUCK_NS;
}

static void set_peer_load(struct kvw_replica *replica, const struct kvw_replica_worker *worker,
	const struct kvw_load_part *part, const struct kvw_load_claim *claim,
	struct kvw_admission *admission, bool stuck, int64_t now_ns)
{
	struct kvw_load_part cut = *part;
	struct kvw_load_verdict verdict;
	bool loaded = part->inflight > 0 || part->sequences > 0 || part->queue_ns > 0 ||
		      part->waiting_ns > 0 || claim->of != 0;
	float trust;

	if (stuck) {
		cut.queue_ns = cut.queue_ns < STUCK_MOST_NS ? cut.queue_ns : STUCK_MOST_NS;
		cut.waiting_ns = cut.waiting_ns < STUCK_MOST_NS ? cut.waiting_ns : STUCK_MOST_NS;
	}
	if (!loaded && !replica->loaded[worker->id])
		return;
	replica->loaded[worker->id] = loaded;
	verdict = kvw_load_set_claim(worker->load, claim);
	kvw_peers_judge(replica->peers, &verdict, now_ns);
	trust = kvw_load_set_peers(worker->load, &cut, now_ns);
	if (admission != NULL)
		kvw_pace_set_peers(&admission->paces[worker->id],
			(int64_t)((double)cut.waiting_ns * (double)trust),
			kvw_load_own(worker->load, now_ns).waiting_ns, now_ns);
}

void kvw_replica_apply(struct kvw_replica *replica, const struct kvw_replica_worker *workers,
	size_t count, struct kvw_admission *admission, int64_t now_ns)
{
	struct kvw_admission_work work;
	size_t different = 0;
	bool stuck = is_stuck(replica, workers, count, admission, now_ns);

	count = count < KVW_MAX_WORKERS ? count : KVW_MAX_WORKERS;
	for (size_t i = 0; i < count; i++)
		replica->sorted[i] = workers[i];
	qsort(replica->sorted, count, sizeof(replica->sorted[0]), by_key);
	for (size_t i = 0; i < count; i++) {
		if (different > 0 && replica->keys[different - 1] == replica->sorted[i].key)
			continue;
		replica->keys[different] = replica->sorted[i].key;
		replica->sorted[different++] = replica->sorted[i];
	}
	kvw_peers_sum(replica->peers, replica->keys, different, replica->parts, replica->claims,
		&work, now_ns);
	for (size_t i = 0; i < different; i++)
		set_peer_load(replica, &replica->sorted[i], &replica->parts[i], &replica->claims[i],
			admission, stuck, now_ns);
	if (admission != NULL)
		kvw_admission_set_peers(admission, &work);
}

void kvw_replica_stats(
	const struct kvw_replica *replica, int64_t now_ns, struct kvw_replica_stats *out)
{
	out->peers = kvw_peers_count(replica->peers, now_ns, &out->oldest_ns, &out->trust);
}
