/*
 * sim_fail.c - parses the list of faults of a request.
 */
#include <string.h>

#include "bench/sim/sim_fail.h"

static const struct {
	const char *name;
	int64_t least; /* -1: takes no number */
	const char *text;
} kinds[] = {
#define KVB_FAIL(id, name, least, text) {name, least, text},
#include "bench/sim/sim_fail.def"
#undef KVB_FAIL
};

void kvb_fail_init(struct kvb_fail *fail)
{
	for (int i = 0; i < KVB_FAIL_COUNT; i++)
		fail->value[i] = -1;
}

static bool parse_number(const char *text, size_t len, int64_t *out)
{
	int64_t value = 0;

	if (len == 0 || len > 15)
		return false;
	for (size_t i = 0; i < len; i++) {
		if (text[i] < '0' || text[i] > '9')
			return false;
		value = value * 10 + (text[i] - '0');
	}
	*out = value;
	return true;
}

/* Parses one `name` or `name=number`. */
static bool parse_one(const char *text, size_t len, struct kvb_fail *fail)
{
	const char *equals = memchr(text, '=', len);
	size_t name_len = equals == NULL ? len : (size_t)(equals - text);

	for (int i = 0; i < KVB_FAIL_COUNT; i++) {
		int64_t value = 0;

		if (strlen(kinds[i].name) != name_len || memcmp(kinds[i].name, text, name_len) != 0)
			continue;
		if ((equals != NULL) != (kinds[i].least >= 0))
			return false;
		if (equals != NULL && !parse_number(equals + 1, len - name_len - 1, &value))
			return false;
		if (value < kinds[i].least)
			return false;
		fail->value[i] = value;
		return true;
	}
	return false;
}

bool kvb_fail_parse(const char *text, size_t len, struct kvb_fail *fail)
{
	kvb_fail_init(fail);
	while (len > 0) {
		const char *end = memchr(text, ';', len);
		size_t part = end == NULL ? len : (size_t)(end - text);
		size_t from = 0, to = part;

		while (from < to && (text[from] == ' ' || text[from] == '\t'))
			from++;
		while (to > from && (text[to - 1] == ' ' || text[to - 1] == '\t'))
			to--;
		if (to > from && !parse_one(text + from, to - from, fail)) {
			kvb_fail_init(fail);
			return false;
		}
		part += end != NULL;
		text += part;
		len -= part;
	}
	return true;
}

void kvb_fail_list(FILE *out)
{
	for (int i = 0; i < KVB_FAIL_COUNT; i++) {
		char name[40];

		snprintf(
			name, sizeof(name), "%s%s", kinds[i].name, kinds[i].least >= 0 ? "=N" : "");
		fprintf(out, "  %-23s %s\n", name, kinds[i].text);
	}
}
