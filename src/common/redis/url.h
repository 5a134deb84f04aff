/*
 * url.h - parses the URL of a Redis or Valkey server.
 *
 *	redis://[USER[:PASSWORD]@]HOST[:PORT][/DATABASE]     one server; valkey: the same
 *	redis-cluster://[...@]HOST[:PORT],HOST[:PORT],...    any of its nodes
 *	redis-sentinel://[...@]HOST[:PORT],...[/DATABASE]    Sentinels, not the servers
 *	rediss..., valkeys...                                each with TLS
 *	unix://[...@]/PATH                                   a Unix socket
 *
 * ?db=DATABASE at the end of those with databases, and of unix, has the meaning of /DATABASE and
 * overrides it. User and password are percent-decoded; IPv6 addresses stand in brackets. Pure
 * functions.
 */
#ifndef KVW_REDIS_URL_H
#define KVW_REDIS_URL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KVW_REDIS_URL_NODES 16
#define KVW_REDIS_URL_TEXT  256 /* room for a host, user, password or path, with its NUL */

enum kvw_redis_kind { KVW_REDIS_SINGLE, KVW_REDIS_CLUSTER, KVW_REDIS_SENTINEL, KVW_REDIS_UNIX };

struct kvw_redis_node {
	char host[KVW_REDIS_URL_TEXT]; /* a name or an address, without brackets */
	uint16_t port;
};

struct kvw_redis_url {
	enum kvw_redis_kind kind;
	bool tls;
	uint32_t database;
	size_t node_count; /* 0 for KVW_REDIS_UNIX */
	struct kvw_redis_node nodes[KVW_REDIS_URL_NODES];
	char username[KVW_REDIS_URL_TEXT]; /* "": none */
	char password[KVW_REDIS_URL_TEXT];
	char path[108]; /* KVW_REDIS_UNIX */
};

/* Parses a URL. NULL: success. Otherwise a static text that says what was expected, and *out is
 * undefined. */
const char *kvw_redis_url_parse(const char *text, struct kvw_redis_url *out);

/* Writes the URL without user and password into `room` bytes, for people. */
void kvw_redis_url_print(const struct kvw_redis_url *url, char *out, size_t room);

/* A scheme, which is the text before "://", and which form its URLs have. */
struct kvw_redis_scheme {
	const char *name;
	enum kvw_redis_kind kind;
	bool tls;
	bool databases; /* a database's number may follow the servers */
	uint16_t port;  /* default port */
};

/* Returns the scheme of a URL; NULL: it is none of those for Redis. */
const struct kvw_redis_scheme *kvw_redis_scheme_of(const char *text);

/* As kvw_redis_url_parse, for a text with this scheme, which the caller may have defined: URLs of
 * other kinds of servers have the same form. */
const char *kvw_redis_url_parse_as(
	const struct kvw_redis_scheme *scheme, const char *text, struct kvw_redis_url *out);

/* Decodes a percent-encoded text. Returns false if there is no room, or if an escape is broken or
 * stands for a NUL. */
bool kvw_redis_url_decode(const char *text, size_t len, char *out, size_t room);

/* Parses a whole text as a number of at most seven digits, and at most `most`: a port, a database,
 * or a slot. */
bool kvw_redis_number(const char *text, size_t len, uint32_t most, uint32_t *out);

#endif
