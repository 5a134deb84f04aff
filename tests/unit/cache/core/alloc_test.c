/*
 * alloc_test.c - each allocation of a whole life fails in turn: nothing crashes, nothing leaks (the
 * sanitizer build looks), and each caller gets KVT_ENOMEM or a miss.
 *
 * The linker sends the library's malloc, calloc, realloc and reallocarray here (--wrap).
 */
#include <stdlib.h>
#include <string.h>

#include "support.h"
#include "tests/unit/failing_allocator.h"
#include "tests/unit/suite.h"

void *__wrap_reallocarray(void *old, size_t count, size_t size);

static bool armed;
static long countdown; /* allocations until one fails */
static bool failed;

static bool fails(void)
{
	if (!armed || countdown-- > 0)
		return false;
	if (countdown == -1) {
		failed = true;
		return true;
	}
	return false;
}

void *__wrap_reallocarray(void *old, size_t count, size_t size)
{
	return fails() ? NULL : __real_realloc(old, count * size);
}

static struct rig rig;
static uint8_t data[CHUNK];

static bool told(enum kvt_status status)
{
	return status == KVT_OK || status == KVT_ENOMEM || status == KVT_MISS ||
	       status == KVT_EXISTS || status == KVT_FULL;
}

/* Check itself allocates. */
static void must(bool fine)
{
	if (!fine)
		abort();
}

static void put_one(uint32_t chain, uint32_t index)
{
	static const uint8_t hashes[32];
	struct kvt_blocks blocks = {.hashes = hashes, .hash_bytes = 32, .count = 1};
	struct kvt_item item = {.size = sizeof(item),
		.key = key_of(chain, index),
		.bytes = CHUNK,
		.blocks = &blocks};

	bytes_of(&item.key, data, CHUNK);
	must(told(kvt_put(rig.k, &item, data)));
}

static void get_one(uint32_t chain, uint32_t n)
{
	struct kvt_key keys[4];
	struct kvt_lease *lease;
	enum kvt_status status;

	keys_of(chain, n, keys);
	status = kvt_get(rig.k, keys, n, SECOND, &lease);
	must(told(status));
	if (status != KVT_OK)
		return;
	armed = false;
	check_lease(lease, keys, n);
	armed = true;
	kvt_release(rig.k, lease);
}

static void whole_life(void)
{
	static const struct kvt_tier_ops *const tiers[] = {&fake_tier_ops, NULL};
	struct kvt_key key = key_of(1, 0);
	enum kvt_status status;
	struct kvt_lookup found;
	char *text = NULL;
	size_t erased;
	uint64_t op;

	status = kvt_open_with(&rig.config, tiers, &rig.k);
	must(status == KVT_OK || status == KVT_ENOMEM);
	if (status != KVT_OK)
		return;
	put_one(1, 0);
	put_one(1, 1);
	rig_settle(&rig);
	for (uint32_t i = 0; i < 12; i++)
		put_one(100 + i, 0);
	rig_settle(&rig);
	get_one(1, 2);
	must(told(kvt_get_begin(rig.k, &key, 1, SECOND, 0, &op)));
	must(told(kvt_prefetch(rig.k, &key, 1)));
	must(told(kvt_lookup(rig.k, &key, 1, 0, NULL, &found)));
	must(told(kvt_drain(rig.k, SECOND)));
	must(told(kvt_erase(rig.k, &key, 1, SECOND, &erased)));
	must(told(kvt_reset(rig.k)));
	must(told(kvt_metrics(rig.k, &text)));
	armed = false;
	kvt_text_free(text);
	kvt_close(rig.k);
}

START_TEST(each_allocation_fails_in_turn)
{
	long n = 0;

	do {
		rig_init(&rig);
		rig.config.l1_capacity = 8 * CHUNK;
		rig.config.l1_max_chunks = 64;
		rig.config.events_queue = 16;
		failed = false;
		countdown = n++;
		armed = true;
		whole_life();
		armed = false;
	} while (failed);
	ck_assert_int_gt(n, 50);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("allocations");

	tcase_set_timeout(tc, 240);
	tcase_add_test(tc, each_allocation_fails_in_turn);
	return run_tcase("cache/core allocations", tc);
}
