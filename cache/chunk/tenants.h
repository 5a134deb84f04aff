/*
 * tenants.h - how many bytes each tenant has in a tier: a list of bounded length, and one sum for
 * the other tenants.
 */
#ifndef KVT_TENANTS_H
#define KVT_TENANTS_H

#include "kvtier/kvtier.h"

#define KVT_TENANTS_LISTED 128

/* field of kvtierd's answer 507: the chunk was refused by its tenant's limit, not for lack of
 * room */
#define KVT_REFUSED_HEADER "X-Kvtier-Refused"
#define KVT_REFUSED_QUOTA  "quota"

struct kvt_tenant_share {
	struct kvt_tenant tenant; /* all zero: chunks without a salt */
	uint64_t chunks;
	uint64_t bytes; /* occupied bytes, as the tenant's limit counts them */
	/* chunks that the limit refused since the tenant last had no chunk here */
	uint64_t refused;
};

struct kvt_tenant_list {
	struct kvt_tenant_share at[KVT_TENANTS_LISTED]; /* most bytes first */
	size_t count;
	/* sum of all unlisted tenants; its tenant field has no meaning */
	struct kvt_tenant_share others;
	uint64_t tenants;               /* number of tenants, listed and others */
};

#endif
