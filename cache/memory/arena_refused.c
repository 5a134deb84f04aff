/*
 * arena_refused.c - logs requests of an arena that the machine refused, and adds them to its
 * reason.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "memory/arena_map.h"

void kvt_arena_refused(
	struct kvt_arena_map *map, const struct kvt_surroundings *s, const char *format, ...)
{
	size_t used = strlen(map->reason);
	char text[KVT_REASON_BYTES];
	va_list args;
	int n;

	va_start(args, format);
	n = vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	if (n < 0)
		text[0] = '\0';
	kvt_note(s, KVT_LOG_WARN, "arena: %s", text);
	snprintf(
		map->reason + used, sizeof(map->reason) - used, "%s%s", used > 0 ? "; " : "", text);
}
