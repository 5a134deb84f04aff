/*
 * programs.c - recognizes programs and limits the running ones; programs.h says how.
 *
 * A table of sets of four entries: a key belongs to one set, where a new program replaces the least
 * recently active one. Readers take no lock: every member is atomic, and a turn that is read while
 * another thread moves its entry at worst counts as a new program. Sums over the table are computed
 * slice by slice, so that no call takes long.
 */
#include "admission/programs.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "routing/spin.h"

#define WAYS     4
#define SLICES   16
/* a program's next request is expected for this many times its own usual pause between requests, or
 * that of all programs */
#define PATIENCE 2.0
#define STRIDE   8       /* chunks */
/* Look-ups whose sets are prefetched: a cache miss waits for memory. */
#define AHEAD    8
#define MOST_LOOKS 1024  /* most look-ups for a program, backwards from the prompt's end */
#define MOST_RUN_NS INT64_C(3600000000000) /* longest turn: after that its end has been missed */
#define LEARN    (1 / 256.0f)
#define AWAY_FIRST_NS 30e9f
#define AWAY_LEAST_NS 1e8f
#define AWAY_MOST_NS  36e11f

struct entry {
	_Atomic uint64_t key;     /* 0: free */
	_Atomic int64_t heard_ns; /* when its last request was sent or ended */
	_Atomic float away_ns;    /* mean time between its turns; 0: unknown */
	_Atomic uint32_t context, turns;
	_Atomic uint32_t under_way; /* requests */
};

struct set {
	_Alignas(64) atomic_bool lock; /* held by threads that write entries */
	struct entry entries[WAYS];
};

/* Sums over one slice of the table. */
struct slice {
	_Atomic uint64_t known, running, context;
};

struct kvw_programs {
	struct set *sets;
	size_t mask; /* sets - 1 */
	_Atomic float away_ns;   /* four of five programs come back within this time */
	_Atomic float returning;
	_Atomic uint32_t next_slice;
	struct slice slices[SLICES];
	struct slice all; /* the sum over all slices */

	_Atomic int64_t lost_ns, work_ns; /* since adapted_ns */
	_Atomic int64_t adapted_ns;
	/* share of prefill that recomputed lost contexts, over the last half minute */
	_Atomic float lost;
	_Atomic float limit; /* limit in tokens of running context; NO_LIMIT: none */
	atomic_bool adapting; /* guards these two */
	double lost_sum, work_sum;
};

#define ADAPT_NS   INT64_C(1000000000)
#define FADE       0.97 /* factor by which the sums fade at each update */
#define MUCH_LOST  0.3
#define LITTLE_LOST 0.12
#define LOWER      0.97f
#define RAISE      1.02f
#define NO_LIMIT   1e12f
#define LEAST_LIMIT 1e5f

#define GET(word)        atomic_load_explicit(&(word), memory_order_relaxed)
#define SET(word, value) atomic_store_explicit(&(word), (value), memory_order_relaxed)

struct kvw_programs *kvw_programs_create(size_t most)
{
	struct kvw_programs *programs = calloc(1, sizeof(*programs));
	size_t sets = SLICES;

	if (programs == NULL)
		return NULL;
	while (sets * WAYS < most)
		sets *= 2;
	programs->sets = aligned_alloc(64, sets * sizeof(programs->sets[0]));
	if (programs->sets == NULL) {
		free(programs);
		return NULL;
	}
	memset(programs->sets, 0, sets * sizeof(programs->sets[0]));
	programs->mask = sets - 1;
	SET(programs->away_ns, AWAY_FIRST_NS);
	SET(programs->returning, 0.5f);
	SET(programs->limit, NO_LIMIT);
	return programs;
}

void kvw_programs_destroy(struct kvw_programs *programs)
{
	if (programs == NULL)
		return;
	free(programs->sets);
	free(programs);
}

static struct set *set_of(struct kvw_programs *programs, uint64_t key)
{
	/* Keys are hashes, so their low bits can choose the set. */
	return &programs->sets[(key ^ key >> 32) & programs->mask];
}

static struct entry *find_entry(struct set *set, uint64_t key)
{
	for (size_t i = 0; i < WAYS; i++)
		if (GET(set->entries[i].key) == key)
			return &set->entries[i];
	return NULL;
}

/* Prefetches a set, whose keys lie in two cache lines. */
static void expect(const struct set *set)
{
	__builtin_prefetch(set);
	__builtin_prefetch((const char *)set + 64);
}

/* Returns how many chunks identify a prompt: all full chunks, rounded down to a multiple of STRIDE,
 * so that the next turn is recognized even if it differs slightly at the end of this prompt. */
static uint32_t standing_chunks(const struct kvw_route_request *request)
{
	const struct kvw_chunk *chunks = request->chunks;
	uint32_t count = request->chunk_count;

	/* All chunks, except perhaps the last one, have the same length. */
	if (count >= 2 && chunks[count - 1].end - chunks[count - 2].end != chunks[0].end)
		count--;
	return count >= STRIDE ? count - count % STRIDE : count;
}

/* Copies an entry into a turn. Another program may have replaced the entry by now; `before` is set
 * to the searched key in any case. */
static void fill_turn(const struct entry *entry, uint64_t key, struct kvw_turn *turn)
{
	turn->before = key;
	turn->turns = GET(entry->turns);
	turn->context = GET(entry->context);
}

uint64_t kvw_program_named(struct kvw_slice name)
{
	return name.len == 0 ? 0 : XXH3_64bits(name.data, name.len) | 1;
}

uint64_t kvw_program_of_key(uint64_t named, struct kvw_slice key)
{
	return named == 0 || key.len == 0 ? named
					  : XXH3_64bits_withSeed(key.data, key.len, named) | 1;
}

struct kvw_turn kvw_programs_find(struct kvw_programs *programs,
	const struct kvw_route_request *request, uint64_t named)
{
	struct kvw_turn turn = {.key = named};
	const struct entry *entry = NULL;
	uint32_t count = 0;

	if (named != 0) {
		entry = find_entry(set_of(programs, named), named);
		if (entry != NULL)
			fill_turn(entry, named, &turn);
		return turn;
	}
	if (!request->content_known || !request->teaches || request->chain_count != 1)
		return turn;
	count = standing_chunks(request);
	if (count == 0)
		return turn;
	turn.key = request->chunks[count - 1].hash;
	for (uint32_t i = 0; i < count && i < AHEAD * STRIDE; i += STRIDE)
		expect(set_of(programs, request->chunks[count - 1 - i].hash));
	for (uint32_t i = 0; i < count && i < MOST_LOOKS * STRIDE; i += STRIDE) {
		uint64_t hash = request->chunks[count - 1 - i].hash;

		if (i + AHEAD * STRIDE < count)
			expect(set_of(
				programs, request->chunks[count - 1 - i - AHEAD * STRIDE].hash));
		if (hash == 0 || (entry = find_entry(set_of(programs, hash), hash)) == NULL)
			continue;
		fill_turn(entry, hash, &turn);
		break;
	}
	return turn;
}

/* Moves the learned time away: a quantile that four of five times are below. */
static void learn_away(struct kvw_programs *programs, float away_ns)
{
	float was = GET(programs->away_ns);
	float now = was * (away_ns > was ? 1 + 0.8f * 0.1f : 1 - 0.2f * 0.1f);

	now = now < AWAY_LEAST_NS ? AWAY_LEAST_NS : now > AWAY_MOST_NS ? AWAY_MOST_NS : now;
	SET(programs->away_ns, now);
}

/* Removes the entry of the program's previous turn, and returns its contents. */
static bool take_entry(struct kvw_programs *programs, uint64_t key, struct entry *out)
{
	struct set *set = set_of(programs, key);
	struct entry *entry = NULL;

	kvw_spin_lock(&set->lock);
	entry = find_entry(set, key);
	if (entry != NULL) {
		SET(out->heard_ns, GET(entry->heard_ns));
		SET(out->away_ns, GET(entry->away_ns));
		SET(out->turns, GET(entry->turns));
		SET(out->under_way, GET(entry->under_way));
		SET(entry->key, 0);
	}
	kvw_spin_unlock(&set->lock);
	return entry != NULL;
}

/* Returns a free entry, or that of the least recently active program. */
static struct entry *place_in(struct set *set, uint64_t key)
{
	struct entry *place = find_entry(set, key);

	for (size_t i = 0; place == NULL && i < WAYS; i++)
		if (GET(set->entries[i].key) == 0)
			place = &set->entries[i];
	if (place != NULL)
		return place;
	place = &set->entries[0];
	for (size_t i = 1; i < WAYS; i++)
		if (GET(set->entries[i].heard_ns) < GET(place->heard_ns))
			place = &set->entries[i];
	return place;
}

/* Learns from a turn after a time without requests. */
static void came_back(struct kvw_programs *programs, struct entry *known, int64_t now_ns)
{
	/* another thread sets heard_ns, perhaps to a time later than now_ns */
	int64_t since = now_ns - GET(known->heard_ns);
	float away = since > 0 ? (float)since : 0;
	float mean = GET(known->away_ns);

	learn_away(programs, away);
	SET(known->away_ns, mean == 0 ? away : mean + (away - mean) * 0.25f);
}

static void learn_returning(struct kvw_programs *programs, bool again)
{
	float returning = GET(programs->returning);

	SET(programs->returning, returning + ((again ? 1.0f : 0.0f) - returning) * LEARN);
}

void kvw_programs_sent(
	struct kvw_programs *programs, const struct kvw_turn *turn, uint32_t tokens, int64_t now_ns)
{
	struct entry known = {0};
	struct set *set = NULL;
	struct entry *entry = NULL;
	uint32_t under_way = 0;
	bool again = false;
	bool repeated = false;

	if (turn->key == 0)
		return;
	again = turn->before != 0 && take_entry(programs, turn->before, &known);
	if (again && GET(known.under_way) == 0)
		came_back(programs, &known, now_ns);
	/* The entry of a program that named another key ends without a further turn. */
	if (again && turn->before == turn->key)
		under_way = GET(known.under_way);
	set = set_of(programs, turn->key);
	kvw_spin_lock(&set->lock);
	entry = place_in(set, turn->key);
	repeated = GET(entry->key) == turn->key;
	if (repeated)
		under_way += GET(entry->under_way);
	if (!repeated || again) {
		SET(entry->away_ns, GET(known.away_ns));
		SET(entry->turns, GET(known.turns) + 1);
	}
	SET(entry->heard_ns, now_ns);
	SET(entry->context, tokens);
	SET(entry->under_way, under_way + 1);
	SET(entry->key, turn->key);
	kvw_spin_unlock(&set->lock);
	/* A prompt that is merely repeated, as after a worker's failure, does not show that
	 * programs come back. */
	if (again || !repeated)
		learn_returning(programs, again);
}

void kvw_programs_ended(struct kvw_programs *programs, const struct kvw_turn *turn, int64_t now_ns)
{
	struct set *set = NULL;
	struct entry *entry = NULL;

	if (turn->key == 0)
		return;
	set = set_of(programs, turn->key);
	kvw_spin_lock(&set->lock);
	entry = find_entry(set, turn->key);
	if (entry != NULL) {
		uint32_t under_way = GET(entry->under_way);

		SET(entry->under_way, under_way > 0 ? under_way - 1 : 0);
		SET(entry->heard_ns, now_ns);
	}
	kvw_spin_unlock(&set->lock);
}

static bool runs(const struct kvw_programs *programs, const struct entry *entry, int64_t now_ns)
{
	int64_t away = now_ns - GET(entry->heard_ns);
	float general = GET(programs->away_ns);
	float own = GET(entry->away_ns);

	if (GET(entry->under_way) > 0)
		return away < MOST_RUN_NS;
	return (double)away < PATIENCE * (double)(own > general ? own : general);
}

void kvw_programs_lost(struct kvw_programs *programs, int64_t lost_ns, int64_t work_ns)
{
	atomic_fetch_add_explicit(&programs->lost_ns, lost_ns, memory_order_relaxed);
	atomic_fetch_add_explicit(&programs->work_ns, work_ns, memory_order_relaxed);
}

/* Adapts the limit of running context. */
static void adapt(struct kvw_programs *programs, bool full)
{
	struct kvw_programs_stats now;
	int64_t lost_ns = atomic_exchange_explicit(&programs->lost_ns, 0, memory_order_relaxed);
	int64_t work_ns = atomic_exchange_explicit(&programs->work_ns, 0, memory_order_relaxed);
	double lost = 0;

	programs->lost_sum = programs->lost_sum * FADE + (double)lost_ns;
	programs->work_sum = programs->work_sum * FADE + (double)work_ns;
	/* The sum decays to 0 when no request is sent for hours. */
	if (programs->work_sum > 0)
		lost = programs->lost_sum / programs->work_sum;
	SET(programs->lost, (float)lost);
	kvw_programs_stats(programs, &now);
	/* The limit is not lowered for a second without work. */
	if (full && lost > MUCH_LOST && work_ns > 0) {
		float limit =
			now.limit < (double)now.context ? (float)now.limit : (float)now.context;

		limit *= LOWER;
		SET(programs->limit, limit > LEAST_LIMIT ? limit : LEAST_LIMIT);
	} else if ((!full || lost < LITTLE_LOST) && now.limit < (double)NO_LIMIT) {
		float limit = (float)now.limit * RAISE;

		SET(programs->limit, limit < NO_LIMIT ? limit : NO_LIMIT);
	}
}

static void adapt_if_due(struct kvw_programs *programs, bool full, int64_t now_ns)
{
	if (now_ns - GET(programs->adapted_ns) < ADAPT_NS || !kvw_spin_try(&programs->adapting))
		return;
	if (now_ns - GET(programs->adapted_ns) >= ADAPT_NS) {
		adapt(programs, full);
		SET(programs->adapted_ns, now_ns);
	}
	kvw_spin_unlock(&programs->adapting);
}

static void sum_slices(struct kvw_programs *programs)
{
	uint64_t known = 0;
	uint64_t running = 0;
	uint64_t context = 0;

	for (size_t i = 0; i < SLICES; i++) {
		known += GET(programs->slices[i].known);
		running += GET(programs->slices[i].running);
		context += GET(programs->slices[i].context);
	}
	SET(programs->all.known, known);
	SET(programs->all.running, running);
	SET(programs->all.context, context);
}

void kvw_programs_look(struct kvw_programs *programs, bool full, int64_t now_ns)
{
	uint32_t number =
		atomic_fetch_add_explicit(&programs->next_slice, 1, memory_order_relaxed) % SLICES;
	size_t each = (programs->mask + 1) / SLICES;
	uint64_t known = 0;
	uint64_t running = 0;
	uint64_t context = 0;

	for (size_t s = number * each; s < (number + 1) * each; s++)
		for (size_t i = 0; i < WAYS; i++) {
			const struct entry *entry = &programs->sets[s].entries[i];

			if (GET(entry->key) == 0)
				continue;
			known++;
			if (!runs(programs, entry, now_ns))
				continue;
			running++;
			context += GET(entry->context);
		}
	SET(programs->slices[number].known, known);
	SET(programs->slices[number].running, running);
	SET(programs->slices[number].context, context);
	sum_slices(programs);
	adapt_if_due(programs, full, now_ns);
}

void kvw_programs_stats(const struct kvw_programs *programs, struct kvw_programs_stats *out)
{
	*out = (struct kvw_programs_stats){
		.known = GET(programs->all.known),
		.running = GET(programs->all.running),
		.context = GET(programs->all.context),
		.returning = (double)GET(programs->returning),
		.away_ns = (int64_t)GET(programs->away_ns),
		.limit = (double)GET(programs->limit),
		.lost = (double)GET(programs->lost),
	};
}
