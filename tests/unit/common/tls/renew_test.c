/* renew_test.c - certificates that are replaced while their context serves. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "support.h"
#include "tests/unit/suite.h"
#include "tls/watch.h"

static struct files files, newer; /* of two authorities */
static struct kvw_tls *server, *trusts_old, *trusts_new;
static char why[256];

static struct kvw_tls *make_client(const char *ca)
{
	const struct kvw_tls_client_options options = {.ca_file = ca};
	struct kvw_tls *tls = NULL;

	ck_assert_int_eq(kvw_tls_client_create(&options, why, sizeof(why), &tls), KVW_OK);
	return tls;
}

static void set_up(void)
{
	struct kvw_tls_server_options options = {.certificate = files.cert, .key = files.key};

	files_make(&files);
	files_make(&newer);
	ck_assert_int_eq(kvw_tls_server_create(&options, why, sizeof(why), &server), KVW_OK);
	trusts_old = make_client(files.ca);
	trusts_new = make_client(newer.ca);
	why[0] = '\0';
}

static void tear_down(void)
{
	kvw_tls_destroy(server);
	kvw_tls_destroy(trusts_old);
	kvw_tls_destroy(trusts_new);
	files_remove(&files);
	files_remove(&newer);
}

static void replace(const char *path, const char *by)
{
	ck_assert_int_eq(rename(by, path), 0);
}

static enum kvw_tls_look look(bool now_too)
{
	return kvw_tls_look(server, now_too, why, sizeof(why));
}

/* Whether a new connection of this client is believed. */
static bool believed(struct kvw_tls *client)
{
	struct link link;
	bool good;

	link_open(&link, 4096);
	ck_assert_int_eq(kvw_tls_client_start(&link.a.io, client, "localhost"), KVW_OK);
	ck_assert_int_eq(kvw_tls_server_start(&link.b.io, server), KVW_OK);
	link_settle(&link);
	good = kvw_tls_ready(&link.a.io) && !link.a.io.broken;
	link_close(&link);
	return good;
}

START_TEST(test_new_files_are_taken_when_they_have_settled)
{
	ck_assert_int_eq(look(false), KVW_TLS_SAME);
	ck_assert_int_eq(look(true), KVW_TLS_SAME);
	replace(files.cert, newer.cert);
	replace(files.key, newer.key);
	ck_assert_int_eq(look(false), KVW_TLS_SAME);
	ck_assert(believed(trusts_old));
	ck_assert_int_eq(look(false), KVW_TLS_RENEWED);
	ck_assert(believed(trusts_new));
	ck_assert(!believed(trusts_old));
	ck_assert_int_eq(look(false), KVW_TLS_SAME);
}
END_TEST

START_TEST(test_a_connection_keeps_its_certificate)
{
	struct link link;
	char data[8];
	struct iovec iov = {data, sizeof(data)};
	struct iovec text = {(void *)(uintptr_t)"text", 4};

	link_open(&link, 4096);
	link_begin(&link, trusts_old, server);
	replace(files.cert, newer.cert);
	replace(files.key, newer.key);
	ck_assert_int_eq(look(true), KVW_TLS_RENEWED);
	ck_assert_int_eq(kvw_io_writev(&link.b.io, &text, 1), 4);
	link_settle(&link);
	ck_assert_int_eq(kvw_io_readv(&link.a.io, &iov, 1, sizeof(data)), 4);
	link_close(&link);
}
END_TEST

START_TEST(test_half_of_a_pair_is_refused_once)
{
	replace(files.cert, newer.cert);
	ck_assert_int_eq(look(true), KVW_TLS_REFUSED);
	ck_assert_ptr_nonnull(strstr(why, "key values mismatch"));
	ck_assert_ptr_nonnull(strstr(why, files.key));
	ck_assert_int_eq(look(true), KVW_TLS_SAME);
	ck_assert_int_eq(look(false), KVW_TLS_SAME);
	ck_assert(believed(trusts_old));
	replace(files.key, newer.key);
	ck_assert_int_eq(look(false), KVW_TLS_SAME);
	ck_assert_int_eq(look(false), KVW_TLS_RENEWED);
	ck_assert(believed(trusts_new));
}
END_TEST

START_TEST(test_a_half_written_file_is_refused)
{
	int fd = open(files.cert, O_WRONLY | O_CLOEXEC);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ftruncate(fd, 200), 0);
	close(fd);
	ck_assert_int_eq(look(true), KVW_TLS_REFUSED);
	ck_assert_ptr_nonnull(strstr(why, files.cert));
	ck_assert(believed(trusts_old));
	replace(files.cert, newer.cert);
	replace(files.key, newer.key);
	ck_assert_int_eq(look(true), KVW_TLS_RENEWED);
}
END_TEST

START_TEST(test_files_that_are_gone_are_refused)
{
	char aside[128];

	snprintf(aside, sizeof(aside), "%s.aside", files.key);
	replace(aside, files.key);
	ck_assert_int_eq(look(false), KVW_TLS_SAME); /* perhaps it is being replaced */
	ck_assert_int_eq(look(false), KVW_TLS_REFUSED);
	ck_assert_ptr_nonnull(strstr(why, "No such file"));
	ck_assert(believed(trusts_old));
	replace(files.key, aside);
	(void)look(true);
	ck_assert_int_eq(look(true), KVW_TLS_SAME);
	replace(files.key, newer.key);
	ck_assert_int_eq(look(true), KVW_TLS_REFUSED); /* reported again: something else is wrong */
	ck_assert(believed(trusts_old));
}
END_TEST

START_TEST(test_an_expired_certificate_is_refused)
{
	struct files expired;

	files_make_ending(&expired, -60);
	replace(files.cert, expired.cert);
	replace(files.key, expired.key);
	ck_assert_int_eq(look(true), KVW_TLS_REFUSED);
	ck_assert_ptr_nonnull(strstr(why, "expired"));
	ck_assert(believed(trusts_old));
	files_remove(&expired);
}
END_TEST

static void append(const char *path, const char *from)
{
	FILE *out = fopen(path, "a"), *in = fopen(from, "r");
	char line[128];

	ck_assert(out != NULL && in != NULL);
	while (fgets(line, sizeof(line), in) != NULL)
		fputs(line, out);
	fclose(in);
	fclose(out);
}

/* What has ended for long, of another name or behind the own certificate, keeps none from being renewed. */
START_TEST(test_an_older_expired_certificate_is_no_hindrance)
{
	struct files expired;
	char both[128];
	const char *const more[] = {both};
	struct kvw_tls_server_options options = {
		.certificate = files.cert, .key = files.key, .more = more, .more_count = 1};

	files_make_ending(&expired, -60);
	snprintf(both, sizeof(both), "%s/both.pem", files.folder);
	append(both, expired.cert);
	append(both, expired.key);
	kvw_tls_destroy(server);
	ck_assert_int_eq(kvw_tls_server_create(&options, why, sizeof(why), &server), KVW_OK);
	append(newer.cert, expired.cert); /* its chain */
	replace(files.cert, newer.cert);
	replace(files.key, newer.key);
	ck_assert_msg(look(true) == KVW_TLS_RENEWED, "%s", why);
	ck_assert(believed(trusts_new));
	unlink(both);
	files_remove(&expired);
}
END_TEST

/* A Kubernetes Secret: tls.crt and tls.key lead through ..data to a folder that is swapped whole. */
START_TEST(test_a_swapped_folder_is_noticed)
{
	struct kvw_tls_server_options options;
	char folder[96], data[128], next[128], cert[160], key[160];
	struct kvw_tls *first = server;

	snprintf(folder, sizeof(folder), "%s/secret", files.folder);
	ck_assert_int_eq(mkdir(folder, 0700), 0);
	snprintf(data, sizeof(data), "%s/..data", folder);
	snprintf(next, sizeof(next), "%s/..next", folder);
	snprintf(cert, sizeof(cert), "%s/server.crt", data);
	snprintf(key, sizeof(key), "%s/server.key", data);
	ck_assert_int_eq(symlink(files.folder, data), 0);
	options = (struct kvw_tls_server_options){.certificate = cert, .key = key};
	ck_assert_int_eq(kvw_tls_server_create(&options, why, sizeof(why), &server), KVW_OK);
	ck_assert(believed(trusts_old));
	ck_assert_int_eq(symlink(newer.folder, next), 0);
	ck_assert_int_eq(rename(next, data), 0);
	ck_assert_int_eq(look(false), KVW_TLS_SAME);
	ck_assert_int_eq(look(false), KVW_TLS_RENEWED);
	ck_assert(believed(trusts_new));
	kvw_tls_destroy(server);
	server = first;
	unlink(data);
	rmdir(folder);
}
END_TEST

START_TEST(test_trust_is_renewed)
{
	char other[128];
	struct kvw_tls *client;

	snprintf(other, sizeof(other), "%s/trust.crt", files.folder);
	replace(other, newer.ca);
	client = make_client(other);
	ck_assert(!believed(client));
	replace(other, files.ca);
	ck_assert_int_eq(kvw_tls_look(client, true, why, sizeof(why)), KVW_TLS_RENEWED);
	ck_assert(believed(client));
	kvw_tls_destroy(client);
	unlink(other);
}
END_TEST

/* What kvw_tls_watch_each reports. */
struct seen {
	size_t count;
	int64_t soonest_s;
};

static void see(void *arg, const char *use, const char *path, int64_t not_after_s)
{
	struct seen *seen = arg;

	ck_assert_str_eq(use, "test");
	ck_assert_ptr_ne(strstr(path, ".crt"), NULL);
	if (seen->count++ == 0 || not_after_s < seen->soonest_s)
		seen->soonest_s = not_after_s;
}

START_TEST(test_the_watch_counts_and_shows_ends)
{
	struct kvw_tls_watch watch;
	struct files soon;
	struct seen before = {0}, after = {0};

	kvw_tls_watch_init(&watch);
	kvw_tls_watch_add(&watch, server, "test");
	kvw_tls_watch_each(&watch, see, &before);
	ck_assert_uint_eq(before.count, 1); /* not the key */
	ck_assert_int_gt(before.soonest_s, time(NULL) + 80000);
	files_make_ending(&soon, 600);
	replace(files.cert, soon.cert);
	kvw_tls_watch_look(&watch, true, 1);
	ck_assert_uint_eq(watch.refused, 1);
	kvw_tls_watch_each(&watch, see, &after);
	ck_assert_int_eq(after.soonest_s, before.soonest_s); /* what is in force */
	replace(files.key, soon.key);
	kvw_tls_watch_look(&watch, true, 1);
	ck_assert_uint_eq(watch.renewed, 1);
	after.count = 0;
	kvw_tls_watch_each(&watch, see, &after);
	ck_assert_int_lt(after.soonest_s, time(NULL) + 700);
	kvw_tls_watch_remove(&watch, server);
	kvw_tls_watch_look(&watch, true, 1);
	kvw_tls_watch_finish(&watch);
	files_remove(&soon);
}
END_TEST

/* As workers' authorities come first, and the listener last. */
START_TEST(test_the_watch_grows)
{
	struct kvw_tls_watch watch;

	kvw_tls_watch_init(&watch);
	for (int i = 0; i < 200; i++)
		kvw_tls_watch_add(&watch, trusts_old, "test");
	kvw_tls_watch_add(&watch, server, "test");
	replace(files.cert, newer.cert);
	replace(files.key, newer.key);
	kvw_tls_watch_look(&watch, true, 1);
	ck_assert_uint_eq(watch.renewed, 1);
	kvw_tls_watch_finish(&watch);
}
END_TEST

START_TEST(test_the_watch_shows_a_file_once)
{
	const char *const more[] = {files.folder, files.folder};
	struct kvw_tls_server_options options = {
		.certificate = files.cert, .key = files.key, .more = more, .more_count = 2};
	struct kvw_tls_watch watch;
	struct kvw_tls *other;
	struct seen seen = {0};
	char cert[128], key[128];

	snprintf(cert, sizeof(cert), "%s/tls.crt", files.folder);
	snprintf(key, sizeof(key), "%s/tls.key", files.folder);
	ck_assert_int_eq(link(files.cert, cert) | link(files.key, key), 0);
	ck_assert_int_eq(kvw_tls_server_create(&options, why, sizeof(why), &other), KVW_OK);
	kvw_tls_watch_init(&watch);
	kvw_tls_watch_add(&watch, server, "test");
	kvw_tls_watch_add(&watch, other, "test");
	kvw_tls_watch_each(&watch, see, &seen);
	ck_assert_uint_eq(seen.count, 2); /* of four */
	kvw_tls_watch_finish(&watch);
	kvw_tls_destroy(other);
	unlink(cert);
	unlink(key);
}
END_TEST

/* One context has refused the new file for another one's sake: what ends sooner is shown, whichever has it. */
START_TEST(test_the_watch_shows_the_first_end_of_a_shared_file)
{
	const char *const more[] = {files.folder};
	struct kvw_tls_server_options options = {
		.certificate = files.cert, .key = files.key, .more = more, .more_count = 1};
	struct kvw_tls_watch watch;
	struct kvw_tls *other;
	struct files soon;
	struct seen seen = {0};
	char cert[128], key[128];

	snprintf(cert, sizeof(cert), "%s/tls.crt", files.folder);
	snprintf(key, sizeof(key), "%s/tls.key", files.folder);
	replace(cert, newer.cert);
	replace(key, newer.key);
	ck_assert_int_eq(kvw_tls_server_create(&options, why, sizeof(why), &other), KVW_OK);
	kvw_tls_watch_init(&watch);
	kvw_tls_watch_add(&watch, other, "test");
	kvw_tls_watch_add(&watch, server, "test");
	files_make_ending(&soon, 600);
	replace(files.cert, soon.cert);
	replace(files.key, soon.key);
	replace(key, soon.ca); /* no key */
	kvw_tls_watch_look(&watch, true, 1);
	ck_assert_uint_eq(watch.renewed, 1);
	ck_assert_uint_eq(watch.refused, 1);
	kvw_tls_watch_each(&watch, see, &seen);
	ck_assert_uint_eq(seen.count, 2);
	ck_assert_int_lt(seen.soonest_s, time(NULL) + 700);
	kvw_tls_watch_finish(&watch);
	kvw_tls_destroy(other);
	files_remove(&soon);
	unlink(cert);
	unlink(key);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("tls_renew");
	TCase *tcase = tcase_create("renew");

	tcase_add_checked_fixture(tcase, set_up, tear_down);
	tcase_add_test(tcase, test_new_files_are_taken_when_they_have_settled);
	tcase_add_test(tcase, test_a_connection_keeps_its_certificate);
	tcase_add_test(tcase, test_half_of_a_pair_is_refused_once);
	tcase_add_test(tcase, test_a_half_written_file_is_refused);
	tcase_add_test(tcase, test_files_that_are_gone_are_refused);
	tcase_add_test(tcase, test_an_expired_certificate_is_refused);
	tcase_add_test(tcase, test_an_older_expired_certificate_is_no_hindrance);
	tcase_add_test(tcase, test_a_swapped_folder_is_noticed);
	tcase_add_test(tcase, test_trust_is_renewed);
	tcase_add_test(tcase, test_the_watch_counts_and_shows_ends);
	tcase_add_test(tcase, test_the_watch_shows_a_file_once);
	tcase_add_test(tcase, test_the_watch_shows_the_first_end_of_a_shared_file);
	tcase_add_test(tcase, test_the_watch_grows);
	suite_add_tcase(suite, tcase);
	return run_suite(suite);
}
