/*
 * discovery_url.h - parses an entry of `discovery.dns`.
 *
 * http://NAME:PORT[/PREFIX] and https:// mean that addresses are looked up; srv://NAME[/PREFIX],
 * which is the same as srv+http://, and srv+https:// mean SRV records. Pure functions; slices
 * borrow from the text.
 */
#ifndef KVW_CONFIG_DISCOVERY_URL_H
#define KVW_CONFIG_DISCOVERY_URL_H

#include <stdbool.h>
#include <stdint.h>

#include "kvway/slice.h"

struct kvw_discovery_url {
	bool srv;                /* ask for SRV records */
	bool tls;                /* workers speak TLS */
	uint16_t port;           /* 0 with srv: then each record has a port */
	struct kvw_slice name;   /* IPv6 without brackets */
	struct kvw_slice prefix; /* "" or "/prefix" */
};

/* Returns false if the text has none of these forms; then *out is not changed. */
bool kvw_discovery_url_split(struct kvw_slice text, struct kvw_discovery_url *out);

#endif
