/*
 * sim_fragments.c - segments of prompts, and which of them are stored; see sim_fragments.h.
 *
 * A segment of n tokens takes n / 256 units, rounded up, of each level. It is found if a level has all of
 * its units. Segments of a sequence are cut and named once; its ranges are made each time that it may be
 * admitted, since segments come and go meanwhile.
 */
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "bench/sim/sim_fragments.h"
#include "bench/sim/sim_link.h"
#include "bench/sim/sim_tier.h"
#include "bench/sim/sim_token.h"

#define UNITS_MOST 65536u /* most units of a segment; longer segments are not stored */

/* A run of tokens of a prompt. */
struct segment {
	uint32_t from, to;
	uint64_t key;
	bool taken; /* the sequence's ranges cover it */
};

/* The segments of a prompt, in seq->segments. */
struct segments {
	uint32_t count, next; /* next: the first segment that may not be stored yet */
	struct segment items[];
};

struct kvb_fragments {
	const struct kvb_fragments_options *options;
	struct kvb_tier *memory, *disk; /* disk NULL: there is no disk */
	uint64_t *keys;                 /* scratch memory for UNITS_MOST keys */
	struct kvb_fragments_stats stats;
};

void kvb_fragments_init(struct kvb_fragments_options *options)
{
	*options = (struct kvb_fragments_options){.separator = " # # ",
		.min_tokens = 256,
		.memory_tokens = 524288,
		.first_layers = 1.0 / 32,
		.rotate_bytes_per_s = 8e9};
}

struct kvb_fragments *kvb_fragments_create(const struct kvb_fragments_options *options)
{
	struct kvb_fragments *f = calloc(1, sizeof(*f));

	if (f == NULL)
		return NULL;
	f->options = options;
	f->keys = malloc(UNITS_MOST * sizeof(*f->keys));
	f->memory = kvb_tier_create(
		(options->memory_tokens + KVB_FRAGMENT_UNIT - 1) / KVB_FRAGMENT_UNIT, NULL, NULL);
	if (options->disk_tokens > 0)
		f->disk = kvb_tier_create(
			(options->disk_tokens + KVB_FRAGMENT_UNIT - 1) / KVB_FRAGMENT_UNIT, NULL,
			NULL);
	if (f->keys != NULL && f->memory != NULL && (f->disk != NULL || options->disk_tokens == 0))
		return f;
	kvb_fragments_destroy(f);
	return NULL;
}

void kvb_fragments_destroy(struct kvb_fragments *f)
{
	if (f == NULL)
		return;
	kvb_tier_destroy(f->memory);
	kvb_tier_destroy(f->disk);
	free(f->keys);
	free(f);
}

void kvb_fragments_restart(struct kvb_fragments *f)
{
	kvb_tier_restart(f->memory);
	f->stats = (struct kvb_fragments_stats){0};
}

/* --- segments --- */

static bool is_cut(uint32_t token)
{
	return token == KVB_TOKEN_START || token == KVB_TOKEN_HEADER_END ||
	       token == KVB_TOKEN_END || token == KVB_TOKEN_SEPARATOR;
}

/* The next segment of the prompt's first `end` tokens that begins at or behind `at`, of any length;
 * false: there is none. */
static bool next_segment(const uint32_t *tokens, uint32_t end, uint32_t at, struct segment *out)
{
	while (at < end && is_cut(tokens[at]))
		at++;
	out->from = at;
	while (at < end && !is_cut(tokens[at]))
		at++;
	out->to = at;
	return out->to > out->from;
}

/* Cuts a prompt and names its segments of at least the shortest length. NULL: no memory, so it
 * has none. */
static struct segments *cut_prompt(
	const struct kvb_fragments *f, const struct kvb_seq *seq, uint64_t salt)
{
	/* The last token is always computed. */
	uint32_t end = seq->prompt_len - 1, count = 0;
	struct segment one = {0};
	struct segments *out;

	while (next_segment(seq->tokens, end, one.to, &one))
		count += one.to - one.from >= f->options->min_tokens;
	out = calloc(1, sizeof(*out) + count * sizeof(out->items[0]));
	one = (struct segment){0};
	while (out != NULL && next_segment(seq->tokens, end, one.to, &one)) {
		if (one.to - one.from < f->options->min_tokens)
			continue;
		one.key = XXH3_64bits_withSeed(seq->tokens + one.from,
			(one.to - one.from) * sizeof(*seq->tokens), salt);
		out->items[out->count++] = one;
	}
	return out;
}

/* Writes the segment's keys into f->keys and returns their number; 0: it is too long to be
 * stored. */
static uint32_t unit_keys(struct kvb_fragments *f, const struct segment *s)
{
	uint32_t units = (s->to - s->from + KVB_FRAGMENT_UNIT - 1) / KVB_FRAGMENT_UNIT;

	if (units > UNITS_MOST)
		return 0;
	for (uint32_t i = 0; i < units; i++)
		f->keys[i] = XXH3_64bits_withSeed(&s->key, sizeof(s->key), i);
	return units;
}

/* Returns the time to fetch a token from memory or from the disk and to move it. */
static double token_ns(const struct kvb_fragments_options *o, bool from_disk)
{
	double ns = o->kv_bytes * 1e9 / o->memory->bytes_per_s +
		    o->kv_bytes / 2.0 * 1e9 / o->rotate_bytes_per_s;

	return from_disk ? ns + o->kv_bytes * 1e9 / o->disk->bytes_per_s : ns;
}

static double token_weight(const struct kvb_fragments_options *o)
{
	return o->share > 0 ? o->share + (1 - o->share) * o->first_layers : 0;
}

/* Marks stored units as used before others are added, so that these evict other units. */
static void keep(struct kvb_tier *tier, const uint64_t *keys, uint32_t units)
{
	kvb_tier_touch(tier, keys, units);
	kvb_tier_store(tier, keys, units);
}

/* Returns whether the segment is stored, and marks it as used; *disk: it came from the disk. */
static bool find(struct kvb_fragments *f, const struct segment *s, bool *disk)
{
	uint32_t units = unit_keys(f, s);

	*disk = false;
	if (units == 0)
		return false;
	if (kvb_tier_find(f->memory, f->keys, units) == units) {
		kvb_tier_touch(f->memory, f->keys, units);
		return true;
	}
	if (f->disk == NULL || kvb_tier_find(f->disk, f->keys, units) < units)
		return false;
	*disk = true;
	kvb_tier_touch(f->disk, f->keys, units);
	keep(f->memory, f->keys, units);
	return true;
}

static void store(struct kvb_fragments *f, const struct segment *s)
{
	uint32_t units = unit_keys(f, s);

	if (units == 0)
		return;
	f->stats.stored += kvb_tier_find(f->memory, f->keys, units) < units;
	keep(f->memory, f->keys, units);
	if (f->disk != NULL)
		keep(f->disk, f->keys, units);
}

static void drop_ranges(struct kvb_seq *seq)
{
	free(seq->ranges);
	seq->ranges = NULL;
	seq->range_count = 0;
}

/* Takes a stored segment that ends behind the sequence's tokens so far. */
static void take(struct kvb_fragments *f, struct kvb_seq *seq, struct segment *s, uint32_t from)
{
	const struct kvb_fragments_options *o = f->options;
	uint32_t first = s->from > from ? s->from : from;
	bool disk;

	f->stats.segments++;
	if (!find(f, s, &disk))
		return;
	s->taken = true;
	seq->ranges[seq->range_count++] =
		(struct kvb_range){first, s->to, token_weight(o), token_ns(o, disk)};
	f->stats.found++;
	f->stats.reused_tokens += s->to - first;
	f->stats.moved_bytes += (uint64_t)(s->to - first) * (o->kv_bytes / 2);
}

void kvb_fragments_blend(struct kvb_fragments *f, struct kvb_seq *seq, uint64_t salt, uint32_t from,
	bool exact)
{
	struct segments *all;

	drop_ranges(seq);
	if (seq->segments == NULL)
		seq->segments = cut_prompt(f, seq, salt);
	all = seq->segments;
	if (all == NULL || all->count == 0)
		return;
	if (!exact)
		seq->ranges = calloc(all->count, sizeof(*seq->ranges));
	all->next = 0;
	for (uint32_t i = 0; i < all->count; i++) {
		all->items[i].taken = false;
		if (seq->ranges != NULL && all->items[i].to > from)
			take(f, seq, &all->items[i], from);
	}
	if (seq->range_count == 0)
		drop_ranges(seq);
}

void kvb_fragments_passed(struct kvb_fragments *f, struct kvb_seq *seq)
{
	struct segments *all = seq->segments;

	for (; all != NULL && all->next < all->count; all->next++) {
		const struct segment *s = &all->items[all->next];

		if (s->to > seq->computed)
			break;
		if (!s->taken)
			store(f, s);
	}
}

void kvb_fragments_stats(const struct kvb_fragments *f, struct kvb_fragments_stats *out)
{
	*out = f->stats;
	out->memory_units = kvb_tier_count(f->memory);
	out->disk_units = f->disk == NULL ? 0 : kvb_tier_count(f->disk);
}
