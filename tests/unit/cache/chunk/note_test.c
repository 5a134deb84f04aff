/*
 * note_test.c - lines reach the log they were meant for, whole, cut and clean; clocks likewise.
 */
#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "chunk/note.h"
#include "tests/unit/suite.h"

struct heard {
	uint32_t level;
	char line[1024];
	int lines;
};

static void hear(void *self, uint32_t level, const char *line)
{
	struct heard *heard = self;

	heard->level = level;
	heard->lines++;
	strcpy(heard->line, line);
	errno = EBADF;
}

static int64_t seven(void *self)
{
	return *(int64_t *)self;
}

START_TEST(test_line)
{
	struct heard heard = {0};
	struct kvt_surroundings s;
	struct kvt_config config = {.log = hear, .log_self = &heard};

	kvt_surroundings_init(&s, &config);
	errno = ENOSPC;
	kvt_note(&s, KVT_LOG_WARN, "tier %s: %d", "nvme", 42);
	ck_assert_int_eq(errno, ENOSPC);
	ck_assert_int_eq(heard.lines, 1);
	ck_assert_uint_eq(heard.level, KVT_LOG_WARN);
	ck_assert_str_eq(heard.line, "tier nvme: 42");
	kvt_note(&s, KVT_LOG_ERROR, "%s", "a\nb\033[2J\177c\303\244");
	ck_assert_str_eq(heard.line, "a?b?[2J?c\303\244");
}
END_TEST

START_TEST(test_long_line_is_cut)
{
	struct heard heard = {0};
	struct kvt_surroundings s;
	struct kvt_config config = {.log = hear, .log_self = &heard};
	char text[900];

	memset(text, 'x', sizeof(text));
	text[sizeof(text) - 1] = '\0';
	kvt_surroundings_init(&s, &config);
	kvt_note(&s, KVT_LOG_INFO, "%s", text);
	ck_assert_uint_eq(strlen(heard.line), 500);
}
END_TEST

START_TEST(test_clocks)
{
	int64_t time_ns = 7;
	struct kvt_clock whole = {.now_ns = seven, .wall_ns = seven, .self = &time_ns};
	struct kvt_clock half = {.now_ns = seven, .self = &time_ns};
	struct kvt_surroundings s;
	int64_t first;

	kvt_surroundings_init(&s, NULL);
	first = kvt_now(&s);
	ck_assert_int_gt(first, 0);
	ck_assert_int_ge(kvt_now(&s), first);
	ck_assert_int_gt(kvt_wall(&s), INT64_C(1600000000) * 1000000000);
	kvt_surroundings_init(&s, &(struct kvt_config){.clock = &whole});
	ck_assert_int_eq(kvt_now(&s), 7);
	ck_assert_int_eq(kvt_wall(&s), 7);
	time_ns = 8;
	ck_assert_int_eq(kvt_now(&s), 8);
	kvt_surroundings_init(&s, &(struct kvt_config){.clock = &half});
	ck_assert_int_eq(kvt_now(&s), 8);
	ck_assert_int_gt(kvt_wall(&s), 8);
}
END_TEST

START_TEST(test_standard_error)
{
	struct kvt_surroundings s;
	char text[1024];
	int pipes[2], saved = dup(STDERR_FILENO);
	ssize_t n;

	ck_assert_int_eq(pipe(pipes), 0);
	ck_assert_int_ge(saved, 0);
	kvt_surroundings_init(&s, &(struct kvt_config){0});
	ck_assert_int_ge(dup2(pipes[1], STDERR_FILENO), 0);
	kvt_note(&s, KVT_LOG_DEBUG, "not shown");
	kvt_note(&s, KVT_LOG_WARN, "shown %d", 1);
	ck_assert_int_ge(dup2(saved, STDERR_FILENO), 0);
	n = read(pipes[0], text, sizeof(text) - 1);
	ck_assert_int_gt(n, 0);
	text[n] = '\0';
	ck_assert_ptr_nonnull(strstr(text, "Z warn  kvtier: shown 1\n"));
	ck_assert_ptr_null(strstr(text, "not shown"));
	close(saved);
	close(pipes[0]);
	close(pipes[1]);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("all");

	tcase_add_test(tcase, test_line);
	tcase_add_test(tcase, test_long_line_is_cut);
	tcase_add_test(tcase, test_clocks);
	tcase_add_test(tcase, test_standard_error);
	return run_tcase("note", tcase);
}
