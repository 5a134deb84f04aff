/*
 * link_test.c - connections to a listener on loopback: reuse, age, and what must not be reused.
 */
#include <arpa/inet.h>
#include <check.h>
#include <poll.h>
#include <string.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "fleet_support.h"
#include "fleet/link.h"
#include "tests/unit/suite.h"

static struct kvw_config *config;
static struct kvw_fleet *fleet;
static struct kvw_io_set set;
static struct kvw_links links;
static struct kvw_worker *worker;
static int listener, events;

static int listen_on_loopback(uint16_t *port)
{
	struct sockaddr_in name = {
		.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(name);
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	ck_assert_int_eq(bind(fd, (struct sockaddr *)&name, sizeof(name)), 0);
	ck_assert_int_eq(listen(fd, 100), 0);
	ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&name, &len), 0);
	*port = ntohs(name.sin_port);
	return fd;
}

static void setup(void)
{
	uint16_t port;

	listener = listen_on_loopback(&port);
	config = fleet_test_config(1, port);
	config->timeout_upstream_idle_ms = 4000;
	config->upstream_idle_connections = 8;
	fleet = fleet_test_create(config, 1);
	worker = fleet->workers[0];
	ck_assert_int_eq(kvw_io_set_init(&set), KVW_OK);
	ck_assert_int_eq(kvw_links_init(&links, &set, fleet), KVW_OK);
}

static void teardown(void)
{
	kvw_links_finish(&links);
	ck_assert_uint_eq(links.idle_total, 0);
	kvw_io_set_finish(&set);
	kvw_fleet_destroy(fleet);
	kvw_config_destroy(config);
	if (listener >= 0)
		close(listener);
}

static void count_event(struct kvw_link *link, void *user)
{
	ck_assert_ptr_eq(user, &events);
	ck_assert(!link->idle);
	events++;
}

static void turn(void)
{
	struct pollfd wait = {.fd = set.fd, .events = POLLIN};

	if (!kvw_io_set_busy(&set))
		ck_assert_int_eq(poll(&wait, 1, 10000), 1);
	kvw_io_set_dispatch(&set);
	kvw_links_reap(&links);
}

/* Takes a link and waits until it is connected. peer NULL: the other end stays unaccepted. */
static struct kvw_link *take(bool fresh, int *peer)
{
	struct kvw_link *link;
	int cause;

	ck_assert_int_eq(kvw_link_take(&links, worker, fresh, count_event, &events, &link), KVW_OK);
	if (peer != NULL)
		*peer = accept(listener, NULL, NULL);
	while (!link->connected) {
		if (kvw_link_connect_result(link, &cause) != KVW_OK)
			turn();
	}
	return link;
}

START_TEST(last_used_is_first_taken)
{
	struct kvw_link *a = take(false, NULL), *b = take(false, NULL), *c;

	ck_assert_ptr_ne(a, b);
	ck_assert(!a->reused && !b->reused);
	ck_assert_uint_eq(links.busy_total, 2);
	kvw_link_release(a, 1);
	kvw_link_release(b, 2);
	ck_assert_uint_eq(links.busy_total, 0);
	ck_assert_uint_eq(links.idle_total, 2);
	c = take(true, NULL); /* fresh: not one of them */
	ck_assert(!c->reused && c != a && c != b);
	ck_assert_ptr_eq(take(false, NULL), b);
	ck_assert_ptr_eq(take(false, NULL), a);
	ck_assert(a->reused && b->reused);
	ck_assert_uint_eq(links.busy_total, 3);
	ck_assert_uint_eq(links.idle_total, 0);
	kvw_link_close(a);
	kvw_link_close(b);
	kvw_link_close(c);
	ck_assert_uint_eq(links.busy_total, 0);
}
END_TEST

START_TEST(idle_ones_go_by_age)
{
	struct kvw_link *a = take(true, NULL), *b = take(true, NULL);
	int64_t limit_ns = config->timeout_upstream_idle_ms * KVW_NS_PER_MS;

	kvw_link_release(a, 1000);
	kvw_link_release(b, 2000);
	kvw_links_sweep(&links, 1000 + limit_ns);
	ck_assert_uint_eq(links.idle_total, 2);
	kvw_links_sweep(&links, 1001 + limit_ns);
	ck_assert_uint_eq(links.idle_total, 1);
	ck_assert_ptr_eq(take(false, NULL), b); /* the younger is left */
	kvw_links_reap(&links);
	kvw_links_sweep(&links, 100000 + limit_ns);
	ck_assert_int_ge(b->io.fd, 0); /* busy: no age */
	kvw_link_close(b);
}
END_TEST

START_TEST(more_than_the_limit_are_closed)
{
	struct kvw_link *held[4];

	config->upstream_idle_connections = 2;
	for (int i = 0; i < 4; i++)
		held[i] = take(true, NULL);
	for (int i = 0; i < 4; i++)
		kvw_link_release(held[i], i);
	ck_assert_uint_eq(links.idle_total, 2);
	ck_assert_uint_eq(links.idle_count[0], 2);
	ck_assert_uint_eq(links.busy_total, 0);
	kvw_links_reap(&links);
	ck_assert_ptr_eq(take(false, NULL), held[1]);
	kvw_link_close(held[1]);
}
END_TEST

START_TEST(end_of_an_idle_one_is_noticed)
{
	struct linger now = {.l_onoff = 1};
	struct kvw_link *link;
	int peer;

	link = take(true, &peer);
	kvw_link_release(link, 1);
	if (_i == 1) /* by RST */
		ck_assert_int_eq(setsockopt(peer, SOL_SOCKET, SO_LINGER, &now, sizeof(now)), 0);
	events = 0;
	close(peer);
	turn();
	ck_assert_uint_eq(links.idle_total, 0);
	ck_assert_int_eq(events, 0); /* not reported: no request used it */
	link = take(false, NULL);
	ck_assert(!link->reused);
	kvw_link_close(link);
}
END_TEST

START_TEST(bytes_on_an_idle_one_close_it)
{
	struct kvw_link *link;
	int peer;

	link = take(true, &peer);
	kvw_link_release(link, 1);
	ck_assert_int_eq(write(peer, "HTTP/1.1 408", 12), 12);
	turn();
	ck_assert_uint_eq(links.idle_total, 0);
	close(peer);
}
END_TEST

START_TEST(leftovers_refuse_reuse)
{
	struct kvw_link *link;
	int peer;

	link = take(true, &peer);
	events = 0;
	ck_assert_int_eq(write(peer, "x", 1), 1);
	turn();
	ck_assert_int_eq(events, 1);
	ck_assert(link->io.readable);
	kvw_link_release(link, 1);
	ck_assert_uint_eq(links.idle_total, 0);
	ck_assert_uint_eq(links.busy_total, 0);
	close(peer);
}
END_TEST

START_TEST(end_of_a_busy_one_refuses_reuse)
{
	struct kvw_link *link;
	int peer;

	link = take(true, &peer);
	close(peer);
	turn();
	ck_assert(link->io.peer_closed);
	kvw_link_release(link, 1);
	ck_assert_uint_eq(links.idle_total, 0);
}
END_TEST

START_TEST(answer_that_filled_its_read_does_not_cost_the_connection)
{
	/* A read that was not short leaves `readable` set; there is nothing behind it all the same. */
	struct kvw_link *link;
	char answer[4];
	struct iovec iov = {answer, sizeof(answer)};
	int peer;

	link = take(true, &peer);
	ck_assert_int_eq(write(peer, "four", 4), 4);
	turn();
	ck_assert_int_eq(kvw_io_readv(&link->io, &iov, 1, sizeof(answer)), 4);
	ck_assert(link->io.readable);
	kvw_link_release(link, 1);
	ck_assert_uint_eq(links.idle_total, 1);
	kvw_io_again(&link->io); /* any event */
	turn();
	ck_assert_uint_eq(links.idle_total, 1);
	ck_assert_ptr_eq(take(false, NULL), link);
	kvw_link_close(link);
	close(peer);
}
END_TEST

START_TEST(refused_connection_names_its_cause)
{
	struct kvw_link *link;
	int cause = 0;
	enum kvw_err err;

	close(listener);
	listener = -1;
	err = kvw_link_take(&links, worker, false, count_event, &events, &link);
	if (err == KVW_OK) {
		while ((err = kvw_link_connect_result(link, &cause)) == KVW_EAGAIN)
			turn();
		ck_assert_int_eq(cause, ECONNREFUSED);
		ck_assert_str_eq(kvw_link_why(link, cause), strerror(ECONNREFUSED));
		kvw_link_close(link);
	}
	ck_assert_int_eq(err, KVW_EIO);
	ck_assert_uint_eq(links.busy_total, 0);
}
END_TEST

START_TEST(lack_of_descriptors_is_no_failure_of_the_worker)
{
	struct rlimit limit, none;
	struct kvw_link *link = NULL;
	int lowest_free = dup(listener);

	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
	close(lowest_free);
	none = limit;
	none.rlim_cur = (rlim_t)lowest_free;
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &none), 0);
	ck_assert_int_eq(
		kvw_link_take(&links, worker, false, count_event, &events, &link), KVW_ENOMEM);
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
	ck_assert_ptr_null(link);
	ck_assert_uint_eq(links.busy_total, 0);
	kvw_link_close(take(false, NULL));
}
END_TEST

/* The worker's addresses: a port that refuses, then the listener. */
static void refuse_at_the_first(int *unused)
{
	struct sockaddr_storage at[2];
	struct sockaddr_in *first = (struct sockaddr_in *)&at[0];
	socklen_t len = sizeof(*first);

	ck_assert(kvw_worker_address(worker, 0, &at[1]));
	at[0] = at[1];
	first->sin_port = 0;
	*unused = socket(AF_INET, SOCK_STREAM, 0); /* bound, and does not listen */
	ck_assert_int_eq(bind(*unused, (struct sockaddr *)first, sizeof(*first)), 0);
	ck_assert_int_eq(getsockname(*unused, (struct sockaddr *)first, &len), 0);
	kvw_fleet_set_addresses(fleet, worker, at, 2);
}

static struct kvw_link *begin(void)
{
	struct kvw_link *link;

	ck_assert_int_eq(kvw_link_take(&links, worker, true, count_event, &events, &link), KVW_OK);
	return link;
}

static void await_connection(struct kvw_link *link)
{
	enum kvw_err err;
	int cause;

	while ((err = kvw_link_connect_result(link, &cause)) == KVW_EAGAIN)
		turn();
	ck_assert_int_eq(err, KVW_OK);
}

/* DNS has another list: connections to an address that is not in it are of no more use. */
START_TEST(idle_ones_to_an_address_that_is_gone_are_closed)
{
	struct kvw_link *a = take(true, NULL), *b = take(true, NULL);
	struct sockaddr_storage list[2] = {a->to, a->to};

	((struct sockaddr_in *)&list[0])->sin_port ^= 1;
	kvw_link_release(a, 1);
	kvw_fleet_set_addresses(fleet, worker, list, 2);
	kvw_links_sweep(&links, 1);
	ck_assert_uint_eq(links.idle_total, 1); /* it is still listed */
	kvw_fleet_set_addresses(fleet, worker, list, 1);
	kvw_links_sweep(&links, 1);
	ck_assert_uint_eq(links.idle_total, 0);
	kvw_link_release(b, 1); /* its request ended after that */
	ck_assert_uint_eq(links.idle_total + links.busy_total, 0);
	kvw_fleet_set_addresses(fleet, worker, &list[1], 1);
	kvw_link_release(take(true, NULL), 1);
	kvw_links_sweep(&links, 1);
	ck_assert_uint_eq(links.idle_total, 1);
}
END_TEST

START_TEST(address_that_worked_for_another_link_is_not_left_out)
{
	struct kvw_link *a, *b;
	int unused;

	refuse_at_the_first(&unused);
	a = begin();
	b = begin();
	await_connection(a);
	ck_assert_uint_eq(kvw_worker_first_address(worker), 1);
	await_connection(b); /* its second is the one that works, as it was when it began */
	kvw_link_close(a);
	kvw_link_close(b);
	close(unused);
}
END_TEST

START_TEST(event_of_a_refused_address_does_not_reach_the_next_one)
{
	struct kvw_link *link;
	struct pollfd wait;
	int cause, unused;

	refuse_at_the_first(&unused);
	link = begin();
	wait = (struct pollfd){.fd = set.fd, .events = POLLIN};
	ck_assert_int_eq(poll(&wait, 1, 10000), 1);
	/* The refusal waits in the set; a client's event makes its request look at the link first. */
	ck_assert_int_eq(kvw_link_connect_result(link, &cause), KVW_EAGAIN);
	ck_assert_uint_eq(link->address, 0);
	await_connection(link);
	ck_assert_uint_eq(link->address, 1);
	ck_assert(!link->io.broken);
	kvw_link_close(link);
	close(unused);
}
END_TEST

START_TEST(address_that_says_nothing_is_left_for_the_next)
{
	struct kvw_link *link;
	int unused;

	refuse_at_the_first(&unused);
	link = begin();
	ck_assert(kvw_link_connect_elsewhere(link)); /* its time is over */
	await_connection(link);
	ck_assert_uint_eq(kvw_worker_first_address(worker), 1);
	kvw_link_close(link);
	link = begin();
	ck_assert(kvw_link_connect_elsewhere(link));
	ck_assert(!kvw_link_connect_elsewhere(link));
	kvw_link_close(link);
	ck_assert_uint_eq(links.busy_total, 0);
	close(unused);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("link");

	tcase_set_timeout(tcase, 120);
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, last_used_is_first_taken);
	tcase_add_test(tcase, idle_ones_go_by_age);
	tcase_add_test(tcase, more_than_the_limit_are_closed);
	tcase_add_loop_test(tcase, end_of_an_idle_one_is_noticed, 0, 2);
	tcase_add_test(tcase, bytes_on_an_idle_one_close_it);
	tcase_add_test(tcase, leftovers_refuse_reuse);
	tcase_add_test(tcase, end_of_a_busy_one_refuses_reuse);
	tcase_add_test(tcase, answer_that_filled_its_read_does_not_cost_the_connection);
	tcase_add_test(tcase, refused_connection_names_its_cause);
	tcase_add_test(tcase, lack_of_descriptors_is_no_failure_of_the_worker);
	tcase_add_test(tcase, idle_ones_to_an_address_that_is_gone_are_closed);
	tcase_add_test(tcase, address_that_worked_for_another_link_is_not_left_out);
	tcase_add_test(tcase, event_of_a_refused_address_does_not_reach_the_next_one);
	tcase_add_test(tcase, address_that_says_nothing_is_left_for_the_next);
	return run_tcase("link", tcase);
}
