/*
 * radix_view.h - the part of the tree that each worker still holds.
 *
 * A worker's time is counted in ticks. Every holder entry in the tree carries the ticks at which
 * the worker last used its two parts; a part is alive while its tick lies in the worker's window
 * [floor, now]. Ageing increments the floor: all parts last used at that tick die at once, without
 * being visited. Purging moves the whole window beyond all ticks.
 *
 * A ring keeps, for each tick of the window, the tokens last used at it, so that the view's size is
 * known: a new use of an entry moves its tokens from its old tick to the newest. A tick ends when
 * it has a small share of the capacity, so the ring is short and the order is LRU to that
 * precision. Prompts are entered from their end to their beginning; a long prompt spans several
 * ticks with its tail the oldest, as engines free a prompt's last blocks first.
 *
 * Ring and total change under the view's lock, a few dozen instructions, taken about twice per
 * insert; locks of views are taken last and never together. A change for a tick that has left the
 * window in the meantime has no effect on ring and total, so the total stays the sum of the
 * window's ring in any race of ageing, purges, inserts and evictions. Readers only load the window.
 */
#ifndef KVW_RADIX_VIEW_H
#define KVW_RADIX_VIEW_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "kvway/route.h"

#define KVW_VIEW_MIN_TICKS 64
#define KVW_VIEW_MAX_TICKS 1024

/* One worker's view, without its window and ring. */
struct kvw_view {
	_Alignas(64) atomic_bool lock; /* guards total, ring, and writes to the window */
	_Atomic int64_t total;         /* tokens in the window; read without the lock */
	_Atomic uint64_t purges;       /* counted since the start */
};

/* All workers' views. The arrays lie in the tree's mapping and start zeroed. */
struct kvw_views {
	struct kvw_view *items;    /* [KVW_MAX_WORKERS] */
	_Atomic uint64_t *windows; /* [KVW_MAX_WORKERS] floor << 32 | now; 0: unused */
	/* [KVW_MAX_WORKERS][ticks] tokens that were last used at each tick */
	_Atomic int32_t *rings;
	uint32_t ticks;            /* length of a ring, a power of two */
	unsigned slack_shift;
};

#define KVW_LEDGER_MOVES 8

/* Tokens that leave a tick. */
struct kvw_move {
	uint32_t tick;
	int64_t tokens;
};

/* The changes of one insert to one view, gathered so that shared words are seldom touched. */
struct kvw_ledger {
	struct kvw_views *views;
	uint32_t worker;
	uint64_t capacity;   /* tokens */
	int64_t tick_tokens; /* number of tokens after which a tick ends */
	uint32_t now;        /* the present tick, to which uses are written */
	uint32_t slack;      /* entries of at most this age in ticks count as new */
	int64_t added;       /* tokens used at `now` that the ring does not have yet */
	unsigned move_count;
	struct kvw_move moves[KVW_LEDGER_MOVES]; /* tokens that the ring still has to lose */
};

/* Returns the size of the arrays in bytes, for rings of `ticks`. */
uint64_t kvw_views_bytes(uint32_t ticks);

/* Lays the views into zeroed memory of kvw_views_bytes(ticks), aligned to 64. */
void kvw_views_init(struct kvw_views *views, void *memory, uint32_t ticks, unsigned slack_shift);

static inline uint64_t kvw_view_window(struct kvw_views *views, uint32_t worker)
{
	return atomic_load_explicit(&views->windows[worker], memory_order_relaxed);
}

/* Returns the word of the ring for a tick. */
static inline _Atomic int32_t *kvw_view_tick(
	struct kvw_views *views, uint32_t worker, uint32_t tick)
{
	return &views->rings[(uint64_t)worker * views->ticks + (tick & (views->ticks - 1))];
}

/* Returns whether an entry of this tick is alive. Ticks wrap around; a window is short. */
static inline bool kvw_view_alive(uint64_t window, uint32_t tick)
{
	uint32_t floor = (uint32_t)(window >> 32);

	return (tick - floor <= (uint32_t)window - floor) & (window != 0);
}

void kvw_ledger_open(
	struct kvw_ledger *ledger, struct kvw_views *views, uint32_t worker, uint64_t capacity);

/* Prefetches the words that a change of this tick's tokens writes. */
void kvw_view_prefetch(struct kvw_views *views, uint32_t worker, uint32_t tick);

/* Records that tokens of `tick` are used now. */
void kvw_ledger_move(struct kvw_ledger *ledger, uint32_t tick, int64_t tokens);

/* Moves tokens from tick `from` to `to`, an earlier or later tick but not the present one. */
void kvw_ledger_shift(struct kvw_ledger *ledger, uint32_t from, uint32_t to, int64_t tokens);

/* Records new tokens. */
static inline void kvw_ledger_add(struct kvw_ledger *ledger, int64_t tokens)
{
	ledger->added += tokens;
}

/* Writes the gathered changes and begins the next tick, unless another thread has. */
void kvw_ledger_end_tick(struct kvw_ledger *ledger);

/* Called between two nodes: ends the tick if it is full. */
static inline void kvw_ledger_turn(struct kvw_ledger *ledger)
{
	int32_t gathered = atomic_load_explicit(
		kvw_view_tick(ledger->views, ledger->worker, ledger->now), memory_order_relaxed);

	if (gathered + ledger->added >= ledger->tick_tokens)
		kvw_ledger_end_tick(ledger);
}

/* Writes the remaining changes and ages the view down to its capacity. */
void kvw_ledger_close(struct kvw_ledger *ledger);

/* Subtracts an entry that is dropped from the tree; it may be alive. parts: its tokens of two
 * ticks. */
void kvw_view_forget(struct kvw_views *views, uint32_t worker, const struct kvw_move parts[2]);

void kvw_view_purge(struct kvw_views *views, uint32_t worker);

/* Sets the window of a view that another process has saved; the ring stays empty. A window longer
 * than the ring loses its beginning. The view must be unused. */
void kvw_view_recall(struct kvw_views *views, uint32_t worker, uint32_t floor, uint32_t now);

/* Counts an entry in such a view. False: the entry is dead. No other thread may use the views. */
bool kvw_view_recount(struct kvw_views *views, uint32_t worker, const struct kvw_move parts[2]);

/* Returns the number of purges of all views since the start. */
uint64_t kvw_views_purges(struct kvw_views *views);

uint64_t kvw_view_tokens(struct kvw_views *views, uint32_t worker);

#endif
