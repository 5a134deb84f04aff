/* probe_share.c - applies a server's metrics to one of its workers. */
#include "fleet/probe_share.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"

enum kvw_err kvw_probe_share_create(struct kvw_worker *worker, struct kvw_probe_share **out)
{
	struct kvw_probe_share *share;

	if (!kvw_worker_hold(worker))
		return KVW_ENOTFOUND;
	share = calloc(1, sizeof(*share));
	if (share == NULL) {
		kvw_worker_let_go(worker);
		return KVW_ENOMEM;
	}
	share->worker = worker;
	share->draft_tokens = share->draft_accepted = -1;
	for (size_t i = 0; i < 3; i++)
		share->external_hits[i] = -1;
	*out = share;
	return KVW_OK;
}

void kvw_probe_share_destroy(struct kvw_probe_share *share)
{
	if (share == NULL)
		return;
	kvw_worker_let_go(share->worker);
	free(share);
}

static void set_foreign(struct kvw_fleet *fleet, struct kvw_probe_share *share,
	const struct kvw_foreign_found *found)
{
	share->foreign_ns =
		share->foreign.waiting + share->foreign.running > 0 ? kvw_clock_ns() : 0;
	kvw_fleet_set_foreign(fleet, share->worker, found);
}

static void take_foreign(
	struct kvw_fleet *fleet, struct kvw_probe_share *share, const struct kvw_scrape *scrape)
{
	struct kvw_load_sequences own = kvw_load_sequences(&share->worker->load);
	struct kvw_foreign_found found;

	kvw_foreign_read(&share->foreign, scrape, &own, kvw_clock_ns(), &found);
	set_foreign(fleet, share, &found);
}

static void take_room(struct kvw_probe_share *share, const struct kvw_scrape *scrape)
{
	struct kvw_load *load = &share->worker->load;
	struct kvw_room_page page = {
		.capacity_tokens = atomic_load(&share->worker->capacity_tokens),
		.usage = scrape->kv_usage,
		.running = scrape->requests_running,
		.waiting = scrape->requests_waiting,
		.foreign_running = kvw_load_foreign_running(load),
		.foreign_waiting = atomic_load(&load->foreign_waiting),
		.context = kvw_load_context(load),
	};

	kvw_load_set_room(load, kvw_room_read(&share->room, &page));
	atomic_store(&share->worker->kv_used,
		scrape->kv_usage < 0 ? 0 : (uint16_t)(1 + 1000 * scrape->kv_usage + 0.5));
}

/* Adds the growth of a worker's counter to a sum; a counter that fell has restarted at 0. */
static void take_growth(double now, double *before, _Atomic uint64_t *sum)
{
	if (now >= 0 && *before >= 0)
		atomic_fetch_add(sum, (uint64_t)(now >= *before ? now - *before : now));
	*before = now >= 0 ? now : *before;
}

/* Counts transfers after which the decoder computed the prompt itself: a decoder that does not
 * understand the parameters of a transfer, or cannot pull, does so without reporting it. Then the
 * external hits have not grown between the page before a transfer was noted and the page after it.
 * (A page may come before the transfer is noted, so that the page before counts, too.) */
static void take_external(struct kvw_probe_share *share, double now)
{
	struct kvw_worker *worker = share->worker;
	uint64_t noted = share->transfers[0] - share->transfers[1];

	if (now >= 0 && now == share->external_hits[2] && noted > 0) {
		if (atomic_fetch_add(&worker->recomputed, noted) == 0)
			kvw_warn("probe",
				"worker computes prompts that another worker has prefilled for it: "
				"does its KV connector work? url=%s",
				worker->url);
	}
	for (size_t i = 2; i > 0; i--) {
		share->external_hits[i] = share->external_hits[i - 1];
		share->transfers[i] = share->transfers[i - 1];
	}
	share->external_hits[0] = now;
	share->transfers[0] = atomic_load_explicit(&worker->transfers, memory_order_relaxed);
}

void kvw_probe_share_take(
	struct kvw_probe_share *share, struct kvw_fleet *fleet, const struct kvw_scrape *scrape)
{
	struct kvw_worker *worker = share->worker;

	if (scrape->progress_known)
		kvw_stall_read(&worker->stall, scrape->progress, scrape->running, kvw_clock_ns());
	if (scrape->capacity_known)
		kvw_fleet_set_capacity(worker, scrape->capacity_tokens, scrape->block_size);
	kvw_fleet_set_blends(worker, scrape->blends);
	take_external(share, scrape->external_hits);
	take_growth(scrape->draft_tokens, &share->draft_tokens, &worker->draft_tokens);
	take_growth(scrape->draft_accepted, &share->draft_accepted, &worker->draft_accepted);
	take_foreign(fleet, share, scrape);
	take_room(share, scrape);
}

/* A page that lacks a rank is ignored (the rank's engine has counted nothing yet): ranks are
 * numbered by their order in the page, so that its figures would go to the wrong workers. */
void kvw_probe_shares_take(struct kvw_probe_share *const *shares, struct kvw_fleet *fleet,
	const struct kvw_scrape_page *page)
{
	size_t last = KVW_RANKS_MOST;

	while (last > 0 && shares[last - 1] == NULL)
		last--;
	if (page->rank_count < last)
		return;
	for (size_t i = 0; i < page->rank_count; i++) {
		if (shares[i] == NULL) /* not a worker yet: members.c will add it */
			continue;
		atomic_store(&shares[i]->worker->global_rank, page->ranks[i].global);
		kvw_probe_share_take(shares[i], fleet, &page->ranks[i].said);
	}
}

bool kvw_probe_share_waits(
	struct kvw_probe_share *share, struct kvw_fleet *fleet, int64_t oldest_ns, int64_t now_ns)
{
	if (share->foreign_ns == 0)
		return false;
	if (now_ns - share->foreign_ns <= oldest_ns)
		return share->foreign.waiting > 0;
	kvw_foreign_restarted(&share->foreign);
	set_foreign(fleet, share, &(struct kvw_foreign_found){0});
	return false;
}

bool kvw_probe_share_is_silent(
	struct kvw_probe_share *share, struct kvw_fleet *fleet, int64_t now_ns)
{
	struct kvw_worker *worker = share->worker;
	int64_t limit_ns = fleet->config->upstream_stall_ms * KVW_NS_PER_MS;
	bool silent;

	if (kvw_worker_fell_asleep(worker))
		/* a sleeping engine's silence counts only from its waking on */
		kvw_stall_heard(&worker->stall, now_ns);
	if (limit_ns == 0)
		return false;
	if (kvw_ejection_state(&worker->ejection) != KVW_EJECTION_IN)
		limit_ns /= 3;
	silent = kvw_stall_silent_ns(&worker->stall, now_ns) > limit_ns / 10;
	kvw_fleet_set_stall(fleet, worker, kvw_stall_judge(&worker->stall, limit_ns, now_ns));
	return silent;
}
