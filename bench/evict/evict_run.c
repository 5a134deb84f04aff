/* evict_run.c - a trace through one tier: how much of each prompt is there when it comes. */
#include <stdlib.h>
#include <string.h>

#include "index/cache_index.h"
#include "bench/evict/evict_run.h"
#include "bench/load/mem.h"
#include "bench/load/text.h"

#define CHUNK_BYTES  ((uint64_t)4 << 20)
#define GHOST_BYTES  160
#define CHUNK_TOKENS 512
#define EQUAL_TOKENS 40000
#define CHUNK_NS     50000000.0

struct run {
	struct kvt_index *index;
	struct kvt_key *keys; /* room for the keys of one prompt */
	uint32_t *entries;    /* entries of the index that this prompt holds */
	struct kvb_evict_result result;
};

uint64_t kvb_evict_cost_ns(uint64_t depth)
{
	return (uint64_t)(CHUNK_NS * (1 + (double)(depth * CHUNK_TOKENS) / EQUAL_TOKENS));
}

static int compare_ids(const void *a, const void *b)
{
	const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

/* Returns all ids of a trace, sorted, each once; the caller frees them. */
static uint64_t *sorted_ids(const struct kvb_trace *trace, uint64_t *count)
{
	uint64_t total = 0, kept = 0, *ids;

	for (size_t r = 0; r < trace->count; r++)
		total += trace->rows[r].id_count;
	ids = kvb_alloc(total + 1, sizeof(*ids));
	total = 0;
	for (size_t r = 0; r < trace->count; r++) {
		memcpy(ids + total, trace->rows[r].ids, trace->rows[r].id_count * sizeof(*ids));
		total += trace->rows[r].id_count;
	}
	qsort(ids, total, sizeof(*ids), compare_ids);
	for (uint64_t i = 0; i < total; i++)
		if (kept == 0 || ids[kept - 1] != ids[i])
			ids[kept++] = ids[i];
	*count = kept;
	return ids;
}

static uint64_t longest_of(const struct kvb_trace *trace)
{
	uint64_t longest = 0;

	for (size_t r = 0; r < trace->count; r++)
		if (trace->rows[r].id_count > longest)
			longest = trace->rows[r].id_count;
	return longest;
}

void kvb_evict_count(const struct kvb_trace *trace, uint64_t *distinct, uint64_t *longest)
{
	free(sorted_ids(trace, distinct));
	*longest = longest_of(trace);
}

/* --- the index under a policy --- */

static void gone(
	void *self, uint32_t entry, const struct kvt_key *key, const struct kvt_entry_info *info)
{
	(void)self, (void)entry, (void)key, (void)info;
}

static int64_t no_time(void *self)
{
	(void)self;
	return 0;
}

static void no_log(void *self, uint32_t level, const char *line)
{
	(void)self, (void)level, (void)line;
}

static struct kvt_key key_of(uint64_t id)
{
	struct kvt_key key;

	for (size_t i = 0; i < sizeof(key) / sizeof(uint64_t); i++) {
		const uint64_t word = kvb_random(&id);

		memcpy(key.bytes + i * sizeof(word), &word, sizeof(word));
	}
	return key;
}

/* Inserts the chunks from `from` on; returns how many of the prompt are held then. */
static size_t insert_rest(struct run *run, size_t from, size_t count)
{
	struct kvt_entry_info info = {
		.bytes = CHUNK_BYTES,
		.charge = CHUNK_BYTES,
		.expires_wall_ns = INT64_MAX,
		.tokens = CHUNK_TOKENS,
	};

	for (size_t i = from; i < count; i++) {
		info.cost_ns = kvb_evict_cost_ns(i);
		if (kvt_index_insert(run->index, &run->keys[i], i > 0 ? &run->keys[i - 1] : NULL,
			    &info, &run->entries[i]) != KVT_OK) {
			run->result.refused += count - i;
			return i;
		}
	}
	return count;
}

static void one_request(struct run *run, const struct kvb_trace_row *row)
{
	size_t hit, held;

	for (size_t i = 0; i < row->id_count; i++)
		run->keys[i] = key_of(row->ids[i]);
	hit = kvt_index_hold_chain(run->index, run->keys, row->id_count, true, run->entries);
	for (size_t i = 0; i < row->id_count; i++) {
		const double cost = (double)kvb_evict_cost_ns(i);

		run->result.cost_asked += cost;
		run->result.cost_hit += i < hit ? cost : 0;
	}
	run->result.asked += row->id_count;
	run->result.hit += hit;
	held = insert_rest(run, hit, row->id_count);
	for (size_t i = hit; i < held; i++)
		if (kvt_index_publish(run->index, run->entries[i]) != KVT_OK)
			abort(); /* nothing erases here */
	for (size_t i = 0; i < held; i++)
		kvt_index_release(run->index, run->entries[i]);
}

enum kvt_status kvb_evict_run(const struct kvb_trace *trace, const char *policy, uint32_t chunks,
	struct kvb_evict_result *out)
{
	const struct kvt_surroundings surroundings = {
		.clock = {.now_ns = no_time, .wall_ns = no_time}, .log = no_log};
	const struct kvt_index_options options = {
		.max_entries = chunks,
		.capacity = chunks * CHUNK_BYTES,
		.policy = policy,
		.max_ghost_bytes = (uint64_t)chunks * GHOST_BYTES,
		.gone = gone,
	};
	struct run run = {0};
	struct kvt_index_stats stats;
	const uint64_t longest = longest_of(trace);
	enum kvt_status status = kvt_index_create(&options, &surroundings, &run.index);

	if (status != KVT_OK)
		return status;
	run.keys = kvb_alloc(longest, sizeof(*run.keys));
	run.entries = kvb_alloc(longest, sizeof(*run.entries));
	for (size_t r = 0; r < trace->count; r++)
		one_request(&run, &trace->rows[r]);
	kvt_index_stats(run.index, &stats);
	run.result.evictions = stats.evictions;
	run.result.metadata_bytes = stats.metadata_bytes;
	run.result.ghost_bytes = stats.ghost_bytes;
	kvt_index_destroy(run.index);
	free(run.keys);
	free(run.entries);
	*out = run.result;
	return KVT_OK;
}

/* --- the optimum --- */

#define NEVER   UINT32_MAX
#define NOWHERE UINT32_MAX

/* The chunks that are kept, by number, in a heap whose first one is evicted next. */
struct optimum {
	uint32_t *next;  /* by number of the chunk: the request that uses it next */
	uint32_t *depth; /* by number: its depth in its chain */
	uint32_t *place; /* by number: its place in the heap, or NOWHERE */
	uint32_t *heap;  /* numbers */
	uint32_t count;
};

/* Returns whether `a` is evicted before `b`: its next use is later or, in the same request,
 * deeper. */
static bool before(const struct optimum *o, uint32_t a, uint32_t b)
{
	return o->next[a] != o->next[b] ? o->next[a] > o->next[b] : o->depth[a] > o->depth[b];
}

static void set_place(struct optimum *o, uint32_t place, uint32_t number)
{
	o->heap[place] = number;
	o->place[number] = place;
}

/* Moves `number` up or down from this place until the heap is in order again. */
static void settle(struct optimum *o, uint32_t place, uint32_t number)
{
	while (place > 0 && before(o, number, o->heap[(place - 1) / 2])) {
		set_place(o, place, o->heap[(place - 1) / 2]);
		place = (place - 1) / 2;
	}
	for (uint32_t below; (below = 2 * place + 1) < o->count; place = below) {
		if (below + 1 < o->count && before(o, o->heap[below + 1], o->heap[below]))
			below++;
		if (!before(o, o->heap[below], number))
			break;
		set_place(o, place, o->heap[below]);
	}
	set_place(o, place, number);
}

static void give_up_first(struct optimum *o)
{
	o->place[o->heap[0]] = NOWHERE;
	if (--o->count > 0)
		settle(o, 0, o->heap[o->count]);
}

/* Replaces ids by numbers, and finds for each chunk of each request the next request that uses
 * it. */
static void look_ahead(const struct kvb_trace *trace, const uint64_t *ids, uint64_t distinct,
	uint32_t **numbers, uint32_t **nexts)
{
	uint32_t *last = kvb_alloc(distinct, sizeof(*last));

	for (uint64_t i = 0; i < distinct; i++)
		last[i] = NEVER;
	for (size_t r = trace->count; r-- > 0;) {
		const struct kvb_trace_row *row = &trace->rows[r];

		numbers[r] = kvb_alloc(row->id_count, sizeof(**numbers));
		nexts[r] = kvb_alloc(row->id_count, sizeof(**nexts));
		for (size_t i = 0; i < row->id_count; i++) {
			const uint64_t *at =
				bsearch(&row->ids[i], ids, distinct, sizeof(*ids), compare_ids);
			const uint32_t number = (uint32_t)(at - ids);

			numbers[r][i] = number;
			nexts[r][i] = last[number];
			last[number] = (uint32_t)r;
		}
	}
	free(last);
}

/* Serves a request: counts its cached prefix, notes the next use of its chunks, keeps the
 * soonest. */
static uint64_t serve(struct optimum *o, const uint32_t *numbers, const uint32_t *nexts,
	size_t count, uint32_t chunks)
{
	uint64_t hit = 0;

	while (hit < count && o->place[numbers[hit]] != NOWHERE)
		hit++;
	for (uint32_t i = 0; i < count; i++) {
		const uint32_t number = numbers[i];

		o->next[number] = nexts[i];
		o->depth[number] = i;
		if (o->place[number] == NOWHERE) {
			if (nexts[i] == NEVER)
				continue;
			o->place[number] = o->count++;
		}
		settle(o, o->place[number], number);
	}
	while (o->count > chunks)
		give_up_first(o);
	return hit;
}

void kvb_evict_optimum(const struct kvb_trace *trace, uint32_t chunks, struct kvb_evict_result *out)
{
	uint64_t distinct;
	uint64_t *ids = sorted_ids(trace, &distinct);
	uint32_t **numbers = kvb_alloc(trace->count, sizeof(*numbers));
	uint32_t **nexts = kvb_alloc(trace->count, sizeof(*nexts));
	struct optimum o = {
		.next = kvb_alloc(distinct, sizeof(uint32_t)),
		.depth = kvb_alloc(distinct, sizeof(uint32_t)),
		.place = kvb_alloc(distinct, sizeof(uint32_t)),
		.heap = kvb_alloc(distinct, sizeof(uint32_t)),
	};

	*out = (struct kvb_evict_result){0};
	look_ahead(trace, ids, distinct, numbers, nexts);
	for (uint64_t i = 0; i < distinct; i++)
		o.place[i] = NOWHERE;
	for (size_t r = 0; r < trace->count; r++) {
		const size_t count = trace->rows[r].id_count;
		const uint64_t hit = serve(&o, numbers[r], nexts[r], count, chunks);

		out->asked += count;
		out->hit += hit;
		for (size_t i = 0; i < count; i++) {
			const double cost = (double)kvb_evict_cost_ns(i);

			out->cost_asked += cost;
			out->cost_hit += i < hit ? cost : 0;
		}
		free(numbers[r]);
		free(nexts[r]);
	}
	free(ids);
	free(numbers);
	free(nexts);
	free(o.next);
	free(o.depth);
	free(o.place);
	free(o.heap);
}
