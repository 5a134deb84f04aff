/*
 * proxy_protocol.c - parses the headers of both versions.
 *
 * Strict, as the specification requires: one space between the words of version 1, no number with a
 * leading zero, no address that inet_pton refuses; in version 2 every additional field within the
 * announced length, and a right checksum, if there is one. An ambiguous header is refused.
 */
#include "wire/proxy_protocol.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>

#define V1_MOST   107 /* longest line, with its end */
#define V2_FIXED  16
#define TLV_CRC32C 0x03

enum command { LOCAL, PROXY };

static const char v1_begin[] = "PROXY ";
static const char v2_begin[] = "\r\n\r\n\0\r\nQUIT\n";

static enum kvw_proxy_verdict bad(const char **why, const char *text)
{
	*why = text;
	return KVW_PROXY_BAD;
}

/* --- version 1 --- */

/* Splits a line into words, each of which ends at a space or at `end`. */
struct words {
	const char *at, *end;
};

static bool next_word(struct words *words, char *to, size_t size)
{
	const char *stop = words->at;
	size_t len;

	while (stop < words->end && *stop != ' ')
		stop++;
	len = (size_t)(stop - words->at);
	if (len == 0 || len >= size)
		return false;
	memcpy(to, words->at, len);
	to[len] = '\0';
	words->at = stop < words->end ? stop + 1 : stop;
	/* a space at the end of the line is not allowed */
	return stop == words->end || stop + 1 < words->end;
}

static bool read_port(struct words *words, uint16_t *port)
{
	char text[6];
	unsigned value = 0;

	if (!next_word(words, text, sizeof(text)) || (text[0] == '0' && text[1] != '\0'))
		return false;
	for (const char *at = text; *at != '\0'; at++) {
		if (*at < '0' || *at > '9')
			return false;
		value = value * 10 + (unsigned)(*at - '0');
	}
	*port = (uint16_t)value;
	return value <= UINT16_MAX;
}

static void set_v4(struct sockaddr_storage *to, const void *address, uint16_t port)
{
	struct sockaddr_in *v4 = (struct sockaddr_in *)to;

	*to = (struct sockaddr_storage){.ss_family = AF_INET};
	memcpy(&v4->sin_addr, address, sizeof(v4->sin_addr));
	v4->sin_port = htons(port);
}

static void set_v6(struct sockaddr_storage *to, const void *address, uint16_t port)
{
	struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)to;

	*to = (struct sockaddr_storage){.ss_family = AF_INET6};
	memcpy(&v6->sin6_addr, address, sizeof(v6->sin6_addr));
	v6->sin6_port = htons(port);
}

/* Parses a header of version 1. `line` is the text between "PROXY " and the line's end. */
static bool read_line(struct words line, struct kvw_proxy_header *out)
{
	char family[8], from[INET6_ADDRSTRLEN], to[INET6_ADDRSTRLEN];
	struct in6_addr source, target; /* room for both families */
	uint16_t port, port_to;
	int af;

	if (!next_word(&line, family, sizeof(family)))
		return false;
	if (strcmp(family, "UNKNOWN") == 0) {
		out->known = false; /* by the specification, the rest of such a line is ignored */
		return true;
	}
	if (strcmp(family, "TCP4") == 0)
		af = AF_INET;
	else if (strcmp(family, "TCP6") == 0)
		af = AF_INET6;
	else
		return false;
	if (!next_word(&line, from, sizeof(from)) || !next_word(&line, to, sizeof(to)) ||
		!read_port(&line, &port) || !read_port(&line, &port_to) || line.at != line.end ||
		inet_pton(af, from, &source) != 1 || inet_pton(af, to, &target) != 1)
		return false;
	out->known = true;
	(af == AF_INET ? set_v4 : set_v6)(&out->client, &source, port);
	return true;
}

static enum kvw_proxy_verdict read_v1(
	const char *data, size_t len, struct kvw_proxy_header *out, const char **why)
{
	struct kvw_proxy_header read = {0};
	size_t most = len < V1_MOST ? len : V1_MOST;
	const char *end = memchr(data, '\n', most);

	if (end == NULL)
		return len < V1_MOST ? KVW_PROXY_MORE
				     : bad(why, "a header of version 1 is longer than 107 bytes");
	if (end[-1] != '\r' || memchr(data, '\0', (size_t)(end - data)) != NULL ||
		!read_line((struct words){data + sizeof(v1_begin) - 1, end - 1}, &read))
		return bad(why, "a header of version 1 cannot be read");
	read.len = (size_t)(end + 1 - data);
	*out = read;
	return KVW_PROXY_WHOLE;
}

/* --- version 2 --- */

uint32_t kvw_proxy_crc32c(const char *data, size_t len)
{
	uint32_t crc = UINT32_MAX;

	for (size_t i = 0; i < len; i++) {
		crc ^= (uint8_t)data[i];
		for (int bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (UINT32_C(0x82F63B78) & -(crc & 1));
	}
	return ~crc;
}

/* Checks the additional fields, from `at` on. The checksum, if there is one, covers the whole
 * header with zeroes in place of the checksum itself. */
static bool good_fields(const char *data, size_t at, size_t len)
{
	bool summed = false;

	while (at < len) {
		size_t size;

		if (len - at < 3)
			return false;
		size = (size_t)(uint8_t)data[at + 1] << 8 | (uint8_t)data[at + 2];
		if (size > len - at - 3)
			return false;
		if ((uint8_t)data[at] == TLV_CRC32C) {
			char copy[KVW_PROXY_HEADER_MOST];
			uint32_t sum;

			if (size != sizeof(sum) || summed)
				return false;
			memcpy(&sum, data + at + 3, sizeof(sum));
			memcpy(copy, data, len);
			memset(copy + at + 3, 0, sizeof(sum));
			if (kvw_proxy_crc32c(copy, len) != ntohl(sum))
				return false;
			summed = true;
		}
		at += 3 + size;
	}
	return true;
}

static uint16_t port_at(const char *data)
{
	return (uint16_t)((uint16_t)(uint8_t)data[0] << 8 | (uint8_t)data[1]);
}

/* Returns the length of the two addresses of a family; 0: there is no such family. */
static size_t addresses_of(uint8_t family)
{
	static const size_t sizes[] = {0, 12, 36, 216}; /* UNSPEC, IPv4, IPv6, UNIX */

	return family < 4 ? sizes[family] : 0;
}

static enum kvw_proxy_verdict read_v2(
	const char *data, size_t len, struct kvw_proxy_header *out, const char **why)
{
	struct kvw_proxy_header read = {0};
	uint8_t command, family, transport;
	size_t addresses;

	if (len < V2_FIXED)
		return KVW_PROXY_MORE;
	command = (uint8_t)data[12] & 15;
	family = (uint8_t)data[13] >> 4;
	transport = (uint8_t)data[13] & 15;
	if ((uint8_t)data[12] >> 4 != 2 || command > PROXY)
		return bad(why, "a header of version 2 has another version or command");
	if (command == LOCAL) /* by the specification, the addresses are ignored */
		family = transport = 0;
	if (family > 3 || transport > 2 || (family == 0) != (transport == 0))
		return bad(why, "a header of version 2 has an unknown family or transport");
	read.len = V2_FIXED + ((size_t)(uint8_t)data[14] << 8 | (uint8_t)data[15]);
	if (read.len > KVW_PROXY_HEADER_MOST)
		return bad(why, "a header of version 2 is longer than 4096 bytes");
	if (len < read.len)
		return KVW_PROXY_MORE;
	addresses = addresses_of(family);
	if (read.len < V2_FIXED + addresses)
		return bad(why, "a header of version 2 has no room for its addresses");
	if (!good_fields(data, family == 0 ? read.len : V2_FIXED + addresses, read.len))
		return bad(why, "a header of version 2 has a field that cannot be read or a wrong "
				"checksum");
	read.known = transport == 1 && (family == 1 || family == 2);
	if (read.known && family == 1)
		set_v4(&read.client, data + 16, port_at(data + 24));
	else if (read.known)
		set_v6(&read.client, data + 16, port_at(data + 48));
	*out = read;
	return KVW_PROXY_WHOLE;
}

/* --- both --- */

static bool bytes_begin(const char *data, size_t len, const char *mark, size_t mark_len)
{
	return memcmp(data, mark, len < mark_len ? len : mark_len) == 0;
}

enum kvw_proxy_verdict kvw_proxy_header_read(
	const char *data, size_t len, struct kvw_proxy_header *out, const char **why)
{
	size_t v1 = sizeof(v1_begin) - 1, v2 = sizeof(v2_begin) - 1;

	if (len == 0)
		return KVW_PROXY_MORE;
	if (bytes_begin(data, len, v1_begin, v1))
		return len < v1 ? KVW_PROXY_MORE : read_v1(data, len, out, why);
	if (bytes_begin(data, len, v2_begin, v2))
		return len < v2 ? KVW_PROXY_MORE : read_v2(data, len, out, why);
	return KVW_PROXY_NONE;
}
