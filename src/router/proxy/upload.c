/*
 * upload.c - the received bytes of one request: its head, and the part of its body that has
 * arrived.
 *
 * A body is seldom copied: an edit moves the following bytes within the edit's block of 8 or 64
 * KiB, and all other blocks stay as received. A chunked body first loses its framing, block by
 * block, and is then sent with its length.
 */
#include "proxy/upload.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

#define PIECES 64 /* limit of pieces of a body that are handled at a time */

enum kvw_err kvw_upload_feed(struct kvw_upload *u, kvw_body_data_fn on_data, void *arg)
{
	struct iovec iov[PIECES];
	int count = kvw_cursor_iov(&u->feed, iov, PIECES);

	for (int i = 0; i < count && !u->body.done; i++) {
		size_t used = 0;
		enum kvw_err err = kvw_body_feed(
			&u->body, iov[i].iov_base, iov[i].iov_len, on_data, arg, &used);

		if (err != KVW_OK)
			return err;
		kvw_cursor_advance(&u->feed, used);
		u->received += used;
	}
	return KVW_OK;
}

bool kvw_upload_charge(struct kvw_upload *u, struct kvw_account *account)
{
	uint64_t bytes = u->received - u->memory;

	if (!kvw_account_take(account, bytes))
		return false;
	u->memory += bytes;
	return true;
}

void kvw_upload_pace_begin(struct kvw_upload *u, int64_t now_ns)
{
	u->pace_from_ns = now_ns;
	u->pace_from = u->received;
}

bool kvw_upload_keeps_pace(const struct kvw_upload *u, int64_t now_ns, uint64_t rate)
{
	double seconds = (double)(now_ns - u->pace_from_ns) / KVW_NS_PER_S;

	return (double)(u->received - u->pace_from) >= seconds * (double)rate;
}

enum kvw_err kvw_upload_split(
	struct kvw_upload *u, struct kvw_block_pool *pool, struct kvw_chain *next)
{
	struct kvw_block *last = u->feed.block, *rest = last->next;
	size_t n = last->end - u->feed.offset;
	enum kvw_err err = KVW_OK;

	if (n > 0)
		err = kvw_chain_append(next, pool, last->data + u->feed.offset, n);
	last->end = u->feed.offset;
	last->next = NULL;
	u->in.last = last;
	while (rest != NULL) {
		struct kvw_block *block = rest;

		rest = block->next;
		block->next = NULL;
		kvw_chain_take(next, block);
	}
	return err;
}

/* --- of a whole body --- */

bool kvw_upload_read_again(const struct kvw_upload *u, kvw_body_data_fn on_data, void *arg)
{
	struct kvw_cursor cursor = kvw_upload_body(u);
	struct iovec iov[PIECES];
	struct kvw_body body;
	int count;

	kvw_body_begin(&body, u->framing, u->content_length, 0);
	while (!body.done && (count = kvw_cursor_iov(&cursor, iov, PIECES)) > 0) {
		for (int i = 0; i < count && !body.done; i++) {
			size_t used;

			if (kvw_body_feed(&body, iov[i].iov_base, iov[i].iov_len, on_data, arg,
				    &used) != KVW_OK)
				return false;
			kvw_cursor_advance(&cursor, used);
		}
	}
	return body.done;
}

uint64_t kvw_upload_payload(const struct kvw_upload *u)
{
	return u->framing == KVW_FRAME_LENGTH ? u->content_length : u->body.payload_bytes;
}

struct copy {
	char *at, *end;
};

static void copy_payload(void *arg, const char *data, size_t len)
{
	struct copy *copy = arg;

	if (len > (size_t)(copy->end - copy->at))
		len = (size_t)(copy->end - copy->at);
	memcpy(copy->at, data, len);
	copy->at += len;
}

bool kvw_upload_copy(const struct kvw_upload *u, char *to, size_t len)
{
	struct copy copy = {to, to + len};

	return kvw_upload_read_again(u, copy_payload, &copy) && copy.at == copy.end;
}

bool kvw_upload_whole(const struct kvw_upload *u, struct kvw_slice *out, char **owned)
{
	struct kvw_cursor begin = kvw_upload_body(u);
	size_t len = (size_t)kvw_upload_payload(u);

	*owned = NULL;
	if (u->framing == KVW_FRAME_LENGTH && begin.block != NULL &&
		begin.block->end - begin.offset >= len) {
		*out = (struct kvw_slice){begin.block->data + begin.offset, len};
		return true;
	}
	*owned = malloc(len + 1);
	*out = (struct kvw_slice){*owned, len};
	return *owned != NULL && kvw_upload_copy(u, *owned, len);
}

struct payload {
	struct kvw_block *block;
	uint32_t end; /* end of the bytes that stay in the block */
};

static void keep_payload(void *arg, const char *data, size_t len)
{
	struct payload *payload = arg;

	memmove(payload->block->data + payload->end, data, len);
	payload->end += (uint32_t)len;
}

/* The body was read once without an error, so that this cannot fail. */
static void drop_framing(struct kvw_upload *u)
{
	struct kvw_cursor begin = kvw_upload_body(u);
	struct kvw_body body;

	kvw_body_begin(&body, u->framing, 0, 0);
	for (struct kvw_block *block = u->in.first; block != NULL; block = block->next) {
		uint32_t from = block == begin.block ? begin.offset : block->begin;
		struct payload payload = {block, from};
		size_t used;

		if (kvw_body_feed(&body, block->data + from, block->end - from, keep_payload,
			    &payload, &used) != KVW_OK)
			break; /* cannot be */
		u->in.bytes -= block->end - payload.end;
		block->end = payload.end;
	}
	u->framing = KVW_FRAME_LENGTH;
	u->content_length = u->received = body.payload_bytes;
}

/* From the last edit to the first, so that the places of earlier edits do not move. */
enum kvw_err kvw_upload_change(
	struct kvw_upload *u, struct kvw_block_pool *pool, const struct kvw_splice *splice)
{
	enum kvw_err err = KVW_OK;

	if (u->framing == KVW_FRAME_CHUNKED)
		drop_framing(u);
	for (uint32_t i = splice->count; i > 0 && err == KVW_OK; i--) {
		const struct kvw_splice_edit *edit = &splice->edits[i - 1];
		struct kvw_cursor cursor = kvw_upload_body(u);

		kvw_cursor_advance(&cursor, (size_t)edit->at);
		err = kvw_chain_replace(&u->in, pool, &cursor, (size_t)edit->removed, edit->text);
	}
	if (err == KVW_OK) {
		u->content_length = (uint64_t)((int64_t)u->content_length + splice->growth);
		u->received = u->content_length;
	}
	u->feed = (struct kvw_cursor){u->in.last, u->in.last->end};
	return err;
}

/* --- bytes not needed again --- */

void kvw_upload_free_before(
	struct kvw_upload *u, struct kvw_block_pool *pool, const struct kvw_block *until)
{
	struct kvw_block *first = u->in.first;

	while (first->next != NULL && first != until && first->next != until) {
		struct kvw_block *sent = first->next;

		first->next = sent->next;
		kvw_block_put(pool, sent);
	}
}

void kvw_upload_free_body(struct kvw_upload *u, struct kvw_block_pool *pool)
{
	struct kvw_block *first = u->in.first;

	if (first == NULL)
		return;
	kvw_upload_free_before(u, pool, NULL);
	u->in.last = first;
}
