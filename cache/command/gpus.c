/*
 * gpus.c - finds the GPU that a text names.
 *
 * A text names a GPU if it has all the words of the GPU's name ("A100-SXM4-80GB" has "A100" and
 * "80GB"), or words that only one name has ("H200").
 */
#include "command/gpus.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "command/format.h"

static const struct {
	const char *name;
	double mib, memory, bus, flops;
} known[] = {
#define KVT_GPU(name, mib, memory, bus, flops) {name, mib, memory, bus, flops},
#include "command/gpus.def"
};

#define KNOWN (sizeof(known) / sizeof(known[0]))

static size_t word_length(const char *text)
{
	size_t n = 0;

	while (isalnum((unsigned char)text[n]) || text[n] == '.')
		n++;
	return n;
}

/* Returns the begin of the next word, or the end of the text. */
static const char *next_word(const char *text)
{
	while (*text != '\0' && word_length(text) == 0)
		text++;
	return text;
}

static bool has_word(const char *text, const char *word, size_t length)
{
	for (text = next_word(text); *text != '\0'; text = next_word(text + word_length(text)))
		if (word_length(text) == length && strncasecmp(text, word, length) == 0)
			return true;
	return false;
}

/* Returns whether `text` has every word of `words`. */
static bool has_words(const char *text, const char *words)
{
	for (words = next_word(words); *words != '\0'; words = next_word(words + word_length(words)))
		if (!has_word(text, words, word_length(words)))
			return false;
	return true;
}

static void take(size_t i, struct kvt_gpu *out)
{
	*out = (struct kvt_gpu){.bytes = (uint64_t)known[i].mib << 20,
		.memory_rate = known[i].memory * 1e9,
		.bus_rate = known[i].bus * 1e9,
		.flops = known[i].flops * 1e12};
	snprintf(out->name, sizeof(out->name), "%s", known[i].name);
}

/* Finds the only name that has the text's words. If several names have them, finds the longest name
 * of which the text has all words. */
static bool find(const char *text, struct kvt_gpu *out, char why[KVT_GPUS_WHY])
{
	size_t alike = 0, n, whole = KNOWN, last = 0;

	n = (size_t)snprintf(why, KVT_GPUS_WHY, "`%.40s` may be", text);
	for (size_t i = 0; i < KNOWN; i++) {
		if (has_words(text, known[i].name) &&
			(whole == KNOWN || strlen(known[i].name) > strlen(known[whole].name)))
			whole = i;
		if (!has_words(known[i].name, text))
			continue;
		last = i;
		if (n < KVT_GPUS_WHY)
			n += (size_t)snprintf(why + n, KVT_GPUS_WHY - n, "%s %s",
				alike > 0 ? "," : "", known[i].name);
		alike++;
	}
	if (whole < KNOWN || alike == 1)
		take(whole < KNOWN ? whole : last, out);
	if (alike == 0)
		snprintf(why, KVT_GPUS_WHY,
			"`%.40s` is none that is known: `--gpu list` shows them, `8 x 96GB` needs no name",
			text);
	return whole < KNOWN || alike == 1;
}

bool kvt_gpus_parse(
	const char *text, uint32_t *count, struct kvt_gpu *out, char why[KVT_GPUS_WHY])
{
	unsigned long n = 1;
	const char *rest = text;
	char *end = NULL;

	if (isdigit((unsigned char)*text)) {
		n = strtoul(text, &end, 10);
		end += strspn(end, " ");
		if (tolower((unsigned char)*end) == 'x' || *end == '*')
			rest = end + 1;
		else
			n = 1;
	}
	rest = next_word(rest);
	if (strncasecmp(rest, "nvidia ", 7) == 0 || strncasecmp(rest, "amd ", 4) == 0)
		/* drivers print the vendor before the name: it is skipped */
		rest = next_word(rest + word_length(rest));
	if (n < 1 || n > 1024 || *rest == '\0') {
		snprintf(why, KVT_GPUS_WHY, "found `%.40s`, expected such as `8 x A100 80GB`", text);
		return false;
	}
	*count = (uint32_t)n;
	*out = (struct kvt_gpu){0};
	if (!kvt_parse_bytes(rest, &out->bytes))
		return find(rest, out, why);
	snprintf(out->name, sizeof(out->name), "%.30s", rest);
	return true;
}

void kvt_gpus_list(FILE *out)
{
	char size[KVT_FORMAT_BYTES];

	fprintf(out, "%-14s %10s %12s %18s %12s\n", "GPU", "memory", "bandwidth", "from CPU memory",
		"bfloat16");
	for (size_t i = 0; i < KNOWN; i++)
		fprintf(out, "%-14s %10s %7.0f GB/s %13.0f GB/s %5.0f TFLOP/s\n", known[i].name,
			kvt_format_size(size, known[i].mib * 1048576), known[i].memory,
			known[i].bus, known[i].flops);
}
