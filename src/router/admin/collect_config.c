/* collect_config.c - writes samples about the configuration in force and the workers. */
#include <stdlib.h>

#include "admin/broadcast.h"
#include "admin/collect.h"
#include "admin/http.h"
#include "admin/reload.h"
#include "base/account.h"
#include "base/clock.h"
#include "fleet/discovery/source.h"
#include "fleet/members.h"
#include "state/state.h"
#include "takeover/state.h"
#include "tls/watch.h"

void kvw_collect_reloads(struct kvw_collect *collect)
{
	const struct kvw_reload_state *state = collect->metrics->sources.reload;

	if (state == NULL)
		return;
	kvw_sample_named(&collect->out, "result", "ok", atomic_load(&state->ok));
	kvw_sample_named(&collect->out, "result", "refused", atomic_load(&state->refused));
}

void kvw_collect_takeover(struct kvw_collect *collect)
{
	const struct kvw_takeover_state *state = collect->metrics->sources.takeover;
	uint64_t value = 0;

	if (state == NULL)
		return;
	switch (collect->arg) {
	case KVW_OF_TAKEOVER_ASKED:
		value = atomic_load(&state->asked);
		break;
	case KVW_OF_TAKEOVER_FAILED:
		value = atomic_load(&state->failed);
		break;
	case KVW_OF_TAKEOVER_REFUSED:
		value = atomic_load(&state->refused);
		break;
	case KVW_OF_TAKEOVER_UNDER_WAY:
		value = atomic_load(&state->under_way);
		break;
	case KVW_OF_TAKEOVER_ADOPTED:
		value = atomic_load(&state->adopted);
		break;
	default:
		kvw_sample_double(&collect->out, NULL, 0,
			(double)atomic_load(&state->took_ns) / KVW_NS_PER_S);
		return;
	}
	kvw_sample_u64(&collect->out, NULL, 0, value);
}

void kvw_collect_admin(struct kvw_collect *collect)
{
	const struct kvw_admin_http_state *state = collect->metrics->sources.admin;

	if (state != NULL)
		kvw_sample_u64(&collect->out, NULL, 0,
			collect->arg == KVW_OF_ADMIN_OPEN ? atomic_load(state->open)
							  : atomic_load(&state->refused));
}

void kvw_collect_broadcasts(struct kvw_collect *collect)
{
	const struct kvw_broadcast_state *state = collect->metrics->sources.broadcasts;

	if (state == NULL)
		return;
	if (collect->arg == KVW_OF_BROADCASTS_RUNNING) {
		kvw_sample_u64(&collect->out, NULL, 0, atomic_load(&state->running));
		return;
	}
	kvw_sample_named(&collect->out, "result", "answered", atomic_load(&state->answered));
	kvw_sample_named(&collect->out, "result", "deserted", atomic_load(&state->deserted));
	kvw_sample_named(&collect->out, "result", "given_up", atomic_load(&state->given_up));
	kvw_sample_named(&collect->out, "result", "refused", atomic_load(&state->refused));
}

void kvw_collect_memory(struct kvw_collect *collect)
{
	const struct kvw_account *memory = collect->metrics->sources.memory;

	if (memory != NULL)
		kvw_sample_u64(&collect->out, NULL, 0, kvw_account_bytes(memory));
}

void kvw_collect_config(struct kvw_collect *collect)
{
	const struct kvw_reload_state *state = collect->metrics->sources.reload;

	if (state == NULL)
		return;
	switch ((enum kvw_collect_of)collect->arg) {
	case KVW_OF_RELOAD_GOOD:
		kvw_sample_u64(&collect->out, NULL, 0, !atomic_load(&state->last_refused));
		break;
	case KVW_OF_RELOAD_TIME:
		kvw_sample_u64(&collect->out, NULL, 0, (uint64_t)atomic_load(&state->last_ok_s));
		break;
	case KVW_OF_RELOAD_RESTART:
		kvw_sample_u64(&collect->out, NULL, 0, atomic_load(&state->need_restart));
		break;
	default:
		abort(); /* cannot happen: metrics.def gives this collector another arg */
	}
}

void kvw_collect_state(struct kvw_collect *collect)
{
	const struct kvw_state_status *status = collect->metrics->sources.state;

	if (status == NULL)
		return;
	switch ((enum kvw_collect_of)collect->arg) {
	case KVW_OF_STATE_SNAPSHOTS:
		kvw_sample_named(&collect->out, "result", "ok", atomic_load(&status->written));
		kvw_sample_named(&collect->out, "result", "failed", atomic_load(&status->failed));
		kvw_sample_named(&collect->out, "result", "skipped", atomic_load(&status->skipped));
		break;
	case KVW_OF_STATE_BYTES:
		kvw_sample_u64(&collect->out, NULL, 0, atomic_load(&status->bytes));
		break;
	case KVW_OF_STATE_SECONDS:
		kvw_sample_double(&collect->out, NULL, 0,
			(double)atomic_load(&status->duration_ns) / (double)KVW_NS_PER_S);
		break;
	case KVW_OF_STATE_TIME:
		kvw_sample_i64(&collect->out, NULL, 0, atomic_load(&status->written_s));
		break;
	case KVW_OF_STATE_RECALLED:
		kvw_sample_named(&collect->out, "result", "ok", status->recalled == KVW_STATE_OK);
		kvw_sample_named(
			&collect->out, "result", "none", status->recalled == KVW_STATE_NONE);
		kvw_sample_named(
			&collect->out, "result", "refused", status->recalled == KVW_STATE_REFUSED);
		break;
	case KVW_OF_STATE_RECALLING:
		kvw_sample_u64(&collect->out, NULL, 0, atomic_load(&status->recalling));
		break;
	case KVW_OF_STATE_WORKERS:
		kvw_sample_u64(&collect->out, NULL, 0, status->workers);
		break;
	default:
		abort();
	}
}

static void collect_not_after(void *arg, const char *use, const char *path, int64_t not_after_s)
{
	struct kvw_collect *collect = arg;
	const struct kvw_label labels[] = {
		{"use", kvw_slice_of(use)}, {"file", kvw_slice_of(path)}};

	kvw_sample_i64(&collect->out, labels, 2, not_after_s);
}

void kvw_collect_certificates(struct kvw_collect *collect)
{
	struct kvw_tls_watch *watch =
		(struct kvw_tls_watch *)&collect->metrics->fleet->certificates;

	if (collect->arg == KVW_OF_NOT_AFTER) {
		kvw_tls_watch_each(watch, collect_not_after, collect);
		return;
	}
	if (collect->arg == KVW_OF_TLS_FLOODS) {
		kvw_sample_u64(&collect->out, NULL, 0, kvw_tls_watch_floods(watch));
		return;
	}
	kvw_sample_named(&collect->out, "result", "ok", atomic_load(&watch->renewed));
	kvw_sample_named(&collect->out, "result", "refused", atomic_load(&watch->refused));
}

static uint64_t listing_value(
	const struct kvw_member_listing *listing, int arg, int64_t now_ns)
{
	switch ((enum kvw_collect_of)arg) {
	case KVW_OF_LISTED:
		return atomic_load(&listing->listed);
	case KVW_OF_READABLE:
		return !atomic_load(&listing->unreadable);
	case KVW_OF_LIST_TIME:
		return (uint64_t)atomic_load(&listing->listed_s);
	case KVW_OF_UNREADABLE:
		return kvw_member_listing_unreadable_s(listing, now_ns);
	default:
		abort();
	}
}

void kvw_collect_discovery(struct kvw_collect *collect)
{
	const struct kvw_member_listing *listings = collect->metrics->sources.listings;

	for (int i = 0; listings != NULL && i < KVW_SOURCE_COUNT; i++)
		if (atomic_load(&listings[i].used))
			kvw_sample_named(&collect->out, "source",
				kvw_member_source_name((enum kvw_member_source)i),
				listing_value(&listings[i], collect->arg, collect->now_ns));
}

static double seconds_since(const _Atomic int64_t *since_ns, int64_t now_ns)
{
	int64_t since = atomic_load(since_ns);

	return since == 0 || since > now_ns ? 0 : (double)(now_ns - since) / KVW_NS_PER_S;
}

static void collect_errors(struct kvw_collect *collect, const struct kvw_source_ops *ops,
	const struct kvw_source_part *part)
{
	struct kvw_label labels[2] = {{"pool", kvw_slice_of(part->name)}, {.name = "kind"}};

	for (size_t kind = 0; ops->error_name(kind) != NULL; kind++) {
		labels[1].value = kvw_slice_of(ops->error_name(kind));
		kvw_sample_u64(&collect->out, labels, 2, atomic_load(&part->errors[kind]));
	}
}

static void collect_part(struct kvw_collect *collect, const struct kvw_source_ops *ops,
	const struct kvw_source_part *part)
{
	const struct kvw_label label = {"pool", kvw_slice_of(part->name)};
	const _Atomic int64_t *since_ns;

	switch ((enum kvw_collect_of)collect->arg) {
	case KVW_OF_EVENT_AGE:
		since_ns = &part->event_ns;
		break;
	case KVW_OF_RELIST_AGE:
		since_ns = &part->list_ns;
		break;
	case KVW_OF_FAILING:
		since_ns = &part->failing_since_ns;
		break;
	default:
		collect_errors(collect, ops, part);
		return;
	}
	kvw_sample_double(&collect->out, &label, 1, seconds_since(since_ns, collect->now_ns));
}

void kvw_collect_discovery_part(struct kvw_collect *collect)
{
	const struct kvw_metrics_sources *sources = &collect->metrics->sources;

	for (size_t i = 0; i < sources->discovery_count; i++) {
		const struct kvw_source *source = sources->discovery[i];
		const struct kvw_source_part *parts;
		size_t count = source->ops->parts == NULL ? 0 : source->ops->parts(source, &parts);

		for (size_t p = 0; p < count; p++)
			collect_part(collect, source->ops, &parts[p]);
	}
}

void kvw_collect_workers(struct kvw_collect *collect)
{
	const struct kvw_fleet *fleet = collect->metrics->fleet;
	uint64_t usable = 0, unprobed = 0, barred = 0, down = 0, broken = 0;

	for (size_t i = 0; i < fleet->count; i++) {
		const struct kvw_worker *worker = kvw_metrics_worker(collect->metrics, i);

		if (worker == NULL)
			continue;
		if (kvw_worker_usable(worker) &&
			atomic_load_explicit(&worker->health, memory_order_relaxed) ==
				KVW_HEALTH_UNKNOWN)
			unprobed++;
		else if (kvw_worker_usable(worker))
			usable++;
		else if (kvw_worker_is_barred(worker))
			barred++;
		else if (!kvw_worker_is_up(worker))
			down++;
		else
			broken++;
	}
	kvw_sample_named(&collect->out, "state", "usable", usable);
	kvw_sample_named(&collect->out, "state", "unprobed", unprobed);
	kvw_sample_named(&collect->out, "state", "barred", barred);
	kvw_sample_named(&collect->out, "state", "down", down);
	kvw_sample_named(&collect->out, "state", "broken", broken);
	kvw_sample_named(&collect->out, "state", "leaving",
		atomic_load_explicit(&fleet->leaving, memory_order_relaxed));
}

void kvw_collect_workers_by_role(struct kvw_collect *collect)
{
	uint64_t counts[3] = {0};

	for (size_t i = 0; i < collect->metrics->fleet->count; i++) {
		const struct kvw_worker *worker = kvw_metrics_worker(collect->metrics, i);

		if (worker != NULL)
			counts[worker->config.role]++;
	}
	for (enum kvw_role role = KVW_ROLE_BOTH; role <= KVW_ROLE_DECODE; role++)
		kvw_sample_named(&collect->out, "role", kvw_role_name(role), counts[role]);
}
