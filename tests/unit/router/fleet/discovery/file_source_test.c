/*
 * file_source_test.c - a worker file that is written, replaced, broken, taken away.
 *
 * The interval is an hour unless a test is about it: what is seen sooner, inotify has reported.
 */
#include "found.h"

#include <fcntl.h>
#include <ftw.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fleet/discovery/worker_list.h"
#include "tests/unit/suite.h"

#define ONE "workers: [{url: http://a:1}]\n"
#define TWO "workers: [{url: http://a:1}, {url: http://b:1}]\n"

static struct event_base *base;
static struct kvw_source *source;
static struct found got;
static char folder[64];

static const char *in_folder(const char *name)
{
	static char path[256];

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	return path;
}

static void write_file(const char *name, const char *text)
{
	FILE *out = fopen(in_folder(name), "w");

	ck_assert_ptr_nonnull(out);
	fputs(text, out);
	fclose(out);
}

static void move(const char *from, const char *to)
{
	char old[256];

	strcpy(old, in_folder(from));
	ck_assert_int_eq(rename(old, in_folder(to)), 0);
}

static void link_to(const char *target, const char *name)
{
	ck_assert_int_eq(symlink(target, in_folder(name)), 0);
}

static void begin(const char *interval)
{
	struct kvw_config *config;
	char lines[512];

	snprintf(lines, sizeof(lines), "  file: %s\n  file_interval: %s\n",
		in_folder("workers.yaml"), interval);
	config = config_with(lines);
	ck_assert(kvw_source_file.configured(config));
	ck_assert_int_eq(kvw_source_file.start(base, config, on_found, &got, &source), KVW_OK);
	kvw_config_destroy(config); /* borrowed during start only */
}

static void start(void)
{
	memset(&got, 0, sizeof(got));
	strcpy(folder, "/tmp/kvw-file-source-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(folder));
	base = event_base_new();
	source = NULL;
}

static int remove_one(const char *path, const struct stat *st, int what, struct FTW *at)
{
	(void)st;
	(void)what;
	(void)at;
	return remove(path);
}

static void stop(void)
{
	kvw_source_file.stop(source);
	event_base_free(base);
	nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

START_TEST(it_is_read_at_the_start_and_when_it_is_written)
{
	write_file("workers.yaml", ONE);
	begin("1h");
	ck_assert_uint_eq(got.lists, 1); /* before start returned */
	ck_assert_str_eq(got.urls, "http://a:1");
	write_file("workers.yaml", TWO);
	turn_until(base, &got.lists, 2);
	ck_assert_str_eq(got.urls, "http://a:1 http://b:1");
	ck_assert_uint_eq(got.failures, 0);
}
END_TEST

START_TEST(it_is_read_when_it_is_replaced_by_a_rename)
{
	write_file("workers.yaml", ONE);
	begin("1h");
	write_file("new", TWO);
	turn_for(base, 150); /* another file is none of ours */
	ck_assert_uint_eq(got.lists, 1);
	move("new", "workers.yaml");
	turn_until(base, &got.lists, 2);
	ck_assert_uint_eq(got.count, 2);
}
END_TEST

START_TEST(it_is_read_when_kubernetes_swaps_the_folder_behind_it)
{
	mkdir(in_folder("..1"), 0755);
	mkdir(in_folder("..2"), 0755);
	write_file("..1/workers.yaml", ONE);
	write_file("..2/workers.yaml", TWO);
	link_to("..1", "..data");
	link_to("..data/workers.yaml", "workers.yaml");
	begin("1h");
	ck_assert_uint_eq(got.count, 1);
	link_to("..2", "..data_tmp");
	move("..data_tmp", "..data");
	turn_until(base, &got.lists, 2);
	ck_assert_uint_eq(got.count, 2);
}
END_TEST

START_TEST(a_mistake_changes_nothing_and_is_said_once)
{
	write_file("workers.yaml", ONE);
	begin("100ms");
	write_file("workers.yaml", "workers: [{url: nowhere}]\n");
	turn_until(base, &got.failures, 1);
	ck_assert_ptr_nonnull(
		strstr(got.why, "workers.yaml:1:17: workers[0].url: found `nowhere`"));
	turn_for(base, 350);
	write_file("workers.yaml", "workers: [{url: nowhere}]\n"); /* the same content */
	turn_for(base, 350);
	ck_assert_uint_eq(got.failures, 1);
	ck_assert_uint_eq(got.lists, 1);
	write_file("workers.yaml", ONE); /* mended: said, though it is the list before */
	turn_until(base, &got.lists, 2);
}
END_TEST

START_TEST(an_empty_file_is_a_mistake_and_an_empty_list_is_a_list)
{
	write_file("workers.yaml", ONE);
	begin("1h");
	write_file("workers.yaml", "");
	turn_until(base, &got.failures, 1);
	ck_assert_uint_eq(got.lists, 1);
	write_file("workers.yaml", "workers: []\n");
	turn_until(base, &got.lists, 2);
	ck_assert_uint_eq(got.count, 0);
}
END_TEST

START_TEST(a_file_that_is_missing_is_waited_for)
{
	begin("1h");
	ck_assert_uint_eq(got.failures, 1);
	ck_assert_ptr_nonnull(strstr(got.why, "No such file"));
	write_file("workers.yaml", ONE);
	turn_until(base, &got.lists, 1);
	ck_assert_uint_eq(got.failures, 1);
	unlink(in_folder("workers.yaml"));
	turn_until(base, &got.failures, 2);
	write_file("workers.yaml", ONE); /* the same list, but it is there again */
	turn_until(base, &got.lists, 2);
}
END_TEST

START_TEST(the_interval_finds_what_inotify_does_not)
{
	mkdir(in_folder("far"), 0755);
	write_file("far/one", ONE);
	link_to("far/one", "workers.yaml");
	begin("100ms");
	ck_assert_uint_eq(got.count, 1);
	write_file("far/one", TWO); /* in a folder that is not watched */
	turn_until(base, &got.lists, 2);
	turn_for(base, 300);
	ck_assert_uint_eq(got.lists, 2);
}
END_TEST

START_TEST(a_folder_that_comes_later_is_found)
{
	char later[64];

	strcpy(later, folder);
	ck_assert_int_eq(rmdir(folder), 0);
	begin("100ms");
	ck_assert_uint_eq(got.failures, 1);
	ck_assert_int_eq(mkdir(later, 0755), 0);
	write_file("workers.yaml", ONE);
	turn_until(base, &got.lists, 1);
}
END_TEST

START_TEST(what_is_too_large_or_no_file_is_refused)
{
	char *blanks = malloc(KVW_WORKER_FILE_MAX_BYTES + 2);

	memset(blanks, '\n', KVW_WORKER_FILE_MAX_BYTES + 1);
	blanks[KVW_WORKER_FILE_MAX_BYTES + 1] = '\0';
	write_file("workers.yaml", blanks);
	free(blanks);
	begin("1h");
	ck_assert_uint_eq(got.failures, 1);
	ck_assert_ptr_nonnull(strstr(got.why, "found more than 4194304 bytes"));
	unlink(in_folder("workers.yaml"));
	ck_assert_int_eq(mkfifo(in_folder("workers.yaml"), 0644), 0); /* must not block */
	turn_until(base, &got.failures, 2);
	ck_assert_ptr_nonnull(strstr(got.why, "not a regular file"));
	ck_assert_uint_eq(got.lists, 0);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("file-source");

	tcase_add_checked_fixture(tcase, start, stop);
	tcase_set_timeout(tcase, 60);
	tcase_add_test(tcase, it_is_read_at_the_start_and_when_it_is_written);
	tcase_add_test(tcase, it_is_read_when_it_is_replaced_by_a_rename);
	tcase_add_test(tcase, it_is_read_when_kubernetes_swaps_the_folder_behind_it);
	tcase_add_test(tcase, a_mistake_changes_nothing_and_is_said_once);
	tcase_add_test(tcase, an_empty_file_is_a_mistake_and_an_empty_list_is_a_list);
	tcase_add_test(tcase, a_file_that_is_missing_is_waited_for);
	tcase_add_test(tcase, the_interval_finds_what_inotify_does_not);
	tcase_add_test(tcase, a_folder_that_comes_later_is_found);
	tcase_add_test(tcase, what_is_too_large_or_no_file_is_refused);
	return run_tcase("file-source", tcase);
}
