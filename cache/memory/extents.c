/*
 * extents.c - keeps free runs in a tree ordered by length, and taken units in a map.
 *
 * The rule is best fit: an object gets the shortest free run that holds it, of several the first
 * one. If no run holds the object, it gets the longest runs, so that it lies in as few pieces as
 * possible. A freed run joins its free neighbours, whose ends the map finds. So:
 *
 *	- two free runs never touch, and every free unit is in exactly one run of the tree;
 *	- so there are at most half as many free runs as units, and one more.
 *
 * Address space for that many nodes is reserved from the beginning, and gets memory at its first
 * use: so giving back cannot fail, and bookkeeping costs no more than needed. Fragmentation does
 * not grow over time.
 *
 * Cost: O(log runs) for each run taken or given, 16 bytes per free run and 1.02 bits per unit. The tree is a treap
 * whose priorities are a hash of a run's first unit: balanced as a random tree is, and the same in every run of a test.
 */
#include "memory/extents.h"

#include <assert.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "memory/unit_map.h"

#define NONE UINT32_MAX

/* A free run, or an unused node (then `left` is the next unused one). */
struct node {
	struct kvt_extent run;
	uint32_t left, right; /* left: shorter runs; right: longer runs; NONE: no subtree */
};

struct kvt_extents {
	struct kvt_unit_map taken;
	struct node *nodes;  /* mapped, owned; with room for as many nodes as there can be */
	uint64_t node_bytes; /* bytes of the mapping */
	uint32_t fresh;      /* nodes from this one on were never used */
	uint32_t unused; /* first node that was used and is not in the tree; NONE: there is none */
	uint32_t root;       /* NONE: no free run */
	uint32_t free_units;
};

/* Returns whether run a comes before b: by length, then by place. */
static bool is_before(struct kvt_extent a, struct kvt_extent b)
{
	return a.count != b.count ? a.count < b.count : a.first < b.first;
}

static uint32_t priority(struct kvt_extent run)
{
	uint64_t x = run.first * UINT64_C(0x9e3779b97f4a7c15);

	x = (x ^ x >> 32) * UINT64_C(0xd6e8feb86659fd93);
	return (uint32_t)(x >> 32);
}

/* Reserves address space for the nodes of `units` units. */
static enum kvt_status reserve(struct kvt_extents *e, uint32_t units)
{
	uint64_t bytes = ((uint64_t)units / 2 + 1) * sizeof(struct node);
	void *at;

	if (e->nodes == NULL)
		at = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	else
		at = mremap(e->nodes, e->node_bytes, bytes, MREMAP_MAYMOVE);
	if (at == MAP_FAILED)
		return KVT_ENOMEM;
	e->nodes = at;
	e->node_bytes = bytes;
	return KVT_OK;
}

static uint32_t node_take(struct kvt_extents *e)
{
	uint32_t node = e->unused;

	if (node == NONE)
		return e->fresh++;
	e->unused = e->nodes[node].left;
	return node;
}

/* Puts a free run into the tree. */
static void tree_add(struct kvt_extents *e, struct kvt_extent run)
{
	uint32_t made = node_take(e), *link = &e->root, *left, *right, at;

	assert(run.count > 0 && ((uint64_t)made + 1) * sizeof(struct node) <= e->node_bytes);
	while (*link != NONE && priority(e->nodes[*link].run) >= priority(run))
		link = is_before(run, e->nodes[*link].run) ? &e->nodes[*link].left
							   : &e->nodes[*link].right;
	at = *link;
	*link = made;
	e->nodes[made].run = run;
	left = &e->nodes[made].left;
	right = &e->nodes[made].right;
	/* the former subtree is divided between the two sides of the new node */
	while (at != NONE) {
		if (is_before(e->nodes[at].run, run)) {
			*left = at;
			left = &e->nodes[at].right;
			at = *left;
		} else {
			*right = at;
			right = &e->nodes[at].left;
			at = *right;
		}
	}
	*left = NONE;
	*right = NONE;
}

/* Removes a free run, which must be present. */
static void tree_remove(struct kvt_extents *e, struct kvt_extent run)
{
	uint32_t *link = &e->root, gone, left, right;

	while (*link != NONE && e->nodes[*link].run.first != run.first)
		link = is_before(run, e->nodes[*link].run) ? &e->nodes[*link].left
							   : &e->nodes[*link].right;
	assert(*link != NONE && e->nodes[*link].run.count == run.count);
	gone = *link;
	left = e->nodes[gone].left;
	right = e->nodes[gone].right;
	while (left != NONE && right != NONE) { /* joins both sides */
		if (priority(e->nodes[left].run) > priority(e->nodes[right].run)) {
			*link = left;
			link = &e->nodes[left].right;
			left = *link;
		} else {
			*link = right;
			link = &e->nodes[right].left;
			right = *link;
		}
	}
	*link = left != NONE ? left : right;
	e->nodes[gone].left = e->unused;
	e->unused = gone;
}

/* Finds the shortest free run of at least `units`. */
static bool tree_fitting(const struct kvt_extents *e, uint32_t units, struct kvt_extent *out)
{
	bool found = false;

	for (uint32_t at = e->root; at != NONE;) {
		const struct node *node = &e->nodes[at];

		if (node->run.count >= units) {
			*out = node->run;
			found = true;
			at = node->left;
		} else {
			at = node->right;
		}
	}
	return found;
}

/* Finds the last free run before `run` in the tree's order. */
static bool tree_before(const struct kvt_extents *e, struct kvt_extent run, struct kvt_extent *out)
{
	bool found = false;

	for (uint32_t at = e->root; at != NONE;) {
		const struct node *node = &e->nodes[at];

		if (is_before(node->run, run)) {
			*out = node->run;
			found = true;
			at = node->right;
		} else {
			at = node->left;
		}
	}
	return found;
}

enum kvt_status kvt_extents_create(uint32_t unit_count, struct kvt_extents **out)
{
	struct kvt_extents *e = calloc(1, sizeof(*e));

	if (e == NULL)
		return KVT_ENOMEM;
	e->unused = NONE;
	e->root = NONE;
	if (kvt_unit_map_init(&e->taken, 0) != KVT_OK ||
		kvt_extents_grow(e, unit_count) != KVT_OK) {
		kvt_extents_destroy(e);
		return KVT_ENOMEM;
	}
	*out = e;
	return KVT_OK;
}

void kvt_extents_destroy(struct kvt_extents *e)
{
	if (e == NULL)
		return;
	kvt_unit_map_finish(&e->taken);
	if (e->nodes != NULL)
		munmap(e->nodes, e->node_bytes);
	free(e);
}

/* Returns how many of the longest runs together have `units` units. 0: more than `most`. */
static uint32_t pieces_for(const struct kvt_extents *e, uint32_t units, uint32_t most)
{
	struct kvt_extent run = {.first = NONE, .count = NONE};
	uint64_t sum = 0;

	for (uint32_t n = 1; n <= most; n++) {
		if (!tree_before(e, run, &run))
			return 0;
		sum += run.count;
		if (sum >= units)
			return n;
	}
	return 0;
}

/* Takes the beginning of a free run. */
static struct kvt_extent cut(struct kvt_extents *e, struct kvt_extent run, uint32_t units)
{
	struct kvt_extent got = {.first = run.first, .count = units};

	tree_remove(e, run);
	if (units < run.count)
		tree_add(e, (struct kvt_extent){run.first + units, run.count - units});
	kvt_unit_map_set(&e->taken, got.first, got.first + units);
	e->free_units -= units;
	return got;
}

enum kvt_status kvt_extents_take(
	struct kvt_extents *e, uint32_t units, struct kvt_extent *out, uint32_t *n)
{
	uint32_t most = *n < KVT_MAX_EXTENTS ? *n : KVT_MAX_EXTENTS, pieces;
	struct kvt_extent run = {0, 0};

	if (units == 0 || most == 0)
		return KVT_EINVAL;
	if (units > e->free_units)
		return KVT_FULL;
	pieces = pieces_for(e, units, most);
	if (pieces == 0)
		return KVT_FULL;
	for (uint32_t i = 0; i + 1 < pieces; i++) {
		(void)tree_before(e, (struct kvt_extent){NONE, NONE}, &run); /* the longest */
		units -= run.count;
		out[i] = cut(e, run, run.count);
	}
	(void)tree_fitting(e, units, &run);
	out[pieces - 1] = cut(e, run, units);
	*n = pieces;
	return KVT_OK;
}

enum kvt_status kvt_extents_mark(struct kvt_extents *e, struct kvt_extent run)
{
	uint32_t begin, last = run.first + run.count, end;

	if (run.count == 0 || run.first >= e->taken.count || run.count > e->taken.count - run.first)
		return KVT_EINVAL;
	end = kvt_unit_map_next(&e->taken, run.first);
	if (end < last)
		return KVT_EXISTS;
	begin = kvt_unit_map_after_last(&e->taken, run.first);
	tree_remove(e, (struct kvt_extent){begin, end - begin});
	if (begin < run.first)
		tree_add(e, (struct kvt_extent){begin, run.first - begin});
	if (last < end)
		tree_add(e, (struct kvt_extent){last, end - last});
	kvt_unit_map_set(&e->taken, run.first, last);
	e->free_units -= run.count;
	return KVT_OK;
}

static void give_one(struct kvt_extents *e, struct kvt_extent run)
{
	uint32_t last = run.first + run.count;
	uint32_t begin = kvt_unit_map_after_last(&e->taken, run.first);
	uint32_t end = last < e->taken.count ? kvt_unit_map_next(&e->taken, last) : last;

	assert(kvt_unit_map_all_set(&e->taken, run.first, last));
	if (begin < run.first)
		tree_remove(e, (struct kvt_extent){begin, run.first - begin});
	if (last < end)
		tree_remove(e, (struct kvt_extent){last, end - last});
	tree_add(e, (struct kvt_extent){begin, end - begin});
	kvt_unit_map_clear(&e->taken, run.first, last);
	e->free_units += run.count;
}

void kvt_extents_give(struct kvt_extents *e, const struct kvt_extent *runs, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		give_one(e, runs[i]);
}

uint32_t kvt_extents_free(const struct kvt_extents *e)
{
	return e->free_units;
}

uint32_t kvt_extents_largest(const struct kvt_extents *e)
{
	struct kvt_extent run = {0};

	return tree_before(e, (struct kvt_extent){NONE, NONE}, &run) ? run.count : 0;
}

uint64_t kvt_extents_bytes(const struct kvt_extents *e)
{
	return sizeof(*e) + (uint64_t)e->fresh * sizeof(*e->nodes) + kvt_unit_map_bytes(&e->taken);
}

enum kvt_status kvt_extents_grow(struct kvt_extents *e, uint32_t unit_count)
{
	uint32_t before = e->taken.count, begin;

	if (unit_count < before)
		return KVT_EINVAL;
	if (unit_count == before)
		return KVT_OK;
	if (reserve(e, unit_count) != KVT_OK || kvt_unit_map_grow(&e->taken, unit_count) != KVT_OK)
		return KVT_ENOMEM;
	begin = kvt_unit_map_after_last(&e->taken, before);
	if (begin < before)
		tree_remove(e, (struct kvt_extent){begin, before - begin});
	tree_add(e, (struct kvt_extent){begin, unit_count - begin});
	e->free_units += unit_count - before;
	return KVT_OK;
}
