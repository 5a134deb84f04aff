/*
 * models.c - keeps the fleet's table of models: which models exist, and which workers serve each
 * (fleet.h).
 *
 * The table is rebuilt as a whole when a worker's list changes, which is rare, and published by one
 * atomic store; loops look a model up by binary search without a lock. A model outlives the views
 * that have it and the requests that hold it; names of adapters that come and go are freed, and
 * their indices reused.
 */
#include "fleet/fleet_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/search.h"
#include "fleet/epoch.h"
#include "fleet/wake/wakes.h"

void kvw_fleet_view_free(void *object)
{
	struct kvw_fleet_view *view = object;

	if (view == NULL)
		return;
	for (size_t i = 0; i < view->model_count; i++) {
		kvw_model_card_finish(&view->models[i].card);
		view->models[i].model->views--;
	}
	free(view->models);
	free(view);
}

/* Returns the bytes per token of a model that a former process learned; 0: none. */
static uint32_t remembered_units(const struct kvw_fleet *fleet, const char *name)
{
	for (size_t i = 0; i < fleet->remembered_count; i++)
		if (strcmp(fleet->remembered[i].name, name) == 0)
			return fleet->remembered[i].units_per_token_q16;
	return 0;
}

static int compare_model(const void *key, const void *items, size_t at)
{
	return strcmp(key, ((struct kvw_model *const *)items)[at]->name);
}

void kvw_model_destroy(struct kvw_model *model)
{
	if (model != NULL)
		free(model->name);
	free(model);
}

/* Makes room for one more model in both lists. */
static bool grow_models(struct fleet *self)
{
	size_t bytes = (self->base.model_total + 1) * sizeof(struct kvw_model *);
	struct kvw_model **models = realloc(self->base.models, bytes),
			 **by_name = realloc(self->by_name, bytes);

	if (models != NULL)
		self->base.models = models;
	if (by_name != NULL)
		self->by_name = by_name;
	return models != NULL && by_name != NULL;
}

static struct kvw_model *model_get(struct fleet *self, const char *name)
{
	struct kvw_fleet *fleet = &self->base;
	struct kvw_model *model;
	bool there;
	size_t at = kvw_search(name, self->by_name, self->named, compare_model, &there),
	       index = self->free_index;

	if (there)
		return self->by_name[at];
	model = calloc(1, sizeof(*model));
	if (model == NULL || !grow_models(self) || (model->name = strdup(name)) == NULL) {
		free(model);
		return NULL;
	}
	while (index < fleet->model_total && fleet->models[index] != NULL)
		index++;
	fleet->model_total += index == fleet->model_total;
	fleet->models[index] = model;
	self->free_index = index + 1;
	model->index = (uint32_t)index;
	model->serial = ++self->serials;
	model->units_per_token_q16 = remembered_units(fleet, name);
	memmove(self->by_name + at + 1, self->by_name + at,
		(self->named - at) * sizeof(struct kvw_model *));
	self->by_name[at] = model;
	self->named++;
	self->unlisted++;
	kvw_wakes_served(fleet->wakes, name);
	return model;
}

void kvw_fleet_forget_models(struct fleet *self)
{
	struct kvw_fleet *fleet = &self->base;
	size_t kept = 0;

	if (self->unlisted <= KVW_MODELS_UNLISTED)
		return;
	for (size_t i = 0; i < self->named; i++) {
		struct kvw_model *model = self->by_name[i];

		/* The model is in no view: no loop can find it any more, so that its holds only
		 * decrease. */
		if (model->index < KVW_MODELS_KEPT || model->listed || model->views > 0 ||
			atomic_load_explicit(&model->holds, memory_order_acquire) > 0) {
			self->by_name[kept++] = model;
			continue;
		}
		fleet->models[model->index] = NULL;
		if (model->index < self->free_index)
			self->free_index = model->index;
		kvw_model_destroy(model);
	}
	self->unlisted -= self->named - kept;
	self->named = kept;
}

static int compare_entries(const void *a, const void *b)
{
	return strcmp(((const struct kvw_model_entry *)a)->model->name,
		((const struct kvw_model_entry *)b)->model->name);
}

/* Finds or makes the models of a list; false: out of memory. */
static bool find_models(struct fleet *self, struct kvw_model_list *list)
{
	if (list->models != NULL || list->count == 0)
		return true;
	list->models = calloc(list->count, sizeof(struct kvw_model *));
	for (size_t i = 0; list->models != NULL && i < list->count; i++) {
		list->models[i] = model_get(self, list->names[i]);
		if (list->models[i] != NULL)
			continue;
		free(list->models);
		list->models = NULL;
	}
	return list->models != NULL;
}

/* Copies cards that borrow from the workers' lists, so that the view owns its texts. */
static enum kvw_err own_cards(struct kvw_fleet_view *view, size_t count)
{
	for (; view->model_count < count; view->model_count++) {
		struct kvw_model_card borrowed = view->models[view->model_count].card;

		if (kvw_model_card_copy(&view->models[view->model_count].card, &borrowed) != KVW_OK)
			return KVW_ENOMEM;
		view->models[view->model_count].model->views++;
	}
	return KVW_OK;
}

/* Drops models that were found for the lists when building the view failed. */
static void forget_found(struct fleet *self)
{
	for (size_t w = 0; w < self->base.count; w++) {
		free(self->lists[w].models);
		self->lists[w].models = NULL;
	}
}

/* Marks the models of the view that is about to be published. */
static void note_listed(struct fleet *self, const struct kvw_fleet_view *view)
{
	for (size_t i = 0; i < self->named; i++)
		self->by_name[i]->listed = false;
	for (size_t i = 0; i < view->model_count; i++)
		view->models[i].model->listed = true;
	self->unlisted = self->named - view->model_count;
}

/* Fills the entry of each listed model with the workers that serve it now. */
static enum kvw_err fill_entries(struct fleet *self, struct kvw_fleet_view *view)
{
	struct kvw_fleet *fleet = &self->base;
	size_t kept = 0;

	for (size_t w = 0; w < fleet->count; w++) {
		const struct kvw_worker *worker = kvw_fleet_worker(fleet, w);

		if (worker != NULL && !find_models(self, &self->lists[worker->lead->id]))
			return KVW_ENOMEM;
	}
	view->models = calloc(fleet->model_total + 1, sizeof(view->models[0]));
	if (view->models == NULL)
		return KVW_ENOMEM;
	for (size_t w = 0; w < fleet->count; w++) {
		const struct kvw_worker *worker = kvw_fleet_worker(fleet, w);
		const struct kvw_model_list *list;

		if (worker == NULL)
			continue;
		list = &self->lists[worker->lead->id];
		for (size_t i = 0; i < list->count; i++) {
			struct kvw_model_entry *entry = &view->models[list->models[i]->index];

			entry->model = list->models[i];
			entry->workers[w / 64] |= UINT64_C(1) << (w % 64);
			if (list->cards != NULL)
				kvw_model_card_add(&entry->card, &list->cards[i]);
		}
	}
	for (size_t i = 0; i < fleet->model_total; i++)
		if (view->models[i].model != NULL)
			view->models[kept++] = view->models[i];
	return own_cards(view, kept);
}

enum kvw_err kvw_fleet_publish(struct fleet *self)
{
	struct kvw_fleet *fleet = &self->base;
	struct kvw_fleet_view *view = calloc(1, sizeof(*view));
	struct kvw_fleet_view *old;
	bool any = false, all_known = true;

	if (view == NULL)
		return KVW_ENOMEM;
	if (fill_entries(self, view) != KVW_OK) {
		forget_found(self);
		kvw_fleet_view_free(view);
		return KVW_ENOMEM;
	}
	for (size_t w = 0; w < fleet->count; w++) {
		const struct kvw_worker *worker = kvw_fleet_worker(fleet, w);

		any = any || worker != NULL;
		all_known = all_known && (worker == NULL || atomic_load(&worker->models_known));
	}
	view->all_known = any && all_known;
	if (view->model_count > 0)
		qsort(view->models, view->model_count, sizeof(view->models[0]), compare_entries);
	note_listed(self, view);
	old = (struct kvw_fleet_view *)atomic_exchange(&fleet->view, view);
	kvw_fleet_changed(&fleet->changes);
	if (old != NULL && kvw_epochs_retire(fleet->epochs, old, kvw_fleet_view_free) != KVW_OK)
		kvw_warn("fleet", "out of memory: an old model table of %zu entries is kept",
			old->model_count);
	return KVW_OK;
}

void kvw_model_list_clear(struct kvw_model_list *list)
{
	for (size_t i = 0; i < list->count; i++) {
		free(list->names[i]);
		if (list->cards != NULL)
			kvw_model_card_finish(&list->cards[i]);
	}
	free(list->names);
	free(list->cards);
	free(list->models);
	*list = (struct kvw_model_list){0};
}

enum kvw_err kvw_model_list_copy(
	struct kvw_model_list *list, const char *const *names, size_t count)
{
	struct kvw_model_list copy = {.names = calloc(count + 1, sizeof(char *))};

	if (copy.names == NULL)
		return KVW_ENOMEM;
	for (; copy.count < count; copy.count++) {
		copy.names[copy.count] = strdup(names[copy.count]);
		if (copy.names[copy.count] == NULL) {
			kvw_model_list_clear(&copy);
			return KVW_ENOMEM;
		}
	}
	kvw_model_list_clear(list);
	*list = copy;
	return KVW_OK;
}
