/*
 * topology_sentinel_test.c - which Sentinel a client believes, when it asks again, and what it does
 * while none knows the master; no sockets.
 */
#include "topology_fixture.h"

static void setup(void)
{
	create(&kvw_redis_topology_sentinel, "redis-sentinel://s:1,s:2,s:3");
}

static void check_not(enum kvw_redis_route expected)
{
	struct kvw_redis_server *server;

	ck_assert_int_eq(route(5, &server), expected);
}

static uint16_t asked(bool sentinel)
{
	ck_assert_ptr_nonnull(r->asked);
	ck_assert_int_eq(r->asked_of->role == KVW_REDIS_SERVER_DATA, !sentinel);
	ck_assert(strstr(r->asked->parts[0].iov_base,
			  sentinel ? "$11\r\nredismaster\r\n" : "ROLE") != NULL);
	return r->asked_of->port;
}

static void answer_address(const char *port)
{
	FAKE_ANSWER(r, "1h", port);
	fake_step(r, t, 0);
}

static void answer_role(const char *role)
{
	FAKE_ANSWER(r, role, "10");
	fake_step(r, t, 0);
}

static void answer_nothing(void)
{
	fake_answer_none(r, KVW_EIO, "refused");
	fake_step(r, t, 0);
}

static void begin(void)
{
	check_not(KVW_REDIS_ROUTE_WAIT);
	fake_step(r, t, 0);
	answer_address("110");
	answer_role("1master");
	check_goes(5, 10);
}

/* --- finding a master ------------------------------------------------------------------------- */

START_TEST(a_sentinel_names_it_and_it_says_so_itself)
{
	fake_step(r, t, 1000 * MS);
	ck_assert_uint_eq(r->questions, 0);
	check_not(KVW_REDIS_ROUTE_WAIT);
	fake_step(r, t, 0);
	ck_assert_uint_eq(asked(true), 1);
	answer_address("110");
	ck_assert_uint_eq(asked(false), 10);
	check_not(KVW_REDIS_ROUTE_WAIT);
	answer_role("1master");
	ck_assert_uint_eq(r->rerouted, 1);
	check_goes(5, 10);
}
END_TEST

START_TEST(sentinels_that_do_not_answer_or_know_are_passed_over)
{
	check_not(KVW_REDIS_ROUTE_WAIT);
	fake_step(r, t, 0);
	answer_nothing();
	ck_assert_uint_eq(asked(true), 2);
	fake_answer_nil(r);
	fake_step(r, t, 0);
	ck_assert_uint_eq(asked(true), 3);
	answer_address("110");
	answer_role("1master");
	check_goes(5, 10);
	/* The one that knew is asked first from now on. */
	t->ops->down(t, fake_server(r, 10, KVW_REDIS_SERVER_DATA), "gone");
	fake_step(r, t, 300 * MS);
	ck_assert_uint_eq(asked(true), 3);
}
END_TEST

START_TEST(a_stale_answer_is_found_out)
{
	check_not(KVW_REDIS_ROUTE_WAIT);
	fake_step(r, t, 0);
	answer_address("110");
	answer_role("1slave");
	ck_assert_ptr_null(fake_server(r, 10, KVW_REDIS_SERVER_DATA));
	ck_assert_uint_eq(asked(true), 2);
	answer_address("120");
	answer_role("1master");
	check_goes(5, 20);
}
END_TEST

START_TEST(a_client_that_may_not_ask_believes)
{
	check_not(KVW_REDIS_ROUTE_WAIT);
	fake_step(r, t, 0);
	answer_address("110");
	fake_answer_error(r, "NOPERM this user has no permissions to run the 'role' command");
	fake_step(r, t, 0);
	check_goes(5, 10);
}
END_TEST

START_TEST(a_failover_is_waited_for)
{
	begin();
	ck_assert(t->ops->down(t, fake_server(r, 10, KVW_REDIS_SERVER_DATA), "refused"));
	fake_step(r, t, 210 * MS);
	for (int i = 0; i < 3; i++) {
		answer_address("110");
		answer_nothing();
	}
	ck_assert_ptr_null(r->asked);
	check_not(KVW_REDIS_ROUTE_WAIT); /* they answered: there will be a master */
	fake_step(r, t, 100 * MS);
	ck_assert_ptr_null(r->asked);
	fake_step(r, t, 110 * MS);
	answer_address("120");
	answer_role("1master");
	check_goes(5, 20);
	ck_assert_uint_eq(fake_alive(r), 4);
}
END_TEST

START_TEST(a_first_master_that_refuses_us_is_reported)
{
	check_not(KVW_REDIS_ROUTE_WAIT);
	fake_step(r, t, 0);
	for (int i = 0; i < 3; i++) {
		answer_address("110");
		fake_answer_none(r, KVW_EIO, "WRONGPASS invalid");
		fake_step(r, t, 0);
	}
	check_not(KVW_REDIS_ROUTE_NONE);
	ck_assert_str_eq(why, "h:10: WRONGPASS invalid");
}
END_TEST

START_TEST(no_server_at_all_is_reported)
{
	check_not(KVW_REDIS_ROUTE_WAIT);
	fake_step(r, t, 0);
	for (int i = 0; i < 3; i++)
		answer_nothing();
	ck_assert_ptr_null(r->asked);
	check_not(KVW_REDIS_ROUTE_NONE);
	ck_assert_str_eq(why, "Sentinel s:3: refused");
	fake_step(r, t, 600 * MS);
	answer_address("110");
	answer_role("1master");
	check_goes(5, 10);
}
END_TEST

START_TEST(a_name_that_no_sentinel_knows_is_reported)
{
	check_not(KVW_REDIS_ROUTE_WAIT);
	fake_step(r, t, 0);
	for (int i = 0; i < 3; i++) {
		fake_answer_nil(r);
		fake_step(r, t, 0);
	}
	check_not(KVW_REDIS_ROUTE_NONE);
	ck_assert_str_eq(why, "Sentinel s:3: knows nothing of it");
}
END_TEST

START_TEST(addresses_without_sense_are_refused)
{
	static const char *const ports[] = {"1", "10", "165536", "1x", "1-5", "110x"};

	for (size_t i = 0; i < sizeof(ports) / sizeof(ports[0]); i++) {
		fake_step(r, t, 600 * MS);
		check_not(i < 3 ? KVW_REDIS_ROUTE_WAIT : KVW_REDIS_ROUTE_NONE);
		fake_step(r, t, 0);
		ck_assert_ptr_nonnull(r->asked);
		answer_address(ports[i]);
		if (r->asked != NULL)
			(void)asked(true); /* the next one, and no server */
	}
}
END_TEST

/* --- losing it -------------------------------------------------------------------------------- */

START_TEST(a_master_that_is_none_any_more_is_replaced)
{
	struct kvw_redis_command command = {.text = "READONLY You can't write against a replica."};

	begin();
	ck_assert_int_eq(t->ops->error(t, &command, fake_server(r, 10, KVW_REDIS_SERVER_DATA)),
		KVW_REDIS_VERDICT_AGAIN);
	ck_assert_int_gt(command.progress.not_before_ns, r->now_ns);
	check_not(KVW_REDIS_ROUTE_WAIT);
	fake_step(r, t, 210 * MS);
	answer_address("110"); /* stale */
	ck_assert_uint_eq(asked(false), 10);
	answer_role("1slave");
	ck_assert_ptr_nonnull(fake_server(r, 10, KVW_REDIS_SERVER_DATA));
	answer_address("120");
	answer_role("1master");
	check_goes(5, 20);
	ck_assert_ptr_null(fake_server(r, 10, KVW_REDIS_SERVER_DATA));
}
END_TEST

START_TEST(without_sentinels_the_present_master_works_on)
{
	begin();
	ck_assert(t->ops->down(t, fake_server(r, 10, KVW_REDIS_SERVER_DATA), "reset"));
	check_not(KVW_REDIS_ROUTE_WAIT);
	fake_step(r, t, 210 * MS);
	for (int i = 0; i < 3; i++)
		answer_nothing();
	ck_assert_uint_eq(asked(false), 10);
	answer_role("1master");
	check_goes(5, 10);
	/* and if it is gone, too, that is reported */
	ck_assert(t->ops->down(t, fake_server(r, 10, KVW_REDIS_SERVER_DATA), "reset"));
	fake_step(r, t, 210 * MS);
	for (int i = 0; i < 4; i++)
		answer_nothing();
	ck_assert_ptr_null(r->asked);
	check_not(KVW_REDIS_ROUTE_NONE);
}
END_TEST

START_TEST(a_new_connection_to_the_master_is_a_reason_to_ask)
{
	begin();
	t->ops->up(t, fake_server(r, 10, KVW_REDIS_SERVER_DATA));
	check_goes(5, 10);
	fake_step(r, t, 100 * MS);
	ck_assert_ptr_null(r->asked);
	fake_step(r, t, 110 * MS);
	ck_assert_uint_eq(asked(true), 1);
	check_goes(5, 10); /* no command waits for that */
	answer_address("110");
	answer_role("1master");
	check_goes(5, 10);
	ck_assert_uint_eq(r->dropped, 0);
}
END_TEST

START_TEST(it_is_asked_for_again_while_there_are_commands)
{
	size_t before;

	begin();
	before = r->questions;
	fake_step(r, t, 0);
	fake_step(r, t, 4000 * MS);
	ck_assert_uint_eq(r->questions, before + 1);
	answer_address("120"); /* handed over, unknown to the client */
	answer_role("1master");
	check_goes(5, 20);
	fake_step(r, t, 4000 * MS); /* that command has been looked at */
	answer_address("120");
	answer_role("1master");
	before = r->questions;
	fake_step(r, t, 4000 * MS);
	ck_assert_uint_eq(r->questions, before);
	r->busy = true; /* no new ones, but some hang */
	fake_step(r, t, 0);
	ck_assert_uint_eq(r->questions, before + 1);
}
END_TEST

START_TEST(other_errors_are_the_callers)
{
	struct kvw_redis_command command = {.text = "OOM command not allowed"};
	struct kvw_redis_server *master;

	begin();
	master = fake_server(r, 10, KVW_REDIS_SERVER_DATA);
	ck_assert_int_eq(t->ops->error(t, &command, master), KVW_REDIS_VERDICT_DELIVER);
	snprintf(command.text, sizeof(command.text), "LOADING Redis is loading");
	ck_assert_int_eq(t->ops->error(t, &command, master), KVW_REDIS_VERDICT_AGAIN);
	check_goes(5, 10);
	ck_assert(!t->ops->down(t, fake_server(r, 1, KVW_REDIS_SERVER_SENTINEL), "gone"));
	check_goes(5, 10);
}
END_TEST

START_TEST(a_name_that_is_too_long_is_refused)
{
	struct kvw_redis_topology *other = NULL;
	char name[1000];

	memset(name, 'n', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	options.service = name;
	ck_assert_int_eq(kvw_redis_topology_sentinel.create(r, &options, &other), KVW_EINVAL);
	options.service = "";
	ck_assert_int_eq(kvw_redis_topology_sentinel.create(r, &options, &other), KVW_EINVAL);
	options.service = NULL;
	ck_assert_int_eq(kvw_redis_topology_sentinel.create(r, &options, &other), KVW_EINVAL);
	ck_assert_ptr_null(other);
}
END_TEST

START_TEST(nothing_that_happens_breaks_it)
{
	static const char *const ports[] = {"110", "111", "112", "1", "1x"};
	static const char *const roles[] = {"1master", "1slave", "1", "1sentinel"};
	static const char *const errors[] = {"READONLY", "LOADING", "MASTERDOWN", "ERR"};
	size_t reached = 0;

	for (int i = 0; i < 100000; i++) {
		struct kvw_redis_command command = {.slot = 1};
		struct kvw_redis_server *server;

		fake_step(r, t, kvw_redis_client_random(r, 60) * MS);
		if (r->asked != NULL && kvw_redis_client_random(r, 4) == 0) {
			if (kvw_redis_client_random(r, 3) == 0)
				fake_answer_none(r, KVW_EIO, "refused");
			else if (r->asked_of->role == KVW_REDIS_SERVER_DATA)
				FAKE_ANSWER(r, roles[kvw_redis_client_random(r, 4)]);
			else
				FAKE_ANSWER(r, "1h", ports[kvw_redis_client_random(r, 5)]);
		}
		if (t->ops->route(t, &command, &server, &why) != KVW_REDIS_ROUTE_TO)
			continue;
		reached++;
		ck_assert(server->alive);
		if (kvw_redis_client_random(r, 10) == 0)
			t->ops->down(t, server, "gone");
		if (kvw_redis_client_random(r, 10) == 0)
			t->ops->up(t, server);
		snprintf(command.text, sizeof(command.text), "%s",
			errors[kvw_redis_client_random(r, 4)]);
		if (kvw_redis_client_random(r, 10) == 0)
			t->ops->error(t, &command, server);
		ck_assert_uint_le(fake_alive(r), 5); /* Sentinels, the master, a candidate */
	}
	ck_assert_uint_gt(reached, 1000);
	ck_assert_uint_gt(r->dropped, 100);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("topology_sentinel");
	TCase *find = tcase_create("find"), *lose = tcase_create("lose");

	tcase_add_checked_fixture(find, setup, teardown);
	tcase_add_test(find, a_sentinel_names_it_and_it_says_so_itself);
	tcase_add_test(find, sentinels_that_do_not_answer_or_know_are_passed_over);
	tcase_add_test(find, a_stale_answer_is_found_out);
	tcase_add_test(find, a_client_that_may_not_ask_believes);
	tcase_add_test(find, a_failover_is_waited_for);
	tcase_add_test(find, a_first_master_that_refuses_us_is_reported);
	tcase_add_test(find, no_server_at_all_is_reported);
	tcase_add_test(find, a_name_that_no_sentinel_knows_is_reported);
	tcase_add_test(find, addresses_without_sense_are_refused);
	suite_add_tcase(suite, find);
	tcase_add_checked_fixture(lose, setup, teardown);
	tcase_add_test(lose, a_master_that_is_none_any_more_is_replaced);
	tcase_add_test(lose, without_sentinels_the_present_master_works_on);
	tcase_add_test(lose, a_new_connection_to_the_master_is_a_reason_to_ask);
	tcase_add_test(lose, it_is_asked_for_again_while_there_are_commands);
	tcase_add_test(lose, other_errors_are_the_callers);
	tcase_add_test(lose, a_name_that_is_too_long_is_refused);
	tcase_add_test(lose, nothing_that_happens_breaks_it);
	tcase_set_timeout(lose, 60);
	suite_add_tcase(suite, lose);
	return run_suite(suite);
}
