/*
 * wire.h - sockets of the programs of this folder. Every failure ends the program with a line.
 */
#ifndef KVB_WIRE_H
#define KVB_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

/* A TCP connection to an IPv4 address, without Nagle's delay. */
int kvb_connect(const char *host, uint16_t port, bool blocking);

/* Listens on a free port of 127.0.0.1, which goes to *port. */
int kvb_listen(uint16_t *port);

/* Sends all of it over a blocking socket; the pieces are used up. */
void kvb_send_all(int fd, struct iovec *pieces, size_t count);

#endif
