/*
 * listen_test.c - which addresses can be listened on, and what is said of those that cannot.
 */
#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "server/listen.h"
#include "tests/unit/suite.h"

static int resolver_fails; /* what getaddrinfo returns; 0: it resolves */

int __real_getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
	struct addrinfo **res);
int __wrap_getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
	struct addrinfo **res);

int __wrap_getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
	struct addrinfo **res)
{
	if (resolver_fails != 0)
		return resolver_fails;
	return __real_getaddrinfo(node, service, hints, res);
}

static char bound[KVW_LISTEN_TEXT], why[160];

static int open_ok(const char *address, enum kvw_listen_share share)
{
	int fd = -1;

	ck_assert_msg(kvw_listen(address, share, &fd, bound, why, sizeof(why)) == KVW_OK, "%s", why);
	ck_assert_int_ge(fd, 0);
	return fd;
}

static void open_fails(const char *address, enum kvw_listen_share share, enum kvw_err expected,
	const char *reason)
{
	int fd = -7;

	ck_assert_int_eq(kvw_listen(address, share, &fd, bound, why, sizeof(why)), expected);
	ck_assert_msg(strstr(why, reason) != NULL, "%s", why);
	ck_assert_int_eq(fd, -7);
}

static int option(int fd, int level, int name)
{
	int value = -1;
	socklen_t len = sizeof(value);

	ck_assert_int_eq(getsockopt(fd, level, name, &value, &len), 0);
	return value;
}

static int connect_to(const char *address)
{
	struct sockaddr_in peer = {.sin_family = AF_INET};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	peer.sin_port = htons((uint16_t)atoi(strrchr(address, ':') + 1));
	peer.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	ck_assert_int_eq(connect(fd, (struct sockaddr *)&peer, sizeof(peer)), 0);
	return fd;
}

START_TEST(the_kernel_chooses_a_port_and_it_is_named)
{
	int fd = open_ok("127.0.0.1:0", KVW_LISTEN_ALONE), client, served;

	ck_assert(strncmp(bound, "127.0.0.1:", 10) == 0 && atoi(bound + 10) > 0);
	client = connect_to(bound);
	served = accept(fd, NULL, NULL);
	ck_assert_int_ge(served, 0);
	ck_assert_int_ne(option(served, IPPROTO_TCP, TCP_NODELAY), 0);
	close(served);
	close(client);
	close(fd);
}
END_TEST

START_TEST(the_socket_neither_blocks_nor_is_inherited)
{
	int fd = open_ok("127.0.0.1:0", KVW_LISTEN_ALONE);

	ck_assert_int_ne(fcntl(fd, F_GETFL) & O_NONBLOCK, 0);
	ck_assert_int_ne(fcntl(fd, F_GETFD) & FD_CLOEXEC, 0);
	ck_assert_int_eq(option(fd, SOL_SOCKET, SO_REUSEPORT), 0);
	close(fd);
}
END_TEST

START_TEST(ipv6_stands_in_brackets)
{
	int fd = -1;

	if (kvw_listen("[::1]:0", KVW_LISTEN_ALONE, &fd, bound, why, sizeof(why)) != KVW_OK) {
		/* a machine without IPv6 says so */
		ck_assert_msg(strstr(why, "cannot listen on [::1]:0: ") != NULL, "%s", why);
		return;
	}
	ck_assert_msg(strncmp(bound, "[::1]:", 6) == 0 && atoi(bound + 6) > 0, "%s", bound);
	close(fd);
}
END_TEST

START_TEST(one_alone_keeps_others_away)
{
	int fd = open_ok("127.0.0.1:0", KVW_LISTEN_ALONE);
	char address[KVW_LISTEN_TEXT];

	memcpy(address, bound, sizeof(address));
	open_fails(address, KVW_LISTEN_ALONE, KVW_EIO, strerror(EADDRINUSE));
	open_fails(address, KVW_LISTEN_FIRST, KVW_EIO, strerror(EADDRINUSE));
	open_fails(address, KVW_LISTEN_NEXT, KVW_EIO, "cannot listen on 127.0.0.1:");
	close(fd);
}
END_TEST

/* The sockets of one process share a port; a second process that begins is refused. */
START_TEST(the_next_ones_share_with_the_first)
{
	int first = open_ok("127.0.0.1:0", KVW_LISTEN_FIRST), next;
	char address[KVW_LISTEN_TEXT];

	memcpy(address, bound, sizeof(address));
	next = open_ok(address, KVW_LISTEN_NEXT);
	ck_assert_str_eq(bound, address);
	open_fails(address, KVW_LISTEN_FIRST, KVW_EIO, strerror(EADDRINUSE));
	open_fails(address, KVW_LISTEN_ALONE, KVW_EIO, strerror(EADDRINUSE));
	close(first);
	close(next);
}
END_TEST

START_TEST(what_is_no_address_is_refused)
{
	static const char *const bad[] = {"", ":80", "localhost", "127.0.0.1", "127.0.0.1:",
		"127.0.0.1:65536", "127.0.0.1:x", "::1:80", "[::1]", "a b:80"};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		open_fails(bad[i], KVW_LISTEN_ALONE, KVW_EINVAL, "is not HOST:PORT");
}
END_TEST

START_TEST(a_name_that_does_not_resolve_is_named)
{
	resolver_fails = EAI_NONAME;
	open_fails("kvway.test:80", KVW_LISTEN_ALONE, KVW_EIO, "cannot resolve kvway.test:80: ");
	ck_assert(strstr(why, gai_strerror(EAI_NONAME)) != NULL);
	resolver_fails = 0;
}
END_TEST

START_TEST(an_address_of_another_machine_cannot_be_bound)
{
	open_fails("192.0.2.1:0", KVW_LISTEN_ALONE, KVW_EIO, strerror(EADDRNOTAVAIL));
}
END_TEST

/* A long name is cut, the cause is not. */
START_TEST(the_cause_survives_a_long_name)
{
	char name[200];

	resolver_fails = EAI_NONAME;
	for (size_t i = 0; i < sizeof(name); i++)
		name[i] = i % 50 == 49 ? '.' : 'a';
	memcpy(name + sizeof(name) - 4, ":80", 4);
	open_fails(name, KVW_LISTEN_ALONE, KVW_EIO, gai_strerror(EAI_NONAME));
	resolver_fails = 0;
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("listen");

	tcase_add_test(tcase, the_kernel_chooses_a_port_and_it_is_named);
	tcase_add_test(tcase, the_socket_neither_blocks_nor_is_inherited);
	tcase_add_test(tcase, ipv6_stands_in_brackets);
	tcase_add_test(tcase, one_alone_keeps_others_away);
	tcase_add_test(tcase, the_next_ones_share_with_the_first);
	tcase_add_test(tcase, what_is_no_address_is_refused);
	tcase_add_test(tcase, a_name_that_does_not_resolve_is_named);
	tcase_add_test(tcase, an_address_of_another_machine_cannot_be_bound);
	tcase_add_test(tcase, the_cause_survives_a_long_name);
	return run_tcase("listen", tcase);
}
