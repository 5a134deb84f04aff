/*
 * network_test.c - blocks of addresses: which texts are some, and which addresses are in them.
 */
#include <arpa/inet.h>
#include <check.h>
#include <netinet/in.h>

#include "base/network.h"
#include "tests/unit/suite.h"

static bool holds(const char *block, const char *address)
{
	struct sockaddr_storage peer = {.ss_family = AF_INET6};
	struct kvw_network network;

	ck_assert_msg(kvw_network_parse(block, &network), "%s", block);
	if (inet_pton(AF_INET6, address, &((struct sockaddr_in6 *)&peer)->sin6_addr) != 1) {
		peer = (struct sockaddr_storage){.ss_family = AF_INET};
		ck_assert_int_eq(inet_pton(AF_INET, address, &((struct sockaddr_in *)&peer)->sin_addr), 1);
	}
	return kvw_networks_hold(&network, 1, (struct sockaddr *)&peer);
}

START_TEST(addresses_in_blocks)
{
	ck_assert(holds("10.0.0.0/8", "10.255.1.2") && !holds("10.0.0.0/8", "11.0.0.0"));
	ck_assert(holds("10.0.0.7", "10.0.0.7") && !holds("10.0.0.7", "10.0.0.6"));
	ck_assert(holds("172.16.0.0/12", "172.31.255.255") && !holds("172.16.0.0/12", "172.32.0.0"));
	ck_assert(holds("0.0.0.0/0", "1.2.3.4") && !holds("0.0.0.0/0", "2001:db8::1"));
	ck_assert(holds("10.0.0.0/8", "::ffff:10.1.2.3")); /* a peer of a socket for both */
	ck_assert(holds("2001:db8::/33", "2001:db8:7fff::1") && !holds("2001:db8::/33", "2001:db8:8000::1"));
	ck_assert(holds("::1", "::1") && !holds("::1", "127.0.0.1"));
	ck_assert(holds("::/0", "1.2.3.4"));
}
END_TEST

START_TEST(texts_that_are_none)
{
	static const char *const bad[] = {"", "/", "10.0.0.0/", "10.0.0.0/33", "10.0.0.0/08", "10.0.0.1/8", "10.0.0",
		"010.0.0.0/8", "10.0.0.0/8 ", "::1/129", "::1/127", "fe80::1%eth0", "localhost", "10.0.0.0/-1",
		"1:2:3:4:5:6:7:8:9", "10.0.0.0/8/8"};
	struct kvw_network network;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		ck_assert_msg(!kvw_network_parse(bad[i], &network), "%s", bad[i]);
}
END_TEST

START_TEST(several_and_others)
{
	struct kvw_network networks[2];
	struct sockaddr_storage local = {.ss_family = AF_UNIX};
	struct sockaddr_in peer = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};

	ck_assert(kvw_network_parse("10.0.0.0/8", &networks[0]) && kvw_network_parse("127.0.0.0/8", &networks[1]));
	ck_assert(kvw_networks_hold(networks, 2, (struct sockaddr *)&peer));
	ck_assert(!kvw_networks_hold(networks, 1, (struct sockaddr *)&peer));
	ck_assert(!kvw_networks_hold(networks, 2, (struct sockaddr *)&local));
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("all");

	tcase_add_test(tcase, addresses_in_blocks);
	tcase_add_test(tcase, texts_that_are_none);
	tcase_add_test(tcase, several_and_others);
	return run_tcase("network", tcase);
}
