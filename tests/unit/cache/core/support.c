/*
 * support.c - caches for tests; see the header.
 */
#include <stdlib.h>
#include <string.h>

#include "support.h"

static int64_t now(void *self)
{
	return atomic_load(&((struct rig *)self)->now_ns);
}

static int64_t wall(void *self)
{
	return atomic_load(&((struct rig *)self)->wall_ns);
}

static void count_line(void *self, uint32_t level, const char *line)
{
	(void)level;
	(void)line;
	atomic_fetch_add(&((struct rig *)self)->lines, 1);
}

void rig_init(struct rig *r)
{
	*r = (struct rig){.with_tier = true};
	r->now_ns = 1000 * SECOND;
	r->wall_ns = 1700000000 * SECOND;
	kvt_config_init(&r->config, sizeof(r->config));
	r->config.threads = KVT_THREADS_CALLER;
	r->config.l1_capacity = 64 * (uint64_t)CHUNK;
	r->config.l1_staging_share = 0;
	r->config.l1_policy = "lru";
	r->config.l1_scrub_rate = 0;
	r->config.ops = 16;
	r->clock = (struct kvt_clock){now, wall, r};
	r->config.clock = &r->clock;
	r->config.log = count_line;
	r->config.log_self = r;
}

void rig_open(struct rig *r)
{
	static const struct kvt_tier_ops *const with[] = {&fake_tier_ops, NULL};

	static const struct kvt_tier_ops *const shared[] = {&fake_remote_ops, NULL};
	const struct kvt_tier_ops *const *tiers = r->remote ? shared : with;

	ck_assert_int_eq(kvt_open_with(&r->config, r->with_tier ? tiers : with + 1, &r->k), KVT_OK);
}

void rig_close(struct rig *r)
{
	kvt_close(r->k);
	r->k = NULL;
}

void rig_settle(struct rig *r)
{
	int64_t next_ns;

	while (kvt_step(r->k, &next_ns) != 0)
		;
}

void rig_advance(struct rig *r, int64_t ns)
{
	atomic_fetch_add(&r->now_ns, ns);
	atomic_fetch_add(&r->wall_ns, ns);
	rig_settle(r);
}

struct kvt_key key_of(uint32_t chain, uint32_t index)
{
	struct kvt_key key;

	kvt_chain_id(NULL, (const uint32_t[]){chain, index}, 2, key.bytes);
	memcpy(&key.bytes[KVT_SLOT_AT], &chain, 2); /* of its tenant */
	return key;
}

void bytes_of(const struct kvt_key *key, uint8_t *out, uint64_t bytes)
{
	uint64_t word, state;

	memcpy(&state, key->bytes, sizeof(state));
	for (uint64_t at = 0; at < bytes; at += sizeof(word)) {
		state = state * 6364136223846793005u + 1442695040888963407u;
		word = state ^ (state >> 29);
		memcpy(out + at, &word, bytes - at < sizeof(word) ? bytes - at : sizeof(word));
	}
}

enum kvt_status rig_put_bytes(struct rig *r, uint32_t chain, uint32_t index, uint64_t bytes)
{
	struct kvt_key parent = key_of(chain, index - 1);
	struct kvt_item item = {
		.size = sizeof(item),
		.key = key_of(chain, index),
		.parent = index != 0 ? &parent : NULL,
		.bytes = bytes,
	};
	uint8_t *data = malloc(bytes);
	enum kvt_status status;

	ck_assert_ptr_nonnull(data);
	bytes_of(&item.key, data, bytes);
	memcpy(item.tenant.bytes, &chain, sizeof(chain)); /* a tenant per chain */
	status = kvt_put(r->k, &item, data);
	free(data);
	return status;
}

enum kvt_status rig_put(struct rig *r, uint32_t chain, uint32_t index)
{
	return rig_put_bytes(r, chain, index, CHUNK);
}

void rig_put_chain(struct rig *r, uint32_t chain, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		ck_assert_int_eq(rig_put(r, chain, i), KVT_OK);
}

void keys_of(uint32_t chain, uint32_t n, struct kvt_key *out)
{
	for (uint32_t i = 0; i < n; i++)
		out[i] = key_of(chain, i);
}

void check_lease(const struct kvt_lease *lease, const struct kvt_key *keys, size_t n)
{
	ck_assert_uint_le(lease->count, n);
	for (size_t i = 0; i < lease->count; i++) {
		uint64_t bytes = lease->views[i].bytes;
		uint8_t *expected = malloc(bytes), *found = malloc(bytes);

		bytes_of(&keys[i], expected, bytes);
		ck_assert_uint_eq(kvt_copy(lease, i, found, bytes), bytes);
		ck_assert_mem_eq(found, expected, bytes);
		free(expected);
		free(found);
	}
}

size_t rig_get(struct rig *r, uint32_t chain, uint32_t n, uint64_t timeout_ns)
{
	struct kvt_key keys[64];
	struct kvt_lease *lease;
	enum kvt_status status;
	size_t count;

	keys_of(chain, n, keys);
	status = kvt_get(r->k, keys, n, timeout_ns, &lease);
	if (status == KVT_MISS)
		return 0;
	ck_assert_int_eq(status, KVT_OK);
	check_lease(lease, keys, n);
	count = lease->count;
	kvt_release(r->k, lease);
	return count;
}

void rig_push_out(struct rig *r)
{
	for (uint32_t i = 0; i < 64; i++) /* each a chain of its own, as large as L1 together */
		ck_assert_int_eq(rig_put_bytes(r, 0xfff00000 + r->pushed++, 0, CHUNK), KVT_OK);
	rig_settle(r);
}

size_t rig_lookup(struct rig *r, uint32_t chain, uint32_t n, uint8_t *tiers)
{
	struct kvt_key keys[64];
	struct kvt_lookup found;

	keys_of(chain, n, keys);
	ck_assert_int_eq(kvt_lookup(r->k, keys, n, KVT_ALL_TIERS, tiers, &found), KVT_OK);
	return found.hits;
}

struct kvt_stats rig_stats(struct rig *r)
{
	struct kvt_stats stats = {.size = sizeof(stats)};

	ck_assert_int_eq(kvt_stats(r->k, &stats), KVT_OK);
	return stats;
}
