/*
 * url.c - parses the URL of a Redis server.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hex.h"
#include "redis/url.h"

#define REDIS_PORT    6379
#define SENTINEL_PORT 26379

static const struct kvw_redis_scheme schemes[] = {
	{"redis", KVW_REDIS_SINGLE, false, true, REDIS_PORT},
	{"rediss", KVW_REDIS_SINGLE, true, true, REDIS_PORT},
	{"valkey", KVW_REDIS_SINGLE, false, true, REDIS_PORT},
	{"valkeys", KVW_REDIS_SINGLE, true, true, REDIS_PORT},
	{"redis-cluster", KVW_REDIS_CLUSTER, false, false, REDIS_PORT},
	{"rediss-cluster", KVW_REDIS_CLUSTER, true, false, REDIS_PORT},
	{"valkey-cluster", KVW_REDIS_CLUSTER, false, false, REDIS_PORT},
	{"valkeys-cluster", KVW_REDIS_CLUSTER, true, false, REDIS_PORT},
	{"redis-sentinel", KVW_REDIS_SENTINEL, false, true, SENTINEL_PORT},
	{"rediss-sentinel", KVW_REDIS_SENTINEL, true, true, SENTINEL_PORT},
	{"valkey-sentinel", KVW_REDIS_SENTINEL, false, true, SENTINEL_PORT},
	{"valkeys-sentinel", KVW_REDIS_SENTINEL, true, true, SENTINEL_PORT},
	{"unix", KVW_REDIS_UNIX, false, false, 0},
};

const struct kvw_redis_scheme *kvw_redis_scheme_of(const char *text)
{
	const char *colon = strstr(text, "://");
	size_t len = colon != NULL ? (size_t)(colon - text) : 0;

	for (size_t i = 0; i < sizeof(schemes) / sizeof(schemes[0]); i++)
		if (strlen(schemes[i].name) == len && memcmp(schemes[i].name, text, len) == 0)
			return &schemes[i];
	return NULL;
}

bool kvw_redis_url_decode(const char *text, size_t len, char *out, size_t room)
{
	size_t n = 0;

	for (size_t i = 0; i < len; i++) {
		int high, low;

		if (n + 1 >= room)
			return false;
		if (text[i] != '%') {
			out[n++] = text[i];
			continue;
		}
		high = i + 2 < len ? kvw_hex_value(text[i + 1]) : -1;
		low = high >= 0 ? kvw_hex_value(text[i + 2]) : -1;
		if (low < 0 || high * 16 + low == 0)
			return false;
		out[n++] = (char)(high * 16 + low);
		i += 2;
	}
	out[n] = '\0';
	return true;
}

static bool parse_login(const char *text, size_t len, struct kvw_redis_url *out)
{
	const char *colon = memchr(text, ':', len);
	size_t user = colon != NULL ? (size_t)(colon - text) : len;

	if (!kvw_redis_url_decode(text, user, out->username, sizeof(out->username)))
		return false;
	return colon == NULL || kvw_redis_url_decode(colon + 1, len - user - 1, out->password,
					sizeof(out->password));
}

bool kvw_redis_number(const char *text, size_t len, uint32_t most, uint32_t *out)
{
	uint32_t value = 0;

	if (len == 0 || len > 7)
		return false;
	for (size_t i = 0; i < len; i++) {
		if (text[i] < '0' || text[i] > '9')
			return false;
		value = value * 10 + (uint32_t)(text[i] - '0');
	}
	*out = value;
	return value <= most;
}

static bool is_host(const char *text, size_t len, bool brackets)
{
	if (len == 0 || len >= KVW_REDIS_URL_TEXT)
		return false;
	for (size_t i = 0; i < len; i++) {
		char c = text[i];
		bool good = (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') ||
			    c == '.' || c == '-' || c == '_' ||
			    (brackets && (c == ':' || c == '%'));

		if (!good)
			return false;
	}
	return true;
}

static bool parse_node(const char *text, size_t len, uint16_t port, struct kvw_redis_node *out)
{
	const char *host = text, *end, *after;
	uint32_t number = port;
	bool brackets = len > 0 && text[0] == '[';

	if (brackets) {
		host++;
		end = memchr(text, ']', len);
		if (end == NULL)
			return false;
		after = end + 1;
	} else {
		end = memchr(text, ':', len);
		if (end == NULL)
			end = text + len;
		after = end;
	}
	if (!is_host(host, (size_t)(end - host), brackets))
		return false;
	if (after != text + len &&
		(*after != ':' ||
			!kvw_redis_number(
				after + 1, (size_t)(text + len - after - 1), 65535, &number) ||
			number == 0))
		return false;
	memcpy(out->host, host, (size_t)(end - host));
	out->host[end - host] = '\0';
	out->port = (uint16_t)number;
	return true;
}

static const char *parse_nodes(const char *text, size_t len, const struct kvw_redis_scheme *scheme,
	struct kvw_redis_url *out)
{
	bool several = scheme->kind == KVW_REDIS_CLUSTER || scheme->kind == KVW_REDIS_SENTINEL;

	for (;;) {
		const char *comma = memchr(text, ',', len);
		size_t one = comma != NULL ? (size_t)(comma - text) : len;

		if (out->node_count == KVW_REDIS_URL_NODES)
			return "at most 16 servers";
		if (!parse_node(text, one, scheme->port, &out->nodes[out->node_count++]))
			return "HOST:PORT, such as 127.0.0.1:6379 or [::1]:6379";
		if (comma == NULL)
			return NULL;
		if (!several)
			return "one server; several stand after redis-cluster:// or "
			       "redis-sentinel://";
		text = comma + 1;
		len -= one + 1;
	}
}

const char *kvw_redis_url_parse(const char *text, struct kvw_redis_url *out)
{
	const struct kvw_redis_scheme *scheme = kvw_redis_scheme_of(text);

	if (scheme == NULL)
		return "redis://, redis-cluster://, redis-sentinel:// (rediss with TLS) or unix://";
	return kvw_redis_url_parse_as(scheme, text, out);
}

/* Parses the database after a '?', in the form that redis-py uses. */
static bool parse_option(
	const struct kvw_redis_scheme *scheme, const char *option, struct kvw_redis_url *out)
{
	return (scheme->databases || scheme->kind == KVW_REDIS_UNIX) &&
	       strncmp(option, "db=", 3) == 0 &&
	       kvw_redis_number(option + 3, strlen(option + 3), 65535, &out->database);
}

const char *kvw_redis_url_parse_as(
	const struct kvw_redis_scheme *scheme, const char *text, struct kvw_redis_url *out)
{
	const char *rest = text + strlen(scheme->name) + 3, *login, *slash, *end;
	size_t len;

	*out = (struct kvw_redis_url){.kind = scheme->kind, .tls = scheme->tls};
	login = strrchr(rest, '@');
	if (login != NULL) {
		if (!parse_login(rest, (size_t)(login - rest), out))
			return "USER:PASSWORD@ with other characters than letters and digits as "
			       "%XX";
		rest = login + 1;
	}
	end = rest + strcspn(rest, "?");
	if (scheme->kind == KVW_REDIS_UNIX) {
		len = (size_t)(end - rest);
		if (rest[0] != '/' || len >= sizeof(out->path))
			return "unix:///PATH, at most 107 bytes of it";
		memcpy(out->path, rest, len);
	} else {
		slash = memchr(rest, '/', (size_t)(end - rest));
		len = (size_t)((slash != NULL ? slash : end) - rest);
		if (slash != NULL && slash + 1 != end &&
			(!scheme->databases ||
				!kvw_redis_number(slash + 1, (size_t)(end - slash - 1), 65535,
					&out->database)))
			return "a database number after the last /, where there are databases";
	}
	if (*end != '\0' && !parse_option(scheme, end + 1, out))
		return "?db=NUMBER and no other option, where there are databases";
	return scheme->kind == KVW_REDIS_UNIX ? NULL : parse_nodes(rest, len, scheme, out);
}

void kvw_redis_url_print(const struct kvw_redis_url *url, char *out, size_t room)
{
	const char *name = "redis";
	size_t used;

	for (size_t i = 0; i < sizeof(schemes) / sizeof(schemes[0]); i++)
		if (schemes[i].kind == url->kind && schemes[i].tls == url->tls) {
			name = schemes[i].name;
			break;
		}
	used = (size_t)snprintf(out, room, "%s://%s", name, url->path);
	for (size_t i = 0; i < url->node_count && used < room; i++)
		used += (size_t)snprintf(out + used, room - used,
			strchr(url->nodes[i].host, ':') != NULL ? "%s[%s]:%u" : "%s%s:%u",
			i > 0 ? "," : "", url->nodes[i].host, url->nodes[i].port);
	if (url->database != 0 && used < room)
		snprintf(out + used, room - used, url->kind == KVW_REDIS_UNIX ? "?db=%u" : "/%u",
			url->database);
}
