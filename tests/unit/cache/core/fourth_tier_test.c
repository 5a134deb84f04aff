/*
 * fourth_tier_test.c - a fourth line in the list of tiers was ignored without a word.
 */
#include <stdio.h>
#include <string.h>

#include "support.h"
#include "tests/unit/suite.h"

static struct rig rig;
static char line_of_both[256];

static void keep_line(void *self, uint32_t level, const char *line)
{
	(void)self;
	(void)level;
	if (strstr(line, "both configured") != NULL)
		snprintf(line_of_both, sizeof(line_of_both), "%s", line);
}

static enum kvt_status not_configured(
	const struct kvt_tier_options *options, char *why, struct kvt_tier **out)
{
	(void)options;
	(void)why;
	(void)out;
	return KVT_MISS;
}

static enum kvt_status broken(
	const struct kvt_tier_options *options, char *why, struct kvt_tier **out)
{
	(void)options;
	(void)out;
	snprintf(why, KVT_REASON_BYTES, "broken");
	return KVT_EIO;
}

static const struct kvt_tier_ops idle_nvme = {
	.name = "n", .id = KVT_TIER_NVME, .create = not_configured};
static const struct kvt_tier_ops idle_l2 = {
	.name = "a", .id = KVT_TIER_L2, .create = not_configured};
static const struct kvt_tier_ops other_l2 = {
	.name = "other", .id = KVT_TIER_L2, .create = broken};

START_TEST(the_fourth_line_is_used)
{
	static const struct kvt_tier_ops *const four[] = {
		&idle_nvme, &idle_l2, &idle_l2, &fake_remote_ops, NULL};

	rig_init(&rig);
	ck_assert_int_eq(kvt_open_with(&rig.config, four, &rig.k), KVT_OK);
	rig_put_chain(&rig, 1, 3);
	rig_settle(&rig);
	ck_assert_uint_eq(fake_chunks(fake_tier()), 3);
	ck_assert_uint_eq(rig_stats(&rig).tiers[KVT_TIER_L2].state, KVT_TIER_WORKS);
	ck_assert_uint_eq(rig_stats(&rig).tiers[KVT_TIER_NVME].state, KVT_TIER_ABSENT);
	rig_close(&rig);
}
END_TEST

START_TEST(two_of_one_place_are_refused_by_name)
{
	static const struct kvt_tier_ops *const both[] = {&fake_remote_ops, &other_l2, NULL};

	rig_init(&rig);
	rig.config.log = keep_line;
	ck_assert_int_eq(kvt_open_with(&rig.config, both, &rig.k), KVT_EINVAL);
	ck_assert_ptr_nonnull(strstr(line_of_both, "fake-remote"));
	ck_assert_ptr_nonnull(strstr(line_of_both, "other"));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("fourth-tier");
	TCase *all = tcase_create("all");

	tcase_add_test(all, the_fourth_line_is_used);
	tcase_add_test(all, two_of_one_place_are_refused_by_name);
	suite_add_tcase(suite, all);
	return run_suite(suite);
}
