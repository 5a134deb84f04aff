/*
 * size.h - the results of `kvtier size`, before they are printed.
 */
#ifndef KVT_SIZE_H
#define KVT_SIZE_H

#include <stdio.h>

#include "kvtier/kvtier.h"
#include "command/model.h"
#include "command/offload.h"

/* A tier's room and rate. */
struct kvt_size_tier {
	const char *name; /* "l1", "nvme" */
	uint64_t bytes;   /* 0: there is none, or it was not asked for */
	char why[KVT_REASON_BYTES];
	double rate;       /* bytes per second; 0: unknown */
	const char *where; /* "measured here", "given" */
};

struct kvt_size {
	struct kvt_model model;
	uint32_t tensor; /* number of ranks that share the heads */
	uint32_t chunk_tokens;
	uint64_t context;                      /* tokens */
	double prefill;                        /* tokens per second; 0: not given */
	/* the numbers from which prefill was computed; 0: prefill was given */
	double flops, utilisation, parameters;
	struct kvt_size_tier tiers[2];
	uint64_t full_bytes, window_bytes; /* bytes for each token, of one rank */
	struct kvt_offload offload;
};

void kvt_size_print(const struct kvt_size *s, FILE *out);

/* Print the results about GPUs: which models fit, the table, and times. */
void kvt_offload_print(const struct kvt_size *s, FILE *out);
json_t *kvt_offload_json(const struct kvt_size *s); /* NULL: no memory */

/* Prints one JSON object. Returns false if memory is short. */
bool kvt_size_print_json(const struct kvt_size *s, FILE *out);

#endif
