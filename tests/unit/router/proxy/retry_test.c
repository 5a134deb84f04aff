/*
 * retry_test.c - every combination of facts, against the rules said one by one.
 */
#include <check.h>

#include "proxy/retry.h"
#include "tests/unit/suite.h"

#define FLAGS 10

static struct kvw_retry_facts facts_of(unsigned bits)
{
	return (struct kvw_retry_facts){
		.first_token = bits & 1,
		.repeatable = bits >> 1 & 1,
		.idempotent = bits >> 2 & 1,
		.request_held = bits >> 3 & 1,
		.link_reused = bits >> 4 & 1,
		.response_byte = bits >> 5 & 1,
		.waited_out = bits >> 6 & 1,
		.link_written = bits >> 7 & 1 ? 100 : 0,
		.retries = bits >> 8 & 1 ? 2 : 1,
		.suspicions = bits >> 9 & 1 ? 2 : 1,
		.retry_limit = 2,
	};
}

START_TEST(every_combination)
{
	unsigned seen[3] = {0};

	for (unsigned bits = 0; bits < 1u << FLAGS; bits++) {
		const struct kvw_retry_facts facts = facts_of(bits);
		enum kvw_retry decision = kvw_retry_decide(&facts);
		bool stale = facts.link_reused && !facts.response_byte;

		seen[decision]++;
		if (decision == KVW_RETRY_NO) {
			/* There must be a reason. */
			ck_assert(facts.first_token || facts.waited_out || !facts.request_held ||
				  (!facts.repeatable && !facts.idempotent &&
					  facts.link_written > 0) ||
				  (!stale && (facts.retries >= facts.retry_limit ||
						     facts.suspicions >= KVW_RETRY_SUSPICIONS)));
			continue;
		}
		ck_assert_msg(!facts.first_token, "%x: the client has seen a part", bits);
		ck_assert_msg(!facts.waited_out, "%x: the work may be under way", bits);
		ck_assert_msg(facts.request_held, "%x: the request is not whole any more", bits);
		ck_assert_msg(facts.repeatable || facts.idempotent || facts.link_written == 0,
			"%x: a worker may have begun what must not be done twice", bits);
		ck_assert_int_eq(decision, stale ? KVW_RETRY_FRESH : KVW_RETRY_OTHER);
		if (!stale) {
			ck_assert_msg(
				facts.retries < facts.retry_limit, "%x: over the limit", bits);
			ck_assert_msg(facts.suspicions < 2, "%x: two workers broke", bits);
		}
	}
	ck_assert_uint_gt(seen[KVW_RETRY_NO], 0);
	ck_assert_uint_gt(seen[KVW_RETRY_FRESH], 0);
	ck_assert_uint_gt(seen[KVW_RETRY_OTHER], 0);
}
END_TEST

START_TEST(limit_of_zero_still_replaces_a_stale_connection)
{
	struct kvw_retry_facts facts = {
		.repeatable = true, .request_held = true, .link_reused = true, .link_written = 100};

	ck_assert_int_eq(kvw_retry_decide(&facts), KVW_RETRY_FRESH);
	facts.link_reused = false; /* the new one failed too */
	ck_assert_int_eq(kvw_retry_decide(&facts), KVW_RETRY_NO);
}
END_TEST

START_TEST(refused_connection_goes_elsewhere_whatever_the_method)
{
	struct kvw_retry_facts facts = {.request_held = true, .retry_limit = 1};

	ck_assert_int_eq(kvw_retry_decide(&facts), KVW_RETRY_OTHER);
	facts.retries = 1;
	ck_assert_int_eq(kvw_retry_decide(&facts), KVW_RETRY_NO);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("retry");

	tcase_add_test(tcase, every_combination);
	tcase_add_test(tcase, limit_of_zero_still_replaces_a_stale_connection);
	tcase_add_test(tcase, refused_connection_goes_elsewhere_whatever_the_method);
	return run_tcase("retry", tcase);
}
