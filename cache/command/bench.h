/*
 * bench.h - the results of `kvtier bench`, before they are printed.
 */
#ifndef KVT_BENCH_H
#define KVT_BENCH_H

#include <stdbool.h>
#include <stdio.h>
#include <time.h>

#include "kvtier/kvtier.h"

struct kvt_bench {
	uint64_t chunk, l1, disk_bytes; /* bytes */
	double seconds;                 /* duration of each measurement of memory */
	const char *path;               /* NULL: no disk */
	const char *keys;               /* file of master keys; NULL: chunks are not encrypted */
	bool keep;                      /* keep the store */
	bool json;
	bool fragments; /* measure fragments, too */
	uint8_t *buffer; /* the bytes of one chunk; owned by the verb */

	/* Rates in bytes per second; 0: not measured. */
	double copy_rate, put_rate, write_rate, read_rate;
	double get_s, verified_s, lookup_s; /* seconds of one call; 0: not measured */
	/* bytes per second; load: to the same position, turn: to another position */
	double fragment_store_rate, fragment_load_rate, fragment_turn_rate;
	char l1_mode[32], nvme_mode[32], nvme_reason[KVT_REASON_BYTES];
};

/* Seconds. */
static inline double kvt_bench_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Measures fragments in a cache in memory. Returns false if the measurement could not begin; then
 * stderr has the cause. */
bool kvt_bench_fragments(struct kvt_bench *b, struct kvt *k);

void kvt_bench_print(const struct kvt_bench *b, FILE *out);

/* Prints one JSON object. Returns false if memory is short. */
bool kvt_bench_print_json(const struct kvt_bench *b, FILE *out);

#endif
