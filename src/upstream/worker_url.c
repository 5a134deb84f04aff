/* worker_url.c - see worker_url.h. */
#include "worker_url.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool copy(char *to, size_t size, const char *from, size_t len)
{
	if (len >= size)
		return false;
	memcpy(to, from, len);
	to[len] = '\0';
	return true;
}

/* ":8000" or "" at [p, end). */
static bool parse_port(const char *p, const char *end, unsigned *port)
{
	unsigned value = 0;

	*port = 80;
	if (p == end)
		return true;
	if (*p != ':' || end - p < 2 || end - p > 6)
		return false;
	for (p++; p < end; p++) {
		if (*p < '0' || *p > '9')
			return false;
		value = value * 10 + (unsigned)(*p - '0');
	}
	*port = value;
	return value > 0 && value < 65536;
}

enum kvw_err kvw_worker_url_parse(const char *text, struct kvw_worker_url *out)
{
	struct kvw_worker_url url = {0};
	const char *host = text + 7, *end, *host_end;
	size_t path_len;

	if (strncmp(text, "http://", 7) != 0)
		return KVW_EINVAL;
	end = host + strcspn(host, "/?#");
	if (end == host || memchr(host, '@', (size_t)(end - host)) != NULL || strpbrk(end, "?#") != NULL)
		return KVW_EINVAL;
	if (*host == '[') {
		host_end = memchr(host, ']', (size_t)(end - host));
		if (host_end == NULL || !copy(url.host, sizeof(url.host), host + 1,
						(size_t)(host_end - host - 1)))
			return KVW_EINVAL;
		host_end++;
	} else {
		host_end = memchr(host, ':', (size_t)(end - host));
		if (host_end == NULL)
			host_end = end;
		if (!copy(url.host, sizeof(url.host), host, (size_t)(host_end - host)))
			return KVW_EINVAL;
	}
	path_len = strlen(end);
	while (path_len > 0 && end[path_len - 1] == '/')
		path_len--;
	if (url.host[0] == '\0' || !parse_port(host_end, end, &url.port) ||
		!copy(url.authority, sizeof(url.authority), host, (size_t)(end - host)) ||
		!copy(url.path, sizeof(url.path), end, path_len))
		return KVW_EINVAL;
	*out = url;
	return KVW_OK;
}
