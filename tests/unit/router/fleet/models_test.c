/*
 * models_test.c - names of models that come and go.
 */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "fleet/epoch.h"
#include "fleet_support.h"
#include "tests/unit/suite.h"

#define FIRST_PORT  18600
#define CHURN_LIST  1500
#define CHURN_LISTS 20

static struct kvw_config *config;
static struct kvw_fleet *fleet;

static void setup(void)
{
	config = fleet_test_config(3, FIRST_PORT);
	fleet = fleet_test_create(config, 1);
}

static void teardown(void)
{
	kvw_fleet_destroy(fleet);
	kvw_config_destroy(config);
}

/* CHURN_LIST names that no list had before, by one worker. */
static void churn(size_t list)
{
	static char texts[CHURN_LIST][24];
	static const char *names[CHURN_LIST];

	for (size_t i = 0; i < CHURN_LIST; i++) {
		snprintf(texts[i], sizeof(texts[i]), "adapter-%zu-%zu", list, i);
		names[i] = texts[i];
	}
	ck_assert_int_eq(kvw_fleet_set_models(fleet, fleet->workers[0], names, CHURN_LIST), KVW_OK);
	for (int turn = 0; turn < 3; turn++)
		kvw_epochs_turn(fleet->epochs, 0);
	(void)kvw_fleet_reap(fleet);
}

START_TEST(names_that_are_never_seen_again_are_forgotten)
{
	struct kvw_model *held, *early, *again;
	struct kvw_candidate items[3];
	bool known;

	fleet_test_models(fleet, 1, "early");
	(void)kvw_fleet_candidates(fleet, KVW_SLICE("early"), items, &known, &early);
	fleet_test_models(fleet, 1, "");
	churn(0);
	(void)kvw_fleet_candidates(fleet, KVW_SLICE("adapter-0-1000"), items, &known, &held);
	ck_assert(known);
	kvw_model_hold(held);
	for (size_t i = 1; i < CHURN_LISTS; i++)
		churn(i);
	ck_assert_uint_le(fleet->model_total, 2 * CHURN_LIST + KVW_MODELS_KEPT + KVW_MODELS_UNLISTED);
	ck_assert_str_eq(held->name, "adapter-0-1000"); /* a request has it */
	ck_assert_ptr_eq(fleet->models[held->index], held);
	kvw_model_let_go(held);
	churn(CHURN_LISTS);
	churn(CHURN_LISTS + 1);
	(void)kvw_fleet_candidates(fleet, KVW_SLICE("adapter-0-1000"), items, &known, &again);
	ck_assert(!known);
	(void)kvw_fleet_candidates(fleet, KVW_SLICE("adapter-21-1499"), items, &known, &again);
	ck_assert(known);
	ck_assert_str_eq(again->name, "adapter-21-1499");
	ck_assert_uint_lt(again->index, fleet->model_total);
	fleet_test_models(fleet, 1, "early"); /* metrics name it */
	(void)kvw_fleet_candidates(fleet, KVW_SLICE("early"), items, &known, &again);
	ck_assert_ptr_eq(early, again);
}
END_TEST

/* A loop that has not turned may have it from a view that is gone. */
START_TEST(a_model_stays_until_every_loop_has_turned)
{
	struct kvw_model *found;
	struct kvw_candidate items[3];
	bool known;

	churn(0);
	(void)kvw_fleet_candidates(fleet, KVW_SLICE("adapter-0-1000"), items, &known, &found);
	fleet_test_models(fleet, 0, "x");
	(void)kvw_fleet_reap(fleet);
	ck_assert_str_eq(found->name, "adapter-0-1000");
	kvw_epochs_turn(fleet->epochs, 0);
	kvw_epochs_turn(fleet->epochs, 0);
	(void)kvw_fleet_reap(fleet);
	ck_assert_ptr_null(fleet->models[1000]);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("models");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, names_that_are_never_seen_again_are_forgotten);
	tcase_add_test(tcase, a_model_stays_until_every_loop_has_turned);
	return run_tcase("fleet-models", tcase);
}
