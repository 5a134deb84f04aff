/* rank.c - the field X-data-parallel-rank of requests to a data-parallel rank (fleet/ranks.h). */
#include "proxy/rank.h"

#include "proxy/loop.h"

/* how often the numbers of one request may be refused before it is sent without one */
#define REFUSALS_MOST 2

int64_t kvw_rank_write(struct kvw_worker *worker, struct kvw_head *head, bool sure, int64_t now_ns,
	struct kvw_writer *w)
{
	int64_t number = kvw_rank_number(worker, sure, now_ns);

	for (size_t i = 0; i < head->field_count; i++)
		if (kvw_slice_equal_nocase(head->fields[i].name, KVW_SLICE("x-data-parallel-rank")))
			head->fields[i].hop_by_hop = true;
	if (number == KVW_RANK_NONE)
		return number;
	kvw_write_literal(w, "X-data-parallel-rank: ");
	kvw_write_u64(w, (uint64_t)number);
	kvw_write_literal(w, "\r\n");
	return number;
}

void kvw_rank_write_field(struct kvw_exchange *x, struct kvw_head *head, struct kvw_writer *w)
{
	struct kvw_attempt *a = &x->attempt;
	struct kvw_writer unwritten = *w;

	a->rank_sent = false;
	if (a->worker->rank == KVW_RANK_NONE)
		return;
	if (x->tried.rank_refusals >= REFUSALS_MOST) {
		(void)kvw_rank_write(a->worker, head, false, x->loop->now_ns, &unwritten);
		return;
	}
	a->rank_number = kvw_rank_write(a->worker, head, !x->whole, x->loop->now_ns, w);
	a->rank_sent = a->rank_number != KVW_RANK_NONE;
}

void kvw_rank_answered(struct kvw_exchange *x, int status)
{
	struct kvw_attempt *a = &x->attempt;

	if (!a->rank_sent)
		return;
	if (status >= 200 && status < 300)
		kvw_rank_accepted(a->worker, a->rank_number);
	a->opening.rank_asked = status == 400 && x->whole;
}

void kvw_rank_leave(struct kvw_exchange *x)
{
	struct kvw_attempt *a = &x->attempt;

	kvw_metrics_add(x->loop->metrics, KVW_COUNT_RANK_REFUSALS, 1);
	kvw_rank_refused(a->worker, a->rank_number, x->loop->now_ns);
	x->tried.rank_refusals++;
	kvw_attempt_excused(a, KVW_EXCUSE_LACKS, "it refuses this number of its rank");
}
