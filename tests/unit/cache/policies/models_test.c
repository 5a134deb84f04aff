/*
 * models_test.c - policies against naive models of themselves, choice by choice.
 *
 * No chains and no pins here, so each victim follows from the policy's definition alone.
 */
#include "support.h"
#include "tests/unit/suite.h"

#define ROOM  64
#define STEPS 20000

/* An entry as a model knows it. */
struct known {
	uint64_t name, came, used, uses, key;
};

struct model {
	struct known items[ROOM];
	uint32_t count;
	uint64_t now, age;
};

static struct known *model_find(struct model *m, uint64_t name)
{
	for (uint32_t i = 0; i < m->count; i++)
		if (m->items[i].name == name)
			return &m->items[i];
	return NULL;
}

static void model_touch(struct model *m, struct known *k)
{
	k->used = ++m->now;
	k->uses++;
	k->key = m->age + k->uses;
}

static void model_add(struct model *m, uint64_t name)
{
	struct known *k = &m->items[m->count++];

	*k = (struct known){.name = name};
	model_touch(m, k);
	k->came = m->now;
}

static bool fifo_before(const struct known *a, const struct known *b)
{
	return a->came < b->came;
}

static bool lru_before(const struct known *a, const struct known *b)
{
	return a->used < b->used;
}

static bool lfu_before(const struct known *a, const struct known *b)
{
	return a->key != b->key ? a->key < b->key : a->used < b->used;
}

static uint64_t model_evict(
	struct model *m, bool (*before)(const struct known *a, const struct known *b))
{
	struct known *first = &m->items[0];
	uint64_t name;

	for (uint32_t i = 1; i < m->count; i++)
		if (before(&m->items[i], first))
			first = &m->items[i];
	name = first->name;
	m->age = first->key;
	*first = m->items[--m->count];
	return name;
}

/* Uses, arrivals and erasures at random; a third of the names is asked for more often. */
static void compare(
	const char *policy, bool (*before)(const struct known *a, const struct known *b))
{
	uint64_t state = 3;
	struct model m = {0};
	struct tier t;

	tier_open(&t, policy, ROOM, 4096);
	for (int step = 0; step < STEPS; step++) {
		const uint64_t dice = test_random(&state);
		const uint64_t name = dice % 3 == 0 ? dice / 3 % 30 : dice / 3 % 300;
		const uint32_t entry = tier_find(&t, name);
		struct known *k = model_find(&m, name);

		ck_assert_int_eq(k != NULL, entry != KVT_NO_ENTRY);
		if (k != NULL && dice >> 32 & 15) {
			t.policy->ops->used(t.policy, entry);
			model_touch(&m, k);
		} else if (k != NULL) {
			tier_erase(&t, entry);
			*k = m.items[--m.count];
		} else {
			if (t.count == ROOM)
				ck_assert_uint_eq(tier_evict(&t), model_evict(&m, before));
			(void)tier_add(&t, name, KVT_NO_ENTRY);
			model_add(&m, name);
		}
	}
	ck_assert_uint_gt(t.evictions, STEPS / 10);
	tier_close(&t);
}

START_TEST(test_fifo)
{
	compare("fifo", fifo_before);
}
END_TEST

START_TEST(test_lru)
{
	compare("lru", lru_before);
}
END_TEST

START_TEST(test_lfu)
{
	compare("lfu", lfu_before);
}
END_TEST

static bool any(void *self, uint32_t entry)
{
	(void)self, (void)entry;
	return true;
}

/* What is cheap to compute, or large, leaves before what is not; a use is worth as much again. */
START_TEST(test_cost_order)
{
	static const struct kvt_policy_item items[] = {
		{.name = 1, .bytes = 100, .cost_ns = 500},  /* 5 ns a byte */
		{.name = 2, .bytes = 100, .cost_ns = 200},  /* 2 */
		{.name = 3, .bytes = 400, .cost_ns = 400},  /* 1, used twice more: 3 */
		{.name = 4, .bytes = 100, .cost_ns = 1000}, /* 10 */
	};
	static const uint32_t order[] = {1, 2, 0, 3};
	const struct kvt_policy_options options = {.max_entries = 4, .capacity_bytes = 1000};
	struct kvt_policy *p = NULL;

	ck_assert_int_eq(kvt_policy_named("cost")->create(&options, &p), KVT_OK);
	for (uint32_t e = 0; e < 4; e++)
		p->ops->added(p, e, &items[e]);
	p->ops->used(p, 2);
	p->ops->used(p, 2);
	for (size_t i = 0; i < 4; i++) {
		ck_assert_uint_eq(p->ops->victim(p, any, NULL), order[i]);
		p->ops->removed(p, order[i], true);
	}
	p->ops->destroy(p);
}
END_TEST

/* A chain leaves from its end, whatever the policy. */
START_TEST(test_chain_leaves_from_its_end)
{
	struct tier t;
	uint32_t parent = KVT_NO_ENTRY;

	tier_open(&t, kvt_policy_names()[_i], 40, 1024);
	for (uint64_t i = 0; i < 40; i++)
		parent = tier_add(&t, i, parent);
	for (uint64_t i = 40; i-- > 0;)
		ck_assert_uint_eq(tier_evict(&t), i);
	tier_close(&t);
}
END_TEST

int main(void)
{
	TCase *all = tcase_create("models");
	int count = 0;

	while (kvt_policy_names()[count] != NULL)
		count++;
	tcase_set_timeout(all, 120);
	tcase_add_test(all, test_fifo);
	tcase_add_test(all, test_lru);
	tcase_add_test(all, test_lfu);
	tcase_add_test(all, test_cost_order);
	tcase_add_loop_test(all, test_chain_leaves_from_its_end, 0, count);
	return run_tcase("models", all);
}
