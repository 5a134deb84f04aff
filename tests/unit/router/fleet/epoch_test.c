/*
 * epoch_test.c - nothing is freed while a loop may hold it, everything is freed after that.
 */
#include <check.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

#include "fleet/epoch.h"
#include "tests/unit/suite.h"

static int freed;

static void count_freed(void *object)
{
	(void)object;
	freed++;
}

START_TEST(kept_until_every_loop_has_turned)
{
	struct kvw_epochs *epochs;
	int object;

	freed = 0;
	ck_assert_int_eq(kvw_epochs_create(3, &epochs), KVW_OK);
	for (size_t i = 0; i < 5; i++)
		kvw_epochs_turn(epochs, 0);
	ck_assert_int_eq(kvw_epochs_retire(epochs, &object, count_freed), KVW_OK);
	kvw_epochs_reclaim(epochs);
	ck_assert_int_eq(freed, 0);
	for (int i = 0; i < 10; i++) {
		kvw_epochs_turn(epochs, 0);
		kvw_epochs_turn(epochs, 1);
	}
	kvw_epochs_reclaim(epochs);
	ck_assert_int_eq(freed, 0); /* one loop still stands where it stood */
	kvw_epochs_turn(epochs, 2);
	kvw_epochs_turn(epochs, 2);
	kvw_epochs_reclaim(epochs);
	ck_assert_int_eq(freed, 1);
	kvw_epochs_reclaim(epochs);
	kvw_epochs_destroy(epochs);
	ck_assert_int_eq(freed, 1);
}
END_TEST

START_TEST(those_retired_later_wait_longer)
{
	struct kvw_epochs *epochs;
	int object;

	freed = 0;
	ck_assert_int_eq(kvw_epochs_create(1, &epochs), KVW_OK);
	ck_assert_int_eq(kvw_epochs_retire(epochs, &object, count_freed), KVW_OK);
	kvw_epochs_turn(epochs, 0);
	kvw_epochs_turn(epochs, 0);
	ck_assert_int_eq(kvw_epochs_retire(epochs, &object, count_freed), KVW_OK);
	kvw_epochs_reclaim(epochs);
	ck_assert_int_eq(freed, 1);
	kvw_epochs_turn(epochs, 0);
	kvw_epochs_turn(epochs, 0);
	kvw_epochs_reclaim(epochs);
	ck_assert_int_eq(freed, 2);
	kvw_epochs_destroy(epochs);
}
END_TEST

START_TEST(destroy_frees_what_is_left)
{
	struct kvw_epochs *epochs;
	int object;

	freed = 0;
	ck_assert_int_eq(kvw_epochs_create(2, &epochs), KVW_OK);
	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(kvw_epochs_retire(epochs, &object, count_freed), KVW_OK);
	kvw_epochs_destroy(epochs);
	ck_assert_int_eq(freed, 4);
	kvw_epochs_destroy(NULL);
}
END_TEST

/* --- loops that read what a thread replaces --- */

#define LOOPS 4

static struct kvw_epochs *shared;
static _Atomic(int *) published; /* always points at 42; freed memory is poisoned first */
static _Atomic bool stop;

static void poison_and_free(void *object)
{
	*(int *)object = 0;
	free(object);
}

static int *make(void)
{
	int *value = malloc(sizeof(*value));

	ck_assert_ptr_nonnull(value);
	*value = 42;
	return value;
}

static void *read_on(void *arg)
{
	size_t index = *(size_t *)arg;
	size_t wrong = 0;

	while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
		const int *value = atomic_load_explicit(&published, memory_order_acquire);

		for (int i = 0; i < 50; i++)
			wrong += *(const volatile int *)value != 42;
		kvw_epochs_turn(shared, index);
	}
	return (void *)wrong;
}

START_TEST(loops_never_read_what_was_freed)
{
	pthread_t threads[LOOPS];
	size_t indexes[LOOPS];

	ck_assert_int_eq(kvw_epochs_create(LOOPS, &shared), KVW_OK);
	atomic_store(&published, make());
	for (size_t i = 0; i < LOOPS; i++) {
		indexes[i] = i;
		ck_assert_int_eq(pthread_create(&threads[i], NULL, read_on, &indexes[i]), 0);
	}
	for (int i = 0; i < 20000; i++) {
		int *old = atomic_exchange(&published, make());

		ck_assert_int_eq(kvw_epochs_retire(shared, old, poison_and_free), KVW_OK);
		kvw_epochs_reclaim(shared);
	}
	atomic_store(&stop, true);
	for (size_t i = 0; i < LOOPS; i++) {
		void *wrong;

		pthread_join(threads[i], &wrong);
		ck_assert_ptr_null(wrong);
	}
	kvw_epochs_destroy(shared);
	free(atomic_load(&published));
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("epoch");

	tcase_set_timeout(tcase, 120);
	tcase_add_test(tcase, kept_until_every_loop_has_turned);
	tcase_add_test(tcase, those_retired_later_wait_longer);
	tcase_add_test(tcase, destroy_frees_what_is_left);
	tcase_add_test(tcase, loops_never_read_what_was_freed);
	return run_tcase("epoch", tcase);
}
