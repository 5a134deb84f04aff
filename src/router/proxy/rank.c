/* rank.c - the field X-data-parallel-rank of requests to a data-parallel rank (fleet/ranks.h). */
#include "proxy/rank.h"

#include "proxy/loop.h"

/* how often the numbers of one request may be refused before it is sent without one */
#define REFUSALS_MOST 2
/* most bytes before a body's first member: a brace, white space, a byte order mark */
#define BEFORE_MOST 24

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

uint8_t kvw_rank_place(const struct kvw_exchange *x)
{
	const struct kvw_scan_places *places = kvw_scan_places(x->scan);

	return x->whole && x->scanned && x->path.rank_in_body && !places->ranked &&
			       !places->empty && places->open <= BEFORE_MOST
		       ? (uint8_t)places->open
		       : 0;
}

bool kvw_rank_lead(struct kvw_exchange *x, struct kvw_writer *w)
{
	static const struct kvw_splice no_edit = {.count = 0};
	struct kvw_attempt *a = &x->attempt;
	char before[BEFORE_MOST];

	a->led = 0;
	if (!a->rank_sent || x->rank_at == 0)
		return false;
	if (x->upload.framing == KVW_FRAME_CHUNKED &&
		kvw_upload_change(&x->upload, &x->loop->blocks, &no_edit) != KVW_OK)
		return false;
	if (!kvw_upload_copy(&x->upload, before, x->rank_at))
		return false; /* cannot be: the body passed before */
	a->led = x->rank_at;
	kvw_write(w, (struct kvw_slice){before, a->led});
	kvw_write_literal(w, "\"routed_dp_rank\":");
	kvw_write_u64(w, (uint64_t)a->rank_number);
	kvw_write_literal(w, ",");
	return true;
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
