/*
 * address.h - parses host:port and http[s]://host:port/prefix.
 *
 * The loader checks and stores addresses as text; code that listens or connects parses them again
 * with the same functions, which resolve no name. All slices borrow from the given text.
 */
#ifndef KVW_ADDRESS_H
#define KVW_ADDRESS_H

#include <stdbool.h>
#include <stdint.h>

#include "kvway/err.h"
#include "kvway/slice.h"

#define KVW_ADDRESS_MAX_HOST 254 /* RFC 1035, with a final dot */

struct kvw_address {
	/* A name, perhaps with a dot at its end, or an IPv4 address, or an IPv6 address without its
	 * brackets. */
	struct kvw_slice host;
	bool v6;               /* host is an IPv6 address */
	uint16_t port;         /* 0 is allowed for listening: then the kernel chooses the port */
};

/* The fault of a text. */
enum kvw_address_fault {
	KVW_ADDRESS_OK,
	KVW_ADDRESS_NO_PORT,
	KVW_ADDRESS_NO_HOST,
	KVW_ADDRESS_BAD_HOST,
	KVW_ADDRESS_BAD_PORT,
	KVW_ADDRESS_BARE_V6, /* IPv6 without brackets */
	KVW_ADDRESS_NO_SCHEME,
	KVW_ADDRESS_BAD_SCHEME,
	KVW_ADDRESS_USER,     /* user:password@ */
	KVW_ADDRESS_QUERY,    /* '?' or '#' */
	/* the path has other characters, or a segment that is '.', '..' or empty */
	KVW_ADDRESS_BAD_PATH,
	KVW_ADDRESS_API_PATH, /* the path ends in /v1, which the paths of requests begin with */
};

/* With KVW_ADDRESS_OK, *out has the parts; otherwise *out is not changed. */
enum kvw_address_fault kvw_address_split(
	struct kvw_slice text, struct kvw_address *out) KVW_MUST_CHECK;

/* http[s]://host[:port][/prefix]. */
struct kvw_url {
	bool tls;                   /* https */
	struct kvw_address address; /* the port is 80 or 443 if the text has none */
	/* host and port as in the text, which is the form for the Host field */
	struct kvw_slice authority;
	struct kvw_slice prefix;    /* "" or "/prefix", without a slash at its end */
};

/* As kvw_address_split, for a URL. */
enum kvw_address_fault kvw_url_split(struct kvw_slice text, struct kvw_url *out) KVW_MUST_CHECK;

#endif
