/*
 * fetched_test.c - leases of what a tier below brings: whether their bytes are checked, and what becomes of
 * those that still wait at the end.
 */
#include <pthread.h>
#include <semaphore.h>
#include <unistd.h>

#include "bed.h"
#include "daemon/objects_parts.h"
#include "tests/unit/suite.h"

static struct bed bed;

/* A lease whose answer no thread waits for. */
struct asked {
	_Atomic int answers;
	enum kvt_status status;
	sem_t *hold; /* where the answering thread waits; NULL: it does not */
	sem_t came;
};

static void answered(void *user, enum kvt_status status, const struct kvt_grant *grant)
{
	struct asked *a = user;

	(void)grant;
	a->status = status;
	a->answers++;
	sem_post(&a->came);
	if (a->hold != NULL)
		EXPECT(sem_wait(a->hold) == 0);
}

static void ask(struct asked *a, const char *key, bool unchecked, sem_t *hold)
{
	struct kvt_object_name name = name_of("b", key);
	struct kvt_lease_wish wish = {
		.timeout_ns = 30 * SECOND, .ttl_ns = SECOND, .unchecked = unchecked};

	*a = (struct asked){.hold = hold};
	ck_assert_int_eq(sem_init(&a->came, 0, 0), 0);
	kvt_object_lease(bed.objects, &name, &wish, answered, a);
}

/* Objects that only the store has. */
static void begin(const char *const *keys, size_t count)
{
	bed_init(&bed, 16 * MIB);
	bed_use_store(&bed);
	bed_open(&bed);
	for (size_t i = 0; i < count; i++)
		ck_assert_int_eq(put(&bed, "b", keys[i], i, MIB, NULL), KVT_OK);
	bed_close(&bed);
	bed_open(&bed);
	bed_attach(&bed);
}

static void finish(void)
{
	bed_close(&bed);
	bed_clear(&bed);
}

/* Until it is in memory. */
static struct kvt_key wait_for(const char *key)
{
	struct kvt_object_name name = name_of("b", key);
	struct kvt_key its;

	kvt_object_key(bed.objects, &name, &its);
	while (kvt_object_tier(bed.objects, &its) != KVT_TIER_L1)
		usleep(1000);
	return its;
}

/* A client writes into an object that has just come. */
static void scribble(const char *key)
{
	struct kvt *cache = kvt_objects_cache(bed.objects);
	struct kvt_key its = wait_for(key);
	struct kvt_lease *lease;

	ck_assert_int_eq(kvt_get(cache, &its, 1, 0, &lease), KVT_OK);
	((char *)lease->segments[0].base)[4711] ^= 1;
	kvt_release(cache, lease);
}

static void settle(struct asked *a, enum kvt_status status)
{
	ck_assert_int_eq(sem_wait(&a->came), 0);
	ck_assert_int_eq(a->status, status);
}

/* While the granting thread is at another lease, an object comes and a client writes into it. */
START_TEST(what_was_fetched_is_checked_unless_its_client_does)
{
	static const char *const keys[] = {"first", "checked", "unchecked"};
	static struct asked first, checked, unchecked;
	sem_t go;

	begin(keys, 3);
	ck_assert_int_eq(sem_init(&go, 0, 0), 0);
	ask(&first, "first", false, &go);
	settle(&first, KVT_OK);
	ask(&checked, "checked", false, NULL);
	ask(&unchecked, "unchecked", true, NULL);
	scribble("checked");
	scribble("unchecked");
	ck_assert_int_eq(sem_post(&go), 0);
	settle(&unchecked, KVT_OK);       /* its client sees it */
	settle(&checked, KVT_ECANCELED); /* the store has the right ones */
	ck_assert_uint_eq(stats_of(&bed).corrupt, 1);
	ck_assert_int_eq(get(&bed, "b", "checked", 1), KVT_OK);
	ck_assert_int_eq(get(&bed, "b", "unchecked", 2), KVT_OK); /* found wrong, and fetched again */
	ck_assert_uint_eq(stats_of(&bed).corrupt, 2);
	finish();
}
END_TEST

static void *post_soon(void *go)
{
	usleep(200000);
	EXPECT(sem_post(go) == 0);
	return NULL;
}

/* The end comes while the granting thread is at another lease: what came meanwhile is left alone. */
START_TEST(leases_that_wait_at_the_end_are_answered_once)
{
	static const char *const keys[] = {"first", "1", "2", "3"};
	static struct asked asked[4];
	pthread_t thread;
	sem_t go;

	begin(keys, 4);
	ck_assert_int_eq(sem_init(&go, 0, 0), 0);
	ask(&asked[0], keys[0], false, &go);
	settle(&asked[0], KVT_OK);
	for (int i = 1; i < 4; i++) {
		ask(&asked[i], keys[i], false, NULL);
		(void)wait_for(keys[i]);
	}
	ck_assert_int_eq(pthread_create(&thread, NULL, post_soon, &go), 0);
	bed_close(&bed);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(asked[i].answers, 1);
	bed_clear(&bed);
}
END_TEST

int main(void)
{
	TCase *cases = tcase_create("fetched");

	tcase_set_timeout(cases, 60);
	tcase_add_test(cases, what_was_fetched_is_checked_unless_its_client_does);
	tcase_add_test(cases, leases_that_wait_at_the_end_are_answered_once);
	return run_tcase("cache/daemon/fetched", cases);
}
