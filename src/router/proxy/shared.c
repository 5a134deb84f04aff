/*
 * shared.c - the data that all event loops share: limits, the account of repeats, the order to
 * drain, owners of stored responses.
 */
#include "proxy/shared.h"

#include <string.h>

#include "base/clock.h"
#include "proxy/pd.h"

#define LACK_LOG_NS (60 * KVW_NS_PER_S)

enum kvw_err kvw_shared_init(
	struct kvw_shared *shared, const struct kvw_config *config, struct kvw_account *memory)
{
	enum kvw_err err;

	memset(shared, 0, sizeof(*shared));
	shared->config = config;
	shared->memory = memory;
	shared->connections_most = config->limits_connections;
	atomic_store(&shared->lack_logged_ns, INT64_MIN / 2);
	err = kvw_front_init(&shared->front, config);
	if (err != KVW_OK)
		return err;
	shared->rates = kvw_rate_table_create(KVW_RATE_SUBJECTS_MOST);
	if (shared->rates == NULL)
		return KVW_ENOMEM;
	err = kvw_owners_create((size_t)config->responses_table, &shared->owners);
	if (err == KVW_OK && !kvw_budget_init(&shared->repeats, kvw_clock_ns())) {
		kvw_owners_destroy(shared->owners);
		shared->owners = NULL;
		err = KVW_ENOMEM;
	}
	if (err == KVW_OK)
		shared->admission = kvw_admission_create((size_t)config->admission_programs);
	if (err == KVW_OK && shared->admission == NULL) {
		kvw_budget_finish(&shared->repeats);
		kvw_owners_destroy(shared->owners);
		shared->owners = NULL;
		err = KVW_ENOMEM;
	}
	if (err == KVW_OK)
		shared->pd = kvw_pd_shared_create();
	if (err == KVW_OK && shared->pd == NULL) {
		kvw_admission_destroy(shared->admission);
		kvw_budget_finish(&shared->repeats);
		kvw_owners_destroy(shared->owners);
		shared->owners = NULL;
		err = KVW_ENOMEM;
	}
	if (err == KVW_OK)
		kvw_reserve_init(&shared->reserve);
	else
		kvw_rate_table_destroy(shared->rates);
	return err;
}

void kvw_shared_finish(struct kvw_shared *shared)
{
	kvw_front_finish(&shared->front);
	if (shared->owners == NULL)
		return; /* was not made */
	kvw_reserve_finish(&shared->reserve);
	kvw_pd_shared_destroy(shared->pd);
	shared->pd = NULL;
	kvw_admission_destroy(shared->admission);
	shared->admission = NULL;
	kvw_budget_finish(&shared->repeats);
	kvw_owners_destroy(shared->owners);
	shared->owners = NULL;
	kvw_rate_table_destroy(shared->rates);
	shared->rates = NULL;
}

bool kvw_shared_lacks(struct kvw_shared *shared, int64_t now_ns)
{
	int64_t last = atomic_load_explicit(&shared->lack_logged_ns, memory_order_relaxed);

	return now_ns - last >= LACK_LOG_NS &&
	       atomic_compare_exchange_strong(&shared->lack_logged_ns, &last, now_ns);
}

bool kvw_shared_connection_take(struct kvw_shared *shared)
{
	if (atomic_fetch_add_explicit(&shared->connections, 1, memory_order_relaxed) <
		shared->connections_most)
		return true;
	kvw_shared_connection_release(shared);
	return false;
}

void kvw_shared_connection_release(struct kvw_shared *shared)
{
	atomic_fetch_sub_explicit(&shared->connections, 1, memory_order_relaxed);
}

bool kvw_shared_handshake_take(struct kvw_shared *shared)
{
	if (atomic_fetch_add_explicit(&shared->handshakes, 1, memory_order_relaxed) <
		shared->config->limits_handshakes)
		return true;
	kvw_shared_handshake_release(shared);
	return false;
}

void kvw_shared_handshake_release(struct kvw_shared *shared)
{
	atomic_fetch_sub_explicit(&shared->handshakes, 1, memory_order_relaxed);
}

/* Added before the check, so that all loops together keep to the limit. */
bool kvw_shared_shadow_take(struct kvw_shared *shared, int64_t most, size_t bytes)
{
	int64_t before = atomic_fetch_add_explicit(
		&shared->shadow_bytes, (int64_t)bytes, memory_order_relaxed);

	if (before + (int64_t)bytes <= most)
		return true;
	kvw_shared_shadow_release(shared, bytes);
	return false;
}

void kvw_shared_shadow_release(struct kvw_shared *shared, size_t bytes)
{
	atomic_fetch_sub_explicit(&shared->shadow_bytes, (int64_t)bytes, memory_order_relaxed);
}
