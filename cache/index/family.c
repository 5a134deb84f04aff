/*
 * family.c - keeps parents and children of a tier's entries.
 *
 * An entry knows its parent and is in the list of its parent's children; only an entry without
 * children may be evicted. A parent can be missing: not inserted yet, erased, or expired. Then a
 * record of its key stands in for the parent and keeps the list, so that the parent gets its
 * children back when it is inserted, and is not evicted from above them. Such a record lives as
 * long as a child waits for that parent. At most one such record exists for each four entries;
 * beyond that, entries have no parent, and may outlive theirs.
 *
 * When a parent leaves or comes back, each of its children is visited once.
 *
 * Callers choose keys and parents, so the parents that they name could form a circle, in which no
 * entry would ever be a leaf again. A circle can only arise when an entry is inserted after its
 * children. Then the index walks upwards from the entry, and leaves it without a parent if the walk
 * meets the entry itself or takes too many steps.
 */
#include "index/index_parts.h"

#define MOST_GENERATIONS 16384

static struct kvt_missing *missing_at(const struct kvt_index *x, uint32_t number)
{
	return kvt_pool_at(&x->missing, number);
}

static uint32_t find_missing(const struct kvt_index *x, uint32_t hash, const struct kvt_key *key)
{
	uint32_t number = kvt_pool_first(&x->missing, hash);

	while (number != KVT_NO_ENTRY &&
		memcmp(&missing_at(x, number)->key, key, sizeof(*key)) != 0)
		number = kvt_pool_next(&x->missing, number);
	return number;
}

/* Makes a record that waits for this key. KVT_NO_ENTRY: no room for a record. */
static uint32_t new_missing(struct kvt_index *x, uint32_t hash, const struct kvt_key *key)
{
	uint32_t number;

	if (kvt_pool_add(&x->missing, hash, &number) != KVT_OK)
		return KVT_NO_ENTRY;
	missing_at(x, number)->key = *key;
	missing_at(x, number)->first_child = KVT_NO_ENTRY;
	return number;
}

/* Returns the head of the list of this parent's children. */
static uint32_t *children_of(struct kvt_index *x, uint32_t parent)
{
	if ((parent & KVT_MISSING_PARENT) != 0)
		return &missing_at(x, parent & ~KVT_MISSING_PARENT)->first_child;
	return &kvt_index_at(x, parent)->first_child;
}

/* Updates the entry's bit after its list of children has become empty, or is no longer empty. */
static void note_children(struct kvt_index *x, uint32_t number)
{
	const uint64_t bit = 1ull << number % 64;

	if (kvt_index_at(x, number)->first_child != KVT_NO_ENTRY)
		x->inner[number / 64] |= bit;
	else
		x->inner[number / 64] &= ~bit;
}

static void add_child(struct kvt_index *x, uint32_t parent, uint32_t child)
{
	struct kvt_entry *e = kvt_index_at(x, child);
	uint32_t *first = children_of(x, parent);

	e->parent = parent;
	e->previous = KVT_NO_ENTRY;
	e->next = *first;
	if (*first != KVT_NO_ENTRY)
		kvt_index_at(x, *first)->previous = child;
	*first = child;
	if ((parent & KVT_MISSING_PARENT) != 0)
		x->counts.orphans++;
	else
		note_children(x, parent);
}

static void remove_child(struct kvt_index *x, uint32_t child)
{
	struct kvt_entry *e = kvt_index_at(x, child);
	uint32_t parent = e->parent;
	uint32_t *first;

	if (parent == KVT_NO_ENTRY)
		return;
	first = children_of(x, parent);
	if (e->previous != KVT_NO_ENTRY)
		kvt_index_at(x, e->previous)->next = e->next;
	else
		*first = e->next;
	if (e->next != KVT_NO_ENTRY)
		kvt_index_at(x, e->next)->previous = e->previous;
	e->parent = e->next = e->previous = KVT_NO_ENTRY;
	if ((parent & KVT_MISSING_PARENT) != 0) {
		x->counts.orphans--;
		if (*first == KVT_NO_ENTRY)
			kvt_pool_remove(&x->missing, parent & ~KVT_MISSING_PARENT);
	} else {
		note_children(x, parent);
	}
}

/* Gives a whole list another parent, or none. Returns the list's length. */
static uint64_t rename_parent(struct kvt_index *x, uint32_t first, uint32_t parent)
{
	uint64_t count = 0;

	for (uint32_t child = first, next; child != KVT_NO_ENTRY; child = next, count++) {
		struct kvt_entry *e = kvt_index_at(x, child);

		next = e->next;
		e->parent = parent;
		if (parent == KVT_NO_ENTRY)
			e->next = e->previous = KVT_NO_ENTRY;
	}
	return count;
}

/* Returns whether the chain upwards from `from` ends without passing `number`. */
static bool line_ends(const struct kvt_index *x, uint32_t from, uint32_t number)
{
	for (size_t i = 0; i < MOST_GENERATIONS; i++) {
		if (from == number)
			return false;
		if (from == KVT_NO_ENTRY || (from & KVT_MISSING_PARENT) != 0)
			return true;
		from = kvt_index_at(x, from)->parent;
	}
	return false;
}

/* Makes the new entry the parent of the children that wait for it. */
static void adopt(struct kvt_index *x, uint32_t number, uint32_t hash, const struct kvt_key *key)
{
	uint32_t waiting = find_missing(x, hash, key), first;

	if (waiting == KVT_NO_ENTRY)
		return;
	first = missing_at(x, waiting)->first_child;
	x->counts.orphans -= rename_parent(x, first, number);
	kvt_index_at(x, number)->first_child = first;
	note_children(x, number);
	kvt_pool_remove(&x->missing, waiting);
}

void kvt_family_join(struct kvt_index *x, uint32_t number, uint32_t hash, const struct kvt_key *key,
	const struct kvt_key *parent)
{
	struct kvt_entry *e = kvt_index_at(x, number);
	uint32_t parent_hash, above;

	e->parent = e->first_child = e->next = e->previous = KVT_NO_ENTRY;
	e->depth = 0;
	adopt(x, number, hash, key);
	if (parent == NULL || memcmp(parent, key, sizeof(*key)) == 0)
		return;
	above = kvt_index_find(x, parent);
	if (above == KVT_NO_ENTRY) {
		parent_hash = kvt_index_hash(x, parent);
		above = find_missing(x, parent_hash, parent);
		if (above == KVT_NO_ENTRY)
			above = new_missing(x, parent_hash, parent);
		if (above == KVT_NO_ENTRY)
			return;
		add_child(x, above | KVT_MISSING_PARENT, number);
	} else if (e->first_child == KVT_NO_ENTRY || line_ends(x, above, number)) {
		e->depth = kvt_index_at(x, above)->depth + 1;
		add_child(x, above, number);
	}
}

void kvt_family_part(struct kvt_index *x, uint32_t number)
{
	struct kvt_entry *e = kvt_index_at(x, number);
	uint32_t first = e->first_child, stand_in;

	remove_child(x, number);
	if (first == KVT_NO_ENTRY)
		return;
	e->first_child = KVT_NO_ENTRY;
	note_children(x, number);
	stand_in = new_missing(x, kvt_index_hash(x, kvt_entry_key(e)), kvt_entry_key(e));
	if (stand_in == KVT_NO_ENTRY) {
		(void)rename_parent(x, first, KVT_NO_ENTRY);
		return;
	}
	missing_at(x, stand_in)->first_child = first;
	x->counts.orphans += rename_parent(x, first, stand_in | KVT_MISSING_PARENT);
}

bool kvt_index_parent(struct kvt_index *x, uint32_t entry, struct kvt_key *out)
{
	uint32_t parent;

	kvt_index_lock(x);
	parent = kvt_index_at(x, entry)->parent;
	if (parent != KVT_NO_ENTRY && (parent & KVT_MISSING_PARENT) != 0)
		*out = missing_at(x, parent & ~KVT_MISSING_PARENT)->key;
	else if (parent != KVT_NO_ENTRY)
		*out = *kvt_entry_key(kvt_index_at(x, parent));
	kvt_index_unlock(x);
	return parent != KVT_NO_ENTRY;
}
