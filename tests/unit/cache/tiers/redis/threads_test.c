/*
 * threads_test.c - the Redis tier as the library uses it: one thread steps, others ask, look
 * and erase at the same time. Worth running with -Db_sanitize=thread.
 */
#include <check.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fake_redis.h"
#include "redis_rig.h"
#include "tests/unit/suite.h"

#define THREADS 3
#define ROUNDS  400
#define BYTES   2000

static struct redis_rig rig;
static atomic_bool stop;

struct wish {
	struct kvt_tier_request request;
	struct kvt_key key;
	struct kvt_item item;
	uint8_t bytes[BYTES];
	struct kvt_segment segment;
	atomic_bool done;
};

static void wish_done(struct kvt_tier_request *request)
{
	atomic_store(&((struct wish *)request->user)->done, true);
}

static enum kvt_status wish(struct wish *w, enum kvt_tier_verb verb, uint64_t n)
{
	w->key = rig_key(n);
	w->segment = (struct kvt_segment){.base = w->bytes, .bytes = BYTES};
	w->item = (struct kvt_item){
		.size = sizeof(w->item), .bytes = BYTES, .tenant = {{(uint8_t)(n % 3)}}};
	w->request = (struct kvt_tier_request){.verb = verb,
		.keys = &w->key,
		.key_count = 1,
		.bytes = BYTES,
		.segments = &w->segment,
		.segment_count = 1,
		.item = &w->item,
		.done = wish_done,
		.user = w};
	for (size_t i = 0; verb == KVT_TIER_WRITE && i < BYTES; i++)
		w->bytes[i] = rig_byte(n, i);
	kvt_checksum_segments(&w->segment, 1, BYTES, &w->request.checksum);
	atomic_store(&w->done, false);
	rig.tiers[0]->ops->submit(rig.tiers[0], &w->request);
	while (!atomic_load(&w->done))
		(void)nanosleep(&(struct timespec){.tv_nsec = 10000}, NULL);
	return (enum kvt_status)w->request.status;
}

static void *step(void *arg)
{
	int64_t next;

	while (!atomic_load(&stop))
		(void)rig.tiers[0]->ops->step(rig.tiers[0], 1000000, &next);
	return arg;
}

/* NULL: it saw no wrong byte. */
static void *work(void *arg)
{
	struct wish *w = calloc(1, sizeof(*w));
	uint64_t seed = (uint64_t)(uintptr_t)arg;
	void *wrong = NULL;

	for (uint64_t i = 0; i < ROUNDS; i++) {
		uint64_t n = (seed * 31 + i * 17) % 50;
		struct kvt_tier_known known;
		static const struct kvt_slot_set slots;
		struct kvt_tier_stats stats = {0};

		(void)wish(w, KVT_TIER_WRITE, n);
		memset(w->bytes, 0, BYTES);
		if (wish(w, KVT_TIER_READ, n) == KVT_OK) {
			for (size_t j = 0; j < BYTES; j++)
				wrong = w->bytes[j] != rig_byte(n, j) ? arg : wrong;
		}
		(void)wish(w, KVT_TIER_PROBE, n + 1);
		(void)rig.tiers[0]->ops->known(rig.tiers[0], &w->key, &known);
		if (i % 40 == 7)
			(void)wish(w, KVT_TIER_ERASE, n);
		if (i % 100 == 50)
			(void)rig.tiers[0]->ops->drop_slots(rig.tiers[0], &slots);
		if (i % 100 == 51)
			(void)wish(w, KVT_TIER_FLUSH, n);
		rig.tiers[0]->ops->stats(rig.tiers[0], &stats);
	}
	free(w);
	return wrong;
}

START_TEST(threads_at_once)
{
	pthread_t threads[THREADS], stepper;
	void *wrong;

	fake_reset();
	rig_init(&rig);
	rig.real = 1;
	ck_assert_int_eq(rig_open(&rig, 0), KVT_OK);
	ck_assert_int_eq(pthread_create(&stepper, NULL, step, NULL), 0);
	for (uintptr_t i = 0; i < THREADS; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, work, (void *)(i + 1)), 0);
	for (size_t i = 0; i < THREADS; i++) {
		ck_assert_int_eq(pthread_join(threads[i], &wrong), 0);
		ck_assert_ptr_null(wrong);
	}
	atomic_store(&stop, true);
	ck_assert_int_eq(pthread_join(stepper, NULL), 0);
	ck_assert_uint_gt(rig_stats(&rig, 0).hits, 100);
	rig_finish(&rig);
	fake_reset();
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("redis threads");

	tcase_add_test(tcase, threads_at_once);
	tcase_set_timeout(tcase, 200);
	return run_tcase("redis threads", tcase);
}
