/*
 * origin.h - requests that a web page may have made its browser send. Private to src/router/admin.
 */
#ifndef KVW_ADMIN_ORIGIN_H
#define KVW_ADMIN_ORIGIN_H

#include <stdbool.h>

#include "http/head.h"

/*
 * Fault of a request that no key vouches for, as a text for its client, and *status; NULL: no
 * fault. listen: `admin.listen`. by_name: its Host counts, too: false where a page cannot take the
 * address for its own (TLS) or others may read the path anyway.
 */
const char *kvw_admin_origin_fault(
	const struct kvw_head *head, const char *listen, bool by_name, int *status) KVW_MUST_CHECK;

#endif
