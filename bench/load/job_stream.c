/*
 * job_stream.c - many event streams through a proxy: CPU per chunk and added delay.
 *
 * The backends in this process answer each client's request with an event stream. One event per
 * stream and interval goes out, the streams evenly staggered, each carrying the time it was sent;
 * the client side, in the same thread and on the same clock, takes the time when it reads it. What
 * this process adds itself (its system calls, its turn) is the same without a proxy, so a run
 * straight to the backends gives the figure to subtract. The thread spins instead of sleeping: a
 * sleeping reader would measure the kernel's wake-up, not the proxy.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>

#include "bench/load/bodies.h"
#include "base/clock.h"
#include "bench/load/job.h"
#include "bench/load/proc.h"
#include "bench/load/stamps.h"
#include "bench/load/stats.h"

struct run;

/* The client of one stream. */
struct reader {
	struct kvb_source source; /* first member */
	struct run *run;
	struct kvb_stamp_reader stamps;
	bool open;
	bool answered; /* its status line was checked */
};

struct run {
	struct kvb_load *load;
	const struct kvb_job *job;
	struct reader **readers;         /* one reader per stream */
	/* backends' connections in the order of their begin; may hold NULL */
	struct kvb_backend_conn **conns;
	size_t conn_count;
	bool counting;
	uint64_t sent, received, errors;
	int64_t read_ns; /* when the bytes now being scanned were read */
	struct kvb_samples delay_us;
	char first_error[96];
};

static void note_error(struct run *run, const char *what, int number)
{
	if (run->errors++ == 0)
		snprintf(run->first_error, sizeof(run->first_error), "%.60s %d", what, number);
}

static void stamp_found(void *arg, int64_t ns)
{
	struct run *run = arg;

	run->received++;
	if (run->counting)
		kvb_samples_add(&run->delay_us, (double)(run->read_ns - ns) / 1000);
}

static void reader_destroy(struct kvb_source *source)
{
	(void)source; /* its memory is freed with the run, since its slot is read until then */
}

static void reader_close(struct reader *reader, const char *what, int number)
{
	if (what != NULL)
		note_error(reader->run, what, number);
	reader->open = false;
	kvb_reactor_retire(&reader->run->load->reactor, &reader->source);
}

static void reader_ready(struct kvb_source *source, uint32_t events)
{
	struct reader *reader = (struct reader *)source;
	struct run *run = reader->run;
	char data[16384];
	ssize_t got = recv(source->fd, data, sizeof(data), 0);

	(void)events;
	if (got <= 0) {
		if (got == 0 || (errno != EAGAIN && errno != EINTR))
			reader_close(reader, got ? "recv" : "stream ended early", errno);
		return;
	}
	run->read_ns = kvw_clock_ns();
	if (!reader->answered && (got < 12 || memcmp(data, "HTTP/1.1 200", 12) != 0)) {
		reader_close(reader, "no stream", got >= 12 ? atoi(data + 9) : 0);
		return;
	}
	reader->answered = true;
	kvb_stamps_read(&reader->stamps, data, (size_t)got, stamp_found, run);
}

static void open_stream(struct run *run, size_t i, struct kvb_bodies *bodies)
{
	struct reader *reader = kvb_alloc(1, sizeof(*reader));
	struct iovec pieces[KVB_BODY_PIECES];
	struct msghdr message = {.msg_iov = pieces, .msg_iovlen = KVB_BODY_PIECES};
	char stamp[KVB_BODY_STAMP];
	int fd = kvb_connect(run->job->host, (uint16_t)run->job->port, NULL);

	run->readers[i] = reader;
	reader->run = run;
	if (fd < 0) {
		note_error(run, "connect", errno);
		return;
	}
	reader->source =
		(struct kvb_source){.fd = fd, .ready = reader_ready, .destroy = reader_destroy};
	reader->open = true;
	kvb_bodies_next(bodies, pieces, stamp);
	/* Loopback connects at once, and the request fits any socket buffer. */
	if (sendmsg(fd, &message, MSG_NOSIGNAL) < 0)
		note_error(run, "send", errno);
	if (kvb_reactor_add(&run->load->reactor, &reader->source, EPOLLIN) != KVW_OK)
		reader_close(reader, "epoll_ctl", errno);
}

/* Called when a request for a stream has arrived at a backend. */
static void stream_begin(void *arg, struct kvb_backend_conn *conn)
{
	static const char head[] =
		"HTTP/1.1 200 OK\r\nserver: kvb\r\ncontent-type: text/event-stream; "
		"charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n";
	struct run *run = arg;

	if (run->conn_count >= (size_t)run->job->streams) {
		note_error(run, "more streams than asked for", 0);
		return;
	}
	run->conns[run->conn_count++] = conn;
	if (kvb_backend_send(conn, head, sizeof(head) - 1) != KVW_OK)
		note_error(run, "stream refused", 0);
}

static void stream_gone(void *arg, struct kvb_backend_conn *conn)
{
	struct run *run = arg;

	for (size_t i = 0; i < run->conn_count; i++)
		if (run->conns[i] == conn)
			run->conns[i] = NULL;
}

static void send_event(struct run *run, struct kvb_backend_conn *conn)
{
	char event[320], chunk[352];
	int len = snprintf(event, sizeof(event),
		"data: {\"id\":\"chatcmpl-a8296cb28eaacfd7\",\"object\":\"chat.completion.chunk\","
		"\"created\":1795242761,\"model\":\"bench\"," KVB_STAMP_KEY "%020" PRId64 "\","
		"\"choices\":[{\"index\":0,\"delta\":{\"content\":\" wait\"},\"logprobs\":null,"
		"\"finish_reason\":null}]}\n\n",
		kvw_clock_ns());

	len = snprintf(chunk, sizeof(chunk), "%x\r\n%s\r\n", (unsigned)len, event);
	if (kvb_backend_send(conn, chunk, (size_t)len) == KVW_OK)
		run->sent++;
	else
		note_error(run, "event not taken", 0);
}

/* Sends events as they fall due until end_ns, stream by stream. */
static void drive(struct run *run, int64_t end_ns, size_t *turn)
{
	int64_t gap_ns = run->job->interval_us * 1000 / run->job->streams;
	int64_t now = kvw_clock_ns(), due = now;

	for (; now < end_ns; now = kvw_clock_ns()) {
		if (due <= now) {
			struct kvb_backend_conn *conn = run->conns[*turn % run->conn_count];

			if (conn != NULL)
				send_event(run, conn);
			*turn += 1;
			due += gap_ns;
		}
		kvb_reactor_turn(&run->load->reactor, 0);
	}
}

/* Waits until every stream has begun at the backends; false: not in five seconds. */
static bool open_all(struct run *run)
{
	int64_t end_ns = kvw_clock_ns() + 5 * KVW_NS_PER_S;
	struct kvb_bodies bodies;

	kvb_bodies_init(&bodies, run->job->host, 600, 1, 0);
	for (size_t i = 0; i < (size_t)run->job->streams; i++) {
		open_stream(run, i, &bodies);
		kvb_reactor_turn(&run->load->reactor, 0);
	}
	while (run->conn_count < (size_t)run->job->streams && kvw_clock_ns() < end_ns)
		kvb_reactor_turn(&run->load->reactor, 10 * KVW_NS_PER_MS);
	kvb_bodies_finish(&bodies);
	if (run->conn_count < (size_t)run->job->streams)
		note_error(run, "streams opened", (int)run->conn_count);
	return run->conn_count > 0;
}

/* Ends the streams as a worker does, then closes the clients. */
static void close_all(struct run *run)
{
	static const char last[] = "e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n";
	int64_t end_ns;

	for (size_t i = 0; i < run->conn_count; i++) {
		struct kvb_backend_conn *conn = run->conns[i];

		if (conn == NULL)
			continue;
		kvb_backend_release(conn);
		if (kvb_backend_send(conn, last, sizeof(last) - 1) != KVW_OK)
			note_error(run, "end not taken", 0);
	}
	end_ns = kvw_clock_ns() + 200 * KVW_NS_PER_MS;
	while (kvw_clock_ns() < end_ns)
		kvb_reactor_turn(&run->load->reactor, 10 * KVW_NS_PER_MS);
	for (size_t i = 0; i < (size_t)run->job->streams; i++)
		if (run->readers[i]->open)
			reader_close(run->readers[i], NULL, 0);
	kvb_reactor_bury(&run->load->reactor);
	for (size_t i = 0; i < (size_t)run->job->streams; i++)
		free(run->readers[i]);
}

/* Reads what is still on its way; what has not come after two seconds is lost. */
static void drain(struct run *run)
{
	int64_t end_ns = kvw_clock_ns() + 2 * KVW_NS_PER_S;

	while (run->received < run->sent && kvw_clock_ns() < end_ns)
		kvb_reactor_turn(&run->load->reactor, 10 * KVW_NS_PER_MS);
}

/* Runs the counted part. Delays are taken until the last event has come, so that late events count,
 * too. */
static enum kvw_err measure(struct run *run, FILE *out)
{
	const struct kvb_job *job = run->job;
	uint64_t cpu_from = 0, cpu_to = 0, received, sent;
	enum kvw_err err = KVW_OK;
	int64_t from_ns;
	size_t turn = 0;
	double seconds;

	drive(run, kvw_clock_ns() + job->warmup_ms * KVW_NS_PER_MS, &turn);
	if (job->pid)
		err = kvb_proc_cpu_ns((int)job->pid, &cpu_from);
	run->counting = true;
	received = run->received;
	sent = run->sent;
	from_ns = kvw_clock_ns();
	drive(run, from_ns + job->duration_ms * KVW_NS_PER_MS, &turn);
	if (job->pid && err == KVW_OK)
		err = kvb_proc_cpu_ns((int)job->pid, &cpu_to);
	seconds = (double)(kvw_clock_ns() - from_ns) / 1e9;
	received = run->received - received;
	sent = run->sent - sent;
	drain(run);
	run->counting = false;
	if (err != KVW_OK)
		return err;
	fprintf(out,
		"{\"job\":\"stream\",\"streams\":%lld,\"chunks\":%llu,\"sent\":%llu,\"lost\":%llu,"
		"\"seconds\":%.4f,\"chunks_per_second\":%.1f,\"cpu_us_per_chunk\":%.3f,"
		"\"proxy_cpu_share\":%.4f,\"delay_us_p50\":%.2f,\"delay_us_p90\":%.2f,"
		"\"delay_us_p99\":%.2f,\"errors\":%llu,\"first_error\":\"%s\"}\n",
		(long long)job->streams, (unsigned long long)received, (unsigned long long)sent,
		(unsigned long long)(run->sent - run->received), seconds,
		(double)received / seconds,
		received ? (double)(cpu_to - cpu_from) / (double)received / 1000 : 0,
		(double)(cpu_to - cpu_from) / 1e9 / seconds,
		kvb_samples_percentile(&run->delay_us, 50),
		kvb_samples_percentile(&run->delay_us, 90),
		kvb_samples_percentile(&run->delay_us, 99), (unsigned long long)run->errors,
		run->first_error);
	fflush(out);
	return KVW_OK;
}

enum kvw_err kvb_job_stream(struct kvb_load *load, const struct kvb_job *job, FILE *out)
{
	struct run run = {.load = load, .job = job};
	struct kvb_stream_hook hook = {.arg = &run, .begin = stream_begin, .gone = stream_gone};
	enum kvw_err err = KVW_EIO;

	if (load->backend == NULL)
		return KVW_EINVAL;
	run.readers = kvb_alloc((size_t)job->streams, sizeof(struct reader *));
	run.conns = kvb_alloc((size_t)job->streams, sizeof(struct kvb_backend_conn *));
	kvb_backend_set_hook(load->backend, &hook);
	if (open_all(&run))
		err = measure(&run, out);
	close_all(&run);
	kvb_backend_set_hook(load->backend, NULL);
	kvb_samples_finish(&run.delay_us);
	free(run.readers);
	free(run.conns);
	return err;
}
