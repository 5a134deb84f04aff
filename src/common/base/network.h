/*
 * network.h - blocks of IP addresses, written as `10.0.0.0/8`, `2001:db8::/32` or one address.
 *
 * Pure functions: any thread, no allocation.
 */
#ifndef KVW_NETWORK_H
#define KVW_NETWORK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

/* IPv4 is stored as IPv4-mapped IPv6 (::ffff:a.b.c.d), the form in which a socket for both has its
 * peers. */
struct kvw_network {
	uint8_t bytes[16];
	uint8_t bits; /* length of the prefix, 0 to 128 */
};

/* Returns false if the text is no network, or has bits set after the prefix; then *out is not
 * changed. */
bool kvw_network_parse(const char *text, struct kvw_network *out);

/* Returns whether the address is in one of the networks; false for an address that is neither IPv4
 * nor IPv6. */
bool kvw_networks_hold(
	const struct kvw_network *networks, size_t count, const struct sockaddr *address);

#endif
