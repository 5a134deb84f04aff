/*
 * transfer.h - how the KV of a prefilled prompt gets to its decoder (pd.transfer).
 *
 * One file of transfers/ and one line of transfers.def for each way. It says when the prefiller is
 * asked, and what the two requests have besides the client's own bytes:
 *
 *	            prefiller                            decoder
 *	nixl        first; do_remote_decode              the parameters of its answer
 *	nixl-push   at once; as nixl                     id and address of its engine
 *	mooncake    at once; do_remote_decode, an id     that id, its engine and bootstrap server
 *	shared      first                                nothing: it finds the KV in the storage
 *	p2p         first; remote_decoder: an id         remote_prefiller: that id, host and port
 *	sidecar     not by kvway                         the field x-prefiller-host-port
 *
 * Threads: those of the exchange's loop.
 */
#ifndef KVW_TRANSFER_H
#define KVW_TRANSFER_H

#include "config/config.h"
#include "http/write.h"
#include "proxy/exchange.h"

/* When the prefiller is asked. */
enum kvw_leg_time {
	KVW_LEG_FIRST, /* the decoder is asked once the prefiller has answered */
	KVW_LEG_BESIDE, /* both are asked at once, and the decoder waits for the KV */
	KVW_LEG_NEVER, /* the decoder's side asks it */
	KVW_LEG_UNREADY, /* not: what the decoder needs of it is not known, or such a request cannot */
};

#define KVW_PREFILLER_FIELD "x-prefiller-host-port" /* of llm-d's routing sidecar */
#define KVW_TRANSFER_FIELD_ROOM 320 /* bytes that `fields` writes at most */

struct kvw_transfer_kind {
	enum kvw_leg_time leg;
	/* The same for this prefiller. NULL: always `leg`. May set x->pd->engine. */
	enum kvw_leg_time (*when)(struct kvw_exchange *x);
	/* The KV can be had once: after a decoder's failure the prompt is prefilled
	 * again. Else any decoder finds it, as long as it is kept. */
	bool once;
	/* Writes `kv_transfer_params` of the prefiller's body. NULL: it has none. */
	void (*ask)(struct kvw_exchange *x, struct kvw_writer *w);
	/* Takes what the decoder needs from the prefiller's answer. False: it is not there. NULL:
	 * nothing is needed. */
	bool (*take)(struct kvw_exchange *x, struct kvw_slice answer);
	/* Writes `kv_transfer_params` of the decoder's body, or returns those of the answer.
	 * NULL: it gets the client's body. */
	struct kvw_slice (*give)(struct kvw_exchange *x, struct kvw_writer *w);
	/* Writes fields of the decoder's head, or of the prefiller's. NULL: none. */
	void (*fields)(const struct kvw_exchange *x, bool prefills, struct kvw_writer *w);
	/* `fields` writes an X-Request-Id of kvway's in place of the client's */
	bool renames;
};

#define KVW_TRANSFER(name, value) extern const struct kvw_transfer_kind kvw_transfer_##name;
#include "proxy/transfers.def"
#undef KVW_TRANSFER

/* Returns the kind of transfer that the setting names; NULL: off. */
const struct kvw_transfer_kind *kvw_transfer_kind(const struct kvw_config *config);

/* Writes the prefiller's `kv_transfer_params` (`ask`) of both NIXL connectors. */
void kvw_transfer_ask_nixl(struct kvw_exchange *x, struct kvw_writer *w);

/* Writes `{` and the members by which the decoder finds the prefiller (x->pd->source). */
void kvw_transfer_write_source(const struct kvw_exchange *x, struct kvw_writer *w);
/* Returns whether these members are known; then it sets x->pd->source and x->pd->engine. */
bool kvw_transfer_knows_source(struct kvw_exchange *x);

/* Returns the port at which the prefiller of x->pd offers its KV: `kv_port` of its entry, else
 * pd.port, else `usual`; for a rank its global number is added. */
uint16_t kvw_transfer_port(const struct kvw_exchange *x, uint16_t usual);

#endif
