/*
 * dns_srv.h - reads the targets of an answer with SRV records (RFC 2782).
 *
 * c-ares' own parser is not used, because its result has no TTL.
 */
#ifndef KVW_DNS_SRV_H
#define KVW_DNS_SRV_H

#include "fleet/dns.h"

/* Reads a whole message, which may have any bytes. On KVW_OK the caller frees *targets: at most
 * KVW_DNS_MOST, ordered by host and port, none twice; *ttl_s is the least TTL of the records.
 * KVW_ENOTFOUND: no target (no record, or "." for a service that does not exist). KVW_EPROTO:
 * malformed. KVW_ENOMEM. */
enum kvw_err kvw_dns_srv_read(const unsigned char *message, size_t len,
	struct kvw_dns_target **targets, size_t *count, uint32_t *ttl_s) KVW_MUST_CHECK;

#endif
