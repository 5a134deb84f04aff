/*
 * files.c - a clock, a disk in memory under it, and what can go wrong with the disk.
 */
#include <errno.h>
#include <stdlib.h>

#include "files.h"
#include "io/testing/test_clock.h"
#include "io/testing/test_disk.h"
#include "io/testing/test_faults.h"

#define SECOND INT64_C(1000000000)

struct files {
	struct kvt_test_clock clock;
	struct kvt_disk *disk; /* NULL: none */
	struct kvt_disk *next; /* what the next cache finds; NULL: the same disk */
	struct kvt_faults *faults;
	struct kvt_io_layer layer;
	uint64_t seed;
};

static void must(bool good)
{
	if (!good)
		abort();
}

static void wrap(struct files *files)
{
	must(kvt_faults_create(kvt_disk_layer(files->disk), ++files->seed, &files->clock,
		     &files->faults) == KVT_OK);
	files->layer = kvt_faults_layer(files->faults);
}

struct files *files_create(bool disk, bool record, uint64_t seed)
{
	struct files *files = calloc(1, sizeof(*files));
	struct kvt_disk_options options = {.record = record,
		.seed = seed,
		.latency_ns = 50000,
		.bytes_per_second = UINT64_C(2) << 30};

	must(files != NULL);
	files->seed = seed;
	atomic_init(&files->clock.now_ns, 5 * SECOND);
	atomic_init(&files->clock.wall_ns, 1700000000 * SECOND);
	options.clock = &files->clock;
	if (disk) {
		must(kvt_disk_create(&options, &files->disk) == KVT_OK);
		wrap(files);
	}
	return files;
}

void files_destroy(struct files *files)
{
	kvt_faults_destroy(files->faults);
	kvt_disk_destroy(files->disk);
	kvt_disk_destroy(files->next);
	free(files);
}

struct kvt_clock files_clock(struct files *files)
{
	return kvt_test_clock_use(&files->clock);
}

void files_pass_time(struct files *files, int64_t ns)
{
	kvt_test_clock_advance(&files->clock, ns);
}

const struct kvt_io_layer *files_layer(struct files *files)
{
	return files->disk == NULL ? NULL : &files->layer;
}

void files_faults(struct files *files, bool on)
{
	static const struct kvt_fault_rule rules[] = {
		{.kind = KVT_FAULT_ERROR, .on = KVT_ON_READ, .chance = 0.05},
		{.kind = KVT_FAULT_FLIP, .on = KVT_ON_READ, .chance = 0.1},
		{.kind = KVT_FAULT_SHORT, .on = KVT_ON_READ, .chance = 0.03},
		{.kind = KVT_FAULT_ERROR, .on = KVT_ON_WRITE, .chance = 0.03},
		{.kind = KVT_FAULT_ERROR,
			.on = KVT_ON_WRITE | KVT_ON_RESERVE,
			.error = ENOSPC,
			.chance = 0.03},
		{.kind = KVT_FAULT_SHORT, .on = KVT_ON_WRITE, .chance = 0.02},
		{.kind = KVT_FAULT_ERROR, .on = KVT_ON_SYNC | KVT_ON_SYNC_FOLDER, .chance = 0.02},
		{.kind = KVT_FAULT_STALL,
			.on = KVT_ON_READ | KVT_ON_WRITE | KVT_ON_SYNC,
			.chance = 0.01,
			.delay_ns = 3 * SECOND},
	};

	kvt_faults_clear(files->faults);
	for (size_t i = 0; on && i < sizeof(rules) / sizeof(rules[0]); i++)
		must(kvt_faults_add(files->faults, &rules[i]) == KVT_OK);
}

void files_crash(struct files *files, bool power, uint64_t seed)
{
	must(kvt_disk_after(files->disk, power ? KVT_DISK_POWER : KVT_DISK_KILL,
		     kvt_disk_moment(files->disk), seed, &files->next) == KVT_OK);
}

void files_go_on(struct files *files)
{
	if (files->disk == NULL)
		return;
	kvt_faults_destroy(files->faults);
	files->faults = NULL;
	if (files->next != NULL) {
		kvt_disk_destroy(files->disk);
		files->disk = files->next;
		files->next = NULL;
	}
	wrap(files);
}
