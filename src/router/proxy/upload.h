/*
 * upload.h - the received bytes of one request: its head, and the part of its body that has
 * arrived.
 *
 * These functions know neither the exchange nor the meaning of the request. An upload belongs to
 * one loop.
 */
#ifndef KVW_UPLOAD_H
#define KVW_UPLOAD_H

#include "base/account.h"
#include "base/block.h"
#include "http/body.h"
#include "openai/splice.h"

/* Part of its exchange; zeroed with it. */
struct kvw_upload {
	struct kvw_chain in;      /* raw head and body as received; the first block stays */
	size_t head_len; /* length of the raw head, which begins at in.first->data + head_offset */
	uint32_t head_offset;
	enum kvw_framing framing; /* of the body */
	uint64_t content_length;  /* the head's Content-Length; 0: none */
	struct kvw_body body;     /* parser of the body's framing */
	struct kvw_cursor feed;   /* next body byte to parse */
	uint64_t received;        /* raw bytes of the body that have arrived */
	uint64_t memory;          /* bytes of the body charged to limits.body_memory */
	int64_t pace_from_ns;     /* since when limits.body_rate measures the body's speed */
	uint64_t pace_from;       /* `received` then */
};

static inline const char *kvw_upload_head(const struct kvw_upload *u)
{
	return u->in.first->data + u->head_offset;
}

/* Returns the place where the body begins. */
static inline struct kvw_cursor kvw_upload_body(const struct kvw_upload *u)
{
	return (struct kvw_cursor){u->in.first, u->head_offset + (uint32_t)u->head_len};
}

/* Returns whether `in` ends with bytes of the body that kvw_upload_feed has not parsed. */
static inline bool kvw_upload_has_news(const struct kvw_upload *u)
{
	return !u->body.done &&
	       (u->feed.offset < u->feed.block->end || u->feed.block->next != NULL);
}

static inline bool kvw_upload_has_body(const struct kvw_upload *u)
{
	return u->framing != KVW_FRAME_NONE && !(u->body.done && u->body.payload_bytes == 0);
}

/* Returns whether the body, as announced or as received so far, is longer than `bytes`. */
static inline bool kvw_upload_exceeds(const struct kvw_upload *u, uint64_t bytes)
{
	return u->content_length > bytes || u->received > bytes;
}

/* Parses the arrived bytes, and passes their payload to on_data. Fails like kvw_body_feed. */
enum kvw_err kvw_upload_feed(
	struct kvw_upload *u, kvw_body_data_fn on_data, void *arg) KVW_MUST_CHECK;

/* Charges the arrived bytes to the account. False: the account has no room for them. */
bool kvw_upload_charge(struct kvw_upload *u, struct kvw_account *account) KVW_MUST_CHECK;

/* Begins to measure the upload's pace. */
void kvw_upload_pace_begin(struct kvw_upload *u, int64_t now_ns);
/* Returns whether the body has arrived at `rate` bytes a second since the measurement began; rate
 * 0: always true. */
bool kvw_upload_keeps_pace(const struct kvw_upload *u, int64_t now_ns, uint64_t rate);

/* Moves the bytes after the body's end, which belong to the next request, to `next`. KVW_ENOMEM:
 * some of these bytes are lost. */
enum kvw_err kvw_upload_split(
	struct kvw_upload *u, struct kvw_block_pool *pool, struct kvw_chain *next) KVW_MUST_CHECK;

/* --- of a whole body --- */

/* Passes the payload, as it is now, to on_data once more. False: the bytes differ from the first
 * time. */
bool kvw_upload_read_again(
	const struct kvw_upload *u, kvw_body_data_fn on_data, void *arg) KVW_MUST_CHECK;

/* kvw_upload_payload returns the payload's length for workers; kvw_upload_copy copies so many
 * bytes. */
uint64_t kvw_upload_payload(const struct kvw_upload *u);
bool kvw_upload_copy(const struct kvw_upload *u, char *to, size_t len) KVW_MUST_CHECK;
/* The payload in one piece: borrowed from its block, or, where it lies in several, copied into
 * *owned, which the caller frees in any case. False: no memory. */
bool kvw_upload_whole(
	const struct kvw_upload *u, struct kvw_slice *out, char **owned) KVW_MUST_CHECK;

/* Changes the body as the plan says; a chunked body loses its framing. KVW_ENOMEM: the body may be
 * changed in part, and must not be sent. */
enum kvw_err kvw_upload_change(struct kvw_upload *u, struct kvw_block_pool *pool,
	const struct kvw_splice *splice) KVW_MUST_CHECK;

/* --- freeing bytes that are not needed again; the first block stays, for the head --- */

/* Frees the blocks before `until`. */
void kvw_upload_free_before(
	struct kvw_upload *u, struct kvw_block_pool *pool, const struct kvw_block *until);
/* Frees the body. */
void kvw_upload_free_body(struct kvw_upload *u, struct kvw_block_pool *pool);

#endif
