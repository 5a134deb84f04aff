/*
 * controller_wire.h - writes and reads the messages between an LMCache worker and its controller,
 * on the worker's side.
 *
 * msgpack maps with "type" first and the members in LMCache's order, as recorded from 0.5.6.
 * Writers append one whole message to a buffer; a failed allocation shows in the buffer. The reader
 * accepts untrusted bytes: a message has at most KVT_CONTROLLER_MESSAGE_MAX bytes, and counts are
 * checked against the remaining bytes before memory is allocated for them. Pure functions.
 */
#ifndef KVT_CONTROLLER_WIRE_H
#define KVT_CONTROLLER_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KVT_CONTROLLER_TEXT_MAX    256 /* including the terminating 0 */
#define KVT_CONTROLLER_MESSAGE_MAX (8u << 20)
#define KVT_CONTROLLER_MISSING_MAX 4096 /* most batches that one answer can request again */

/* LMCache's names for memory and for local disk. */
#define KVT_CONTROLLER_CPU  "LocalCPUBackend"
#define KVT_CONTROLLER_DISK "LocalDiskBackend"

/* A growing buffer. Writers append freely and check `failed` once, before they use the bytes. */
struct kvt_controller_buf {
	uint8_t *data; /* owned; NULL while empty */
	size_t len, cap;
	bool failed; /* an allocation failed, so the content is incomplete */
};

void kvt_controller_buf_free(struct kvt_controller_buf *buf);
void kvt_controller_buf_clear(struct kvt_controller_buf *buf); /* keeps the memory */

/* The sender. All borrowed. */
struct kvt_controller_sender {
	const char *instance;
	uint32_t worker; /* tensor-parallel rank */
	const char *ip;
	uint16_t port;    /* port for commands */
	bool signed_keys; /* keys are signed in messages: those of `builtin` are, digests are not */
};

/* A change: the cache has a chunk now, or no longer. */
struct kvt_controller_operation {
	uint64_t key;
	uint64_t number; /* number of the operation in its location, from 0 */
	bool admit;
};

/* RegisterMsg, HeartbeatMsg: with peer_init_url; DeRegisterMsg: without. */
void kvt_controller_put_presence(struct kvt_controller_buf *out, const char *type,
	const struct kvt_controller_sender *sender);
void kvt_controller_put_operations(struct kvt_controller_buf *out,
	const struct kvt_controller_sender *sender, const char *location,
	const struct kvt_controller_operation *operations, uint32_t count);
void kvt_controller_put_sync_start(struct kvt_controller_buf *out,
	const struct kvt_controller_sender *sender, const char *location, const char *sync_id,
	uint32_t keys, uint32_t batches);
void kvt_controller_put_sync_batch(struct kvt_controller_buf *out,
	const struct kvt_controller_sender *sender, const char *location, const char *sync_id,
	uint32_t batch, const uint64_t *keys, uint32_t count);
void kvt_controller_put_sync_end(struct kvt_controller_buf *out,
	const struct kvt_controller_sender *sender, const char *location, const char *sync_id,
	uint32_t keys);
void kvt_controller_put_sync_status(struct kvt_controller_buf *out,
	const struct kvt_controller_sender *sender, const char *sync_id);
/* ClearWorkerRetMsg, PinWorkerRetMsg: num_tokens; HealthWorkerRetMsg: error_code. */
void kvt_controller_put_number(
	struct kvt_controller_buf *out, const char *type, const char *member, uint64_t number);
void kvt_controller_put_error(struct kvt_controller_buf *out, const char *text);

/* A message from the controller. Members that its type does not have are zero. */
struct kvt_controller_message {
	char type[48];
	char heartbeat_url[KVT_CONTROLLER_TEXT_MAX]; /* RegisterRetMsg; "": none */
	bool full_sync; /* HeartbeatRetMsg: one of its commands requests a full sync */
	bool accepted;                               /* FullSyncStartRetMsg */
	bool can_exit_freeze;   /* FullSyncStatusRetMsg: enough workers have finished */
	bool is_complete;       /* ... this worker has */
	uint32_t missing_count; /* batches to send again */
	/* numbers of missing batches, at most KVT_CONTROLLER_MISSING_MAX; owned */
	uint32_t *missing;
	char event_id[64];      /* commands */
	char location[64];      /* ClearWorkerMsg, PinWorkerMsg */
	uint32_t *tokens;       /* PinWorkerMsg; owned */
	uint32_t token_count;
};

/* Returns false if this is no message, it is too long, or memory is short; then there is nothing to
 * free. */
bool kvt_controller_read(const void *data, size_t len, struct kvt_controller_message *out);
void kvt_controller_message_free(struct kvt_controller_message *message);

#endif
