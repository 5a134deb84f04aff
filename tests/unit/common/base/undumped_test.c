/* undumped_test.c - blocks keep what is written to them, come back, and are in no core dump. */
#include "base/undumped.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/suite.h"

#define BLOCKS 2000

struct block {
	unsigned char *data;
	size_t size;
};

static void fill(struct block *block, unsigned char with)
{
	memset(block->data, with, block->size);
}

static bool is_filled(const struct block *block, unsigned char with)
{
	for (size_t i = 0; i < block->size; i++)
		if (block->data[i] != with)
			return false;
	return true;
}

/* Of each size up to the largest of a list, and a little more. */
START_TEST(test_every_size_has_room)
{
	for (size_t size = 0; size <= 70000; size += size < 2100 ? 1 : 97) {
		struct block one = {kvw_undumped_alloc(size), size}, two = {kvw_undumped_alloc(size), size};

		ck_assert_ptr_nonnull(one.data);
		ck_assert_ptr_nonnull(two.data);
		ck_assert_uint_eq((uintptr_t)one.data % 16, 0);
		ck_assert(!kvw_undumped_real() || size < 2048 || (uintptr_t)one.data % 64 == 0);
		fill(&one, 1);
		fill(&two, 2);
		ck_assert(is_filled(&one, 1));
		kvw_undumped_free(one.data);
		ck_assert(is_filled(&two, 2));
		kvw_undumped_free(two.data);
	}
	kvw_undumped_free(NULL);
	if (kvw_undumped_real()) /* a sanitizer ends the program */
		ck_assert_ptr_null(kvw_undumped_alloc(SIZE_MAX - 10));
}
END_TEST

START_TEST(test_blocks_grow_and_shrink)
{
	struct block block = {kvw_undumped_realloc(NULL, 1), 1};

	fill(&block, 7);
	for (size_t size = 2; size < 300000; size = size * 5 / 4 + 1) {
		block.data = kvw_undumped_realloc(block.data, size);
		ck_assert_ptr_nonnull(block.data);
		ck_assert(is_filled(&block, 7));
		block.size = size;
		fill(&block, 7);
	}
	block.size = 20;
	block.data = kvw_undumped_realloc(block.data, 20);
	ck_assert(is_filled(&block, 7));
	ck_assert_ptr_null(kvw_undumped_realloc(block.data, 0));
}
END_TEST

struct work {
	unsigned seed;
	struct block *blocks; /* [BLOCKS], of another thread */
	unsigned char with;
};

/* Frees what another thread has allocated, and allocates again. */
static void *churn(void *arg)
{
	struct work *work = arg;

	for (int turn = 0; turn < 20; turn++)
		for (size_t i = 0; i < BLOCKS; i++) {
			struct block *block = &work->blocks[i];

			if (!is_filled(block, work->with))
				return work;
			kvw_undumped_free(block->data);
			block->size = (size_t)rand_r(&work->seed) % (turn % 4 == 0 ? 40000 : 600);
			block->data = kvw_undumped_alloc(block->size);
			fill(block, work->with);
		}
	return NULL;
}

START_TEST(test_blocks_of_other_threads)
{
	static struct block blocks[4][BLOCKS];
	pthread_t threads[4];
	struct work work[4];

	for (unsigned round = 0; round < 3; round++) {
		for (unsigned t = 0; t < 4; t++) {
			/* Each round another thread has them. */
			work[t] = (struct work){round * 4 + t, blocks[(t + round) % 4], (unsigned char)((t + round) % 4)};
			for (size_t i = 0; round == 0 && i < BLOCKS; i++) {
				blocks[t][i] = (struct block){kvw_undumped_alloc(10), 10};
				fill(&blocks[t][i], (unsigned char)t);
			}
		}
		for (unsigned t = 0; t < 4; t++)
			ck_assert_int_eq(pthread_create(&threads[t], NULL, churn, &work[t]), 0);
		for (unsigned t = 0; t < 4; t++) {
			void *wrong;

			ck_assert_int_eq(pthread_join(threads[t], &wrong), 0);
			ck_assert_ptr_null(wrong);
		}
	}
	for (unsigned t = 0; t < 4; t++)
		for (size_t i = 0; i < BLOCKS; i++)
			kvw_undumped_free(blocks[t][i].data);
}
END_TEST

/* Is the page of this address left out of core dumps? */
static bool is_left_out(const void *address)
{
	FILE *file = fopen("/proc/self/smaps", "r");
	char line[512];
	unsigned long begin = 0, end = 0, a, b;
	bool left_out = false;

	ck_assert_ptr_nonnull(file);
	while (fgets(line, sizeof(line), file) != NULL) {
		if (sscanf(line, "%lx-%lx ", &a, &b) == 2) {
			begin = a;
			end = b;
		} else if (strncmp(line, "VmFlags:", 8) == 0 && (uintptr_t)address >= begin && (uintptr_t)address < end) {
			left_out = strstr(line, " dd") != NULL;
		}
	}
	fclose(file);
	return left_out;
}

START_TEST(test_they_are_in_no_core_dump)
{
	void *little = kvw_undumped_alloc(100), *much = kvw_undumped_alloc(1000000), *pages = kvw_undumped_map(65536);

	ck_assert(is_left_out(pages));
	ck_assert(!kvw_undumped_real() || (is_left_out(little) && is_left_out(much)));
	kvw_undumped_free(little);
	kvw_undumped_free(much);
	kvw_undumped_unmap(pages, 65536);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("undumped");

	tcase_set_timeout(tcase, 120);
	tcase_add_test(tcase, test_every_size_has_room);
	tcase_add_test(tcase, test_blocks_grow_and_shrink);
	tcase_add_test(tcase, test_blocks_of_other_threads);
	tcase_add_test(tcase, test_they_are_in_no_core_dump);
	return run_tcase("undumped", tcase);
}
