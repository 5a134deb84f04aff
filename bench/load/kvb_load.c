/*
 * kvb_load.c - the load generator of bench/run.sh: clients and backends in one thread.
 *
 * A proxy under test has one core, this program the other. Clients and backends share one epoll
 * set here, which saves the context switches that two programs on one core would cost each other.
 * Jobs come from standard input, so that the backends stay up between them: proxies that probe
 * their workers never see them leave.
 */
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "bench/load/job.h"
#include "bench/load/mem.h"

/* The program: reactor, backends and the input that jobs come from. */
struct app {
	struct kvb_load load;
	struct kvb_source input; /* standard input */
	struct kvb_buf lines;    /* lines that were read and not yet done */
	bool ended;
};

static void usage(FILE *out)
{
	fputs("usage: kvb-load [--serve HOST:PORT] [--backends N] [--blocks N] [--transfers] [JOB...]\n\n"
	      "Loads a proxy and plays the workers behind it, in one thread.\n\n"
	      "  --serve HOST:PORT  answer as workers on N ports from PORT on\n"
	      "  --backends N       how many (default 4)\n"
	      "  --blocks N         blocks of 16 tokens that each says it can cache (default 65536)\n"
	      "  --transfers        answers have kv_transfer_params, as those of a worker that prefills\n\n"
	      "JOB is `requests`, `stream`, `idle` or `handshakes` and key=value words; without one, jobs are\n"
	      "read from standard input, one a line, until its end. Each writes one line of "
	      "JSON.\n\n",
		out);
	kvb_job_print_keys(out);
	fputs("\nexample, with a proxy on 8080 that has workers on 9001 to 9004:\n"
	      "  kvb-load --serve 127.0.0.1:9001 requests port=8080 body=32768 pid=$(pidof "
	      "haproxy)\n",
		out);
}

static enum kvw_err run_job(struct app *app, char *line)
{
	enum kvw_err (*const jobs[])(struct kvb_load *, const struct kvb_job *, FILE *) = {
		[KVB_JOB_REQUESTS] = kvb_job_requests,
		[KVB_JOB_STREAM] = kvb_job_stream,
		[KVB_JOB_IDLE] = kvb_job_idle,
		[KVB_JOB_HANDSHAKES] = kvb_job_handshakes,
	};
	struct kvb_job job;
	enum kvw_err err = kvb_job_parse(line, &job, stderr);

	if (err == KVW_OK)
		err = jobs[job.kind](&app->load, &job, stdout);
	if (err != KVW_OK) {
		/* The process that waits for a result line gets one. */
		printf("{\"job\":\"failed\",\"errors\":1,\"first_error\":\"no result (%d)\"}\n",
			err);
		fflush(stdout);
	}
	return err;
}

static void input_ready(struct kvb_source *source, uint32_t events)
{
	struct app *app = (struct app *)((char *)source - offsetof(struct app, input));
	char data[4096];
	ssize_t got = read(source->fd, data, sizeof(data));

	(void)events;
	if (got > 0)
		kvb_buf_add(&app->lines, data, (size_t)got);
	else
		app->ended = true;
}

static void input_destroy(struct kvb_source *source)
{
	(void)source;
}

/* Runs the jobs of standard input; between them the backends answer. */
static enum kvw_err serve_input(struct app *app)
{
	enum kvw_err err = KVW_OK;

	app->input = (struct kvb_source){
		.fd = STDIN_FILENO, .ready = input_ready, .destroy = input_destroy};
	if (kvb_reactor_add(&app->load.reactor, &app->input, EPOLLIN) != KVW_OK) {
		perror("kvb-load: standard input must be a pipe or a terminal");
		return KVW_EIO;
	}
	while (!app->ended) {
		char *end;

		kvb_reactor_turn(&app->load.reactor, -1);
		while (app->lines.len > 0 &&
			(end = memchr(app->lines.data, '\n', app->lines.len)) != NULL) {
			size_t len = (size_t)(end + 1 - app->lines.data);
			char *line;

			*end = '\0';
			line = kvb_strdup(app->lines.data);
			kvb_buf_consume(&app->lines, len);
			err = run_job(app, line);
			free(line);
		}
	}
	kvb_buf_finish(&app->lines);
	return err;
}

static enum kvw_err run_words(struct app *app, char **words)
{
	struct kvb_buf line = {0};
	char *copy;
	enum kvw_err err;

	for (; *words != NULL; words++)
		kvb_buf_printf(&line, "%s ", *words);
	copy = kvb_strdup(kvb_buf_str(&line));
	kvb_buf_finish(&line);
	err = run_job(app, copy);
	free(copy);
	return err;
}

static enum kvw_err serve(struct app *app, char *where, unsigned backends)
{
	char *colon = strrchr(where, ':');
	long port = colon ? strtol(colon + 1, NULL, 10) : 0;

	if (port < 1 || port + (long)backends > 65536) {
		fprintf(stderr, "kvb-load: --serve %s: expected HOST:PORT\n", where);
		return KVW_EINVAL;
	}
	*colon = '\0';
	if (kvb_backend_create(&app->load.reactor, where, (uint16_t)port, backends,
		    &app->load.backend) != KVW_OK) {
		perror("kvb-load: listen");
		return KVW_EIO;
	}
	return KVW_OK;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {{"serve", required_argument, NULL, 's'},
		{"backends", required_argument, NULL, 'b'}, {"blocks", required_argument, NULL, 'k'},
		{"transfers", no_argument, NULL, 't'}, {"help", no_argument, NULL, 'h'}, {0}};
	struct app app = {0};
	enum kvw_err err = KVW_OK;
	char *where = NULL;
	unsigned backends = 4, blocks = 0;
	bool transfers = false;
	int option;

	while ((option = getopt_long(argc, argv, "h", options, NULL)) != -1) {
		if (option == 's')
			where = optarg;
		else if (option == 'b' && atoi(optarg) > 0 && atoi(optarg) <= 1024)
			backends = (unsigned)atoi(optarg);
		else if (option == 'k' && atoi(optarg) > 0)
			blocks = (unsigned)atoi(optarg);
		else if (option == 't')
			transfers = true;
		else {
			usage(option == 'h' ? stdout : stderr);
			return option == 'h' ? 0 : 2;
		}
	}
	if (kvb_reactor_init(&app.load.reactor) != KVW_OK) {
		perror("kvb-load: epoll");
		return 1;
	}
	if (where != NULL)
		err = serve(&app, where, backends);
	if (app.load.backend != NULL && blocks > 0)
		kvb_backend_set_blocks(app.load.backend, blocks);
	if (app.load.backend != NULL && transfers)
		kvb_backend_transfer(app.load.backend);
	if (err == KVW_OK)
		err = optind < argc ? run_words(&app, argv + optind) : serve_input(&app);
	kvb_backend_destroy(app.load.backend);
	kvb_reactor_finish(&app.load.reactor);
	return err == KVW_OK ? 0 : 1;
}
