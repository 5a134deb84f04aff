/*
 * threads_test.c - one thread steps, others put, get, match, pin and erase at once; for
 * ThreadSanitizer, and for bytes that are right all the same.
 */
#include <check.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "store.h"
#include "io/testing/test_disk.h"
#include "tests/unit/suite.h"

#define KEYS    40
#define WORKERS 3
#define TURNS   400
#define MORE    (512u * 1024) /* so that chunks are summed on their way */

static struct store s;
static _Atomic bool stop;
static _Atomic unsigned got;

/* A request and its waiting thread. */
struct waited {
	struct wish *wish;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool done;
};

static void on_done(struct kvt_tier_request *r)
{
	struct waited *w = r->user;

	if (r->verb == KVT_TIER_READ && r->status == KVT_OK)
		must_be(w->wish->n, w->wish->bytes, w->wish->room);
	pthread_mutex_lock(&w->lock);
	w->done = true;
	pthread_cond_signal(&w->changed);
	pthread_mutex_unlock(&w->lock);
}

static enum kvt_status ask(enum kvt_tier_verb verb, uint64_t n)
{
	struct waited w = {
		.wish = wish_new(&s, verb, n, 0),
		.lock = PTHREAD_MUTEX_INITIALIZER,
		.changed = PTHREAD_COND_INITIALIZER,
	};
	enum kvt_status status;

	w.wish->request.done = on_done;
	w.wish->request.user = &w;
	w.wish->request.announce = n % 3 == 0;
	w.wish->item.tenant.bytes[0] = (uint8_t)(n % 4);
	s.tier->ops->submit(s.tier, &w.wish->request);
	pthread_mutex_lock(&w.lock);
	while (!w.done)
		pthread_cond_wait(&w.changed, &w.lock);
	pthread_mutex_unlock(&w.lock);
	status = (enum kvt_status)w.wish->request.status;
	wish_free(w.wish);
	return status;
}

static void *stepper(void *unused)
{
	int64_t next;

	while (!atomic_load(&stop))
		(void)s.tier->ops->step(s.tier, 2000000, &next);
	return unused;
}

static void *worker(void *arg)
{
	uint64_t x = (uint64_t)(uintptr_t)arg;

	for (unsigned i = 0; i < TURNS; i++) {
		uint64_t n =
			1 + (x = x * 6364136223846793005u + 1442695040888963407u) / 65536 % KEYS;
		struct kvt_tier_known known;
		struct kvt_key keys[4] = {key_of(n), key_of(n + 1), key_of(n + 2), key_of(n + 3)};
		struct kvt_tenant tenant = {{(uint8_t)(n % 4)}};
		struct kvt_tier_stats stats = {0};
		size_t erased;

		switch (x >> 60) {
		case 0:
			(void)ask(KVT_TIER_ERASE, n);
			break;
		case 1:
			if (i % 8 == 0)
				(void)s.tier->ops->erase_tenant(s.tier, &tenant, &erased);
			if (i % 32 == 0)
				(void)s.tier->ops->erase_all(s.tier, &erased);
			break;
		case 2:
			(void)ask(KVT_TIER_FLUSH, n);
			break;
		case 3:
			(void)s.tier->ops->pin(s.tier, keys, 1, i % 2 == 0);
			s.tier->ops->stats(s.tier, &stats);
			break;
		case 4:
		case 5:
			(void)s.tier->ops->match(s.tier, keys, 4);
			(void)s.tier->ops->known(s.tier, &keys[0], &known);
			break;
		case 6:
		case 7:
		case 8:
		case 9:
			got += ask(KVT_TIER_READ, n) == KVT_OK;
			break;
		default:
			(void)ask(KVT_TIER_WRITE, n);
			break;
		}
	}
	return NULL;
}

static void all_at_once(uint64_t more_bytes, uint64_t capacity)
{
	struct kvt_disk_options options = {0};
	struct kvt_io_layer layer;
	struct kvt_disk *disk;
	pthread_t step, workers[WORKERS];

	store_init(&s);
	atomic_store(&stop, false);
	atomic_store(&got, 0);
	ck_assert_int_eq(kvt_disk_create(&options, &disk), KVT_OK);
	layer = kvt_disk_layer(disk);
	s.config.io = &layer;
	s.config.threads = KVT_THREADS_OWN;
	s.config.nvme_capacity = capacity;
	s.more_bytes = more_bytes;
	s.config.nvme_sync_ns = 1000000;
	s.config.clock = NULL;
	kvt_surroundings_init(&s.surroundings, &s.config);
	ck_assert_int_eq(store_open(&s), KVT_OK);
	ck_assert_int_eq(pthread_create(&step, NULL, stepper, NULL), 0);
	for (uintptr_t i = 0; i < WORKERS; i++)
		ck_assert_int_eq(
			pthread_create(&workers[i], NULL, worker, (void *)(i * 77 + 5)), 0);
	for (unsigned i = 0; i < WORKERS; i++)
		ck_assert_int_eq(pthread_join(workers[i], NULL), 0);
	atomic_store(&stop, true);
	s.tier->ops->wake(s.tier);
	ck_assert_int_eq(pthread_join(step, NULL), 0);
	ck_assert_uint_gt(got, 10);
	ck_assert_uint_eq(store_stats(&s).corrupt, 0);
	store_finish(&s);
	kvt_disk_destroy(disk);
}

START_TEST(many_at_once)
{
	all_at_once(0, 4u << 20); /* evicts all the time */
}
END_TEST

START_TEST(many_pieces_at_once)
{
	all_at_once(MORE, 16u << 20);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("threads");

	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, many_at_once);
	tcase_add_test(tc, many_pieces_at_once);
	return run_tcase("cache-tiers-threads", tc);
}
