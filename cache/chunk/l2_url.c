/*
 * l2_url.c - parses the address of a shared tier.
 */
#include <stdio.h>
#include <string.h>

#include "chunk/l2_url.h"

/* Schemes of tiers.def. kvt_l2_url_print uses the first scheme of a kind. */
static const struct scheme {
	struct kvw_redis_scheme scheme;
	enum kvt_l2_kind kind;
} schemes[] = {
#define KVT_URL_TIER(name, scheme, port) \
	{{scheme, KVW_REDIS_SINGLE, false, false, port}, KVT_L2_TIER_##name},
#define KVT_URL_ALIAS(name, scheme, port) KVT_URL_TIER(name, scheme, port)
#include "tiers/tiers.def"
};

#define SCHEMES (sizeof(schemes) / sizeof(schemes[0]))

/* Beginnings that `l2.url` may have. */
static const char scheme_list[] =
	"redis://, redis-cluster://, redis-sentinel:// (rediss with TLS), unix://"
#define KVT_URL_TIER(name, scheme, port) " or " scheme "://"
#include "tiers/tiers.def"
	;

const char *kvt_l2_url_parse(const char *text, struct kvt_l2_url *out)
{
	const struct kvw_redis_scheme *scheme = NULL;

	out->kind = KVT_L2_REDIS;
	for (size_t i = 0; i < SCHEMES && scheme == NULL; i++) {
		size_t len = strlen(schemes[i].scheme.name);

		if (strncmp(text, schemes[i].scheme.name, len) != 0 ||
			strncmp(text + len, "://", 3) != 0)
			continue;
		scheme = &schemes[i].scheme;
		out->kind = schemes[i].kind;
	}
	if (scheme == NULL)
		scheme = kvw_redis_scheme_of(text);
	if (scheme == NULL)
		return scheme_list;
	return kvw_redis_url_parse_as(scheme, text, &out->at);
}

void kvt_l2_url_print(const struct kvt_l2_url *url, char *out, size_t room)
{
	const struct kvw_redis_node *node = &url->at.nodes[0];
	size_t i = 0;

	if (url->kind == KVT_L2_REDIS) {
		kvw_redis_url_print(&url->at, out, room);
		return;
	}
	while (schemes[i].kind != url->kind)
		i++;
	(void)snprintf(out, room, strchr(node->host, ':') != NULL ? "%s://[%s]:%u" : "%s://%s:%u",
		schemes[i].scheme.name, node->host, node->port);
}
