/*
 * fuzz_events.c - any body of POST /events: what is read, and what the directory makes of it.
 *
 * A body that passes the check must be read whole the second time, too; after it the directory's books
 * must be right. Instances live on from input to input within bounds of memory, which are small.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "tests/unit/router/feeds/coordinator/invariants.h"

#define BYTES   20000
#define STEP_NS INT64_C(40000000000)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct applying {
	struct kvw_cd *cd;
	struct kvw_cd_instance *instance;
	int64_t now_ns;
};

static void check(bool holds, const char *what)
{
	if (holds)
		return;
	fprintf(stderr, "%s\n", what);
	abort();
}

static bool on_batch(void *ctx, const struct kvw_ce_batch *batch)
{
	struct applying *a = ctx;

	if (kvw_cd_batch(a->cd, batch, a->now_ns, &a->instance) != KVW_CD_APPLIED)
		return false;
	kvw_cd_batch_end(a->cd, a->instance, batch);
	return true;
}

static void on_entry(
	void *ctx, const struct kvw_ce_batch *batch, const struct kvw_ce_entry *entry)
{
	struct applying *a = ctx;

	check(entry->token_count <= KVW_CE_TOKENS_MOST, "more tokens than there is room for");
	check(batch->type != KVW_CE_CONFIG, "a config batch with entries");
	kvw_cd_entry(a->cd, a->instance, batch, entry);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct kvw_ce_reader reader;
	static struct applying a;
	const struct kvw_ce_sink sink = {.batch = on_batch, .entry = on_entry, .ctx = &a};
	const struct kvw_cd_options options = {.bytes = BYTES, .seed = 1};
	struct kvw_slice body = {(const char *)data, size};
	const char *fault;

	if (a.cd == NULL) {
		kvw_log_set_level(KVW_LOG_ERROR);
		check(kvw_cd_create(&options, &a.cd) == KVW_OK, "no memory");
	}
	a.now_ns += STEP_NS;
	if (size == 0 || kvw_ce_read(&reader, body, NULL) != KVW_OK) {
		check(size == 0 || reader.error[0] != '\0', "an error without its text");
		return 0;
	}
	check(kvw_ce_read(&reader, body, &sink) == KVW_OK, "a checked body cannot be read");
	kvw_cd_tick(a.cd, STEP_NS / 2, a.now_ns);
	fault = coordinator_fault(a.cd);
	check(fault == NULL, fault);
	return 0;
}
