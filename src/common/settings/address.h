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
	/* Name, perhaps with a final dot, IPv4 or IPv6 without its brackets. */
	struct kvw_slice host;
	bool v6;               /* host is an IPv6 address */
	uint16_t port;         /* 0 is allowed: the kernel chooses (listening only) */
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
	KVW_ADDRESS_BAD_PATH, /* characters, or a segment '.', '..' or empty */
	KVW_ADDRESS_API_PATH, /* ends in /v1, which the requests' paths have */
};

/* KVW_ADDRESS_OK fills *out; else *out is untouched. */
enum kvw_address_fault kvw_address_split(
	struct kvw_slice text, struct kvw_address *out) KVW_MUST_CHECK;

/* http[s]://host[:port][/prefix]. */
struct kvw_url {
	bool tls;                   /* https */
	struct kvw_address address; /* port 80 or 443 if the text has none */
	struct kvw_slice authority; /* host and port as written, as in the Host field */
	struct kvw_slice prefix;    /* "" or "/prefix", without a final slash */
};

/* As kvw_address_split, for a URL. */
enum kvw_address_fault kvw_url_split(struct kvw_slice text, struct kvw_url *out) KVW_MUST_CHECK;

#endif
