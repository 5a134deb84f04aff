/*
 * fleet.c - answers the loops' questions about workers: candidates, health, and what is learned of
 * models; fleet.h has the interface.
 */
#include "fleet/fleet_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "fleet/epoch.h"
#include "fleet/scrape.h"
#include "base/log.h"
#include "base/search.h"
#include "tls/tls.h"

#define Q16 65536.0
#define FOREIGN_MOST_NS (60.0 * (double)KVW_NS_PER_S)

size_t kvw_fleet_usable_count(const struct kvw_fleet *fleet)
{
	size_t n = 0;

	for (size_t i = 0; i < fleet->count; i++) {
		const struct kvw_worker *worker = kvw_fleet_worker(fleet, i);

		n += worker != NULL && kvw_worker_usable(worker);
	}
	return n;
}

static int compare_name(const void *key, const void *items, size_t at)
{
	return kvw_search_order(*(const struct kvw_slice *)key,
		((const struct kvw_model_entry *)items)[at].model->name);
}

static const struct kvw_model_entry *find_model(const struct kvw_fleet_view *view,
	struct kvw_slice name)
{
	bool there;
	size_t at = kvw_search(&name, view->models, view->model_count, compare_name, &there);

	return there ? &view->models[at] : NULL;
}

bool kvw_fleet_lists(
	const struct kvw_fleet *fleet, const struct kvw_worker *worker, struct kvw_slice model)
{
	const struct kvw_model_entry *entry =
		find_model(atomic_load_explicit(&fleet->view, memory_order_acquire), model);

	return entry != NULL && (entry->workers[worker->id / 64] >> (worker->id % 64) & 1) != 0;
}

/* Sets the states of a worker that end by time. Most workers have none, and then no clock is read.
 * True: the state will change with time alone. */
static bool note_passing_state(
	const struct kvw_fleet *fleet, struct kvw_worker *worker, struct kvw_candidate *item)
{
	int64_t slow_since =
		atomic_load_explicit(&worker->slow_since_ns, memory_order_relaxed);
	bool ejected = kvw_ejection_state(&worker->ejection) != KVW_EJECTION_IN;
	int64_t now_ns;

	if (slow_since == 0 && !ejected)
		return false;
	now_ns = kvw_clock_ns();
	item->usable = item->usable && kvw_ejection_allows(&worker->ejection, now_ns);
	if (slow_since != 0) {
		double ms = (double)(now_ns - slow_since) / (double)KVW_NS_PER_MS;
		double share = ms / (double)fleet->config->routing_slow_start_ms;

		if (share >= 1) /* slow start is over, unless it has begun again */
			(void)atomic_compare_exchange_strong(
				&worker->slow_since_ns, &slow_since, 0);
		else if ((float)share < item->share)
			item->share = (float)share;
	}
	return true;
}

static struct kvw_model *only_base(const struct kvw_fleet_view *view)
{
	struct kvw_model *only = NULL;

	for (size_t i = 0; i < view->model_count; i++) {
		struct kvw_model *model = view->models[i].model;

		if (atomic_load_explicit(&model->adapter, memory_order_relaxed))
			continue;
		if (only != NULL)
			return NULL;
		only = model;
	}
	return only;
}

struct kvw_model *kvw_fleet_meant_model(const struct kvw_fleet *fleet)
{
	return only_base(atomic_load_explicit(&fleet->view, memory_order_acquire));
}

bool kvw_fleet_divided(const struct kvw_fleet *fleet)
{
	const struct kvw_fleet_view *view =
		atomic_load_explicit(&fleet->view, memory_order_acquire);
	uint64_t any[KVW_MODEL_WORDS] = {0};

	for (size_t i = 0; i < view->model_count; i++)
		for (size_t w = 0; w < KVW_MODEL_WORDS; w++)
			any[w] |= view->models[i].workers[w];
	for (size_t i = 0; i < view->model_count; i++)
		if (!atomic_load_explicit(&view->models[i].model->adapter, memory_order_relaxed) &&
			memcmp(view->models[i].workers, any, sizeof(any)) == 0)
			return false;
	return view->model_count > 0;
}

/* The workers that serve a model. */
struct service {
	const struct kvw_model_entry *serves; /* NULL: any worker */
	struct kvw_model *model;              /* NULL: the request named none, or an unknown one */
	bool known;
	uint64_t version; /* version of the candidates, if time alone changes none of them */
};

/* Limit of models per view whose candidates have versions. */
#define VERSION_MODELS (UINT64_C(1) << 16)

static struct service find_service(const struct kvw_fleet *fleet, struct kvw_slice name)
{
	/* Read before the workers' states, so that a change in between is counted as newer. */
	uint64_t changes = atomic_load_explicit(&fleet->changes, memory_order_acquire);
	const struct kvw_fleet_view *view =
		atomic_load_explicit(&fleet->view, memory_order_acquire);
	struct service service = {.known = true, .version = changes * VERSION_MODELS};

	if (name.len == 0) {
		service.model = only_base(view);
		return service;
	}
	if (memchr(name.data, '\0', name.len) == NULL)
		service.serves = find_model(view, name);
	service.known = service.serves != NULL;
	if (service.known) {
		uint64_t place = (uint64_t)(service.serves - view->models) + 1;

		service.model = service.serves->model;
		service.version = place < VERSION_MODELS ? service.version + place : 0;
	}
	return service;
}

void kvw_fleet_use_ejected(
	const struct kvw_fleet *fleet, struct kvw_candidate *items, size_t count)
{
	bool usable = false;

	for (size_t i = 0; i < count; i++) {
		const struct kvw_worker *worker = fleet->workers[items[i].id];

		items[i].usable = kvw_worker_is_up(worker) && !kvw_worker_is_barred(worker);
		usable = usable || items[i].usable;
	}
	for (size_t i = 0; i < count && !usable; i++) {
		const struct kvw_worker *worker = fleet->workers[items[i].id];

		items[i].usable = kvw_worker_is_late(worker) && !kvw_worker_is_barred(worker);
	}
}

/* Fills the candidates and returns their number. Sets *passing: one of them will change with time
 * alone. */
static size_t fill_candidates(const struct kvw_fleet *fleet, const struct kvw_model_entry *serves,
	struct kvw_candidate *items, bool *passing)
{
	size_t n = 0;
	bool usable = false;

	*passing = false;
	for (size_t i = 0; i < fleet->count; i++) {
		struct kvw_worker *worker = kvw_fleet_worker(fleet, i);

		if (worker == NULL ||
			(serves != NULL && (serves->workers[i / 64] >> (i % 64) & 1) == 0))
			continue;
		items[n] = (struct kvw_candidate){
			.id = worker->id,
			.server = worker->lead->id,
			.generation =
				atomic_load_explicit(&worker->generation, memory_order_relaxed),
			.key = worker->key,
			.load = &worker->load,
			.capacity_tokens = atomic_load_explicit(
				&worker->capacity_tokens, memory_order_relaxed),
			.block_size =
				atomic_load_explicit(&worker->block_size, memory_order_relaxed),
			.share = atomic_load_explicit(&worker->weight, memory_order_relaxed),
			.role = (uint8_t)worker->config.role,
			.blends = atomic_load_explicit(&worker->blends, memory_order_relaxed),
			.usable = kvw_worker_is_up(worker) && !kvw_worker_is_barred(worker) &&
				  kvw_stall_state(&worker->stall) == KVW_STALL_NONE,
		};
		*passing |= note_passing_state(fleet, worker, &items[n]);
		usable = usable || items[n].usable;
		n++;
	}
	if (!usable)
		kvw_fleet_use_ejected(fleet, items, n);
	return n;
}

size_t kvw_fleet_candidates(const struct kvw_fleet *fleet, struct kvw_slice model,
	struct kvw_candidate *items, bool *known, struct kvw_model **entry)
{
	struct service service = find_service(fleet, model);
	bool passing;

	*known = service.known;
	*entry = service.model;
	return service.known ? fill_candidates(fleet, service.serves, items, &passing) : 0;
}

void kvw_fleet_read(const struct kvw_fleet *fleet, struct kvw_slice model,
	struct kvw_fleet_table *table, bool *known, struct kvw_model **entry)
{
	struct service service = find_service(fleet, model);
	bool passing;

	*known = service.known;
	*entry = service.model;
	if (service.known && service.version != 0 && table->version == service.version)
		return;
	table->version = 0;
	table->count = 0;
	if (!service.known)
		return;
	table->count = fill_candidates(fleet, service.serves, table->items, &passing);
	if (!passing)
		table->version = service.version;
}

void kvw_fleet_judge(struct kvw_fleet *fleet, struct kvw_worker *worker, enum kvw_grade grade,
	bool trial, const char *why, int64_t now_ns)
{
	int64_t for_ms = 0;

	switch (kvw_ejection_judge(
		&fleet->ejections, &worker->ejection, grade, trial, now_ns, &for_ms)) {
	case KVW_EJECTION_EJECTED:
		kvw_warn("fleet",
			"worker is ejected after bad answers url=%s for_ms=%lld why=\"%s\"",
			worker->url, (long long)for_ms, why);
		break;
	case KVW_EJECTION_BACK:
		kvw_info("fleet", "ejected worker is back after a good answer url=%s", worker->url);
		kvw_fleet_start_slowly(fleet, worker);
		break;
	default:
		if (!trial)
			return;
	}
	kvw_fleet_changed(&fleet->changes);
}

bool kvw_fleet_picked(struct kvw_fleet *fleet, struct kvw_worker *worker, int64_t now_ns)
{
	bool trial = kvw_ejection_state(&worker->ejection) == KVW_EJECTION_OUT &&
		     kvw_ejection_try(&fleet->ejections, &worker->ejection, now_ns);

	if (trial)
		kvw_fleet_changed(&fleet->changes);
	return trial;
}

/* Least and greatest bytes per token that are believed. */
#define UNITS_LEAST 0.25
#define UNITS_MOST  64.0

void kvw_fleet_remember_model(
	struct kvw_fleet *fleet, struct kvw_slice name, uint32_t units_per_token_q16)
{
	struct kvw_remembered_model *grown;
	char *copy;

	if (fleet->remembered_count == KVW_REMEMBERED_MOST ||
		units_per_token_q16 < UNITS_LEAST * Q16 || units_per_token_q16 > UNITS_MOST * Q16)
		return;
	copy = strndup(name.data, name.len);
	grown = copy == NULL ? NULL
			     : realloc(fleet->remembered,
				       (fleet->remembered_count + 1) * sizeof(*grown));
	if (grown == NULL) {
		free(copy);
		return;
	}
	fleet->remembered = grown;
	grown[fleet->remembered_count++] = (struct kvw_remembered_model){copy, units_per_token_q16};
	for (size_t i = 0; i < fleet->model_total; i++) {
		uint32_t unknown = 0;

		if (fleet->models[i] != NULL && strcmp(fleet->models[i]->name, copy) == 0)
			(void)atomic_compare_exchange_strong(&fleet->models[i]->units_per_token_q16,
				&unknown, units_per_token_q16);
	}
}

/*
 * Learns the bytes per token, as a moving average over some 32 answers. A short prompt counts less:
 * the chat template's own tokens are a larger part of it. The ratio of a prompt that is mostly not
 * text (an image is few bytes and many hundred tokens) is limited to a factor of two around the
 * average, so that no single kind of request dominates it.
 */
void kvw_model_learn(struct kvw_model *model, uint64_t units, uint32_t prompt_tokens)
{
	double seen, old, weight;

	if (units < 256 || prompt_tokens < 32)
		return; /* too short: the template's own tokens weigh too much */
	seen = (double)units / prompt_tokens;
	if (seen < UNITS_LEAST || seen > UNITS_MOST)
		return;
	old = atomic_load_explicit(&model->units_per_token_q16, memory_order_relaxed) / Q16;
	if (old > 0) {
		weight = prompt_tokens < 512 ? prompt_tokens / 512.0 : 1;
		seen = seen > old * 2 ? old * 2 : seen < old / 2 ? old / 2 : seen;
		/* Loops may write at the same time: then one sample is lost, which does no harm. */
		seen = old + (seen - old) * weight / 32;
	}
	atomic_store_explicit(
		&model->units_per_token_q16, (uint32_t)(seen * Q16 + 0.5), memory_order_relaxed);
}

float kvw_model_tokens_per_unit(const struct kvw_model *model, double prior_bytes_per_token)
{
	uint32_t learned = model == NULL ? 0
					 : atomic_load_explicit(&model->units_per_token_q16,
						   memory_order_relaxed);

	return learned == 0 ? (float)(1.0 / prior_bytes_per_token) : (float)(Q16 / learned);
}

float kvw_fleet_tokens_per_unit(const struct kvw_fleet *fleet, const struct kvw_model *model,
	const struct kvw_route_request *request, struct kvw_ratio_keys *keys)
{
	float known;

	kvw_ratio_keys_of(request, keys);
	if (request->token_ids)
		return 1;
	known = kvw_ratios_find(fleet->ratios, keys);
	return known > 0 ? known
			 : kvw_model_tokens_per_unit(model, fleet->config->routing_bytes_per_token);
}

void kvw_fleet_set_probe(struct kvw_fleet *fleet, struct kvw_worker *worker, bool ok,
	const char *why)
{
	struct fleet *self = (struct fleet *)fleet;
	uint8_t health = atomic_load(&worker->health);

	(void)snprintf(worker->probe_fault, sizeof(worker->probe_fault), "%s", ok ? "" : why);
	if (ok) {
		self->bad_in_row[worker->id] = 0;
		self->good_in_row[worker->id]++;
		if (health == KVW_HEALTH_UP ||
			(health == KVW_HEALTH_DOWN && self->good_in_row[worker->id] <
							      (uint64_t)fleet->config->health_rise))
			return;
		if (health == KVW_HEALTH_DOWN) {
			atomic_fetch_sub_explicit(&fleet->down, 1, memory_order_relaxed);
			kvw_ejection_hasten(&fleet->ejections, &worker->ejection, kvw_clock_ns());
			kvw_fleet_start_slowly(fleet, worker);
		}
		atomic_store(&worker->health, (uint8_t)KVW_HEALTH_UP);
		kvw_fleet_changed(&fleet->changes);
		kvw_info("fleet", "worker is in url=%s", worker->url);
		return;
	}
	atomic_fetch_add(&worker->probes_failed, 1);
	self->good_in_row[worker->id] = 0;
	self->bad_in_row[worker->id]++;
	if (health == KVW_HEALTH_DOWN ||
		self->bad_in_row[worker->id] < (uint64_t)fleet->config->health_fall)
		return;
	atomic_store(&worker->health, (uint8_t)KVW_HEALTH_DOWN);
	atomic_fetch_add_explicit(&fleet->down, 1, memory_order_relaxed);
	kvw_fleet_changed(&fleet->changes);
	kvw_warn("fleet", "worker is out after %llu failed probes url=%s why=\"%s\"",
		(unsigned long long)self->bad_in_row[worker->id], worker->url, why);
}

void kvw_fleet_set_late(struct kvw_fleet *fleet, struct kvw_worker *worker, bool late)
{
	if (atomic_exchange_explicit(&worker->late, late, memory_order_relaxed) != late)
		kvw_fleet_changed(&fleet->changes);
}

static bool list_equals(const struct kvw_model_list *list, const char *const *names, size_t count)
{
	if (list->count != count)
		return false;
	for (size_t i = 0; i < count; i++)
		if (strcmp(list->names[i], names[i]) != 0)
			return false;
	return true;
}

static bool cards_equal(const struct kvw_model_list *list, const struct kvw_model_names *listed)
{
	if (list->cards == NULL ||
		!list_equals(list, (const char *const *)listed->items, listed->count))
		return false;
	for (size_t i = 0; i < listed->count; i++)
		if (!kvw_model_card_equal(&list->cards[i], &listed->cards[i]))
			return false;
	return true;
}

/* Records that the view now has the list of models of the worker, and of all ranks of its
 * endpoint. */
static void list_is_read(struct kvw_fleet *fleet, struct kvw_worker *worker)
{
	int64_t now_ns = kvw_clock_ns();
	struct kvw_worker *rank;

	/* Stored last: a thread that sees this time also sees the published list. */
	for (size_t at = 0; (rank = kvw_ranks_next(fleet, worker, &at)) != NULL;)
		atomic_store_explicit(&rank->models_read_ns, now_ns, memory_order_release);
}

/* Records that the list of models is known. Returns whether it was known before. */
static bool list_is_known(struct kvw_fleet *fleet, struct kvw_worker *worker)
{
	bool known = true;
	struct kvw_worker *rank;

	for (size_t at = 0; (rank = kvw_ranks_next(fleet, worker, &at)) != NULL;)
		known = atomic_exchange(&rank->models_known, true) && known;
	return known;
}

enum kvw_err kvw_fleet_set_models(struct kvw_fleet *fleet, struct kvw_worker *worker,
	const char *const *names, size_t count)
{
	struct fleet *self = (struct fleet *)fleet;
	bool was_known = list_is_known(fleet, worker);
	enum kvw_err err = KVW_OK;

	kvw_epochs_reclaim(fleet->epochs);
	if (!was_known || !list_equals(&self->lists[worker->id], names, count)) {
		err = kvw_model_list_copy(&self->lists[worker->id], names, count);
		if (err == KVW_OK)
			err = kvw_fleet_publish(self);
	}
	if (err == KVW_OK)
		list_is_read(fleet, worker);
	return err;
}

/* Marks models with a parent as adapters, by the workers' latest lists. */
static void note_adapters(const struct kvw_fleet *fleet, const struct kvw_model_list *list)
{
	const struct kvw_fleet_view *view =
		atomic_load_explicit(&fleet->view, memory_order_acquire);

	for (size_t i = 0; i < list->count; i++) {
		const struct kvw_model_entry *entry =
			find_model(view, kvw_slice_of(list->names[i]));

		if (entry != NULL)
			atomic_store_explicit(&entry->model->adapter, list->cards[i].parent != NULL,
				memory_order_relaxed);
	}
}

static uint32_t least_len(const struct kvw_model_list *list)
{
	uint32_t least = 0;

	for (size_t i = 0; i < list->count; i++)
		least = kvw_model_len_least(least, list->cards[i].max_model_len);
	return least;
}

/* Sets a worker's longest prompt and answer in tokens, and the shortest of all workers. */
static void set_len(struct kvw_fleet *fleet, struct kvw_worker *worker, uint32_t tokens)
{
	uint32_t shortest = 0;

	if (atomic_exchange_explicit(&worker->max_model_len, tokens, memory_order_relaxed) ==
		tokens)
		return;
	for (size_t i = 0; i < fleet->count; i++) {
		const struct kvw_worker *other = kvw_fleet_worker(fleet, i);
		uint32_t len = other == NULL ? 0
					     : atomic_load_explicit(
						       &other->max_model_len, memory_order_relaxed);

		shortest = len > 0 && (shortest == 0 || len < shortest) ? len : shortest;
	}
	atomic_store_explicit(&fleet->shortest_len, shortest, memory_order_relaxed);
}

enum kvw_err kvw_fleet_take_listed(struct kvw_fleet *fleet, struct kvw_worker *worker,
	struct kvw_model_names *listed, int64_t asked_ns)
{
	struct fleet *self = (struct fleet *)fleet;
	struct kvw_model_list *list = &self->lists[worker->id];
	struct kvw_worker *rank;
	bool was_known = list_is_known(fleet, worker);
	enum kvw_err err = KVW_OK;

	kvw_epochs_reclaim(fleet->epochs);
	if (!was_known || !cards_equal(list, listed)) {
		kvw_model_list_clear(list);
		*list = (struct kvw_model_list){
			.names = listed->items, .cards = listed->cards, .count = listed->count};
		*listed = (struct kvw_model_names){NULL, NULL, 0};
		err = kvw_fleet_publish(self);
	}
	kvw_model_names_finish(listed);
	if (err != KVW_OK) {
		/* at the next reading it will differ again, and be published then */
		kvw_model_list_clear(list);
		return err;
	}
	note_adapters(fleet, list);
	for (size_t at = 0; (rank = kvw_ranks_next(fleet, worker, &at)) != NULL;)
		set_len(fleet, rank, least_len(list));
	atomic_store_explicit(&worker->models_asked_ns, asked_ns, memory_order_release);
	list_is_read(fleet, worker);
	return KVW_OK;
}

enum kvw_err kvw_fleet_change(
	struct kvw_fleet *fleet, struct kvw_worker *worker, const struct kvw_worker_config *config)
{
	const struct kvw_strings *models = &config->models;
	enum kvw_err err = kvw_worker_change(worker, config);

	kvw_fleet_changed(&fleet->changes);
	if (err != KVW_OK || models->count == 0 || worker->lead != worker)
		return err; /* until the worker is asked, its configured list stays in force */
	return kvw_fleet_set_models(
		fleet, worker, (const char *const *)models->items, models->count);
}

void kvw_fleet_set_capacity(struct kvw_worker *worker, uint64_t tokens, uint32_t block_size)
{
	if (atomic_load_explicit(&worker->capacity_tokens, memory_order_relaxed) == tokens &&
		atomic_load_explicit(&worker->block_size, memory_order_relaxed) == block_size)
		return;
	atomic_store_explicit(&worker->capacity_tokens, tokens, memory_order_relaxed);
	atomic_store_explicit(&worker->block_size, block_size, memory_order_relaxed);
	kvw_fleet_changed(worker->changes);
}

void kvw_fleet_set_blends(struct kvw_worker *worker, bool blends)
{
	if (atomic_exchange_explicit(&worker->blends, blends, memory_order_relaxed) != blends)
		kvw_fleet_changed(worker->changes);
}

/* Returns the prefill time of a foreign request, as the strategy would predict it. */
static double foreign_prefill_ns(const struct kvw_fleet *fleet, const struct kvw_worker *worker,
	const struct kvw_foreign_found *found)
{
	const struct kvw_config *config = fleet->config;
	struct kvw_strategy *strategy = fleet->strategy;
	struct kvw_worker_learned learned = {.prefill_tokens_per_second = 0};
	double tokens = found->prompt_tokens, cached = found->cached_tokens;

	if (strategy != NULL && strategy->ops->learned != NULL)
		strategy->ops->learned(strategy, worker->id, &learned);
	if (!(learned.prefill_tokens_per_second > 0))
		learned.prefill_tokens_per_second = config->routing_prefill_rate;
	return (tokens - cached) * 1e9 / learned.prefill_tokens_per_second +
	       (tokens * tokens - cached * cached) / 2 * config->routing_attention_ns;
}

void kvw_fleet_set_foreign(
	struct kvw_fleet *fleet, struct kvw_worker *worker, const struct kvw_foreign_found *found)
{
	double each = found->each_ns, ns = 0;

	if (found->waiting > 0) {
		if (each <= 0)
			each = foreign_prefill_ns(fleet, worker, found);
		ns = found->waiting * each + (found->since_ns > each ? found->since_ns : 0);
	}
	kvw_load_set_foreign(&worker->load, found->waiting, found->running,
		ns < FOREIGN_MOST_NS ? (int64_t)ns : (int64_t)FOREIGN_MOST_NS, kvw_clock_ns());
}

void kvw_fleet_set_stall(
	struct kvw_fleet *fleet, struct kvw_worker *worker, enum kvw_stall_state state)
{
	enum kvw_stall_state before = kvw_stall_state(&worker->stall);
	int64_t now_ns = kvw_clock_ns(), for_ms;
	double silent_s =
		(double)kvw_stall_silent_ns(&worker->stall, now_ns) / (double)KVW_NS_PER_S;

	if (state == before)
		return;
	atomic_store_explicit(&worker->stall.state, (uint8_t)state, memory_order_relaxed);
	if (before == KVW_STALL_FOUND)
		atomic_fetch_sub_explicit(&fleet->down, 1, memory_order_relaxed);
	if (state == KVW_STALL_FOUND) {
		atomic_fetch_add_explicit(&fleet->down, 1, memory_order_relaxed);
		for_ms = kvw_ejection_force(&fleet->ejections, &worker->ejection, now_ns);
		kvw_warn("fleet",
			"worker's engine stands still: no byte and no progress of its counters "
			"while requests wait url=%s silent_s=%.1f ejected_ms=%lld",
			worker->url, silent_s, (long long)for_ms);
	} else if (state == KVW_STALL_SUSPECTED) {
		kvw_info("fleet",
			"worker may stand still and gets no new requests url=%s silent_s=%.1f",
			worker->url, silent_s);
	} else {
		kvw_info("fleet", "worker is not waited for any more url=%s", worker->url);
	}
	kvw_fleet_changed(&fleet->changes);
}

void kvw_fleet_start_slowly(struct kvw_fleet *fleet, struct kvw_worker *worker)
{
	if (fleet->config->routing_slow_start_ms <= 0)
		return;
	atomic_store_explicit(&worker->slow_since_ns, kvw_clock_ns(), memory_order_relaxed);
	kvw_fleet_changed(&fleet->changes);
}

void kvw_fleet_cache_lost(struct kvw_fleet *fleet, struct kvw_worker *worker, const char *why)
{
	struct kvw_worker *rank;

	for (size_t at = 0; (rank = kvw_ranks_next(fleet, worker, &at)) != NULL;)
		atomic_fetch_add(&rank->generation, 1);
	kvw_fleet_changed(&fleet->changes);
	for (size_t at = 0; (rank = kvw_ranks_next(fleet, worker, &at)) != NULL;)
		if (fleet->strategy != NULL && fleet->strategy->ops->purge != NULL)
			fleet->strategy->ops->purge(fleet->strategy, rank->id);
	kvw_info("fleet", "worker lost its cache url=%s why=\"%s\"", worker->endpoint, why);
}
