/*
 * format.c - writes and parses numbers in the forms that people use.
 */
#include "command/format.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "settings/types.h"

const char *kvt_format_size(char out[KVT_FORMAT_BYTES], double bytes)
{
	static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB"};
	size_t unit = 0;

	while (fabs(bytes) >= 1024 && unit + 1 < sizeof(units) / sizeof(units[0])) {
		bytes /= 1024;
		unit++;
	}
	snprintf(out, KVT_FORMAT_BYTES, "%.*f %s",
		fabs(bytes - round(bytes)) < 0.05 || bytes >= 100 ? 0 : 1, bytes, units[unit]);
	return out;
}

const char *kvt_format_rate(char out[KVT_FORMAT_BYTES], double bytes_per_second)
{
	if (bytes_per_second >= 1e8)
		snprintf(out, KVT_FORMAT_BYTES, "%.2f GB/s", bytes_per_second / 1e9);
	else
		snprintf(out, KVT_FORMAT_BYTES, "%.1f MB/s", bytes_per_second / 1e6);
	return out;
}

const char *kvt_format_count(char out[KVT_FORMAT_BYTES], double count)
{
	if (count >= 1e10)
		snprintf(out, KVT_FORMAT_BYTES, "%.0fG", count / 1e9);
	else if (count >= 1e7)
		snprintf(out, KVT_FORMAT_BYTES, "%.0fM", count / 1e6);
	else if (count >= 1e6)
		snprintf(out, KVT_FORMAT_BYTES, "%.1fM", count / 1e6);
	else if (count >= 1e4)
		snprintf(out, KVT_FORMAT_BYTES, "%.0fk", count / 1e3);
	else
		snprintf(out, KVT_FORMAT_BYTES, "%.0f", count);
	return out;
}

const char *kvt_format_age(char out[KVT_FORMAT_BYTES], double seconds)
{
	if (seconds < 120)
		snprintf(out, KVT_FORMAT_BYTES, "%.0f s", seconds);
	else if (seconds < 2 * 3600)
		snprintf(out, KVT_FORMAT_BYTES, "%.0f min", seconds / 60);
	else if (seconds < 48 * 3600)
		snprintf(out, KVT_FORMAT_BYTES, "%.0f h", seconds / 3600);
	else
		snprintf(out, KVT_FORMAT_BYTES, "%.0f days", seconds / 86400);
	return out;
}

bool kvt_parse_number(const char *text, double *out)
{
	static const char suffixes[] = "kMGTP";
	size_t digits = strspn(text, "0123456789.");
	const char *suffix;
	char *end = NULL;
	double value;

	value = strtod(text, &end);
	if (digits == 0 || end != text + digits)
		return false; /* strtod also accepts hex, inf, exponents and blanks */
	if (*end != '\0') {
		suffix = strchr(suffixes, *end);
		if (suffix == NULL || end[1] != '\0')
			return false;
		value *= pow(1000, (double)(suffix - suffixes + 1));
	}
	if (!isfinite(value) || value <= 0)
		return false;
	*out = value;
	return true;
}

bool kvt_parse_bytes(const char *text, uint64_t *out)
{
	static const char letters[] = "kMGTP";
	char number[KVT_FORMAT_BYTES];
	size_t n = strlen(text);
	const char *letter;
	double value;
	bool binary;

	if (n >= sizeof(number))
		return false;
	for (n = 0; *text != '\0'; text++)
		if (*text != ' ')
			number[n++] = *text;
	number[n] = '\0';
	binary = n > 3 && strcmp(number + n - 2, "iB") == 0;
	if (binary)
		number[n - 2] = '\0';
	else if (n > 1 && number[n - 1] == 'B')
		number[n - 1] = '\0';
	if (!kvt_parse_number(number, &value) || value >= 1e18)
		return false;
	letter = strchr(letters, number[strlen(number) - 1]);
	if (binary && letter == NULL)
		return false;
	if (binary)
		value *= pow(1.024, (double)(letter - letters + 1));
	*out = (uint64_t)(value + 0.5);
	return true;
}

bool kvt_parse_size(const char *text, uint64_t *out)
{
	struct kvw_fault fault = {0};
	union kvw_value value;

	if (kvw_type_SIZE.parse(&kvw_type_SIZE, kvw_slice_of(text), NULL, &value, &fault) != KVW_OK)
		return false;
	*out = value.size;
	return true;
}
