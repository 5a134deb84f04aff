/*
 * support.c - recorded frames from files, bytes from hex, and text to compare.
 */
#include <check.h>
#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "support.h"

struct bytes bytes_copy(const void *data, size_t len)
{
	struct bytes bytes = {malloc(len == 0 ? 1 : len), len};

	ck_assert_ptr_nonnull(bytes.data);
	if (len > 0)
		memcpy(bytes.data, data, len);
	return bytes;
}

static int digit(char c)
{
	ck_assert(isxdigit((unsigned char)c));
	return c <= '9' ? c - '0' : (c | 32) - 'a' + 10;
}

struct bytes bytes_of_hex(const char *hex)
{
	uint8_t *buffer = malloc(strlen(hex) / 2 + 1);
	struct bytes bytes;
	size_t len = 0;

	ck_assert_ptr_nonnull(buffer);
	for (; *hex != '\0'; hex++) {
		if (*hex == ' ' || *hex == '-')
			continue;
		ck_assert(hex[1] != '\0');
		buffer[len++] = (uint8_t)(digit(hex[0]) << 4 | digit(hex[1]));
		hex++;
	}
	bytes = bytes_copy(buffer, len);
	free(buffer);
	return bytes;
}

struct bytes bytes_of_text(const char *text)
{
	return bytes_copy(text, strlen(text));
}

void bytes_free(struct bytes *bytes)
{
	free(bytes->data);
	*bytes = (struct bytes){0};
}

void text_clear(struct text *text)
{
	text->len = 0;
	text_add(text, "%s", "");
}

void text_add(struct text *text, const char *format, ...)
{
	va_list args;
	int len;

	if (text->size - text->len < 512) {
		text->size = 2 * text->size + 4096;
		text->data = realloc(text->data, text->size);
		ck_assert_ptr_nonnull(text->data);
	}
	va_start(args, format);
	len = vsnprintf(text->data + text->len, text->size - text->len, format, args);
	va_end(args);
	ck_assert(len >= 0 && (size_t)len < text->size - text->len);
	text->len += (size_t)len;
}

void text_free(struct text *text)
{
	free(text->data);
	*text = (struct text){0};
}

struct lines lines_read(const char *name)
{
	struct lines lines = {0};
	char path[512];
	size_t size = 1 << 20, len;
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", DATA_DIR, name);
	file = fopen(path, "r");
	ck_assert_msg(file != NULL, "%s", path);
	lines.content = malloc(size);
	lines.items = malloc(size);
	ck_assert(lines.content != NULL && lines.items != NULL);
	len = fread(lines.content, 1, size - 1, file);
	fclose(file);
	ck_assert(len < size - 1);
	lines.content[len] = '\0';
	for (char *line = strtok(lines.content, "\n"); line != NULL; line = strtok(NULL, "\n")) {
		if (line[0] != '#')
			lines.items[lines.count++] = line;
	}
	ck_assert_uint_gt(lines.count, 0);
	return lines;
}

void lines_free(struct lines *lines)
{
	free(lines->items);
	free(lines->content);
}

const char *line_value(const char *line, const char *key)
{
	size_t len = strlen(key);

	return strncmp(line, key, len) == 0 && line[len] == ' ' ? line + len + 1 : NULL;
}
