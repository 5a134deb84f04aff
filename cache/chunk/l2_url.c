/*
 * l2_url.c - where a shared tier is.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chunk/l2_url.h"

#define REDIS_PORT    6379
#define SENTINEL_PORT 26379

static const struct scheme {
	const char *name;
	enum kvt_l2_kind kind;
	bool tls;
	uint16_t port;
} schemes[] = {
	{"redis", KVT_L2_REDIS, false, REDIS_PORT},
	{"rediss", KVT_L2_REDIS, true, REDIS_PORT},
	{"valkey", KVT_L2_REDIS, false, REDIS_PORT},
	{"valkeys", KVT_L2_REDIS, true, REDIS_PORT},
	{"redis-cluster", KVT_L2_CLUSTER, false, REDIS_PORT},
	{"rediss-cluster", KVT_L2_CLUSTER, true, REDIS_PORT},
	{"valkey-cluster", KVT_L2_CLUSTER, false, REDIS_PORT},
	{"valkeys-cluster", KVT_L2_CLUSTER, true, REDIS_PORT},
	{"redis-sentinel", KVT_L2_SENTINEL, false, SENTINEL_PORT},
	{"rediss-sentinel", KVT_L2_SENTINEL, true, SENTINEL_PORT},
	{"valkey-sentinel", KVT_L2_SENTINEL, false, SENTINEL_PORT},
	{"valkeys-sentinel", KVT_L2_SENTINEL, true, SENTINEL_PORT},
	{"unix", KVT_L2_UNIX, false, 0},
#define KVT_URL_TIER(name, scheme, port)  {scheme, KVT_L2_TIER_##name, false, port},
#define KVT_URL_ALIAS(name, scheme, port) KVT_URL_TIER(name, scheme, port)
#include "tiers/tiers.def"
};

/* What `l2.url` may begin with. */
static const char scheme_list[] =
	"redis://, redis-cluster://, redis-sentinel:// (rediss with TLS), unix://"
#define KVT_URL_TIER(name, scheme, port) " or " scheme "://"
#include "tiers/tiers.def"
	;

static const struct scheme *scheme_of(const char *text, size_t len)
{
	for (size_t i = 0; i < sizeof(schemes) / sizeof(schemes[0]); i++)
		if (strlen(schemes[i].name) == len && memcmp(schemes[i].name, text, len) == 0)
			return &schemes[i];
	return NULL;
}

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c |= 0x20;
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Percent-decodes; false: no room, a broken escape, or a NUL. */
static bool decode(const char *text, size_t len, char *out, size_t room)
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
		high = i + 2 < len ? hex_digit(text[i + 1]) : -1;
		low = high >= 0 ? hex_digit(text[i + 2]) : -1;
		if (low < 0 || high * 16 + low == 0)
			return false;
		out[n++] = (char)(high * 16 + low);
		i += 2;
	}
	out[n] = '\0';
	return true;
}

static bool parse_login(const char *text, size_t len, struct kvt_l2_url *out)
{
	const char *colon = memchr(text, ':', len);
	size_t user = colon != NULL ? (size_t)(colon - text) : len;

	if (!decode(text, user, out->username, sizeof(out->username)))
		return false;
	return colon == NULL ||
	       decode(colon + 1, len - user - 1, out->password, sizeof(out->password));
}

bool kvt_l2_number(const char *text, size_t len, uint32_t most, uint32_t *out)
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
	if (len == 0 || len >= KVT_L2_TEXT)
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

static bool parse_node(const char *text, size_t len, uint16_t port, struct kvt_l2_node *out)
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
			!kvt_l2_number(
				after + 1, (size_t)(text + len - after - 1), 65535, &number) ||
			number == 0))
		return false;
	memcpy(out->host, host, (size_t)(end - host));
	out->host[end - host] = '\0';
	out->port = (uint16_t)number;
	return true;
}

static const char *parse_nodes(
	const char *text, size_t len, const struct scheme *scheme, struct kvt_l2_url *out)
{
	bool several = scheme->kind == KVT_L2_CLUSTER || scheme->kind == KVT_L2_SENTINEL;

	for (;;) {
		const char *comma = memchr(text, ',', len);
		size_t one = comma != NULL ? (size_t)(comma - text) : len;

		if (out->node_count == KVT_L2_NODES)
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

const char *kvt_l2_url_parse(const char *text, struct kvt_l2_url *out)
{
	const char *colon = strstr(text, "://"), *rest, *login, *slash;
	const struct scheme *scheme =
		colon != NULL ? scheme_of(text, (size_t)(colon - text)) : NULL;
	size_t len;

	if (scheme == NULL)
		return scheme_list;
	*out = (struct kvt_l2_url){.kind = scheme->kind, .tls = scheme->tls};
	rest = colon + 3;
	login = strrchr(rest, '@');
	if (login != NULL) {
		if (!parse_login(rest, (size_t)(login - rest), out))
			return "USER:PASSWORD@ with other characters than letters and digits as "
			       "%XX";
		rest = login + 1;
	}
	if (scheme->kind == KVT_L2_UNIX) {
		len = strlen(rest);
		if (rest[0] != '/' || len >= sizeof(out->path))
			return "unix:///PATH, at most 107 bytes of it";
		memcpy(out->path, rest, len + 1);
		return NULL;
	}
	slash = strchr(rest, '/');
	len = slash != NULL ? (size_t)(slash - rest) : strlen(rest);
	if (slash != NULL && slash[1] != '\0' &&
		(scheme->kind == KVT_L2_CLUSTER || scheme->kind > KVT_L2_TIERS ||
			!kvt_l2_number(slash + 1, strlen(slash + 1), 65535, &out->database)))
		return "a database number after the last /, where there are databases";
	return parse_nodes(rest, len, scheme, out);
}

void kvt_l2_url_print(const struct kvt_l2_url *url, char *out, size_t room)
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
		snprintf(out + used, room - used, "/%u", url->database);
}
