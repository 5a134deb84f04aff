/*
 * gpus.h - parses descriptions of GPUs: by name, or by the size of their memory alone.
 */
#ifndef KVT_GPUS_H
#define KVT_GPUS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define KVT_GPUS_WHY 200

struct kvt_gpu {
	char name[32];
	uint64_t bytes;
	double memory_rate, bus_rate; /* bytes a second; 0: unknown */
	double flops;                 /* a second; 0: unknown */
};

/* Parses "8 x A100 80GB", "4xH200", "nvidia A100-SXM4-80GB", "8 x 96GB". Returns false if the text
 * is none of these; then `why` has one line. */
bool kvt_gpus_parse(
	const char *text, uint32_t *count, struct kvt_gpu *out, char why[KVT_GPUS_WHY]);

/* Prints all named GPUs as a table. */
void kvt_gpus_list(FILE *out);

#endif
