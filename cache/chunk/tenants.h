/*
 * tenants.h - how much each tenant holds in a tier: a list of bounded length, the rest in one sum.
 */
#ifndef KVT_TENANTS_H
#define KVT_TENANTS_H

#include "kvtier/kvtier.h"

#define KVT_TENANTS_LISTED 128

/* Field of a 507 by kvtierd: not room, but the limit of one tenant refused this chunk. */
#define KVT_REFUSED_HEADER "X-Kvtier-Refused"
#define KVT_REFUSED_QUOTA  "quota"

struct kvt_tenant_share {
	struct kvt_tenant tenant; /* all zero: chunks without a salt */
	uint64_t chunks;
	uint64_t bytes; /* occupied, as the tenant's limit counts them */
	uint64_t refused; /* chunks that the limit kept out, since the tenant has had any here */
};

struct kvt_tenant_list {
	struct kvt_tenant_share at[KVT_TENANTS_LISTED]; /* most bytes first */
	size_t count;
	struct kvt_tenant_share others; /* all that are not listed; its tenant says nothing */
	uint64_t tenants;               /* listed and others */
};

#endif
