/*
 * radix_scan_test.c - the ways to look through a slot's holders agree with a plain reading of them.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "radix_node.h"

#define WORKERS 40
#define ROUNDS  3000

static uint64_t dice_state;

static uint32_t dice(uint32_t below)
{
	dice_state += UINT64_C(0x9E3779B97F4A7C15);
	uint64_t x = (dice_state ^ dice_state >> 30) * UINT64_C(0xBF58476D1CE4E5B9);

	return (uint32_t)((x ^ x >> 29) % below);
}

/* A slot's words and the windows that they are judged by. */
struct scene {
	_Atomic uint64_t words[KVW_NODE_WORDS];
	_Atomic uint64_t windows[KVW_MAX_WORKERS];
	unsigned used;
	uint32_t start, length;
	struct kvw_radix_reach before;
};

static uint32_t worker_number(uint32_t i)
{
	return i % WORKERS == 0 ? KVW_MAX_WORKERS - 1 : i % WORKERS;
}

/* twins: workers may have several words, as a slot that is being reused may show. */
static void make(struct scene *scene, bool twins)
{
	uint32_t first = dice(WORKERS);

	memset(scene, 0, sizeof(*scene));
	scene->used = dice(KVW_NODE_WORDS + 1);
	scene->start = dice(50);
	scene->length = 1 + dice(KVW_RADIX_RUN);
	scene->before.limit = dice(2) == 0 ? KVW_MAX_WORKERS : 1 + dice(WORKERS);
	for (uint32_t i = 0; i < WORKERS; i++) {
		uint32_t worker = i == 0 ? KVW_MAX_WORKERS - 1 : i;
		uint32_t floor = dice(4) == 0 ? UINT32_MAX - 3 : 1 + dice(20);

		if (dice(8) != 0) /* else it never held anything */
			scene->windows[worker] = (uint64_t)floor << 32 | (floor + dice(10));
		if (dice(3) != 0 || worker >= scene->before.limit)
			continue;
		scene->before.chunks[worker] = 1 + dice(scene->start + scene->length);
		scene->before.workers[scene->before.count++] = (uint16_t)worker;
	}
	for (unsigned i = 0; i < KVW_NODE_WORDS; i++) {
		struct kvw_holder h = {.worker = worker_number(twins ? dice(WORKERS) : first + i),
			.mid = 1 + dice(KVW_RADIX_RUN)};

		h.upto = h.mid + dice(KVW_RADIX_RUN + 1 - h.mid);
		h.older = h.upto == h.mid ? 0 : dice(8) == 0 ? KVW_HOLDER_OLDEST : dice(10);
		h.tick = dice(4) == 0 ? dice(40)
				      : (uint32_t)(scene->windows[h.worker] >> 32) + dice(12);
		/* Words that are not in use are hashes: anything. */
		scene->words[i] = i >= scene->used
					  ? (uint64_t)dice(UINT32_MAX) << 32 | dice(UINT32_MAX)
				  : dice(6) == 0 ? 0
						 : kvw_holder_pack(h);
	}
}

static bool is_alive(const struct scene *scene, uint64_t word)
{
	struct kvw_holder h = kvw_holder_unpack(word);

	return word != 0 && kvw_view_alive(scene->windows[h.worker], h.tick);
}

static void check_masks(const struct kvw_radix_scan *scan, const struct scene *scene)
{
	uint32_t worker = worker_number(dice(WORKERS));
	uint32_t mine = 0, dead = 0;

	for (unsigned i = 0; i < scene->used; i++) {
		uint64_t word = scene->words[i];

		mine |= (uint32_t)(word != 0 && kvw_holder_unpack(word).worker == worker) << i;
		dead |= (uint32_t)!is_alive(scene, word) << i;
	}
	ck_assert_uint_eq(scan->of_worker(scene->words, scene->used, worker), mine);
	ck_assert_uint_eq(scan->dead(scene->words, scene->used, scene->windows), dead);
}

static void check_reach(const struct kvw_radix_scan *scan, const struct scene *scene)
{
	struct kvw_radix_reach got = scene->before, want = scene->before;

	for (unsigned i = 0; i < scene->used; i++) {
		struct kvw_holder h = kvw_holder_unpack(scene->words[i]);
		uint32_t *held = &want.chunks[h.worker];
		bool whole = kvw_view_alive(scene->windows[h.worker], h.tick - h.older);
		uint32_t extent = whole ? h.upto : h.mid;
		uint32_t end = scene->start + (extent < scene->length ? extent : scene->length);

		if (!is_alive(scene, scene->words[i]) || *held < scene->start || end <= *held ||
			h.worker >= want.limit)
			continue;
		if (*held == 0)
			want.workers[want.count++] = (uint16_t)h.worker;
		*held = end;
	}
	scan->reach(scene->words, scene->used, scene->windows, scene->start, scene->length, &got);
	ck_assert_mem_eq(got.chunks, want.chunks, sizeof(want.chunks));
	ck_assert_uint_eq(got.count, want.count);
	ck_assert_mem_eq(got.workers, want.workers, want.count * sizeof(want.workers[0]));
}

/* However many words a worker has: it is listed once, and holds what one of them says. */
static void check_twins(const struct kvw_radix_scan *scan, const struct scene *scene)
{
	struct kvw_radix_reach got = scene->before;
	bool listed[KVW_MAX_WORKERS] = {false};

	scan->reach(scene->words, scene->used, scene->windows, scene->start, scene->length, &got);
	for (uint32_t i = 0; i < got.count; i++) {
		uint32_t worker = got.workers[i];

		ck_assert(!listed[worker]);
		listed[worker] = true;
		ck_assert_uint_ge(got.chunks[worker], scene->before.chunks[worker]);
		ck_assert_uint_ge(got.chunks[worker], 1);
		if (got.chunks[worker] != scene->before.chunks[worker])
			ck_assert_uint_le(got.chunks[worker], scene->start + scene->length);
	}
	for (uint32_t worker = 0; worker < KVW_MAX_WORKERS; worker++)
		ck_assert_int_eq(listed[worker], got.chunks[worker] > 0);
}

static void check_scan(const struct kvw_radix_scan *scan)
{
	struct scene *scene = malloc(sizeof(*scene));

	ck_assert_ptr_nonnull(scene);
	dice_state = 17;
	for (unsigned i = 0; i < ROUNDS; i++) {
		make(scene, false);
		check_masks(scan, scene);
		check_reach(scan, scene);
		make(scene, true);
		check_masks(scan, scene);
		check_twins(scan, scene);
	}
	free(scene);
}

START_TEST(plain_loops_read_every_word)
{
	check_scan(&kvw_radix_scan_base);
}
END_TEST

START_TEST(the_best_for_this_processor_agrees)
{
	check_scan(kvw_radix_scan_best());
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("radix_scan");
	TCase *tcase = tcase_create("scan");
	SRunner *runner = srunner_create(suite);
	int failed = 0;

	tcase_set_timeout(tcase, 60);
	tcase_add_test(tcase, plain_loops_read_every_word);
	tcase_add_test(tcase, the_best_for_this_processor_agrees);
	suite_add_tcase(suite, tcase);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? 0 : 1;
}
