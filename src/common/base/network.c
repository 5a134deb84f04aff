/*
 * network.c - blocks of IP addresses, written as `10.0.0.0/8`, `2001:db8::/32` or one address.
 */
#include "base/network.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>

static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff}; /* ::ffff:0:0/96 */

/* Parses the number after the slash. */
static bool parse_bits(const char *text, unsigned most, unsigned *bits)
{
	unsigned value = 0;

	if (text[0] == '\0' || strlen(text) > 3 || (text[0] == '0' && text[1] != '\0'))
		return false;
	for (; *text != '\0'; text++) {
		if (*text < '0' || *text > '9')
			return false;
		value = value * 10 + (unsigned)(*text - '0');
	}
	*bits = value;
	return value <= most;
}

static bool bit(const uint8_t *bytes, unsigned i)
{
	return (bytes[i / 8] >> (7 - i % 8) & 1) != 0;
}

bool kvw_network_parse(const char *text, struct kvw_network *out)
{
	const char *slash = strchr(text, '/');
	size_t len = slash == NULL ? strlen(text) : (size_t)(slash - text);
	bool v6 = memchr(text, ':', len) != NULL;
	unsigned most = v6 ? 128 : 32, bits = most;
	struct kvw_network read = {0};
	char address[INET6_ADDRSTRLEN];

	if (len >= sizeof(address) || (slash != NULL && !parse_bits(slash + 1, most, &bits)))
		return false;
	memcpy(address, text, len);
	address[len] = '\0';
	if (!v6)
		memcpy(read.bytes, mapped, sizeof(mapped));
	if (inet_pton(v6 ? AF_INET6 : AF_INET, address, v6 ? read.bytes : read.bytes + 12) != 1)
		return false;
	read.bits = (uint8_t)(v6 ? bits : 96 + bits);
	for (unsigned i = read.bits; i < 128; i++)
		if (bit(read.bytes, i))
			return false;
	*out = read;
	return true;
}

static bool holds(const struct kvw_network *network, const uint8_t bytes[16])
{
	unsigned whole = network->bits / 8, rest = network->bits % 8;

	return memcmp(network->bytes, bytes, whole) == 0 &&
	       (rest == 0 || ((network->bytes[whole] ^ bytes[whole]) >> (8 - rest)) == 0);
}

bool kvw_networks_hold(
	const struct kvw_network *networks, size_t count, const struct sockaddr *address)
{
	uint8_t bytes[16];

	if (address->sa_family == AF_INET) {
		memcpy(bytes, mapped, sizeof(mapped));
		memcpy(bytes + 12, &((const struct sockaddr_in *)(const void *)address)->sin_addr,
			4);
	} else if (address->sa_family == AF_INET6) {
		memcpy(bytes, &((const struct sockaddr_in6 *)(const void *)address)->sin6_addr, 16);
	} else {
		return false;
	}
	for (size_t i = 0; i < count; i++)
		if (holds(&networks[i], bytes))
			return true;
	return false;
}
