/*
 * oracle.c - what a cache may say, kept as a plain array: one entry for each chunk of a history.
 * Bytes: the number, the generation, then a sequence that follows from both, so that no piece of
 * one chunk looks like a piece of another.
 */
#include <stdlib.h>
#include <string.h>

#include "oracle.h"

#define HEAD     8u
#define SLACK_NS INT64_C(2000000000) /* clocks of tiers count in coarser steps */

static uint64_t mix(uint64_t x)
{
	x ^= x >> 30;
	x *= UINT64_C(0xbf58476d1ce4e5b9);
	x ^= x >> 27;
	x *= UINT64_C(0x94d049bb133111eb);
	return x ^ x >> 31;
}

void oracle_init(struct oracle *oracle, uint32_t chains, uint32_t depth, uint64_t least,
	uint64_t most, uint64_t ttl_ns)
{
	*oracle = (struct oracle){.chains = chains,
		.depth = depth,
		.least = least < HEAD ? HEAD : least,
		.most = most,
		.ttl_ns = ttl_ns};
	oracle->entries = calloc((size_t)chains * depth, sizeof(*oracle->entries));
	if (oracle->entries == NULL)
		abort();
}

void oracle_finish(struct oracle *oracle)
{
	free(oracle->entries);
}

struct kvt_key oracle_key(uint32_t id)
{
	struct kvt_key key;

	for (unsigned i = 0; i < KVT_KEY_BYTES; i += 8) {
		uint64_t part = mix(id * UINT64_C(4) + i / 8 + 1);

		memcpy(key.bytes + i, &part, sizeof(part));
	}
	return key;
}

uint32_t oracle_tenant_number(const struct oracle *oracle, uint32_t id)
{
	return id / oracle->depth % TENANTS;
}

struct kvt_tenant oracle_tenant(const struct oracle *oracle, uint32_t id)
{
	struct kvt_tenant tenant = {{0}};

	tenant.bytes[3] = (uint8_t)oracle_tenant_number(oracle, id);
	return tenant;
}

uint64_t oracle_bytes(const struct oracle *oracle, uint32_t id, uint32_t generation)
{
	uint64_t spread = oracle->most - oracle->least + 1;

	return oracle->least + mix((uint64_t)id << 32 | generation) % spread;
}

void oracle_fill(const struct oracle *oracle, uint32_t id, uint32_t generation, uint8_t *to)
{
	uint64_t len = oracle_bytes(oracle, id, generation), x;

	memcpy(to, &id, sizeof(id));
	memcpy(to + 4, &generation, sizeof(generation));
	for (uint64_t i = HEAD; i < len; i += 8) {
		x = mix(((uint64_t)id << 32 | generation) ^ (i + 1) * UINT64_C(0x9e3779b97f4a7c15));
		memcpy(to + i, &x, len - i < 8 ? len - i : 8);
	}
}

bool oracle_agrees(const struct oracle *oracle, uint32_t id, const uint8_t *bytes, uint64_t len)
{
	const struct entry *e = &oracle->entries[id];
	uint32_t head[2];
	uint8_t *expected;
	bool same;

	if (len < HEAD)
		return false;
	memcpy(head, bytes, sizeof(head));
	if (head[0] != id || head[1] < e->oldest || head[1] > e->generation ||
		len != oracle_bytes(oracle, id, head[1]))
		return false;
	expected = malloc(len);
	if (expected == NULL)
		abort();
	oracle_fill(oracle, id, head[1], expected);
	same = memcmp(expected, bytes, len) == 0;
	free(expected);
	return same;
}

/* The chunk is not certain to be below: nor are those behind it that are not stored yet. */
static void unchain_children(struct oracle *oracle, uint32_t id)
{
	while (++id % oracle->depth > 0) {
		struct entry *e = &oracle->entries[id];

		if (e->presence != MUST || e->drained)
			return;
		e->chained = false;
	}
}

void oracle_committed(struct oracle *oracle, uint32_t id, int64_t since_ns, int64_t now_ns, bool parent_fills)
{
	struct entry *e = &oracle->entries[id];

	e->presence = MUST;
	e->put_ns = since_ns;
	e->used_ns = now_ns;
	e->drained = false;
	e->chained = id % oracle->depth == 0 || parent_fills || (e[-1].presence == MUST && e[-1].chained);
	if (!e->chained)
		unchain_children(oracle, id);
}

void oracle_drained(struct oracle *oracle)
{
	for (uint32_t id = 0; id < oracle->chains * oracle->depth; id++) {
		struct entry *e = &oracle->entries[id];

		e->drained = e->drained || (e->presence == MUST && e->chained);
	}
}

void oracle_aborted(struct oracle *oracle, uint32_t id)
{
	if (oracle->entries[id].presence != MUST)
		unchain_children(oracle, id);
}

void oracle_used(struct oracle *oracle, uint32_t id, int64_t now_ns)
{
	oracle->entries[id].used_ns = now_ns;
}

void oracle_gone(struct oracle *oracle, uint32_t id, bool surely)
{
	struct entry *e = &oracle->entries[id];

	e->presence = GONE;
	e->generation++;
	unchain_children(oracle, id);
	if (surely) {
		e->oldest = e->generation;
		e->risen = false;
	}
}

void oracle_age(struct oracle *oracle, int64_t now_ns)
{
	int64_t ttl = (int64_t)oracle->ttl_ns;

	for (uint32_t id = 0; ttl != 0 && id < oracle->chains * oracle->depth; id++) {
		struct entry *e = &oracle->entries[id];

		if (e->presence == GONE)
			continue;
		if (now_ns - e->put_ns > ttl - SLACK_NS)
			unchain_children(oracle, id);
		if (now_ns - e->used_ns > ttl + SLACK_NS && e->filling > 0)
			e->presence = GONE; /* what fills it is of this generation */
		else if (now_ns - e->used_ns > ttl + SLACK_NS)
			oracle_gone(oracle, id, true);
		else if (now_ns - e->put_ns > ttl - SLACK_NS)
			e->presence = MAY;
	}
}

void oracle_excuse(struct oracle *oracle, bool keep_drained)
{
	for (uint32_t id = 0; id < oracle->chains * oracle->depth; id++) {
		struct entry *e = &oracle->entries[id];

		if (e->presence == MUST && !(keep_drained && e->drained && !e->risen))
			e->presence = MAY;
	}
}
