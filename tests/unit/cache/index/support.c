/*
 * support.c - keys, a clock and a strict `gone` for the tests of the index.
 */
#include "support.h"

static int64_t wall(void *self)
{
	struct bed *bed = self;
	void (*on_clock)(struct bed * bed) = bed->on_clock;

	bed->on_clock = NULL;
	if (on_clock != NULL)
		on_clock(bed);
	return bed->wall_ns;
}

static void quiet(void *self, uint32_t level, const char *line)
{
	(void)self, (void)level, (void)line;
}

static void count_gone(
	void *self, uint32_t entry, const struct kvt_key *key, const struct kvt_entry_info *info)
{
	struct bed *bed = self;

	(void)entry;
	bed->gone++;
	bed->last_gone = *key;
	bed->last_info = *info;
}

void bed_open(struct bed *bed, const struct bed_options *options)
{
	const struct kvt_index_options made = {
		.max_entries = options->max_entries,
		.capacity = options->capacity,
		.tenant_limit = options->tenant_limit,
		.policy = options->policy == NULL ? "lru" : options->policy,
		.gone = count_gone,
		.self = bed,
	};

	memset(bed, 0, sizeof(*bed));
	bed->wall_ns = 1000 * SECOND;
	bed->surroundings = (struct kvt_surroundings){
		.clock = {.now_ns = wall, .wall_ns = wall, .self = bed},
		.log = quiet,
	};
	ck_assert_int_eq(kvt_index_create(&made, &bed->surroundings, &bed->index), KVT_OK);
}

void bed_close(struct bed *bed)
{
	kvt_index_destroy(bed->index);
}

uint64_t test_random(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15ull;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

struct kvt_key key_of(uint64_t number)
{
	uint64_t words[4];
	struct kvt_key key;

	for (int i = 0; i < 4; i++)
		words[i] = test_random(&number);
	memcpy(&key, words, sizeof(key));
	return key;
}

struct kvt_tenant tenant_of(uint64_t number)
{
	struct kvt_tenant tenant = {{0}};

	memcpy(tenant.bytes, &number, sizeof(number));
	return tenant;
}

struct kvt_entry_info info_of(uint64_t charge)
{
	return (struct kvt_entry_info){
		.bytes = charge, .charge = charge, .expires_wall_ns = INT64_MAX};
}

bool same_info(const struct kvt_entry_info *a, const struct kvt_entry_info *b)
{
	return a->bytes == b->bytes && a->charge == b->charge &&
	       memcmp(&a->tenant, &b->tenant, sizeof(a->tenant)) == 0 &&
	       a->expires_wall_ns == b->expires_wall_ns && a->ttl_ns == b->ttl_ns &&
	       a->tokens == b->tokens && a->cost_ns == b->cost_ns &&
	       memcmp(a->place, b->place, sizeof(a->place)) == 0;
}

enum kvt_status bed_put(
	struct bed *bed, uint64_t number, uint64_t parent, const struct kvt_entry_info *info)
{
	const struct kvt_key key = key_of(number), above = key_of(parent);
	enum kvt_status status;
	uint32_t entry;

	status = kvt_index_insert(
		bed->index, &key, parent == UINT64_MAX ? NULL : &above, info, &entry);
	if (status != KVT_OK)
		return status;
	status = kvt_index_publish(bed->index, entry);
	kvt_index_release(bed->index, entry);
	return status;
}

bool bed_has(struct bed *bed, uint64_t number)
{
	const struct kvt_key key = key_of(number);

	return kvt_index_match(bed->index, &key, 1) == 1;
}
