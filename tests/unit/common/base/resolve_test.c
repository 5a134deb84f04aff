/*
 * resolve_test.c - addresses in digits at once, names by a thread that may be abandoned.
 */
#include <arpa/inet.h>
#include <check.h>
#include <netdb.h>
#include <semaphore.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/resolve.h"
#include "tests/unit/suite.h"

static sem_t asked, may_answer; /* a look-up of a name has begun, and may end */
static sem_t ended;

int __real_getaddrinfo(
	const char *node, const char *service, const struct addrinfo *hints, struct addrinfo **res);
int __wrap_getaddrinfo(
	const char *node, const char *service, const struct addrinfo *hints, struct addrinfo **res);

/* No name server: "kvway.test" is 127.0.0.9, other names are not found. */
int __wrap_getaddrinfo(
	const char *node, const char *service, const struct addrinfo *hints, struct addrinfo **res)
{
	int error;

	if ((hints->ai_flags & AI_NUMERICHOST) != 0)
		return __real_getaddrinfo(node, service, hints, res);
	sem_post(&asked);
	sem_wait(&may_answer);
	error = strcmp(node, "kvway.test") == 0
			? __real_getaddrinfo("127.0.0.9", service, hints, res)
			: EAI_NONAME;
	sem_post(&ended);
	return error;
}

static void setup(void)
{
	sem_init(&asked, 0, 0);
	sem_init(&may_answer, 0, 0);
	sem_init(&ended, 0, 0);
}

static struct kvw_resolve *begin(const char *host, int wake)
{
	struct kvw_resolve_addresses addresses;
	struct kvw_resolve *question = NULL;
	const char *why;

	ck_assert_int_eq(kvw_resolve_begin(host, 80, wake, &question), KVW_OK);
	sem_wait(&asked);
	ck_assert(!kvw_resolve_answered(question, &addresses, &why));
	return question;
}

static void is_v4(const struct kvw_resolve_address *a, const char *host, uint16_t port)
{
	ck_assert_int_eq(a->to.any.sa_family, AF_INET);
	ck_assert_uint_eq(a->len, sizeof(a->to.v4));
	ck_assert_uint_eq(a->to.v4.sin_addr.s_addr, inet_addr(host));
	ck_assert_uint_eq(ntohs(a->to.v4.sin_port), port);
}

START_TEST(digits_are_addresses_at_once)
{
	struct kvw_resolve_addresses addresses;

	ck_assert(kvw_resolve_literal("127.0.0.1", 6379, &addresses));
	ck_assert_uint_eq(addresses.count, 1);
	is_v4(&addresses.items[0], "127.0.0.1", 6379);
	ck_assert(kvw_resolve_literal("::1", 1, &addresses));
	ck_assert_uint_eq(addresses.count, 1);
	ck_assert_int_eq(addresses.items[0].to.any.sa_family, AF_INET6);
}
END_TEST

START_TEST(a_path_is_a_socket_and_may_be_too_long)
{
	struct kvw_resolve_addresses addresses;
	char path[200];

	ck_assert(kvw_resolve_literal("/run/redis.sock", 0, &addresses));
	ck_assert_uint_eq(addresses.count, 1);
	ck_assert_int_eq(addresses.items[0].to.any.sa_family, AF_UNIX);
	ck_assert_str_eq(addresses.items[0].to.local.sun_path, "/run/redis.sock");
	memset(path, '/', sizeof(path));
	path[sizeof(path) - 1] = '\0';
	ck_assert(!kvw_resolve_literal(path, 0, &addresses));
}
END_TEST

START_TEST(a_failure_leaves_the_addresses_alone)
{
	struct kvw_resolve_addresses addresses = {.count = 7};

	sem_post(&may_answer);
	ck_assert_int_eq(kvw_resolve_now("unknown.test", 80, 0, &addresses), EAI_NONAME);
	ck_assert(!kvw_resolve_literal("kvway.test", 80, &addresses));
	ck_assert_uint_eq(addresses.count, 7);
}
END_TEST

START_TEST(an_answer_rings_and_is_there)
{
	int wake = eventfd(0, EFD_CLOEXEC);
	struct kvw_resolve *question = begin("kvway.test", wake);
	struct kvw_resolve_addresses addresses;
	const char *why = "";
	uint64_t rings;

	sem_post(&may_answer);
	ck_assert_int_eq(read(wake, &rings, sizeof(rings)), sizeof(rings));
	ck_assert(kvw_resolve_answered(question, &addresses, &why));
	ck_assert_ptr_null(why);
	ck_assert_uint_eq(addresses.count, 1);
	is_v4(&addresses.items[0], "127.0.0.9", 80);
	kvw_resolve_drop(question);
	close(wake);
}
END_TEST

START_TEST(a_name_that_is_not_found_says_why)
{
	int wake = eventfd(0, EFD_CLOEXEC);
	struct kvw_resolve *question = begin("unknown.test", wake);
	struct kvw_resolve_addresses addresses;
	const char *why = NULL;
	uint64_t rings;

	sem_post(&may_answer);
	ck_assert_int_eq(read(wake, &rings, sizeof(rings)), sizeof(rings));
	ck_assert(kvw_resolve_answered(question, &addresses, &why));
	ck_assert_str_eq(why, gai_strerror(EAI_NONAME));
	ck_assert_uint_eq(addresses.count, 0);
	kvw_resolve_drop(question);
	close(wake);
}
END_TEST

/* The asker, and the descriptor that it gave, are gone before the look-up ends. */
START_TEST(a_question_may_be_abandoned)
{
	int wake = eventfd(0, EFD_CLOEXEC);
	struct kvw_resolve *question = begin("kvway.test", wake);

	kvw_resolve_drop(question);
	close(wake);
	sem_post(&may_answer);
	sem_wait(&ended);
	kvw_resolve_drop(NULL);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("resolve");

	tcase_add_checked_fixture(tcase, setup, NULL);
	tcase_add_test(tcase, digits_are_addresses_at_once);
	tcase_add_test(tcase, a_path_is_a_socket_and_may_be_too_long);
	tcase_add_test(tcase, a_failure_leaves_the_addresses_alone);
	tcase_add_test(tcase, an_answer_rings_and_is_there);
	tcase_add_test(tcase, a_name_that_is_not_found_says_why);
	tcase_add_test(tcase, a_question_may_be_abandoned);
	return run_tcase("resolve", tcase);
}
