/*
 * location.h - redirects of workers: rewrites Location and Content-Location so that clients can
 * follow them.
 */
#ifndef KVW_LOCATION_H
#define KVW_LOCATION_H

#include "proxy/exchange.h"

#define KVW_LOCATION_ROOM 4096

/* Removes fields that name a worker from an answer's head, and writes them for the client into buf,
 * of KVW_LOCATION_ROOM bytes, as whole lines. Returns their length; 0: there are none. */
size_t kvw_location_fields(struct kvw_exchange *x, struct kvw_head *head, char *buf);

#endif
