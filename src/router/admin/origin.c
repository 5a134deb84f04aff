/*
 * origin.c - finds requests that come from web pages.
 *
 * An admin address without keys trusts requests from its own host, and a browser on that host sends
 * what any web page asks it to. Browsers keep three rules, and each is used:
 *
 *   - it names the page in `Origin` with each request that can change something. The page must be
 *     this address's own;
 *   - a page of another address can POST forms and plain text unasked. For `Content-Type:
 *     application/json`, for a header of its own choice and for other methods the browser first
 *     asks by OPTIONS, which is refused here (405);
 *   - `Host` is the name that the page was loaded from. One whose owner made its name point to this
 *     machine (DNS rebinding) is of the same origin, but its name is a public one: with a dot, and
 *     neither an IP address nor one that this machine goes by.
 */
#include "admin/origin.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "settings/address.h"

#define NAME_MOST 253 /* longest host name, without a final dot */

/* Returns whether the name ends with ".localhost", which browsers never look up (RFC 6761). */
static bool is_below_localhost(const char *name)
{
	size_t len = strlen(name);

	return len > 10 && strcasecmp(name + len - 10, ".localhost") == 0;
}

static bool is_own_name(const char *name, const char *listen)
{
	struct in6_addr number;
	struct kvw_address bound;
	char machine[NAME_MOST + 2] = "";

	if (strchr(name, '.') == NULL || inet_pton(AF_INET, name, &number) == 1 ||
		inet_pton(AF_INET6, name, &number) == 1 || is_below_localhost(name))
		return true;
	if (kvw_address_split(kvw_slice_of(listen), &bound) == KVW_ADDRESS_OK &&
		kvw_slice_equal_nocase(bound.host, kvw_slice_of(name)))
		return true;
	return gethostname(machine, sizeof(machine) - 1) == 0 && strcasecmp(name, machine) == 0;
}

/* Writes an authority without its port, its brackets and a final dot. False: it is longer than any
 * name. */
static bool host_of(struct kvw_slice authority, char host[NAME_MOST + 1])
{
	const char *from = authority.data;
	size_t len = authority.len;

	if (len > 0 && from[0] == '[') {
		const char *close = memchr(from, ']', len);

		from++;
		len = close == NULL ? len - 1 : (size_t)(close - from);
	} else {
		const char *colon = memchr(from, ':', len);

		len = colon == NULL ? len : (size_t)(colon - from);
		if (len > 0 && from[len - 1] == '.')
			len--;
	}
	if (len > NAME_MOST)
		return false;
	memcpy(host, from, len);
	host[len] = '\0';
	return true;
}

/* Returns whether a page's origin, scheme://AUTHORITY, has the authority to which the request was
 * sent. */
static bool is_own_page(struct kvw_slice origin, struct kvw_slice authority)
{
	const char *at = memmem(origin.data, origin.len, "://", 3);
	struct kvw_slice page;

	if (at == NULL)
		return false; /* "null" */
	page.data = at + 3;
	page.len = (size_t)(origin.data + origin.len - page.data);
	return kvw_slice_equal_nocase(page, authority);
}

const char *kvw_admin_origin_fault(
	const struct kvw_head *head, const char *listen, bool by_name, int *status)
{
	const struct kvw_field *origin = kvw_head_find(head, KVW_SLICE("Origin"));
	char host[NAME_MOST + 1];

	*status = 403;
	if (by_name && head->authority.len > 0 &&
		(!host_of(head->authority, host) || !is_own_name(host, listen)))
		return "the name in `Host` is not one of this machine: ask by its IP address or as "
		       "localhost, or set `admin.keys_file`";
	if (origin != NULL && !is_own_page(origin->value, head->authority))
		return "a web page of another address asks (`Origin`)";
	*status = 415;
	if (head->post_method &&
		!(head->json && kvw_head_field(head, KVW_FIELD_CONTENT_TYPE) != NULL) &&
		kvw_head_find(head, KVW_SLICE("X-Requested-With")) == NULL)
		return "a POST needs `Content-Type: application/json` or, without a body, "
		       "`X-Requested-With` with any value: web pages cannot send these";
	return NULL;
}
