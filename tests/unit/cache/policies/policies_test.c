/*
 * policies_test.c - what every policy keeps to, whatever it chooses.
 */
#include "support.h"
#include "tests/unit/suite.h"

#define ROOM 200

static const char *name_at(int i)
{
	return kvt_policy_names()[i];
}

START_TEST(test_names)
{
	static const char *const expected[] = {
		"lru", "lfu", "fifo", "arc", "s3fifo", "wtinylfu", "cost"};

	for (size_t i = 0; i < sizeof(expected) / sizeof(expected[0]); i++) {
		ck_assert_ptr_nonnull(kvt_policy_named(expected[i]));
		ck_assert_str_eq(kvt_policy_named(expected[i])->name, expected[i]);
	}
	for (const char *const *name = kvt_policy_names(); *name != NULL; name++) {
		ck_assert_str_ne(*name, "default");
		ck_assert_str_eq(kvt_policy_named(*name)->name, *name);
	}
	ck_assert_ptr_nonnull(kvt_policy_named("default"));
	ck_assert_ptr_null(kvt_policy_named("mru"));
	ck_assert_ptr_null(kvt_policy_named(""));
}
END_TEST

/* Chains, uses, pins and erasures at random; support.c watches that only leaves go, that nothing is
 * named that is not there, and that ghosts keep to their memory. */
START_TEST(test_conforms)
{
	uint64_t state = 7;
	struct tier t;

	tier_open(&t, name_at(_i), ROOM, 4096);
	for (int step = 0; step < 30000; step++) {
		const uint64_t dice = test_random(&state) % 100;
		const uint32_t entry = (uint32_t)(test_random(&state) % ROOM);
		struct tier_entry *e = &t.entries[entry];

		if (dice < 50) {
			uint32_t parent = e->there && dice < 40 ? entry : KVT_NO_ENTRY;

			if (parent != KVT_NO_ENTRY && e->pinned)
				continue;
			if (parent != KVT_NO_ENTRY)
				e->pinned = true;
			(void)tier_add(&t, test_random(&state) % 1000, parent);
			if (parent != KVT_NO_ENTRY)
				e->pinned = false;
		} else if (!e->there) {
			continue;
		} else if (dice < 90) {
			t.policy->ops->used(t.policy, entry);
		} else if (dice < 95) {
			e->pinned = !e->pinned && test_random(&state) % 4 == 0;
		} else if (e->children == 0) {
			tier_erase(&t, entry);
		}
	}
	for (uint32_t e = 0; e < ROOM; e++)
		t.entries[e].pinned = false;
	/* Everything can leave, each once. */
	while (t.count > 0)
		ck_assert_uint_ne(tier_evict(&t), NO_NAME);
	ck_assert_uint_eq(tier_evict(&t), NO_NAME);
	tier_close(&t);
}
END_TEST

START_TEST(test_nothing_may_go)
{
	struct tier t;

	tier_open(&t, name_at(_i), 10, 0);
	for (uint64_t i = 0; i < 10; i++)
		t.entries[tier_add(&t, i, KVT_NO_ENTRY)].pinned = true;
	for (int i = 0; i < 20; i++)
		ck_assert_uint_eq(tier_add(&t, 100, KVT_NO_ENTRY), KVT_NO_ENTRY);
	/* The one that may is found, wherever it stands. */
	for (uint32_t e = 0; e < 10; e++) {
		t.entries[e].pinned = false;
		ck_assert_uint_eq(tier_evict(&t), e);
	}
	tier_close(&t);
}
END_TEST

/* A victim is only named: asked again without removing it, a victim is named again. */
START_TEST(test_victim_stays)
{
	struct tier t;

	tier_open(&t, name_at(_i), 50, 1024);
	for (uint64_t i = 0; i < 50; i++)
		(void)tier_add(&t, i, KVT_NO_ENTRY);
	for (int i = 0; i < 100; i++) {
		uint32_t before = t.count;

		ck_assert_uint_ne(tier_add(&t, 100 + (uint64_t)i, KVT_NO_ENTRY), KVT_NO_ENTRY);
		ck_assert_uint_eq(t.count, before);
	}
	tier_close(&t);
}
END_TEST

/* Chains inserted from their first chunk on, none ever used again: the longest walks. */
START_TEST(test_walks_are_short)
{
	uint64_t names[32], next = 0;
	struct tier t;

	tier_open(&t, name_at(_i), 2000, 65536);
	for (int chain = 0; chain < 600; chain++) {
		for (size_t i = 0; i < 32; i++)
			names[i] = next++;
		(void)tier_ask(&t, names, 32);
		if (chain % 10 == 0)
			t.entries[tier_find(&t, names[31])].pinned = chain < 500;
	}
	ck_assert_uint_gt(t.evictions, 10000);
	ck_assert_msg(t.asked < 32 * t.evictions, "%s: %.1f steps an eviction", name_at(_i),
		(double)t.asked / (double)t.evictions);
	tier_close(&t);
}
END_TEST

/* A few hundred pinned chunks at the old end are not walked past each time. */
START_TEST(test_pins_are_not_met_each_time)
{
	struct tier t;

	tier_open(&t, name_at(_i), 2000, 65536);
	for (uint64_t i = 0; i < 1000; i++)
		t.entries[tier_add(&t, i, KVT_NO_ENTRY)].pinned = true;
	for (uint64_t i = 1000; i < 22000; i++)
		(void)tier_add(&t, i, KVT_NO_ENTRY);
	ck_assert_uint_eq(t.evictions, 20000);
	ck_assert_msg(t.asked < 8 * t.evictions, "%s: %.1f steps an eviction", name_at(_i),
		(double)t.asked / (double)t.evictions);
	tier_close(&t);
}
END_TEST

/* Prompts that are asked for again and again outlive a flood that is not, where that is promised. */
START_TEST(test_flood)
{
	static const char *const resistant[] = {
		"lfu", "arc", "s3fifo", "wtinylfu", "density", "default"};
	uint64_t names[8], next = 1000000, hit = 0, asked = 0;
	struct tier t;

	tier_open(&t, resistant[_i], 400, 65536);
	for (int round = 0; round < 60; round++) {
		for (uint64_t prompt = 0; prompt < 10; prompt++) {
			for (uint64_t i = 0; i < 8; i++)
				names[i] = prompt * 8 + i;
			hit += tier_ask(&t, names, 8);
			asked += 8;
		}
		for (int flood = 0; round >= 10 && flood < 60; flood++) {
			for (size_t i = 0; i < 8; i++)
				names[i] = next++;
			(void)tier_ask(&t, names, 8);
		}
	}
	ck_assert_msg(hit * 10 > asked * 8, "%s: %lu of %lu", resistant[_i], (unsigned long)hit,
		(unsigned long)asked);
	tier_close(&t);
}
END_TEST

START_TEST(test_memory)
{
	struct kvt_policy_options options = {.max_entries = 100000,
		.capacity_bytes = 100000ull << 22,
		.max_ghost_bytes = 1 << 20};
	struct kvt_policy *p = NULL;
	uint64_t own = 0, ghosts = 0;

	ck_assert_int_eq(kvt_policy_named(name_at(_i))->create(&options, &p), KVT_OK);
	p->ops->memory(p, &own, &ghosts);
	ck_assert_uint_le(own, options.max_entries * 24ull + 65536);
	ck_assert_uint_ge(own, options.max_entries * 8ull);
	ck_assert_uint_le(ghosts, options.max_ghost_bytes);
	p->ops->destroy(p);
	kvt_policy_named(name_at(_i))->destroy(NULL);
	options.max_ghost_bytes = 0;
	ck_assert_int_eq(kvt_policy_named(name_at(_i))->create(&options, &p), KVT_OK);
	p->ops->memory(p, &own, &ghosts);
	ck_assert_uint_eq(ghosts, 0);
	p->ops->destroy(p);
}
END_TEST

/* Sizes from nothing to more than the tier has. */
START_TEST(test_odd_sizes)
{
	const struct kvt_policy_options options = {
		.max_entries = 64, .capacity_bytes = UINT64_MAX / 2, .max_ghost_bytes = 4096};
	struct kvt_policy_item item = {.name = 1};
	struct kvt_policy *p = NULL;

	ck_assert_int_eq(kvt_policy_named(name_at(_i))->create(&options, &p), KVT_OK);
	for (uint32_t round = 0; round < 10; round++) {
		for (uint32_t e = 0; e < 64; e++) {
			item.name = e + round * 32;
			item.bytes = e == 0 ? UINT64_MAX : (1ull << e) - 1;
			item.cost_ns = e == 1 ? UINT64_MAX : e;
			p->ops->added(p, e, &item);
			p->ops->used(p, e);
		}
		for (uint32_t e = 0; e < 64; e++)
			p->ops->removed(p, e, e % 2 == 0);
	}
	p->ops->destroy(p);
}
END_TEST

int main(void)
{
	TCase *all = tcase_create("every policy");
	int count = 0;

	while (name_at(count) != NULL)
		count++;
	tcase_set_timeout(all, 120);
	tcase_add_test(all, test_names);
	tcase_add_loop_test(all, test_conforms, 0, count);
	tcase_add_loop_test(all, test_nothing_may_go, 0, count);
	tcase_add_loop_test(all, test_victim_stays, 0, count);
	tcase_add_loop_test(all, test_walks_are_short, 0, count);
	tcase_add_loop_test(all, test_pins_are_not_met_each_time, 0, count);
	tcase_add_loop_test(all, test_flood, 0, 6);
	tcase_add_loop_test(all, test_memory, 0, count);
	tcase_add_loop_test(all, test_odd_sizes, 0, count);
	return run_tcase("policies", all);
}
