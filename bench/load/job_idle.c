/*
 * job_idle.c - what an idle kept-alive client costs a proxy in memory.
 *
 * A first group of clients (a twentieth of the count, at least 100) warms the proxy up: pools,
 * code pages, backend connections. Then memory is read, the counted clients connect, each does one
 * request and stays, and memory is read again. Requests run few at a time, so that what is counted
 * is idle clients and not the buffers of a burst. Clients come from several loopback addresses:
 * one address has too few ports for many thousand.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "bench/load/bodies.h"
#include "base/clock.h"
#include "bench/load/job.h"
#include "bench/load/mem.h"
#include "bench/load/proc.h"
#include "bench/load/reply.h"

#define AT_ONCE     32
#define PER_ADDRESS 10000

struct run;

/* One client: a request, then nothing. */
struct client {
	struct kvb_source source; /* first member */
	struct run *run;
	struct kvb_reply *reply; /* while its request is under way */
	bool answered;
};

struct run {
	struct kvb_load *load;
	const struct kvb_job *job;
	struct kvb_bodies bodies;
	/* array of fixed size, since the reactor holds pointers to its sources */
	struct client *clients;
	size_t opened, answered, closed;
	uint64_t errors;
	char first_error[96];
};

static void note_error(struct run *run, const char *what, int number)
{
	if (run->errors++ == 0)
		snprintf(run->first_error, sizeof(run->first_error), "%.60s %d", what, number);
}

static void client_destroy(struct kvb_source *source)
{
	struct client *client = (struct client *)source;

	free(client->reply);
	client->reply = NULL;
}

static void client_end(struct client *client, const char *what, int number)
{
	if (what != NULL)
		note_error(client->run, what, number);
	client->run->closed++;
	kvb_reactor_retire(&client->run->load->reactor, &client->source);
}

static void client_ready(struct kvb_source *source, uint32_t events)
{
	struct client *client = (struct client *)source;
	char data[4096];
	ssize_t got = recv(source->fd, data, sizeof(data), 0);

	(void)events;
	if (got <= 0) {
		if (got == 0 || (errno != EAGAIN && errno != EINTR))
			client_end(client, got ? "recv" : "closed by the proxy", errno);
		return;
	}
	if (client->reply == NULL) {
		client_end(client, "bytes without a request", 0);
		return;
	}
	switch (kvb_reply_feed(client->reply, data, (size_t)got)) {
	case KVB_REPLY_MORE:
		break;
	case KVB_REPLY_DONE:
		if (client->reply->status != 200)
			note_error(client->run, "status", client->reply->status);
		free(client->reply);
		client->reply = NULL;
		client->answered = true;
		client->run->answered++;
		break;
	case KVB_REPLY_BAD:
		client_end(client, "bad answer", client->reply->status);
		break;
	}
}

static void client_open(struct run *run)
{
	struct client *client = &run->clients[run->opened];
	struct iovec pieces[KVB_BODY_PIECES];
	struct msghdr message = {.msg_iov = pieces, .msg_iovlen = KVB_BODY_PIECES};
	char stamp[KVB_BODY_STAMP], address[32];
	int fd;

	snprintf(address, sizeof(address), "127.0.0.%zu", 2 + run->opened / PER_ADDRESS);
	run->opened++;
	fd = kvb_connect(run->job->host, (uint16_t)run->job->port, address);
	if (fd < 0) {
		note_error(run, "connect", errno);
		run->closed++;
		return;
	}
	client->run = run;
	client->reply = kvb_alloc(1, sizeof(*client->reply));
	kvb_reply_begin(client->reply);
	client->source =
		(struct kvb_source){.fd = fd, .ready = client_ready, .destroy = client_destroy};
	if (kvb_reactor_add(&run->load->reactor, &client->source, EPOLLIN) != KVW_OK) {
		client_end(client, "epoll_ctl", errno);
		return;
	}
	kvb_bodies_next(&run->bodies, pieces, stamp);
	if (sendmsg(fd, &message, MSG_NOSIGNAL) < 0)
		client_end(client, "send", errno);
}

/* Opens clients until there are `count`, and waits until each has had its answer. */
static void open_until(struct run *run, size_t count)
{
	int64_t last_ns = kvw_clock_ns();
	size_t settled = 0;

	while (run->answered + run->closed < count) {
		size_t under_way = run->opened - run->answered - run->closed;

		if (run->opened < count && under_way < AT_ONCE)
			client_open(run);
		kvb_reactor_turn(&run->load->reactor,
			run->opened < count && under_way < AT_ONCE ? 0 : 10 * KVW_NS_PER_MS);
		if (run->answered + run->closed > settled) {
			settled = run->answered + run->closed;
			last_ns = kvw_clock_ns();
		}
		if (kvw_clock_ns() - last_ns > 10 * KVW_NS_PER_S) {
			note_error(run, "clients without an answer", (int)under_way);
			return;
		}
	}
}

/* Waits until the proxy has released what the last requests used. */
static void rest(struct run *run)
{
	int64_t end_ns = kvw_clock_ns() + KVW_NS_PER_S;

	while (kvw_clock_ns() < end_ns)
		kvb_reactor_turn(&run->load->reactor, 50 * KVW_NS_PER_MS);
}

static void raise_descriptor_limit(size_t wanted)
{
	struct rlimit limit;

	getrlimit(RLIMIT_NOFILE, &limit);
	if (limit.rlim_cur >= wanted)
		return;
	limit.rlim_cur = wanted;
	if (limit.rlim_max < wanted)
		limit.rlim_max = wanted;
	if (setrlimit(RLIMIT_NOFILE, &limit) < 0)
		perror("setrlimit");
}

enum kvw_err kvb_job_idle(struct kvb_load *load, const struct kvb_job *job, FILE *out)
{
	struct run run = {.load = load, .job = job};
	size_t counted = (size_t)job->connections;
	size_t warm = counted / 20 > 100 ? counted / 20 : 100;
	struct kvb_memory before, after;
	enum kvw_err err;

	if (job->pid == 0)
		return KVW_EINVAL;
	raise_descriptor_limit(counted + warm + 4096);
	kvb_bodies_init(&run.bodies, job->host, (size_t)job->body, 0, 0);
	run.clients = kvb_alloc(counted + warm, sizeof(*run.clients));
	open_until(&run, warm);
	rest(&run);
	err = kvb_proc_memory((int)job->pid, &before);
	open_until(&run, warm + counted);
	rest(&run);
	if (err == KVW_OK)
		err = kvb_proc_memory((int)job->pid, &after);
	if (err == KVW_OK)
		fprintf(out,
			"{\"job\":\"idle\",\"clients\":%zu,\"bytes_per_client\":%.1f,"
			"\"rss_per_client\":%.1f,\"pss_before\":%lu,\"pss_after\":%lu,"
			"\"errors\":%llu,\"first_error\":\"%s\"}\n",
			counted, ((double)after.pss - (double)before.pss) / (double)counted,
			((double)after.rss - (double)before.rss) / (double)counted, before.pss,
			after.pss, (unsigned long long)run.errors, run.first_error);
	fflush(out);
	for (size_t i = 0; i < run.opened; i++)
		if (run.clients[i].run != NULL && !run.clients[i].source.retired)
			kvb_reactor_retire(&load->reactor, &run.clients[i].source);
	kvb_reactor_bury(&load->reactor);
	kvb_bodies_finish(&run.bodies);
	free(run.clients);
	return err;
}
