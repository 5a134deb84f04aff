/*
 * origin.h - refuses requests that a web page may have made its browser send. Private to
 * src/router/admin.
 */
#ifndef KVW_ADMIN_ORIGIN_H
#define KVW_ADMIN_ORIGIN_H

#include <stdbool.h>

#include "http/head.h"

/*
 * Checks a request that came without a key. Returns a text for its client and *status if it must be
 * refused; NULL: it may pass. listen: `admin.listen`. by_name: the request's Host is checked, too;
 * false where a page cannot pretend to be from this address (TLS), or the path may be read by all.
 */
const char *kvw_admin_origin_fault(
	const struct kvw_head *head, const char *listen, bool by_name, int *status) KVW_MUST_CHECK;

#endif
