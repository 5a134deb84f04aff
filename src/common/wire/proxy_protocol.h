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

/* The longest header that is read: version 2 may announce 64 KiB,
 * and senders need some 500 bytes of it. */
#define KVW_PROXY_HEADER_MOST 4096

enum kvw_proxy_verdict {
	KVW_PROXY_WHOLE, /* *out is set */
	KVW_PROXY_MORE,  /* what there is may be the beginning of one */
	KVW_PROXY_NONE,  /* these are other bytes */
	KVW_PROXY_BAD,   /* one that breaks the format, or that is too long; *why says how */
};

struct kvw_proxy_header {
	size_t len; /* bytes of it; the client's own follow */
	/* Client is set; false: the sender speaks for itself (LOCAL), or of no IP address. */
	bool known;
	struct sockaddr_storage client; /* AF_INET or AF_INET6, with its port */
};

/* why: a static text, only with KVW_PROXY_BAD. */
enum kvw_proxy_verdict kvw_proxy_header_read(
	const char *data, size_t len, struct kvw_proxy_header *out, const char **why);

/* CRC-32C (Castagnoli) of bytes, as a version 2 header may carry it. */
uint32_t kvw_proxy_crc32c(const char *data, size_t len);

#endif
