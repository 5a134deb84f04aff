/*
 * wire_tls.h - TLS of a wire: between wire.c and wire_tls.c.
 */
#ifndef KVT_WIRE_TLS_H
#define KVT_WIRE_TLS_H

#include "redis/wire.h"

/* As kvt_wire_send and kvt_wire_receive. */
ssize_t kvt_wire_tls_send(struct kvt_wire *w, const struct iovec *pieces, size_t count);
ssize_t kvt_wire_tls_receive(struct kvt_wire *w, const struct iovec *pieces, size_t count);
void kvt_wire_tls_close(struct kvt_wire *w);

#endif
