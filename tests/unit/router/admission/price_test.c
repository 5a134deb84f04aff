/*
 * price_test.c - what a request may cost, by what was offered.
 */
#include <check.h>
#include <math.h>

#include "admission/price.h"
#include "tests/unit/suite.h"

#define SECOND INT64_C(1000000000)
#define BEGIN  SECOND

static struct kvw_price price;

static void setup(void)
{
	kvw_price_init(&price);
}

static struct kvw_waiter request(uint8_t class, int64_t work_ns)
{
	return (struct kvw_waiter){.class = class, .work_ns = work_ns, .value = 1};
}

/* So much work a second, in requests of this length, for five minutes. */
static void offer(uint8_t class, int64_t work_ns, int64_t per_second_ns)
{
	struct kvw_waiter w = request(class, work_ns);

	for (int64_t s = 0; s < 300; s++)
		for (int64_t sum = 0; sum < per_second_ns; sum += work_ns)
			kvw_price_offer(&price, &w, BEGIN + s * SECOND);
}

static const int64_t END = BEGIN + 300 * SECOND;

START_TEST(no_limit_at_first_and_below_capacity)
{
	kvw_price_limits(&price, 1, BEGIN);
	ck_assert(isinf(price.limit[0]));
	offer(0, SECOND / 10, SECOND / 2);
	ck_assert_double_eq_tol(kvw_price_offered(&price, END), 0.5, 0.05);
	kvw_price_limits(&price, 1, END);
	ck_assert(isinf(price.limit[0]));
	ck_assert(isinf(price.limit[KVW_CLASSES - 1]));
}
END_TEST

START_TEST(above_capacity_the_dear_ones_are_too_high)
{
	struct kvw_waiter cheap = request(0, SECOND / 10);
	struct kvw_waiter dear = request(0, 20 * SECOND);
	struct kvw_waiter worthy = dear;

	for (int64_t s = 0; s < 300; s++) {
		for (int i = 0; i < 5; i++)
			kvw_price_offer(&price, &cheap, BEGIN + s * SECOND);
		if (s % 10 == 0) {
			struct kvw_waiter middle = request(0, 5 * SECOND);

			kvw_price_offer(&price, &middle, BEGIN + s * SECOND);
			kvw_price_offer(&price, &dear, BEGIN + s * SECOND);
		}
	}
	kvw_price_limits(&price, 1, END);
	worthy.value = 10;
	ck_assert(!kvw_price_too_high(&price, &cheap));
	ck_assert(kvw_price_too_high(&price, &dear));
	ck_assert(!kvw_price_too_high(&price, &worthy));
}
END_TEST

START_TEST(the_important_class_comes_first)
{
	struct kvw_waiter low = request(1, SECOND / 100);
	struct kvw_waiter high = request(0, SECOND);

	offer(0, SECOND, 2 * SECOND);
	kvw_price_limits(&price, 1, END);
	ck_assert(!kvw_price_too_high(&price, &high));
	ck_assert_double_eq(price.limit[1], 0);
	ck_assert(kvw_price_too_high(&price, &low));
	kvw_price_limits(&price, 4, END);
	ck_assert(isinf(price.limit[0]));
	ck_assert(!kvw_price_too_high(&price, &low));
}
END_TEST

START_TEST(what_was_offered_fades)
{
	offer(0, SECOND, 4 * SECOND);
	kvw_price_limits(&price, 1, END);
	ck_assert(!isinf(price.limit[0]));
	ck_assert_double_lt(kvw_price_offered(&price, END + 600 * SECOND), 0.001);
	kvw_price_limits(&price, 1, END + 600 * SECOND);
	ck_assert(isinf(price.limit[0]));
	/* Days later there is nothing left, and no division by it. */
	kvw_price_limits(&price, 1, END + 1000000 * SECOND);
	ck_assert(isinf(price.limit[0]));
}
END_TEST

START_TEST(odd_prices_have_a_step)
{
	struct kvw_waiter none = request(0, 0);
	struct kvw_waiter huge = request(7, INT64_MAX);
	struct kvw_waiter negative = request(3, -5);

	kvw_price_offer(&price, &none, BEGIN);
	kvw_price_offer(&price, &huge, BEGIN);
	kvw_price_offer(&price, &negative, BEGIN);
	kvw_price_limits(&price, 1, BEGIN);
	ck_assert(isinf(price.limit[0]));
	ck_assert(!isnan(price.limit[7]));
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("price");

	tcase_add_checked_fixture(tcase, setup, NULL);
	tcase_add_test(tcase, no_limit_at_first_and_below_capacity);
	tcase_add_test(tcase, above_capacity_the_dear_ones_are_too_high);
	tcase_add_test(tcase, the_important_class_comes_first);
	tcase_add_test(tcase, what_was_offered_fades);
	tcase_add_test(tcase, odd_prices_have_a_step);
	return run_tcase("admission price", tcase);
}
