/*
 * random_test.c - random histories over a tier that holds back, overtakes, refuses and forgets.
 *
 * A chunk's bytes are a function of its key and of how often the key was erased. So bytes that come
 * back after an erase are seen even if the same key was put again, and a get must give the bytes of
 * the present generation or a miss. Without threads: a history is its seed.
 */
#include <stdlib.h>
#include <string.h>

#include "support.h"
#include "tests/unit/steps.h"
#include "tests/unit/suite.h"

#define CHAINS  6
#define DEPTH   6
#define SMALL   (70u * 1024)
#define HELD_AT_MOST 5

static struct rig rig;

struct history {
	uint64_t seed;
	uint32_t generation[CHAINS][DEPTH];
	bool put[CHAINS][DEPTH]; /* since it was erased last */
	struct kvt_reservation *filling; /* of one chunk */
	uint32_t filling_chain, filling_index;
	bool filling_erased;
	struct kvt_lease *held[HELD_AT_MOST];
	size_t got, erased;
	uint8_t data[SMALL], found[SMALL];
};

static uint32_t any(struct history *h, uint32_t n)
{
	h->seed = h->seed * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(h->seed >> 33) % n;
}

static void content(struct history *h, uint32_t chain, uint32_t index)
{
	struct kvt_key key = key_of(chain * 1000 + h->generation[chain][index], index);

	bytes_of(&key, h->data, SMALL);
}

static struct kvt_item item_of(uint32_t chain, uint32_t index, const struct kvt_key *parent)
{
	struct kvt_item item = { .size = sizeof(item),
		.key = key_of(chain, index),
		.parent = index > 0 ? parent : NULL,
		.bytes = SMALL };

	item.tenant.bytes[0] = (uint8_t)(chain % 2 + 1);
	return item;
}

static void put(struct history *h, uint32_t chain, uint32_t index)
{
	struct kvt_key parent = key_of(chain, index - 1);
	struct kvt_item item = item_of(chain, index, &parent);
	enum kvt_status status;

	content(h, chain, index);
	status = kvt_put(rig.k, &item, h->data);
	ck_assert(status == KVT_OK || status == KVT_EXISTS || status == KVT_FULL ||
		(status == KVT_MISS && index > 0)); /* its parent is nowhere */
	if (status == KVT_OK)
		h->put[chain][index] = true;
}

/* One chunk is filled for a while, across whatever comes. */
static void fill(struct history *h)
{
	const struct kvt_segment *segments;
	struct kvt_checksum sum;
	struct kvt_item item;
	uint32_t count, status;

	if (h->filling != NULL) {
		if (any(h, 4) == 0) {
			kvt_put_abort(rig.k, h->filling);
		} else {
			ck_assert_int_eq(kvt_put_commit(rig.k, h->filling, 1, NULL), KVT_OK);
			if (!h->filling_erased)
				h->put[h->filling_chain][h->filling_index] = true;
		}
		h->filling = NULL;
		return;
	}
	h->filling_chain = any(h, CHAINS);
	h->filling_index = 0;
	h->filling_erased = false;
	item = item_of(h->filling_chain, 0, NULL);
	content(h, h->filling_chain, 0);
	if (kvt_put_reserve(rig.k, &item, 1, &h->filling, &segments, &count, &status) == KVT_OK)
		kvt_fill(segments, count, h->data, SMALL, &sum);
	else
		h->filling = NULL;
}

static void check(struct history *h, const struct kvt_lease *lease, uint32_t chain)
{
	for (uint32_t i = 0; i < lease->count; i++) {
		ck_assert_msg(h->put[chain][i], "chunk %u of chain %u was erased", i, chain);
		content(h, chain, i);
		ck_assert_uint_eq(kvt_copy(lease, i, h->found, SMALL), SMALL);
		ck_assert(memcmp(h->found, h->data, SMALL) == 0);
	}
	h->got += lease->count;
}

static void get(struct history *h, uint32_t chain)
{
	struct kvt_key keys[DEPTH];
	struct kvt_lease *lease;
	uint32_t n = any(h, DEPTH) + 1, slot = any(h, HELD_AT_MOST);

	keys_of(chain, n, keys);
	if (kvt_get(rig.k, keys, n, any(h, 2) * SECOND, &lease) != KVT_OK)
		return;
	check(h, lease, chain);
	kvt_release(rig.k, h->held[slot]);
	h->held[slot] = lease;
}

static void get_later(struct history *h, uint32_t chain)
{
	struct kvt_key keys[DEPTH];
	uint64_t op;

	keys_of(chain, DEPTH, keys);
	if (kvt_get_begin(rig.k, keys, DEPTH, any(h, 5) * SECOND, chain, &op) == KVT_OK
		&& any(h, 8) == 0)
		ck_assert_int_eq(kvt_cancel(rig.k, op), KVT_OK);
}

/* What was begun before an erase may hold chunks of before it: only its shape is looked at. */
static void poll(void)
{
	struct kvt_completion c;
	struct kvt_lease *lease;

	while (kvt_poll(rig.k, &c, 1) == 1)
		if (kvt_get_take(rig.k, c.op, &lease) == KVT_OK) {
			ck_assert_uint_eq(lease->count, c.count);
			ck_assert_int_eq(kvt_verify(rig.k, lease), KVT_OK);
			kvt_release(rig.k, lease);
		}
}

static void forget(struct history *h, uint32_t chain, uint32_t index)
{
	h->put[chain][index] = false;
	h->generation[chain][index]++;
	if (h->filling != NULL && h->filling_chain == chain && h->filling_index == index)
		h->filling_erased = true;
}

static void forget_all(struct history *h, uint32_t tenant)
{
	for (uint32_t chain = 0; chain < CHAINS; chain++)
		for (uint32_t i = 0; i < DEPTH; i++)
			if (tenant == 0 || chain % 2 + 1 == tenant)
				forget(h, chain, i);
}

static void erase(struct history *h, uint32_t chain)
{
	struct kvt_tenant tenant = { { (uint8_t)(chain % 2 + 1) } };
	uint32_t first = any(h, DEPTH), n = any(h, DEPTH - first) + 1, kind = any(h, 20);
	struct kvt_key keys[DEPTH];
	uint64_t op;

	keys_of(chain, DEPTH, keys);
	if (kind == 0) {
		ck_assert_int_le(kvt_erase_tenant(rig.k, &tenant, 0, NULL), KVT_MISS);
		forget_all(h, tenant.bytes[0]);
	} else if (kind == 1) {
		ck_assert_int_le(kvt_reset(rig.k), KVT_MISS);
		forget_all(h, 0);
	} else {
		enum kvt_status status = any(h, 2) == 0
			? kvt_erase(rig.k, &keys[first], n, any(h, 2) * SECOND, NULL)
			: kvt_erase_begin(rig.k, &keys[first], n, SECOND, 0, &op);

		if (status == KVT_BUSY)
			return;
		ck_assert_int_le(status, KVT_MISS);
		for (uint32_t i = first; i < first + n; i++)
			forget(h, chain, i);
	}
	h->erased++;
}

/* What is erased is in no lookup; what is looked up was put. */
static void look(struct history *h, uint32_t chain)
{
	for (uint32_t i = 0; i < DEPTH; i++) {
		struct kvt_key key = key_of(chain, i);
		struct kvt_lookup found;

		ck_assert_int_eq(kvt_lookup(rig.k, &key, 1, 0, NULL, &found), KVT_OK);
		ck_assert(found.hits == 0 || h->put[chain][i]);
	}
}

static void trouble(struct history *h)
{
	static const enum kvt_status answers[] = { KVT_EIO, KVT_ECORRUPT, KVT_MISS, KVT_ENOMEM };
	enum kvt_tier_verb verb = (enum kvt_tier_verb)any(h, FAKE_VERBS);
	struct kvt_key key = key_of(any(h, CHAINS), any(h, DEPTH));

	switch (any(h, 6)) {
	case 0:
		fake_answer(fake_tier(), verb,
			verb == KVT_TIER_READ ? answers[any(h, 4)] : KVT_EIO, any(h, 3));
		break;
	case 1:
		fake_damage(fake_tier(), &key);
		break;
	case 2:
		rig_advance(&rig, any(h, 8) * SECOND);
		break;
	default:
		fake_hold(fake_tier(), verb, any(h, 3) == 0);
	}
}

static void step(struct history *h)
{
	uint32_t chain = any(h, CHAINS);
	int64_t next_ns;

	switch (any(h, 12)) {
	case 0:
	case 1:
	case 2:
		for (uint32_t i = 0, n = any(h, DEPTH) + 1; i < n; i++)
			put(h, chain, i);
		break;
	case 3:
	case 4:
		get(h, chain);
		break;
	case 5:
		get_later(h, chain);
		break;
	case 6:
		erase(h, chain);
		break;
	case 7:
		fill(h);
		break;
	case 8:
		trouble(h);
		break;
	case 9:
		poll();
		look(h, chain);
		break;
	default:
		kvt_step(rig.k, &next_ns);
	}
}

static void finish(struct history *h)
{
	for (int verb = 0; verb < FAKE_VERBS; verb++) {
		fake_hold(fake_tier(), (enum kvt_tier_verb)verb, false);
		fake_answer(fake_tier(), (enum kvt_tier_verb)verb, KVT_OK, 0);
	}
	for (int i = 0; i < 100; i++) /* pauses, retries */
		rig_advance(&rig, SECOND);
	poll();
	if (h->filling != NULL)
		kvt_put_abort(rig.k, h->filling);
	for (int i = 0; i < HELD_AT_MOST; i++)
		kvt_release(rig.k, h->held[i]);
	for (uint32_t chain = 0; chain < CHAINS; chain++)
		look(h, chain);
	rig_settle(&rig);
	ck_assert_uint_eq(rig_stats(&rig).tiers[KVT_TIER_L1].leased, 0);
	ck_assert_uint_eq(rig_stats(&rig).tiers[KVT_TIER_L1].corrupt, 0);
	ck_assert_uint_eq(rig_stats(&rig).tiers[KVT_TIER_NVME].queued_read_bytes, 0);
	ck_assert_uint_eq(rig_stats(&rig).tiers[KVT_TIER_NVME].queued_write_bytes, 0);
}

START_TEST(a_random_history)
{
	struct history *h = calloc(1, sizeof(*h));

	h->seed = (uint64_t)_i * 7919 + 1;
	rig_init(&rig);
	rig.config.l1_capacity = (uint64_t)(10 + _i % 20) * 128 * 1024;
	rig.config.l1_staging_share = _i % 3 * 0.1;
	rig.config.load_inflight = (uint64_t)(1 + _i % 4) * SMALL;
	rig.config.store_inflight = (uint64_t)(2 + _i % 7) * SMALL;
	rig.config.breaker_failures = 1 + (uint32_t)_i % 4;
	rig.config.ops = 1 + (uint32_t)_i % 16;
	rig_open(&rig);
	for (int i = 0; i < 1500; i++)
		step(h);
	finish(h);
	ck_assert_uint_gt(h->got, 0);
	ck_assert_uint_gt(h->erased, 0);
	rig_close(&rig);
	free(h);
}
END_TEST

int main(void)
{
	const char *more = getenv("KVT_HISTORIES");
	TCase *tc = tcase_create("histories");

	tcase_set_timeout(tc, 120);
	tcase_add_loop_test(tc, a_random_history, 0, more != NULL ? atoi(more) : (int)kvt_test_steps(24));
	return run_tcase("cache/core random", tc);
}
