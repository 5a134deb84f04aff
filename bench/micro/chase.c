/*
 * chase.c - a lock-free pointer chase: what two threads could gain at most where every step waits
 * for memory. One cycle through all lines (Sattolo's shuffle), so no walk ends up in a short one
 * that fits a cache.
 */
#include "bench/micro/chase.h"

#include <sys/mman.h>

#include "bench/micro/pick_load.h"

#define LINE_WORDS (64 / sizeof(uint64_t))

int kvb_chase_init(struct kvb_chase *chase, uint64_t bytes, uint64_t seed)
{
	void *memory = NULL;

	*chase = (struct kvb_chase){.lines = bytes / 64};
	if (chase->lines < 2)
		return -1;
	memory = mmap(NULL, chase->lines * 64, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (memory == MAP_FAILED)
		return -1;
	(void)madvise(memory, chase->lines * 64, MADV_HUGEPAGE);
	chase->memory = memory;
	for (uint64_t i = 0; i < chase->lines; i++)
		chase->memory[i * LINE_WORDS] = i;
	for (uint64_t i = chase->lines - 1; i > 0; i--) {
		uint64_t other = kvb_dice(&seed) % i;
		uint64_t next = chase->memory[i * LINE_WORDS];

		chase->memory[i * LINE_WORDS] = chase->memory[other * LINE_WORDS];
		chase->memory[other * LINE_WORDS] = next;
	}
	return 0;
}

void kvb_chase_finish(struct kvb_chase *chase)
{
	if (chase->memory != NULL)
		munmap(chase->memory, chase->lines * 64);
	chase->memory = NULL;
}

uint64_t kvb_chase_run(const struct kvb_chase *chase, uint64_t from, uint64_t steps)
{
	uint64_t at = from % chase->lines;

	while (steps-- > 0)
		at = chase->memory[at * LINE_WORDS];
	return at;
}
