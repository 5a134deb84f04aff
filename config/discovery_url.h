/*
 * discovery_url.h - an entry of `discovery.dns`, taken apart.
 *
 * http://NAME:PORT[/PREFIX] and https:// ask for addresses; srv://NAME[/PREFIX], the same as
 * srv+http://, and srv+https:// ask for SRV records. Pure; slices borrow from the text.
 */
#ifndef KVW_CONFIG_DISCOVERY_URL_H
#define KVW_CONFIG_DISCOVERY_URL_H

#include <stdbool.h>
#include <stdint.h>

#include "kvway/slice.h"

struct kvw_discovery_url {
	bool srv;                /* ask for SRV records */
	bool tls;                /* workers speak TLS */
	uint16_t port;           /* 0 with srv: the records say it */
	struct kvw_slice name;   /* IPv6 without brackets */
	struct kvw_slice prefix; /* "" or "/prefix" */
};

/* False: none of these, *out is untouched. */
bool kvw_discovery_url_split(struct kvw_slice text, struct kvw_discovery_url *out);

#endif
