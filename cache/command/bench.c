/*
 * bench.c - `kvtier bench`: measures this machine's tiers in a few seconds.
 *
 * The verb opens a cache of its own and removes it afterwards; on disk it uses a new folder, so
 * existing stores stay unchanged. The figures describe one machine at one moment: one thread
 * measures, without waiting for the machine to be idle. A plain memory copy is measured, too, for
 * comparison.
 */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "command/advice.h"
#include "command/bench.h"
#include "command/command.h"
#include "command/format.h"

#define WAIT_NS      (UINT64_C(20) * 1000000000)
#define CHAIN_CHUNKS 1000
#define BATCH        8 /* chunks of one get from disk */

/* Prints warnings of the library, because they explain the figures. */
static void print_note(void *self, uint32_t level, const char *line)
{
	(void)self;
	if (level >= KVT_LOG_WARN)
		fprintf(stderr, "kvtier bench: %s\n", line);
}

static struct kvt_key key_of(uint64_t number)
{
	struct kvt_key key;
	uint64_t x = number;

	for (size_t i = 0; i < sizeof(key.bytes); i += 8) {
		x = (x + 0x9E3779B97F4A7C15u) * 0xBF58476D1CE4E5B9u;
		x ^= x >> 29;
		memcpy(key.bytes + i, &x, 8);
	}
	return key;
}

static enum kvt_status put_chunk(
	struct kvt_bench *b, struct kvt *k, uint64_t number, uint64_t bytes, bool chained)
{
	struct kvt_key parent = key_of(number - 1);
	struct kvt_item item = {
		.size = sizeof(item),
		.key = key_of(number),
		.parent = chained && number % CHAIN_CHUNKS != 0 ? &parent : NULL,
		.bytes = bytes,
	};

	memcpy(b->buffer, &number, sizeof(number));
	return kvt_put(k, &item, b->buffer);
}

static struct kvt_config config_of(const struct kvt_bench *b, uint64_t l1, const char *path)
{
	struct kvt_config config;

	kvt_config_init(&config, sizeof(config));
	config.l1_capacity = l1;
	config.nvme_path = path;
	config.nvme_capacity = path[0] != '\0' ? 2 * b->disk_bytes + (256u << 20) : 0;
	config.protect_keys = b->keys != NULL ? b->keys : "";
	config.fetch_when_slower = 1;
	config.log = print_note;
	return config;
}

/* --- memory ----------------------------------------------------------------------------------- */

/* Puts new chunks for a while, for which the oldest leave. The memory was filled once before, so
 * its pages are present. *last: number of puts. */
static double measure_put(struct kvt_bench *b, struct kvt *k, uint64_t *last)
{
	uint64_t fill = b->l1 / b->chunk, done = 0;
	double begun = kvt_bench_now(), took = 0;

	while (done < fill || took < b->seconds) {
		if (put_chunk(b, k, ++*last, b->chunk, false) != KVT_OK)
			return 0;
		done++;
		if (done == fill)
			begun = kvt_bench_now();
		took = kvt_bench_now() - begun;
	}
	return (double)((done - fill) * b->chunk) / took;
}

/* Returns the seconds of one get of a chunk in memory. verified: the get checks every byte. */
static double measure_get(struct kvt_bench *b, struct kvt *k, uint64_t last, bool verified)
{
	uint64_t resident = b->l1 / b->chunk / 2, done = 0;
	double begun = kvt_bench_now(), took = 0;

	resident = resident < last ? resident : last;
	while (resident > 0 && took < b->seconds) {
		struct kvt_key key = key_of(last - done % resident);
		struct kvt_lease *lease = NULL;

		if (kvt_get(k, &key, 1, 0, &lease) != KVT_OK)
			return 0;
		if (verified && kvt_verify(k, lease) != KVT_OK) {
			kvt_release(k, lease);
			return 0;
		}
		kvt_release(k, lease);
		done++;
		took = kvt_bench_now() - begun;
	}
	return done > 0 ? took / (double)done : 0;
}

/* Returns the seconds of one lookup of a chain of 1,000 small chunks that are all present. */
static double measure_lookup(struct kvt_bench *b, struct kvt *k)
{
	struct kvt_key *keys = calloc(CHAIN_CHUNKS, sizeof(*keys));
	struct kvt_lookup found = {0};
	double begun, took = 0;
	uint64_t first = 1u << 30, done = 0;

	if (keys == NULL)
		return 0;
	first -= first % CHAIN_CHUNKS;
	for (uint64_t i = 0; i < CHAIN_CHUNKS; i++) {
		keys[i] = key_of(first + i);
		if (put_chunk(b, k, first + i, 4096, true) != KVT_OK)
			goto out;
	}
	begun = kvt_bench_now();
	while (took < b->seconds / 2) {
		if (kvt_lookup(k, keys, CHAIN_CHUNKS, KVT_ALL_TIERS, NULL, &found) != KVT_OK)
			goto out;
		done++;
		took = kvt_bench_now() - begun;
	}
out:
	free(keys);
	return found.hits == CHAIN_CHUNKS && done > 0 ? took / (double)done : 0;
}

static bool bench_memory(struct kvt_bench *b)
{
	struct kvt_config config = config_of(b, b->l1, "");
	struct kvt_stats stats = {.size = sizeof(stats)};
	struct kvt *k = NULL;
	enum kvt_status status = kvt_open(&config, &k);
	uint64_t last = 0;
	bool done;

	if (status != KVT_OK) {
		fprintf(stderr, "kvtier bench: memory: %s\n", kvt_status_text(status));
		return false;
	}
	b->copy_rate = kvt_measure_copy();
	b->put_rate = measure_put(b, k, &last);
	b->get_s = measure_get(b, k, last, false);
	b->verified_s = measure_get(b, k, last, true);
	b->lookup_s = measure_lookup(b, k);
	if (kvt_stats(k, &stats) == KVT_OK)
		snprintf(b->l1_mode, sizeof(b->l1_mode), "%s", stats.tiers[KVT_TIER_L1].mode);
	done = !b->fragments || kvt_bench_fragments(b, k);
	kvt_close(k);
	return done;
}

/* --- disk ------------------------------------------------------------------------------------- */

/* Stores chunks, a bounded number at a time, until all are durable. */
static bool measure_write(struct kvt_bench *b, struct kvt *k)
{
	uint64_t chunks = b->disk_bytes / b->chunk;
	double begun = kvt_bench_now();

	for (uint64_t i = 1; i <= chunks; i++) {
		if (put_chunk(b, k, i, b->chunk, false) != KVT_OK)
			return false;
		if ((i * b->chunk) % (128u << 20) < b->chunk && kvt_drain(k, WAIT_NS) != KVT_OK)
			return false;
	}
	if (kvt_drain(k, WAIT_NS) != KVT_OK)
		return false;
	b->write_rate = (double)(chunks * b->chunk) / (kvt_bench_now() - begun);
	return true;
}

/* Gets the chunks back, into a memory that has room for few of them, so that each is read from
 * disk. */
static bool measure_read(struct kvt_bench *b, struct kvt *k)
{
	uint64_t chunks = b->disk_bytes / b->chunk, got = 0;
	double begun = kvt_bench_now();

	for (uint64_t i = 1; i + BATCH <= chunks; i += BATCH) {
		struct kvt_key keys[BATCH];
		struct kvt_lease *lease = NULL;

		for (uint64_t j = 0; j < BATCH; j++)
			keys[j] = key_of(i + j);
		if (kvt_get(k, keys, BATCH, WAIT_NS, &lease) != KVT_OK)
			continue;
		got += lease->count;
		kvt_release(k, lease);
	}
	b->read_rate = (double)(got * b->chunk) / (kvt_bench_now() - begun);
	return got > 0;
}

static bool with_disk(struct kvt_bench *b, const char *folder, uint64_t l1,
	bool (*measure)(struct kvt_bench *b, struct kvt *k))
{
	struct kvt_config config = config_of(b, l1, folder);
	struct kvt_stats stats = {.size = sizeof(stats)};
	const struct kvt_tier_stats *nvme = &stats.tiers[KVT_TIER_NVME];
	struct kvt *k = NULL;
	enum kvt_status status = kvt_open(&config, &k);
	bool done = false;

	if (status == KVT_OK && kvt_stats(k, &stats) == KVT_OK && nvme->state == KVT_TIER_WORKS) {
		snprintf(b->nvme_mode, sizeof(b->nvme_mode), "%s", nvme->mode);
		snprintf(b->nvme_reason, sizeof(b->nvme_reason), "%s", nvme->reason);
		done = measure(b, k);
		if (!done)
			fprintf(stderr, "kvtier bench: nvme: it did not get through in time\n");
	} else {
		fprintf(stderr, "kvtier bench: nvme: %s\n",
			status != KVT_OK ? kvt_status_text(status) : nvme->reason);
	}
	kvt_close(k);
	return done;
}

/* Removes a store's remains: PATH/FINGERPRINT/RANK/files, and nothing else. */
static void remove_tree(const char *path, int depth)
{
	DIR *folder = opendir(path);
	struct dirent *entry;
	char name[4096];

	while (folder != NULL && (entry = readdir(folder)) != NULL) {
		if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
			continue;
		snprintf(name, sizeof(name), "%s/%s", path, entry->d_name);
		if (unlink(name) != 0 && (errno == EISDIR || errno == EPERM) && depth > 0)
			remove_tree(name, depth - 1);
	}
	if (folder != NULL)
		closedir(folder);
	rmdir(path);
}

static bool bench_disk(struct kvt_bench *b)
{
	uint64_t small = (2 * BATCH + 2) * b->chunk;
	char folder[4096];
	int n = snprintf(folder, sizeof(folder), "%s/kvtier-bench-XXXXXX", b->path);
	bool done;

	if (n < 0 || (size_t)n >= sizeof(folder) || mkdtemp(folder) == NULL) {
		fprintf(stderr, "kvtier bench: %s: %s\n", b->path, strerror(errno));
		return false;
	}
	small = small < (64u << 20) ? 64u << 20 : small;
	done = with_disk(b, folder, b->l1, measure_write) &&
	       with_disk(b, folder, small, measure_read);
	if (b->keep)
		fprintf(stderr, "kvtier bench: the store is in %s\n", folder);
	else
		remove_tree(folder, 3);
	return done;
}

/* --- the verb --------------------------------------------------------------------------------- */

static bool take_size(const char *name, const char *text, uint64_t least, uint64_t *out)
{
	uint64_t value;

	if (text == NULL)
		return true;
	if (!kvt_parse_size(text, &value) || value < least || value > (UINT64_C(1) << 40)) {
		kvt_command_wrong("bench",
			"%s: found `%s`, expected a size such as 4MiB, at least %" PRIu64 " bytes",
			name, text, least);
		return false;
	}
	*out = value;
	return true;
}

static bool take_arguments(int argc, char **argv, struct kvt_bench *b)
{
	const char *chunk = NULL, *l1 = NULL, *disk = NULL, *seconds = NULL;
	const struct kvt_option options[] = {
		{"--chunk", &chunk, NULL},
		{"--l1", &l1, NULL},
		{"--path", &b->path, NULL},
		{"--disk", &disk, NULL},
		{"--keys", &b->keys, NULL},
		{"--keep", NULL, &b->keep},
		{"--seconds", &seconds, NULL},
		{"--json", NULL, &b->json},
		{"--fragments", NULL, &b->fragments},
		{0},
	};

	if (kvt_options_take(argc, argv, options, NULL, 0) < 0 ||
		!take_size("--chunk", chunk, 4096, &b->chunk) ||
		!take_size("--l1", l1, 128u << 20, &b->l1) ||
		!take_size("--disk", disk, 16u << 20, &b->disk_bytes))
		return false;
	if (seconds != NULL && (!kvt_parse_number(seconds, &b->seconds) || b->seconds > 3600)) {
		kvt_command_wrong("bench", "--seconds: found `%s`, expected 0.01 to 3600", seconds);
		return false;
	}
	if (b->l1 < 32 * b->chunk || b->disk_bytes < 2 * BATCH * b->chunk) {
		kvt_command_wrong("bench",
			"chunks of %" PRIu64 " bytes need --l1 of 32 and --disk "
			"of %d of them at least",
			b->chunk, 2 * BATCH);
		return false;
	}
	return true;
}

int kvt_command_bench(int argc, char **argv)
{
	struct kvt_bench b = {
		.chunk = 4u << 20, .l1 = 512u << 20, .disk_bytes = 512u << 20, .seconds = 0.5};
	bool done;

	if (!take_arguments(argc, argv, &b))
		return KVT_EXIT_USAGE;
	b.buffer = malloc(b.chunk);
	if (b.buffer == NULL) {
		fputs("kvtier bench: no memory for a chunk\n", stderr);
		return KVT_EXIT_FAILED;
	}
	memset(b.buffer, 0x5A, b.chunk);
	done = bench_memory(&b) && (b.path == NULL || bench_disk(&b));
	if (done && b.json)
		done = kvt_bench_print_json(&b, stdout);
	else if (done)
		kvt_bench_print(&b, stdout);
	free(b.buffer);
	return done ? KVT_EXIT_OK : KVT_EXIT_FAILED;
}
