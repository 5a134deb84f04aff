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

/* IPv4 is held as IPv6 holds it (::ffff:a.b.c.d), so that a socket for both finds its peers. */
struct kvw_network {
	uint8_t bytes[16];
	uint8_t bits; /* of bytes that count, 0 to 128 */
};

/* False: it is none, or has bits behind its prefix; *out is left alone. */
bool kvw_network_parse(const char *text, struct kvw_network *out);

/* Does one of the networks hold the address? False for an address that is neither IPv4 nor IPv6. */
bool kvw_networks_hold(
	const struct kvw_network *networks, size_t count, const struct sockaddr *address);

#endif
