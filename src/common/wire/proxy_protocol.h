/*
 * proxy_protocol.h - the header that a load balancer sends before a client's own bytes: PROXY
 * protocol, versions 1 and 2.
 *
 * Source: https://www.haproxy.org/download/3.0/doc/proxy-protocol.txt. Pure functions: any thread,
 * no allocation.
 */
#ifndef KVW_PROXY_PROTOCOL_H
#define KVW_PROXY_PROTOCOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

/* The longest header that is accepted. A header of version 2 may announce 64 KiB, but senders use
 * some 500 bytes. */
#define KVW_PROXY_HEADER_MOST 4096

enum kvw_proxy_verdict {
	KVW_PROXY_WHOLE, /* *out is set */
	KVW_PROXY_MORE,  /* the bytes may be the beginning of a header, so more are needed */
	KVW_PROXY_NONE,  /* the bytes are no header */
	KVW_PROXY_BAD,   /* the header is malformed or too long; *why has the reason */
};

struct kvw_proxy_header {
	size_t len; /* length of the header; the client's own bytes follow it */
	/* True: `client` is set. False: the sender has opened the connection for itself (LOCAL), or
	 * the client has no IP address. */
	bool known;
	/* the client's address, AF_INET or AF_INET6, with its port */
	struct sockaddr_storage client;
};

/* why is a static text, set only with KVW_PROXY_BAD. */
enum kvw_proxy_verdict kvw_proxy_header_read(
	const char *data, size_t len, struct kvw_proxy_header *out, const char **why);

/* Returns the CRC-32C (Castagnoli) of bytes, which a header of version 2 may have. */
uint32_t kvw_proxy_crc32c(const char *data, size_t len);

#endif
