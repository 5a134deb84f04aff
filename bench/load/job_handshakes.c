/*
 * job_handshakes.c - TLS handshakes with a proxy: what one of them costs it, and how many it can do.
 *
 * Each slot connects, shakes hands, says that it leaves and waits until the proxy has left, too, so that the proxy has
 * done all of its part. No request is sent. With resume, the first ticket of the warm-up is offered again and again; a
 * handshake that is not resumed then is an error. Source addresses change, so that no port
 * waits for its former connection.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "bench/load/job.h"
#include "bench/load/mem.h"
#include "bench/load/proc.h"
#include "bench/load/stats.h"
#include "bench/load/tls_client.h"

#define ADDRESSES 200

struct run;

/* One connection. */
struct shake {
	struct kvb_source source; /* first member */
	struct run *run;
	size_t slot;
	SSL *ssl;
	int64_t start_ns;
	bool leaving, ended;
	bool offered; /* it offers a session */
};

/* The job while it runs. */
struct run {
	struct kvb_load *load;
	const struct kvb_job *job;
	SSL_CTX *ctx;
	SSL_SESSION *session; /* resume: the session that is offered */
	struct shake **shakes; /* slots; NULL: a connection is to be opened */
	bool stopping;
	uint64_t opened, done, errors;
	struct kvb_samples latency_us;
	char first_error[96];
};

static void note_error(struct run *run, const char *what, int number)
{
	if (run->errors++ == 0)
		snprintf(run->first_error, sizeof(run->first_error), "%.60s %d", what, number);
}

static void shake_destroy(struct kvb_source *source)
{
	SSL_free(((struct shake *)source)->ssl);
	free(source);
}

static void shake_end(struct shake *shake)
{
	shake->ended = true;
	shake->run->shakes[shake->slot] = NULL;
	kvb_reactor_retire(&shake->run->load->reactor, &shake->source);
}

/* Keeps the first session ticket that comes. */
static int on_ticket(SSL *ssl, SSL_SESSION *session)
{
	struct run *run = ((struct shake *)SSL_get_app_data(ssl))->run;

	if (!run->job->resume || run->session != NULL)
		return 0;
	run->session = session;
	SSL_CTX_set_session_cache_mode(run->ctx, SSL_SESS_CACHE_OFF); /* else OpenSSL has it used once */
	return 1;                                                   /* it is ours now */
}

static void shake_done(struct shake *shake)
{
	struct run *run = shake->run;
	bool resumed = SSL_session_reused(shake->ssl);

	if (resumed != shake->offered)
		note_error(run, "resumed", resumed);
	run->done++;
	kvb_samples_add(&run->latency_us, (double)(kvw_clock_ns() - shake->start_ns) / 1000);
	shake_end(shake);
}

static void shake_leave(struct shake *shake)
{
	shake->leaving = true;
	(void)SSL_shutdown(shake->ssl);
	(void)shutdown(shake->source.fd, SHUT_WR);
}

static void shake_ready(struct kvb_source *source, uint32_t events)
{
	struct shake *shake = (struct shake *)source;
	char data[4096];
	int got;

	(void)events;
	if (shake->ended)
		return;
	got = SSL_read(shake->ssl, data, sizeof(data));
	if (got <= 0 && kvb_tls_waits(shake->ssl, got)) {
		if (SSL_is_init_finished(shake->ssl) && !shake->leaving)
			shake_leave(shake);
	} else if (shake->leaving) {
		shake_done(shake);
	} else {
		note_error(shake->run, "handshake", errno);
		shake_end(shake);
	}
}

static void shake_open(struct run *run, size_t slot)
{
	char from[32];
	struct shake *shake;
	int fd;

	snprintf(from, sizeof(from), "127.0.1.%d", (int)(run->opened++ % ADDRESSES) + 1);
	fd = kvb_connect(run->job->host, (uint16_t)run->job->port, from);
	if (fd < 0) {
		note_error(run, "connect", errno);
		return;
	}
	shake = kvb_alloc(1, sizeof(*shake));
	shake->source = (struct kvb_source){.fd = fd, .ready = shake_ready, .destroy = shake_destroy};
	shake->run = run;
	shake->slot = slot;
	shake->ssl = kvb_tls_open(run->ctx, fd);
	shake->start_ns = kvw_clock_ns();
	SSL_set_app_data(shake->ssl, shake);
	shake->offered = run->session != NULL;
	if (shake->offered)
		SSL_set_session(shake->ssl, run->session);
	run->shakes[slot] = shake;
	if (kvb_reactor_add(&run->load->reactor, &shake->source, EPOLLIN | EPOLLOUT | EPOLLET) != KVW_OK) {
		note_error(run, "epoll_ctl", errno);
		shake_end(shake);
	}
}

static void drive(struct run *run, int64_t end_ns)
{
	size_t slots = (size_t)run->job->connections;

	for (int64_t now = kvw_clock_ns(); now < end_ns && run->errors < 1000; now = kvw_clock_ns()) {
		/* Until the first ticket has come, only one connection is open. */
		size_t most = run->job->resume && run->session == NULL ? 1 : slots;

		for (size_t i = 0; i < most && !run->stopping; i++)
			if (run->shakes[i] == NULL)
				shake_open(run, i);
		kvb_reactor_turn(&run->load->reactor, run->stopping ? 10 * KVW_NS_PER_MS : 0);
		if (!run->stopping)
			continue;
		most = 0;
		for (size_t i = 0; i < slots; i++)
			most += run->shakes[i] != NULL;
		if (most == 0)
			break;
	}
}

static void report(const struct run *run, int64_t wall_ns, uint64_t done, uint64_t cpu_ns, FILE *out)
{
	double seconds = (double)wall_ns / 1e9;

	fprintf(out,
		"{\"job\":\"handshakes\",\"resume\":%lld,\"connections\":%lld,\"handshakes\":%llu,"
		"\"seconds\":%.4f,\"handshakes_per_second\":%.1f,\"cpu_us_per_handshake\":%.3f,"
		"\"proxy_cpu_share\":%.4f,\"latency_us_p50\":%.1f,\"latency_us_p99\":%.1f,"
		"\"errors\":%llu,\"first_error\":\"%s\"}\n",
		(long long)run->job->resume, (long long)run->job->connections, (unsigned long long)done, seconds,
		(double)done / seconds, done > 0 ? (double)cpu_ns / (double)done / 1000 : 0,
		(double)cpu_ns / 1e9 / seconds, kvb_samples_percentile((struct kvb_samples *)&run->latency_us, 50),
		kvb_samples_percentile((struct kvb_samples *)&run->latency_us, 99), (unsigned long long)run->errors,
		run->first_error);
	fflush(out);
}

enum kvw_err kvb_job_handshakes(struct kvb_load *load, const struct kvb_job *job, FILE *out)
{
	struct run run = {.load = load, .job = job, .ctx = kvb_tls_ctx()};
	uint64_t cpu_ns = 0, cpu_end_ns = 0, done;
	int64_t begin_ns, wall_ns;
	enum kvw_err err = KVW_OK;

	SSL_CTX_set_session_cache_mode(run.ctx, SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL);
	SSL_CTX_sess_set_new_cb(run.ctx, on_ticket);
	run.shakes = kvb_alloc((size_t)job->connections, sizeof(struct shake *));
	drive(&run, kvw_clock_ns() + job->warmup_ms * KVW_NS_PER_MS);
	kvb_samples_finish(&run.latency_us);
	if (job->pid != 0)
		err = kvb_proc_cpu_ns((int)job->pid, &cpu_ns);
	done = run.done;
	begin_ns = kvw_clock_ns();
	drive(&run, begin_ns + job->duration_ms * KVW_NS_PER_MS);
	wall_ns = kvw_clock_ns() - begin_ns;
	done = run.done - done;
	if (err == KVW_OK && job->pid != 0)
		err = kvb_proc_cpu_ns((int)job->pid, &cpu_end_ns);
	run.stopping = true;
	drive(&run, kvw_clock_ns() + 2 * KVW_NS_PER_S);
	if (err == KVW_OK)
		report(&run, wall_ns, done, cpu_end_ns - cpu_ns, out);
	for (size_t i = 0; i < (size_t)job->connections; i++)
		if (run.shakes[i] != NULL)
			shake_end(run.shakes[i]);
	kvb_reactor_bury(&load->reactor);
	kvb_samples_finish(&run.latency_us);
	SSL_SESSION_free(run.session);
	SSL_CTX_free(run.ctx);
	free(run.shakes);
	return err;
}
