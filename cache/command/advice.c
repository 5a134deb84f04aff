/*
 * advice.c - computes the cost of keys and values: to keep, to fetch and to compute again.
 */
#include "command/advice.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

double kvt_prefill_from_flops(double flops, double utilisation, double parameters)
{
	return parameters > 0 ? flops * utilisation / (2 * parameters) : 0;
}

double kvt_break_even(uint64_t token_bytes, double prefill)
{
	return (double)token_bytes * prefill;
}

enum kvt_worth kvt_worth_of(double tier_rate, double break_even)
{
	if (tier_rate <= 0 || break_even <= 0)
		return KVT_WORTH_UNKNOWN;
	if (tier_rate >= 2 * break_even)
		return KVT_WORTH_ALWAYS;
	return tier_rate > break_even ? KVT_WORTH_LITTLE : KVT_WORTH_LOADED;
}

const char *kvt_worth_text(enum kvt_worth worth)
{
	switch (worth) {
	case KVT_WORTH_ALWAYS:
		return "offload: fetching is at least twice as fast as computing";
	case KVT_WORTH_LITTLE:
		return "offload: fetching is a little faster than computing, more so under load";
	case KVT_WORTH_LOADED:
		return "computing is faster on an idle engine: it pays only where requests queue";
	case KVT_WORTH_UNKNOWN:
		break;
	}
	return "unknown: a rate is missing";
}

double kvt_retention_bytes(uint64_t token_bytes, double tokens_per_second, double seconds)
{
	return (double)token_bytes * tokens_per_second * seconds;
}

/* Returns the processor time used, which, unlike time on a clock, does not grow with the work of
 * other processes. */
static double used_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

double kvt_measure_copy(void)
{
	const size_t bytes = 128u << 20, piece = 4u << 20;
	char *from = malloc(bytes), *to = malloc(bytes);
	double best = 0, end;
	size_t at = 0;

	if (from == NULL || to == NULL)
		goto out;
	memset(from, 1, bytes);
	memset(to, 2, bytes);
	/* keeps the memset although no code reads `to` */
	__asm__ volatile("" : : "r"(from), "r"(to) : "memory");
	end = used_s() + 0.1;
	do {
		double begun = used_s(), took;

		memcpy(to + at, from + at, piece);
		__asm__ volatile("" : : "r"(to) : "memory");
		took = used_s() - begun;
		if (took > 0 && (double)piece / took > best)
			best = (double)piece / took;
		at = (at + piece) % bytes;
	} while (used_s() < end);
out:
	free(from);
	free(to);
	return best;
}
