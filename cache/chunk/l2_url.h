/*
 * l2_url.h - where a shared tier is: the text of `l2.url`, taken apart.
 *
 *	redis://[USER[:PASSWORD]@]HOST[:PORT][/DATABASE]     one server; valkey: the same
 *	redis-cluster://[...@]HOST[:PORT],HOST[:PORT],...    any of its nodes
 *	redis-sentinel://[...@]HOST[:PORT],...[/DATABASE]    Sentinels, not the servers
 *	rediss..., valkeys...                                each with TLS
 *	unix://[...@]/PATH                                   a Unix socket
 *	sagemaker-hyperpod://HOST[:PORT]                     tiered storage; kvtierd: the same
 *	SCHEME://HOST[:PORT]                                 any other tier of tiers/tiers.def
 *
 * User and password are percent-decoded; IPv6 addresses stand in brackets. Pure functions.
 */
#ifndef KVT_L2_URL_H
#define KVT_L2_URL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KVT_L2_NODES 16
#define KVT_L2_TEXT  256 /* room for a host, a user, a password or a path, with its NUL */

/* Whose URL it is: Redis' in its four forms, or that of another shared tier of tiers.def. */
enum kvt_l2_kind {
	KVT_L2_REDIS,
	KVT_L2_CLUSTER,
	KVT_L2_SENTINEL,
	KVT_L2_UNIX,
	KVT_L2_TIERS, /* not of a URL; what is above is a tier's */
#define KVT_URL_TIER(name, scheme, port) KVT_L2_TIER_##name,
#include "tiers/tiers.def"
};

struct kvt_l2_node {
	char host[KVT_L2_TEXT]; /* a name or an address, no brackets */
	uint16_t port;
};

struct kvt_l2_url {
	enum kvt_l2_kind kind;
	bool tls;
	uint32_t database;
	size_t node_count; /* 0 for KVT_L2_UNIX */
	struct kvt_l2_node nodes[KVT_L2_NODES];
	char username[KVT_L2_TEXT]; /* "": none */
	char password[KVT_L2_TEXT];
	char path[108]; /* KVT_L2_UNIX */
};

/* NULL: taken apart. Else what was expected, static text, and *out is undefined. */
const char *kvt_l2_url_parse(const char *text, struct kvt_l2_url *out);

/* The text without user and password, for people; into room bytes. */
void kvt_l2_url_print(const struct kvt_l2_url *url, char *out, size_t room);

/* A number of at most seven digits and nothing else, up to `most`: a port, a database, a slot. */
bool kvt_l2_number(const char *text, size_t len, uint32_t most, uint32_t *out);

#endif
