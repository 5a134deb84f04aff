/*
 * radix_scan_test.c - looking through a slot's holders agrees with a plain reading of them.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "routing/radix_node.h"
#include "tests/unit/suite.h"

#define WORKERS 80
#define ROUNDS  3000

static uint64_t dice_state;

static uint32_t dice(uint32_t below)
{
	dice_state += UINT64_C(0x9E3779B97F4A7C15);
	uint64_t x = (dice_state ^ dice_state >> 30) * UINT64_C(0xBF58476D1CE4E5B9);

	return (uint32_t)((x ^ x >> 29) % below);
}

#define SLOTS 5

/* One slot of a path. */
struct slot {
	_Atomic uint64_t words[KVW_NODE_WORDS];
	unsigned used;
	uint32_t start, length; /* of its node */
};

/* A path and the windows that its words are judged by. */
struct scene {
	struct slot slots[SLOTS];
	_Atomic uint64_t windows[KVW_MAX_WORKERS];
	uint32_t limit;
};

static uint32_t worker_number(uint32_t i)
{
	return i % WORKERS == 0 ? KVW_MAX_WORKERS - 1 : i % WORKERS;
}

/* Words of some workers from number `first` on. twins: workers may have several words, as a slot that is
 * being reused may show. */
static void fill(struct scene *scene, struct slot *slot, unsigned most, uint32_t first, bool twins)
{
	slot->used = most < KVW_NODE_WORDS ? dice(most + 1) : most - dice(6);
	for (unsigned i = 0; i < KVW_NODE_WORDS; i++) {
		struct kvw_holder h = {.worker = worker_number(twins ? dice(WORKERS) : first + i),
			.mid = 1 + dice(KVW_RADIX_RUN)};

		h.upto = h.mid + dice(KVW_RADIX_RUN + 1 - h.mid);
		h.older = h.upto == h.mid ? 0 : dice(8) == 0 ? KVW_HOLDER_OLDEST : dice(10);
		h.tick = dice(4) == 0 ? dice(40)
				      : (uint32_t)(scene->windows[h.worker] >> 32) + dice(12);
		/* Words that are not in use are hashes: anything. */
		slot->words[i] = i >= slot->used
					 ? (uint64_t)dice(UINT32_MAX) << 32 | dice(UINT32_MAX)
				 : dice(6) == 0 ? 0
						: kvw_holder_pack(h);
	}
}

/* Half of the paths begin with few holders: those are kept in a list. */
static void make(struct scene *scene, bool twins)
{
	bool many = dice(2) == 0;
	unsigned most = many ? KVW_NODE_WORDS : 12;
	uint32_t first = 0; /* worker of a node, and how many words it has so far */
	uint32_t words = 0;
	uint32_t start = 0;

	memset(scene, 0, sizeof(*scene));
	scene->limit = dice(2) == 0 ? KVW_MAX_WORKERS : 1 + dice(WORKERS);
	for (uint32_t i = 0; i < WORKERS; i++) {
		uint32_t floor = dice(4) == 0 ? UINT32_MAX - 3 : 1 + dice(20);

		if (dice(8) != 0) /* else it never held anything */
			scene->windows[worker_number(i)] =
				(uint64_t)floor << 32 | (floor + dice(10) + (many ? 30 : 0));
	}
	for (unsigned i = 0; i < SLOTS; i++) {
		struct slot *slot = &scene->slots[i];
		bool overflow = i > 0 && dice(4) == 0;

		slot->length = overflow ? slot[-1].length : 1 + dice(KVW_RADIX_RUN);
		if (!overflow) {
			start += i > 0 ? slot[-1].length : 0;
			first = dice(WORKERS);
			words = 0;
		}
		slot->start = start;
		fill(scene, slot, most < WORKERS - words ? most : WORKERS - words, first + words,
			twins);
		words += slot->used;
	}
}

static bool is_alive(const struct scene *scene, uint64_t word)
{
	struct kvw_holder h = kvw_holder_unpack(word);

	return word != 0 && kvw_view_alive(scene->windows[h.worker], h.tick);
}

static void check_masks(const struct scene *scene)
{
	const struct slot *slot = &scene->slots[0];
	uint32_t worker = worker_number(dice(WORKERS));
	uint32_t mine = 0, dead = 0;

	for (unsigned i = 0; i < slot->used; i++) {
		uint64_t word = slot->words[i];

		mine |= (uint32_t)(word != 0 && kvw_holder_unpack(word).worker == worker) << i;
		dead |= (uint32_t)!is_alive(scene, word) << i;
	}
	ck_assert_uint_eq(kvw_scan_of_worker(slot->words, slot->used, worker), mine);
	ck_assert_uint_eq(kvw_scan_dead(slot->words, slot->used, scene->windows), dead);
}

static void walk(const struct scene *scene, struct kvw_radix_reach *reach)
{
	reach->limit = scene->limit;
	kvw_scan_reach_none(reach);
	for (unsigned i = 0; i < SLOTS; i++) {
		const struct slot *slot = &scene->slots[i];

		kvw_scan_reach(
			slot->words, slot->used, scene->windows, slot->start, slot->length, reach);
	}
	kvw_scan_reach_done(reach);
}

/* What a worker holds of the path, word by word. */
static uint32_t held_of(const struct scene *scene, uint32_t worker)
{
	uint32_t held = 0;

	for (unsigned s = 0; s < SLOTS && worker < scene->limit; s++) {
		const struct slot *slot = &scene->slots[s];

		for (unsigned i = 0; i < slot->used; i++) {
			struct kvw_holder h = kvw_holder_unpack(slot->words[i]);
			bool whole = kvw_view_alive(scene->windows[h.worker], h.tick - h.older);
			uint32_t extent = whole ? h.upto : h.mid;
			uint32_t end =
				slot->start + (extent < slot->length ? extent : slot->length);

			if (h.worker == worker && is_alive(scene, slot->words[i]) &&
				held >= slot->start && end > held)
				held = end;
		}
	}
	return held;
}

/* Returns how many are reached. */
static uint32_t check_reach(const struct scene *scene)
{
	static struct kvw_radix_reach got;
	uint32_t reached = 0;

	walk(scene, &got);
	for (uint32_t i = 0; i < got.count; i++) {
		uint32_t held = held_of(scene, got.workers[i]);

		ck_assert_uint_gt(held, 0);
		ck_assert_uint_eq(got.chunks[i], held);
	}
	for (uint32_t i = 0; i < WORKERS; i++)
		reached += held_of(scene, worker_number(i)) > 0;
	ck_assert_uint_eq(got.count, reached);
	return reached;
}

/* However many words a worker has: it is listed once, and holds what some of them may say. */
static void check_twins(const struct scene *scene)
{
	static struct kvw_radix_reach got;
	bool listed[KVW_MAX_WORKERS] = {false};

	walk(scene, &got);
	for (uint32_t i = 0; i < got.count; i++) {
		uint32_t worker = got.workers[i];

		ck_assert(worker < scene->limit && !listed[worker]);
		listed[worker] = true;
		ck_assert_uint_ge(got.chunks[i], 1);
		ck_assert_uint_le(got.chunks[i],
			scene->slots[SLOTS - 1].start + scene->slots[SLOTS - 1].length);
	}
}

START_TEST(every_word_is_read)
{
	struct scene *scene = malloc(sizeof(*scene));
	unsigned found = 0;

	ck_assert_ptr_nonnull(scene);
	dice_state = 17;
	for (unsigned i = 0; i < ROUNDS; i++) {
		make(scene, false);
		check_masks(scene);
		found += check_reach(scene) > 0;
		make(scene, true);
		check_masks(scene);
		check_twins(scene);
	}
	ck_assert_uint_gt(found, ROUNDS / 4);
	free(scene);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("scan");

	tcase_set_timeout(tcase, 60);
	tcase_add_test(tcase, every_word_is_read);
	return run_tcase("radix_scan", tcase);
}
