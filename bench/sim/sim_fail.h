/*
 * sim_fail.h - faults that a test requests from a simulated worker.
 *
 * Written as `name` or `name=number`, several joined by `;`, in the request header x-sim-fail or
 * in GET /sim/fail?spec=... (percent-encoded). sim_fail.def is the list.
 */
#ifndef KVB_SIM_FAIL_H
#define KVB_SIM_FAIL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum kvb_fail_kind {
#define KVB_FAIL(id, name, least, text) KVB_FAIL_##id,
#include "bench/sim/sim_fail.def"
#undef KVB_FAIL
	KVB_FAIL_COUNT
};

/* The faults of one request; a value of -1 means that the fault was not requested. */
struct kvb_fail {
	int64_t value[KVB_FAIL_COUNT];
};

void kvb_fail_init(struct kvb_fail *fail);
/* Parses faults. If a name or number is wrong, returns false, and *fail is as kvb_fail_init leaves
 * it. */
bool kvb_fail_parse(const char *text, size_t len, struct kvb_fail *fail);
void kvb_fail_list(FILE *out);

static inline bool kvb_fail_on(const struct kvb_fail *fail, enum kvb_fail_kind kind)
{
	return fail->value[kind] >= 0;
}

#endif
