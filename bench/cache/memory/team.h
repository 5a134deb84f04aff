/*
 * team.h - the same work on several threads at once, timed by those threads.
 */
#ifndef KVB_TEAM_H
#define KVB_TEAM_H

#include <stddef.h>

#define KVB_TEAM_MOST 2

/* Calls work(item) for each of the n items (of item_bytes each), every one on a thread of its own,
 * all beginning together. Returns the seconds from the first one's beginning to the last one's end,
 * by their own clocks: the thread that waits may get the processor late. */
double kvb_team(void (*work)(void *item), void *items, size_t item_bytes, unsigned n);

#endif
