/*
 * bench.h - what `kvtier bench` measured, before it is printed.
 */
#ifndef KVT_BENCH_H
#define KVT_BENCH_H

#include <stdbool.h>
#include <stdio.h>
#include <time.h>

#include "kvtier/kvtier.h"

struct kvt_bench {
	uint64_t chunk, l1, disk_bytes; /* bytes */
	double seconds;                 /* of each figure of memory */
	const char *path;               /* NULL: no disk */
	const char *keys;               /* file of master keys; NULL: plain */
	bool keep;                      /* the store stays */
	bool json;
	bool fragments; /* those are measured, too */
	uint8_t *buffer; /* one chunk; owned by the verb */

	/* Rates in bytes per second; 0: not measured. */
	double copy_rate, put_rate, write_rate, read_rate;
	double get_s, verified_s, lookup_s; /* seconds of one; 0: not measured */
	double fragment_store_rate, fragment_load_rate, fragment_turn_rate; /* load: where they stood; turn: elsewhere */
	char l1_mode[32], nvme_mode[32], nvme_reason[KVT_REASON_BYTES];
};

/* Seconds. */
static inline double kvt_bench_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Measures fragments in a cache in memory. False: it could not begin; stderr has why. */
bool kvt_bench_fragments(struct kvt_bench *b, struct kvt *k);

void kvt_bench_print(const struct kvt_bench *b, FILE *out);

/* One object. False: no memory. */
bool kvt_bench_print_json(const struct kvt_bench *b, FILE *out);

#endif
