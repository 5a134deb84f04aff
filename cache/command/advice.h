/*
 * advice.h - the cost of a model's keys and values: to keep, to fetch and to compute again.
 *
 * Pure functions, so that tests can give them machines. Rates are per second, sizes in bytes.
 *
 * 	B* = bytes per token x prefill tokens per second
 *
 * is the rate at which the engine makes keys and values itself. A tier that delivers them faster
 * saves time on an idle engine; a slower tier costs time, and pays only where requests queue for
 * the processor that a fetch leaves free.
 */
#ifndef KVT_ADVICE_H
#define KVT_ADVICE_H

#include <stdint.h>

/* Measured on published traces of a chat service (Mooncake): the time until a prefix that is used
 * again is used again. */
#define KVT_REUSE_MEDIAN_S 114
#define KVT_REUSE_P90_S    519
#define KVT_REUSE_P99_S    1578

enum kvt_worth {
	KVT_WORTH_UNKNOWN, /* a rate is missing */
	KVT_WORTH_ALWAYS,  /* at least twice as fast as computing */
	KVT_WORTH_LITTLE,  /* faster, by less than that */
	KVT_WORTH_LOADED,  /* slower: of use only where requests queue */
};

/* Prefill speed from arithmetic: a token costs two operations for each parameter that it meets. */
double kvt_prefill_from_flops(double flops, double utilisation, double parameters);

/* B*. */
double kvt_break_even(uint64_t token_bytes, double prefill);

enum kvt_worth kvt_worth_of(double tier_rate, double break_even);

/* A sentence for each enum kvt_worth. */
const char *kvt_worth_text(enum kvt_worth worth);

/* Bytes that hold every new token of that many seconds, at a steady rate of new tokens. */
double kvt_retention_bytes(uint64_t token_bytes, double tokens_per_second, double seconds);

/* Measures how fast this machine copies memory on one thread; takes about a tenth of a second. 0:
 * no memory for the measurement. */
double kvt_measure_copy(void);

#endif
