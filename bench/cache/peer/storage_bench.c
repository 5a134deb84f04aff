/*
 * storage_bench.c - what libkvtier's storage costs, as bench/peers/lmcache_storage.py measures LMCache's:
 * CPU time per GB and the slow chunks, one JSON object per operation on stdout.
 *
 *     {"op": "cpu_put" | "cpu_get" | "disk_put" | "disk_get" | "raw_get",
 *      "cpu_seconds_per_gb": ..., "p50_us": ..., "p99_us": ...}
 *
 * Room is reserved and filled before anything is measured. cpu_put: commit of one chunk with the
 * checksum that filling it gave; cpu_put_unsummed: commit that has to make the checksum. cpu_get: get of
 * what is in memory, and its release. disk_put: commit, and waiting until the chunk and its record
 * are durable. disk_get: get of what is on disk only, checked. raw_get: pread of as many bytes with
 * O_DIRECT from a file of the same folder, for comparison. CPU time is the whole process's,
 * kernel included; a chunk's time is by the clock. Medians over rounds.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "kvtier/kvtier.h"
#include "bench/timing.h"

#define MAX_CHUNKS 4096
#define MAX_ROUNDS 15
#define TIMEOUT_NS UINT64_C(60000000000)

enum op {
	OP_CPU_PUT,
	OP_CPU_PUT_UNSUMMED,
	OP_CPU_GET,
	OP_DISK_PUT,
	OP_DISK_GET,
	OP_RAW_GET,
	OP_COUNT
};

static const char *const op_names[OP_COUNT] = {
	"cpu_put", "cpu_put_unsummed", "cpu_get", "disk_put", "disk_get", "raw_get"};

/* One operation's figures in one round. */
struct figures {
	double cpu_seconds_per_gb, p50_us, p99_us;
};

struct bench {
	const char *folder;
	size_t chunks;
	uint64_t bytes;
	size_t rounds;
	uint8_t *payload;
	int raw; /* descriptor; -1: none */
	struct kvt_reservation *reservations[MAX_CHUNKS];
	struct kvt_checksum sums[MAX_CHUNKS];
	int64_t times_ns[MAX_CHUNKS];
	struct figures figures[OP_COUNT][MAX_ROUNDS];
};

static double cpu_seconds(void)
{
	struct rusage used;

	getrusage(RUSAGE_SELF, &used);
	return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
	       (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
}

static void must(enum kvt_status status, const char *what)
{
	if (status == KVT_OK)
		return;
	fprintf(stderr, "storage_bench: %s: %s\n", what, kvt_status_text(status));
	exit(1);
}

static struct kvt_key key_of(size_t number)
{
	struct kvt_key key = {{0}};
	uint64_t x = (number + 1) * UINT64_C(0x9E3779B97F4A7C15);

	for (size_t i = 0; i < sizeof(key.bytes); i++) {
		x = (x ^ x >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
		key.bytes[i] = (uint8_t)(x >> 56);
	}
	return key;
}

static struct kvt *open_cache(const struct bench *b, bool disk)
{
	struct kvt_config config;
	struct kvt *k = NULL;

	kvt_config_init(&config, sizeof(config));
	config.l1_capacity = 2 * b->chunks * b->bytes + (512u << 20);
	config.l1_scrub_rate = 0;
	config.fetch_when_slower = 1;
	config.l1_lock = 1; /* touched before, as the peer's memory is */
	if (disk) {
		config.nvme_path = b->folder;
		config.nvme_capacity = 2 * b->chunks * b->bytes + (1u << 30);
		config.store_inflight = b->chunks * b->bytes;
	}
	must(kvt_open(&config, &k), "open");
	return k;
}

/* Reserves room for all chunks and fills it with their bytes. */
static void fill(struct bench *b, struct kvt *k)
{
	for (size_t i = 0; i < b->chunks; i++) {
		struct kvt_item item = {.size = sizeof(item), .key = key_of(i), .bytes = b->bytes};
		const struct kvt_segment *segments = NULL;
		uint32_t count = 0;
		uint32_t status = 0;

		memset(b->payload, (int)(i & 255), b->bytes);
		must(kvt_put_reserve(k, &item, 1, &b->reservations[i], &segments, &count, &status),
			"reserve");
		kvt_fill(segments, count, b->payload, b->bytes, &b->sums[i]);
	}
}

static void put(struct bench *b, struct kvt *k, size_t i, enum op op)
{
	must(kvt_put_commit(
		     k, b->reservations[i], 1, op == OP_CPU_PUT_UNSUMMED ? NULL : &b->sums[i]),
		"commit");
	if (op == OP_DISK_PUT)
		must(kvt_drain(k, TIMEOUT_NS), "drain");
}

static void get(struct kvt *k, size_t i)
{
	struct kvt_key key = key_of(i);
	struct kvt_lease *lease = NULL;

	must(kvt_get(k, &key, 1, TIMEOUT_NS, &lease), "get");
	if (*(const uint8_t *)lease->segments[0].base != (i & 255)) {
		fprintf(stderr, "storage_bench: wrong bytes\n");
		exit(1);
	}
	kvt_release(k, lease);
}

static void whole(ssize_t done, const struct bench *b, const char *what)
{
	if (done == (ssize_t)b->bytes)
		return;
	fprintf(stderr, "storage_bench: %s: %s\n", what, done < 0 ? strerror(errno) : "short");
	exit(1);
}

static void read_raw(const struct bench *b, size_t i)
{
	whole(pread(b->raw, b->payload, b->bytes, (off_t)(i * b->bytes)), b, "raw pread");
	if (b->payload[0] != (i & 255)) {
		fprintf(stderr, "storage_bench: wrong raw bytes\n");
		exit(1);
	}
}

static int by_value(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a;
	int64_t y = *(const int64_t *)b;

	return (x > y) - (x < y);
}

/* Does one operation on every chunk. */
static void measure(struct bench *b, struct kvt *k, enum op op, size_t round)
{
	struct figures *f = &b->figures[op][round];
	double cpu = cpu_seconds();

	for (size_t i = 0; i < b->chunks; i++) {
		int64_t begin = kvb_read_ns(CLOCK_MONOTONIC);

		if (op == OP_RAW_GET)
			read_raw(b, i);
		else if (op == OP_CPU_GET || op == OP_DISK_GET)
			get(k, i);
		else
			put(b, k, i, op);
		b->times_ns[i] = kvb_read_ns(CLOCK_MONOTONIC) - begin;
	}
	f->cpu_seconds_per_gb =
		(cpu_seconds() - cpu) / ((double)b->chunks * (double)b->bytes / 1e9);
	qsort(b->times_ns, b->chunks, sizeof(b->times_ns[0]), by_value);
	f->p50_us = (double)b->times_ns[b->chunks / 2] / 1e3;
	f->p99_us = (double)b->times_ns[b->chunks * 99 / 100] / 1e3;
}

/* Measures the disk alone, by a file that is written before and has no name any more. */
static void run_raw(struct bench *b, size_t round)
{
	char path[4096];

	if (snprintf(path, sizeof(path), "%s/raw", b->folder) >= (int)sizeof(path))
		return;
	b->raw = open(path, O_RDWR | O_CREAT | O_TRUNC | O_DIRECT | O_CLOEXEC, 0600);
	if (b->raw < 0) {
		fprintf(stderr, "storage_bench: %s: %s\n", path, strerror(errno));
		exit(1);
	}
	(void)unlink(path);
	for (size_t i = 0; i < b->chunks; i++) {
		memset(b->payload, (int)(i & 255), b->bytes);
		whole(pwrite(b->raw, b->payload, b->bytes, (off_t)(i * b->bytes)), b, "raw pwrite");
	}
	(void)fdatasync(b->raw);
	measure(b, NULL, OP_RAW_GET, round);
	close(b->raw);
}

static void run_round(struct bench *b, size_t round)
{
	for (enum op op = OP_CPU_PUT; op <= OP_CPU_PUT_UNSUMMED; op++) {
		struct kvt *k = open_cache(b, false);

		fill(b, k);
		measure(b, k, op, round);
		measure(b, k, OP_CPU_GET, round);
		kvt_close(k);
	}
	for (enum op op = OP_DISK_PUT; op <= OP_DISK_GET; op++) {
		struct kvt *k = open_cache(b, true);
		size_t erased = 0;

		if (op == OP_DISK_PUT)
			fill(b, k);
		measure(b, k, op, round);
		for (size_t i = 0; i < b->chunks && op == OP_DISK_GET; i++) {
			struct kvt_key key = key_of(i);

			must(kvt_erase(k, &key, 1, TIMEOUT_NS, &erased), "erase");
		}
		kvt_close(k);
	}
	run_raw(b, round);
}

static double median(const struct bench *b, enum op op, size_t member)
{
	double values[MAX_ROUNDS] = {0};

	for (size_t r = 0; r < b->rounds; r++) {
		double value = ((const double *)&b->figures[op][r])[member];
		size_t at = r;

		for (; at > 0 && values[at - 1] > value; at--)
			values[at] = values[at - 1];
		values[at] = value;
	}
	return values[b->rounds / 2];
}

static size_t number_of(const char *text, size_t most, const char *what)
{
	char *end = NULL;
	unsigned long value = strtoul(text, &end, 10);

	if (*text == '\0' || *end != '\0' || value == 0 || value > most) {
		fprintf(stderr, "storage_bench: %s: found %s, expected 1 to %zu\n", what, text,
			most);
		exit(2);
	}
	return value;
}

int main(int argc, char **argv)
{
	static struct bench b = {.chunks = 256, .bytes = 4u << 20, .rounds = 3};
	int option;

	while ((option = getopt(argc, argv, "d:c:b:r:")) != -1) {
		if (option == 'd')
			b.folder = optarg;
		else if (option == 'c')
			b.chunks = number_of(optarg, MAX_CHUNKS, "-c");
		else if (option == 'b')
			b.bytes = number_of(optarg, 1u << 30, "-b");
		else if (option == 'r')
			b.rounds = number_of(optarg, MAX_ROUNDS, "-r");
		else
			optind = argc + 1;
	}
	b.payload = aligned_alloc(4096, (b.bytes + 4095) / 4096 * 4096);
	if (b.folder == NULL || optind != argc || b.payload == NULL) {
		fprintf(stderr, "usage: %s -d FOLDER [-c CHUNKS] [-b BYTES] [-r ROUNDS]\n",
			argv[0]);
		return 2;
	}
	for (size_t round = 0; round < b.rounds; round++)
		run_round(&b, round);
	for (enum op op = 0; op < OP_COUNT; op++)
		printf("{\"op\":\"%s\",\"cpu_seconds_per_gb\":%.6g,\"p50_us\":%.6g,\"p99_us\":%.6g}"
		       "\n",
			op_names[op], median(&b, op, 0), median(&b, op, 1), median(&b, op, 2));
	free(b.payload);
	return 0;
}
