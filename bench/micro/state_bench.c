/*
 * state_bench.c - a snapshot of a large prefix tree: how long it takes, its bytes, and what requests notice of it.
 *
 * The tree has -n nodes, two for each prompt, held by 64 workers. A thread asks it 5,000 times a second as a
 * request does (find, reach, insert; one prompt in ten is new) and takes the time of each by the clock: for some
 * seconds alone, then while another thread writes the snapshot to a file and syncs it, as kvway does with its
 * pauses. Then the file is checked and recalled into a tree of the same size. With -o FILE the snapshot stays there, for a kvway
 * whose workers are http://127.0.1.0:1 to http://127.0.1.63:1.
 *
 * One JSON line on stdout.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "routing/radix_keep.h"
#include "bench/timing.h"
#include "state/format.h"
#include "state/state.h"

#define WORKERS   64
#define CHUNKS    (2 * KVW_RADIX_RUN)
#define PAUSE_NS  200000 /* ns between two requests */
#define SAMPLES   2000000
#define MOST      (UINT64_C(1) << 40)
#define UNLIMITED (UINT64_C(1) << 40)

struct asker {
	struct kvw_radix *tree;
	uint64_t known, next; /* prompts that are there; the next new one */
	atomic_bool stop;
	uint32_t *took_ns; /* [SAMPLES] */
	size_t count;
	struct kvw_radix_path path;
	struct kvw_radix_reach reach;
};

struct keeper {
	struct kvw_state_writer writer;
	uint64_t paused_at;
};

static void die(const char *what)
{
	fprintf(stderr, "state_bench: %s: %s\n", what, strerror(errno));
	exit(1);
}

static uint64_t mix(uint64_t x)
{
	x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
	return x ^ x >> 31;
}

static void make_prompt(uint64_t id, struct kvw_chunk chunks[CHUNKS])
{
	for (uint32_t i = 0; i < CHUNKS; i++)
		chunks[i] = (struct kvw_chunk){.hash = mix(id * CHUNKS + i + 1), .end = (i + 1) * 64};
}

static void ask(struct asker *asker, uint64_t id, bool reach)
{
	struct kvw_chunk chunks[CHUNKS];
	const struct kvw_radix_use use = {.worker = (uint32_t)(mix(id) % WORKERS), .capacity_tokens = UNLIMITED,
		.tokens_per_unit = 1, .now_ns = kvb_read_ns(CLOCK_MONOTONIC)};

	make_prompt(id, chunks);
	kvw_radix_find(asker->tree, chunks, CHUNKS, &asker->path);
	asker->reach.limit = WORKERS;
	if (reach)
		kvw_radix_reach(asker->tree, chunks, CHUNKS, &asker->path, &asker->reach);
	kvw_radix_insert(asker->tree, chunks, CHUNKS, &use, &asker->path);
}

static void *ask_all(void *arg)
{
	const struct timespec pause = {.tv_nsec = PAUSE_NS};
	struct asker *asker = arg;

	asker->count = 0;
	for (uint64_t turn = 0; !atomic_load(&asker->stop) && asker->count < SAMPLES; turn++) {
		uint64_t id = turn % 10 == 0 ? asker->next++ : mix(turn + asker->next) % asker->known;
		int64_t begun_ns = kvb_read_ns(CLOCK_MONOTONIC);

		ask(asker, id, true);
		asker->took_ns[asker->count++] = (uint32_t)(kvb_read_ns(CLOCK_MONOTONIC) - begun_ns);
		nanosleep(&pause, NULL);
	}
	return NULL;
}

static double quantile_us(const struct asker *asker, double share)
{
	size_t at = (size_t)(share * (double)(asker->count - 1));

	return asker->count == 0 ? 0 : asker->took_ns[at] / 1e3;
}

static void print_times(struct asker *asker, const char *when)
{
	qsort(asker->took_ns, asker->count, sizeof(asker->took_ns[0]), kvb_by_u32);
	printf("\"%s\":{\"requests\":%zu,\"p50_us\":%.1f,\"p99_us\":%.1f,\"p999_us\":%.1f,\"max_us\":%.1f}", when,
		asker->count, quantile_us(asker, 0.5), quantile_us(asker, 0.99), quantile_us(asker, 0.999),
		quantile_us(asker, 1));
}

static enum kvw_err put(void *arg, enum kvw_keep_kind kind, const void *record, size_t len)
{
	const struct timespec pause = {.tv_nsec = KVW_STATE_PAUSE_NS};
	struct keeper *keeper = arg;

	if (keeper->writer.summary.bytes - keeper->paused_at >= KVW_STATE_PAUSE_BYTES) {
		keeper->paused_at = keeper->writer.summary.bytes;
		nanosleep(&pause, NULL);
	}
	return kvw_state_write(&keeper->writer, kind, record, len);
}

/* Writes the workers as the router's state.c does. */
static void put_workers(struct keeper *keeper)
{
	struct {
		double started_s;
		uint32_t id, unused;
		char url[32];
	} record = {.started_s = 1};

	for (uint32_t i = 0; i < WORKERS; i++) {
		record.id = i;
		(void)snprintf(record.url, sizeof(record.url), "http://127.0.1.%u:1", i);
		if (put(keeper, KVW_KEPT_WORKER, &record, offsetof(__typeof__(record), url) + strlen(record.url)) != KVW_OK)
			die("writing");
	}
}

/* Writes a snapshot and returns its bytes. */
static uint64_t write_snapshot(struct kvw_radix *tree, int fd)
{
	struct keeper *keeper = calloc(1, sizeof(*keeper));
	const struct kvw_keep_out out = {.put = put, .arg = keeper, .now_ns = kvb_read_ns(CLOCK_MONOTONIC)};
	uint64_t bytes;

	if (keeper == NULL || kvw_state_write_begin(&keeper->writer, fd, MOST, 1, 1) != KVW_OK)
		die("writing");
	put_workers(keeper);
	if (kvw_radix_keep(tree, &out) != KVW_OK || kvw_state_write_end(&keeper->writer) != KVW_OK ||
		fsync(fd) != 0)
		die("writing");
	bytes = keeper->writer.summary.bytes;
	free(keeper);
	return bytes;
}

static uint64_t nodes_of(struct kvw_radix *tree)
{
	struct kvw_strategy_stats stats = {0};

	kvw_radix_stats(tree, &stats);
	return stats.nodes;
}

static void recall(struct kvw_radix *tree, struct kvw_state_reader *reader, int fd)
{
	uint32_t workers[KVW_MAX_WORKERS];
	const struct kvw_keep_in in = {.workers = workers, .now_ns = kvb_read_ns(CLOCK_MONOTONIC)};
	struct kvw_radix_recall *going = NULL;
	enum kvw_keep_kind kind;
	const uint8_t *record;
	size_t len;

	for (uint32_t i = 0; i < KVW_MAX_WORKERS; i++)
		workers[i] = i;
	if (lseek(fd, 0, SEEK_SET) != 0 || kvw_state_read_begin(reader, fd, MOST) != KVW_OK)
		die("reading");
	while (kvw_state_read(reader, &kind, &record, &len) == KVW_OK)
		if (kind == KVW_KEPT_TREE && kvw_radix_recall_begin(tree, &in, record, len, &going) != KVW_OK)
			die("recalling");
		else if (kind == KVW_KEPT_NODE)
			kvw_radix_recall_node(going, record, len);
		else if (kind == KVW_KEPT_VIEW)
			kvw_radix_recall_view(going, record, len);
	kvw_radix_recall_end(going);
}

static struct kvw_radix *make_tree(uint64_t nodes)
{
	/* memory for a slot and half a bucket per node, and for further nodes */
	struct kvw_radix_options options = {.bytes = nodes * 300 + (UINT64_C(64) << 20), .seed = 7};
	struct kvw_radix *tree;

	if (kvw_radix_create(&options, &tree) != KVW_OK)
		die("no memory for the tree");
	return tree;
}

/* Measures requests for some seconds while no snapshot is written. */
static void measure_alone(struct asker *asker, double seconds)
{
	const struct timespec wait = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
	pthread_t thread;

	atomic_store(&asker->stop, false);
	if (pthread_create(&thread, NULL, ask_all, asker) != 0)
		die("thread");
	nanosleep(&wait, NULL);
	atomic_store(&asker->stop, true);
	pthread_join(thread, NULL);
	print_times(asker, "alone");
}

static void measure_snapshot(struct asker *asker, int fd)
{
	int64_t begun_ns, cpu_ns;
	pthread_t thread;
	uint64_t bytes;

	atomic_store(&asker->stop, false);
	if (pthread_create(&thread, NULL, ask_all, asker) != 0)
		die("thread");
	begun_ns = kvb_read_ns(CLOCK_MONOTONIC);
	cpu_ns = kvb_read_ns(CLOCK_THREAD_CPUTIME_ID);
	bytes = write_snapshot(asker->tree, fd);
	begun_ns = kvb_read_ns(CLOCK_MONOTONIC) - begun_ns;
	cpu_ns = kvb_read_ns(CLOCK_THREAD_CPUTIME_ID) - cpu_ns;
	atomic_store(&asker->stop, true);
	pthread_join(thread, NULL);
	printf(",\"write_s\":%.2f,\"write_cpu_s\":%.2f,\"bytes\":%llu,", (double)begun_ns / 1e9, (double)cpu_ns / 1e9,
		(unsigned long long)bytes);
	print_times(asker, "meanwhile");
}

static void measure_recall(struct asker *asker, uint64_t nodes, int fd)
{
	struct kvw_state_reader *reader = malloc(sizeof(*reader));
	uint64_t known = nodes_of(asker->tree);
	int64_t begun_ns, checked_ns;

	if (reader == NULL)
		die("memory");
	kvw_radix_destroy(asker->tree);
	asker->tree = make_tree(nodes);
	begun_ns = kvb_read_ns(CLOCK_MONOTONIC);
	if (lseek(fd, 0, SEEK_SET) != 0 || kvw_state_read_all(reader, fd, MOST) != KVW_OK)
		die("checking");
	checked_ns = kvb_read_ns(CLOCK_MONOTONIC);
	recall(asker->tree, reader, fd);
	printf(",\"check_s\":%.2f,\"recall_s\":%.2f,\"nodes\":%llu,\"nodes_recalled\":%llu}\n",
		(double)(checked_ns - begun_ns) / 1e9, (double)(kvb_read_ns(CLOCK_MONOTONIC) - checked_ns) / 1e9,
		(unsigned long long)known, (unsigned long long)nodes_of(asker->tree));
	free(reader);
}

int main(int argc, char **argv)
{
	struct asker *asker = calloc(1, sizeof(*asker));
	char path[] = "/var/tmp/kvway-state-bench-XXXXXX";
	const char *kept = NULL;
	uint64_t nodes = 10000000;
	double seconds = 5;
	int option, fd;

	while ((option = getopt(argc, argv, "n:s:o:")) != -1) {
		if (option == 'n')
			nodes = strtoull(optarg, NULL, 10);
		else if (option == 's')
			seconds = strtod(optarg, NULL);
		else if (option == 'o')
			kept = optarg;
		else
			return 2;
	}
	fd = kept != NULL ? open(kept, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600) : mkostemp(path, O_CLOEXEC);
	if (fd < 0 || asker == NULL || nodes < 100)
		die(kept != NULL ? kept : path);
	if (kept == NULL)
		(void)unlink(path);
	asker->took_ns = malloc(SAMPLES * sizeof(asker->took_ns[0]));
	if (asker->took_ns == NULL)
		die("memory");
	asker->tree = make_tree(nodes);
	asker->known = asker->next = nodes / 2;
	for (uint64_t id = 0; id < asker->known; id++)
		ask(asker, id, false);
	printf("{\"bench\":\"state\",\"nodes_asked\":%llu,", (unsigned long long)nodes);
	measure_alone(asker, seconds);
	measure_snapshot(asker, fd);
	measure_recall(asker, nodes, fd);
	kvw_radix_destroy(asker->tree);
	close(fd);
	free(asker->took_ns);
	free(asker);
	return 0;
}
