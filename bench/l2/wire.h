/*
 * wire.h - sockets of the programs of this folder. Every failure ends the program with a line.
 */
#ifndef KVB_WIRE_H
#define KVB_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

/* Connects to an IPv4 address by TCP, without Nagle's delay. */
int kvb_connect(const char *host, uint16_t port, bool blocking);

/* Listens on a free port of 127.0.0.1, which goes to *port. */
int kvb_listen(uint16_t *port);

/* Sends all pieces over a blocking socket; changes the array of pieces. */
void kvb_send_all(int fd, struct iovec *pieces, size_t count);

#endif
