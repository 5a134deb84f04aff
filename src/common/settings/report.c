/*
 * report.c - mistakes in a configuration, printed as they are found.
 *
 * Mistakes are not collected: values are visited in the order of the file, so printing at once
 * gives sorted lines and needs no memory. Only mistakes in how two keys fit together come last.
 */
#include "settings/report.h"

#include <stdarg.h>
#include <string.h>

void kvw_report_start(struct kvw_report *report, const char *name, FILE *out)
{
	*report = (struct kvw_report){.out = out, .name = name};
}

bool kvw_report_printing(const struct kvw_report *report)
{
	return report->mistakes < KVW_REPORT_MOST;
}

void kvw_report_mistake(
	struct kvw_report *report, struct kvw_place place, const char *key, const char *format, ...)
{
	char shown[KVW_REPORT_QUOTE];
	va_list args;

	if (report->mistakes++ >= KVW_REPORT_MOST)
		return;
	if (place.flag != NULL)
		fprintf(report->out, "%s: ", place.flag);
	else
		fprintf(report->out, "%s:%zu:%zu: ", report->name, place.line, place.column);
	if (key != NULL && place.flag == NULL) {
		kvw_report_quote(shown, key, strlen(key));
		fprintf(report->out, "%.*s: ", (int)strlen(shown) - 2, shown + 1);
	}
	va_start(args, format);
	vfprintf(report->out, format, args);
	va_end(args);
	fputc('\n', report->out);
}

void kvw_report_finish(struct kvw_report *report)
{
	if (report->mistakes > KVW_REPORT_MOST)
		fprintf(report->out, "%s: %zu more mistakes\n", report->name,
			report->mistakes - KVW_REPORT_MOST);
}

/* Returns the length of the UTF-8 character at text, at most len; a byte that begins no character
 * counts as one. */
static size_t character_size(const char *text, size_t len)
{
	unsigned char lead = (unsigned char)text[0];
	size_t size = lead < 0xC0 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : lead < 0xF8 ? 4 : 1;

	if (size > len)
		return 1;
	for (size_t i = 1; i < size; i++)
		if (((unsigned char)text[i] & 0xC0) != 0x80)
			return 1;
	return size;
}

const char *kvw_report_quote(char out[KVW_REPORT_QUOTE], const char *text, size_t len)
{
	const size_t room = KVW_REPORT_QUOTE - sizeof("...`");
	size_t used = 0;
	size_t i = 0;

	out[used++] = '`';
	while (i < len) {
		unsigned char c = (unsigned char)text[i];
		size_t size = character_size(text + i, len - i);
		/* C0, DEL, and C1 (two bytes, C2 80 to C2 9F) may act on the terminal. */
		bool control = c < 0x20 || c == 0x7F ||
			       (c == 0xC2 && size == 2 && (unsigned char)text[i + 1] < 0xA0);

		if (used + (control ? 4 * size : size) > room)
			break;
		for (size_t k = 0; k < size; k++) {
			if (control)
				used += (size_t)snprintf(out + used, KVW_REPORT_QUOTE - used,
					"\\x%02X", (unsigned char)text[i + k]);
			else
				out[used++] = text[i + k];
		}
		i += size;
	}
	if (i < len) {
		memcpy(out + used, "...", 3);
		used += 3;
	}
	out[used++] = '`';
	out[used] = '\0';
	return out;
}
