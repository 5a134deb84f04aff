/*
 * tier_bench.c - bytes per second of the NVMe tier, as fio measures a device.
 *
 * Writes chunks through the tier (header, payload, record in the log), until a flush says that all
 * records are durable; or opens a store that a run before has written and reads its chunks, each
 * checked against its key and its checksum. A number of requests is under way at any time. Checksums
 * of what is written are made beforehand, as a commit to memory makes them. Prints one JSON object;
 * bench/lib_cache_nvme.py runs it and fio in turns.
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "tiers/tiers.h"
#include "bench/timing.h"

struct bench;

/* One place in memory and the request that uses it. */
struct place {
	struct kvt_tier_request request;
	struct kvt_item item;
	struct kvt_segment segment;
	struct bench *bench;
};

struct bench {
	char folder[512];
	bool write;
	uint64_t bytes, chunk, asked, done;
	uint32_t depth, failed;
	const char *mode;
	struct kvt_surroundings surroundings;
	struct kvt_tier *tier;
	char *memory;
	struct place *places;
	bool flushed;
};

static void ask(struct place *place)
{
	struct bench *b = place->bench;
	uint64_t number = b->asked / b->chunk;

	memset(&place->item.key, 0, sizeof(place->item.key));
	for (size_t i = 0; i < sizeof(place->item.key); i += 8) {
		uint64_t word = (number + i + 1) * UINT64_C(0x9e3779b97f4a7c15);

		memcpy(place->item.key.bytes + i, &word, 8);
	}
	b->asked += b->chunk;
	b->tier->ops->submit(b->tier, &place->request);
}

static void done(struct kvt_tier_request *request)
{
	struct place *place = request->user;
	struct bench *b = place->bench;

	b->failed += request->status != KVT_OK;
	b->done += b->chunk;
	if (b->asked < b->bytes)
		ask(place);
}

static void flushed(struct kvt_tier_request *request)
{
	struct bench *b = request->user;

	b->failed += request->status != KVT_OK;
	b->flushed = true;
}

static void step(struct bench *b)
{
	int64_t next_ns;

	(void)b->tier->ops->step(b->tier, 10000000, &next_ns);
}

static bool prepare(struct bench *b)
{
	uint64_t bytes = b->depth * b->chunk, x = 88172645463325252u;

	b->places = calloc(b->depth, sizeof(*b->places));
	b->memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (b->places == NULL || b->memory == MAP_FAILED)
		return false;
	(void)madvise(b->memory, bytes, MADV_HUGEPAGE);
	for (uint64_t i = 0; i < bytes; i += 8) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		memcpy(b->memory + i, &x, 8);
	}
	for (uint32_t i = 0; i < b->depth; i++) {
		struct place *p = &b->places[i];

		p->bench = b;
		p->segment = (struct kvt_segment){
			.base = b->memory + i * b->chunk, .bytes = b->chunk, .arena_offset = i * b->chunk};
		p->item = (struct kvt_item){.size = sizeof(p->item), .bytes = b->chunk};
		p->request = (struct kvt_tier_request){
			.verb = b->write ? KVT_TIER_WRITE : KVT_TIER_READ,
			.keys = &p->item.key,
			.key_count = 1,
			.segments = &p->segment,
			.segment_count = 1,
			.bytes = b->chunk,
			.item = b->write ? &p->item : NULL,
			.done = done,
			.user = p,
		};
		if (b->write)
			kvt_checksum_segments(&p->segment, 1, b->chunk, &p->request.checksum);
	}
	return true;
}

static bool open_tier(struct bench *b)
{
	struct kvt_config config;
	struct kvt_tier_options options = {.config = &config, .surroundings = &b->surroundings};
	char why[KVT_REASON_BYTES] = "";

	kvt_config_init(&config, sizeof(config));
	config.nvme_path = b->folder;
	config.nvme_capacity = b->bytes + b->bytes / 4 + (UINT64_C(64) << 20);
	config.nvme_depth = b->depth;
	config.nvme_io = b->mode;
	kvt_surroundings_init(&b->surroundings, &config);
	options.arena = b->memory;
	options.arena_bytes = b->depth * b->chunk;
	if (kvt_nvme_ops.create(&options, why, &b->tier) == KVT_OK)
		return true;
	(void)fprintf(stderr, "tier_bench: %s: %s\n", b->folder, why);
	return false;
}

/* Sends all requests and waits for their answers; after writes, until they are durable. */
static void move(struct bench *b)
{
	struct kvt_tier_request flush = {.verb = KVT_TIER_FLUSH, .done = flushed, .user = b};

	for (uint32_t i = 0; i < b->depth && b->asked < b->bytes; i++)
		ask(&b->places[i]);
	while (b->done < b->bytes)
		step(b);
	if (!b->write)
		return;
	b->tier->ops->submit(b->tier, &flush);
	while (!b->flushed)
		step(b);
}

static int run(struct bench *b)
{
	struct kvt_tier_stats stats = {0};
	double start, seconds;
	int64_t cpu_ns;

	if (!prepare(b) || !open_tier(b))
		return 1;
	start = kvb_seconds();
	cpu_ns = kvb_read_ns(CLOCK_PROCESS_CPUTIME_ID);
	move(b);
	seconds = kvb_seconds() - start;
	cpu_ns = kvb_read_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu_ns;
	if (b->failed > 0) {
		(void)fprintf(stderr, "tier_bench: %u requests failed\n", b->failed);
		return 1;
	}
	b->tier->ops->stats(b->tier, &stats);
	(void)printf("{\"bytes\": %llu, \"seconds\": %.6f, \"bytes_per_second\": %.0f, "
		"\"cpu_seconds\": %.6f, \"mode\": \"%s\", \"reason\": \"%s\"}\n",
		(unsigned long long)b->bytes, seconds, (double)b->bytes / seconds,
		(double)cpu_ns * 1e-9, stats.mode,
		stats.reason);
	return 0;
}

int main(int argc, char **argv)
{
	struct bench b = {.bytes = 1u << 30, .chunk = 4u << 20, .depth = 8, .mode = "auto"};
	int option, status;

	while ((option = getopt(argc, argv, "d:b:c:q:m:wr")) != -1) {
		switch (option) {
		case 'd':
			(void)snprintf(b.folder, sizeof(b.folder), "%s/tier", optarg);
			break;
		case 'b':
			b.bytes = strtoull(optarg, NULL, 10);
			break;
		case 'c':
			b.chunk = strtoull(optarg, NULL, 10);
			break;
		case 'q':
			b.depth = (uint32_t)strtoul(optarg, NULL, 10);
			break;
		case 'm':
			b.mode = optarg;
			break;
		case 'w':
			b.write = true;
			break;
		case 'r':
			b.write = false;
			break;
		default:
			return 2;
		}
	}
	if (b.folder[0] == '\0' || b.chunk == 0 || b.bytes < b.chunk || b.depth == 0) {
		(void)fprintf(stderr, "usage: tier_bench -d FOLDER [-w|-r] [-b BYTES] [-c CHUNK] "
			"[-q DEPTH] [-m auto|uring|threads]\nWriting wants a FOLDER/tier that is not there.\n");
		return 2;
	}
	b.bytes -= b.bytes % b.chunk;
	status = run(&b);
	if (b.tier != NULL)
		b.tier->ops->destroy(b.tier);
	free(b.places);
	return status;
}
