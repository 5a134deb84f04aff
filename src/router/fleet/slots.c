/*
 * slots.c - creates and destroys the fleet and its workers (fleet.h).
 *
 * The lowest free slot is taken, so that tables indexed by slots stay dense. One store to `life`
 * publishes a worker, after all its other members are set.
 */
#include "fleet/fleet_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "fleet/epoch.h"
#include "fleet/wake/wakes.h"
#include "tls/tls.h"

/* Adds the worker of an entry of the configuration, or one worker for each of its ranks. */
static enum kvw_err add_entry(struct kvw_fleet *fleet, const struct kvw_worker_config *entry,
	char *why, size_t room)
{
	uint32_t ranks = kvw_ranks_configured(fleet->config, entry);
	struct kvw_worker *worker;
	enum kvw_err err = KVW_OK;

	if (ranks < 2)
		return kvw_fleet_add(fleet, entry, why, room, &worker);
	for (uint32_t rank = 0; rank < ranks && err == KVW_OK; rank++) {
		struct kvw_worker_config config = {.url = NULL};

		err = kvw_rank_config(entry, ranks, rank, &config);
		if (err == KVW_OK)
			err = kvw_fleet_add(fleet, &config, why, room, &worker);
		kvw_worker_config_release(&config);
	}
	return err;
}

static enum kvw_err create(const struct kvw_config *config, size_t loops, bool offline,
	FILE *errors, struct kvw_fleet **out)
{
	struct fleet *self = calloc(1, sizeof(*self));
	enum kvw_err err = KVW_ENOMEM;
	char why[384] = "";

	if (self == NULL)
		return KVW_ENOMEM;
	kvw_tls_watch_init(&self->base.certificates);
	self->base.config = config;
	self->base.loops = loops;
	self->offline = offline;
	atomic_init(&self->base.changes, 1);
	self->base.loads = aligned_alloc(64, sizeof(*self->base.loads));
	if (self->base.loads == NULL)
		goto fail;
	memset(self->base.loads, 0, sizeof(*self->base.loads));
	err = kvw_ejections_init(&self->base.ejections, config);
	if (err != KVW_OK)
		goto fail;
	err = kvw_ratios_create(&self->base.ratios);
	if (err != KVW_OK)
		goto fail;
	err = kvw_wakes_create(&self->base.wakes);
	if (err != KVW_OK)
		goto fail;
	err = kvw_epochs_create(loops, &self->base.epochs);
	if (err != KVW_OK)
		goto fail;
	err = kvw_fleet_publish(self); /* so that a view exists even without workers */
	for (size_t i = 0; i < config->worker_count && err == KVW_OK; i++)
		err = add_entry(&self->base, &config->workers[i], why, sizeof(why));
	if (err != KVW_OK)
		goto fail;
	*out = &self->base;
	return KVW_OK;

fail:
	if ((err == KVW_EINVAL || err == KVW_ELIMIT) && errors != NULL)
		fprintf(errors, "kvway: %s\n", why);
	kvw_fleet_destroy(&self->base);
	return err;
}

enum kvw_err kvw_fleet_create(
	const struct kvw_config *config, size_t loops, FILE *errors, struct kvw_fleet **out)
{
	return create(config, loops, false, errors, out);
}

enum kvw_err kvw_fleet_create_offline(const struct kvw_config *config, struct kvw_fleet **out)
{
	return create(config, 1, true, NULL, out);
}

static void drop_trust(struct kvw_fleet *fleet, struct kvw_trust **link)
{
	struct kvw_trust *trust = *link;

	*link = trust->next;
	kvw_tls_watch_remove(&fleet->certificates, trust->tls);
	kvw_tls_destroy(trust->tls);
	free(trust->ca_file);
	free(trust);
}

/* Releases the TLS context of a worker whose connections are closed; otherwise the contexts of
 * workers that come and go would accumulate. The configuration's own context stays, since the
 * system's authorities take long to read. */
static void leave_trust(struct kvw_fleet *fleet, struct kvw_worker *worker)
{
	struct kvw_trust **link = &fleet->trusts;

	while (*link != NULL && (*link)->tls != worker->trust)
		link = &(*link)->next;
	worker->trust = NULL;
	if (*link != NULL && --(*link)->users == 0 &&
		strcmp((*link)->ca_file, atomic_load(&fleet->config)->upstream_tls_ca_file) != 0)
		drop_trust(fleet, link);
}

void kvw_fleet_destroy(struct kvw_fleet *fleet)
{
	struct fleet *self = (struct fleet *)fleet;

	if (fleet == NULL)
		return;
	for (size_t i = 0; i < fleet->count; i++) {
		kvw_worker_destroy(fleet->workers[i]);
		kvw_model_list_clear(&self->lists[i]);
	}
	kvw_expected_finish(self);
	kvw_epochs_destroy(fleet->epochs);
	kvw_settings_destroy(fleet->settings);
	while (fleet->replaced != NULL) {
		struct kvw_settings *settings = fleet->replaced;

		fleet->replaced = settings->next;
		kvw_settings_destroy(settings);
	}
	kvw_fleet_view_free((void *)atomic_load(&fleet->view));
	for (size_t i = 0; i < self->named; i++)
		kvw_model_destroy(self->by_name[i]);
	kvw_ejections_finish(&fleet->ejections);
	kvw_ratios_destroy(fleet->ratios);
	kvw_wakes_destroy(fleet->wakes);
	while (fleet->trusts != NULL)
		drop_trust(fleet, &fleet->trusts);
	kvw_tls_watch_finish(&fleet->certificates);
	for (size_t i = 0; i < fleet->remembered_count; i++)
		free(fleet->remembered[i].name);
	free(fleet->remembered);
	free(fleet->models);
	free(self->by_name);
	free(fleet->loads);
	free(self);
}

static enum kvw_err add_trust(struct kvw_fleet *fleet, const char *ca_file, char *why, size_t room)
{
	const struct kvw_config *config = fleet->config;
	const struct kvw_tls_client_options options = {.ca_file = ca_file,
		.certificate = config->upstream_tls_certificate,
		.key = config->upstream_tls_key,
		.insecure = config->upstream_tls_insecure};
	struct kvw_trust *trust = calloc(1, sizeof(*trust));
	char reason[256] = "";
	enum kvw_err err = KVW_ENOMEM;

	if (trust == NULL)
		return KVW_ENOMEM;
	trust->ca_file = strdup(ca_file);
	if (ca_file[0] != '\0' && options.insecure) {
		err = KVW_EINVAL;
		(void)snprintf(reason, sizeof(reason),
			"insecure, so with tls_ca_file nothing would be verified");
	} else if (trust->ca_file != NULL)
		err = kvw_tls_client_create(&options, reason, sizeof(reason), &trust->tls);
	if (err != KVW_OK) {
		if (err == KVW_EINVAL)
			(void)snprintf(why, room, "upstream.tls: %s", reason);
		free(trust->ca_file);
		free(trust);
		return err;
	}
	trust->next = fleet->trusts;
	fleet->trusts = trust;
	kvw_tls_watch_add(&fleet->certificates, trust->tls, "upstream");
	return KVW_OK;
}

/* Finds the TLS context for this worker, or makes it for the first worker with these
 * authorities. */
static enum kvw_err find_trust(
	struct kvw_fleet *fleet, struct kvw_worker *worker, char *why, size_t room)
{
	const char *ca_file = kvw_worker_ca_file(worker, fleet->config);
	struct kvw_trust *trust = fleet->trusts;
	enum kvw_err err;

	while (trust != NULL && strcmp(trust->ca_file, ca_file) != 0)
		trust = trust->next;
	if (trust == NULL) {
		if (((struct fleet *)fleet)->offline)
			return KVW_OK;
		err = add_trust(fleet, ca_file, why, room);
		if (err != KVW_OK)
			return err;
		trust = fleet->trusts;
	}
	trust->users++;
	worker->trust = trust->tls;
	return KVW_OK;
}

/* Detaches from its lead a rank that is no longer LIVE, or did not become LIVE. */
static void leave_lead(struct kvw_worker *worker)
{
	if (worker->lead != worker)
		atomic_fetch_sub(&worker->lead->followers, 1);
}

/* Returns rank 0 of the endpoint, the newest if there are several. NULL: there is none. */
static struct kvw_worker *find_lead(const struct kvw_fleet *fleet, const struct kvw_worker *worker)
{
	for (size_t i = 0; i < fleet->count; i++) {
		struct kvw_worker *other = kvw_fleet_worker(fleet, i);

		if (other != NULL && other->rank == 0 && !atomic_load(&other->hidden) &&
			strcmp(other->endpoint, worker->endpoint) == 0)
			return other;
	}
	return NULL;
}

/* Gives a rank above 0 its lead, and copies what the lead knows of their server. */
static bool follow_lead(const struct kvw_fleet *fleet, struct kvw_worker *worker)
{
	struct kvw_worker *lead = find_lead(fleet, worker);

	if (lead == NULL || !kvw_worker_hold(lead))
		return false;
	worker->lead = lead;
	pthread_mutex_lock(&lead->address_lock);
	worker->addresses = lead->addresses;
	pthread_mutex_unlock(&lead->address_lock);
	atomic_store(&worker->barred,
		(uint8_t)(atomic_load(&lead->barred) & KVW_BARRED_NO_ADDRESS));
	atomic_store(&worker->models_known, atomic_load(&lead->models_known));
	atomic_store(&worker->models_read_ns, atomic_load(&lead->models_read_ns));
	atomic_store(&worker->max_model_len, atomic_load(&lead->max_model_len));
	atomic_fetch_add(&lead->followers, 1);
	return true;
}

enum kvw_err kvw_fleet_add(struct kvw_fleet *fleet, const struct kvw_worker_config *config,
	char *why, size_t room, struct kvw_worker **out)
{
	struct fleet *self = (struct fleet *)fleet;
	double started_s = 0;
	struct kvw_worker *worker;
	enum kvw_err err = kvw_fleet_take_slot(fleet, config->url, &started_s, &worker);

	(void)snprintf(why, room,
		err == KVW_ELIMIT ? "there are %d workers already" : "out of memory",
		KVW_MAX_WORKERS);
	if (err != KVW_OK)
		return err;
	err = kvw_model_list_copy(&self->lists[worker->id],
		(const char *const *)config->models.items, config->models.count);
	if (err != KVW_OK)
		return err;
	err = kvw_worker_fill(worker, config);
	if (err == KVW_EINVAL)
		(void)snprintf(why, room, "worker %s: not http[s]://host:port", config->url);
	if (err != KVW_OK)
		return err;
	if (worker->rank > 0 && !follow_lead(fleet, worker)) {
		(void)snprintf(why, room, "worker %s: there is no rank 0 of it", config->url);
		err = KVW_ENOTFOUND;
		goto undo;
	}
	atomic_store(&worker->started_s, started_s);
	if (self->offline)
		atomic_store(&worker->barred, 0);
	if (worker->tls) {
		err = find_trust(fleet, worker, why, room);
		if (err != KVW_OK)
			goto undo;
	}
	self->good_in_row[worker->id] = self->bad_in_row[worker->id] = 0;
	atomic_store_explicit(&worker->life, KVW_WORKER_LIVE, memory_order_release);
	err = kvw_fleet_publish(self);
	if (err != KVW_OK)
		goto undo;
	atomic_fetch_add(&fleet->live, 1);
	atomic_fetch_add(&fleet->roles, worker->config.role != KVW_ROLE_BOTH);
	kvw_ejections_set_workers(&fleet->ejections, fleet->live);
	*out = worker;
	return KVW_OK;

undo:
	leave_trust(fleet, worker);
	leave_lead(worker);
	kvw_worker_close(worker);
	kvw_worker_clear(worker);
	return err;
}

void kvw_fleet_bar(
	struct kvw_fleet *fleet, struct kvw_worker *worker, enum kvw_barred reason, bool set)
{
	uint8_t before = set ? atomic_fetch_or(&worker->barred, (uint8_t)reason)
			     : atomic_fetch_and(&worker->barred, (uint8_t)~(unsigned)reason);

	if (((before & reason) != 0) == set)
		return;
	if (reason == KVW_BARRED_ASLEEP && set)
		atomic_fetch_add_explicit(&fleet->down, 1, memory_order_relaxed);
	else if (reason == KVW_BARRED_ASLEEP)
		atomic_fetch_sub_explicit(&fleet->down, 1, memory_order_relaxed);
	kvw_fleet_changed(&fleet->changes);
}

void kvw_fleet_puts_to_sleep(struct kvw_fleet *fleet, struct kvw_worker *worker)
{
	struct kvw_worker *rank;

	for (size_t at = 0; (rank = kvw_ranks_next(fleet, worker, &at)) != NULL;) {
		atomic_store(&rank->sleep_said_ns, INT64_MAX);
		kvw_fleet_bar(fleet, rank, KVW_BARRED_ASLEEP, true);
	}
}

void kvw_fleet_said_sleep(
	struct kvw_fleet *fleet, struct kvw_worker *worker, bool asleep, int64_t now_ns)
{
	struct kvw_worker *rank;

	for (size_t at = 0; (rank = kvw_ranks_next(fleet, worker, &at)) != NULL;) {
		kvw_fleet_bar(fleet, rank, KVW_BARRED_ASLEEP, asleep);
		atomic_store(&rank->sleep_said_ns, now_ns);
	}
}

void kvw_fleet_set_addresses(struct kvw_fleet *fleet, struct kvw_worker *worker,
	const struct sockaddr_storage *addresses, size_t count)
{
	struct kvw_worker *rank;

	if (count > KVW_ADDRESSES_MAX)
		count = KVW_ADDRESSES_MAX;
	for (size_t at = 0; (rank = kvw_ranks_next(fleet, worker, &at)) != NULL;) {
		pthread_mutex_lock(&rank->address_lock);
		if (count > 0) /* with count 0 the list may be NULL */
			memcpy(rank->addresses.items, addresses, count * sizeof(addresses[0]));
		rank->addresses.count = count;
		rank->addresses.first = 0;
		pthread_mutex_unlock(&rank->address_lock);
		atomic_fetch_add(&rank->address_version, 1);
		kvw_fleet_bar(fleet, rank, KVW_BARRED_NO_ADDRESS, count == 0);
	}
}

void kvw_fleet_remove(struct kvw_fleet *fleet, struct kvw_worker *worker)
{
	struct fleet *self = (struct fleet *)fleet;

	kvw_worker_close(worker);
	leave_lead(worker);
	if (kvw_fleet_publish(self) != KVW_OK)
		kvw_warn("fleet",
			"out of memory: the model table still lists a worker that is gone url=%s",
			worker->url);
	atomic_fetch_sub(&fleet->live, 1);
	atomic_fetch_sub(&fleet->roles, worker->config.role != KVW_ROLE_BOTH);
	kvw_ejections_set_workers(&fleet->ejections, fleet->live);
	kvw_fleet_changed(&fleet->changes);
	atomic_store_explicit(&worker->loops_left, (uint32_t)fleet->loops, memory_order_release);
	atomic_fetch_add_explicit(&fleet->leaving, 1, memory_order_release);
}

static void free_slot(struct kvw_fleet *fleet, struct kvw_worker *worker)
{
	struct fleet *self = (struct fleet *)fleet;

	kvw_info("fleet", "worker has left url=%s", worker->url);
	if (!kvw_worker_is_up(worker))
		atomic_fetch_sub_explicit(&fleet->down, 1, memory_order_relaxed);
	if ((atomic_load(&worker->barred) & KVW_BARRED_ASLEEP) != 0)
		atomic_fetch_sub_explicit(&fleet->down, 1, memory_order_relaxed);
	if (kvw_stall_state(&worker->stall) == KVW_STALL_FOUND)
		atomic_fetch_sub_explicit(&fleet->down, 1, memory_order_relaxed);
	kvw_ejection_clear(&fleet->ejections, &worker->ejection);
	kvw_model_list_clear(&self->lists[worker->id]);
	if (fleet->freed != NULL)
		fleet->freed(fleet->freed_arg, worker->id);
	leave_trust(fleet, worker);
	kvw_worker_clear(worker);
	atomic_fetch_sub_explicit(&fleet->leaving, 1, memory_order_relaxed);
}

static void note_passed(void *settings)
{
	((struct kvw_settings *)settings)->passed = true;
}

void kvw_fleet_set_settings(struct kvw_fleet *fleet, struct kvw_settings *settings)
{
	struct kvw_settings *before = atomic_load(&fleet->settings);

	atomic_store(&fleet->ejections.config, settings->config);
	atomic_store(&fleet->config, settings->config);
	atomic_store(&fleet->strategy, settings->strategy);
	atomic_store(&fleet->settings, settings);
	kvw_fleet_changed(&fleet->changes);
	if (before == NULL)
		return;
	before->next = fleet->replaced;
	fleet->replaced = before;
	if (kvw_epochs_retire(fleet->epochs, before, note_passed) != KVW_OK)
		kvw_warn("fleet", "out of memory: an old configuration is kept");
}

static void destroy_replaced(struct kvw_fleet *fleet)
{
	struct kvw_settings **link = &fleet->replaced, *settings;

	while ((settings = *link) != NULL) {
		if (!settings->passed ||
			atomic_load_explicit(&settings->refs, memory_order_acquire) > 0) {
			link = &settings->next;
			continue;
		}
		*link = settings->next;
		kvw_settings_destroy(settings);
	}
}

size_t kvw_fleet_reap(struct kvw_fleet *fleet)
{
	kvw_epochs_reclaim(fleet->epochs);
	kvw_fleet_forget_models((struct fleet *)fleet);
	destroy_replaced(fleet);
	if (atomic_load_explicit(&fleet->leaving, memory_order_relaxed) == 0)
		return 0;
	for (size_t i = 0; i < fleet->count; i++) {
		struct kvw_worker *worker = fleet->workers[i];

		if (kvw_worker_life(worker) == KVW_WORKER_GONE && kvw_worker_is_let_go(worker))
			free_slot(fleet, worker);
	}
	return atomic_load_explicit(&fleet->leaving, memory_order_relaxed);
}
