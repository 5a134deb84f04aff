/*
 * lmcache_wire.h - messages of LMCache's workers to their controller, and its answers.
 *
 * One message is one frame: a msgpack map {"type": "<Class>", ...} or the same as JSON. On the pull
 * socket each frame of a multipart is a message; on the reply and heartbeat sockets (ROUTER) a
 * request is [identity, "", message], from REQ clients (up to 0.3.11) and DEALER clients (from
 * 0.3.12) alike, and so is the answer. The messages are the same from 0.3 to 0.5, except for some
 * members, all of which are optional here:
 *
 *   up to 0.3.11  RegisterMsg, HeartbeatMsg and DeRegisterMsg come on the pull socket
 *   mid-2025      RegisterMsg with distributed_url instead of peer_init_url
 *   old disk tier KVAdmitMsg and KVEvictMsg, one operation each, not numbered
 *
 * Members may come in any order, unknown ones are ignored, a missing or malformed one makes the
 * reader refuse the message, as LMCache's own controller does. Keys are 64 bits, signed or not:
 * two's complement.
 *
 * Messages are not authenticated: any process can send any instance id or address. Names are
 * checked to be UTF-8 without control characters, so that they may be logged.
 *
 * Source: lmcache/v1/cache_controller/message.py; frames recorded from 0.5.6 are in the tests.
 */
#ifndef KVW_LMCACHE_WIRE_H
#define KVW_LMCACHE_WIRE_H

#include "kvway/err.h"
#include "kvway/route.h"
#include "wire/msgpack.h"

/* most bytes of a message; a batch of a full sync has 2,000 keys, 18 KB */
#define KVW_LMC_MESSAGE_MAX (16u << 20)
#define KVW_LMC_JSON_MAX    (1u << 20)  /* most bytes of a message in JSON */
#define KVW_LMC_KEYS_MAX    (1u << 20)  /* most operations or keys of one message */
#define KVW_LMC_TEXT_MAX    512u        /* most bytes of a name, address or id */

enum kvw_lmc_type {
	KVW_LMC_REGISTER,    /* RegisterMsg */
	KVW_LMC_HEARTBEAT,   /* HeartbeatMsg; it has all members of a registration */
	KVW_LMC_DEREGISTER,  /* DeRegisterMsg */
	KVW_LMC_OPERATIONS,  /* BatchedKVOperationMsg, KVAdmitMsg, KVEvictMsg */
	KVW_LMC_P2P_LOOKUP,  /* BatchedP2PLookupMsg */
	KVW_LMC_SYNC_START,  /* FullSyncStartMsg */
	KVW_LMC_SYNC_BATCH,  /* FullSyncBatchMsg */
	KVW_LMC_SYNC_END,    /* FullSyncEndMsg */
	KVW_LMC_SYNC_STATUS, /* FullSyncStatusMsg */
	KVW_LMC_TYPE_COUNT
};

/*
 * One message. Members that its type does not have are zero. Slices and arrays are valid until the
 * reader's next message, and only as long as the frame.
 */
struct kvw_lmc_message {
	enum kvw_lmc_type type;
	struct kvw_slice instance_id; /* never empty in messages whose type has it */
	uint32_t worker_id;           /* tensor-parallel rank */
	struct kvw_slice ip;
	uint16_t port;             /* port of the worker's command socket */
	struct kvw_slice p2p; /* peer_init_url or distributed_url; len 0: the message has neither */
	struct kvw_slice location; /* "LocalCPUBackend", "LocalDiskBackend", ... */
	struct kvw_slice sync_id;

	const uint64_t *keys;    /* in OPERATIONS, P2P_LOOKUP (there: hashes) and SYNC_BATCH */
	const uint64_t *numbers; /* OPERATIONS: the seq_num of each; NULL: they have none */
	const bool *admits; /* OPERATIONS: for each, true for an admit and false for an evict */
	size_t key_count;

	/* SYNC_START: the number that will be sent; SYNC_END: the number that was sent */
	uint64_t total_keys;
	uint32_t batch_count;   /* SYNC_START */
	uint32_t batch_id;      /* SYNC_BATCH: from 0 */
};

/* Reads messages, one after another. Its arrays grow with the messages, up to the limits, and are
 * kept. One thread. */
struct kvw_lmc_reader {
	const char *error;     /* static text: the reason for which the last message was refused */
	const char *field;     /* the member that caused it; NULL: no single member did */
	/* type of the last message, as it was sent; borrowed like the rest */
	struct kvw_slice type;

	uint64_t *keys, *numbers; /* owned; all three have room for `room` items */
	bool *admits;
	size_t room;
	uint8_t *json; /* owned: the last JSON message, converted to msgpack */
	size_t json_room;
};

void kvw_lmc_reader_init(struct kvw_lmc_reader *reader);
void kvw_lmc_reader_finish(struct kvw_lmc_reader *reader);

/*
 * Reads one frame. KVW_EPROTO, KVW_ELIMIT: it is refused; see error and field. KVW_ENOTFOUND: it is
 * a complete message of a type that no worker sends to a controller (see reader->type). KVW_ENOMEM.
 */
enum kvw_err kvw_lmc_read(struct kvw_lmc_reader *reader, struct kvw_slice frame,
	struct kvw_lmc_message *message) KVW_MUST_CHECK;

/*
 * Finds the message of a request on a ROUTER socket, [identity] [""] [message], and the number of
 * leading frames that the answer repeats. KVW_EPROTO: the request is not of that form.
 */
enum kvw_err kvw_lmc_request(const struct kvw_slice *frames, size_t count,
	struct kvw_slice *message, size_t *envelope) KVW_MUST_CHECK;

/* Returns the tier that a location means. Unknown names count as remote, the slowest tier. */
enum kvw_tier kvw_lmc_tier(struct kvw_slice location);

/* --- answers: written to out, whose `full` is set if they did not fit
 * ---------------------------- */

/* heartbeat_url is "host:port" without a scheme; len 0: the worker is to send no heartbeats. */
void kvw_lmc_put_registered(struct kvw_mp_out *out, struct kvw_slice heartbeat_url);

/* full_sync_reason "controller_restart" or "worker_re_registered" asks for a full sync; len 0: none
 * is asked for. */
void kvw_lmc_put_heartbeat(struct kvw_mp_out *out, struct kvw_slice full_sync_reason);

/* refusal: the reason for which the sync is refused; len 0: it is accepted. */
void kvw_lmc_put_sync_started(
	struct kvw_mp_out *out, struct kvw_slice sync_id, struct kvw_slice refusal);

struct kvw_lmc_sync_status {
	struct kvw_slice sync_id;
	bool complete;           /* this worker's sync */
	bool can_exit_freeze;    /* the worker may store again */
	double progress;         /* 0 to 1, over all workers */
	const uint32_t *missing; /* batches to send again */
	uint32_t missing_count;
};

void kvw_lmc_put_sync_status(struct kvw_mp_out *out, const struct kvw_lmc_sync_status *status);

/* The instance that has the longest beginning of the chunks; NULL: no instance has any. */
struct kvw_lmc_holder {
	struct kvw_slice instance_id, location, peer_init_url;
	uint32_t chunks; /* > 0 */
};

void kvw_lmc_put_p2p(struct kvw_mp_out *out, const struct kvw_lmc_holder *holder);

void kvw_lmc_put_error(struct kvw_mp_out *out, struct kvw_slice error);

#endif
