/*
 * radix_keep.c - saves the tree as records, and makes a tree from them.
 *
 * The writer goes through the slots in their order. A node's record has its own index and its
 * parent's, so that the reader can link it again; the data for the hash table (the upper half of
 * its group's spread hash, its place in the group) is in the node, so the next tree may have
 * another size, but takes over the seed. Nodes without holders are left out: a child whose parent
 * is missing begins a branch of its own, which look-ups reach once the parent is inserted again.
 *
 * The reader fills fresh slots one after the other, with the parents' old numbers. At the end it
 * translates the numbers, cuts cycles (which no writer makes), and sums up the views' rings and
 * totals from the holders, so that they agree with the tree for any records. That costs one pass
 * over the slots in their order and one along the parents.
 */
#include "routing/radix_keep.h"

#include <stdlib.h>
#include <string.h>

#include "routing/radix_node.h"

#define KEEP_LAYOUT     1  /* version of the records below */
#define MOST_OVERFLOWS  64 /* limit of slots in a node's chain of holders */
#define MOST_HOLDERS    (KVW_NODE_HOLDERS + MOST_OVERFLOWS * KVW_NODE_WORDS)
#define MOST_TOKENS     (UINT32_C(1) << 24)
#define MOST_SHRINK     16 /* the new tree may have at most this many times fewer slots */

/* The record with what concerns all nodes. */
struct tree_record {
	uint32_t layout;
	uint32_t run;   /* KVW_RADIX_RUN */
	uint32_t end;   /* all indices of slots are below this one */
	uint32_t clock; /* newest stamp */
	uint64_t seed;
};

/* The record of a node; after it follow its parts of hashes, then its holders in words of eight
 * bytes. */
struct node_record {
	uint64_t key;
	uint32_t index, parent;
	uint32_t group;
	uint32_t stamp;
	uint32_t tokens;
	uint8_t length, place;
	uint16_t holders;
};

struct view_record {
	uint32_t worker;
	uint32_t floor, now;
};

_Static_assert(sizeof(struct tree_record) == 24 && sizeof(struct node_record) == 32 &&
		       sizeof(struct view_record) == 12,
	"records have no gaps");
_Static_assert(sizeof(struct node_record) + (KVW_NODE_WORDS + MOST_HOLDERS) * 8 <= KVW_KEPT_MOST,
	"a node is one record");

static uint32_t part_words(uint32_t length)
{
	return (length - 1 + KVW_NODE_PARTS - 1) / KVW_NODE_PARTS;
}

/* --- keeping --- */

/* A copy of one node, for its record. */
struct node_copy {
	struct node_record head;
	uint64_t words[KVW_NODE_WORDS + MOST_HOLDERS]; /* parts, then holders */
};

/* Adds the living holders of a slot to a copy that has `count` words already. Returns the new
 * count. */
static uint32_t copy_holders(
	struct kvw_radix *tree, struct kvw_slot *slot, struct node_copy *copy, uint32_t count)
{
	unsigned used = kvw_slot_used(slot);

	for (unsigned i = 0; i < used; i++) {
		uint64_t word = atomic_load_explicit(&slot->word[i], memory_order_acquire);
		struct kvw_holder h = kvw_holder_unpack(word);

		if (word == 0 || h.mid == 0 || h.mid > h.upto || h.upto > copy->head.length ||
			!kvw_holder_alive(tree, h))
			continue;
		copy->words[count++] = word;
		copy->head.holders++;
	}
	return count;
}

/* Adds the holders of a node and of its chain after `count` words. Returns the new count. */
static uint32_t copy_chain(
	struct kvw_radix *tree, struct kvw_slot *slot, struct node_copy *copy, uint32_t count)
{
	struct kvw_slot *at = slot;

	for (unsigned i = 0; i <= MOST_OVERFLOWS; i++) {
		uint32_t more = 0;

		count = copy_holders(tree, at, copy, count);
		more = kvw_slot_check(
			tree, atomic_load_explicit(&at->overflow, memory_order_acquire));
		if (more == 0)
			break;
		at = kvw_slot_at(tree, more);
	}
	return count;
}

/* Copies a node and returns the length of its record; 0: it is not a node with a holder. The key is
 * read again after the holders: a slot that was reused has another key by then. */
static size_t copy_node(struct kvw_radix *tree, uint32_t index, struct node_copy *copy)
{
	struct kvw_slot *slot = kvw_slot_at(tree, index);
	uint64_t key = kvw_slot_key(slot);
	uint32_t length = atomic_load_explicit(&slot->length, memory_order_acquire);
	uint32_t chain = atomic_load_explicit(&slot->overflow, memory_order_acquire);
	uint32_t count = 0;

	if (key == 0 || kvw_slot_refs(slot) == 0 || length == 0 || length > KVW_RADIX_RUN)
		return 0;
	copy->head = (struct node_record){
		.key = key,
		.index = index,
		.parent = atomic_load_explicit(&slot->link, memory_order_acquire),
		.group = kvw_slot_group(slot),
		.stamp = atomic_load_explicit(&slot->stamp, memory_order_acquire),
		.tokens = atomic_load_explicit(&slot->tokens, memory_order_acquire),
		.length = (uint8_t)length,
		.place = atomic_load_explicit(&slot->place, memory_order_acquire),
	};
	for (; count < part_words(length); count++)
		copy->words[count] = atomic_load_explicit(
			&slot->word[KVW_NODE_HOLDERS + count], memory_order_acquire);
	count = copy_chain(tree, slot, copy, count);
	if (copy->head.holders == 0 || kvw_slot_key(slot) != key || kvw_slot_refs(slot) == 0 ||
		atomic_load_explicit(&slot->overflow, memory_order_acquire) != chain)
		return 0;
	return sizeof(copy->head) + count * sizeof(copy->words[0]);
}

static enum kvw_err keep_views(struct kvw_radix *tree, const struct kvw_keep_out *out)
{
	for (uint32_t i = 0; i < KVW_MAX_WORKERS; i++) {
		uint64_t window = kvw_view_window(&tree->views, i);
		struct view_record record = {i, (uint32_t)(window >> 32), (uint32_t)window};
		enum kvw_err err;

		if (window == 0)
			continue;
		err = out->put(out->arg, KVW_KEPT_VIEW, &record, sizeof(record));
		if (err != KVW_OK)
			return err;
	}
	return KVW_OK;
}

enum kvw_err kvw_radix_keep(struct kvw_radix *tree, const struct kvw_keep_out *out)
{
	uint32_t end = atomic_load_explicit(&tree->fresh, memory_order_acquire);
	const struct tree_record head = {.layout = KEEP_LAYOUT,
		.run = KVW_RADIX_RUN,
		.end = end,
		.clock = atomic_load_explicit(&tree->clock, memory_order_relaxed),
		.seed = tree->table.seed};
	enum kvw_err err = out->put(out->arg, KVW_KEPT_TREE, &head, sizeof(head));
	struct node_copy copy;

	for (uint32_t i = 1; i < end && err == KVW_OK; i++) {
		size_t len = copy_node(tree, i, &copy);

		if (len > 0)
			err = out->put(out->arg, KVW_KEPT_NODE, &copy, len);
	}
	return err == KVW_OK ? keep_views(tree, out) : err;
}

/* --- recalling --- */

struct kvw_radix_recall {
	struct kvw_radix *tree;
	struct kvw_pool *pool;
	const struct kvw_keep_in *in;
	uint32_t *slots; /* [end] new index by old index; 0: not recalled */
	/* [slot_count / 8 + 1] bits of nodes whose ancestors are known to form no cycle */
	uint8_t *fine;
	uint32_t end;
	uint32_t younger; /* added to all stamps, since time has passed */
};

enum kvw_err kvw_radix_recall_begin(struct kvw_radix *tree, const struct kvw_keep_in *in,
	const uint8_t *record, size_t len, struct kvw_radix_recall **out)
{
	struct kvw_radix_recall *recall = NULL;
	struct tree_record head;

	if (len != sizeof(head))
		return KVW_EPROTO;
	memcpy(&head, record, sizeof(head));
	if (head.layout != KEEP_LAYOUT || head.run != KVW_RADIX_RUN || head.end == 0 ||
		head.end / MOST_SHRINK > tree->slot_count ||
		atomic_load_explicit(&tree->fresh, memory_order_relaxed) != 1)
		return KVW_EPROTO;
	recall = calloc(1, sizeof(*recall));
	if (recall == NULL)
		return KVW_ENOMEM;
	recall->slots = calloc(head.end, sizeof(recall->slots[0]));
	recall->fine = calloc(tree->slot_count / 8 + 1, 1);
	if (recall->slots == NULL || recall->fine == NULL) {
		free(recall->slots);
		free(recall->fine);
		free(recall);
		return KVW_ENOMEM;
	}
	recall->tree = tree;
	recall->pool = kvw_pool_mine(tree);
	recall->in = in;
	recall->end = head.end;
	recall->younger = (uint32_t)(in->now_ns >> KVW_STAMP_SHIFT) - head.clock;
	tree->table.seed = head.seed;
	atomic_store_explicit(
		&tree->clock, (uint32_t)(in->now_ns >> KVW_STAMP_SHIFT), memory_order_relaxed);
	*out = recall;
	return KVW_OK;
}

/* Takes a slot that was never used. 0: none is left; no recalled node is evicted for another. */
static uint32_t take_fresh(struct kvw_radix_recall *recall)
{
	struct kvw_radix *tree = recall->tree;
	uint32_t fresh = atomic_load_explicit(&tree->fresh, memory_order_relaxed);

	return fresh < tree->slot_count ? kvw_slot_take(tree, recall->pool) : 0;
}

/* Adds a holder to a node; *last: the slot with its newest holder. False: out of memory. */
static bool add_holder(struct kvw_radix_recall *recall, struct kvw_slot *node,
	struct kvw_slot **last, uint64_t word)
{
	unsigned used = kvw_slot_used(*last);
	unsigned room = *last == node ? KVW_NODE_HOLDERS : KVW_NODE_WORDS;

	if (used == room) {
		uint32_t more = take_fresh(recall);

		if (more == 0)
			return false;
		atomic_store_explicit(&(*last)->overflow, more, memory_order_relaxed);
		*last = kvw_slot_at(recall->tree, more);
		used = 0;
	}
	atomic_store_explicit(&(*last)->word[used], word, memory_order_relaxed);
	atomic_store_explicit(&(*last)->used, (uint8_t)(used + 1), memory_order_relaxed);
	return true;
}

/* Adds those holders that are still workers, each once. */
static void add_holders(struct kvw_radix_recall *recall, struct kvw_slot *node,
	const struct node_record *head, const uint8_t *words)
{
	uint64_t seen[KVW_MAX_WORKERS / 64] = {0};
	struct kvw_slot *last = node;

	for (unsigned i = 0; i < head->holders; i++) {
		struct kvw_holder h;
		uint64_t word;

		memcpy(&word, words + i * sizeof(word), sizeof(word));
		h = kvw_holder_unpack(word);
		h.worker = recall->in->workers[h.worker];
		if (h.worker >= KVW_MAX_WORKERS || h.mid == 0 || h.mid > h.upto ||
			h.upto > head->length || (seen[h.worker / 64] >> h.worker % 64 & 1) != 0)
			continue;
		if (h.mid == h.upto)
			h.older = 0;
		seen[h.worker / 64] |= UINT64_C(1) << h.worker % 64;
		if (!add_holder(recall, node, &last, kvw_holder_pack(h)))
			break;
	}
}

static bool is_node(
	const struct kvw_radix_recall *recall, const struct node_record *head, size_t len)
{
	return head->key != 0 && head->index > 0 && head->index < recall->end &&
	       recall->slots[head->index] == 0 && head->length > 0 &&
	       head->length <= KVW_RADIX_RUN && head->place < KVW_TABLE_GROUP &&
	       head->tokens > 0 && head->tokens <= MOST_TOKENS && head->holders <= MOST_HOLDERS &&
	       len == sizeof(*head) + (part_words(head->length) + head->holders) * sizeof(uint64_t);
}

void kvw_radix_recall_node(struct kvw_radix_recall *recall, const uint8_t *record, size_t len)
{
	struct kvw_radix *tree = recall->tree;
	struct kvw_slot *slot = NULL;
	struct node_record head;
	uint32_t index = 0;

	if (len < sizeof(head))
		return;
	memcpy(&head, record, sizeof(head));
	if (!is_node(recall, &head, len))
		return;
	index = take_fresh(recall);
	if (index == 0)
		return;
	slot = kvw_slot_at(tree, index);
	record += sizeof(head);
	for (uint32_t i = 0; i < part_words(head.length); i++, record += sizeof(uint64_t)) {
		uint64_t parts;

		memcpy(&parts, record, sizeof(parts));
		atomic_store_explicit(
			&slot->word[KVW_NODE_HOLDERS + i], parts, memory_order_relaxed);
	}
	add_holders(recall, slot, &head, record);
	if (kvw_slot_used(slot) == 0 || kvw_table_enter(&tree->table, head.key, head.group,
						head.place, index, head.length) != KVW_OK) {
		kvw_node_clear(tree, recall->pool, slot);
		kvw_slot_give(tree, recall->pool, index);
		return;
	}
	kvw_slot_set_child(slot, head.group, 0);
	atomic_store_explicit(&slot->link, head.parent, memory_order_relaxed);
	atomic_store_explicit(&slot->stamp, head.stamp + recall->younger, memory_order_relaxed);
	atomic_store_explicit(&slot->tokens, head.tokens, memory_order_relaxed);
	atomic_store_explicit(&slot->length, head.length, memory_order_relaxed);
	atomic_store_explicit(&slot->place, head.place, memory_order_relaxed);
	atomic_store_explicit(&slot->key, head.key, memory_order_relaxed);
	atomic_store_explicit(&slot->refs, KVW_NODE_LIVE, memory_order_release);
	recall->slots[head.index] = index;
}

void kvw_radix_recall_view(struct kvw_radix_recall *recall, const uint8_t *record, size_t len)
{
	struct view_record view;

	if (len != sizeof(view))
		return;
	memcpy(&view, record, sizeof(view));
	if (view.worker >= KVW_MAX_WORKERS || recall->in->workers[view.worker] >= KVW_MAX_WORKERS)
		return;
	kvw_view_recall(
		&recall->tree->views, recall->in->workers[view.worker], view.floor, view.now);
}

static bool is_live(struct kvw_slot *slot)
{
	return kvw_slot_refs(slot) != 0 && kvw_slot_key(slot) != 0;
}

/* Translates the parent's old index. */
static void translate_parent(struct kvw_radix_recall *recall, struct kvw_slot *slot, uint32_t index)
{
	uint32_t then = atomic_load_explicit(&slot->link, memory_order_relaxed);
	uint32_t now = then < recall->end ? recall->slots[then] : 0;

	atomic_store_explicit(&slot->link, now == index ? 0 : now, memory_order_relaxed);
}

static bool is_fine(const struct kvw_radix_recall *recall, uint32_t index)
{
	return index == 0 || (recall->fine[index / 8] >> index % 8 & 1) != 0;
}

/* Cuts a node off from its parent if its ancestors form a cycle. */
static void cut_circle(struct kvw_radix_recall *recall, uint32_t index)
{
	struct kvw_radix *tree = recall->tree;
	uint32_t at = index;

	for (unsigned i = 0; i < KVW_RADIX_MAX_STEPS && !is_fine(recall, at); i++)
		at = atomic_load_explicit(&kvw_slot_at(tree, at)->link, memory_order_relaxed);
	if (!is_fine(recall, at))
		atomic_store_explicit(&kvw_slot_at(tree, index)->link, 0, memory_order_relaxed);
	for (at = index; !is_fine(recall, at);
		at = atomic_load_explicit(&kvw_slot_at(tree, at)->link, memory_order_relaxed))
		recall->fine[at / 8] |= (uint8_t)(1u << at % 8);
}

/* Links the node to its parent and counts its holders in the views; drops dead holders. */
static void settle_slot(struct kvw_radix *tree, struct kvw_slot *slot, uint32_t index)
{
	uint32_t parent = atomic_load_explicit(&slot->link, memory_order_relaxed);
	struct kvw_slot *at = slot;

	if (parent != 0) {
		struct kvw_slot *above = kvw_slot_at(tree, parent);

		atomic_fetch_add_explicit(&above->refs, 1, memory_order_relaxed);
		kvw_slot_set_child(above, kvw_slot_group(above), index);
	}
	while (at != NULL) {
		uint32_t more = atomic_load_explicit(&at->overflow, memory_order_relaxed);

		for (unsigned i = 0; i < kvw_slot_used(at); i++) {
			struct kvw_holder h = kvw_holder_unpack(
				atomic_load_explicit(&at->word[i], memory_order_relaxed));
			const struct kvw_move parts[2] = {
				{h.tick, kvw_slot_tokens(slot, 0, h.mid)},
				{kvw_holder_rest_tick(h), kvw_slot_tokens(slot, h.mid, h.upto)}};

			if (!kvw_view_recount(&tree->views, h.worker, parts))
				atomic_store_explicit(&at->word[i], 0, memory_order_relaxed);
		}
		at = more != 0 ? kvw_slot_at(tree, more) : NULL;
	}
}

void kvw_radix_recall_end(struct kvw_radix_recall *recall)
{
	struct kvw_radix *tree = NULL;
	uint32_t end = 0;

	if (recall == NULL)
		return;
	tree = recall->tree;
	end = atomic_load_explicit(&tree->fresh, memory_order_relaxed);
	for (uint32_t i = 1; i < end; i++)
		if (is_live(kvw_slot_at(tree, i)))
			translate_parent(recall, kvw_slot_at(tree, i), i);
	for (uint32_t i = 1; i < end; i++)
		if (is_live(kvw_slot_at(tree, i)))
			cut_circle(recall, i);
	for (uint32_t i = 1; i < end; i++)
		if (is_live(kvw_slot_at(tree, i)))
			settle_slot(tree, kvw_slot_at(tree, i), i);
	free(recall->slots);
	free(recall->fine);
	free(recall);
}
