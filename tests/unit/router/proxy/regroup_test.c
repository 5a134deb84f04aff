/*
 * regroup_test.c - a request whose group has no worker left, and whose body may have to name another model.
 */
#include <check.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "loop_fixture.h"
#include "proxy/forward.h"
#include "tests/unit/suite.h"

#define NAME "\"model\":\"tiny\""
#define THREE NAME "," NAME "," NAME

static const char *const often = "{" THREE "," THREE "," THREE "," THREE "," THREE "," THREE ",\"prompt\":\"a\"}"; /* to be rewritten: too often */

static struct loop_fixture f;
static struct kvw_exchange *x;
static int peer, first; /* the client's end; the connection to the first group's worker */

static void setup(void)
{
	loop_fixture_init_divided(&f);
}

static void teardown(void)
{
	loop_fixture_finish(&f);
	close(peer);
	close(first);
}

/* Sends it, and then lets the first group have no worker: the second one could take it. */
static void begin(const char *body)
{
	struct kvw_client *client = loop_fixture_client(&f, &peer);
	char text[1024];
	int len = snprintf(text, sizeof(text), "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %zu\r\n\r\n%s",
		strlen(body), body);

	loop_fixture_bar(&f, 1, true);
	ck_assert_int_eq(write(peer, text, (size_t)len), len);
	loop_fixture_turn(&f);
	first = accept(f.listener, NULL, NULL);
	ck_assert_int_ge(first, 0);
	loop_fixture_turn(&f);
	x = client->exchange;
	ck_assert_ptr_nonnull(x);
	ck_assert_str_eq(x->division.group->group, "a");
	ck_assert_int_eq(x->request_state, KVW_REQUEST_SENT);
	loop_fixture_bar(&f, 0, true);
	loop_fixture_bar(&f, 1, false);
}

static bool second_is_asked(void)
{
	struct pollfd wait = {.fd = f.second, .events = POLLIN};

	return poll(&wait, 1, 50) == 1;
}

/* What has come, NUL behind it. */
static const char *hear(int fd)
{
	static char text[4096];
	ssize_t n = recv(fd, text, sizeof(text) - 1, MSG_DONTWAIT);

	text[n < 0 ? 0 : n] = '\0';
	return text;
}

START_TEST(another_group_gets_it_under_its_own_name)
{
	const char *got;
	int second;

	begin("{" THREE ",\"prompt\":\"a\"}");
	shutdown(first, SHUT_RDWR);
	loop_fixture_turn(&f);
	ck_assert(second_is_asked());
	second = accept(f.second, NULL, NULL);
	loop_fixture_turn(&f);
	got = hear(second);
	ck_assert_ptr_nonnull(strstr(got, "tiny-next"));
	ck_assert_ptr_null(strstr(got, "\"tiny\""));
	ck_assert_str_eq(x->division.group->group, "b");
	close(second);
}
END_TEST

START_TEST(a_body_that_cannot_be_changed_reaches_no_other_group)
{
	/* It was sent there under the name of its own group, and counted as that group's. */
	begin(often);
	shutdown(first, SHUT_RDWR);
	loop_fixture_turn(&f);
	ck_assert(!second_is_asked());
	ck_assert_ptr_nonnull(strstr(hear(peer), "HTTP/1.1 502 "));
	loop_fixture_check_idle(&f);
}
END_TEST

START_TEST(a_body_that_cannot_be_changed_is_refused_before_it_was_tried)
{
	struct kvw_candidates set = {0};

	begin(often);
	ck_assert(!kvw_request_candidates(x, &set));
	ck_assert_ptr_null(set.items);
	ck_assert_int_eq(x->division.fault, KVW_GROUP_UNWRITTEN); /* 400 */
	ck_assert_str_eq(x->division.group->group, "a");
}
END_TEST

START_TEST(without_another_group_the_candidates_are_its_own)
{
	/* The look at another group left its workers where those of the request's own were expected. */
	struct kvw_candidates set = {0};

	begin("{" NAME ",\"prompt\":\"a\"}");
	loop_fixture_bar(&f, 1, true);
	ck_assert(kvw_request_candidates(x, &set));
	ck_assert_uint_eq(set.count, 1);
	ck_assert_uint_eq(set.items[0].id, f.fleet->workers[0]->id);
	ck_assert(!set.items[0].usable);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("regroup");

	tcase_set_timeout(tcase, 120);
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, another_group_gets_it_under_its_own_name);
	tcase_add_test(tcase, a_body_that_cannot_be_changed_reaches_no_other_group);
	tcase_add_test(tcase, a_body_that_cannot_be_changed_is_refused_before_it_was_tried);
	tcase_add_test(tcase, without_another_group_the_candidates_are_its_own);
	return run_tcase("regroup", tcase);
}
