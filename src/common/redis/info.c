/*
 * info.c - finds fields in a server's reply to INFO.
 */
#include "redis/info.h"

#include <stdio.h>
#include <string.h>

bool kvw_redis_info_field(const char *info, const char *name, char *out, size_t room)
{
	size_t len = strlen(name);

	for (const char *line = info; line != NULL && *line != '\0';) {
		const char *end = line + strcspn(line, "\r\n");

		if ((size_t)(end - line) > len && memcmp(line, name, len) == 0 &&
			line[len] == ':') {
			snprintf(out, room, "%.*s", (int)(end - line - (ptrdiff_t)len - 1),
				line + len + 1);
			return true;
		}
		line = end + strspn(end, "\r\n");
	}
	return false;
}

void kvw_redis_info_product(const char *info, char *out, size_t room)
{
	char version[16] = "";

	if (kvw_redis_info_field(info, "valkey_version", version, sizeof(version)))
		snprintf(out, room, "valkey %s", version);
	else if (kvw_redis_info_field(info, "redis_version", version, sizeof(version)))
		snprintf(out, room, "redis %s", version);
	else
		snprintf(out, room, "redis");
}
