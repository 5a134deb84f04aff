/*
 * team.c - the same work on several threads at once, timed by those threads.
 */
#include "bench/cache/memory/team.h"

#include <pthread.h>

#include "bench/cache/memory/figures.h"
#include "bench/cache/memory/measure.h"

struct member {
	void (*work)(void *item);
	void *item;
	pthread_barrier_t *start;
	double begin, end;
};

static void *run(void *self)
{
	struct member *member = self;

	pthread_barrier_wait(member->start);
	member->begin = kvb_seconds();
	member->work(member->item);
	member->end = kvb_seconds();
	return NULL;
}

double kvb_team(void (*work)(void *item), void *items, size_t item_bytes, unsigned n)
{
	struct member members[KVB_TEAM_MOST];
	pthread_t threads[KVB_TEAM_MOST];
	pthread_barrier_t start;
	double begin, end;

	if (n == 0 || n > KVB_TEAM_MOST || pthread_barrier_init(&start, NULL, n) != 0)
		kvb_fail("no team");
	for (unsigned i = 0; i < n; i++) {
		members[i] = (struct member){work, (char *)items + i * item_bytes, &start, 0, 0};
		if (pthread_create(&threads[i], NULL, run, &members[i]) != 0)
			kvb_fail("no thread");
	}
	for (unsigned i = 0; i < n; i++)
		pthread_join(threads[i], NULL);
	pthread_barrier_destroy(&start);
	begin = members[0].begin;
	end = members[0].end;
	for (unsigned i = 1; i < n; i++) {
		begin = members[i].begin < begin ? members[i].begin : begin;
		end = members[i].end > end ? members[i].end : end;
	}
	return end - begin;
}
