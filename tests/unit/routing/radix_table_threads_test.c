/*
 * radix_table_threads_test.c - look-ups in a crowded table while other threads insert and remove.
 *
 * Entries never move, so what stays in must be found in every look, whatever comes and goes in the
 * same buckets and whether it spilled or not. When all is removed the table is as new: nothing is
 * counted that is not there.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "routing/radix_table.h"
#include "support.h"
#include "tests/unit/steps.h"
#include "tests/unit/suite.h"

#define SHARD_BITS    2
#define SHARD_BUCKETS 32
#define GROUPS        6
#define KEEP          10 /* siblings of each group that stay */
#define CHURN         60 /* of each group and writer that come and go; counts stay below 255 */
#define WRITERS       2
#define READERS       2

#define ROUNDS (KVT_TEST_SEES_RACES ? 150 : 2000)

/* One group of a prompt and the place in it at which a node begins. */
struct key {
	struct kvw_chunk chunks[KVW_TABLE_GROUP];
	uint32_t at;
	uint32_t node;
	uint32_t home;
	bool in;
};

struct shared {
	struct kvw_table table;
	uint32_t place; /* at which all nodes begin */
	struct key keep[GROUPS * KEEP];
	struct key churn[WRITERS][GROUPS * CHURN];
	_Atomic bool stop;
	_Atomic unsigned refused;
};

struct looker {
	struct shared *shared;
	uint64_t looks;
	uint64_t lost;  /* what stays was not found */
	uint64_t wrong; /* another node was found */
};

/* Nodes of a group part at one chunk; at place 0 they have nothing in common but the bucket's lack
 * of room. */
static void make_key(struct key *key, uint32_t group, uint32_t number, uint32_t at)
{
	*key = (struct key){.at = at, .node = number + 1};
	for (uint32_t i = 0; i < KVW_TABLE_GROUP; i++) {
		uint64_t state = (uint64_t)group * 1000 + i;

		if (i >= at)
			state = (uint64_t)number * 100 + i + (UINT64_C(1) << 40);
		key->chunks[i] = (struct kvw_chunk){test_random(&state), i + 1, 0};
	}
}

static bool put_in(struct shared *shared, struct key *key)
{
	key->in = kvw_table_insert(
			  &shared->table, key->chunks, key->at, key->node, 5, &key->home) == KVW_OK;
	return key->in;
}

static void take_out(struct shared *shared, struct key *key)
{
	kvw_table_remove(&shared->table, key->chunks[key->at].hash, key->home, key->node);
	key->in = false;
}

static uint32_t find(const struct kvw_table *table, const struct key *key)
{
	struct kvw_table_asked asked;
	struct kvw_table_found found;

	kvw_table_ask(table, key->chunks, KVW_TABLE_GROUP, 0, &asked);
	kvw_table_look(table, key->chunks, &asked, &found);
	for (uint32_t i = 0; i < found.count; i++)
		if (found.at[i] == key->at)
			return kvw_entry_node(found.entries[i]);
	return 0;
}

struct writer {
	struct shared *shared;
	unsigned number;
};

static void *run_writer(void *arg)
{
	struct writer *writer = arg;
	struct shared *shared = writer->shared;
	struct key *keys = shared->churn[writer->number];
	uint64_t dice = writer->number + 1;

	for (unsigned i = 0; i < ROUNDS * GROUPS * CHURN; i++) {
		struct key *key = &keys[test_random(&dice) % (GROUPS * CHURN)];

		if (key->in)
			take_out(shared, key);
		else if (!put_in(shared, key))
			atomic_fetch_add(&shared->refused, 1);
	}
	return NULL;
}

static void *run_looker(void *arg)
{
	struct looker *looker = arg;
	struct shared *shared = looker->shared;

	while (!atomic_load(&shared->stop) || looker->looks <= 1000) {
		for (unsigned i = 0; i < GROUPS * KEEP; i++) {
			const struct key *key = &shared->keep[i];
			uint32_t node = find(&shared->table, key);

			looker->looks++;
			looker->lost += node == 0;
			looker->wrong += node != 0 && node != key->node;
		}
	}
	return NULL;
}

static struct shared *make_shared(uint32_t place, void **memory)
{
	struct shared *shared = aligned_alloc(64, (sizeof(*shared) + 63) / 64 * 64);
	uint64_t bytes = kvw_table_bytes(SHARD_BITS, SHARD_BUCKETS);
	uint32_t number = 0;

	*memory = aligned_alloc(64, bytes);
	ck_assert(shared != NULL && *memory != NULL);
	memset(*memory, 0, bytes);
	memset(shared, 0, sizeof(*shared));
	kvw_table_init(&shared->table, *memory, SHARD_BITS, SHARD_BUCKETS, 11);
	shared->place = place;
	for (uint32_t i = 0; i < GROUPS * CHURN; i++)
		for (uint32_t w = 0; w < WRITERS; w++)
			make_key(&shared->churn[w][i], i % GROUPS, number++, place);
	for (uint32_t i = 0; i < GROUPS * KEEP; i++) {
		make_key(&shared->keep[i], i % GROUPS, number++, place);
		ck_assert(put_in(shared, &shared->keep[i]));
	}
	return shared;
}

/* All that is left is taken out; the memory must be as it was. */
static bool is_empty_after_all(struct shared *shared)
{
	const unsigned char *memory = (const unsigned char *)shared->table.buckets;

	for (uint32_t i = 0; i < GROUPS * KEEP; i++)
		take_out(shared, &shared->keep[i]);
	for (uint32_t w = 0; w < WRITERS; w++)
		for (uint32_t i = 0; i < GROUPS * CHURN; i++)
			if (shared->churn[w][i].in)
				take_out(shared, &shared->churn[w][i]);
	for (uint64_t i = 0; i < kvw_table_bytes(SHARD_BITS, SHARD_BUCKETS); i++)
		if (memory[i] != 0)
			return false;
	return true;
}

START_TEST(what_stays_is_found_in_every_look)
{
	void *memory = NULL;
	struct shared *shared = make_shared((uint32_t)_i, &memory);
	struct writer writers[WRITERS];
	struct looker lookers[READERS];
	pthread_t threads[WRITERS + READERS];
	uint64_t looks = 0;
	uint64_t lost = 0;
	uint64_t wrong = 0;

	for (unsigned i = 0; i < READERS; i++) {
		lookers[i] = (struct looker){.shared = shared, .looks = i};
		ck_assert_int_eq(
			pthread_create(&threads[WRITERS + i], NULL, run_looker, &lookers[i]), 0);
	}
	for (unsigned i = 0; i < WRITERS; i++) {
		writers[i] = (struct writer){shared, i};
		ck_assert_int_eq(pthread_create(&threads[i], NULL, run_writer, &writers[i]), 0);
	}
	for (unsigned i = 0; i < WRITERS; i++)
		pthread_join(threads[i], NULL);
	atomic_store(&shared->stop, true);
	for (unsigned i = 0; i < READERS; i++) {
		pthread_join(threads[WRITERS + i], NULL);
		looks += lookers[i].looks;
		lost += lookers[i].lost;
		wrong += lookers[i].wrong;
	}
	ck_assert_uint_gt(looks, 1000);
	ck_assert_uint_eq(atomic_load(&shared->refused), 0);
	/* An entry that is replaced between two loads of a look may stand in for what is sought. */
	ck_assert_uint_le(lost + wrong, looks / 100000);
	ck_assert(is_empty_after_all(shared));
	free(memory);
	free(shared);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("threads");

	tcase_add_loop_test(tcase, what_stays_is_found_in_every_look, 0, KVW_TABLE_GROUP);
	tcase_set_timeout(tcase, 240);
	return run_tcase("radix_table_threads", tcase);
}
