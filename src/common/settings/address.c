/*
 * address.c - splits host:port and http[s]://host:port/prefix into their parts.
 *
 * Strict on purpose: accepted texts go unchanged into Host fields, socket calls and metric labels.
 * A host of digits and dots must be a whole IPv4 address (inet_aton's "127.1" and octal forms are
 * refused). A name must be as in RFC 1123, but with '_' allowed, since container names use it.
 */
#include "settings/address.h"

#include <arpa/inet.h>

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static bool is_name_char(char c)
{
	return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' ||
	       c == '_';
}

/* Returns whether inet_pton accepts exactly these bytes. */
static bool is_ip(int family, struct kvw_slice host)
{
	unsigned char binary[sizeof(struct in6_addr)];
	char text[INET6_ADDRSTRLEN];

	if (host.len == 0 || host.len >= sizeof(text) || memchr(host.data, '\0', host.len) != NULL)
		return false;
	memcpy(text, host.data, host.len);
	text[host.len] = '\0';
	return inet_pton(family, text, binary) == 1;
}

/* Returns whether the host is a name: labels of 1 to 63 characters between dots, of which the last
 * one is not all digits. A dot at the end is allowed (RFC 1034: not relative to a search
 * domain). */
static bool is_name(struct kvw_slice host)
{
	size_t label = 0;
	bool digits = true;

	if (host.len > 1 && host.data[host.len - 1] == '.')
		host.len--;
	if (host.len == 0 || host.len >= KVW_ADDRESS_MAX_HOST)
		return false;
	for (size_t i = 0; i < host.len; i++) {
		char c = host.data[i];
		bool last = i + 1 == host.len || host.data[i + 1] == '.';

		if (c == '.') {
			if (label == 0 || last)
				return false;
			label = 0;
			digits = true;
			continue;
		}
		if (!is_name_char(c) || (c == '-' && (label == 0 || last)) || ++label > 63)
			return false;
		digits = digits && is_digit(c);
	}
	return !digits;
}

static bool parse_port(struct kvw_slice text, uint16_t *port)
{
	uint32_t value = 0;

	if (text.len == 0 || text.len > 5)
		return false;
	for (size_t i = 0; i < text.len; i++) {
		if (!is_digit(text.data[i]))
			return false;
		value = value * 10 + (uint32_t)(text.data[i] - '0');
	}
	if (value > UINT16_MAX)
		return false;
	*port = (uint16_t)value;
	return true;
}

/* Finds the length of the host with its brackets. *port_at is the position after the ':', or
 * text.len if there is none. */
static enum kvw_address_fault find_host(struct kvw_slice text, size_t *host_len, size_t *port_at)
{
	const char *end;

	if (text.len > 0 && text.data[0] == '[') {
		end = memchr(text.data, ']', text.len);
		if (end == NULL)
			return KVW_ADDRESS_BAD_HOST;
		*host_len = (size_t)(end - text.data) + 1;
		if (*host_len < text.len && text.data[*host_len] != ':')
			return KVW_ADDRESS_BAD_HOST;
	} else {
		end = text.len == 0 ? NULL : memchr(text.data, ':', text.len);
		*host_len = end == NULL ? text.len : (size_t)(end - text.data);
		if (end != NULL && memchr(end + 1, ':', text.len - *host_len - 1) != NULL)
			return KVW_ADDRESS_BARE_V6;
	}
	*port_at = *host_len == text.len ? text.len : *host_len + 1;
	return KVW_ADDRESS_OK;
}

/* Splits host and port. default_port 0: the text must have a port. */
static enum kvw_address_fault split_authority(
	struct kvw_slice text, uint16_t default_port, struct kvw_address *out)
{
	struct kvw_address address = {.port = default_port};
	size_t host_len = 0, port_at = 0;
	enum kvw_address_fault fault = find_host(text, &host_len, &port_at);

	if (fault != KVW_ADDRESS_OK)
		return fault;
	if (host_len == text.len && default_port == 0)
		return KVW_ADDRESS_NO_PORT;
	if (host_len == 0)
		return KVW_ADDRESS_NO_HOST;
	address.v6 = text.data[0] == '[';
	address.host = address.v6 ? (struct kvw_slice){text.data + 1, host_len - 2}
				  : (struct kvw_slice){text.data, host_len};
	if (address.v6 ? !is_ip(AF_INET6, address.host)
		       : !is_ip(AF_INET, address.host) && !is_name(address.host))
		return KVW_ADDRESS_BAD_HOST;
	if (host_len < text.len &&
		!parse_port(
			(struct kvw_slice){text.data + port_at, text.len - port_at}, &address.port))
		return KVW_ADDRESS_BAD_PORT;
	*out = address;
	return KVW_ADDRESS_OK;
}

enum kvw_address_fault kvw_address_split(struct kvw_slice text, struct kvw_address *out)
{
	return split_authority(text, 0, out);
}

/* Checks that the prefix has only segments of RFC 3986 pchar without percent signs, none of them
 * empty, "." or "..". */
static enum kvw_address_fault check_prefix(struct kvw_slice prefix)
{
	size_t begin = 1; /* begin of the segment, after its '/' */

	for (size_t i = 1; i <= prefix.len && prefix.len > 0; i++) {
		struct kvw_slice segment = {prefix.data + begin, i - begin};

		if (i < prefix.len && prefix.data[i] != '/') {
			if (!is_name_char(prefix.data[i]) &&
				(prefix.data[i] == '\0' ||
					strchr(".~!$&'()*+,;=:", prefix.data[i]) == NULL))
				return KVW_ADDRESS_BAD_PATH;
			continue;
		}
		if (segment.len == 0 || kvw_slice_equal(segment, KVW_SLICE(".")) ||
			kvw_slice_equal(segment, KVW_SLICE("..")))
			return KVW_ADDRESS_BAD_PATH;
		if (i == prefix.len && kvw_slice_equal(segment, KVW_SLICE("v1")))
			return KVW_ADDRESS_API_PATH;
		begin = i + 1;
	}
	return KVW_ADDRESS_OK;
}

/* Removes "http://" or "https://" from the text. */
static enum kvw_address_fault cut_scheme(struct kvw_slice *text, bool *tls)
{
	const char *colon = text->len == 0 ? NULL : memmem(text->data, text->len, "://", 3);
	struct kvw_slice scheme;

	if (colon == NULL)
		return KVW_ADDRESS_NO_SCHEME;
	scheme = (struct kvw_slice){text->data, (size_t)(colon - text->data)};
	*tls = kvw_slice_equal_nocase(scheme, KVW_SLICE("https"));
	if (!*tls && !kvw_slice_equal_nocase(scheme, KVW_SLICE("http")))
		return KVW_ADDRESS_BAD_SCHEME;
	text->data += scheme.len + 3;
	text->len -= scheme.len + 3;
	return KVW_ADDRESS_OK;
}

enum kvw_address_fault kvw_url_split(struct kvw_slice text, struct kvw_url *out)
{
	struct kvw_slice rest = text;
	struct kvw_url url = {0};
	enum kvw_address_fault fault = cut_scheme(&rest, &url.tls);
	const char *slash;

	if (fault != KVW_ADDRESS_OK)
		return text.len > 0 && memchr(text.data, '@', text.len) != NULL ? KVW_ADDRESS_USER
										: fault;
	if (memchr(rest.data, '@', rest.len) != NULL)
		return KVW_ADDRESS_USER;
	if (memchr(rest.data, '?', rest.len) != NULL || memchr(rest.data, '#', rest.len) != NULL)
		return KVW_ADDRESS_QUERY;
	slash = memchr(rest.data, '/', rest.len);
	url.authority = (struct kvw_slice){
		rest.data, slash == NULL ? rest.len : (size_t)(slash - rest.data)};
	url.prefix =
		(struct kvw_slice){rest.data + url.authority.len, rest.len - url.authority.len};
	if (url.prefix.len > 0 && url.prefix.data[url.prefix.len - 1] == '/')
		url.prefix.len--;
	fault = split_authority(url.authority, url.tls ? 443 : 80, &url.address);
	if (fault == KVW_ADDRESS_OK && url.address.port == 0)
		fault = KVW_ADDRESS_BAD_PORT;
	if (fault == KVW_ADDRESS_OK)
		fault = check_prefix(url.prefix);
	if (fault == KVW_ADDRESS_OK)
		*out = url;
	return fault;
}
