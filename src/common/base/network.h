/*
 * network.h - blocks of IP addresses, as `10.0.0.0/8`, `2001:db8::/32` or one address.
 *
 * Pure functions: any thread, no allocation.
 */
#ifndef KVW_NETWORK_H
#define KVW_NETWORK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

/* IPv4 is stored as IPv4-mapped IPv6 (::ffff:a.b.c.d), the peers' form on a socket for both. */
struct kvw_network {
	uint8_t bytes[16];
	uint8_t bits; /* prefix length of bytes, 0 to 128 */
};

/* False: not a network, or bits are set after the prefix; *out is untouched. */
bool kvw_network_parse(const char *text, struct kvw_network *out);

/* Whether one of the networks has the address. False for an address that is neither IPv4 nor
 * IPv6. */
bool kvw_networks_hold(
	const struct kvw_network *networks, size_t count, const struct sockaddr *address);

#endif
