/*
 * radix_evict.c - frees memory: least recently used branches, and nodes without holders.
 *
 * There is no list of all nodes in order of use: every request would have to write to it, on every
 * loop. Instead an eviction samples some random nodes, takes the one unused for longest, goes down
 * to the end of its branch (a child is never used later than its parent), and from there drops
 * nodes upwards as long as they are as old and have no other children. A sampled node without
 * holders is taken at once. So whole branches are dropped, old ones first.
 *
 * This memory is rarely in the processor's caches, so each step is prepared one eviction ahead: an
 * eviction drops the victim that the last one chose, chooses the next victim among the nodes that
 * the last one sampled, and samples nodes for the next. So the time between two requests is
 * available for each prefetch.
 *
 * Ageing and purging of views do not visit the tree. A sweep that advances with each insert finds
 * the nodes without holders, even without need for memory. It advances twice as fast as nodes are
 * made: the tree then stays about twice as large as the views' contents, which fit the processor's
 * caches where the limit in bytes would not.
 */
#include "routing/radix_node.h"

#include "routing/spin.h"

#define THROWS      16 /* samples before eviction gives up */
#define CLIMB       24 /* limit of nodes that are dropped at once, so that no request waits long */
#define SWEEP_AHEAD 16 /* slots that are prefetched for the next prompt's sweep */

/* Takes a node out of the tree. *parent: its parent; 0: none. Its slot goes to *spare if that is 0;
 * otherwise, or if spare is NULL, to the pool. False: the node is in use. */
static bool remove_node(struct kvw_radix *tree, struct kvw_pool *pool, uint32_t index,
	uint32_t *parent, uint32_t *spare)
{
	struct kvw_slot *slot = kvw_slot_at(tree, index);
	uint32_t refs = KVW_NODE_LIVE;
	uint64_t key = 0;

	if (kvw_slot_refs(slot) != refs || !atomic_compare_exchange_strong(&slot->refs, &refs, 0))
		return false;
	/* Does not lock: a thread that locks from here on sees that the node is dead. */
	if (kvw_spin_held(&slot->lock)) {
		atomic_store(&slot->refs, KVW_NODE_LIVE);
		return false;
	}
	key = kvw_slot_key(slot);
	*parent = atomic_load_explicit(&slot->link, memory_order_relaxed);
	atomic_store_explicit(&slot->key, 0, memory_order_release);
	kvw_table_remove(&tree->table, key, kvw_slot_home(tree, slot), index);
	kvw_node_clear(tree, pool, slot);
	if (spare != NULL && *spare == 0) {
		kvw_slot_reset(slot);
		*spare = index;
	} else {
		kvw_slot_give(tree, pool, index);
	}
	if (*parent != 0)
		atomic_fetch_sub(&kvw_slot_at(tree, *parent)->refs, 1);
	return true;
}

/* Returns the time since the last use; the clock may wrap around. */
static uint32_t age_of(struct kvw_slot *slot, uint32_t now)
{
	return now - atomic_load_explicit(&slot->stamp, memory_order_relaxed);
}

/* Returns whether the first holder is alive. Without a branch, since it mostly is, and it is in the
 * slot's first line. */
static bool first_lives(struct kvw_radix *tree, struct kvw_slot *slot)
{
	uint64_t word = atomic_load_explicit(&slot->word[0], memory_order_acquire);
	bool used = kvw_slot_used(slot) != 0;
	bool alive = kvw_holder_alive(tree, kvw_holder_unpack(word));

	return used & alive;
}

/* xorshift64*: returns 32 bits of the next random number. */
static uint64_t throw_dice(uint64_t *state)
{
	uint64_t x = *state;

	x ^= x >> 12;
	x ^= x << 25;
	x ^= x >> 27;
	*state = x;
	return x * UINT64_C(0x2545F4914F6CDD1D) >> 32;
}

/* The nodes found by a sample. 0: no such node. */
struct sample {
	uint32_t dead;   /* a node without children and holders */
	uint32_t oldest; /* any node */
	uint32_t leaf;   /* among nodes without children, the one unused for longest */
	uint64_t age;    /* age of `oldest`, + 1 */
	uint64_t leaf_age;
};

/* Choices that one eviction prepares for the next one. */
struct plan {
	uint32_t victim; /* 0: none */
	uint32_t stamp;
	uint32_t picks[KVW_EVICT_SAMPLES]; /* 0: not sampled yet */
};

/* Looks at a sampled node. Samples are unpredictable, so that the only branch here is one that is
 * hardly ever taken. */
static void consider(struct kvw_radix *tree, uint32_t index, uint32_t now, struct sample *sample)
{
	struct kvw_slot *slot = kvw_slot_at(tree, index);
	uint32_t refs = kvw_slot_refs(slot);
	uint64_t age = (uint64_t)age_of(slot, now) + 1;
	uint64_t node_age = refs != 0 ? age : 0;
	uint64_t leaf_age = refs == KVW_NODE_LIVE ? age : 0;
	bool held = first_lives(tree, slot);

	if ((leaf_age != 0) & !held && !kvw_node_held(tree, slot))
		sample->dead = index;
	sample->oldest = node_age > sample->age ? index : sample->oldest;
	sample->age = node_age > sample->age ? node_age : sample->age;
	sample->leaf = leaf_age > sample->leaf_age ? index : sample->leaf;
	sample->leaf_age = leaf_age > sample->leaf_age ? leaf_age : sample->leaf_age;
}

/* Takes the prepared plan, and samples nodes for the next one. */
static struct plan take_plan(struct kvw_radix *tree, struct kvw_pool *pool)
{
	uint32_t high = atomic_load_explicit(&tree->fresh, memory_order_relaxed);
	uint64_t random = atomic_load_explicit(&pool->random, memory_order_relaxed);
	uint64_t victim = atomic_load_explicit(&pool->victim, memory_order_relaxed);
	struct plan plan = {.victim = (uint32_t)victim, .stamp = (uint32_t)(victim >> 32)};

	atomic_store_explicit(&pool->victim, 0, memory_order_relaxed);
	for (unsigned i = 0; i < KVW_EVICT_SAMPLES; i++) {
		uint32_t pick = 1 + (uint32_t)(throw_dice(&random) * (high - 1) >> 32);

		plan.picks[i] = atomic_load_explicit(&pool->picks[i], memory_order_relaxed);
		atomic_store_explicit(&pool->picks[i], pick, memory_order_relaxed);
		__builtin_prefetch(kvw_slot_at(tree, pick));
	}
	atomic_store_explicit(&pool->random, random, memory_order_relaxed);
	return plan;
}

/* Returns the end of the branch below a node, along the newest children; 0: not found. */
static uint32_t branch_end(struct kvw_radix *tree, uint32_t index)
{
	for (unsigned depth = 0; depth < KVW_RADIX_MAX_STEPS; depth++) {
		struct kvw_slot *slot = kvw_slot_at(tree, index);
		uint32_t refs = kvw_slot_refs(slot);
		uint32_t child = 0;

		if (refs == KVW_NODE_LIVE)
			return index;
		if (refs == 0)
			return 0;
		child = kvw_slot_check(tree, kvw_slot_child(slot));
		if (child == 0 || atomic_load_explicit(&kvw_slot_at(tree, child)->link,
					  memory_order_acquire) != index)
			return 0;
		index = child;
	}
	return 0;
}

/* Drops a node without children, and then its ancestors while they are no younger than `age` or
 * without holders. */
static void drop_branch(struct kvw_radix *tree, struct kvw_pool *pool, uint32_t index, uint32_t age,
	uint32_t now, uint32_t *spare)
{
	unsigned dropped = 0;

	while (index != 0 && dropped < CLIMB) {
		struct kvw_slot *slot = kvw_slot_at(tree, index);

		if (dropped > 0 && age_of(slot, now) < age && kvw_node_held(tree, slot))
			break;
		if (!remove_node(tree, pool, index, &index, spare))
			break;
		dropped++;
	}
}

/* Prefetches the memory that removing a node will write, besides the node itself. */
static void prefetch_removal(struct kvw_radix *tree, struct kvw_slot *slot)
{
	uint32_t parent =
		kvw_slot_check(tree, atomic_load_explicit(&slot->link, memory_order_relaxed));

	kvw_table_prefetch_write(&tree->table, kvw_slot_home(tree, slot));
	kvw_prefetch_write(kvw_slot_at(tree, parent));
}

/* Chooses the next victim among the sampled nodes, and prefetches the memory that its removal will
 * touch. */
static void prepare_picks(
	struct kvw_radix *tree, struct kvw_pool *pool, const uint32_t *picks, uint32_t now)
{
	struct sample sample = {0};
	struct kvw_slot *slot = NULL;
	uint32_t victim = 0;

	for (unsigned i = 0; i < KVW_EVICT_SAMPLES && sample.dead == 0; i++)
		consider(tree, picks[i], now, &sample);
	victim = sample.dead;
	if (victim == 0 && sample.oldest != 0)
		victim = branch_end(tree, sample.oldest);
	if (victim == 0)
		victim = sample.leaf;
	if (victim == 0)
		return;
	slot = kvw_slot_at(tree, victim);
	prefetch_removal(tree, slot);
	for (unsigned line = 1; line < sizeof(*slot) / 64; line++)
		__builtin_prefetch((const char *)slot + line * 64); /* its next owner's */
	atomic_store_explicit(&pool->victim,
		(uint64_t)atomic_load_explicit(&slot->stamp, memory_order_relaxed) << 32 | victim,
		memory_order_relaxed);
}

void kvw_radix_expect_eviction(struct kvw_radix *tree, struct kvw_pool *pool)
{
	uint32_t victim = (uint32_t)atomic_load_explicit(&pool->victim, memory_order_relaxed);
	struct kvw_slot *slot = kvw_slot_at(tree, victim);
	struct kvw_holder h;

	if (victim == 0)
		return;
	h = kvw_holder_unpack(atomic_load_explicit(&slot->word[0], memory_order_relaxed));
	kvw_view_prefetch(&tree->views, h.worker, h.tick);
}

uint32_t kvw_radix_evict(struct kvw_radix *tree, struct kvw_pool *pool)
{
	uint32_t now = atomic_load_explicit(&tree->clock, memory_order_relaxed);
	uint32_t spare = 0;

	for (unsigned i = 0; i < THROWS && spare == 0; i++) {
		struct plan plan = take_plan(tree, pool);
		struct kvw_slot *slot = kvw_slot_at(tree, plan.victim);

		/* Another thread may have used the victim since it was chosen. */
		if (plan.victim != 0 &&
			atomic_load_explicit(&slot->stamp, memory_order_relaxed) == plan.stamp)
			drop_branch(tree, pool, plan.victim, age_of(slot, now), now, &spare);
		prepare_picks(tree, pool, plan.picks, now);
	}
	return spare;
}

/* Looks at a slot of the sweep. True: it is a node without holders, and the memory that its removal
 * touches is prefetched. */
static bool sweep_slot(struct kvw_radix *tree, struct kvw_pool *pool, uint32_t index)
{
	struct kvw_slot *slot = kvw_slot_at(tree, index);
	uint32_t refs = kvw_slot_refs(slot);
	bool alone = atomic_load_explicit(&slot->overflow, memory_order_relaxed) == 0;
	bool held = first_lives(tree, slot);

	if (held & alone)
		return false;
	if (refs == KVW_NODE_LIVE && !kvw_node_held(tree, slot)) {
		prefetch_removal(tree, slot);
		return true;
	}
	if (refs != 0 && !alone && kvw_spin_try(&slot->lock)) {
		if (kvw_slot_refs(slot) != 0)
			kvw_node_tidy(tree, pool, slot);
		kvw_spin_unlock(&slot->lock);
	}
	return false;
}

void kvw_radix_sweep(
	struct kvw_radix *tree, struct kvw_pool *pool, uint32_t slots, struct kvw_swept *swept)
{
	uint32_t high = atomic_load_explicit(&tree->fresh, memory_order_relaxed);
	uint32_t hand = atomic_load_explicit(&pool->hand, memory_order_relaxed);
	uint32_t end = hand + slots < high ? hand + slots : high;

	/* Each loop's sweep covers all slots, whichever loop took them, since some loops make nodes
	 * while others idle. */
	atomic_store_explicit(&pool->hand, end < high ? end : 0, memory_order_relaxed);
	swept->count = 0;
	for (uint32_t index = hand; index < end; index++) {
		if (index + SWEEP_AHEAD < high)
			__builtin_prefetch(kvw_slot_at(tree, index + SWEEP_AHEAD));
		if (index == 0 || !sweep_slot(tree, pool, index))
			continue;
		if (swept->count == KVW_SWEPT_MOST) {
			kvw_radix_drop(tree, pool, swept);
			swept->count = 0;
		}
		swept->nodes[swept->count++] = index;
	}
}

void kvw_radix_drop(struct kvw_radix *tree, struct kvw_pool *pool, const struct kvw_swept *swept)
{
	for (uint32_t i = 0; i < swept->count; i++) {
		struct kvw_slot *slot = kvw_slot_at(tree, swept->nodes[i]);
		uint32_t parent = 0;

		/* Meanwhile the node may have got a holder, or another loop may have dropped it. */
		if (kvw_slot_refs(slot) == KVW_NODE_LIVE && !kvw_node_held(tree, slot))
			(void)remove_node(tree, pool, swept->nodes[i], &parent, NULL);
	}
}
