/*
 * sim_lmcache_wire.h - messages between an LMCache worker and its controller, the worker's side.
 *
 * msgpack maps with "type" first and the members in LMCache's order, as recorded from 0.5.6. Writers
 * append one whole message to a buffer; a failed allocation shows in the buffer. Pure functions.
 */
#ifndef KVB_SIM_LMCACHE_WIRE_H
#define KVB_SIM_LMCACHE_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sim_buf.h"

#define KVB_LMC_LOCATION "LocalCPUBackend"
#define KVB_LMC_TEXT_MAX 256 /* with the terminating 0 */

/* Who speaks. All borrowed. */
struct kvb_lmc_identity {
	const char *instance;
	uint32_t worker; /* tensor-parallel rank */
	const char *ip;
	uint16_t port;    /* of the command socket */
	bool signed_keys; /* `builtin` keys are signed on the wire, digests are not */
};

/* One change of the tier. */
struct kvb_lmc_operation {
	uint64_t key;
	uint64_t number; /* counts the operations of one location, from 0 */
	bool admit;
};

/* RegisterMsg, HeartbeatMsg: with peer_init_url; DeRegisterMsg: without. */
void kvb_lmc_put_presence(
	struct kvb_buf *out, const char *type, const struct kvb_lmc_identity *who);
void kvb_lmc_put_operations(struct kvb_buf *out, const struct kvb_lmc_identity *who,
	const struct kvb_lmc_operation *operations, uint32_t count);
void kvb_lmc_put_sync_start(struct kvb_buf *out, const struct kvb_lmc_identity *who,
	const char *sync_id, uint32_t keys, uint32_t batches);
void kvb_lmc_put_sync_batch(struct kvb_buf *out, const struct kvb_lmc_identity *who,
	const char *sync_id, uint32_t batch, const uint64_t *keys, uint32_t count);
void kvb_lmc_put_sync_end(struct kvb_buf *out, const struct kvb_lmc_identity *who,
	const char *sync_id, uint32_t keys);
void kvb_lmc_put_sync_status(
	struct kvb_buf *out, const struct kvb_lmc_identity *who, const char *sync_id);
/* ClearWorkerRetMsg, PinWorkerRetMsg: num_tokens; HealthWorkerRetMsg: error_code. */
void kvb_lmc_put_number(struct kvb_buf *out, const char *type, const char *member, uint64_t number);
void kvb_lmc_put_error(struct kvb_buf *out, const char *text);

/* What a controller says; members that its type does not have are zero. */
struct kvb_lmc_message {
	char type[48];
	char heartbeat_url[KVB_LMC_TEXT_MAX]; /* RegisterRetMsg; "": none */
	bool full_sync;                       /* HeartbeatRetMsg: a command asks for one */
	bool accepted;                        /* FullSyncStartRetMsg */
	bool can_exit_freeze;                 /* FullSyncStatusRetMsg */
	uint32_t missing_count;               /* batches to send again */
	uint32_t missing[64];                 /* the first of them */
	char event_id[64];                    /* commands */
	char location[64];                    /* ClearWorkerMsg, PinWorkerMsg */
	uint32_t *tokens;                     /* PinWorkerMsg; owned, free() */
	uint32_t token_count;
};

/* False: not a message at all, or without memory; then there is nothing to free. */
bool kvb_lmc_read(const void *data, size_t len, struct kvb_lmc_message *out);

#endif
