/*
 * admin_test.c - requests and answers as text, and the socket that carries them.
 */
#include "admin/admin.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "admin/admin_text.h"
#include "tests/unit/suite.h"

#define SECOND 1000000000ull

static char folder[] = "/tmp/kvt-admin-test-XXXXXX";
static struct kvt_surroundings surroundings;

static void make_folder(void)
{
	kvt_surroundings_init(&surroundings, NULL);
	memcpy(folder + sizeof(folder) - 7, "XXXXXX", 6);
	ck_assert_ptr_nonnull(mkdtemp(folder));
}

static void remove_folder(void)
{
	ck_assert_int_eq(rmdir(folder), 0); /* so nothing was left in it */
}

/* --- text ------------------------------------------------------------------------------------- */

START_TEST(a_request_is_read_as_it_was_written)
{
	const struct kvt_tenant tenant = {{1, 2, 0xfe}};
	const struct kvt_fingerprint fingerprint = {{0xab, 3}};
	struct kvt_key keys[KVT_ADMIN_KEYS + 1];
	struct kvt_which which = {.size = sizeof(which), .tenant = &tenant, .keys = keys};
	struct kvt_admin_erase *read = malloc(sizeof(*read));
	char *line = malloc(KVT_ADMIN_LINE);

	for (size_t i = 0; i <= KVT_ADMIN_KEYS; i++)
		memset(&keys[i], (int)i, sizeof(keys[i]));
	which.fingerprint = &fingerprint;
	which.key_count = KVT_ADMIN_KEYS;
	ck_assert(kvt_admin_write_erase(&which, 2 * SECOND, line, KVT_ADMIN_LINE));
	ck_assert(kvt_admin_read_erase(line, read));
	ck_assert_mem_eq(read->which.tenant, &tenant, sizeof(tenant));
	ck_assert_mem_eq(read->which.fingerprint, &fingerprint, sizeof(fingerprint));
	ck_assert_uint_eq(read->which.key_count, KVT_ADMIN_KEYS);
	ck_assert_mem_eq(read->which.keys, keys, KVT_ADMIN_KEYS * sizeof(keys[0]));
	ck_assert_uint_eq(read->timeout_ns, 2 * SECOND);
	ck_assert_uint_eq(read->which.dry_run, 0);
	which.key_count++;
	ck_assert(!kvt_admin_write_erase(&which, 0, line, KVT_ADMIN_LINE));
	which = (struct kvt_which){.size = sizeof(which), .tenant = &tenant, .dry_run = 1};
	ck_assert(kvt_admin_write_erase(&which, 0, line, KVT_ADMIN_LINE));
	ck_assert(kvt_admin_read_erase(line, read));
	ck_assert_ptr_null(read->which.fingerprint);
	ck_assert_ptr_null(read->which.keys);
	ck_assert_uint_eq(read->which.dry_run, 1);
	free(line);
	free(read);
}
END_TEST

START_TEST(what_is_no_request_is_refused)
{
	static const char *const wrong[] = {"", "erase", "erase 2 0 - - 1", "erase 1 2 - - 1",
		"erase 1 0", "erase 1 0 -", "erase 1 0 - -", "erase 1 0 00 - 1",
		"erase 1 0 - - 1 00", "erase 1 0 - - 1 ",
		"erase 1 0 -1 - 1", "erase 1 0 -- - 1", "erase 1 0x - - 1", "erase 1 00 - - 1",
		"erase 1 0 000102030405060708090a0b0c0d0e0fff - 1"};
	struct kvt_admin_erase *read = malloc(sizeof(*read));

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		ck_assert_msg(!kvt_admin_read_erase(wrong[i], read), "%s", wrong[i]);
	free(read);
}
END_TEST

START_TEST(an_answer_is_read_as_it_was_written)
{
	struct kvt_erased erased = {.size = sizeof(erased)}, read;
	enum kvt_status status;
	char line[512];

	erased.tiers[KVT_TIER_L1].counted = KVT_COUNTED;
	erased.tiers[KVT_TIER_L1].chunks = 7;
	erased.tiers[KVT_TIER_NVME].bytes = UINT64_MAX;
	erased.tiers[KVT_TIER_L2].counted = KVT_COUNTED_UNKNOWN;
	kvt_admin_write_erased(KVT_MISS, &erased, line, sizeof(line));
	ck_assert(kvt_admin_read_erased(line, &status, &read));
	ck_assert_int_eq(status, KVT_MISS);
	ck_assert_mem_eq(&read, &erased, sizeof(read));
	*strrchr(line, ' ') = '\0';
	ck_assert(!kvt_admin_read_erased(line, &status, &read));
	ck_assert(!kvt_admin_read_erased("refused no", &status, &read));
}
END_TEST

START_TEST(tenants_are_read_as_they_were_written)
{
	struct kvt_tenant_list *list = calloc(1, sizeof(*list)), *read = malloc(sizeof(*read));
	char *line = malloc(KVT_ADMIN_LINE);
	size_t most = 0;

	kvt_admin_write_tenants(7, line, KVT_ADMIN_LINE);
	ck_assert(kvt_admin_read_tenants(line, &most));
	ck_assert_uint_eq(most, 7);
	ck_assert(!kvt_admin_read_shared(line, &most));
	kvt_admin_write_shared(9, line, KVT_ADMIN_LINE);
	ck_assert(kvt_admin_read_shared(line, &most));
	ck_assert_uint_eq(most, 9);
	ck_assert(!kvt_admin_read_tenants(line, &most));
	ck_assert(!kvt_admin_read_shared("shared 1 ", &most));
	ck_assert(!kvt_admin_read_tenants("tenants 1 x", &most));
	ck_assert(!kvt_admin_read_tenants("tenants 2 1", &most));
	kvt_admin_write_listed(list, line, KVT_ADMIN_LINE);
	ck_assert(kvt_admin_read_listed(line, read));
	ck_assert_mem_eq(read, list, sizeof(*list));
	list->tenants = UINT64_MAX;
	list->others = (struct kvt_tenant_share){{{0}}, UINT64_MAX, UINT64_MAX, 0};
	for (; list->count < KVT_TENANTS_LISTED; list->count++)
		list->at[list->count] =
			(struct kvt_tenant_share){{{(uint8_t)list->count}}, UINT64_MAX, UINT64_MAX, 0};
	kvt_admin_write_listed(list, line, KVT_ADMIN_LINE);
	ck_assert(kvt_admin_read_listed(line, read));
	ck_assert_mem_eq(read, list, sizeof(*list));
	*strrchr(line, ' ') = '\0';
	ck_assert(!kvt_admin_read_listed(line, read));
	ck_assert(!kvt_admin_read_listed("tenants 1 1 2", read));
	ck_assert(!kvt_admin_read_listed("refused no", read));
	free(line);
	free(list);
	free(read);
}
END_TEST

START_TEST(reuse_of_fragments_is_read_as_it_was_written)
{
	struct kvt_fragments_stats stats = {.size = sizeof(stats), .loads = 1, .hit_tokens = 2, .missed_tokens = 3,
		.loaded_bytes = UINT64_MAX, .moved_bytes = 5, .refused = {6, 7, 8, 9, 10}}, read;
	char line[KVT_ADMIN_LINE], *blank;

	kvt_admin_write_reused(&stats, line, sizeof(line));
	ck_assert(kvt_admin_read_reused(line, &read));
	ck_assert_mem_eq(&stats, &read, sizeof(read));
	while ((blank = strrchr(line, ' ')) != NULL) { /* each number is asked for */
		*blank = '\0';
		ck_assert(!kvt_admin_read_reused(line, &read));
	}
	ck_assert(!kvt_admin_read_reused("refused kvtier 1 knows no such request", &read));
	ck_assert(!kvt_admin_read_reused("fragments 1 a b c d e f g h i j", &read));
}
END_TEST

/* --- socket ----------------------------------------------------------------------------------- */

static void echo(void *self, const char *request, char *out)
{
	(void)self;
	(void)snprintf(out, KVT_ADMIN_LINE, "you said %.100s", request);
}

START_TEST(a_line_is_answered_by_a_line)
{
	struct kvt_admin *admin = NULL;
	char *answer = malloc(KVT_ADMIN_LINE), path[128];
	struct stat info;

	ck_assert_int_eq(kvt_admin_ask(folder, "hello", SECOND, answer), KVT_MISS);
	ck_assert_int_eq(kvt_admin_create(folder, &surroundings, echo, NULL, &admin), KVT_OK);
	(void)snprintf(path, sizeof(path), "%s/admin", folder);
	ck_assert_int_eq(stat(path, &info), 0);
	ck_assert_uint_eq(info.st_mode & 0777, 0600);
	for (int i = 0; i < 3; i++) {
		ck_assert_int_eq(kvt_admin_ask(folder, "hello", 20 * SECOND, answer), KVT_OK);
		ck_assert_str_eq(answer, "you said hello");
	}
	kvt_admin_destroy(admin);
	ck_assert_int_eq(kvt_admin_ask(folder, "hello", SECOND, answer), KVT_MISS);
	free(answer);
}
END_TEST

START_TEST(a_former_owners_socket_is_replaced)
{
	struct kvt_admin *admin = NULL;
	char path[128], *answer = malloc(KVT_ADMIN_LINE);
	FILE *file;

	(void)snprintf(path, sizeof(path), "%s/admin", folder);
	file = fopen(path, "w");
	ck_assert_ptr_nonnull(file);
	fclose(file);
	ck_assert_int_eq(kvt_admin_ask(folder, "hello", SECOND, answer), KVT_MISS);
	ck_assert_int_eq(kvt_admin_create(folder, &surroundings, echo, NULL, &admin), KVT_OK);
	ck_assert_int_eq(kvt_admin_ask(folder, "hello", 20 * SECOND, answer), KVT_OK);
	kvt_admin_destroy(admin);
	free(answer);
}
END_TEST

/* A connection without this library's client. */
static int connect_by_hand(void)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	(void)snprintf(address.sun_path, sizeof(address.sun_path), "%s/admin", folder);
	ck_assert_int_eq(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	return fd;
}

static double now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

START_TEST(a_request_that_comes_byte_by_byte_is_given_up)
{
	struct kvt_admin *admin = NULL;
	char *answer = malloc(KVT_ADMIN_LINE);
	double begun = now_s();
	int fd;

	ck_assert_int_eq(kvt_admin_create(folder, &surroundings, echo, NULL, &admin), KVT_OK);
	fd = connect_by_hand();
	while (send(fd, "x", 1, MSG_NOSIGNAL) == 1 && now_s() < begun + 20)
		(void)poll(NULL, 0, 20);
	ck_assert_msg(now_s() < begun + 20, "it is served as long as it sends");
	ck_assert_int_eq(kvt_admin_ask(folder, "hello", 20 * SECOND, answer), KVT_OK);
	close(fd);
	kvt_admin_destroy(admin);
	free(answer);
}
END_TEST

START_TEST(half_a_request_holds_up_no_end)
{
	struct kvt_admin *admin = NULL;
	double took = 9;

	for (int i = 0; i < 3 && took > 0.5; i++) { /* a busy machine may be slow once */
		int fd, more;

		ck_assert_int_eq(kvt_admin_create(folder, &surroundings, echo, NULL, &admin), KVT_OK);
		fd = connect_by_hand();
		more = connect_by_hand();
		ck_assert_int_eq(send(fd, "hel", 3, 0), 3);
		(void)poll(NULL, 0, 50);
		took = now_s();
		kvt_admin_destroy(admin);
		took = now_s() - took;
		close(fd);
		close(more);
	}
	ck_assert_msg(took <= 0.5, "%g s", took);
}
END_TEST

START_TEST(a_client_does_not_wait_for_ever)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	char *answer = malloc(KVT_ADMIN_LINE);
	double begun = now_s();

	(void)snprintf(address.sun_path, sizeof(address.sun_path), "%s/admin", folder);
	ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	ck_assert_int_eq(listen(fd, 1), 0);
	ck_assert_int_eq(kvt_admin_ask(folder, "hello", SECOND / 5, answer), KVT_EIO);
	ck_assert_int_eq(errno, ETIMEDOUT);
	ck_assert(now_s() < begun + 20);
	close(fd);
	ck_assert_int_eq(kvt_admin_ask(folder, "hello", SECOND / 5, answer), KVT_MISS);
	(void)unlink(address.sun_path);
	free(answer);
}
END_TEST

START_TEST(a_path_may_be_longer_than_an_address)
{
	struct kvt_admin *admin = NULL;
	char deep[512], *answer = malloc(KVT_ADMIN_LINE);

	(void)snprintf(deep, sizeof(deep), "%s/%0200d", folder, 1);
	ck_assert_int_eq(mkdir(deep, 0700), 0);
	ck_assert_int_eq(kvt_admin_create(deep, &surroundings, echo, NULL, &admin), KVT_OK);
	ck_assert_int_eq(kvt_admin_ask(deep, "hello", 20 * SECOND, answer), KVT_OK);
	ck_assert_str_eq(answer, "you said hello");
	kvt_admin_destroy(admin);
	ck_assert_int_eq(rmdir(deep), 0);
	free(answer);
}
END_TEST

int main(void)
{
	TCase *cases = tcase_create("admin");

	tcase_add_checked_fixture(cases, make_folder, remove_folder);
	tcase_add_test(cases, a_request_is_read_as_it_was_written);
	tcase_add_test(cases, reuse_of_fragments_is_read_as_it_was_written);
	tcase_add_test(cases, what_is_no_request_is_refused);
	tcase_add_test(cases, an_answer_is_read_as_it_was_written);
	tcase_add_test(cases, tenants_are_read_as_they_were_written);
	tcase_add_test(cases, a_line_is_answered_by_a_line);
	tcase_add_test(cases, a_former_owners_socket_is_replaced);
	tcase_add_test(cases, a_request_that_comes_byte_by_byte_is_given_up);
	tcase_add_test(cases, half_a_request_holds_up_no_end);
	tcase_add_test(cases, a_client_does_not_wait_for_ever);
	tcase_add_test(cases, a_path_may_be_longer_than_an_address);
	tcase_set_timeout(cases, 60);
	return run_tcase("cache/admin", cases);
}
