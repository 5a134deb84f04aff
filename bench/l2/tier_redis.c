/*
 * tier_redis.c - libkvtier's shared tier against a Redis server; compare raw_redis.c.
 *
 * The native format, with the header, the TTL and the verification of the default configuration;
 * deadlines are long, so that a busy machine slows both down and fails neither.
 */
#include <stdio.h>

#include "bench/l2/redis_job.h"
#include "bench/l2/tier_load.h"

struct client {
	const struct kvb_redis_job *job;
	struct kvb_tier_load load;
};

static void move(void *self, uint64_t values)
{
	struct client *c = self;

	kvb_tier_load_move(&c->load, c->job->write ? KVT_TIER_WRITE : KVT_TIER_READ, values);
}

static void open_tier(struct client *c)
{
	const struct kvb_redis_job *job = c->job;
	struct kvt_config config;
	char url[96];

	(void)snprintf(url, sizeof(url), "redis://%s:%u", job->host, job->port);
	kvt_config_init(&config, sizeof(config));
	config.l2_url = url;
	config.l2_connections = job->connections;
	config.l2_deadline_ns = UINT64_C(10000000000);
	config.l2_seen_ns = UINT64_C(3600000000000);
	c->load = (struct kvb_tier_load){.name = job->name,
		.memory = job->memory,
		.size = job->size,
		.keys = job->keys,
		.depth = job->depth};
	kvb_tier_load_open(&c->load, &config);
}

int main(int argc, char **argv)
{
	struct kvb_redis_job job;
	struct client client = {.job = &job};

	kvb_redis_job_init(&job, argc, argv);
	open_tier(&client);
	if (job.write)
		kvb_tier_load_sum(&client.load);
	else
		kvb_tier_load_probe(&client.load);
	kvb_redis_job_run(&job, move, &client);
	kvb_tier_load_close(&client.load);
	return 0;
}
