/*
 * standard_out.c - prints texts without control characters, and checks that all output was written.
 */
#include "base/standard_out.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

void kvw_print_clean(FILE *out, const char *text, size_t len)
{
	const unsigned char *p = (const unsigned char *)text;

	for (size_t i = 0; i < len; i++) {
		bool c1 = p[i] == 0xC2 && i + 1 < len && p[i + 1] >= 0x80 && p[i + 1] < 0xA0;

		fputc(c1 || p[i] < 0x20 || p[i] == 0x7F ? '?' : p[i], out);
		i += c1;
	}
}

void kvw_printf(FILE *out, const char *format, ...)
{
	bool ends = *format != '\0' && format[strlen(format) - 1] == '\n';
	char *text = NULL;
	va_list arguments;
	int len;

	va_start(arguments, format);
	len = vasprintf(&text, format, arguments);
	va_end(arguments);
	if (len < 0)
		return;
	kvw_print_clean(out, text, (size_t)len - ends);
	if (ends)
		fputc('\n', out);
	free(text);
}

void kvw_print_column(FILE *out, const char *text, int width)
{
	kvw_print_clean(out, text, strlen(text));
	for (; *text != '\0'; text++)
		width -= ((unsigned char)*text & 0xc0) != 0x80;
	fprintf(out, "%*s", width > 0 ? width : 0, "");
}

bool kvw_standard_out_whole(const char *program)
{
	errno = 0;
	if (fflush(stdout) == 0) {
		if (ferror(stdout) == 0)
			return true;
		/* An earlier write failed, and its errno is lost: another one fails alike. */
		(void)fputc('\n', stdout);
		(void)fflush(stdout);
	}
	fprintf(stderr, "%s: what was printed is not whole: %s\n", program,
		errno != 0 ? strerror(errno) : "standard output cannot be written");
	return false;
}
