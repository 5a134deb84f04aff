/*
 * settle.c - a caller's configuration as the library uses it.
 */
#include <string.h>

#include "core/settle.h"
#include "memory/sizing.h"

/* The least that a caller may have been compiled with: the first version's members. */
#define LEAST_SIZE offsetof(struct kvt_config, l1_capacity)

#define SETTLE(member)                                                                             \
	do {                                                                                       \
		if (!out->member)                                                                  \
			out->member = def.member;                                                  \
	} while (0)

/* What may be on its way to lower tiers, if not configured: all that lies in memory, for each of
 * them. Chunks of a long prompt come all at once, a large model's have tens of MiB each, and a
 * store that waits holds no memory. */
static uint64_t stores_in_full(const struct kvt_config *c)
{
	uint64_t tiers = (c->nvme_path != NULL && c->nvme_path[0] != 0) +
			 (c->l2_url != NULL && c->l2_url[0] != 0);

	return c->l1_capacity * (tiers != 0 ? tiers : 1);
}

/* A store knows its disk, and what it has there already; memory is asked for here. */
static void settle_memory(struct kvt_config *c)
{
	char why[KVT_REASON_BYTES];
	struct kvt_machine machine;

	if (c->l1_capacity != 0)
		return;
	kvt_machine_read("", NULL, &machine);
	c->l1_capacity = kvt_size_l1(&machine, c->l1_backing, why);
}

enum kvt_status kvt_config_settle(const struct kvt_config *given, struct kvt_config *out)
{
	size_t size = given->size < sizeof(*out) ? given->size : sizeof(*out);
	struct kvt_config def;

	kvt_config_init(&def, sizeof(def));
	*out = def;
	if (given->abi != KVT_ABI || size < LEAST_SIZE)
		return KVT_EINVAL;
	memcpy(out, given, size);
	out->size = sizeof(*out);
	SETTLE(l1_backing);
	SETTLE(l1_policy);
	SETTLE(nvme_policy);
	SETTLE(nvme_io);
	SETTLE(nvme_depth);
	SETTLE(nvme_sync_bytes);
	SETTLE(nvme_sync_ns);
	SETTLE(l2_url);
	SETTLE(l2_format);
	SETTLE(l2_username);
	SETTLE(l2_password_file);
	SETTLE(l2_service);
	SETTLE(l2_tls_ca);
	SETTLE(l2_tls_certificate);
	SETTLE(l2_tls_key);
	SETTLE(l2_connections);
	SETTLE(l2_inflight);
	SETTLE(l2_connect_ns);
	SETTLE(l2_deadline_ns);
	SETTLE(l2_part_bytes);
	SETTLE(l2_seen_ns);
	SETTLE(l2_bucket);
	SETTLE(l2_segment);
	SETTLE(l2_lease_ns);
	SETTLE(l2_layout);
	SETTLE(load_inflight);
	SETTLE(ops);
	SETTLE(tokens_per_chunk);
	SETTLE(breaker_failures);
	SETTLE(breaker_open_ns);
	SETTLE(breaker_open_max_ns);
	SETTLE(events_queue);
	SETTLE(events_topic);
	SETTLE(events_replay_bytes);
	SETTLE(controller_pull);
	SETTLE(controller_reply);
	SETTLE(controller_heartbeat);
	SETTLE(controller_instance);
	SETTLE(controller_ip);
	SETTLE(controller_bind);
	SETTLE(controller_ports);
	SETTLE(controller_answer_ns);
	SETTLE(controller_sync_batch);
	SETTLE(controller_queue);
	SETTLE(controller_max_chunks);
	SETTLE(controller_pin_ns);
	SETTLE(controller_chunk_size);
	SETTLE(controller_hash);
	SETTLE(controller_hash_seed);
	SETTLE(controller_none_hash);
	if (!(out->l1_staging_share >= 0 && out->l1_staging_share <= 0.5) ||
		!(out->prefill_tokens_per_second >= 0) || out->threads > KVT_THREADS_CALLER)
		return KVT_EINVAL;
	settle_memory(out);
	if (out->store_inflight == 0)
		out->store_inflight = stores_in_full(out);
	return KVT_OK;
}
