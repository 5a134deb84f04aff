/* history.c - keeps a sample of all sums every 30 seconds, and of transfers every minute. */
#include "status/history.h"

#include <string.h>

void kvw_history_tick(
	struct kvw_history *history, const struct kvw_metrics *metrics, int64_t now_ns)
{
	struct kvw_history_sample *sample = &history->samples[history->newest];
	uint64_t waiting = (uint64_t)kvw_metrics_gauge_sum(metrics, KVW_GAUGE_WAITING);

	if (waiting > history->waiting_most)
		history->waiting_most = waiting;
	if (history->count > 0 && now_ns - sample->at_ns < KVW_HISTORY_STEP_NS)
		return;
	if (history->count > 0)
		history->newest = (history->newest + 1) % (KVW_HISTORY_STEPS + 1);
	if (history->count <= KVW_HISTORY_STEPS)
		history->count++;
	sample = &history->samples[history->newest];
	sample->at_ns = now_ns;
	sample->waiting_most = history->waiting_most;
	history->waiting_most = waiting;
	kvw_metrics_totals(metrics, now_ns, &sample->totals);
}

static struct kvw_moved moved_until_now(const struct kvw_worker *worker)
{
	return (struct kvw_moved){
		atomic_load(&worker->transfers), atomic_load(&worker->recomputed)};
}

void kvw_history_note_moved(
	struct kvw_history *history, const struct kvw_fleet *fleet, int64_t now_ns)
{
	if (history->moved_ns != 0 && now_ns - history->moved_ns < KVW_MOVED_STEP_NS)
		return;
	history->moved_ns = now_ns;
	memmove(history->moved[1], history->moved[0],
		sizeof(history->moved) - sizeof(history->moved[0]));
	for (size_t i = 0; i < fleet->count; i++)
		history->moved[0][i] = moved_until_now(fleet->workers[i]);
}

struct kvw_moved kvw_history_moved(
	const struct kvw_history *history, const struct kvw_worker *worker)
{
	struct kvw_moved before = history->moved[KVW_MOVED_STEPS - 1][worker->id];
	struct kvw_moved now = moved_until_now(worker);

	/* else the slot had another worker then */
	if (now.transfers >= before.transfers && now.recomputed >= before.recomputed) {
		now.transfers -= before.transfers;
		now.recomputed -= before.recomputed;
	}
	/* A worker's metrics show a recomputed prompt later than its answer does. */
	if (now.transfers < now.recomputed)
		now.transfers = now.recomputed;
	return now;
}

/* Returns the sample `back` steps before the newest. */
static const struct kvw_history_sample *sample_at(const struct kvw_history *history, size_t back)
{
	return &history->samples[(history->newest + KVW_HISTORY_STEPS + 1 - back) %
				 (KVW_HISTORY_STEPS + 1)];
}

const struct kvw_history_sample *kvw_history_before(
	const struct kvw_history *history, int64_t age_ns, int64_t now_ns)
{
	size_t back = 0;

	while (back + 1 < history->count && now_ns - sample_at(history, back)->at_ns < age_ns)
		back++;
	return sample_at(history, back);
}

uint64_t kvw_history_grown(const struct kvw_metrics_totals *from,
	const struct kvw_metrics_totals *to, enum kvw_total total)
{
	uint64_t before = from->counts[total], after = to->counts[total];

	return after > before ? after - before : 0;
}

/* The arrays; each adds up the sums from `first` to `last`. */
static const struct {
	const char *name;
	enum kvw_total first, last;
} columns[] = {
	{"requests", KVW_TOTAL_OK, KVW_TOTAL_LEFT},
	{"refused", KVW_TOTAL_REFUSED, KVW_TOTAL_REFUSED},
	{"failed", KVW_TOTAL_FAILED, KVW_TOTAL_FAILED},
	{"prompt_tokens", KVW_TOTAL_PROMPT, KVW_TOTAL_PROMPT},
	{"cached_tokens", KVW_TOTAL_CACHED, KVW_TOTAL_CACHED},
	{"completion_tokens", KVW_TOTAL_COMPLETION, KVW_TOTAL_COMPLETION},
	{"promises_kept", KVW_TOTAL_KEPT, KVW_TOTAL_KEPT},
	{"promises_missed", KVW_TOTAL_LATE, KVW_TOTAL_BROKEN},
};

#define COLUMNS (sizeof(columns) / sizeof(columns[0]))

static json_t *first_token_json(const struct kvw_metrics *metrics,
	const struct kvw_metrics_totals *from, const struct kvw_metrics_totals *to, double share)
{
	double seconds = kvw_totals_first_token(metrics, from, to, share);

	return seconds < 0 ? json_null() : json_integer((json_int_t)(seconds * 1e3 + 0.5));
}

/* Appends what came between two totals to each array. */
static void put_step(json_t *root, const struct kvw_metrics *metrics,
	const struct kvw_metrics_totals *from, const struct kvw_metrics_totals *to,
	uint64_t waiting)
{
	for (size_t i = 0; i < COLUMNS; i++) {
		uint64_t sum = 0;

		for (int total = (int)columns[i].first; total <= (int)columns[i].last; total++)
			sum += kvw_history_grown(from, to, (enum kvw_total)total);
		json_array_append_new(
			json_object_get(root, columns[i].name), json_integer((json_int_t)sum));
	}
	json_array_append_new(
		json_object_get(root, "waiting_most"), json_integer((json_int_t)waiting));
	json_array_append_new(
		json_object_get(root, "ttft_p50_ms"), first_token_json(metrics, from, to, 0.5));
	json_array_append_new(
		json_object_get(root, "ttft_p90_ms"), first_token_json(metrics, from, to, 0.9));
}

json_t *kvw_history_json(const struct kvw_history *history, const struct kvw_metrics *metrics,
	const struct kvw_metrics_totals *now, int64_t now_ns)
{
	json_t *root = json_object();
	const struct kvw_history_sample *from = sample_at(history, history->count - 1);

	json_object_set_new(root, "step_s", json_integer(KVW_HISTORY_STEP_NS / KVW_NS_PER_S));
	json_object_set_new(root, "last_s",
		json_real((double)(now_ns - sample_at(history, 0)->at_ns) / KVW_NS_PER_S));
	for (size_t i = 0; i < COLUMNS; i++)
		json_object_set_new(root, columns[i].name, json_array());
	json_object_set_new(root, "waiting_most", json_array());
	json_object_set_new(root, "ttft_p50_ms", json_array());
	json_object_set_new(root, "ttft_p90_ms", json_array());
	for (size_t back = history->count - 1; back-- > 0;) {
		const struct kvw_history_sample *to = sample_at(history, back);

		put_step(root, metrics, &from->totals, &to->totals, to->waiting_most);
		from = to;
	}
	put_step(root, metrics, &from->totals, now,
		now->waiting > history->waiting_most ? now->waiting : history->waiting_most);
	return root;
}
