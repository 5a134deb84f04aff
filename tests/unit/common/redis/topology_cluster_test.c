/*
 * topology_cluster_test.c - where commands of a cluster go, which server it asks for its map and
 * how often, and that servers come and go without a trace; no sockets.
 */
#include "redis/slots.h"
#include "topology_fixture.h"

static void setup(void)
{
	create(&kvw_redis_topology_cluster, "redis-cluster://seed-a:1,seed-b:2");
}

static void check_waits(uint32_t slot)
{
	struct kvw_redis_server *server;

	ck_assert_int_eq(route(slot, &server), KVW_REDIS_ROUTE_WAIT);
}

static void check_goes_nowhere(uint32_t slot)
{
	struct kvw_redis_server *server;

	ck_assert_int_eq(route(slot, &server), KVW_REDIS_ROUTE_NONE);
}

/* The server that was asked last. */
static uint16_t asked_port(void)
{
	ck_assert_ptr_nonnull(r->asked);
	ck_assert_int_eq(r->asked_of->role, KVW_REDIS_SERVER_CONTROL);
	return r->asked_of->port;
}

/* Two masters, 11 and 12, with a replica each, 21 and 22. */
static void answer_two(void)
{
	FAKE_ANSWER(r, "20", "28191", "3h", "311", "3a", "3h", "321", "3b", "28192", "216383", "3h",
		"312", "3c", "3h", "322", "3d");
	fake_step(r, t, 0);
}

static void begin(void)
{
	check_waits(5);
	fake_step(r, t, 0);
	answer_two();
}

/* --- the map ---------------------------------------------------------------------------------- */

START_TEST(nothing_happens_before_the_first_command)
{
	fake_step(r, t, 0);
	fake_step(r, t, 3600000 * MS);
	ck_assert_uint_eq(r->questions, 0);
	ck_assert_uint_eq(r->made, 0);
}
END_TEST

START_TEST(the_first_command_waits_for_the_map)
{
	check_waits(5);
	fake_step(r, t, 0);
	ck_assert_uint_eq(asked_port(), 1);
	ck_assert_uint_eq(r->asked->part_count, 1);
	ck_assert_int_eq(
		strncmp(r->asked->parts[0].iov_base, "*2\r\n$7\r\nCLUSTER\r\n$5\r\nSLOTS\r\n",
			r->asked->parts[0].iov_len),
		0);
	check_waits(16383);
	ck_assert_uint_eq(r->rerouted, 0);
	answer_two();
	ck_assert_uint_eq(r->rerouted, 1);
	check_goes(0, 11);
	check_goes(8191, 11);
	check_goes(8192, 12);
	check_goes(16383, 12);
}
END_TEST

START_TEST(a_command_without_a_key_goes_to_some_master)
{
	bool seen[2] = {false, false};

	begin();
	for (int i = 0; i < 100; i++) {
		struct kvw_redis_server *server;

		ck_assert_int_eq(route(KVW_REDIS_ANY_SLOT, &server), KVW_REDIS_ROUTE_TO);
		ck_assert(server->port == 11 || server->port == 12);
		seen[server->port - 11] = true;
	}
	ck_assert(seen[0] && seen[1]);
}
END_TEST

START_TEST(the_next_is_asked_when_one_cannot_say)
{
	check_waits(5);
	fake_step(r, t, 0);
	fake_answer_none(r, KVW_EIO, "connection refused");
	fake_step(r, t, 0);
	ck_assert_uint_eq(asked_port(), 2);
	answer_two();
	check_goes(5, 11);
}
END_TEST

START_TEST(answers_without_sense_or_slots_are_not_believed)
{
	begin();
	check_goes(5, 11);
	t->ops->down(t, fake_server(r, 11, KVW_REDIS_SERVER_DATA), "gone");
	fake_step(r, t, 300 * MS);
	fake_answer(r, NULL, 0); /* a server that was reset */
	fake_step(r, t, 0);
	FAKE_ANSWER(r, "1what");
	fake_step(r, t, 0);
	fake_answer_error(r, "ERR This instance has cluster support disabled");
	fake_step(r, t, 0);
	check_goes(5, 11);
	check_goes(9000, 12);
}
END_TEST

START_TEST(when_no_server_answers_commands_end_and_the_reason_is_reported)
{
	check_waits(5);
	fake_step(r, t, 0);
	fake_answer_none(r, KVW_ETIMEDOUT, "");
	fake_step(r, t, 0);
	fake_answer_error(r, "WRONGPASS invalid username-password pair");
	fake_step(r, t, 0);
	ck_assert_ptr_null(r->asked);
	ck_assert_uint_eq(r->rerouted, 1);
	check_goes_nowhere(5);
	ck_assert_str_eq(why, "seed-b:2: WRONGPASS invalid username-password pair");
	fake_step(r, t, 100 * MS);
	ck_assert_ptr_null(r->asked); /* not without a pause */
	fake_step(r, t, 900 * MS);
	ck_assert_uint_eq(asked_port(), 1);
	check_goes_nowhere(5); /* until a server answers */
	answer_two();
	check_goes(5, 11);
}
END_TEST

START_TEST(every_known_server_and_then_the_seeds_are_asked)
{
	bool seen[23] = {false};

	begin();
	check_goes(5, 11);
	t->ops->down(t, fake_server(r, 11, KVW_REDIS_SERVER_DATA), "gone");
	fake_step(r, t, 300 * MS);
	for (int i = 0; i < 6; i++) {
		uint16_t port = asked_port();

		ck_assert(!seen[port]);
		seen[port] = true;
		ck_assert_int_eq(port < 10, i >= 4);  /* seeds last */
		ck_assert_int_eq(port == 11, i == 3); /* those that failed before them */
		fake_answer_none(r, KVW_EIO, "refused");
		fake_step(r, t, 0);
	}
	ck_assert_ptr_null(r->asked);
	check_goes_nowhere(5);
}
END_TEST

START_TEST(the_map_is_asked_for_again_while_there_are_commands)
{
	begin();
	ck_assert_uint_eq(r->questions, 1);
	fake_step(r, t, 60000 * MS);
	ck_assert_uint_eq(r->questions, 1); /* no reason to ask */
	check_goes(5, 11);
	fake_step(r, t, 0);
	ck_assert_uint_eq(r->questions, 2);
	answer_two();
	check_goes(5, 11);
	fake_step(r, t, 2000 * MS);
	ck_assert_uint_eq(r->questions, 2);
	fake_step(r, t, 4000 * MS);
	answer_two();
	ck_assert_uint_eq(r->questions, 3);
	fake_step(r, t, 60000 * MS);
	ck_assert_uint_eq(r->questions, 3);
	r->busy = true; /* no new ones, but some hang */
	fake_step(r, t, 0);
	ck_assert_uint_eq(r->questions, 4);
}
END_TEST

START_TEST(a_slot_without_an_owner_waits)
{
	check_waits(5);
	fake_step(r, t, 0);
	FAKE_ANSWER(r, "20", "28191", "3h", "311", "3a");
	fake_step(r, t, 0);
	check_goes(8191, 11);
	check_waits(8192);
	fake_step(r, t, 150 * MS);
	ck_assert_ptr_null(r->asked);
	fake_step(r, t, 60 * MS);
	answer_two();
	check_goes(8192, 12);
}
END_TEST

/* --- changes ---------------------------------------------------------------------------------- */

START_TEST(the_heir_of_a_dead_master_is_found_and_the_dead_one_dropped)
{
	struct kvw_redis_server *dead;
	size_t rounds = 0;

	begin();
	check_goes(5, 11);
	dead = fake_server(r, 11, KVW_REDIS_SERVER_DATA);
	for (; rounds < 5; rounds++) { /* the others have not noticed yet */
		ck_assert(t->ops->down(t, dead, "refused"));
		fake_step(r, t, 210 * MS);
		ck_assert_uint_ne(asked_port(), 11);
		answer_two();
		ck_assert(dead->alive);
	}
	ck_assert(t->ops->down(t, dead, "refused"));
	fake_step(r, t, 210 * MS);
	FAKE_ANSWER(r, "20", "28191", "3h", "321", "3b", "28192", "216383", "3h", "312", "3c");
	fake_step(r, t, 0);
	ck_assert(!dead->alive);
	check_goes(5, 21);
	check_goes(9000, 12);
}
END_TEST

START_TEST(a_lost_master_is_asked_about_while_a_command_waits)
{
	struct kvw_redis_server *lost;
	size_t before;

	begin();
	check_goes(5, 11);
	lost = fake_server(r, 11, KVW_REDIS_SERVER_DATA);
	ck_assert(t->ops->down(t, lost, "refused"));
	before = r->questions;
	for (int i = 0; i < 10; i++) { /* one failed attempt; the next may be far away */
		fake_step(r, t, 210 * MS);
		answer_two();
		check_goes(5, 11);
	}
	ck_assert_uint_eq(r->questions, before + 10);
	t->ops->up(t, lost);
	fake_step(r, t, 210 * MS);
	answer_two();
	before = r->questions;
	check_goes(5, 11);
	fake_step(r, t, 2000 * MS);
	ck_assert_uint_eq(r->questions, before);
}
END_TEST

START_TEST(a_master_that_became_a_replica_loses_its_connections)
{
	begin();
	check_goes(5, 11);
	t->ops->down(t, fake_server(r, 11, KVW_REDIS_SERVER_DATA), "reset");
	fake_step(r, t, 210 * MS);
	FAKE_ANSWER(r, "20", "28191", "3h", "321", "3b", "3h", "311", "3a", "28192", "216383", "3h",
		"312", "3c");
	fake_step(r, t, 0);
	ck_assert_ptr_null(fake_server(r, 11, KVW_REDIS_SERVER_DATA));
	check_goes(5, 21);
	/* and is nothing to worry about */
	fake_step(r, t, 1000 * MS);
	ck_assert_ptr_null(r->asked);
}
END_TEST

START_TEST(many_failures_ask_once)
{
	begin();
	check_goes(5, 11);
	for (int i = 0; i < 1000; i++) {
		t->ops->down(t, fake_server(r, 11, KVW_REDIS_SERVER_DATA), "refused");
		fake_step(r, t, MS / 10);
		if (r->asked != NULL)
			answer_two();
	}
	ck_assert_uint_le(r->questions, 2);
}
END_TEST

static enum kvw_redis_verdict error_from(
	uint16_t port, const char *text, struct kvw_redis_command *command)
{
	snprintf(command->text, sizeof(command->text), "%s", text);
	command->progress.redirects++;
	return t->ops->error(
		t, command, kvw_redis_client_server(r, "h", port, KVW_REDIS_SERVER_DATA));
}

START_TEST(moved_counts_at_once_and_its_target_is_asked)
{
	struct kvw_redis_command command = {.slot = 5};

	begin();
	check_goes(5, 11);
	ck_assert_int_eq(error_from(11, "MOVED 5 h:13", &command), KVW_REDIS_VERDICT_AGAIN);
	ck_assert_ptr_null(command.progress.to);
	ck_assert(!command.progress.asking);
	ck_assert_int_le(command.progress.not_before_ns, r->now_ns);
	check_goes(5, 13);
	check_goes(6, 11);
	fake_step(r, t, 210 * MS);
	ck_assert_uint_eq(asked_port(), 13);
	FAKE_ANSWER(r, "20", "216383", "3h", "313", "3e");
	fake_step(r, t, 0);
	check_goes(6, 13);
	ck_assert_ptr_null(fake_server(r, 11, KVW_REDIS_SERVER_DATA));
}
END_TEST

START_TEST(servers_that_point_at_each_other_are_asked_ever_more_slowly)
{
	struct kvw_redis_command command = {.slot = 5};
	int64_t last = 0;

	begin();
	for (int i = 0; i < 40; i++) {
		ck_assert_int_eq(error_from(i % 2 == 0 ? 11 : 13,
					 i % 2 == 0 ? "MOVED 5 h:13" : "MOVED 5 h:11", &command),
			KVW_REDIS_VERDICT_AGAIN);
		last = command.progress.not_before_ns - r->now_ns;
		ck_assert_int_le(last, 100 * MS);
	}
	ck_assert_int_ge(last, 10 * MS);
}
END_TEST

START_TEST(ask_goes_elsewhere_this_once)
{
	struct kvw_redis_command command = {.slot = 5};
	struct kvw_redis_server *importing;

	begin();
	check_goes(5, 11);
	ck_assert_int_eq(error_from(11, "ASK 5 h:14", &command), KVW_REDIS_VERDICT_AGAIN);
	importing = fake_server(r, 14, KVW_REDIS_SERVER_DATA);
	ck_assert_ptr_eq(command.progress.to, importing);
	ck_assert(command.progress.asking);
	check_goes(5, 11);
	/* It is in no map as long as it owns no slot, and may not be dropped for that... */
	fake_step(r, t, 5000 * MS);
	answer_two();
	ck_assert(importing->alive);
	/* ... until no server has named it for a while. */
	check_goes(5, 11);
	fake_step(r, t, 15000 * MS);
	answer_two();
	ck_assert(!importing->alive);
}
END_TEST

START_TEST(other_errors_are_the_callers_or_are_tried_again)
{
	struct kvw_redis_command command = {.slot = 5};

	begin();
	check_goes(5, 11);
	ck_assert_int_eq(
		error_from(11, "WRONGTYPE Operation", &command), KVW_REDIS_VERDICT_DELIVER);
	ck_assert_int_eq(
		error_from(11, "OOM command not allowed", &command), KVW_REDIS_VERDICT_DELIVER);
	ck_assert_int_eq(error_from(11, "MOVED nowhere", &command), KVW_REDIS_VERDICT_DELIVER);
	memset(&command.progress, 0, sizeof(command.progress));
	ck_assert_int_eq(
		error_from(11, "CLUSTERDOWN Hash slot", &command), KVW_REDIS_VERDICT_AGAIN);
	ck_assert_int_gt(command.progress.not_before_ns, r->now_ns);
	memset(&command.progress, 0, sizeof(command.progress));
	ck_assert_int_eq(error_from(11, "TRYAGAIN Multiple", &command), KVW_REDIS_VERDICT_AGAIN);
	ck_assert_int_gt(command.progress.not_before_ns, r->now_ns);
	ck_assert_int_eq(error_from(11, "LOADING", &command), KVW_REDIS_VERDICT_AGAIN);
}
END_TEST

START_TEST(a_server_that_says_the_cluster_is_down_is_asked_last)
{
	struct kvw_redis_command command = {.slot = 5};

	begin();
	check_goes(5, 11);
	check_goes(9000, 12);
	ck_assert_int_eq(error_from(11, "CLUSTERDOWN The cluster is down", &command),
		KVW_REDIS_VERDICT_AGAIN);
	fake_step(r, t, 210 * MS);
	for (int i = 0; i < 3; i++) {
		ck_assert_uint_ne(asked_port(), 11);
		fake_answer_none(r, KVW_EIO, "refused");
		fake_step(r, t, 0);
	}
	ck_assert_uint_eq(asked_port(), 11);
}
END_TEST

START_TEST(redirections_to_many_servers_are_bounded)
{
	struct kvw_redis_command command = {.slot = 5};
	char text[64];

	begin();
	for (unsigned i = 0; i < 2000; i++) {
		snprintf(text, sizeof(text), "%s %u h:%u", i % 2 ? "ASK" : "MOVED", i, 1000 + i);
		ck_assert_int_eq(error_from(11, text, &command), KVW_REDIS_VERDICT_AGAIN);
	}
	ck_assert_uint_le(fake_alive(r), KVW_REDIS_SERVERS + 2);
	fake_step(r, t, 300 * MS);
	while (asked_port() >= 1000) {
		fake_answer_none(r, KVW_EIO, "refused");
		fake_step(r, t, 0);
	}
	answer_two(); /* its servers find room */
	check_goes(5, 11);
	check_goes(9000, 12);
}
END_TEST

START_TEST(describes_itself)
{
	char text[32];

	t->ops->describe(t, text, sizeof(text));
	ck_assert_str_eq(text, "cluster");
	begin();
	t->ops->describe(t, text, sizeof(text));
	ck_assert_str_eq(text, "cluster of 2");
}
END_TEST

/* --- anything at all -------------------------------------------------------------------------- */

static void random_answer(void)
{
	char texts[24][8];
	const char *list[24];
	size_t n = 0;
	uint32_t first = 0;

	switch (kvw_redis_client_random(r, 6)) {
	case 0:
		fake_answer_none(r, KVW_EIO, "refused");
		return;
	case 1:
		fake_answer_error(r, "ERR no");
		return;
	default:
		break;
	}
	while (n + 5 <= 20 && first < KVW_REDIS_SLOTS) {
		uint32_t last = first + kvw_redis_client_random(r, KVW_REDIS_SLOTS - first);

		snprintf(texts[n], 8, "2%u", first);
		snprintf(texts[n + 1], 8, "2%u", last);
		snprintf(texts[n + 2], 8, "3h");
		snprintf(texts[n + 3], 8, "3%u", 10 + kvw_redis_client_random(r, 300));
		snprintf(texts[n + 4], 8, "3id");
		n += 5;
		first = last + 1 + kvw_redis_client_random(r, 3);
	}
	for (size_t i = 0; i < n; i++)
		list[i] = texts[i];
	fake_answer(r, list, n);
}

START_TEST(nothing_that_happens_breaks_it)
{
	size_t reached = 0;

	for (int i = 0; i < 30000; i++) {
		struct kvw_redis_command command = {
			.slot = kvw_redis_client_random(r, KVW_REDIS_SLOTS)};
		struct kvw_redis_server *server;
		char text[64];

		fake_step(r, t, kvw_redis_client_random(r, 30) * MS);
		if (r->asked != NULL && kvw_redis_client_random(r, 3) == 0)
			random_answer();
		if (t->ops->route(t, &command, &server, &why) != KVW_REDIS_ROUTE_TO)
			continue;
		reached++;
		ck_assert(server->alive);
		server->ready = kvw_redis_client_random(r, 2);
		switch (kvw_redis_client_random(r, 6)) {
		case 0:
			snprintf(text, sizeof(text), "MOVED %u h:%u", command.slot,
				10 + kvw_redis_client_random(r, 400));
			error_from(server->port, text, &command);
			break;
		case 1:
			snprintf(text, sizeof(text), "ASK %u h:%u", command.slot,
				10 + kvw_redis_client_random(r, 400));
			error_from(server->port, text, &command);
			break;
		case 2:
			ck_assert(t->ops->down(t, server, "gone"));
			break;
		default:
			t->ops->up(t, server);
		}
		ck_assert_uint_le(fake_alive(r), KVW_REDIS_SERVERS + 2);
	}
	ck_assert_uint_gt(reached, 1000);
	ck_assert_uint_gt(r->dropped, 100);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("topology_cluster");
	TCase *maps = tcase_create("maps"), *changes = tcase_create("changes");

	tcase_add_checked_fixture(maps, setup, teardown);
	tcase_add_test(maps, nothing_happens_before_the_first_command);
	tcase_add_test(maps, the_first_command_waits_for_the_map);
	tcase_add_test(maps, a_command_without_a_key_goes_to_some_master);
	tcase_add_test(maps, the_next_is_asked_when_one_cannot_say);
	tcase_add_test(maps, answers_without_sense_or_slots_are_not_believed);
	tcase_add_test(maps, when_no_server_answers_commands_end_and_the_reason_is_reported);
	tcase_add_test(maps, every_known_server_and_then_the_seeds_are_asked);
	tcase_add_test(maps, the_map_is_asked_for_again_while_there_are_commands);
	tcase_add_test(maps, a_slot_without_an_owner_waits);
	suite_add_tcase(suite, maps);
	tcase_add_checked_fixture(changes, setup, teardown);
	tcase_add_test(changes, the_heir_of_a_dead_master_is_found_and_the_dead_one_dropped);
	tcase_add_test(changes, a_lost_master_is_asked_about_while_a_command_waits);
	tcase_add_test(changes, a_master_that_became_a_replica_loses_its_connections);
	tcase_add_test(changes, many_failures_ask_once);
	tcase_add_test(changes, moved_counts_at_once_and_its_target_is_asked);
	tcase_add_test(changes, servers_that_point_at_each_other_are_asked_ever_more_slowly);
	tcase_add_test(changes, ask_goes_elsewhere_this_once);
	tcase_add_test(changes, other_errors_are_the_callers_or_are_tried_again);
	tcase_add_test(changes, a_server_that_says_the_cluster_is_down_is_asked_last);
	tcase_add_test(changes, redirections_to_many_servers_are_bounded);
	tcase_add_test(changes, describes_itself);
	tcase_add_test(changes, nothing_that_happens_breaks_it);
	tcase_set_timeout(changes, 120);
	suite_add_tcase(suite, changes);
	return run_suite(suite);
}
