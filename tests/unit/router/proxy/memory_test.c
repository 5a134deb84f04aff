/*
 * memory_test.c - one request while memory runs out at each of its allocations in turn.
 *
 * The linker sends malloc, calloc, realloc and aligned_alloc of this program through the functions
 * below (-Wl,--wrap). Whatever is missing, the client gets a whole answer, an error or a cut, the loop
 * serves the next request, and nothing stays counted.
 */
#include <check.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "loop_fixture.h"
#include "tests/unit/failing_allocator.h"
#include "tests/unit/suite.h"

static long allowed = -1; /* allocations until the one that fails; below 0: none does */
static bool failed_one;

void *__real_aligned_alloc(size_t alignment, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);

static bool fails(void)
{
	if (allowed < 0 || allowed-- > 0)
		return false;
	failed_one = true;
	return true;
}

void *__wrap_aligned_alloc(size_t alignment, size_t size)
{
	return fails() ? NULL : __real_aligned_alloc(alignment, size);
}

#define PIECE 20000

static char request[2 * PIECE], answer[2 * PIECE];
static int wholes; /* requests that the second worker got whole */

/* A chunked request larger than a small block, and an answer alike. */
static void write_messages(void)
{
	int len = snprintf(request, sizeof(request),
		"POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: "
		"chunked\r\n\r\n%x\r\n"
		"{\"model\":\"tiny\",\"prompt\":\"",
		PIECE);
	size_t body = (size_t)len - strlen("{\"model\":\"tiny\",\"prompt\":\"");

	memset(request + len, 'p', body + PIECE - (size_t)len);
	memcpy(request + body + PIECE - 2, "\"}\r\n0\r\n\r\n", 10);
	len = snprintf(answer, sizeof(answer),
		"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
		"transfer-encoding: chunked\r\n\r\n%x\r\n",
		PIECE);
	memset(answer + len, 'a', PIECE);
	memcpy(answer + len + PIECE, "\r\n0\r\n\r\n", 8);
}

/* The worker's side: takes a connection if one comes, and answers in three pieces. */
static void serve(struct loop_fixture *f)
{
	struct pollfd wait = {.fd = f->listener, .events = POLLIN};
	size_t len = strlen(answer);
	int fd;

	if (poll(&wait, 1, 10) != 1)
		return;
	fd = accept(f->listener, NULL, NULL);
	loop_fixture_turn(f);
	(void)!send(fd, answer, 30, MSG_NOSIGNAL);
	loop_fixture_turn(f);
	(void)!send(fd, answer + 30, 100, MSG_NOSIGNAL);
	loop_fixture_turn(f);
	(void)!send(fd, answer + 130, len - 130, MSG_NOSIGNAL);
	loop_fixture_turn(f);
	close(fd);
	loop_fixture_turn(f);
}

/* One request by a client of its own. Returns what the client got, NUL behind it. */
static const char *ask(struct loop_fixture *f)
{
	static char got[8 * PIECE];
	size_t len = 0;
	ssize_t n;
	int peer;

	loop_fixture_offer(f, &peer);
	loop_fixture_turn(f);
	if (send(peer, request, strlen(request), MSG_NOSIGNAL) > 0)
		loop_fixture_turn(f);
	serve(f);
	while ((n = recv(peer, got + len, sizeof(got) - 1 - len, MSG_DONTWAIT)) > 0)
		len += (size_t)n;
	got[len] = '\0';
	close(peer);
	loop_fixture_turn(f);
	return got;
}

START_TEST(request_survives_any_failed_allocation)
{
	long n = 0;

	write_messages();
	do {
		struct loop_fixture f;
		const char *got;

		loop_fixture_init(&f);
		failed_one = false;
		allowed = n;
		got = ask(&f);
		allowed = -1;
		ck_assert_msg(
			got[0] == '\0' || strncmp(got, "HTTP/1.1 ", 9) == 0, "%ld: %s", n, got);
		if (!failed_one)
			ck_assert(strncmp(got, "HTTP/1.1 200 ", 13) == 0);
		loop_fixture_check_idle(&f);
		ck_assert_uint_eq(f.loop.client_count, 0);
		got = ask(&f);
		ck_assert_msg(strncmp(got, "HTTP/1.1 200 ", 13) == 0 &&
				      strstr(got, "\r\n0\r\n\r\n") != NULL,
			"%ld: the next request: %s", n, got);
		loop_fixture_check_idle(&f);
		loop_fixture_finish(&f);
		n++;
	} while (failed_one);
	ck_assert_int_gt(n, 8);
}
END_TEST

/* --- a body that gets another name for its model --- */

#define SMALL (KVW_BLOCK_SMALL - sizeof(struct kvw_block)) /* bytes that a small block holds */
#define HELD  600                                          /* more blocks than a loop has without an allocation */

/* Fills a small block to its end, so that each longer name needs one more. */
static void write_full_request(void)
{
	static const char models[] = ",\"model\":\"tiny\",\"model\":\"tiny\",\"model\":\"tiny\"}";
	size_t before = strlen("{\"prompt\":\""), body = 1000, len = 0;
	size_t text = 0;

	for (int i = 0; i < 2; i++) { /* its length is known when its head's is */
		len = (size_t)snprintf(request, sizeof(request),
			"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %zu\r\n\r\n{\"prompt\":\"", body);
		body = SMALL - len + before;
	}
	text = SMALL - len - strlen(models) - 1;
	memset(request + len, 'p', text);
	request[len + text] = '"';
	memcpy(request + len + text + 1, models, sizeof(models));
	ck_assert_uint_eq(strlen(request), SMALL);
}

/* What the second group's worker was sent: all of it under its own name, or nothing. */
static void check_second(struct loop_fixture *f, long n)
{
	static char got[2 * PIECE];
	struct pollfd wait = {.fd = f->second, .events = POLLIN};
	const char *body, *length;
	size_t len = 0;
	ssize_t more;
	int fd;

	if (poll(&wait, 1, 10) != 1)
		return;
	fd = accept(f->second, NULL, NULL);
	loop_fixture_turn(f);
	while ((more = recv(fd, got + len, sizeof(got) - 1 - len, MSG_DONTWAIT)) > 0)
		len += (size_t)more;
	got[len] = '\0';
	close(fd);
	if (len == 0) /* there was no memory for its head */
		return;
	body = strstr(got, "\r\n\r\n");
	length = strstr(got, "ontent-");
	ck_assert_msg(body != NULL && length != NULL, "%ld: %.200s", n, got);
	ck_assert_msg(strtoul(strchr(length, ':') + 1, NULL, 10) == strlen(body + 4), "%ld: %zu bytes: %.200s", n,
		strlen(body + 4), got);
	ck_assert_msg(strstr(body, "\"tiny\"") == NULL, "%ld: sent under another group's name", n);
	wholes++;
}

START_TEST(body_that_gets_another_name_is_sent_whole_or_not_at_all)
{
	/* Where memory failed between two edits it went, half changed and with a wrong length, to the other group, and the
	 * loop turned without a pause, waiting for bytes that there are none of. */
	long n = 0;

	write_full_request();
	wholes = 0;
	do {
		struct kvw_block *held[HELD];
		struct loop_fixture f;
		int peer, fd;

		loop_fixture_init_divided(&f);
		for (size_t i = 0; i < HELD; i++)
			held[i] = kvw_block_get(&f.loop.blocks, KVW_BLOCK_SMALL);
		loop_fixture_bar(&f, 1, true);
		loop_fixture_offer(&f, &peer);
		ck_assert_int_eq(send(peer, request, strlen(request), MSG_NOSIGNAL), (ssize_t)SMALL);
		loop_fixture_turn(&f);
		fd = accept(f.listener, NULL, NULL);
		loop_fixture_turn(&f);
		loop_fixture_bar(&f, 0, true);
		loop_fixture_bar(&f, 1, false);
		failed_one = false;
		allowed = n;
		shutdown(fd, SHUT_RDWR);
		loop_fixture_turn(&f);
		allowed = -1;
		check_second(&f, n);
		close(fd);
		close(peer);
		loop_fixture_turn(&f);
		loop_fixture_check_idle(&f);
		for (size_t i = 0; i < HELD; i++)
			kvw_block_put(&f.loop.blocks, held[i]);
		loop_fixture_finish(&f);
		n++;
	} while (failed_one);
	ck_assert_int_gt(n, 4);
	ck_assert_int_gt(wholes, 0);
}
END_TEST

START_TEST(loop_that_cannot_be_made_leaves_nothing)
{
	enum kvw_err err;
	long n = 0;

	do {
		struct loop_fixture f;

		allowed = -1;
		loop_fixture_init(&f);
		kvw_loop_finish(&f.loop);
		failed_one = false;
		allowed = n++;
		err = loop_fixture_loop(&f);
		allowed = -1;
		ck_assert(err == KVW_OK || failed_one);
		if (err != KVW_OK)
			ck_assert_int_eq(loop_fixture_loop(&f), KVW_OK);
		loop_fixture_finish(&f);
	} while (err != KVW_OK);
	ck_assert_int_gt(n, 4);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("memory");

	tcase_set_timeout(tcase, 240);
	tcase_add_test(tcase, request_survives_any_failed_allocation);
	tcase_add_test(tcase, body_that_gets_another_name_is_sent_whole_or_not_at_all);
	tcase_add_test(tcase, loop_that_cannot_be_made_leaves_nothing);
	return run_tcase("memory", tcase);
}
