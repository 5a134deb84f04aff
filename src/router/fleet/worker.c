/*
 * worker.c - one vLLM server, or a data-parallel rank of one (ranks.h): its configuration and its
 * state.
 */
#include "fleet/worker.h"

#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "settings/address.h"

/* bit in `holds`: the worker is LIVE, so that further holds are allowed */
#define OPEN (UINT32_C(1) << 31)

enum kvw_err kvw_worker_create(uint32_t id, _Atomic uint64_t *changes, struct kvw_worker **out)
{
	struct kvw_worker *worker = aligned_alloc(64, (sizeof(*worker) + 63) / 64 * 64);

	if (worker == NULL)
		return KVW_ENOMEM;
	memset(worker, 0, sizeof(*worker));
	if (pthread_mutex_init(&worker->address_lock, NULL) != 0) {
		free(worker);
		return KVW_ENOMEM;
	}
	worker->id = id;
	worker->rank = KVW_RANK_NONE;
	worker->lead = worker;
	atomic_store(&worker->global_rank, KVW_RANK_UNKNOWN);
	worker->changes = changes;
	*out = worker;
	return KVW_OK;
}

static void release_texts(struct kvw_worker *worker)
{
	if (worker->endpoint != worker->url)
		free((char *)worker->endpoint);
	kvw_worker_config_release(&worker->config);
	free(worker->dns_name);
	free(worker->host);
	free(worker->authority);
	free(worker->path_prefix);
	worker->dns_name = worker->host = worker->authority = worker->path_prefix = NULL;
	worker->url = worker->endpoint = worker->api_key = NULL;
}

void kvw_worker_destroy(struct kvw_worker *worker)
{
	if (worker == NULL)
		return;
	release_texts(worker);
	pthread_mutex_destroy(&worker->address_lock);
	free(worker);
}

/* Uses the URL's host as the address if it is a numeric one, so that no name has to be resolved. */
static void take_literal(struct kvw_worker *worker)
{
	struct addrinfo hints = {
		.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST};
	struct addrinfo *found = NULL;
	char port[8];

	(void)snprintf(port, sizeof(port), "%u", worker->port);
	worker->addresses = (struct kvw_addresses){.count = 0};
	if (getaddrinfo(worker->host, port, &hints, &found) != 0) {
		atomic_store_explicit(
			&worker->barred, KVW_BARRED_NO_ADDRESS, memory_order_relaxed);
		return;
	}
	memcpy(&worker->addresses.items[0], found->ai_addr, found->ai_addrlen);
	worker->addresses.count = 1;
	freeaddrinfo(found);
}

static char *copy_slice(struct kvw_slice slice)
{
	return strndup(slice.len == 0 ? "" : slice.data, slice.len);
}

/* Drops the final dot of a name, which only the DNS uses: certificates and servers have names
 * without it (RFC 6066). */
static void drop_final_dot(char *text, size_t name_len)
{
	if (name_len > 0 && text[name_len - 1] == '.')
		memmove(text + name_len - 1, text + name_len, strlen(text + name_len) + 1);
}

enum kvw_err kvw_worker_fill(struct kvw_worker *worker, const struct kvw_worker_config *config)
{
	struct kvw_url url;
	size_t len;
	int rank = kvw_rank_split(config->url, &len);

	if (kvw_url_split((struct kvw_slice){config->url, len}, &url) != KVW_ADDRESS_OK)
		return KVW_EINVAL;
	if (kvw_worker_config_copy(config, &worker->config) != KVW_OK)
		return KVW_ENOMEM;
	if (rank != KVW_RANK_NONE)
		worker->endpoint = strndup(config->url, len);
	worker->dns_name = copy_slice(url.address.host);
	worker->host = copy_slice(url.address.host);
	worker->authority = copy_slice(url.authority);
	worker->path_prefix = copy_slice(url.prefix);
	if (worker->dns_name == NULL || worker->host == NULL || worker->authority == NULL ||
		worker->path_prefix == NULL ||
		(rank != KVW_RANK_NONE && worker->endpoint == NULL)) {
		release_texts(worker);
		return KVW_ENOMEM;
	}
	drop_final_dot(worker->host, url.address.host.len);
	drop_final_dot(worker->authority, url.address.host.len);
	len = strlen(worker->config.url);
	while (len > 0 && worker->config.url[len - 1] == '/')
		worker->config.url[--len] = '\0';
	worker->url = worker->config.url;
	worker->rank = rank;
	if (rank == KVW_RANK_NONE)
		worker->endpoint = worker->url;
	worker->api_key = worker->config.api_key;
	worker->key = XXH3_64bits(worker->url, len);
	worker->group_key = kvw_group_key(config->group);
	worker->url_key = kvw_group_key(worker->endpoint);
	worker->tls = url.tls;
	worker->trust = NULL;
	worker->tls_name = worker->config.tls_server_name;
	if (worker->tls_name == NULL || worker->tls_name[0] == '\0')
		worker->tls_name = worker->host;
	worker->port = url.address.port;
	atomic_store(&worker->models_given, config->models.count > 0);
	atomic_store(&worker->models_known, config->models.count > 0);
	atomic_store(&worker->hidden, false);
	atomic_store(&worker->weight, (float)config->weight);
	take_literal(worker);
	worker->use++;
	worker->first_generation = atomic_load(&worker->generation);
	atomic_store(&worker->holds, OPEN);
	return KVW_OK;
}

enum kvw_err kvw_worker_change(struct kvw_worker *worker, const struct kvw_worker_config *config)
{
	struct kvw_worker_config changed = worker->config, copy;

	changed.models = config->models;
	if (kvw_worker_config_copy(&changed, &copy) != KVW_OK)
		return KVW_ENOMEM;
	/* The other texts stay at their addresses, since other threads read them. */
	changed = worker->config;
	worker->config.models = copy.models;
	copy.models = changed.models;
	kvw_worker_config_release(&copy);
	worker->config.weight = config->weight;
	worker->config.ranks = config->ranks;
	atomic_store(&worker->weight, (float)config->weight);
	atomic_store(&worker->models_given, config->models.count > 0);
	return KVW_OK;
}

void kvw_worker_clear(struct kvw_worker *worker)
{
	release_texts(worker);
	if (worker->lead != worker)
		kvw_worker_let_go(worker->lead);
	worker->lead = worker;
	worker->rank = KVW_RANK_NONE;
	atomic_store(&worker->global_rank, KVW_RANK_UNKNOWN);
	kvw_rank_forget(worker);
	kvw_worker_set_kv_source(worker, KVW_SLICE(""));
	atomic_fetch_add(&worker->generation, 1);
	atomic_store(&worker->sleep_said_ns, 0);
	kvw_stall_clear(&worker->stall);
	kvw_load_set_foreign(&worker->load, 0, 0, 0, 0);
	kvw_load_forget_peers(&worker->load);
	kvw_load_forget_room(&worker->load);
	kvw_load_forget_refusals(&worker->load);
	atomic_store(&worker->barred, 0);
	atomic_store(&worker->health, KVW_HEALTH_UNKNOWN);
	atomic_store(&worker->late, false);
	atomic_store(&worker->models_known, false);
	atomic_store(&worker->block_size, 0);
	atomic_store(&worker->capacity_tokens, 0);
	atomic_store(&worker->started_s, 0);
	atomic_store(&worker->probes_failed, 0);
	worker->probe_fault[0] = '\0';
	atomic_store(&worker->kv_used, 0);
	atomic_store(&worker->draft_tokens, 0);
	atomic_store(&worker->transfers, 0);
	atomic_store(&worker->recomputed, 0);
	atomic_store(&worker->draft_accepted, 0);
	atomic_store(&worker->slow_since_ns, 0);
	atomic_store(&worker->blends, false);
	atomic_store(&worker->models_read_ns, 0);
	atomic_store(&worker->models_wanted, false);
	atomic_store(&worker->max_model_len, 0);
	atomic_store(&worker->any_origin, false);
	atomic_store(&worker->models_asked_ns, 0);
	atomic_store(&worker->models_changed_ns, 0);
	atomic_store(&worker->models_fault, 0);
	atomic_store(&worker->life, KVW_WORKER_FREE);
}

bool kvw_worker_hold(struct kvw_worker *worker)
{
	uint32_t holds = atomic_load_explicit(&worker->holds, memory_order_relaxed);

	do {
		if ((holds & OPEN) == 0)
			return false;
	} while (!atomic_compare_exchange_weak_explicit(
		&worker->holds, &holds, holds + 1, memory_order_acquire, memory_order_relaxed));
	return true;
}

void kvw_worker_let_go(struct kvw_worker *worker)
{
	atomic_fetch_sub_explicit(&worker->holds, 1, memory_order_release);
}

void kvw_worker_close(struct kvw_worker *worker)
{
	atomic_fetch_and(&worker->holds, ~OPEN);
	atomic_store_explicit(&worker->life, KVW_WORKER_GONE, memory_order_release);
}

bool kvw_worker_is_let_go(const struct kvw_worker *worker)
{
	return atomic_load_explicit(&worker->holds, memory_order_acquire) == 0 &&
	       atomic_load_explicit(&worker->loops_left, memory_order_acquire) == 0;
}

void kvw_worker_set_kv_source(struct kvw_worker *worker, struct kvw_slice text)
{
	size_t len = text.len < KVW_KV_SOURCE_ROOM ? text.len : 0;

	pthread_mutex_lock(&worker->address_lock);
	memcpy(worker->kv_source, text.data, len);
	worker->kv_source[len] = '\0';
	pthread_mutex_unlock(&worker->address_lock);
}

void kvw_worker_kv_source(struct kvw_worker *worker, char out[KVW_KV_SOURCE_ROOM])
{
	pthread_mutex_lock(&worker->address_lock);
	memcpy(out, worker->kv_source, strlen(worker->kv_source) + 1);
	pthread_mutex_unlock(&worker->address_lock);
}

bool kvw_worker_usable(const struct kvw_worker *worker)
{
	return kvw_worker_is_up(worker) && !kvw_worker_is_barred(worker) &&
	       kvw_stall_state(&worker->stall) == KVW_STALL_NONE &&
	       kvw_ejection_state(&worker->ejection) == KVW_EJECTION_IN;
}

bool kvw_worker_models_fault(const struct kvw_worker *worker, char text[KVW_MODELS_FAULT_ROOM])
{
	unsigned fault = atomic_load_explicit(&worker->models_fault, memory_order_relaxed);

	if (fault == 0 || atomic_load_explicit(&worker->models_given, memory_order_relaxed))
		return false;
	if (fault == KVW_MODELS_UNREADABLE)
		(void)snprintf(text, KVW_MODELS_FAULT_ROOM, "no list that can be read");
	else
		(void)snprintf(text, KVW_MODELS_FAULT_ROOM, "status %u", fault);
	return true;
}

const char *kvw_role_name(enum kvw_role role)
{
	static const char *const names[] = {
		[KVW_ROLE_BOTH] = "both",
		[KVW_ROLE_PREFILL] = "prefill",
		[KVW_ROLE_DECODE] = "decode",
	};

	return names[role];
}

const char *kvw_worker_state_name(const struct kvw_worker *worker)
{
	uint8_t barred = atomic_load_explicit(&worker->barred, memory_order_relaxed);

	if ((barred & KVW_BARRED_NO_ADDRESS) != 0)
		return "without an address";
	if (!kvw_worker_is_up(worker))
		return "down";
	if ((barred & KVW_BARRED_DRAINING) != 0)
		return "draining";
	if ((barred & KVW_BARRED_ASLEEP) != 0)
		return "asleep";
	if (kvw_stall_state(&worker->stall) != KVW_STALL_NONE)
		return "standing still";
	return kvw_worker_usable(worker) ? "up" : "ejected after bad answers";
}

bool kvw_worker_address_from(
	struct kvw_worker *worker, size_t first, size_t nth, struct sockaddr_storage *out)
{
	const struct kvw_addresses *list = &worker->addresses;
	bool there;

	pthread_mutex_lock(&worker->address_lock);
	there = nth < list->count;
	if (there)
		*out = list->items[(first + nth) % list->count];
	pthread_mutex_unlock(&worker->address_lock);
	return there;
}

size_t kvw_worker_first_address(struct kvw_worker *worker)
{
	size_t first;

	pthread_mutex_lock(&worker->address_lock);
	first = worker->addresses.first;
	pthread_mutex_unlock(&worker->address_lock);
	return first;
}

bool kvw_worker_address(struct kvw_worker *worker, size_t nth, struct sockaddr_storage *out)
{
	return kvw_worker_address_from(worker, kvw_worker_first_address(worker), nth, out);
}

bool kvw_worker_has_address(struct kvw_worker *worker, const struct sockaddr_storage *address)
{
	const struct kvw_addresses *list = &worker->addresses;
	bool has = false;

	pthread_mutex_lock(&worker->address_lock);
	for (size_t i = 0; i < list->count && !has; i++)
		has = memcmp(&list->items[i], address, kvw_address_len(address)) == 0;
	pthread_mutex_unlock(&worker->address_lock);
	return has;
}

void kvw_worker_address_worked(struct kvw_worker *worker, const struct sockaddr_storage *address)
{
	struct kvw_addresses *list = &worker->addresses;

	pthread_mutex_lock(&worker->address_lock);
	for (size_t i = 0; i < list->count; i++)
		if (memcmp(&list->items[i], address, kvw_address_len(address)) == 0)
			list->first = i;
	pthread_mutex_unlock(&worker->address_lock);
}

void kvw_worker_ip(struct kvw_worker *worker, char *text, size_t room)
{
	struct sockaddr_storage address;

	/* Only the lead knows which of the addresses has worked. */
	if (!kvw_worker_address(worker->lead, 0, &address) ||
		getnameinfo((const struct sockaddr *)&address, kvw_address_len(&address), text,
			(socklen_t)room, NULL, 0, NI_NUMERICHOST) != 0)
		(void)snprintf(text, room, "%s", worker->host);
}
