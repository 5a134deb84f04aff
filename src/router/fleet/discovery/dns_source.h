/*
 * dns_source.h - lets tests start the source `dns` with DNS options of their own.
 */
#ifndef KVW_DNS_SOURCE_H
#define KVW_DNS_SOURCE_H

#include "fleet/discovery/source.h"
#include "fleet/dns.h"

/* Like kvw_source_dns.start. options: borrowed during the call; NULL: the machine's settings. */
enum kvw_err kvw_dns_source_start(struct event_base *base, const struct kvw_config *config,
	const struct kvw_dns_options *options, kvw_source_found_fn *found, void *arg,
	struct kvw_source **out) KVW_MUST_CHECK;

#endif
