/*
 * redis_job.c - what both clients of Redis do: the same sizes, keys, connections and depth.
 */
#include "bench/l2/redis_job.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WARM_SHARE 8u

static void usage(const struct kvb_redis_job *job)
{
	kvb_fail("usage: %s -p PORT -w|-r [-h HOST] [-c VALUE BYTES] [-k KEYS] [-n CONNECTIONS] "
		 "[-d DEPTH] [-b BYTES] [-s SERVER PID]",
		job->name);
}

void kvb_redis_job_init(struct kvb_redis_job *job, int argc, char **argv)
{
	uint64_t bytes = UINT64_C(1) << 30;
	bool read = false;
	int option;

	*job = (struct kvb_redis_job){.name = "redis",
		.host = "127.0.0.1",
		.size = 4u << 20,
		.keys = 64,
		.connections = 4,
		.depth = 8};
	if (strrchr(argv[0], '/') != NULL)
		job->name = strrchr(argv[0], '/') + 1;
	while ((option = getopt(argc, argv, "h:p:c:k:n:d:b:s:wr")) != -1) {
		switch (option) {
		case 'h':
			job->host = optarg;
			break;
		case 'p':
			job->port = (uint16_t)strtoul(optarg, NULL, 10);
			break;
		case 'c':
			job->size = strtoull(optarg, NULL, 10);
			break;
		case 'k':
			job->keys = (uint32_t)strtoul(optarg, NULL, 10);
			break;
		case 'n':
			job->connections = (uint32_t)strtoul(optarg, NULL, 10);
			break;
		case 'd':
			job->depth = (uint32_t)strtoul(optarg, NULL, 10);
			break;
		case 'b':
			bytes = strtoull(optarg, NULL, 10);
			break;
		case 's':
			job->server_pid = (int)strtol(optarg, NULL, 10);
			break;
		case 'w':
			job->write = true;
			break;
		case 'r':
			read = true;
			break;
		default:
			usage(job);
		}
	}
	if (job->port == 0 || job->write == read || job->size == 0 || job->size % 8 != 0 ||
		job->keys == 0 || job->connections == 0 || job->depth == 0 || bytes < job->size)
		usage(job);
	job->count = bytes / job->size;
	job->memory = kvb_memory(job->keys * job->size);
	if (job->write)
		for (uint32_t i = 0; i < job->keys; i++)
			kvb_pattern(kvb_redis_value(job, i), job->size, i);
}

static void check(struct kvb_redis_job *job, uint64_t values)
{
	char *expected = kvb_memory(job->size);

	for (uint32_t i = 0; i < job->keys && i < values; i++) {
		kvb_pattern(expected, job->size, i);
		if (memcmp(expected, kvb_redis_value(job, i), job->size) != 0)
			kvb_fail("%s: value %u is not what was put", job->name, i);
	}
}

void kvb_redis_job_run(
	struct kvb_redis_job *job, void (*move)(void *self, uint64_t values), void *self)
{
	uint64_t warm = job->count / WARM_SHARE;
	struct kvb_spent spent;
	double bytes = (double)job->count * (double)job->size;

	/* The first puts write every key, since a get needs its value. */
	if (job->write && warm < job->keys)
		warm = job->keys;
	if (warm > 0)
		move(self, warm);
	kvb_spent_begin(&spent, job->server_pid);
	move(self, job->count);
	kvb_spent_end(&spent, job->server_pid);
	if (!job->write)
		check(job, job->count);
	(void)printf("{\"bytes\": %.0f, \"seconds\": %.6f, \"bytes_per_second\": %.0f, "
		     "\"cpu_seconds\": %.6f, \"server_cpu_seconds\": %.6f}\n",
		bytes, spent.seconds, bytes / spent.seconds, spent.cpu_seconds, spent.server_cpu);
}
