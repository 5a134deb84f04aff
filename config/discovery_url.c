/*
 * discovery_url.c - splits an entry of `discovery.dns` into its parts.
 */
#include "config/discovery_url.h"

#include <string.h>
#include <strings.h>

#include "settings/address.h"

#define NAME_MOST 253 /* most bytes of a name by RFC 1035, without the dot at its end */

static bool cut(struct kvw_slice *text, const char *scheme)
{
	size_t len = strlen(scheme);

	if (text->len < len || strncasecmp(text->data, scheme, len) != 0)
		return false;
	text->data += len;
	text->len -= len;
	return true;
}

/* Returns whether the name begins with two labels that begin with '_', as names of SRV records do
 * (RFC 2782). */
static bool is_service(struct kvw_slice name)
{
	size_t label = 0, len = 0;

	if (name.len == 0 || name.len > NAME_MOST)
		return false;
	for (size_t i = 0; i < name.len; i++) {
		char c = name.data[i];

		if (c == '.') {
			if (len == 0)
				return false;
			label++;
			len = 0;
			continue;
		}
		if ((c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') &&
			c != '-' && c != '_')
			return false;
		if (label < 2 && len == 0 && c != '_')
			return false;
		if (++len > 63)
			return false;
	}
	return label >= 2 && (len > 0 || label > 2);
}

/* Splits the URL of a service. The part after the name is checked like a URL's, with a host in
 * place of the name. */
static bool split_service(struct kvw_slice text, struct kvw_discovery_url *out)
{
	const char *slash = text.len == 0 ? NULL : memchr(text.data, '/', text.len);
	size_t name_len = slash == NULL ? text.len : (size_t)(slash - text.data);
	struct kvw_slice prefix = {text.data + name_len, text.len - name_len};
	char stand_in[512];
	struct kvw_url url;

	if (!is_service((struct kvw_slice){text.data, name_len}) || prefix.len > 400)
		return false;
	memcpy(stand_in, "http://h:1", 10);
	memcpy(stand_in + 10, prefix.data, prefix.len);
	if (kvw_url_split((struct kvw_slice){stand_in, 10 + prefix.len}, &url) != KVW_ADDRESS_OK)
		return false;
	out->srv = true;
	out->port = 0;
	out->name = (struct kvw_slice){text.data, name_len};
	out->prefix = (struct kvw_slice){prefix.data, url.prefix.len};
	return true;
}

bool kvw_discovery_url_split(struct kvw_slice text, struct kvw_discovery_url *out)
{
	struct kvw_discovery_url found = {0};
	struct kvw_slice rest = text;
	struct kvw_url url;

	if (text.len == 0)
		return false;
	found.tls = cut(&rest, "srv+https://");
	if (found.tls || cut(&rest, "srv+http://") || cut(&rest, "srv://")) {
		if (!split_service(rest, &found))
			return false;
	} else {
		if (kvw_url_split(text, &url) != KVW_ADDRESS_OK)
			return false;
		found.tls = url.tls;
		found.port = url.address.port;
		found.name = url.address.host;
		found.prefix = url.prefix;
	}
	*out = found;
	return true;
}
