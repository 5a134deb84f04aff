/*
 * sim_size.c - sizes as people and publications write them.
 *
 * kvtier's configuration takes no "GB", which means 10^9 bytes to one reader and 2^30 to another.
 * kvsim repeats what others have published, and they write "20 GB of CPU memory": here GB is what the
 * standard says, 10^9.
 */
#include "bench/sim/sim_size.h"

#include <stdlib.h>
#include <string.h>

static const struct {
	const char *name;
	double bytes;
} units[] = {{"", 1}, {"B", 1}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"KiB", 0x1p10},
	{"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40}};

bool kvb_parse_size(const char *text, uint64_t *out)
{
	size_t digits = strspn(text, "0123456789.");
	char *unit;
	double value = strtod(text, &unit);

	if (digits == 0 || unit != text + digits)
		return false; /* strtod would take signs, blanks, exponents and hex as well */
	unit += *unit == ' ' && unit[1] != '\0';
	for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
		if (strcmp(unit, units[i].name) != 0)
			continue;
		value *= units[i].bytes;
		if (value < 0.5 || value >= 0x1p63)
			return false;
		*out = (uint64_t)(value + 0.5);
		return true;
	}
	return false;
}
