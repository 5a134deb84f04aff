/*
 * upload.h - what a client has sent of one request, as bytes: its head, and what has come of its
 * body.
 *
 * These functions know no exchange and nothing of what the request asks for. An upload belongs to
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
	size_t head_len;          /* raw head: at in.first->data + head_offset */
	uint32_t head_offset;
	enum kvw_framing framing; /* of the body */
	uint64_t content_length;  /* 0 if no head field says it */
	struct kvw_body body;     /* reader of the body */
	struct kvw_cursor feed;   /* next body byte to look at */
	uint64_t received;        /* raw bytes of the body */
	uint64_t memory;          /* of them charged to limits.body_memory */
	int64_t pace_from_ns;     /* since when limits.body_rate counts */
	uint64_t pace_from;       /* `received` then */
};

static inline const char *kvw_upload_head(const struct kvw_upload *u)
{
	return u->in.first->data + u->head_offset;
}

/* Where the body begins. */
static inline struct kvw_cursor kvw_upload_body(const struct kvw_upload *u)
{
	return (struct kvw_cursor){u->in.first, u->head_offset + (uint32_t)u->head_len};
}

/* Bytes of the body lie at the end of `in` that kvw_upload_feed has not seen. */
static inline bool kvw_upload_has_news(const struct kvw_upload *u)
{
	return !u->body.done &&
	       (u->feed.offset < u->feed.block->end || u->feed.block->next != NULL);
}

static inline bool kvw_upload_has_body(const struct kvw_upload *u)
{
	return u->framing != KVW_FRAME_NONE && !(u->body.done && u->body.payload_bytes == 0);
}

/* Is the body larger than that, as announced or as received so far? */
static inline bool kvw_upload_exceeds(const struct kvw_upload *u, uint64_t bytes)
{
	return u->content_length > bytes || u->received > bytes;
}

/* Takes what has come, and gives its payload to on_data. Fails like kvw_body_feed. */
enum kvw_err kvw_upload_feed(
	struct kvw_upload *u, kvw_body_data_fn on_data, void *arg) KVW_MUST_CHECK;

/* Charges what has come to the account. False: it has no room for it. */
bool kvw_upload_charge(struct kvw_upload *u, struct kvw_account *account) KVW_MUST_CHECK;

/* From now on its pace counts. */
void kvw_upload_pace_begin(struct kvw_upload *u, int64_t now_ns);
/* Has it come at that many bytes a second since then? 0: at any pace. */
bool kvw_upload_keeps_pace(const struct kvw_upload *u, int64_t now_ns, uint64_t rate);

/* The body has ended: what lies behind it belongs to the next request, and is moved there.
 * KVW_ENOMEM: a part of it is lost. */
enum kvw_err kvw_upload_split(
	struct kvw_upload *u, struct kvw_block_pool *pool, struct kvw_chain *next) KVW_MUST_CHECK;

/* --- of a whole body --- */

/* Its payload once more, as it is now. False: it is not what it was. */
bool kvw_upload_read_again(
	const struct kvw_upload *u, kvw_body_data_fn on_data, void *arg) KVW_MUST_CHECK;

/* The payload, as workers get it: its bytes, and a copy of so many. */
uint64_t kvw_upload_payload(const struct kvw_upload *u);
bool kvw_upload_copy(const struct kvw_upload *u, char *to, size_t len) KVW_MUST_CHECK;

/* Changes the body as the plan says; a chunked one loses its framing. KVW_ENOMEM: it may be changed
 * in part, and must not be sent. */
enum kvw_err kvw_upload_change(struct kvw_upload *u, struct kvw_block_pool *pool,
	const struct kvw_splice *splice) KVW_MUST_CHECK;

/* --- what is not needed again; the first block stays, for the head --- */

/* Frees the blocks before `until`. */
void kvw_upload_free_before(
	struct kvw_upload *u, struct kvw_block_pool *pool, const struct kvw_block *until);
/* Frees the body. */
void kvw_upload_free_body(struct kvw_upload *u, struct kvw_block_pool *pool);

#endif
