/*
 * shm_get.c - chunks out of a tiered-storage daemon's shared memory, against memcpy and a checksum of
 * the same bytes.
 *
 * Puts chunks through libkvtier's tiered-storage tier, looks for them in the segment, and then takes
 * turns: all of them through the tier (lease, copy, verification, release), and all of them by memcpy
 * from where they lie in the segment, followed by XXH3-128 with the widest vectors that xxHash has
 * here; both into the same memory. A third figure, for orientation, is the library's own copy, which
 * computes the checksum while it copies. One JSON object per round.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>
#ifdef KVT_XXH_DISPATCH
#include <xxh_x86dispatch.h> /* makes XXH3's names choose the widest vectors at run time */
#endif

#include "bench/l2/tier_load.h"

struct bench {
	uint16_t port;
	const char *bucket, *segment;
	uint32_t rounds;
	struct kvb_tier_load load;
	const char *shared; /* the daemon's segment, mapped for reading */
	uint64_t shared_bytes;
	const char **where; /* place of each chunk in the segment */
	uint64_t sink;      /* keeps checksums from being left out */
};

static void parse(struct bench *b, int argc, char **argv)
{
	int option;

	while ((option = getopt(argc, argv, "p:u:g:c:k:d:r:")) != -1) {
		switch (option) {
		case 'p':
			b->port = (uint16_t)strtoul(optarg, NULL, 10);
			break;
		case 'u':
			b->bucket = optarg;
			break;
		case 'g':
			b->segment = optarg;
			break;
		case 'c':
			b->load.size = strtoull(optarg, NULL, 10);
			break;
		case 'k':
			b->load.keys = (uint32_t)strtoul(optarg, NULL, 10);
			break;
		case 'd':
			b->load.depth = (uint32_t)strtoul(optarg, NULL, 10);
			break;
		case 'r':
			b->rounds = (uint32_t)strtoul(optarg, NULL, 10);
			break;
		default:
			b->port = 0;
		}
	}
	if (b->port == 0 || b->segment == NULL || b->load.size < 8 || b->load.size % 8 != 0 ||
		b->load.keys == 0 || b->load.depth == 0)
		kvb_fail("usage: shm_get -p PORT -g SEGMENT [-u BUCKET] [-c CHUNK BYTES] [-k "
			 "CHUNKS] "
			 "[-d DEPTH] [-r ROUNDS]");
}

static void open_tier(struct bench *b)
{
	struct kvt_config config;
	char url[64];

	(void)snprintf(url, sizeof(url), "sagemaker-hyperpod://127.0.0.1:%u", b->port);
	kvt_config_init(&config, sizeof(config));
	config.l2_url = url;
	config.l2_bucket = b->bucket;
	config.l2_segment = b->segment;
	config.l2_deadline_ns = UINT64_C(10000000000);
	config.l2_seen_ns = UINT64_C(3600000000000);
	kvb_tier_load_open(&b->load, &config);
}

static void map_segment(struct bench *b)
{
	char path[256];
	struct stat info;
	int fd;

	(void)snprintf(path, sizeof(path), "/dev/shm/%s", b->segment);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &info) != 0)
		kvb_fail("%s: %s", path, strerror(errno));
	b->shared_bytes = (uint64_t)info.st_size;
	b->shared = mmap(NULL, b->shared_bytes, PROT_READ, MAP_SHARED, fd, 0);
	if (b->shared == MAP_FAILED)
		kvb_fail("%s: %s", path, strerror(errno));
	(void)close(fd);
}

/* Returns the chunk that lies at this offset, whole. */
static uint32_t chunk_at(const struct bench *b, uint64_t offset)
{
	for (uint32_t i = 0; i < b->load.keys; i++) {
		const char *value = b->load.memory + i * b->load.size;

		if (b->where[i] == NULL && memcmp(value, b->shared + offset, 8) == 0 &&
			offset + b->load.size <= b->shared_bytes &&
			memcmp(value, b->shared + offset, b->load.size) == 0)
			return i;
	}
	return b->load.keys;
}

/* Finds where the chunks lie in the segment; the tier may have put bytes before each. */
static void find_chunks(struct bench *b)
{
	uint32_t found = 0;

	b->where = calloc(b->load.keys, sizeof(*b->where));
	if (b->where == NULL)
		kvb_fail("shm_get: no memory");
	for (uint64_t at = 0; at + 8 <= b->shared_bytes && found < b->load.keys; at += 4) {
		uint32_t chunk;
		uint64_t word;

		memcpy(&word, b->shared + at, sizeof(word));
		if (word == 0 || (chunk = chunk_at(b, at)) == b->load.keys)
			continue;
		b->where[chunk] = b->shared + at;
		found++;
		at += b->load.size / 4 * 4 - 4;
	}
	if (found < b->load.keys)
		kvb_fail("shm_get: %u of %u chunks lie in the segment in one piece", found,
			b->load.keys);
}

static void copy_and_hash(struct bench *b)
{
	for (uint32_t i = 0; i < b->load.keys; i++) {
		char *to = b->load.memory + i * b->load.size;

		memcpy(to, b->where[i], b->load.size);
		b->sink += XXH3_128bits(to, b->load.size).low64;
	}
}

static void copy_with_sum(struct bench *b)
{
	for (uint32_t i = 0; i < b->load.keys; i++) {
		struct kvt_segment to = {
			.base = b->load.memory + i * b->load.size, .bytes = b->load.size};
		struct kvt_checksum sum;

		kvt_checksum_copy(&to, 1, b->where[i], b->load.size, &sum);
		b->sink += sum.low;
	}
}

static void get_all(struct bench *b)
{
	kvb_tier_load_move(&b->load, KVT_TIER_READ, b->load.keys);
}

/* Returns the seconds of a pass over all chunks. */
static double pass(struct bench *b, void (*work)(struct bench *), double *cpu)
{
	struct kvb_spent spent;

	kvb_spent_begin(&spent, 0);
	work(b);
	kvb_spent_end(&spent, 0);
	*cpu = spent.cpu_seconds;
	return spent.seconds;
}

static void check(struct bench *b)
{
	char *expected = kvb_memory(b->load.size);

	for (uint32_t i = 0; i < b->load.keys; i++) {
		kvb_pattern(expected, b->load.size, i);
		if (memcmp(expected, b->load.memory + i * b->load.size, b->load.size) != 0)
			kvb_fail("shm_get: chunk %u is not what was put", i);
	}
}

static void round_of(struct bench *b, uint32_t round)
{
	double bytes = (double)b->load.keys * (double)b->load.size, cpu, peer_cpu, fused_cpu;
	double ours = 0, peer, fused;

	if (round % 2 == 0)
		ours = pass(b, get_all, &cpu);
	peer = pass(b, copy_and_hash, &peer_cpu);
	fused = pass(b, copy_with_sum, &fused_cpu);
	if (round % 2 != 0)
		ours = pass(b, get_all, &cpu);
	(void)printf("{\"bytes_per_second\": %.0f, \"peer\": %.0f, \"fused\": %.0f, \"us\": %.2f, "
		     "\"peer_us\": %.2f, \"cpu_per_gb\": %.4f, \"peer_cpu_per_gb\": %.4f}\n",
		bytes / ours, bytes / peer, bytes / fused, ours * 1e6 / b->load.keys,
		peer * 1e6 / b->load.keys, cpu * 1e9 / bytes, peer_cpu * 1e9 / bytes);
}

int main(int argc, char **argv)
{
	struct bench b = {.bucket = "bench-shm",
		.rounds = 9,
		.load = {.name = "shm_get", .size = 4u << 20, .keys = 64, .depth = 1}};
	uint64_t bytes;

	parse(&b, argc, argv);
	bytes = b.load.keys * b.load.size;
	b.load.memory = kvb_memory(bytes);
	for (uint32_t i = 0; i < b.load.keys; i++)
		kvb_pattern(b.load.memory + i * b.load.size, b.load.size, i);
	open_tier(&b);
	kvb_tier_load_sum(&b.load);
	kvb_tier_load_move(&b.load, KVT_TIER_WRITE, b.load.keys);
	map_segment(&b);
	find_chunks(&b);
	memset(b.load.memory, 0, bytes);
	kvb_tier_load_probe(&b.load);
	get_all(&b);
	check(&b);
	copy_and_hash(&b);
	for (uint32_t i = 0; i < b.rounds; i++)
		round_of(&b, i);
	check(&b);
	kvb_tier_load_close(&b.load);
	free(b.where);
	return b.sink == 0;
}
