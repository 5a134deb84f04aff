/*
 * keyring_bench.c - how long it takes to find a client's key among many, and to read their file.
 *
 * Keys are looked up in random order, so that each look goes to memory that no earlier one has touched lately;
 * half of them are unknown. The hash of the key is timed alone. Processor time; the median of the rounds.
 *
 *   keyring_bench [KEYS]      100000; prints one line each: name, nanoseconds (the file: seconds)
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "auth/keys_file.h"
#include "bench/timing.h"

#define ROUNDS 15
#define LOOKS  200000

static void print_median(const char *name, double rounds[ROUNDS])
{
	printf("%s %.1f\n", name, kvb_median(rounds, ROUNDS) / LOOKS * 1e9);
}

static void key_text(char text[64], size_t i)
{
	snprintf(text, 64, "sk-kvway-%044zu", i);
}

static char *make_file(size_t count, size_t *len)
{
	char *out = NULL, text[64];
	FILE *file = open_memstream(&out, len);
	struct kvw_digest digest;

	fputs("keys:\n", file);
	for (size_t i = 0; i < count; i++) {
		key_text(text, i);
		kvw_key_digest(kvw_slice_of(text), &digest);
		fprintf(file, "  - name: key%zu\n    tenant: tenant%zu\n    sha256: ", i, i % 100);
		for (size_t k = 0; k < sizeof(digest.bytes); k++)
			fprintf(file, "%02x", digest.bytes[k]);
		fputc('\n', file);
	}
	fclose(file);
	return out;
}

int main(int argc, char **argv)
{
	size_t count = argc > 1 ? strtoul(argv[1], NULL, 10) : 100000, len, found = 0;
	struct kvw_digest *digests = calloc(LOOKS, sizeof(*digests));
	double hash[ROUNDS], find[ROUNDS], start;
	struct kvw_keyring *ring = NULL;
	char *file = make_file(count, &len), text[64];

	start = kvb_cpu_seconds();
	if (digests == NULL || kvw_keys_file_parse("keys", file, len, stderr, &ring) != KVW_OK)
		return 1;
	printf("read_s %.2f\n", kvb_cpu_seconds() - start);
	srand(1);
	for (size_t round = 0; round < ROUNDS; round++) {
		key_text(text, round);
		start = kvb_cpu_seconds();
		for (size_t i = 0; i < LOOKS; i++) {
			text[20] = (char)('0' + i % 10);
			kvw_key_digest(kvw_slice_of(text), &digests[i]);
		}
		hash[round] = kvb_cpu_seconds() - start;
		for (size_t i = 0; i < LOOKS; i++) {
			key_text(text, (size_t)rand() % (2 * count));
			kvw_key_digest(kvw_slice_of(text), &digests[i]);
		}
		start = kvb_cpu_seconds();
		for (size_t i = 0; i < LOOKS; i++)
			found += kvw_keyring_find(ring, &digests[i]) != NULL;
		find[round] = kvb_cpu_seconds() - start;
	}
	print_median("hash_ns", hash);
	print_median("find_ns", find);
	fprintf(stderr, "%.1f %% of them known\n", 100.0 * (double)found / ROUNDS / LOOKS);
	kvw_keyring_unref(ring);
	free(digests);
	free(file);
	return 0;
}
