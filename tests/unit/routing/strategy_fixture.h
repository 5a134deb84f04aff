/*
 * strategy_fixture.h - the fixture of tests of one strategy: an instance of it, and workers.
 *
 * setup() of a test program makes the strategy; a test begins the fleet with fleet_init.
 */
#ifndef KVW_TEST_ROUTING_STRATEGY_FIXTURE_H
#define KVW_TEST_ROUTING_STRATEGY_FIXTURE_H

#include "support.h"

static struct kvw_strategy *strategy;
static struct fleet fleet;

static inline struct kvw_strategy *make_strategy(
	const char *name, const struct kvw_strategy_options *options)
{
	struct kvw_strategy *made = NULL;

	ck_assert_int_eq(kvw_strategy_find(name)->create(options, &made), KVW_OK);
	return made;
}

static inline struct kvw_strategy *make_default(const char *name)
{
	struct kvw_strategy_options options = test_options();

	return make_strategy(name, &options);
}

static inline void setup_strategy(const char *name)
{
	fleet = (struct fleet){0};
	strategy = make_default(name);
}

static void teardown(void)
{
	fleet_finish(&fleet);
	strategy->ops->destroy(strategy);
}

#endif
