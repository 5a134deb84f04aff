/*
 * job_requests.c - POSTs through a proxy: what one of them costs it, and how many it can do.
 *
 * Each connection sends a request, reads the whole answer, sends the next (closed loop); with a
 * rate, a request starts on an idle connection whenever one is due. The proxy's CPU time is read
 * at the edges of the counted window, in the same thread that counts answers, so that both cover
 * the same time. Edge-triggered events, registered once: writes go out at once and wait for
 * EPOLLOUT only after EAGAIN. After a short read nothing more is due: answers are not pipelined.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>

#include "bench/load/bodies.h"
#include "base/clock.h"
#include "bench/load/job.h"
#include "bench/load/proc.h"
#include "bench/load/reply.h"
#include "bench/load/stats.h"
#include "bench/load/tls_client.h"

#define TEXT_ROOM(job) ((size_t)(job)->body + 4096) /* pieces of a request: its head and body */

struct run;

/* One client connection. */
struct client {
	struct kvb_source source; /* first member */
	struct run *run;
	struct iovec pieces[KVB_BODY_PIECES]; /* pieces of the request that is being sent */
	size_t sent;                          /* bytes of it that were sent */
	char stamp[KVB_BODY_STAMP];
	int64_t start_ns;
	bool busy;
	struct client *next_idle;
	struct kvb_reply reply;
	SSL *ssl;    /* NULL: plain */
	char *text;  /* TLS: the request in one piece, of text_len bytes */
	size_t text_len;
};

/* The job while it runs. */
struct run {
	struct kvb_load *load;
	const struct kvb_job *job;
	struct kvb_bodies bodies;
	struct client **clients; /* slots; NULL where a connection failed and was not replaced */
	struct client *idle;     /* paced runs: connections without a request */
	SSL_CTX *ctx; /* NULL: plain */
	bool stopping;
	uint64_t done, errors;
	struct kvb_samples latency_us;
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

	SSL_free(client->ssl);
	free(client->text);
	free(client);
}

static void client_open(struct run *run, size_t slot);

static void client_fail(struct client *client, const char *what, int number)
{
	struct run *run = client->run;

	note_error(run, what, number);
	for (size_t i = 0; i < (size_t)run->job->connections; i++)
		if (run->clients[i] == client)
			run->clients[i] = NULL;
	kvb_reactor_retire(&run->load->reactor, &client->source);
}

/* Sends by TLS what the socket takes of the request. */
static void client_write_tls(struct client *client)
{
	while (client->sent < client->text_len) {
		int sent = SSL_write(client->ssl, client->text + client->sent, (int)(client->text_len - client->sent));

		if (sent > 0) {
			client->sent += (size_t)sent;
			continue;
		}
		if (!kvb_tls_waits(client->ssl, sent))
			client_fail(client, "TLS write", errno);
		return;
	}
}

/* Sends what the socket takes of the request. */
static void client_write(struct client *client)
{
	struct iovec rest[KVB_BODY_PIECES];
	struct msghdr message = {.msg_iov = rest};
	size_t skip = client->sent;
	ssize_t sent;

	if (client->ssl != NULL) {
		client_write_tls(client);
		return;
	}
	for (size_t i = 0; i < KVB_BODY_PIECES; i++) {
		struct iovec piece = client->pieces[i];

		if (skip >= piece.iov_len) {
			skip -= piece.iov_len;
			continue;
		}
		rest[message.msg_iovlen++] =
			(struct iovec){(char *)piece.iov_base + skip, piece.iov_len - skip};
		skip = 0;
	}
	if (message.msg_iovlen == 0)
		return;
	sent = sendmsg(client->source.fd, &message, MSG_NOSIGNAL);
	if (sent > 0)
		client->sent += (size_t)sent;
	else if (sent < 0 && errno != EAGAIN && errno != EINTR)
		client_fail(client, "send", errno);
}

static void client_start(struct client *client)
{
	client->busy = true;
	client->sent = 0;
	client->start_ns = kvw_clock_ns();
	kvb_reply_begin(&client->reply);
	kvb_bodies_next(&client->run->bodies, client->pieces, client->stamp);
	if (client->ssl != NULL)
		client->text_len = kvb_tls_join(client->pieces, KVB_BODY_PIECES, client->text, TEXT_ROOM(client->run->job));
	client_write(client);
}

static void client_answered(struct client *client)
{
	struct run *run = client->run;

	if (client->reply.status != 200) {
		client_fail(client, "status", client->reply.status);
		return;
	}
	client->busy = false;
	run->done++;
	kvb_samples_add(&run->latency_us, (double)(kvw_clock_ns() - client->start_ns) / 1000);
	if (run->stopping)
		return;
	if (run->job->rate == 0) {
		client_start(client);
	} else {
		client->next_idle = run->idle;
		run->idle = client;
	}
}

/* Sends the rest of the request and reads all that has come, since TLS may hold bytes for which no
 * event comes. */
static void client_ready_tls(struct client *client)
{
	char data[16384];

	while (!client->source.retired) {
		int got = SSL_read(client->ssl, data, sizeof(data));

		if (got <= 0) {
			if (!kvb_tls_waits(client->ssl, got))
				client_fail(client, "TLS read", errno);
			break;
		}
		switch (kvb_reply_feed(&client->reply, data, (size_t)got)) {
		case KVB_REPLY_MORE:
			break;
		case KVB_REPLY_DONE:
			client_answered(client);
			break;
		case KVB_REPLY_BAD:
			client_fail(client, "bad answer", client->reply.status);
			break;
		}
	}
	if (!client->source.retired && client->busy)
		client_write(client);
}

static void client_ready(struct kvb_source *source, uint32_t events)
{
	struct client *client = (struct client *)source;
	char data[16384];
	ssize_t got;

	if (client->ssl != NULL) {
		client_ready_tls(client);
		return;
	}
	if (events & EPOLLIN) {
		got = recv(source->fd, data, sizeof(data), 0);
		if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) {
			client_fail(client, got ? "recv" : "closed by the proxy", errno);
			return;
		}
		if (got > 0) {
			switch (kvb_reply_feed(&client->reply, data, (size_t)got)) {
			case KVB_REPLY_MORE:
				break;
			case KVB_REPLY_DONE:
				client_answered(client);
				return;
			case KVB_REPLY_BAD:
				client_fail(client, "bad answer", client->reply.status);
				return;
			}
		}
	} else if (events & (EPOLLERR | EPOLLHUP)) {
		client_fail(client, "connection", 0);
		return;
	}
	if ((events & EPOLLOUT) && client->busy)
		client_write(client);
}

static void client_open(struct run *run, size_t slot)
{
	int fd = kvb_connect(run->job->host, (uint16_t)run->job->port, NULL);
	struct client *client;

	if (fd < 0) {
		note_error(run, "connect", errno);
		return;
	}
	client = kvb_alloc(1, sizeof(*client));
	client->source =
		(struct kvb_source){.fd = fd, .ready = client_ready, .destroy = client_destroy};
	client->run = run;
	if (run->ctx != NULL) {
		client->ssl = kvb_tls_open(run->ctx, fd);
		client->text = kvb_alloc(1, TEXT_ROOM(run->job));
	}
	run->clients[slot] = client;
	if (kvb_reactor_add(&run->load->reactor, &client->source, EPOLLIN | EPOLLOUT | EPOLLET) !=
		KVW_OK) {
		client_fail(client, "epoll_ctl", errno);
	} else if (run->job->rate == 0) {
		client_start(client);
	} else {
		client->next_idle = run->idle;
		run->idle = client;
	}
}

/* Opens failed connections again, a few turns later. */
static void reopen(struct run *run)
{
	for (size_t i = 0; i < (size_t)run->job->connections; i++)
		if (run->clients[i] == NULL)
			client_open(run, i);
}

/* Runs load until end_ns. */
static void drive(struct run *run, int64_t end_ns)
{
	int64_t gap_ns = run->job->rate ? KVW_NS_PER_S / run->job->rate : 0;
	int64_t now = kvw_clock_ns(), due = now;
	uint64_t errors = run->errors;

	for (; now < end_ns; now = kvw_clock_ns()) {
		int64_t wait = end_ns - now;

		while (gap_ns && due <= now && run->idle != NULL) {
			struct client *client = run->idle;

			run->idle = client->next_idle;
			client_start(client);
			due += gap_ns;
		}
		if (gap_ns && due > now && due - now < wait)
			wait = due - now;
		kvb_reactor_turn(&run->load->reactor, gap_ns ? wait : 0);
		if (run->errors != errors) {
			if (run->errors - errors > 10000)
				break; /* there were only errors, which the result reports */
			run->idle = NULL;
			for (size_t i = 0; i < (size_t)run->job->connections; i++) {
				struct client *client = run->clients[i];

				if (client == NULL || client->busy || !gap_ns)
					continue;
				client->next_idle = run->idle;
				run->idle = client;
			}
			reopen(run);
		}
	}
}

/* Lets requests under way end, so that the proxy does not meet a cut connection. */
static void wind_up(struct run *run)
{
	int64_t end_ns = kvw_clock_ns() + 2 * KVW_NS_PER_S;
	bool busy = true;

	run->stopping = true;
	while (busy && kvw_clock_ns() < end_ns) {
		kvb_reactor_turn(&run->load->reactor, 10 * KVW_NS_PER_MS);
		busy = false;
		for (size_t i = 0; i < (size_t)run->job->connections; i++)
			busy |= run->clients[i] != NULL && run->clients[i]->busy;
	}
	for (size_t i = 0; i < (size_t)run->job->connections; i++)
		if (run->clients[i] != NULL)
			kvb_reactor_retire(&run->load->reactor, &run->clients[i]->source);
	kvb_reactor_bury(&run->load->reactor);
}

/* Clock and CPU times at one edge of the counted window. */
struct edge {
	int64_t wall_ns;
	uint64_t done, errors;
	uint64_t threads[256]; /* of the proxy */
	size_t thread_count;
	int64_t own_ns;
};

static enum kvw_err take_edge(struct run *run, struct edge *edge)
{
	struct timespec own;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &own);
	edge->own_ns = (int64_t)own.tv_sec * KVW_NS_PER_S + own.tv_nsec;
	edge->wall_ns = kvw_clock_ns();
	edge->done = run->done;
	edge->errors = run->errors;
	edge->thread_count = 0;
	if (run->job->pid == 0)
		return KVW_OK;
	return kvb_proc_thread_cpu_ns((int)run->job->pid, edge->threads, 256, &edge->thread_count);
}

static void report(struct run *run, const struct edge *from, const struct edge *to, FILE *out)
{
	double seconds = (double)(to->wall_ns - from->wall_ns) / 1e9;
	double requests = (double)(to->done - from->done), cpu_ns = 0, busiest = 0;

	for (size_t i = 0; i < to->thread_count; i++) {
		double used = (double)to->threads[i] -
			      (i < from->thread_count ? (double)from->threads[i] : 0);

		cpu_ns += used;
		busiest = used > busiest ? used : busiest;
	}
	fprintf(out,
		"{\"job\":\"requests\",\"body\":%lld,\"connections\":%lld,\"requests\":%.0f,"
		"\"seconds\":%.4f,\"requests_per_second\":%.1f,\"cpu_us_per_request\":%.3f,"
		"\"proxy_cpu_share\":%.4f,\"busiest_thread_share\":%.4f,\"load_cpu_share\":%.4f,"
		"\"latency_us_p50\":%.1f,\"latency_us_p99\":%.1f,\"errors\":%llu,"
		"\"first_error\":\"%s\"}\n",
		(long long)run->job->body, (long long)run->job->connections, requests, seconds,
		requests / seconds, requests > 0 ? cpu_ns / requests / 1000 : 0,
		cpu_ns / 1e9 / seconds, cpu_ns > 0 ? busiest / cpu_ns : 0,
		(double)(to->own_ns - from->own_ns) / 1e9 / seconds,
		kvb_samples_percentile(&run->latency_us, 50),
		kvb_samples_percentile(&run->latency_us, 99), (unsigned long long)run->errors,
		run->first_error);
	fflush(out);
}

enum kvw_err kvb_job_requests(struct kvb_load *load, const struct kvb_job *job, FILE *out)
{
	struct run run = {.load = load, .job = job};
	struct edge from, to;
	enum kvw_err err;

	kvb_bodies_init(&run.bodies, job->host, (size_t)job->body, 0, job->unique != 0);
	run.bodies.next = (uint64_t)kvw_clock_ns(); /* no number is used by two jobs */
	run.ctx = job->tls ? kvb_tls_ctx() : NULL;
	run.clients = kvb_alloc((size_t)job->connections, sizeof(struct client *));
	reopen(&run);
	drive(&run, kvw_clock_ns() + job->warmup_ms * KVW_NS_PER_MS);
	kvb_samples_finish(&run.latency_us);
	err = take_edge(&run, &from);
	drive(&run, kvw_clock_ns() + job->duration_ms * KVW_NS_PER_MS);
	if (err == KVW_OK)
		err = take_edge(&run, &to);
	wind_up(&run);
	if (err == KVW_OK)
		report(&run, &from, &to, out);
	kvb_samples_finish(&run.latency_us);
	kvb_bodies_finish(&run.bodies);
	SSL_CTX_free(run.ctx);
	free(run.clients);
	return err;
}
