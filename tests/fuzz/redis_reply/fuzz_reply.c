/*
 * fuzz_reply.c - any bytes as a Redis server's replies, in any pieces.
 *
 * The first bytes say how large the command's room is and how the rest is cut. The stream is read
 * twice: whole, through the caller's buffer alone, and in those pieces, bulk strings directly into
 * their memory where the parser names it. Both must see the same replies, with the same bytes in
 * the same places, and write no byte outside them; what is kept of an array stays within its limit.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "redis/resp.h"

#define LEAD_MAX     16u
#define SEGMENT_MAX  64u
#define SEGMENTS     4u
#define HEADER_BYTES 12u
#define REPLIES_MAX  64u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* How one input is to be read. */
struct plan {
	uint32_t lead_room;
	uint32_t into_bytes[SEGMENTS];
	uint32_t element_limit;
	bool elements;
	uint8_t cuts[4];
};

/* One command with memory of exactly its room's size, so that a byte outside it is noticed. */
struct reader {
	struct kvw_redis_command c;
	struct iovec into[SEGMENTS];
	struct kvw_redis_resp p;
	enum kvw_redis_resp_state state;
	size_t at; /* bytes of the stream taken */
};

static void require(bool holds)
{
	if (!holds)
		abort();
}

static void *room(size_t bytes)
{
	void *memory = malloc(bytes > 0 ? bytes : 1);

	require(memory != NULL);
	memset(memory, 0x5a, bytes > 0 ? bytes : 1);
	return memory;
}

static void reader_begin(struct reader *r, const struct plan *plan)
{
	size_t at = r->at;

	*r = (struct reader){.at = at};
	r->c.lead = room(plan->lead_room);
	r->c.lead_room = plan->lead_room;
	for (size_t i = 0; i < SEGMENTS; i++)
		r->into[i] = (struct iovec){
			.iov_base = room(plan->into_bytes[i]), .iov_len = plan->into_bytes[i]};
	r->c.into = r->into;
	r->c.into_count = SEGMENTS;
	r->c.elements = plan->elements;
	r->c.element_limit = plan->element_limit;
	kvw_redis_resp_begin(&r->p, &r->c);
}

static void reader_end(struct reader *r)
{
	kvw_redis_resp_abandon(&r->p);
	kvw_redis_elements_free(r->c.found, r->c.element_count);
	free(r->c.lead);
	for (size_t i = 0; i < SEGMENTS; i++)
		free(r->into[i].iov_base);
}

static void read_whole(struct reader *r, const char *data, size_t size)
{
	size_t used;

	r->state = kvw_redis_resp_feed(&r->p, data + r->at, size - r->at, &used);
	require(used <= size - r->at);
	r->at += used;
}

static void read_cut(struct reader *r, const struct plan *plan, const char *data, size_t size)
{
	r->state = KVW_REDIS_RESP_MORE;
	for (size_t turn = 0; r->at < size && r->state == KVW_REDIS_RESP_MORE; turn++) {
		size_t n = 1u + plan->cuts[turn % sizeof(plan->cuts)], used = 0, count = 0;
		struct iovec pieces[SEGMENTS + 1];

		if (n > size - r->at)
			n = size - r->at;
		count = kvw_redis_resp_room(&r->p, pieces, SEGMENTS + 1);
		for (size_t i = 0; i < count && used < n; i++) {
			size_t part = n - used < pieces[i].iov_len ? n - used : pieces[i].iov_len;

			require(part > 0);
			memcpy(pieces[i].iov_base, data + r->at + used, part);
			used += part;
		}
		if (used > 0)
			kvw_redis_resp_arrived(&r->p, used);
		else
			r->state = kvw_redis_resp_feed(&r->p, data + r->at, n, &used);
		require(used > 0 && used <= n);
		r->at += used;
	}
}

static void same_elements(const struct kvw_redis_command *a, const struct kvw_redis_command *b)
{
	uint64_t cost = 0;

	require(a->element_count == b->element_count);
	for (size_t i = 0; i < a->element_count; i++) {
		const struct kvw_redis_element *x = &a->found[i], *y = &b->found[i];

		require(x->len == y->len && x->depth == y->depth && x->index == y->index);
		require((x->data == NULL) == (y->data == NULL));
		require(x->data == NULL ||
			(memcmp(x->data, y->data, x->len) == 0 && x->data[x->len] == '\0'));
		require(x->depth >= 1 && x->depth <= KVW_REDIS_RESP_DEPTH);
		cost += sizeof(*x) + (x->data != NULL ? x->len + 1 : 0);
	}
	require(cost <= a->element_limit);
}

static void same(const struct reader *a, const struct reader *b)
{
	require(a->state == b->state);
	if (a->state == KVW_REDIS_RESP_MORE)
		return;
	require(a->c.status == b->c.status);
	if (a->state == KVW_REDIS_RESP_BROKEN) {
		require(a->c.status == KVW_EPROTO && a->p.why != NULL && b->p.why != NULL);
		require(a->c.found == NULL && b->c.found == NULL);
		return;
	}
	require(a->at == b->at);
	require(a->c.reply == b->c.reply && a->c.reply != KVW_REDIS_NONE);
	require(a->c.integer == b->c.integer && a->c.bulk_bytes == b->c.bulk_bytes);
	require(a->c.lead_bytes == b->c.lead_bytes && strcmp(a->c.text, b->c.text) == 0);
	require(memcmp(a->c.lead, b->c.lead, a->c.lead_room) == 0);
	for (size_t i = 0; i < SEGMENTS; i++)
		require(memcmp(a->into[i].iov_base, b->into[i].iov_base, a->into[i].iov_len) == 0);
	same_elements(&a->c, &b->c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct reader whole = {0}, cut = {0};
	struct plan plan;
	const char *stream = (const char *)data + HEADER_BYTES;

	if (size < HEADER_BYTES)
		return 0;
	size -= HEADER_BYTES;
	plan = (struct plan){.lead_room = data[0] % (LEAD_MAX + 1),
		.elements = data[1] & 1,
		.element_limit = (uint32_t)data[2] << (data[1] >> 5)};
	for (size_t i = 0; i < SEGMENTS; i++)
		plan.into_bytes[i] = data[3 + i] % (SEGMENT_MAX + 1);
	memcpy(plan.cuts, data + 7, sizeof(plan.cuts));
	for (size_t i = 0; i < REPLIES_MAX && whole.at < size; i++) {
		bool done;

		reader_begin(&whole, &plan);
		reader_begin(&cut, &plan);
		read_whole(&whole, stream, size);
		read_cut(&cut, &plan, stream, size);
		same(&whole, &cut);
		done = whole.state == KVW_REDIS_RESP_DONE;
		reader_end(&whole);
		reader_end(&cut);
		if (!done)
			break;
	}
	return 0;
}
