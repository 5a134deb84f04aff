/*
 * connect.h - a connection to the worker of an attempt.
 */
#ifndef KVW_CONNECT_H
#define KVW_CONNECT_H

#include "fleet/link.h"
#include "proxy/exchange.h"

/* Takes an idle connection, unless it is to be a fresh one, or makes a new one: to CONNECTING or
 * SENDING. Otherwise the attempt has failed, or the client has its answer. on_link: on each
 * event of it. */
void kvw_connect(struct kvw_exchange *x, bool fresh, kvw_link_fn on_link);

#endif
