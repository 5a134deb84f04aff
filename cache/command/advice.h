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

/* Seconds until a prefix that is used again is used again, at three percentiles; measured on
 * published traces of a chat service (Mooncake). */
#define KVT_REUSE_MEDIAN_S 114
#define KVT_REUSE_P90_S    519
#define KVT_REUSE_P99_S    1578

enum kvt_worth {
	KVT_WORTH_UNKNOWN, /* a rate is missing */
	KVT_WORTH_ALWAYS,  /* fetching is at least twice as fast as computing */
	KVT_WORTH_LITTLE,  /* fetching is faster than computing, but not twice as fast */
	KVT_WORTH_LOADED,  /* fetching is slower: of use only where requests wait for the engine */
};

/* Computes the speed of prefill: for each token the engine executes two operations for each
 * parameter that it uses. */
double kvt_prefill_from_flops(double flops, double utilisation, double parameters);

/* B*. */
double kvt_break_even(uint64_t token_bytes, double prefill);

enum kvt_worth kvt_worth_of(double tier_rate, double break_even);

/* Returns a sentence that explains a value of enum kvt_worth. */
const char *kvt_worth_text(enum kvt_worth worth);

/* Returns how many bytes are needed to keep every new token for that many seconds, at a steady rate
 * of new tokens. */
double kvt_retention_bytes(uint64_t token_bytes, double tokens_per_second, double seconds);

/* Measures how fast one thread of this machine copies memory; takes about a tenth of a second. 0:
 * there was no memory for the measurement. */
double kvt_measure_copy(void);

#endif
