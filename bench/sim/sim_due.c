/* sim_due.c - when a request that says when it is due arrives, in simulated time. */
#include "bench/sim/sim_due.h"

#define DIGITS_MOST 18 /* below 2^63 */

/* Reads a number at the start of the text; returns its length in bytes, 0 if there is none. */
static size_t read_number(const char *text, size_t len, int64_t *out)
{
	size_t i = 0;

	*out = 0;
	for (; i < len && text[i] >= '0' && text[i] <= '9'; i++) {
		if (i == DIGITS_MOST)
			return 0;
		*out = *out * 10 + (text[i] - '0');
	}
	return i;
}

bool kvb_due_number(const char *text, size_t len, int64_t *out)
{
	int64_t number = 0;

	if (len == 0 || read_number(text, len, &number) != len)
		return false;
	*out = number;
	return true;
}

bool kvb_due_parse(const char *text, size_t len, struct kvb_due *out)
{
	struct kvb_due due;
	size_t first = read_number(text, len, &due.due_ns), second;

	if (first == 0 || first == len || text[first] != ' ')
		return false;
	second = read_number(text + first + 1, len - first - 1, &due.lead_ns);
	if (second == 0 || first + 1 + second != len)
		return false;
	*out = due;
	return true;
}

int64_t kvb_due_arrival_ns(
	const struct kvb_due *due, const struct kvb_sim_clock *clock, int64_t real_ns)
{
	int64_t way_ns = real_ns - (due->due_ns - due->lead_ns);

	return kvb_sim_of_real(clock, due->due_ns) + (way_ns > 0 ? way_ns : 0);
}
