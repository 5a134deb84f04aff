/*
 * lease_load.c - leases from a tiered-storage daemon, as many clients as asked for at once.
 *
 * Each client has one kept-alive connection and one request on its way: a lease on one of the
 * objects in turn, then its release, and so on; or, with -m, leases on objects that were never put,
 * which must be refused at once (so that any server will do that refuses everything). A lease's time is
 * from its write to the last byte of its answer. One thread on one epoll set.
 */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bench/l2/daemon_wire.h"
#include "bench/l2/spent.h"
#include "bench/load/stats.h"
#include "bench/l2/wire.h"

#define MISSING     (UINT64_C(1) << 40) /* number from which names have no object */
#define WARM_SHARE  8u
#define PATIENCE_MS 20000

struct client {
	int fd;
	bool holds; /* the request under way is the release of a lease */
	double asked;
	size_t have;
	char text[KVB_ANSWER_ROOM];
};

struct load {
	const char *host;
	uint16_t port;
	uint32_t clients, objects;
	uint64_t leases; /* of a run */
	bool misses;
	int server_pid, epoll;
	struct client *all;
	uint64_t asked, done, target;
	struct kvb_samples *times; /* NULL: warming up */
};

static void usage(void)
{
	kvb_fail("usage: lease_load -p PORT [-h HOST] [-n CLIENTS] [-k OBJECTS] [-l LEASES] [-m "
		 "misses] "
		 "[-s SERVER PID]");
}

static void parse(struct load *l, int argc, char **argv)
{
	int option;

	while ((option = getopt(argc, argv, "h:p:n:k:l:s:m")) != -1) {
		switch (option) {
		case 'h':
			l->host = optarg;
			break;
		case 'p':
			l->port = (uint16_t)strtoul(optarg, NULL, 10);
			break;
		case 'n':
			l->clients = (uint32_t)strtoul(optarg, NULL, 10);
			break;
		case 'k':
			l->objects = (uint32_t)strtoul(optarg, NULL, 10);
			break;
		case 'l':
			l->leases = strtoull(optarg, NULL, 10);
			break;
		case 's':
			l->server_pid = (int)strtol(optarg, NULL, 10);
			break;
		case 'm':
			l->misses = true;
			break;
		default:
			usage();
		}
	}
	if (l->port == 0 || l->clients == 0 || l->objects == 0 || l->leases == 0)
		usage();
}

static void write_request(struct client *c, const char *request, size_t bytes)
{
	if (send(c->fd, request, bytes, MSG_NOSIGNAL) != (ssize_t)bytes)
		kvb_fail("lease_load: sending: %s", strerror(errno));
}

static void ask(struct load *l, struct client *c)
{
	char request[KVB_REQUEST_ROOM];
	uint64_t number = l->asked++;

	number = l->misses ? MISSING + number : number % l->objects;
	c->asked = kvb_seconds();
	write_request(c, request, kvb_lease_head(request, number));
}

static void finish_one(struct load *l, struct client *c)
{
	l->done++;
	if (l->asked < l->target)
		ask(l, c);
}

static void answered(struct load *l, struct client *c, const struct kvb_answer *answer)
{
	char request[KVB_REQUEST_ROOM], lease[KVB_LEASE_ROOM];

	if (c->holds) {
		if (answer->status != 200)
			kvb_fail("lease_load: a release was answered %d", answer->status);
		c->holds = false;
		finish_one(l, c);
		return;
	}
	if (l->times != NULL)
		kvb_samples_add(l->times, kvb_seconds() - c->asked);
	if (l->misses) {
		if (answer->status == 200)
			kvb_fail("lease_load: a lease on what was never put");
		finish_one(l, c);
		return;
	}
	kvb_answer_lease(answer, lease);
	c->holds = true;
	write_request(c, request, kvb_release_head(request, lease));
}

static void receive(struct load *l, struct client *c)
{
	ssize_t got = recv(c->fd, c->text + c->have, sizeof(c->text) - c->have, 0);
	struct kvb_answer answer;
	size_t used;

	if (got < 0 && errno == EAGAIN)
		return;
	if (got <= 0)
		kvb_fail("lease_load: receiving: %s", got == 0 ? "closed" : strerror(errno));
	c->have += (size_t)got;
	used = kvb_answer_parse(c->text, c->have, &answer);
	if (used == 0 && c->have < sizeof(c->text))
		return;
	if (used != c->have)
		kvb_fail("lease_load: more than one answer to one request");
	c->have = 0;
	answered(l, c, &answer);
}

static void run(struct load *l, uint64_t leases, struct kvb_samples *times)
{
	struct epoll_event events[64];

	l->asked = l->done = 0;
	l->target = leases;
	l->times = times;
	for (uint32_t i = 0; i < l->clients && l->asked < l->target; i++)
		ask(l, &l->all[i]);
	while (l->done < l->target) {
		int count = epoll_wait(l->epoll, events, 64, PATIENCE_MS);

		if (count == 0 || (count < 0 && errno != EINTR))
			kvb_fail("lease_load: no answer for %d s", PATIENCE_MS / 1000);
		for (int i = 0; i < count; i++)
			receive(l, events[i].data.ptr);
	}
}

static void connect_all(struct load *l)
{
	l->epoll = epoll_create1(EPOLL_CLOEXEC);
	l->all = calloc(l->clients, sizeof(*l->all));
	if (l->epoll < 0 || l->all == NULL)
		kvb_fail("lease_load: no memory");
	for (uint32_t i = 0; i < l->clients; i++) {
		struct epoll_event event = {.events = EPOLLIN, .data.ptr = &l->all[i]};

		l->all[i].fd = kvb_connect(l->host, l->port, false);
		if (epoll_ctl(l->epoll, EPOLL_CTL_ADD, l->all[i].fd, &event) != 0)
			kvb_fail("lease_load: epoll: %s", strerror(errno));
	}
}

int main(int argc, char **argv)
{
	struct load l = {.host = "127.0.0.1", .clients = 1, .objects = 64, .leases = 10000};
	struct kvb_samples times = {0};
	struct kvb_summary told;
	struct kvb_spent spent;

	parse(&l, argc, argv);
	connect_all(&l);
	run(&l, l.leases / WARM_SHARE + 1, NULL);
	kvb_spent_begin(&spent, l.server_pid);
	run(&l, l.leases, &times);
	kvb_spent_end(&spent, l.server_pid);
	told = kvb_samples_summary(&times, 1e6);
	(void)printf(
		"{\"leases\": %llu, \"seconds\": %.6f, \"per_second\": %.1f, \"p50_us\": %.2f, "
		"\"p99_us\": %.2f, \"max_us\": %.2f, \"cpu_seconds\": %.6f, "
		"\"server_cpu_seconds\": %.6f}\n",
		(unsigned long long)l.leases, spent.seconds, (double)l.leases / spent.seconds,
		told.p50, told.p99, told.max, spent.cpu_seconds, spent.server_cpu);
	for (uint32_t i = 0; i < l.clients; i++)
		(void)close(l.all[i].fd);
	(void)close(l.epoll);
	free(l.all);
	kvb_samples_finish(&times);
	return 0;
}
