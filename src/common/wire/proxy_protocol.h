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

/* The longest accepted header: version 2 may announce 64 KiB, but senders use some 500 bytes. */
#define KVW_PROXY_HEADER_MOST 4096

enum kvw_proxy_verdict {
	KVW_PROXY_WHOLE, /* *out is set */
	KVW_PROXY_MORE,  /* the bytes may be the beginning of a header */
	KVW_PROXY_NONE,  /* the bytes are no header */
	KVW_PROXY_BAD,   /* a malformed or too long header; *why has the reason */
};

struct kvw_proxy_header {
	size_t len; /* bytes of the header; the client's own follow */
	/* True: `client` is set. False: the sender's own connection (LOCAL), or no IP address. */
	bool known;
	struct sockaddr_storage client; /* AF_INET or AF_INET6, with its port */
};

/* why: a static text, only with KVW_PROXY_BAD. */
enum kvw_proxy_verdict kvw_proxy_header_read(
	const char *data, size_t len, struct kvw_proxy_header *out, const char **why);

/* CRC-32C (Castagnoli) of bytes, as a version 2 header may carry it. */
uint32_t kvw_proxy_crc32c(const char *data, size_t len);

#endif
