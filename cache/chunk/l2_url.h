/*
 * l2_url.h - the address of a shared tier: the parsed text of `l2.url`.
 *
 * 	redis://..., unix://..., ...           Redis or Valkey: redis/url.h
 * 	sagemaker-hyperpod://HOST[:PORT]       tiered storage; kvtierd: the same
 * 	SCHEME://HOST[:PORT]                   any other tier of tiers/tiers.def
 *
 * Pure functions.
 */
#ifndef KVT_L2_URL_H
#define KVT_L2_URL_H

#include "redis/url.h"

/* The tier that the URL names: Redis, or another shared tier of tiers.def. */
enum kvt_l2_kind {
	KVT_L2_REDIS,
#define KVT_URL_TIER(name, scheme, port) KVT_L2_TIER_##name,
#include "tiers/tiers.def"
};

struct kvt_l2_url {
	enum kvt_l2_kind kind;
	struct kvw_redis_url at; /* a single node, unless the kind is KVT_L2_REDIS */
};

/* Parses the text. NULL: success. Otherwise returns static text that names the expected form, and
 * *out is undefined. */
const char *kvt_l2_url_parse(const char *text, struct kvt_l2_url *out);

/* Writes the URL without user and password, for logs, into `room` bytes. */
void kvt_l2_url_print(const struct kvt_l2_url *url, char *out, size_t room);

#endif
