/*
 * fuzz_handover.c - any records as what the process before has handed over of LMCache's registry.
 *
 * The input is a list of records: one byte of what happens, two of a length (big endian), and a record of that length. When
 * all have come the registry and the index must agree; and what is given away again must make the same registry.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "feeds/kvspace.h"
#include "tests/unit/router/feeds/lmcache/invariants.h"

#define WORKERS 3
#define STEP_NS INT64_C(7000000000)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct kvw_lmreg_worker workers[WORKERS] = {{"i0", "10.0.0.1"}, {"", "127.0.0.1"}, {"", "127.0.0.1"}};
static const uint64_t keys[] = {0, 1, 2, 3};

struct side {
	struct kvw_kvindex *index;
	struct kvw_kvspaces *spaces;
	struct kvw_lmreg *reg;
	int64_t now_ns;
};

static void check(bool holds, const char *what)
{
	if (holds)
		return;
	fprintf(stderr, "%s\n", what);
	abort();
}

static void note_coverage(
	void *ctx, uint32_t worker, enum kvw_coverage coverage, uint32_t sources, const char *wrong)
{
	(void)ctx;
	(void)sources;
	check(worker < WORKERS && coverage <= KVW_COVERAGE_FULL && wrong != NULL, "a coverage of no worker");
}

static const char *url_of(void *ctx, uint32_t worker)
{
	static const char *const urls[WORKERS] = {"http://a", "http://b", "http://c"};

	(void)ctx;
	return urls[worker];
}

static void open_side(struct side *side)
{
	const struct kvw_lmcache_recipe recipe = {.chunk_size = 256, .seed = "0"};
	struct kvw_kvindex_options index = {.bytes = KVW_KVINDEX_MIN_BYTES, .seed = 1};
	struct kvw_lmreg_options options = {
		.coverage = note_coverage,
		.worker_url = url_of,
		.workers = workers,
		.worker_count = WORKERS,
		.timeout_ns = STEP_NS * 4,
		.key_limit = 512,
		.seed = 1,
	};

	side->now_ns = 20 * STEP_NS;
	check(kvw_kvspaces_create(&side->spaces) == KVW_OK &&
			kvw_kvspaces_lmcache(side->spaces, &recipe, &options.space) == KVW_OK &&
			kvw_kvindex_create(&index, &side->index) == KVW_OK,
		"no index");
	options.spaces = side->spaces;
	options.index = side->index;
	check(kvw_lmreg_create(&options, &side->reg) == KVW_OK, "no registry");
}

static void close_side(struct side *side)
{
	kvw_lmreg_destroy(side->reg);
	kvw_kvindex_destroy(side->index);
	kvw_kvspaces_destroy(side->spaces);
}

static void check_side(struct side *side)
{
	const char *fault = lmreg_fault(side->reg, keys, sizeof(keys) / sizeof(keys[0]));

	check(fault == NULL, fault);
}

static enum kvw_err pass(void *arg, enum kvw_keep_kind kind, const void *record, size_t len)
{
	struct side *to = arg;
	uint8_t *exact = malloc(len > 0 ? len : 1);

	check(exact != NULL && len <= KVW_KEPT_MOST, "a record that is too long");
	memcpy(exact, record, len);
	kvw_lmreg_recall(to->reg, kind, exact, len, to->now_ns);
	free(exact);
	return KVW_OK;
}

static void happen(struct side *side, uint8_t what, const uint8_t *record, size_t len)
{
	switch (what & 7) {
	case 5:
		side->now_ns += STEP_NS * (what >> 4);
		kvw_lmreg_tick(side->reg, side->now_ns);
		break;
	case 6:
		kvw_lmreg_worker_down(side->reg, (what >> 4) % WORKERS, side->now_ns);
		break;
	case 7:
		kvw_kvindex_purge(side->index, (what >> 4) % WORKERS);
		kvw_lmreg_worker_purged(side->reg, (what >> 4) % WORKERS);
		break;
	default:
		(void)pass(side, (enum kvw_keep_kind)(KVW_KEPT_INSTANCE + (what & 3)), record, len);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct side first, second;
	const struct kvw_keep_out out = {.put = pass, .arg = &second};
	size_t at = 0;

	kvw_log_set_level(KVW_LOG_ERROR);
	open_side(&first);
	open_side(&second);
	while (at + 3 <= size) {
		size_t len = (size_t)data[at + 1] << 8 | data[at + 2];

		if (len > size - at - 3)
			len = size - at - 3;
		happen(&first, data[at], data + at + 3, len);
		at += 3 + len;
	}
	kvw_lmreg_recall_end(first.reg, true, first.now_ns);
	check_side(&first);
	check(kvw_lmreg_keep(first.reg, &out) == KVW_OK, "it is not given away");
	check(second.reg->recalled.refused == 0, "what a registry gives away makes no sense to the next");
	kvw_lmreg_recall_end(second.reg, true, second.now_ns);
	check_side(&second);
	check(first.reg->count == second.reg->count && first.reg->stats.keys == second.reg->stats.keys,
		"the next registry is another one");
	close_side(&first);
	close_side(&second);
	return 0;
}
