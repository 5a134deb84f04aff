/*
 * extents_soak_test.c - a full space that objects of mixed sizes go through for a long time.
 *
 * As a cache does it: an object that finds no room has the oldest ones removed until it does. Room
 * in pieces must still be room, at the end as at the beginning: what is occupied when an object is
 * refused shows how much of the space can be used.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "memory/extents.h"
#include "tests/unit/suite.h"

#define UNITS  16384u /* an arena of 1 GiB */
#define RING   16384u
#define ROUNDS 200000u
#define PARTS  4u

struct object {
	struct kvt_extent runs[KVT_MAX_EXTENTS];
	uint32_t n;
};

/* Where objects stand in line for removal; the place of a removed one is taken by the oldest, so
 * that the order is not that of addresses for ever. */
struct line {
	struct object items[RING];
	uint32_t head, count;
};

struct part {
	uint64_t used_sum, takes, pieces;
	uint32_t least_used; /* when an object was refused */
};

static uint64_t random_next(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

static void remove_one(struct kvt_extents *e, struct line *line, uint64_t *random)
{
	uint32_t ahead =
		random_next(random) % 4 == 0 ? (uint32_t)(random_next(random) % line->count) : 0;
	struct object *oldest = &line->items[line->head % RING];
	struct object *gone = &line->items[(line->head + ahead) % RING];
	struct object given = *gone;

	*gone = *oldest;
	line->head++;
	line->count--;
	kvt_extents_give(e, given.runs, given.n);
}

static void put(struct kvt_extents *e, struct line *line, uint32_t units, uint64_t *random,
	struct part *part)
{
	struct object object = {.n = KVT_MAX_EXTENTS};

	for (;;) {
		enum kvt_status status = kvt_extents_take(e, units, object.runs, &object.n);
		uint32_t used = UNITS - kvt_extents_free(e);

		if (status == KVT_OK)
			break;
		ck_assert_int_eq(status, KVT_FULL);
		if (used < part->least_used)
			part->least_used = used;
		remove_one(e, line, random);
	}
	part->used_sum += UNITS - kvt_extents_free(e);
	part->takes++;
	part->pieces += object.n;
	line->items[(line->head + line->count) % RING] = object;
	line->count++;
}

/* Sizes of one mix, in units of 64 KiB. */
static uint32_t size_of(int mix, uint64_t *random)
{
	static const uint32_t layers[] = {64, 64, 64, 17, 200};

	if (mix == 0)
		return 64; /* one model, whole chunks of 4 MiB */
	if (mix == 1)
		return layers[random_next(random) % 5];
	if (mix == 2)
		return 1 + (uint32_t)(random_next(random) % 1024); /* 64 KiB to 64 MiB */
	/* Mostly small with few large ones: the worst for room in one piece. */
	return random_next(random) % 50 == 0 ? 800 : 1 + (uint32_t)(random_next(random) % 4);
}

static void soak(int mix, struct part parts[PARTS])
{
	static struct line line; /* large */
	struct kvt_extents *e;
	uint64_t random = 88172645463325252u + (uint64_t)mix, bytes = 0;

	memset(&line, 0, sizeof(line));
	ck_assert_int_eq(kvt_extents_create(UNITS, &e), KVT_OK);
	for (uint32_t part = 0; part < PARTS; part++) {
		parts[part] = (struct part){.least_used = UNITS};
		for (uint32_t i = 0; i < ROUNDS / PARTS; i++)
			put(e, &line, size_of(mix, &random), &random, &parts[part]);
		if (part == 0)
			bytes = kvt_extents_bytes(e);
	}
	ck_assert_uint_le(kvt_extents_bytes(e), bytes * 2);
	while (line.count > 0)
		remove_one(e, &line, &random);
	ck_assert_uint_eq(kvt_extents_largest(e), UNITS);
	kvt_extents_destroy(e);
}

static double mean_used(const struct part *part)
{
	return (double)part->used_sum / (double)part->takes / UNITS;
}

START_TEST(test_nothing_wears_out)
{
	/* What is in use on average, at the least. */
	static const double floors[] = {0.99, 0.97, 0.93, 0.90};
	struct part parts[PARTS];

	for (int mix = 0; mix < 4; mix++) {
		soak(mix, parts);
		for (uint32_t i = 1; i < PARTS; i++) { /* the first one begins empty */
			if (getenv("KVT_SHOW") != NULL)
				printf("mix %d part %u: used %.4f, at a refusal at least %.4f, "
				       "%.2f pieces\n",
					mix, i, mean_used(&parts[i]),
					(double)parts[i].least_used / UNITS,
					(double)parts[i].pieces / (double)parts[i].takes);
			ck_assert(mean_used(&parts[i]) >= floors[mix]);
		}
		ck_assert(mean_used(&parts[PARTS - 1]) >= mean_used(&parts[1]) - 0.005);
	}
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("all");

	tcase_set_timeout(tcase, 100);
	tcase_add_test(tcase, test_nothing_wears_out);
	return run_tcase("extents soak", tcase);
}
