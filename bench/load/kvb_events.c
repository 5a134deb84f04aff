/*
 * kvb_events.c - KV events of many engines, and requests whose latency they may disturb.
 *
 * Publishes as events_source.h says, and meanwhile sends completions of token ids to a router at a fixed
 * rate: each prompt is a chain that some engines hold and a few tokens of its own, so that every decision
 * looks it up. A request's time is from the moment it was written until its whole answer was read.
 *
 * Reads commands from standard input and answers each with a JSON line:
 *
 *	quiet SECONDS     requests alone
 *	events SECONDS    requests and events
 *
 * With --coordinator it plays LMCache servers that report to that address, in place of engines.
 *
 *	kvb-events --engines 64 --port 20000 --rate 100 --held 80 --url 127.0.0.1:8080 --requests 200
 */
#include <arpa/inet.h>
#include <getopt.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "bench/load/events_call.h"
#include "bench/load/events_source.h"
#include "bench/timing.h"

#define CLIENTS     4
#define SAMPLES_MAX 400000 /* most requests of one client in one phase */
#define OWN_TOKENS  32
#define BODY_MAX    16384
#define ANSWER_MAX  65536

/* One connection and its thread. */
struct client {
	const struct task *task;
	pthread_t thread;
	bool started;
	int fd; /* -1: not connected */
	uint64_t random;
	uint32_t *samples_us; /* owned, SAMPLES_MAX */
	uint32_t count, errors;
	char request[BODY_MAX + 512];
};

/* The options of the command line, and the state of the phase under way. */
struct task {
	struct kvb_source_config source;
	struct sockaddr_in router, coordinator; /* coordinator: of source, if there is one */
	double requests; /* requests per second of all clients together */
	struct kvb_source *engines;
	int64_t end_ns;
	struct client clients[CLIENTS];
};

static uint64_t next_random(uint64_t *state)
{
	uint64_t x = *state += UINT64_C(0x9e3779b97f4a7c15);

	x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
	return x ^ x >> 31;
}

/* Makes a completion with a prompt that engines hold; returns 0 if they hold none yet. */
static size_t make_request(struct client *c)
{
	uint32_t tokens[KVB_CHAIN * KVB_BLOCK_TOKENS];
	char body[BODY_MAX];
	int len, head;

	if (!kvb_source_prompt(c->task->engines, next_random(&c->random), tokens))
		return 0;
	len = snprintf(body, sizeof(body), "{\"model\":\"bench\",\"max_tokens\":1,\"prompt\":[");
	for (uint32_t i = 0; i < KVB_CHAIN * KVB_BLOCK_TOKENS; i++)
		len += snprintf(body + len, sizeof(body) - (size_t)len, "%u,", tokens[i]);
	for (uint32_t i = 0; i < OWN_TOKENS; i++)
		len += snprintf(body + len, sizeof(body) - (size_t)len, "%u%s",
			(uint32_t)(next_random(&c->random) % 128000),
			i + 1 < OWN_TOKENS ? "," : "]}");
	head = snprintf(c->request, sizeof(c->request),
		"POST /v1/completions HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\n"
		"Content-Length: %d\r\n\r\n",
		len);
	memcpy(c->request + head, body, (size_t)len);
	return (size_t)(head + len);
}

static void one_request(struct client *c)
{
	size_t len = make_request(c);
	char answer[ANSWER_MAX];
	int64_t begin_ns;

	if (len == 0)
		return;
	if (c->fd < 0)
		c->fd = kvb_call_connect(&c->task->router);
	if (c->fd < 0) {
		c->errors++;
		return;
	}
	begin_ns = kvw_clock_ns();
	if (!kvb_call_send(c->fd, c->request, len) ||
		!kvb_call_answer(c->fd, answer, sizeof(answer))) {
		close(c->fd);
		c->fd = -1;
		c->errors++;
		return;
	}
	if (c->count < SAMPLES_MAX)
		c->samples_us[c->count++] = (uint32_t)((kvw_clock_ns() - begin_ns) / 1000);
}

static void *client_run(void *arg)
{
	struct client *c = arg;
	int64_t gap_ns = (int64_t)(1e9 * CLIENTS / c->task->requests), due_ns = kvw_clock_ns();

	due_ns += (int64_t)(next_random(&c->random) % (uint64_t)gap_ns);
	while (due_ns < c->task->end_ns) {
		struct timespec t = {due_ns / KVW_NS_PER_S, due_ns % KVW_NS_PER_S};
		int64_t now_ns;

		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
		one_request(c);
		now_ns = kvw_clock_ns();
		due_ns = due_ns + gap_ns > now_ns ? due_ns + gap_ns : now_ns;
	}
	return NULL;
}

static void tell(
	struct task *task, const char *phase, double seconds, const struct kvb_source_stats *before)
{
	static uint32_t all[CLIENTS * SAMPLES_MAX];
	struct kvb_source_stats after;
	uint32_t count = 0, errors = 0;

	for (int i = 0; i < CLIENTS; i++) {
		memcpy(all + count, task->clients[i].samples_us,
			task->clients[i].count * sizeof(*all));
		count += task->clients[i].count;
		errors += task->clients[i].errors;
	}
	qsort(all, count, sizeof(*all), kvb_by_u32);
	kvb_source_stats(task->engines, &after);
	printf("{\"phase\":\"%s\",\"seconds\":%.3f,\"requests\":%u,\"errors\":%u,\"p50_us\":%u,"
	       "\"p99_us\":%u,\"batches\":%llu,\"blocks\":%llu,\"refused\":%llu,\"late_ms\":%.3f}\n",
		phase, seconds, count, errors, count == 0 ? 0 : all[count / 2],
		count == 0 ? 0 : all[(uint64_t)count * 99 / 100],
		(unsigned long long)(after.batches - before->batches),
		(unsigned long long)(after.blocks - before->blocks),
		(unsigned long long)(after.refused - before->refused), (double)after.late_ns / 1e6);
	fflush(stdout);
}

static bool run_phase(struct task *task, const char *phase, double seconds)
{
	struct kvb_source_stats before;
	int64_t begin_ns = kvw_clock_ns();
	bool good = true;

	kvb_source_stats(task->engines, &before);
	task->end_ns = begin_ns + (int64_t)(seconds * 1e9);
	kvb_source_run(task->engines, strcmp(phase, "events") == 0);
	for (int i = 0; i < CLIENTS; i++) {
		struct client *c = &task->clients[i];

		c->count = c->errors = 0;
		c->started = pthread_create(&c->thread, NULL, client_run, c) == 0;
		good = good && c->started;
	}
	for (int i = 0; i < CLIENTS; i++)
		if (task->clients[i].started)
			pthread_join(task->clients[i].thread, NULL);
	kvb_source_run(task->engines, false);
	tell(task, phase, (double)(kvw_clock_ns() - begin_ns) / 1e9, &before);
	return good;
}

static bool run_commands(struct task *task)
{
	char line[128], phase[16];
	double seconds;

	while (fgets(line, sizeof(line), stdin) != NULL) {
		if (sscanf(line, "%15s %lf", phase, &seconds) != 2 || seconds <= 0 ||
			(strcmp(phase, "quiet") != 0 && strcmp(phase, "events") != 0)) {
			fprintf(stderr, "kvb-events: expected quiet SECONDS or events SECONDS\n");
			return false;
		}
		if (!run_phase(task, phase, seconds))
			return false;
	}
	return true;
}

static bool parse_url(const char *text, struct sockaddr_in *out)
{
	char host[64];
	unsigned port;

	*out = (struct sockaddr_in){.sin_family = AF_INET};
	if (sscanf(text, "%63[^:]:%u", host, &port) != 2 || port == 0 || port > 65535)
		return false;
	out->sin_port = htons((uint16_t)port);
	return inet_pton(AF_INET, host, &out->sin_addr) == 1;
}

static bool parse(int argc, char **argv, struct task *task)
{
	static const struct option options[] = {{"engines", required_argument, NULL, 'e'},
		{"port", required_argument, NULL, 'p'}, {"rate", required_argument, NULL, 'r'},
		{"held", required_argument, NULL, 'h'}, {"url", required_argument, NULL, 'u'},
		{"requests", required_argument, NULL, 'q'},
		{"coordinator", required_argument, NULL, 'c'},
		{"pieces", required_argument, NULL, 'n'}, {NULL, 0, NULL, 0}};
	bool router = false;
	int option;

	task->source = (struct kvb_source_config){.engines = 64, .batches = 100, .held = 80, .pieces = 1};
	task->requests = 200;
	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (option) {
		case 'e':
			task->source.engines = (uint32_t)strtoul(optarg, NULL, 10);
			break;
		case 'p':
			task->source.port = (uint16_t)strtoul(optarg, NULL, 10);
			break;
		case 'r':
			task->source.batches = strtod(optarg, NULL);
			break;
		case 'h':
			task->source.held = (uint32_t)strtoul(optarg, NULL, 10);
			break;
		case 'q':
			task->requests = strtod(optarg, NULL);
			break;
		case 'c':
			if (!parse_url(optarg, &task->coordinator))
				return false;
			task->source.coordinator = &task->coordinator;
			break;
		case 'n':
			task->source.pieces = (uint32_t)strtoul(optarg, NULL, 10);
			break;
		case 'u':
			router = parse_url(optarg, &task->router);
			break;
		default:
			return false;
		}
	}
	return router && optind == argc && task->source.engines > 0 &&
	       (task->source.port != 0 || task->source.coordinator != NULL) &&
	       task->source.pieces > 0 && task->source.engines <= 4096 && task->source.batches > 0 && task->requests > 0 &&
	       task->source.held >= 2 && task->source.port + 2 * task->source.engines <= 65536;
}

static void usage(FILE *out)
{
	fputs("usage: kvb-events --url HOST:PORT --port P [--engines 64] [--rate BATCHES]\n"
	      "                  [--held CHAINS] [--requests RATE]\n\n"
	      "Publishes KV events as that many vLLM engines would, each on two ports from P on,\n"
	      "and times requests to the router that reads them.\n\n"
	      "  --url HOST:PORT    where the router listens\n"
	      "  --port P           the first port of the engines\n"
	      "  --engines N        how many (64, at most 4096)\n"
	      "  --rate BATCHES     batches of events a second of each engine (100)\n"
	      "  --held CHAINS      chains of blocks that an engine holds (80)\n"
	      "  --requests RATE    requests a second (200)\n"
	      "  --coordinator HOST:PORT\n"
	      "                     instead of --port: LMCache servers mp-0, mp-1 ... report there,\n"
	      "                     --rate times a second each\n"
	      "  --pieces N         ten blocks stored and ten lost, in each of these reports (1)\n\n"
	      "Reads commands from standard input and answers each with a line of JSON:\n"
	      "  quiet SECONDS      requests alone\n"
	      "  events SECONDS     requests and events\n",
		out);
}

int main(int argc, char **argv)
{
	struct task *task = calloc(1, sizeof(*task));
	bool good;

	if (argc == 2 && strcmp(argv[1], "--help") == 0) {
		usage(stdout);
		free(task);
		return 0;
	}
	if (task == NULL)
		return 1;
	if (!parse(argc, argv, task)) {
		usage(stderr);
		free(task);
		return 2;
	}
	for (int i = 0; i < CLIENTS; i++) {
		task->clients[i] = (struct client){.task = task, .fd = -1, .random = (uint64_t)i};
		task->clients[i].samples_us = calloc(SAMPLES_MAX, sizeof(uint32_t));
	}
	task->engines = kvb_source_create(&task->source);
	good = task->engines != NULL;
	for (int i = 0; i < CLIENTS; i++)
		good = good && task->clients[i].samples_us != NULL;
	if (good) {
		printf("{\"ready\":true}\n");
		fflush(stdout);
		good = run_commands(task);
	}
	kvb_source_destroy(task->engines);
	for (int i = 0; i < CLIENTS; i++) {
		free(task->clients[i].samples_us);
		if (task->clients[i].fd >= 0)
			close(task->clients[i].fd);
	}
	free(task);
	return good ? 0 : 1;
}
