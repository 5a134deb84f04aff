/*
 * kvsim.c - simulated vLLM workers in one process; --help says how to use them.
 *
 * Each thread runs one event loop with its share of the workers; nothing is shared but the
 * options. SIGINT and SIGTERM reach the main thread's loop, which wakes the others by pipes.
 */
#include <event2/event.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include <zmq.h>

#include "base/thread.h"
#include "bench/sim/sim_options.h"
#include "bench/sim/sim_worker.h"

/* One thread with its event loop. */
struct loop {
	struct event_base *base;
	struct kvb_worker **workers; /* owned array */
	uint32_t count;
	int wake[2]; /* a byte in this pipe ends the loop */
	struct event *ev_wake;
	pthread_t thread;
	bool started;
};

static void on_wake(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	event_base_loopbreak(arg);
}

static bool loop_init(struct loop *loop, uint32_t most)
{
	struct event_config *config = event_config_new();

	loop->wake[0] = loop->wake[1] = -1;
	if (config == NULL)
		return false;
	event_config_set_flag(config, EVENT_BASE_FLAG_PRECISE_TIMER | EVENT_BASE_FLAG_NOLOCK);
	loop->base = event_base_new_with_config(config);
	event_config_free(config);
	loop->workers = calloc(most, sizeof(struct kvb_worker *));
	if (loop->base == NULL || loop->workers == NULL || pipe(loop->wake) != 0)
		return false;
	loop->ev_wake = event_new(loop->base, loop->wake[0], EV_READ, on_wake, loop->base);
	return loop->ev_wake != NULL && event_add(loop->ev_wake, NULL) == 0;
}

static void loop_finish(struct loop *loop)
{
	for (uint32_t i = 0; i < loop->count; i++)
		kvb_worker_destroy(loop->workers[i]);
	free(loop->workers);
	if (loop->ev_wake != NULL)
		event_free(loop->ev_wake);
	if (loop->base != NULL)
		event_base_free(loop->base);
	for (int i = 0; i < 2; i++)
		if (loop->wake[i] >= 0)
			close(loop->wake[i]);
}

static void *loop_run(void *arg)
{
	event_base_dispatch(((struct loop *)arg)->base);
	return NULL;
}

static void write_ports(FILE *out, const struct kvb_options *options, const struct loop *loops)
{
	for (uint32_t i = 0; i < options->workers; i++) {
		const struct loop *loop = &loops[i % options->threads];
		const struct kvb_worker *worker = loop->workers[i / options->threads];

		fprintf(out, "worker %u http://%s:%u\n", i, options->host,
			kvb_http_port(worker->http));
	}
	fflush(out);
}

/* Writes a file under another name and renames it, so that it appears complete. */
static bool announce(const struct kvb_options *options, const struct loop *loops)
{
	char name[4096];
	FILE *file;
	bool good;

	write_ports(stdout, options, loops);
	if (options->ports_file == NULL)
		return true;
	if (snprintf(name, sizeof(name), "%s.new", options->ports_file) >= (int)sizeof(name))
		return false;
	file = fopen(name, "w");
	if (file != NULL)
		write_ports(file, options, loops);
	good = file != NULL && ferror(file) == 0;
	if (file != NULL)
		good = fclose(file) == 0 && good;
	if (!good || rename(name, options->ports_file) != 0) {
		perror("kvsim: --ports-file");
		return false;
	}
	return true;
}

static bool start_workers(const struct kvb_options *options, void *zmq, struct loop *loops)
{
	for (uint32_t i = 0; i < options->workers; i++) {
		struct loop *loop = &loops[i % options->threads];
		uint16_t port = options->port == 0 ? 0 : (uint16_t)(options->port + i);

		loop->workers[loop->count] = kvb_worker_create(loop->base, zmq, options, i, port);
		if (loop->workers[loop->count] == NULL)
			return false;
		loop->count++;
	}
	return true;
}

/* Runs until a signal comes. */
static bool run(struct loop *loops, uint32_t threads)
{
	struct event *ev_int = evsignal_new(loops[0].base, SIGINT, on_wake, loops[0].base);
	struct event *ev_term = evsignal_new(loops[0].base, SIGTERM, on_wake, loops[0].base);
	bool good = ev_int != NULL && ev_term != NULL && event_add(ev_int, NULL) == 0 &&
		    event_add(ev_term, NULL) == 0;

	for (uint32_t i = 1; good && i < threads; i++)
		loops[i].started = good =
			kvw_thread_start(&loops[i].thread, loop_run, &loops[i]) == 0;
	if (good)
		loop_run(&loops[0]);
	for (uint32_t i = 1; i < threads; i++) {
		if (!loops[i].started)
			continue;
		good = write(loops[i].wake[1], "", 1) == 1 && good;
		pthread_join(loops[i].thread, NULL);
	}
	if (ev_int != NULL)
		event_free(ev_int);
	if (ev_term != NULL)
		event_free(ev_term);
	return good;
}

int main(int argc, char **argv)
{
	struct kvb_options options;
	enum kvb_options_result parsed = kvb_options_parse(argc, argv, &options);
	struct rlimit files;
	struct loop *loops;
	void *zmq; /* ZeroMQ's context, for workers that publish KV events */
	bool good = true;

	if (parsed != KVB_OPTIONS_RUN) {
		kvb_options_finish(&options);
		return parsed == KVB_OPTIONS_DONE ? 0 : 2;
	}
	if (options.tier.on)
		kvb_tier_print(&options);
	signal(SIGPIPE, SIG_IGN);
	if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < files.rlim_max) {
		files.rlim_cur = files.rlim_max;
		setrlimit(RLIMIT_NOFILE, &files);
	}
	loops = calloc(options.threads, sizeof(*loops));
	zmq = zmq_ctx_new();
	if (loops == NULL || zmq == NULL)
		return 1;
	for (uint32_t i = 0; i < options.threads; i++)
		good = loop_init(&loops[i], options.workers / options.threads + 1) && good;
	good = good && start_workers(&options, zmq, loops) && announce(&options, loops) &&
	       run(loops, options.threads);
	for (uint32_t i = 0; i < options.threads; i++)
		loop_finish(&loops[i]);
	zmq_ctx_term(zmq);
	free(loops);
	kvb_options_finish(&options);
	return good ? 0 : 1;
}
