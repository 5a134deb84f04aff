/*
 * location.h - redirects of workers: Location and Content-Location as the client can follow them.
 */
#ifndef KVW_LOCATION_H
#define KVW_LOCATION_H

#include "proxy/exchange.h"

#define KVW_LOCATION_ROOM 4096

/* Takes fields of an answer's head that name a worker out of it, and writes them into buf, of
 * KVW_LOCATION_ROOM bytes, as whole lines for the client. Returns their length; 0: there are
 * none. */
size_t kvw_location_fields(struct kvw_exchange *x, struct kvw_head *head, char *buf);

#endif
