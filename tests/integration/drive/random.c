/*
 * random.c - many threads that put, find and get at random, and check every byte.
 *
 * A wrong byte is reported at once, on a line of its own, so that it is known even if the process
 * is killed the next moment; sums are printed every 100 ms.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "drive.h"

#define MILLISECOND  INT64_C(1000000)
#define MOST_THREADS 16

/* Pause between two operations of a thread; without it the threads would take all processors
 * from other tests. */
static const struct timespec pause_of_a_thread = {.tv_nsec = 2 * MILLISECOND};

/* State that all threads share. Sums are relaxed atomics, since no thread decides anything by
 * them. */
struct run {
	struct drive *d;
	uint64_t seed;
	uint32_t chains, depth, put_percent;
	uint64_t least, most;
	uint64_t limit_ns;
	int64_t until_ns;
	_Atomic uint64_t gets, got, finds, found, puts, refused, wrong, errors;
	_Atomic int64_t slowest_get_ns, slowest_find_ns;
};

struct worker {
	struct run *run;
	uint64_t random;
	pthread_t thread;
	unsigned char *chunk; /* `most` bytes */
};

static uint64_t draw(struct worker *w, uint64_t below)
{
	w->random ^= w->random << 13;
	w->random ^= w->random >> 7;
	w->random ^= w->random << 17;
	return w->random % below;
}

static void slowest(_Atomic int64_t *most, int64_t took)
{
	int64_t have = atomic_load_explicit(most, memory_order_relaxed);

	while (took > have && !atomic_compare_exchange_weak(most, &have, took))
		continue;
}

static void chain_keys(const struct run *r, uint64_t chain, struct kvt_key *keys)
{
	for (uint32_t i = 0; i < r->depth; i++)
		drive_key(r->seed + chain, i, &keys[i]);
}

/* Returns whether a put was refused because there is no room, or because the chunk before it was
 * refused. */
static bool is_refused(enum kvt_status status, uint32_t i)
{
	return status == KVT_FULL || status == KVT_BUSY || (status == KVT_MISS && i > 0);
}

static void put_chain(struct worker *w, const struct kvt_key *keys)
{
	struct run *r = w->run;
	const uint32_t n = 1 + (uint32_t)draw(w, r->depth);

	for (uint32_t i = 0; i < n; i++) {
		const struct kvt_item item = {.size = sizeof(item),
			.key = keys[i],
			.parent = i > 0 ? &keys[i - 1] : NULL,
			.bytes = drive_bytes(&keys[i], r->least, r->most)};
		enum kvt_status status;

		drive_fill(&keys[i], 0, w->chunk, item.bytes);
		status = kvt_put(r->d->k, &item, w->chunk);
		r->puts += status == KVT_OK;
		r->refused += is_refused(status, i);
		r->errors +=
			status != KVT_OK && status != KVT_EXISTS && !is_refused(status, i);
	}
}

static void check_lease(struct run *r, const struct kvt_key *keys, const struct kvt_lease *lease)
{
	for (size_t i = 0; i < lease->count; i++) {
		const uint64_t at =
			drive_check(lease, i, &keys[i], drive_bytes(&keys[i], r->least, r->most));

		if (at == DRIVE_RIGHT)
			continue;
		r->wrong++;
		printf("{\"wrong_at\":%llu,\"tier\":%u,\"bytes\":%llu}\n", (unsigned long long)at,
			lease->views[i].tier, (unsigned long long)lease->views[i].bytes);
	}
	r->got += lease->count;
}

static void get_chain(struct worker *w, const struct kvt_key *keys)
{
	struct run *r = w->run;
	struct kvt_lookup lookup = {0};
	struct kvt_lease *lease = NULL;
	enum kvt_status status;
	int64_t begun = drive_now();

	status = kvt_find(r->d->k, keys, r->depth, KVT_ALL_TIERS, r->limit_ns, NULL, &lookup);
	slowest(&r->slowest_find_ns, drive_now() - begun);
	r->finds++;
	r->found += status == KVT_OK ? lookup.hits : 0;
	r->errors += status != KVT_OK && status != KVT_MISS;
	begun = drive_now();
	status = kvt_get(r->d->k, keys, r->depth, r->limit_ns, &lease);
	slowest(&r->slowest_get_ns, drive_now() - begun);
	r->gets++;
	if (status == KVT_OK) {
		check_lease(r, keys, lease);
		kvt_release(r->d->k, lease);
	}
	r->errors += status != KVT_OK && status != KVT_MISS && status != KVT_BUSY;
}

static void *work(void *argument)
{
	struct worker *w = argument;
	struct run *r = w->run;
	struct kvt_key keys[DRIVE_CHAIN];

	while (drive_now() < r->until_ns) {
		chain_keys(r, draw(w, r->chains), keys);
		if (draw(w, 100) < r->put_percent)
			put_chain(w, keys);
		else
			get_chain(w, keys);
		nanosleep(&pause_of_a_thread, NULL);
	}
	return NULL;
}

static void print_sums(struct run *r)
{
	printf("\"gets\":%llu,\"got\":%llu,\"finds\":%llu,\"found\":%llu,\"puts\":%llu,"
	       "\"refused\":%llu,\"wrong\":%llu,\"errors\":%llu,\"slowest_get_ns\":%lld,"
	       "\"slowest_find_ns\":%lld",
		(unsigned long long)r->gets, (unsigned long long)r->got,
		(unsigned long long)r->finds, (unsigned long long)r->found,
		(unsigned long long)r->puts, (unsigned long long)r->refused,
		(unsigned long long)r->wrong, (unsigned long long)r->errors,
		(long long)r->slowest_get_ns, (long long)r->slowest_find_ns);
}

static bool read_run(struct run *r, char **words, size_t count, uint32_t *threads)
{
	r->seed = strtoull(words[1], NULL, 0);
	r->until_ns = drive_now() + strtoll(words[2], NULL, 0) * MILLISECOND;
	*threads = (uint32_t)strtoul(words[3], NULL, 0);
	r->chains = (uint32_t)strtoul(words[4], NULL, 0);
	r->depth = (uint32_t)strtoul(words[5], NULL, 0);
	r->least = strtoull(words[6], NULL, 0);
	r->most = strtoull(words[7], NULL, 0);
	r->limit_ns = strtoull(words[8], NULL, 0) * (uint64_t)MILLISECOND;
	r->put_percent = count > 9 ? (uint32_t)strtoul(words[9], NULL, 0) : 30;
	return *threads > 0 && *threads <= MOST_THREADS && r->chains > 0 && r->depth > 0 &&
	       r->depth <= DRIVE_CHAIN && r->least > 0 && r->least <= r->most;
}

bool drive_run(struct drive *d, char **words, size_t count, char *error)
{
	struct run r = {.d = d};
	struct worker workers[MOST_THREADS] = {0};
	const struct timespec tenth = {.tv_nsec = 100 * MILLISECOND};
	uint32_t threads, begun = 0;
	bool well = read_run(&r, words, count, &threads);

	if (!well)
		snprintf(error, 256, "run: bad numbers");
	for (; well && begun < threads; begun++) {
		struct worker *w = &workers[begun];

		w->run = &r;
		w->random = (r.seed + 1) * 2654435761u + begun * 40503u + 1;
		w->random ^= (uint64_t)drive_now() << 1;
		w->chunk = malloc(r.most);
		well = w->chunk != NULL && pthread_create(&w->thread, NULL, work, w) == 0;
		if (!well) {
			free(w->chunk);
			snprintf(error, 256, "run: no thread");
			break;
		}
	}
	while (well && drive_now() < r.until_ns) {
		nanosleep(&tenth, NULL);
		flockfile(stdout);
		printf("{\"progress\":true,");
		print_sums(&r);
		printf("}\n");
		funlockfile(stdout);
	}
	for (uint32_t i = 0; i < begun; i++) {
		pthread_join(workers[i].thread, NULL);
		free(workers[i].chunk);
	}
	if (well) {
		printf("{\"progress\":true,\"last\":true,");
		print_sums(&r);
		printf("}\n");
	}
	return well;
}
