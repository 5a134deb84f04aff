/*
 * memory_bench.c - what libkvtier's memory tier costs, against memcpy and XXH3 on the same machine.
 *
 * JSON lines on standard output, a table on standard error. Ours and the peer take turns within every
 * round; figures are medians over the rounds.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "bench/cache/memory/figures.h"
#include "bench/cache/memory/measure.h"

void kvb_fail(const char *why)
{
	fprintf(stderr, "memory_bench: %s\n", why);
	exit(1);
}

int main(int argc, char **argv)
{
	struct kvb_options options = {
		.rounds = 9, .bytes = UINT64_C(1) << 30, .chunks = 1000000, .lookups = 1000};
	int option;

	while ((option = getopt(argc, argv, "r:m:n:l:")) != -1) {
		if (option == 'r') {
			options.rounds = (unsigned)atoi(optarg);
		} else if (option == 'm') {
			options.bytes = strtoull(optarg, NULL, 10) << 20;
		} else if (option == 'n') {
			options.chunks = (uint32_t)strtoul(optarg, NULL, 10);
		} else if (option == 'l') {
			options.lookups = (uint32_t)strtoul(optarg, NULL, 10);
		} else {
			fprintf(stderr, "usage: %s [-r ROUNDS] [-m MIB] [-n CHUNKS] [-l LOOKUPS]\n",
				argv[0]);
			return 2;
		}
	}
	if (options.rounds < 1 || options.rounds > KVB_MOST_ROUNDS || options.chunks < 8000 ||
		options.lookups < 1 || options.bytes < UINT64_C(256) << 20) {
		fprintf(stderr,
			"memory_bench: 1 to %d rounds, 256 MiB, 8000 chunks, 1 lookup at least\n",
			KVB_MOST_ROUNDS);
		return 2;
	}
	kvb_measure_copy(&options);
	kvb_measure_lookup(&options);
	kvb_measure_metadata(&options);
	return 0;
}
