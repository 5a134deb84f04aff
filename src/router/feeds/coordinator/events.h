/*
 * events.h - reads the body of LMCache's POST /events (0.5.6): batches of cache events.
 *
 *	{"batches": [{"instance_id", "incarnation", "seq", "event_type": store, delete, access or
 *	config, "tier": l1 or l2, "backend", "entries": [{"key": {"chunk_hash_hex", "model_name",
 *	"kv_rank", "object_group_id", "cache_salt"}, "size_bytes", "token_ids", "token_offset"}],
 *	"shared", "ts", "capacity_bytes", "capacity_revision"}]}
 *
 * No document is built: the reader passes batch by batch and entry by entry to a sink, and its
 * memory does not depend on the body. A batch is passed before its entries, although members such
 * as `shared` follow these in the text: the reader finds a batch's other members first and then
 * reads its entries. A caller that must apply all or nothing reads twice, first without a sink.
 *
 * Unknown members are skipped. A wrong type, a missing member or a value outside its limits is an
 * error that names its place. Stricter than LMCache, which also takes numbers written as texts.
 *
 * Threads: a reader belongs to one thread. Pure: no I/O, no clock.
 */
#ifndef KVW_COORDINATOR_EVENTS_H
#define KVW_COORDINATOR_EVENTS_H

#include <stdbool.h>
#include <stdint.h>

#include "kvway/err.h"
#include "kvway/slice.h"

/* Bytes of texts, after escapes. */
#define KVW_CE_INSTANCE_MOST 255u
#define KVW_CE_BACKEND_MOST  63u
#define KVW_CE_MODEL_MOST    1024u
#define KVW_CE_SALT_MOST     512u  /* LMCache: 128 characters */
#define KVW_CE_HASH_MOST     64u   /* of the hash, not of its digits */
#define KVW_CE_TOKENS_MOST   8192u /* token ids of an entry */

enum kvw_ce_type { KVW_CE_STORE, KVW_CE_DELETE, KVW_CE_ACCESS, KVW_CE_CONFIG, KVW_CE_TYPES };

enum kvw_ce_tier { KVW_CE_L1, KVW_CE_L2, KVW_CE_TIERS };

/* LMCache's name of an object: a chunk's slice of KV. Slices are borrowed. */
struct kvw_ce_key {
	struct kvw_slice hash; /* bytes */
	struct kvw_slice model, salt;
	uint32_t
		rank; /* LMCache's kv_rank: world size, rank, local size, local rank, a byte each */
	uint32_t group;
};

struct kvw_ce_batch {
	struct kvw_slice instance, backend;
	uint64_t incarnation, seq;
	enum kvw_ce_type type;
	enum kvw_ce_tier tier;
	bool shared;
	double ts; /* the sender's wall clock, seconds; 0: unknown */
	uint64_t capacity_bytes, capacity_revision;
};

struct kvw_ce_entry {
	struct kvw_ce_key key;
	uint64_t size_bytes;
	const uint32_t *tokens;
	size_t token_count; /* 0: the sender does not know them */
	int64_t offset;     /* of the first token in its sequence; -1: unknown */
};

/* Arguments are borrowed for the call. */
struct kvw_ce_sink {
	/* False: the batch's entries are not wanted. */
	bool (*batch)(void *ctx, const struct kvw_ce_batch *batch);
	void (*entry)(
		void *ctx, const struct kvw_ce_batch *batch, const struct kvw_ce_entry *entry);
	void *ctx;
};

/* About 40 KiB. Zeroed is ready. */
struct kvw_ce_reader {
	char error[160]; /* after a failure: its place and what was expected */

	/* private to events.c */
	const char *at, *end;
	size_t batch_no, entry_no;
	bool in_batch, in_entry;
	const char *member; /* static; NULL: none */
	char instance[KVW_CE_INSTANCE_MOST + 1], backend[KVW_CE_BACKEND_MOST + 1];
	char model[KVW_CE_MODEL_MOST + 1], salt[KVW_CE_SALT_MOST + 1];
	char digits[2 * KVW_CE_HASH_MOST + 1], hash[KVW_CE_HASH_MOST];
	uint32_t tokens[KVW_CE_TOKENS_MOST];
};

/* Reads a whole body. sink NULL: only checks it. KVW_EINVAL: reader->error; with a sink, the
 * batches before the error were passed. */
enum kvw_err kvw_ce_read(struct kvw_ce_reader *reader, struct kvw_slice body,
	const struct kvw_ce_sink *sink) KVW_MUST_CHECK;

/* May LMCache's keys have it as their salt: at most 128 characters, none of @, /, \ and NUL? */
bool kvw_ce_is_salt(struct kvw_slice salt);

const char *kvw_ce_type_name(enum kvw_ce_type type);
const char *kvw_ce_tier_name(enum kvw_ce_tier tier);

#endif
