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

#define KVW_LMC_MESSAGE_MAX (16u << 20) /* bytes; a full sync's batch has 2,000 keys, 18 KB */
#define KVW_LMC_JSON_MAX    (1u << 20)  /* bytes of a message in JSON */
#define KVW_LMC_KEYS_MAX    (1u << 20)  /* operations or keys of one message */
#define KVW_LMC_TEXT_MAX    512u        /* bytes of a name, address or id */

enum kvw_lmc_type {
	KVW_LMC_REGISTER,    /* RegisterMsg */
	KVW_LMC_HEARTBEAT,   /* HeartbeatMsg: has all members of a registration */
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
 * One message. Members that its type lacks are zero. Slices and arrays are valid until the reader's
 * next message, and only as long as the frame.
 */
struct kvw_lmc_message {
	enum kvw_lmc_type type;
	struct kvw_slice instance_id; /* never empty where the type has one */
	uint32_t worker_id;           /* tensor-parallel rank */
	struct kvw_slice ip;
	uint16_t port;             /* of the worker's command socket */
	struct kvw_slice p2p;      /* peer_init_url or distributed_url; len 0: none */
	struct kvw_slice location; /* "LocalCPUBackend", "LocalDiskBackend", ... */
	struct kvw_slice sync_id;

	const uint64_t *keys;    /* OPERATIONS, P2P_LOOKUP (hashes), SYNC_BATCH */
	const uint64_t *numbers; /* OPERATIONS: seq_num of each; NULL: not numbered */
	const bool *admits;      /* OPERATIONS: true: an admit, false: an evict */
	size_t key_count;

	uint64_t total_keys;    /* SYNC_START: announced, SYNC_END: really sent */
	uint32_t batch_count;   /* SYNC_START */
	uint32_t batch_id;      /* SYNC_BATCH: from 0 */
};

/* Reads messages, one after another; keeps arrays that grow up to the limits. One thread. */
struct kvw_lmc_reader {
	const char *error;     /* static text: the reason of the last refusal */
	const char *field;     /* member that caused it; NULL: no single one */
	struct kvw_slice type; /* type of the last message as sent; borrowed like the rest */

	uint64_t *keys, *numbers; /* owned; all three have `room` items */
	bool *admits;
	size_t room;
	uint8_t *json; /* owned: the last JSON message as msgpack */
	size_t json_room;
};

void kvw_lmc_reader_init(struct kvw_lmc_reader *reader);
void kvw_lmc_reader_finish(struct kvw_lmc_reader *reader);

/*
 * One frame. KVW_EPROTO, KVW_ELIMIT: refused, see error and field. KVW_ENOTFOUND: a whole message
 * of a type that no worker sends to a controller (see reader->type). KVW_ENOMEM.
 */
enum kvw_err kvw_lmc_read(struct kvw_lmc_reader *reader, struct kvw_slice frame,
	struct kvw_lmc_message *message) KVW_MUST_CHECK;

/*
 * Finds the message of a request on a ROUTER socket, [identity] [""] [message], and the number of
 * leading frames that the answer repeats. KVW_EPROTO: not of that form.
 */
enum kvw_err kvw_lmc_request(const struct kvw_slice *frames, size_t count,
	struct kvw_slice *message, size_t *envelope) KVW_MUST_CHECK;

/* Tier of a location. Unknown names count as remote, the slowest. */
enum kvw_tier kvw_lmc_tier(struct kvw_slice location);

/* --- answers: written to out, whose `full` is set if they did not fit
 * ---------------------------- */

/* heartbeat_url "host:port" without a scheme; len 0: no heartbeats. */
void kvw_lmc_put_registered(struct kvw_mp_out *out, struct kvw_slice heartbeat_url);

/* reason: "controller_restart" or "worker_re_registered" asks for a full sync; len 0: nothing. */
void kvw_lmc_put_heartbeat(struct kvw_mp_out *out, struct kvw_slice full_sync_reason);

/* refusal: len 0 accepts the sync. */
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

/* The instance that holds the longest beginning of the chunks; NULL: none. */
struct kvw_lmc_holder {
	struct kvw_slice instance_id, location, peer_init_url;
	uint32_t chunks; /* > 0 */
};

void kvw_lmc_put_p2p(struct kvw_mp_out *out, const struct kvw_lmc_holder *holder);

void kvw_lmc_put_error(struct kvw_mp_out *out, struct kvw_slice error);

#endif
