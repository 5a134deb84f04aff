/*
 * lines.h - what fuzz targets check: that something holds, and that mistakes come as lines.
 */
#ifndef KVW_FUZZ_LINES_H
#define KVW_FUZZ_LINES_H

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static inline void require(bool holds)
{
	if (!holds)
		abort();
}

static inline bool begins_with_one(const char *line, const char *const *starts)
{
	for (; *starts != NULL; starts++)
		if (strncmp(line, *starts, strlen(*starts)) == 0)
			return true;
	return false;
}

/* Whole, printable lines, not too long, each of which begins with one of `starts`, which end with NULL. */
static inline void check_lines(const char *text, const char *const *starts)
{
	for (const char *line = text; *line != '\0';) {
		size_t len = strcspn(line, "\n");

		require(line[len] == '\n' && len > 8 && len < 2048);
		require(begins_with_one(line, starts));
		for (size_t i = 0; i < len; i++)
			require((unsigned char)line[i] >= 0x20 && line[i] != 0x7F);
		line += len + 1;
	}
}

#endif
