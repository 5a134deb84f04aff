/*
 * handover_test.c - what modules give away passes to the next process, a little in each turn.
 *
 * One feed stands for both processes: it hands over, then takes what it gave.
 */
#include <check.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "state/memory.h"
#include "support.h"
#include "tests/unit/suite.h"

#define RECORDS 3000

static struct rig rig;
static struct {
	_Atomic uint64_t recalled, sum;
	_Atomic int ended, listens, closes, ticks;
	_Atomic bool all_came;
	_Atomic useconds_t slow_us; /* for each record */
} seen;

static void on_tick(struct kvw_feed *feed, void *ctx)
{
	(void)feed;
	(void)ctx;
	atomic_fetch_add(&seen.ticks, 1);
}

static enum kvw_err module_start(struct kvw_feed *feed, FILE *errors, void **state)
{
	(void)errors;
	*state = &seen;
	return kvw_feed_every(feed, KVW_NS_PER_MS, on_tick, &seen);
}

static enum kvw_err module_keep(void *state, const struct kvw_keep_out *out)
{
	enum kvw_err err = KVW_OK;

	ck_assert_ptr_eq(state, &seen);
	ck_assert_int_gt(atomic_load(&seen.closes), 0); /* nothing comes any more that the records would not have */
	for (uint64_t i = 0; err == KVW_OK && i < RECORDS; i++)
		err = out->put(out->arg, KVW_KEPT_KEYS, &i, sizeof(i));
	return err;
}

static void module_recall(void *state, enum kvw_keep_kind kind, const uint8_t *record, size_t len)
{
	uint64_t number = 0;

	ck_assert_ptr_eq(state, &seen);
	ck_assert(kind == KVW_KEPT_KEYS && len == sizeof(number));
	memcpy(&number, record, sizeof(number));
	atomic_fetch_add(&seen.sum, number);
	atomic_fetch_add(&seen.recalled, 1);
	if (atomic_load(&seen.slow_us) > 0)
		usleep(seen.slow_us);
}

static void module_recalled(void *state, bool all_came)
{
	(void)state;
	atomic_store(&seen.all_came, all_came);
	atomic_fetch_add(&seen.ended, 1);
}

static void module_listen(void *state)
{
	(void)state;
	atomic_fetch_add(&seen.listens, 1);
}

static void module_hand_over(void *state)
{
	(void)state;
	atomic_fetch_add(&seen.closes, 1);
}

static void module_stop(void *state)
{
	(void)state;
}

static const struct kvw_feed_module module = {
	.name = "test",
	.start = module_start,
	.listen = module_listen,
	.hand_over = module_hand_over,
	.keep = module_keep,
	.recall = module_recall,
	.recalled = module_recalled,
	.stop = module_stop,
};

static void setup(void)
{
	memset(&seen, 0, sizeof(seen));
	rig_init(&rig, 1, 20000, "    discover: false\n");
	rig_start(&rig, &module);
}

static void teardown(void)
{
	rig_finish(&rig);
}

static bool listens(struct rig *r, void *ctx)
{
	(void)r;
	(void)ctx;
	return atomic_load(&seen.listens) > 0;
}

static bool reads(struct rig *r, void *ctx)
{
	(void)r;
	(void)ctx;
	return atomic_load(&seen.recalled) > 0;
}

static int hand_over(void)
{
	return kvw_feed_hand_over(rig.feed, 10 * KVW_NS_PER_S, true);
}

START_TEST(records_come_before_engines)
{
	int fd = hand_over(), ticks;

	ck_assert_int_ge(fd, 0);
	ticks = atomic_load(&seen.ticks);
	atomic_store(&seen.slow_us, 20);
	kvw_feed_listen(rig.feed, fd);
	ck_assert(rig_wait(&rig, listens, NULL));
	ck_assert_uint_eq(seen.recalled, RECORDS);
	ck_assert_uint_eq(seen.sum, (uint64_t)RECORDS * (RECORDS - 1) / 2);
	ck_assert_int_eq(seen.ended, 1);
	ck_assert(seen.all_came);
	ck_assert_int_gt(atomic_load(&seen.ticks), ticks); /* timers had their turn meanwhile */
}
END_TEST

/* A second upgrade comes before the first one's records are read: the third process gets them all. */
START_TEST(what_is_half_read_passes_whole)
{
	struct kvw_state_reader *reader;
	char why[KVW_STATE_WHY];
	int fd = hand_over();

	atomic_store(&seen.slow_us, 500);
	kvw_feed_listen(rig.feed, fd);
	ck_assert(rig_wait(&rig, reads, NULL));
	fd = hand_over();
	ck_assert_int_ge(fd, 0);
	ck_assert_uint_lt(seen.recalled, RECORDS);
	ck_assert_int_eq(kvw_state_memory_read_take(fd, 1 << 20, &reader, why), KVW_OK);
	kvw_state_memory_close(reader);
	usleep(20000);
	ck_assert_int_eq(seen.ended, 0);
	ck_assert_int_eq(seen.listens, 0); /* the third process does */
}
END_TEST

START_TEST(what_is_damaged_costs_warmth_alone)
{
	int fd = memfd_create("damaged", MFD_CLOEXEC);

	ck_assert_int_eq(write(fd, "KVWSTATE, or not", 16), 16);
	kvw_feed_listen(rig.feed, fd);
	ck_assert(rig_wait(&rig, listens, NULL));
	ck_assert_uint_eq(seen.recalled, 0);
	ck_assert_int_eq(seen.ended, 0);
}
END_TEST

START_TEST(a_process_that_does_not_read_them_gets_none)
{
	ck_assert_int_eq(kvw_feed_hand_over(rig.feed, 10 * KVW_NS_PER_S, false), -1);
	ck_assert_int_eq(seen.closes, 1);
	kvw_feed_listen(rig.feed, -1);
	ck_assert(rig_wait(&rig, listens, NULL));
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("handover");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, records_come_before_engines);
	tcase_add_test(tc, what_is_half_read_passes_whole);
	tcase_add_test(tc, what_is_damaged_costs_warmth_alone);
	tcase_add_test(tc, a_process_that_does_not_read_them_gets_none);
	return run_tcase("feed-handover", tc);
}
