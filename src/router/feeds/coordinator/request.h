/*
 * request.h - what the coordinator's routes share: parts of a request, and answers in LMCache's
 * form. Private to this folder.
 *
 * Threads: the feed's.
 */
#ifndef KVW_COORDINATOR_REQUEST_H
#define KVW_COORDINATOR_REQUEST_H

#include <jansson.h>

#include "feeds/coordinator/parts.h"
#include "http/target.h"

#define KVW_CR_SMALL_MOST  ((size_t)1 << 20)  /* bytes of a body without token ids */
#define KVW_CR_TOKENS_MOST ((size_t)16 << 20) /* of one with them */

/* --- answers ---------------------------------------------------------------------------------- */

/* extra: whole field lines, "": none. A page that failed becomes a 503. */
void kvw_cr_answer(struct kvw_conn *conn, int status, const char *type, const char *extra,
	const struct kvw_page *page);
void kvw_cr_answer_take(struct kvw_conn *conn, int status, struct kvw_page *page); /* JSON */
/* The same for an answer with keys, unless it is too long. */
void kvw_cr_answer_keys_take(struct kvw_conn *conn, struct kvw_page *page);
/* A part of the request is not as it has to be: 422 in FastAPI's form. place: "body", "query".
 * name: NULL: the whole. */
void kvw_cr_refuse_value(
	struct kvw_conn *conn, const char *place, const char *name, const char *message);

/* --- parts of a request ----------------------------------------------------------------------- */

/* False: it is answered. allowed: methods, separated by ", ". */
bool kvw_cr_only_method(struct kvw_conn *conn, const char *allowed) KVW_MUST_CHECK;
bool kvw_cr_is_method(const struct kvw_conn *conn, const char *method);

/* A parameter of the query, decoded; "" if it is not there. False: it cannot be read. */
bool kvw_cr_parameter(
	const struct kvw_head *head, const char *name, char *text, size_t room) KVW_MUST_CHECK;
/* A number of the query within its limits; absent: value stays. False: it is answered. */
bool kvw_cr_number(struct kvw_conn *conn, const char *name, uint64_t least, uint64_t most,
	uint64_t *value) KVW_MUST_CHECK;
/* The body as a JSON object of at most `most` bytes; NULL: it is answered. */
json_t *kvw_cr_body(struct kvw_conn *conn, size_t most) KVW_MUST_CHECK;

/* Reads a key in the form of LMCache's EncodedObjectKey; hash has room for its bytes. */
bool kvw_cr_read_key(
	json_t *item, char hash[KVW_CE_HASH_MOST], struct kvw_ce_key *key) KVW_MUST_CHECK;

/* --- resolve.c: token ids as keys ------------------------------------------------------------- */

/* Token ids of a request, with what its keys have besides the hash. Borrowed from its body. */
struct kvw_cr_tokens {
	const json_t *ids; /* NULL: none */
	struct kvw_slice model, salt;
	uint32_t world; /* ranks that hold a chunk together */
	size_t chunks;  /* complete ones */
};

/* Reads model_name, world_size, token_ids and cache_salt. False: it is answered. needed: world_size
 * must be there, else it is 1. */
bool kvw_cr_read_tokens(struct kvw_conn *conn, json_t *object, bool needed,
	struct kvw_cr_tokens *tokens) KVW_MUST_CHECK;

/* Calls fn with the keys of the complete chunks, each chunk's ranks in turn, until it returns
 * false. groups: with every object group under which the directory has the chunk, too. */
typedef bool kvw_cr_key_fn(void *ctx, const struct kvw_ce_key *key);
void kvw_cr_each_key(struct kvw_coordinator *coordinator, const struct kvw_cr_tokens *tokens,
	bool groups, kvw_cr_key_fn *fn, void *ctx);

#endif
