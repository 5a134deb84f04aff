/*
 * opening.c - the beginning of an answer: its bytes before the first token, and the bytes held back
 * from the client until kvway can judge the answer.
 */
#include "proxy/opening.h"

#include <string.h>

#include "openai/event.h"
#include "proxy/busy.h"

size_t kvw_opening_skip(struct kvw_opening *o, const char *data, size_t len)
{
	bool at_event = o->line_ended;
	size_t skipped;

	o->line_ended = data[len - 1] == '\n';
	if (o->tokens >= KVW_TOKENS_SOME)
		return at_event && (data[0] == ':' || data[0] == 'e') &&
				       kvw_preamble_only(data, len)
			       ? len
			       : 0;
	skipped = kvw_preamble_skip(&o->preamble, data, len);
	if (o->preamble.opened)
		o->tokens = KVW_TOKENS_OPENED;
	return skipped;
}

/* Returns whether the first bytes do not show yet if they begin an error. */
static bool is_undecided(const struct kvw_opening *o)
{
	return o->first_len == 0 ||
	       kvw_event_beginning(o->first, o->first_len) == KVW_BEGINNING_UNKNOWN;
}

static void keep_first(struct kvw_opening *o, const char *data, size_t len)
{
	size_t room;

	if (o->first_len == 0) { /* the bytes of a line that might have been preamble */
		memcpy(o->first, o->preamble.text, o->preamble.len);
		o->first_len = o->preamble.len;
	}
	room = sizeof(o->first) - o->first_len;
	room = len < room ? len : room;
	memcpy(o->first + o->first_len, data, room);
	o->first_len += (uint8_t)room;
}

bool kvw_opening_find_error(struct kvw_opening *o, bool held, const char *data, size_t len)
{
	enum kvw_beginning begins;

	if (held && is_undecided(o)) {
		keep_first(o, data, len);
		begins = kvw_event_beginning(o->first, o->first_len);
	} else if (!o->error_event && len > 0 && (data[0] == 'd' || data[0] == 'e')) {
		begins = kvw_event_beginning(data, len);
	} else {
		return false;
	}
	if (begins != KVW_BEGINS_WITH_ERROR || kvw_event_blames_client(data, len))
		return false;
	o->error_event = true;
	o->full = kvw_busy_says(data, len);
	return true;
}

void kvw_opening_find_token(struct kvw_opening *o, bool stream, const char *data, size_t len)
{
	if (o->tokens >= KVW_TOKENS_SOME)
		return;
	if (stream)
		o->tokens = kvw_tokens_in_piece(o->tokens, data, len);
	else
		o->tokens = kvw_tokens_aborted(data, len) ? KVW_TOKENS_NONE : KVW_TOKENS_SOME;
	/* an event that only names the role: comments may still follow */
	if (o->tokens == KVW_TOKENS_OPENED)
		o->preamble = (struct kvw_preamble){0};
}

bool kvw_opening_lacks_token(const struct kvw_opening *o)
{
	return o->tokens <= KVW_TOKENS_OPENED || is_undecided(o);
}

/* --- held bytes --- */

bool kvw_held_keep(struct kvw_held *held, struct kvw_block_pool *pool, const char *data, size_t len)
{
	struct kvw_block *head = held->head;

	if (held->body.bytes == 0 && len <= kvw_block_room(head)) {
		memcpy(head->data + head->end, data, len);
		head->end += (uint32_t)len;
		return true;
	}
	return kvw_chain_append(&held->body, pool, data, len) == KVW_OK;
}

void kvw_held_charge(struct kvw_held *held, struct kvw_account *account)
{
	kvw_account_update(account, &held->memory, held->body.bytes);
}

int kvw_held_iov(const struct kvw_held *held, struct iovec *iov, int max)
{
	iov[0].iov_base = held->head->data + held->head->begin;
	iov[0].iov_len = kvw_block_used(held->head);
	return 1 + kvw_chain_iov(&held->body, iov + 1, max - 1);
}

void kvw_held_drop(struct kvw_held *held, struct kvw_block_pool *pool, struct kvw_account *account)
{
	kvw_block_put(pool, held->head);
	held->head = NULL;
	kvw_chain_clear(&held->body, pool);
	kvw_held_charge(held, account);
}
