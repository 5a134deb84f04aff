/*
 * fuzz_state.c - the bytes are a snapshot: of a file that is damaged, or that its owner has forged.
 *
 * The first byte says which strategy recalls it, and whether checksums and the counts of the end are put
 * right first, since a fuzzer does not find them and what lies behind them must hold too. Each record is
 * read to its last byte; what was recalled is used and given away again.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <xxhash.h>

#include "kvway/route.h"
#include "state/format.h"

#define HEADER 64
#define HEAD   24

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct kvw_state_reader reader;
static struct kvw_state_writer writer;

static void put_right(uint8_t *data, size_t len)
{
	uint64_t chain, counts[3] = {0, 0, 0};

	if (len < HEADER)
		return;
	memcpy(data, "KVWSTATE\1\0\0\0\4\3\2\1", 16);
	chain = XXH3_64bits(data, 56);
	memcpy(data + 56, &chain, 8);
	for (size_t at = HEADER; len - at >= HEAD;) {
		uint32_t head[4];

		memcpy(head, data + at, sizeof(head));
		head[0] %= KVW_KEPT_KINDS;
		head[1] = head[1] % (len - at - HEAD + 1);
		head[3] = 0;
		memcpy(data + at, head, sizeof(head));
		counts[2] = at;
		if (head[0] == KVW_KEPT_END && head[1] == sizeof(counts))
			memcpy(data + at + HEAD, counts, sizeof(counts));
		chain = XXH3_64bits_withSeed(
			data + at + HEAD, head[1], XXH3_64bits_withSeed(data + at, 16, chain));
		memcpy(data + at + 16, &chain, 8);
		counts[0]++;
		counts[1] += head[2];
		at += HEAD + (size_t)head[1];
	}
}

static bool next(void *arg, enum kvw_keep_kind *kind, const uint8_t **record, size_t *len)
{
	uint8_t sum = 0;
	volatile uint8_t *kept = &sum; /* every byte is read */

	(void)arg;
	if (kvw_state_read(&reader, kind, record, len) != KVW_OK)
		return false;
	for (size_t i = 0; i < *len; i++)
		*kept ^= (*record)[i];
	return true;
}

static void recall(struct kvw_strategy *strategy)
{
	uint32_t workers[KVW_MAX_WORKERS], generations[KVW_MAX_WORKERS] = {0};
	const struct kvw_keep_in in = {.next = next, .workers = workers, .generations = generations,
		.now_ns = INT64_C(90000000000), .passed_ns = 5000000000};

	for (uint32_t i = 0; i < KVW_MAX_WORKERS; i++)
		workers[i] = i < 700 ? i + 100 : KVW_KEPT_GONE;
	strategy->ops->recall(strategy, &in);
}

static void keep(struct kvw_strategy *strategy)
{
	const struct kvw_keep_out out = {.put = kvw_state_write, .arg = &writer, .now_ns = INT64_C(95000000000)};
	int fd = memfd_create("kept", MFD_CLOEXEC);

	if (fd < 0 || kvw_state_write_begin(&writer, fd, 1 << 26, 1, 1) != KVW_OK ||
		strategy->ops->keep(strategy, &out) != KVW_OK || kvw_state_write_end(&writer) != KVW_OK ||
		lseek(fd, 0, SEEK_SET) != 0 || kvw_state_read_all(&reader, fd, 1 << 26) != KVW_OK) {
		fprintf(stderr, "what was kept cannot be read: %s\n", reader.why);
		abort();
	}
	close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const union kvw_setting_value own[] = {{.integer = 3600000}, {.integer = 64}, {.ratio = 1.25}};
	struct kvw_strategy_options options = {.own = own, .tree_bytes = 1 << 20, .capacity_tokens = 1000,
		.prefill_tokens_per_second = 1000, .seed = 5};
	struct kvw_strategy *strategy = NULL;
	uint8_t *copy;
	int fd;

	if (size < 1)
		return 0;
	copy = malloc(size);
	fd = memfd_create("snapshot", MFD_CLOEXEC);
	if (copy == NULL || fd < 0)
		abort();
	memcpy(copy, data + 1, size - 1);
	if ((data[0] & 1) != 0)
		put_right(copy, size - 1);
	if (write(fd, copy, size - 1) != (ssize_t)(size - 1) || lseek(fd, 0, SEEK_SET) != 0)
		abort();
	free(copy);
	if (kvw_state_read_begin(&reader, fd, 1 << 26) == KVW_OK &&
		kvw_strategy_find((data[0] & 2) != 0 ? "session" : "prefixaware")->create(&options, &strategy) ==
			KVW_OK) {
		recall(strategy);
		keep(strategy);
		strategy->ops->destroy(strategy);
	}
	close(fd);
	return 0;
}
