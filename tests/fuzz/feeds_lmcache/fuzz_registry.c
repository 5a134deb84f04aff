/*
 * fuzz_registry.c - any frames on any socket of LMCache's controller, with time passing in between.
 *
 * The input is a list of records: one byte of what happens, two of a length (big endian), and a frame
 * of that length. After each record the registry and the index must agree.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/router/feeds/lmcache/invariants.h"
#include "base/log.h"

#define WORKERS 2
#define KEYS    16
#define STEP_NS INT64_C(7000000000)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct kvw_lmreg_worker workers[WORKERS] = {{"i0", "10.0.0.1"}, {"", "127.0.0.1"}};

struct fuzz {
	struct kvw_kvindex *index;
	struct kvw_lmreg *reg;
	struct kvw_lmc_reader reader;
	uint8_t reply[KVW_LMREG_REPLY_MAX];
	uint64_t keys[KEYS]; /* the last ones that were named */
	uint32_t key_count;
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
	check(worker < WORKERS && coverage <= KVW_COVERAGE_FULL && wrong != NULL,
		"a coverage of no worker");
	check((coverage == KVW_COVERAGE_BLIND) == (wrong[0] != '\0'), "a coverage without its reason");
}

static void send(struct fuzz *fuzz, struct kvw_slice frame, bool answered)
{
	struct kvw_lmc_message message;
	struct kvw_mp_out out;
	struct kvw_lmreg_request request = {
		.message = &message,
		.answered = answered,
		.heartbeat_url = KVW_SLICE("127.0.0.1:1"),
		.now_ns = fuzz->now_ns,
	};

	if (kvw_lmc_read(&fuzz->reader, frame, &message) != KVW_OK)
		return;
	for (size_t i = 0; i < message.key_count && i < KEYS; i++)
		fuzz->keys[fuzz->key_count++ % KEYS] = message.keys[i];
	kvw_mp_out_init(&out, fuzz->reply, sizeof(fuzz->reply));
	kvw_lmreg_message(fuzz->reg, &request, &out);
	check(!out.full, "an answer that does not fit");
	check(!answered || out.len > 0, "a request without an answer");
}

static void record(struct fuzz *fuzz, uint8_t what, struct kvw_slice frame)
{
	uint32_t worker = what >> 4 & 1;

	switch (what & 7) {
	case 0:
	case 1:
	case 2:
		send(fuzz, frame, false);
		break;
	case 3:
	case 4:
		send(fuzz, frame, true);
		break;
	case 5:
		fuzz->now_ns += STEP_NS * (what >> 3);
		kvw_lmreg_tick(fuzz->reg, fuzz->now_ns);
		break;
	case 6:
		kvw_lmreg_worker_down(fuzz->reg, worker, fuzz->now_ns - (what >> 5));
		break;
	case 7:
		kvw_kvindex_purge(fuzz->index, worker);
		kvw_lmreg_worker_purged(fuzz->reg, worker);
		break;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct fuzz fuzz;
	struct kvw_kvindex_options index = {.bytes = KVW_KVINDEX_MIN_BYTES, .seed = 1};
	struct kvw_lmreg_options options = {
		.coverage = note_coverage,
		.workers = workers,
		.worker_count = WORKERS,
		.timeout_ns = STEP_NS * 4,
		.key_limit = 512, /* fewer than the index has room for */
		.seed = 1,
	};
	const char *fault;
	size_t at = 0;

	kvw_log_set_level(KVW_LOG_ERROR);
	fuzz = (struct fuzz){.now_ns = STEP_NS};
	check(kvw_kvindex_create(&index, &fuzz.index) == KVW_OK, "no index");
	options.index = fuzz.index;
	check(kvw_lmreg_create(&options, &fuzz.reg) == KVW_OK, "no registry");
	kvw_lmc_reader_init(&fuzz.reader);
	while (at + 3 <= size) {
		size_t len = (size_t)data[at + 1] << 8 | data[at + 2];

		if (len > size - at - 3)
			len = size - at - 3;
		record(&fuzz, data[at], (struct kvw_slice){(const char *)data + at + 3, len});
		at += 3 + len;
		fault = lmreg_fault(
			fuzz.reg, fuzz.keys, fuzz.key_count < KEYS ? fuzz.key_count : KEYS);
		check(fault == NULL, fault);
	}
	kvw_lmc_reader_finish(&fuzz.reader);
	kvw_lmreg_destroy(fuzz.reg);
	kvw_kvindex_destroy(fuzz.index);
	return 0;
}
