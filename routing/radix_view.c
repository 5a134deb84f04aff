/*
 * radix_view.c - ages the workers' views; radix_view.h describes the scheme.
 *
 * All loads and stores are relaxed: a window is one word, and no memory is reached through it.
 * Members that belong together are only read and written under the view's lock.
 */
#include "routing/radix_view.h"

#include "routing/prefetch.h"
#include "routing/spin.h"

/* A full window covers uses of at least this many times the capacity. */
#define WINDOW_CAPACITIES 4

/* Limits, so that counts fit their words: workers may report any capacity. */
#define MOST_CAPACITY    (UINT64_C(1) << 56)
#define MOST_TICK_TOKENS (INT64_C(1) << 30)

uint64_t kvw_views_bytes(uint32_t ticks)
{
	return KVW_MAX_WORKERS *
	       (sizeof(struct kvw_view) + sizeof(uint64_t) + ticks * sizeof(int32_t));
}

void kvw_views_init(struct kvw_views *views, void *memory, uint32_t ticks, unsigned slack_shift)
{
	views->items = memory;
	views->windows = (_Atomic uint64_t *)(void *)(views->items + KVW_MAX_WORKERS);
	views->rings = (_Atomic int32_t *)(void *)(views->windows + KVW_MAX_WORKERS);
	views->ticks = ticks;
	views->slack_shift = slack_shift;
}

static int32_t tick_tokens(struct kvw_views *views, uint32_t worker, uint32_t tick)
{
	return atomic_load_explicit(kvw_view_tick(views, worker, tick), memory_order_relaxed);
}

static void set_tick(struct kvw_views *views, uint32_t worker, uint32_t tick, int32_t tokens)
{
	atomic_store_explicit(kvw_view_tick(views, worker, tick), tokens, memory_order_relaxed);
}

static void set_window(struct kvw_views *views, uint32_t worker, uint32_t floor, uint32_t now)
{
	atomic_store_explicit(
		&views->windows[worker], (uint64_t)floor << 32 | now, memory_order_relaxed);
}

static int64_t total_of(struct kvw_view *view)
{
	return atomic_load_explicit(&view->total, memory_order_relaxed);
}

static void add_total(struct kvw_view *view, int64_t tokens)
{
	atomic_store_explicit(&view->total, total_of(view) + tokens, memory_order_relaxed);
}

/* Adds to a tick and to the total; no effect if the tick has left the window. The lock is held. */
static void add_tokens(struct kvw_views *views, uint32_t worker, uint32_t tick, int64_t tokens)
{
	if (tokens == 0 || !kvw_view_alive(kvw_view_window(views, worker), tick))
		return;
	set_tick(views, worker, tick, (int32_t)(tick_tokens(views, worker, tick) + tokens));
	add_total(&views->items[worker], tokens);
}

/* Empties a tick that leaves the window. The lock is held. */
static void drop_tick(struct kvw_views *views, uint32_t worker, uint32_t tick)
{
	add_total(&views->items[worker], -(int64_t)tick_tokens(views, worker, tick));
	set_tick(views, worker, tick, 0);
}

/* Begins tick now + 1, and drops the oldest if the ring is full. The lock is held. */
static void begin_tick(struct kvw_views *views, uint32_t worker)
{
	uint64_t window = kvw_view_window(views, worker);
	uint32_t floor = (uint32_t)(window >> 32);
	uint32_t now = (uint32_t)window + 1;

	if (now - floor >= views->ticks)
		drop_tick(views, worker, floor++);
	set_tick(views, worker, now, 0);
	set_window(views, worker, floor, now);
}

/* Begins to use a view. Tick 0 is never used, since it is the value of zeroed memory. */
static void start_view(struct kvw_views *views, uint32_t worker)
{
	struct kvw_view *view = &views->items[worker];

	kvw_spin_lock(&view->lock);
	if (kvw_view_window(views, worker) == 0)
		set_window(views, worker, 1, 1);
	kvw_spin_unlock(&view->lock);
}

void kvw_view_prefetch(struct kvw_views *views, uint32_t worker, uint32_t tick)
{
	kvw_prefetch_write(&views->items[worker]);
	kvw_prefetch_write(kvw_view_tick(views, worker, tick));
}

void kvw_ledger_open(
	struct kvw_ledger *ledger, struct kvw_views *views, uint32_t worker, uint64_t capacity)
{
	uint64_t window = 0;
	uint32_t length = 0;

	if (kvw_view_window(views, worker) == 0)
		start_view(views, worker);
	window = kvw_view_window(views, worker);
	length = (uint32_t)window - (uint32_t)(window >> 32);
	ledger->views = views;
	ledger->worker = worker;
	ledger->capacity = capacity < MOST_CAPACITY ? capacity : MOST_CAPACITY;
	ledger->tick_tokens = (int64_t)(ledger->capacity * WINDOW_CAPACITIES / views->ticks);
	if (ledger->tick_tokens < 1)
		ledger->tick_tokens = 1;
	if (ledger->tick_tokens > MOST_TICK_TOKENS)
		ledger->tick_tokens = MOST_TICK_TOKENS;
	ledger->now = (uint32_t)window;
	ledger->slack = views->slack_shift < 32 ? length >> views->slack_shift : 0;
	ledger->added = 0;
	ledger->move_count = 0;
}

/* Lock held. */
static void flush_moves(struct kvw_ledger *ledger)
{
	for (unsigned i = 0; i < ledger->move_count; i++)
		add_tokens(ledger->views, ledger->worker, ledger->moves[i].tick,
			-ledger->moves[i].tokens);
	ledger->move_count = 0;
}

/* Lock held. */
static void flush_ledger(struct kvw_ledger *ledger)
{
	flush_moves(ledger);
	add_tokens(ledger->views, ledger->worker, ledger->now, ledger->added);
	ledger->added = 0;
}

void kvw_ledger_move(struct kvw_ledger *ledger, uint32_t tick, int64_t tokens)
{
	struct kvw_view *view = &ledger->views->items[ledger->worker];
	unsigned count = ledger->move_count;

	if (tick == ledger->now)
		return;
	ledger->added += tokens;
	if (count > 0 && ledger->moves[count - 1].tick == tick) {
		ledger->moves[count - 1].tokens += tokens;
		return;
	}
	if (count == KVW_LEDGER_MOVES) {
		kvw_spin_lock(&view->lock);
		flush_moves(ledger);
		kvw_spin_unlock(&view->lock);
	}
	kvw_prefetch_write(kvw_view_tick(ledger->views, ledger->worker, tick));
	ledger->moves[ledger->move_count++] = (struct kvw_move){tick, tokens};
}

void kvw_ledger_shift(struct kvw_ledger *ledger, uint32_t from, uint32_t to, int64_t tokens)
{
	struct kvw_view *view = &ledger->views->items[ledger->worker];

	if (tokens == 0 || from == to)
		return;
	kvw_spin_lock(&view->lock);
	add_tokens(ledger->views, ledger->worker, from, -tokens);
	add_tokens(ledger->views, ledger->worker, to, tokens);
	kvw_spin_unlock(&view->lock);
}

void kvw_ledger_end_tick(struct kvw_ledger *ledger)
{
	struct kvw_views *views = ledger->views;
	struct kvw_view *view = &views->items[ledger->worker];

	kvw_spin_lock(&view->lock);
	flush_ledger(ledger);
	if ((uint32_t)kvw_view_window(views, ledger->worker) == ledger->now)
		begin_tick(views, ledger->worker);
	ledger->now = (uint32_t)kvw_view_window(views, ledger->worker);
	kvw_spin_unlock(&view->lock);
}

/* Drops the oldest ticks until the view fits. The lock is held. */
static void trim(struct kvw_views *views, uint32_t worker, int64_t capacity)
{
	struct kvw_view *view = &views->items[worker];
	uint64_t window = kvw_view_window(views, worker);
	uint32_t floor = (uint32_t)(window >> 32);
	uint32_t now = (uint32_t)window;

	while (total_of(view) > capacity && floor != now)
		drop_tick(views, worker, floor++);
	if (total_of(view) > capacity) {
		/* One tick alone exceeds the capacity: the prompt is too long for the worker. */
		drop_tick(views, worker, now);
		floor = ++now;
		set_tick(views, worker, now, 0);
	}
	set_window(views, worker, floor, now);
}

void kvw_ledger_close(struct kvw_ledger *ledger)
{
	struct kvw_view *view = &ledger->views->items[ledger->worker];

	if (ledger->added == 0 && ledger->move_count == 0 &&
		total_of(view) <= (int64_t)ledger->capacity)
		return;
	kvw_spin_lock(&view->lock);
	flush_ledger(ledger);
	if (total_of(view) > (int64_t)ledger->capacity)
		trim(ledger->views, ledger->worker, (int64_t)ledger->capacity);
	kvw_spin_unlock(&view->lock);
}

void kvw_view_forget(struct kvw_views *views, uint32_t worker, const struct kvw_move parts[2])
{
	struct kvw_view *view = &views->items[worker];
	uint64_t window = kvw_view_window(views, worker);

	if (!kvw_view_alive(window, parts[0].tick) && !kvw_view_alive(window, parts[1].tick))
		return;
	kvw_spin_lock(&view->lock);
	for (unsigned i = 0; i < 2; i++)
		add_tokens(views, worker, parts[i].tick, -parts[i].tokens);
	kvw_spin_unlock(&view->lock);
}

void kvw_view_purge(struct kvw_views *views, uint32_t worker)
{
	struct kvw_view *view = &views->items[worker];
	uint32_t now = 0;

	kvw_spin_lock(&view->lock);
	/* The view continues at a tick that is later than that of any entry, so that all entries
	 * count as old. The words of the ring are zeroed later, when the window reaches them. */
	now = (uint32_t)kvw_view_window(views, worker) + 2;
	atomic_store_explicit(&view->total, 0, memory_order_relaxed);
	set_tick(views, worker, now, 0);
	set_window(views, worker, now, now);
	atomic_fetch_add_explicit(&view->purges, 1, memory_order_relaxed);
	kvw_spin_unlock(&view->lock);
}

void kvw_view_recall(struct kvw_views *views, uint32_t worker, uint32_t floor, uint32_t now)
{
	if (now - floor >= views->ticks)
		floor = now - views->ticks + 1;
	set_window(views, worker, floor, now);
}

bool kvw_view_recount(struct kvw_views *views, uint32_t worker, const struct kvw_move parts[2])
{
	int64_t both = parts[0].tokens + parts[1].tokens;

	if (!kvw_view_alive(kvw_view_window(views, worker), parts[0].tick))
		return false;
	/* Keeps each tick of the ring from overflowing, whatever is counted. */
	for (unsigned i = 0; i < 2; i++)
		if (tick_tokens(views, worker, parts[i].tick) > INT32_MAX - both)
			return false;
	for (unsigned i = 0; i < 2; i++)
		add_tokens(views, worker, parts[i].tick, parts[i].tokens);
	return true;
}

uint64_t kvw_view_tokens(struct kvw_views *views, uint32_t worker)
{
	int64_t total = total_of(&views->items[worker]);

	return total > 0 ? (uint64_t)total : 0;
}

uint64_t kvw_views_purges(struct kvw_views *views)
{
	uint64_t purges = 0;

	for (uint32_t i = 0; i < KVW_MAX_WORKERS; i++)
		purges += atomic_load_explicit(&views->items[i].purges, memory_order_relaxed);
	return purges;
}
