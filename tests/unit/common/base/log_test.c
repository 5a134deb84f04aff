/*
 * log_test.c - each message is one line and one write, and the level holds.
 */
#include <check.h>
#include <fcntl.h>
#include <pthread.h>
#include <regex.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "tests/unit/suite.h"

/* Standard error is a file from here on. */
static FILE *capture(void)
{
	FILE *file = tmpfile();

	ck_assert_ptr_nonnull(file);
	ck_assert_int_ge(dup2(fileno(file), STDERR_FILENO), 0);
	return file;
}

static size_t read_back(FILE *file, char *text, size_t size)
{
	size_t n;

	rewind(file);
	n = fread(text, 1, size - 1, file);
	text[n] = '\0';
	return n;
}

START_TEST(line_has_time_level_room_and_text)
{
	static const char pattern[] =
		"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\\.[0-9]{3}Z warn  room: "
		"x=7 y=\"z\"\n$";
	FILE *file = capture();
	char text[4096];
	regex_t regex;

	kvw_warn("room", "x=%d y=\"%s\"", 7, "z");
	read_back(file, text, sizeof(text));
	ck_assert_int_eq(regcomp(&regex, pattern, REG_EXTENDED | REG_NOSUB), 0);
	ck_assert_msg(regexec(&regex, text, 0, NULL, 0) == 0, "%s", text);
	regfree(&regex);
	fclose(file);
}
END_TEST

START_TEST(levels_below_the_least_are_silent)
{
	FILE *file = capture();
	char text[4096];

	kvw_log_set_level(KVW_LOG_WARN);
	kvw_debug("room", "one");
	kvw_info("room", "two");
	kvw_warn("room", "three");
	kvw_error("room", "four");
	ck_assert(!kvw_log_enabled(KVW_LOG_INFO));
	ck_assert(kvw_log_enabled(KVW_LOG_ERROR));
	kvw_log_set_level(KVW_LOG_DEBUG);
	kvw_debug("room", "five");
	read_back(file, text, sizeof(text));
	ck_assert_ptr_null(strstr(text, "one"));
	ck_assert_ptr_null(strstr(text, "two"));
	ck_assert_ptr_nonnull(strstr(text, "three"));
	ck_assert_ptr_nonnull(strstr(text, "four"));
	ck_assert_ptr_nonnull(strstr(text, "five"));
	fclose(file);
}
END_TEST

/* A peer's text, such as a reason that libcurl passes on, makes no second line and commands no terminal. */
START_TEST(texts_of_peers_make_no_lines_of_their_own)
{
	FILE *file = capture();
	char text[4096];
	char *at;

	kvw_warn("room", "why=\"%s\"", "a\n2026-01-01T00:00:00.000Z error app: forged\r\x1b[2J\x7f\t\xc2\x9b" "31m \xc3\xa9 end");
	read_back(file, text, sizeof(text));
	at = strchr(text, '\n');
	ck_assert_ptr_nonnull(at);
	ck_assert_str_eq(at, "\n");
	ck_assert_ptr_nonnull(strstr(text, "why=\"a?2026-01-01T00:00:00.000Z error app: forged??[2J????31m \xc3\xa9 end\""));
	fclose(file);
}
END_TEST

START_TEST(long_text_is_cut_and_still_one_line)
{
	FILE *file = capture();
	char text[8192], word[5000];
	size_t len;

	memset(word, 'w', sizeof(word));
	word[sizeof(word) - 1] = '\0';
	kvw_error("room", "%s", word);
	kvw_error("room", "after");
	len = read_back(file, text, sizeof(text));
	ck_assert_uint_lt(len, 2000);
	ck_assert_int_eq(text[len - 1], '\n');
	ck_assert_ptr_eq(strchr(strchr(text, '\n') + 1, '\n'), text + len - 1); /* two lines */
	ck_assert_ptr_nonnull(strstr(text, "room: after\n"));
	fclose(file);
}
END_TEST

/* Quotation marks are the format's alone: one of a text would end its field. */
START_TEST(texts_of_peers_make_no_fields_of_their_own)
{
	FILE *file = capture();
	char text[8192], most[2048], all[64];
	size_t n = 0;

	memset(most, 'w', sizeof(most));
	most[sizeof(most) - 1] = '\0';
	memcpy(most, "x\" key=\"root\"", 13);
	for (char c = 1; c < ' '; c++)
		all[n++] = c;
	memcpy(all + n, "x\" key=\"root", 13);
	kvw_warn("room", "path=\"%s\" key=\"%s\" n=%d", "x\" key=\"root", "ops", 7);
	kvw_warn("room", "path=\"%s\" key=\"%s\"", "\x01 key=\x01root\"", "ops");
	kvw_warn("room", "path=\"%s\" key=\"%s\"", most, "ops"); /* cut, with as many marks as the format has */
	kvw_warn("room", "path=\"%s\" key=\"%s\"", all, "ops");
	read_back(file, text, sizeof(text));
	ck_assert_ptr_null(strstr(text, "\"root"));
	ck_assert_ptr_nonnull(strstr(text, "path=\"x' key='root\" key=\"ops\" n=7\n"));
	ck_assert_ptr_nonnull(strstr(text, "path=\"? key=?root'\" key=\"ops\"\n"));
	ck_assert_ptr_nonnull(strstr(text, "path=\"x' key='root'www"));
	fclose(file);
}
END_TEST

START_TEST(long_text_ends_with_a_whole_character)
{
	FILE *file = capture();
	char text[8192], word[3001];
	int lines = 0;

	for (size_t i = 0; i < 1000; i++)
		memcpy(word + 3 * i, "\xe2\x82\xac", 4);
	for (const char *before = "..."; *before != '\0'; before++) /* one of three lines would end between characters */
		kvw_error("room", "%s%s", before, word);
	read_back(file, text, sizeof(text));
	for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n")) {
		ck_assert_uint_gt(strlen(line), 1000);
		ck_assert_str_eq(line + strlen(line) - 3, "\xe2\x82\xac");
		lines++;
	}
	ck_assert_int_eq(lines, 3);
	fclose(file);
}
END_TEST

#define THREADS 4
#define LINES   500

static void *write_lines(void *arg)
{
	for (int i = 0; i < LINES; i++)
		kvw_error("room", "thread=%s line=%d end", (const char *)arg, i);
	return NULL;
}

START_TEST(lines_of_threads_stay_whole)
{
	static char text[THREADS * LINES * 100];
	static char names[THREADS][8] = {"a", "bb", "ccc", "dddd"};
	FILE *file = capture();
	pthread_t threads[THREADS];
	int lines = 0;

	(void)fcntl(STDERR_FILENO, F_SETFL, O_APPEND);
	for (int i = 0; i < THREADS; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, write_lines, names[i]), 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	read_back(file, text, sizeof(text));
	for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n")) {
		char name[8], end[8];
		int number;

		ck_assert_msg(sscanf(strstr(line, "room: "), "room: thread=%7s line=%d %7s", name,
				      &number, end) == 3 &&
				      strcmp(end, "end") == 0,
			"%s", line);
		lines++;
	}
	ck_assert_int_eq(lines, THREADS * LINES);
	fclose(file);
}
END_TEST

START_TEST(line_that_cannot_be_written_is_counted)
{
	int pipe_fd[2], saved = dup(STDERR_FILENO);
	uint64_t before = kvw_log_dropped();

	(void)signal(SIGPIPE, SIG_IGN);
	ck_assert_int_eq(pipe(pipe_fd), 0);
	close(pipe_fd[0]);
	ck_assert_int_ge(dup2(pipe_fd[1], STDERR_FILENO), 0);
	kvw_error("room", "lost");
	dup2(saved, STDERR_FILENO);
	ck_assert_uint_eq(kvw_log_dropped(), before + 1);
	close(pipe_fd[1]);
	close(saved);
}
END_TEST

static void make_line(char *out, size_t room, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	kvw_log_line(out, room, format, args);
	va_end(args);
}

START_TEST(line_for_another_log_is_cut_and_clean)
{
	char line[8], wide[64];

	make_line(line, sizeof(line), "%s", "a\nb\177c\r");
	ck_assert_str_eq(line, "a?b?c?");
	make_line(line, sizeof(line), "%d and more", 42);
	ck_assert_str_eq(line, "42 and ");
	make_line(wide, sizeof(wide), "key=\"%s\"", "a\" by=\"root");
	ck_assert_str_eq(wide, "key=\"a' by='root\"");
	make_line(wide, sizeof(wide), "key=\"%s\"", "\xc3\xa9\xc2\x9b\"");
	ck_assert_str_eq(wide, "key=\"\xc3\xa9?" "?'\"");
}
END_TEST

/* An event loop that logs must not wait for whatever reads its log. */
START_TEST(full_pipe_drops_lines_and_blocks_nothing)
{
	uint64_t before = kvw_log_dropped();
	char text[65536];
	int ends[2];
	ssize_t n;

	ck_assert_int_eq(pipe(ends), 0);
	ck_assert_int_ge(dup2(ends[1], STDERR_FILENO), 0);
	for (int i = 0; i < 4000; i++)
		kvw_error("room", "line %d of many that nothing reads", i);
	ck_assert_uint_gt(kvw_log_dropped(), before);
	n = read(ends[0], text, sizeof(text));
	ck_assert_int_gt(n, 0);
	ck_assert_int_eq(text[n - 1], '\n');
	before = kvw_log_dropped();
	kvw_error("room", "there is room again");
	ck_assert_uint_eq(kvw_log_dropped(), before);
	close(ends[0]);
	close(ends[1]);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("log");

	tcase_set_timeout(tcase, 120);
	tcase_add_test(tcase, line_has_time_level_room_and_text);
	tcase_add_test(tcase, levels_below_the_least_are_silent);
	tcase_add_test(tcase, texts_of_peers_make_no_lines_of_their_own);
	tcase_add_test(tcase, long_text_is_cut_and_still_one_line);
	tcase_add_test(tcase, texts_of_peers_make_no_fields_of_their_own);
	tcase_add_test(tcase, long_text_ends_with_a_whole_character);
	tcase_add_test(tcase, lines_of_threads_stay_whole);
	tcase_add_test(tcase, line_that_cannot_be_written_is_counted);
	tcase_add_test(tcase, line_for_another_log_is_cut_and_clean);
	tcase_add_test(tcase, full_pipe_drops_lines_and_blocks_nothing);
	return run_tcase("log", tcase);
}
