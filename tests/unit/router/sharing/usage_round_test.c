/*
 * usage_round_test.c - which hours are read from Redis, for which this file answers at once: an
 * hour has no usage, or the first one too much.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "sharing/usage_round.h"
#include "tests/unit/suite.h"
#include "usage/ledger.h"

#define HOURS 4

static size_t reads;
static int64_t last_hour;
static bool first_is_large;

/* --- Redis --- */

void kvw_redis_submit(struct kvw_redis *r, struct kvw_redis_command *command)
{
	const struct iovec *part = &command->parts[0];
	const char *name = memmem(part->iov_base, part->iov_len, "{p:usage}:", 10);

	(void)r;
	ck_assert_ptr_nonnull(name);
	last_hour = strtoll(name + 10, NULL, 10);
	command->status = first_is_large && reads == 0 ? KVW_ELIMIT : KVW_OK;
	reads++;
	command->reply = KVW_REDIS_ARRAY;
	command->done(command);
}

uint32_t kvw_redis_slot(const void *key, size_t len)
{
	(void)key;
	return (uint32_t)len;
}

void kvw_redis_elements_free(struct kvw_redis_element *elements, size_t count)
{
	(void)elements;
	(void)count;
	ck_abort();
}

size_t kvw_redis_step(struct kvw_redis *r, int64_t wait_ns, int64_t *next_ns)
{
	(void)r;
	(void)wait_ns;
	(void)next_ns;
	ck_abort();
}

/* --- the tests --- */

static struct kvw_usage_round *rounds;
static struct kvw_ledger *ledger;

/* Returns how many hours are read at this time, of which the present one is the last. */
static size_t read_at(int64_t now_ns)
{
	reads = 0;
	last_hour = 0;
	for (int i = 0; i < 100 &&
			last_hour < kvw_clock_wall_ns() / KVW_NS_PER_S / KVW_USAGE_HOUR_S;
		i++)
		(void)kvw_usage_round_step(rounds, NULL, now_ns);
	return reads;
}

static void setup(void)
{
	const struct kvw_ledger_options options = {
		.loops = 1, .entries = 8, .hours = HOURS, .shared = true};

	ck_assert_int_eq(kvw_ledger_create(&options, &ledger), KVW_OK);
	ck_assert_int_eq(kvw_usage_round_create("p", &rounds), KVW_OK);
	kvw_usage_round_begin(rounds, ledger);
}

static void teardown(void)
{
	kvw_usage_round_destroy(rounds);
	kvw_ledger_destroy(ledger);
}

START_TEST(past_hours_are_read_again_in_case_others_were_late)
{
	int64_t now_ns = kvw_clock_ns();

	ck_assert_uint_ge(read_at(now_ns), HOURS);
	ck_assert_uint_lt(read_at(now_ns + 60 * KVW_NS_PER_S), HOURS);
	ck_assert_uint_ge(read_at(now_ns + 601 * KVW_NS_PER_S), HOURS);
	ck_assert_uint_lt(read_at(now_ns + 660 * KVW_NS_PER_S), HOURS);
}
END_TEST

START_TEST(an_hour_that_is_too_large_hides_no_other)
{
	first_is_large = true;
	ck_assert_uint_ge(read_at(kvw_clock_ns()), HOURS);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("usage_round");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, past_hours_are_read_again_in_case_others_were_late);
	tcase_add_test(tc, an_hour_that_is_too_large_hides_no_other);
	return run_tcase("sharing-usage-round", tc);
}
