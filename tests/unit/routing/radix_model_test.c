/*
 * radix_model_test.c - the prefix tree with up to 1,024 workers against a naive reference.
 *
 * The reference remembers, for each worker and chunk, when the worker last used it. Without limits
 * the tree must equal it for every worker at once; with capacities, purges and a limit in bytes
 * the tree may know less, never more, and what was used last must still be there.
 */
#include <stdlib.h>
#include <string.h>

#include "support.h"
#include "tests/unit/suite.h"

#define MS        INT64_C(1000000)
#define UNLIMITED UINT64_C(1000000000)
#define PROMPTS   1500
#define MAP_BITS  21
#define MOST_USES (1 << 20)
#define RECENT    16

/* A worker's last use of a chunk. */
struct known {
	uint64_t key; /* of worker and chunk; 0: free */
	uint64_t at;  /* the worker's clock after that use */
};

/* Every use there was, each worker's linked from its newest. */
struct use {
	uint64_t key;
	uint64_t at;
	uint32_t before; /* index + 1; 0: none */
};

struct model {
	struct prompt prompts[PROMPTS];
	struct known map[1 << MAP_BITS];
	struct use uses[MOST_USES];
	uint32_t use_count;
	uint32_t newest[KVW_MAX_WORKERS]; /* index + 1 */
	uint64_t clock[KVW_MAX_WORKERS];  /* tokens ever used */
	uint64_t purged[KVW_MAX_WORKERS]; /* clock at the last purge */
};

static struct known *find_known(struct model *m, uint32_t worker, uint64_t hash)
{
	uint64_t state = hash + worker;
	uint64_t key = test_random(&state) | 1;
	size_t i = (size_t)(key >> (64 - MAP_BITS));

	while (m->map[i].key != 0 && m->map[i].key != key)
		i = (i + 1) % ((size_t)1 << MAP_BITS);
	m->map[i].key = key;
	return &m->map[i];
}

/* Prompts that part from one another anywhere, most of them inside runs. */
static struct model *model_make(uint64_t seed, unsigned trunks)
{
	struct model *m = calloc(1, sizeof(*m));

	ck_assert_ptr_nonnull(m);
	for (unsigned i = 0; i < PROMPTS; i++) {
		struct prompt *p = &m->prompts[i];
		unsigned length = 1 + (unsigned)(test_random(&seed) % 50);

		prompt_start(p);
		if (i >= trunks) {
			*p = m->prompts[test_random(&seed) % i];
			p->count = p->end = 1 + (uint32_t)(test_random(&seed) % p->count);
		}
		while (length-- > 0 && p->count < 100)
			prompt_add(p, test_random(&seed) % 5000);
	}
	return m;
}

static void model_use(struct model *m, uint32_t worker, const struct prompt *p)
{
	for (uint32_t i = p->count; i-- > 0;) {
		struct known *known = find_known(m, worker, p->chunks[i].hash);

		EXPECT(m->use_count < MOST_USES);
		known->at = m->clock[worker] += CHUNK_UNITS;
		m->uses[m->use_count] = (struct use){known->key, known->at, m->newest[worker]};
		m->newest[worker] = ++m->use_count;
	}
}

static void model_purge(struct model *m, uint32_t worker)
{
	m->purged[worker] = m->clock[worker];
}

/* Leading chunks that the worker used since it was last purged. */
static uint32_t model_reach(struct model *m, uint32_t worker, const struct prompt *p)
{
	uint32_t i = 0;

	while (i < p->count && find_known(m, worker, p->chunks[i].hash)->at > m->purged[worker])
		i++;
	return i;
}

/* Tokens of different chunks that the worker used since this one, itself included. */
static uint64_t model_since(struct model *m, uint32_t worker, uint64_t hash)
{
	uint64_t at = find_known(m, worker, hash)->at;
	uint64_t since = 0;

	for (uint32_t u = m->newest[worker]; u != 0; u = m->uses[u - 1].before) {
		const struct use *use = &m->uses[u - 1];
		size_t i = (size_t)(use->key >> (64 - MAP_BITS));

		if (use->at < at)
			break;
		while (m->map[i].key != use->key)
			i = (i + 1) % ((size_t)1 << MAP_BITS);
		since += m->map[i].at == use->at ? CHUNK_UNITS : 0;
	}
	return since;
}

static struct kvw_radix *make_tree(uint64_t bytes, unsigned slack_shift)
{
	struct kvw_radix_options options = {.bytes = bytes, .seed = 5, .slack_shift = slack_shift};
	struct kvw_radix *tree = NULL;

	ck_assert_int_eq(kvw_radix_create(&options, &tree), KVW_OK);
	return tree;
}

/* The list of workers that the path reaches has each once, and each holds something. */
static void check_list(const struct kvw_radix_reach *reach)
{
	bool listed[KVW_MAX_WORKERS] = {false};

	EXPECT(reach->count <= KVW_MAX_WORKERS);
	for (uint32_t i = 0; i < reach->count; i++) {
		EXPECT(reach->workers[i] < KVW_MAX_WORKERS);
		EXPECT(!listed[reach->workers[i]]);
		EXPECT(reach->chunks[i] > 0);
		listed[reach->workers[i]] = true;
	}
}

static void reach_all(struct kvw_radix *tree, const struct prompt *p, struct kvw_radix_reach *reach)
{
	static struct kvw_radix_path path;

	reach->limit = KVW_MAX_WORKERS;
	kvw_radix_find(tree, p->chunks, p->count, &path);
	kvw_radix_reach(tree, p->chunks, p->count, &path, reach);
	check_list(reach);
}

/* Few trunks: each node has hundreds of holders, and so an overflow. */
START_TEST(equals_the_model_for_all_workers)
{
	struct kvw_radix *tree = make_tree(32 << 20, _i % 2 == 0 ? 32 : 4);
	struct model *m = model_make((uint64_t)_i + 1, 3);
	uint64_t dice = (uint64_t)_i + 40;
	struct kvw_radix_reach reach;

	for (unsigned step = 0; step < 6000; step++) {
		uint32_t worker = (uint32_t)(test_random(&dice) % KVW_MAX_WORKERS);
		const struct prompt *p = &m->prompts[test_random(&dice) % PROMPTS];

		if (test_random(&dice) % 40 == 0) {
			kvw_radix_purge(tree, worker);
			model_purge(m, worker);
		}
		tree_insert(tree, p, worker, UNLIMITED, step * MS);
		model_use(m, worker, p);
		if (step % 50 != 0)
			continue;
		p = &m->prompts[test_random(&dice) % PROMPTS];
		reach_all(tree, p, &reach);
		for (uint32_t w = 0; w < KVW_MAX_WORKERS; w++)
			EXPECT(reach_of(&reach, w) == model_reach(m, w, p));
	}
	tree_check(tree);
	free(m);
	kvw_radix_destroy(tree);
}
END_TEST

/* What was inserted lately, and for which worker. */
struct recent {
	const struct prompt *prompt[RECENT];
	uint32_t worker[RECENT];
};

/* How many of the last inserts, other than those purged since, are not there in full. */
static unsigned missing_of(
	struct kvw_radix *tree, struct model *m, const struct recent *recent, uint64_t capacity)
{
	unsigned missing = 0;

	for (unsigned i = 0; i < RECENT; i++) {
		const struct prompt *p = recent->prompt[i];
		uint32_t w = recent->worker[i];

		if (p == NULL || model_reach(m, w, p) < p->count ||
			model_since(m, w, p->chunks[p->count - 1].hash) > capacity * 3 / 4)
			continue;
		missing += tree_reach(tree, p, w) != p->count;
	}
	return missing;
}

/* Capacities, purges and the limit in bytes at once, with many or few workers. */
START_TEST(limits_only_forget)
{
	static const uint32_t fleets[] = {4, 64, KVW_MAX_WORKERS};
	uint32_t workers = fleets[_i % 3];
	struct kvw_radix *tree = make_tree(1 << 20, _i < 3 ? 32 : 4);
	struct model *m = model_make((uint64_t)_i + 1, PROMPTS / 3);
	uint64_t capacity = (workers == 4 ? 2000 : 200) * CHUNK_UNITS;
	uint64_t dice = (uint64_t)_i + 40;
	struct recent recent = {0};
	struct kvw_strategy_stats stats = {0};
	struct kvw_radix_reach reach;
	unsigned missing = 0, looks = 0, late = 0;

	for (unsigned step = 0; step < 16000; step++) {
		uint32_t worker = (uint32_t)(test_random(&dice) % workers);
		const struct prompt *p = &m->prompts[test_random(&dice) % PROMPTS];

		if (test_random(&dice) % 200 == 0) {
			kvw_radix_purge(tree, worker);
			model_purge(m, worker);
		}
		tree_insert(tree, p, worker, capacity, step * 20 * MS);
		model_use(m, worker, p);
		recent.prompt[step % RECENT] = p;
		recent.worker[step % RECENT] = worker;
		EXPECT(kvw_radix_view_tokens(tree, worker) <= capacity);
		if (step % 20 != 0)
			continue;
		missing += missing_of(tree, m, &recent, capacity);
		p = &m->prompts[test_random(&dice) % PROMPTS];
		reach_all(tree, p, &reach);
		for (uint32_t i = 0; i < reach.count; i++) {
			uint32_t w = reach.workers[i];
			uint32_t got = reach.chunks[i];

			EXPECT(got <= model_reach(m, w, p));
			looks++;
			late += model_since(m, w, p->chunks[got - 1].hash) > capacity;
		}
		kvw_radix_stats(tree, &stats);
		EXPECT(stats.bytes <= 1 << 20);
		if (step % 2000 == 0)
			tree_check(tree);
	}
	tree_check(tree);
	ck_assert_uint_gt(stats.evicted_chunks, 1000);
	/* Of a run only two times are known: a part of one may go late. */
	ck_assert_uint_le(late, looks / 100);
	/* Of 12,800 looks; sampling may now and then hit what was used lately. */
	ck_assert_uint_le(missing, 12);
	free(m);
	kvw_radix_destroy(tree);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("model");

	tcase_add_loop_test(tcase, equals_the_model_for_all_workers, 0, 4);
	tcase_add_loop_test(tcase, limits_only_forget, 0, 6);
	tcase_set_timeout(tcase, 240);
	return run_tcase("radix_model", tcase);
}
