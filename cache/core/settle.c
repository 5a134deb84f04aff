/*
 * settle.c - converts a caller's configuration into the library's own.
 */
#include <string.h>

#include "core/settle.h"
#include "memory/sizing.h"
#include "options/settings.h"

/* The smallest struct that a caller may have been compiled with: the members of the first
 * version. */
#define LEAST_SIZE offsetof(struct kvt_config, l1_capacity)

/* Returns the default limit of bytes on their way to lower tiers: the size of memory, for each of
 * them. The chunks of a long prompt come all at once, those of a large model have tens of MiB each,
 * and a store that waits holds no memory. */
static uint64_t stores_in_full(const struct kvt_config *c)
{
	uint64_t tiers = (c->nvme_path != NULL && c->nvme_path[0] != 0) +
			 (c->l2_url != NULL && c->l2_url[0] != 0);

	return c->l1_capacity * (tiers != 0 ? tiers : 1);
}

/* Sets the size of L1 if it is automatic. A store's size is set elsewhere, since the store knows
 * its disk and its content. */
static void settle_memory(struct kvt_config *c, unsigned part, struct kvt_neighbours *neighbours,
	const struct kvt_surroundings *s)
{
	uint64_t given = c->l1_capacity;
	char why[KVT_REASON_BYTES];
	struct kvt_machine machine = {0};

	if (c->l1_capacity != 0 && c->l1_capacity < KVT_NEIGHBOURS_LEAST)
		return;
	kvt_machine_read("", NULL, &machine);
	kvt_neighbours_look(neighbours, NULL, c->node_ranks, &machine);
	if (neighbours->why[0] != '\0')
		kvt_note(s, KVT_LOG_ERROR, "l1: what other caches here will take is not known: %s",
			neighbours->why);
	if (c->l1_capacity == 0) {
		c->l1_capacity = kvt_size_l1(&machine, c->l1_backing, why) / part;
		kvt_note(s, KVT_LOG_INFO, "l1: %llu MiB: %s",
			(unsigned long long)(c->l1_capacity >> 20), why);
	} else {
		c->l1_capacity = kvt_size_cut(&machine, c->l1_backing, given, why);
	}
	if (given != 0 && c->l1_capacity != given)
		kvt_note(s, KVT_LOG_ERROR, "l1: %llu MiB instead of the %llu MiB of l1.capacity: %s",
			(unsigned long long)(c->l1_capacity >> 20),
			(unsigned long long)(given >> 20), why);
	kvt_neighbours_enter(neighbours, c->node_ranks, c->l1_capacity);
}

void kvt_config_settle_sizes(struct kvt_config *config, unsigned l1_part,
	struct kvt_neighbours *neighbours, const struct kvt_surroundings *s)
{
	settle_memory(config, l1_part, neighbours, s);
	if (config->store_inflight == 0)
		config->store_inflight = stores_in_full(config);
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
	kvt_settings_fill(out);
	if (!(out->l1_staging_share >= 0 && out->l1_staging_share <= 0.5) ||
		!(out->prefill_tokens_per_second >= 0) || out->threads > KVT_THREADS_CALLER)
		return KVT_EINVAL;
	return KVT_OK;
}
