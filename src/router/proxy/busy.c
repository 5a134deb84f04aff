/*
 * busy.c - answers of a worker whose engine is full, and what kvway learns from them.
 */
#include "proxy/busy.h"

#include "base/find.h"

#define BROKE_OFF_MOST 4
/* longest pause: a worker whose Retry-After is longer is asked again after this time */
#define PAUSE_MOST_S 30

bool kvw_busy_by_head(const struct kvw_head *head, int64_t *pause_ns)
{
	const struct kvw_field *field = NULL;
	int64_t seconds = 0;

	if (head->status != 429 && head->status != 503)
		return false;
	field = kvw_head_find(head, KVW_SLICE("retry-after"));
	for (size_t i = 0; field != NULL && i < field->value.len && seconds < PAUSE_MOST_S; i++) {
		char c = field->value.data[i];

		if (c < '0' || c > '9') { /* a date */
			seconds = 0;
			break;
		}
		seconds = 10 * seconds + (c - '0');
	}
	*pause_ns = (seconds < PAUSE_MOST_S ? seconds : PAUSE_MOST_S) * KVW_NS_PER_S;
	return head->status == 429 || field != NULL;
}

bool kvw_busy_lacks_time(const struct kvw_head *head)
{
	return head->status == 429 && kvw_head_find(head, KVW_SLICE("retry-after")) == NULL;
}

/* Words that mean a full engine: those of vLLM, whose /v1/messages says in a stream only that it
 * did not understand an error of code 503; those of SGLang; the error type of Anthropic and TGI. */
static const struct kvw_slice words[] = {
	KVW_SLICE("engine is currently busy"),
	KVW_SLICE("prefill token backlog limit"),
	KVW_SLICE("'code': 503"),
	KVW_SLICE("queue is full"),
	KVW_SLICE("overloaded"),
};

bool kvw_busy_says(const char *data, size_t len)
{
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (kvw_find(data, len, words[i]) != NULL)
			return true;
	return false;
}

bool kvw_busy_broke_off(const struct kvw_exchange *x)
{
	const struct kvw_opening *o = &x->attempt.opening;

	return x->tried.broke_off < BROKE_OFF_MOST && x->response_state == KVW_RESPONSE_HELD &&
	       kvw_exchange_streams_tokens(x) && o->first_len == 0 &&
	       o->tokens == KVW_TOKENS_OPENED && kvw_busy_any(x);
}

void kvw_busy_note(struct kvw_exchange *x, int64_t pause_ns)
{
	struct kvw_loop *loop = x->loop;
	int64_t until_ns = loop->now_ns + pause_ns + KVW_LOAD_FORGET_NS;

	if (!kvw_exchange_computes(x))
		return;
	kvw_metrics_add(loop->metrics, KVW_COUNT_FULL_ANSWERS, 1);
	kvw_load_refused(
		&x->attempt.worker->load, x->attempt.sent_inflight, pause_ns, loop->now_ns);
	if (!kvw_busy_broke_off(x) && atomic_load_explicit(&loop->fleet->refused_until_ns,
					      memory_order_relaxed) < until_ns)
		atomic_store_explicit(
			&loop->fleet->refused_until_ns, until_ns, memory_order_relaxed);
}

bool kvw_busy_any(const struct kvw_exchange *x)
{
	return kvw_exchange_computes(x) &&
	       x->loop->now_ns < atomic_load_explicit(
					 &x->loop->fleet->refused_until_ns, memory_order_relaxed);
}

void kvw_busy_avoid(const struct kvw_exchange *x, struct kvw_fleet_table *table)
{
	int64_t now_ns = x->loop->now_ns;
	bool full = false, room = false;

	for (size_t i = 0; i < table->count; i++) {
		bool is_full = kvw_load_is_full(table->items[i].load, now_ns);

		full = full || (table->items[i].usable && is_full);
		room = room || (table->items[i].usable && !is_full);
	}
	if (!full || !room)
		return;
	table->version = 0; /* 0: the next read fills the table again */
	for (size_t i = 0; i < table->count; i++)
		if (kvw_load_is_full(table->items[i].load, now_ns))
			table->items[i].usable = false;
}

bool kvw_busy_other_has_room(const struct kvw_exchange *x, const struct kvw_fleet_table *table)
{
	for (size_t i = 0; i < table->count; i++)
		if (table->items[i].usable && table->items[i].id != x->attempt.worker->id &&
			!kvw_load_is_full(table->items[i].load, x->loop->now_ns))
			return true;
	return false;
}

bool kvw_busy_any_will_have_room(const struct kvw_exchange *x, const struct kvw_fleet_table *table)
{
	for (size_t i = 0; i < table->count; i++) {
		uint32_t own = table->items[i].id == x->attempt.worker->id ? 1 : 0;

		if (table->items[i].usable && kvw_load_inflight(table->items[i].load) > own)
			return true;
	}
	return false;
}
