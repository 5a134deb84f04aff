/* early.c - see early.h. */
#include "proxy/early.h"

#include <string.h>

bool kvw_early_possible(const struct kvw_exchange *x)
{
	return x->event_stream && x->status == 200 && kvw_exchange_computes(x);
}

size_t kvw_early_bytes(struct kvw_exchange *x, const char *data, size_t len)
{
	struct kvw_attempt *a = &x->attempt;
	bool at_event = x->line_ended;
	size_t skipped;

	x->line_ended = data[len - 1] == '\n';
	if (a->tokens >= KVW_TOKENS_SOME)
		return at_event && (data[0] == ':' || data[0] == 'e') && kvw_preamble_only(data, len) ? len : 0;
	skipped = kvw_preamble_skip(&x->preamble, data, len);
	if (x->preamble.opened)
		a->tokens = KVW_TOKENS_OPENED;
	return skipped;
}

void kvw_early_charge(struct kvw_exchange *x)
{
	kvw_account_update(x->loop->shared->memory, &x->early_memory, x->early.bytes);
}

bool kvw_early_keep(struct kvw_exchange *x, const char *data, size_t len)
{
	struct kvw_block *head = x->answer_head;

	if (x->early.bytes == 0 && len <= kvw_block_room(head)) {
		memcpy(head->data + head->end, data, len);
		head->end += (uint32_t)len;
		return true;
	}
	return kvw_chain_append(&x->early, &x->loop->blocks, data, len) == KVW_OK;
}
