/*
 * wire_tls.h - those functions of TLS connections that wire.c calls.
 */
#ifndef KVW_REDIS_WIRE_TLS_H
#define KVW_REDIS_WIRE_TLS_H

#include "redis/wire.h"

/* As kvw_redis_wire_send and kvw_redis_wire_receive. */
ssize_t kvw_redis_wire_tls_send(struct kvw_redis_wire *w, const struct iovec *pieces, size_t count);
ssize_t kvw_redis_wire_tls_receive(
	struct kvw_redis_wire *w, const struct iovec *pieces, size_t count);
void kvw_redis_wire_tls_close(struct kvw_redis_wire *w);

#endif
