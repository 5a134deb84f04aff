/*
 * radix_table_test.c - the table against a plain list, when crowded, when one group has far more
 * nodes than a bucket, and when emptied.
 */
#include <stdlib.h>
#include <string.h>

#include "routing/radix_table.h"
#include "support.h"
#include "tests/unit/suite.h"

#define SHARD_BITS    2
#define SHARD_BUCKETS 16
#define KEYS          400 /* of 448 entries in 64 buckets, without the spare ones */
#define SIBLINGS      40  /* keys that share a group */

static void make_table(struct kvw_table *table, void **memory, uint32_t buckets)
{
	uint64_t bytes = kvw_table_bytes(SHARD_BITS, buckets);

	*memory = aligned_alloc(64, bytes);
	ck_assert_ptr_nonnull(*memory);
	memset(*memory, 0, bytes);
	kvw_table_init(table, *memory, SHARD_BITS, buckets, 7);
}

static bool is_empty(const struct kvw_table *table)
{
	uint64_t bytes = kvw_table_bytes(table->shard_bits, table->shard_buckets);
	const unsigned char *memory = (const unsigned char *)table->buckets;

	for (uint64_t i = 0; i < bytes; i++)
		if (memory[i] != 0)
			return false;
	return true;
}

/* One group of a prompt and the place in it at which a node begins. */
struct key {
	struct kvw_chunk chunks[KVW_TABLE_GROUP];
	uint32_t at;
	uint32_t node;
};

/* Siblings agree up to where their nodes begin. */
static void make_key(struct key *key, uint32_t number, uint32_t siblings, uint32_t at)
{
	uint64_t group = number / siblings + 1;

	key->at = at;
	key->node = number + 1;
	for (uint32_t i = 0; i < KVW_TABLE_GROUP; i++) {
		uint64_t state = group * 1000 + i;

		if (i >= at)
			state = (uint64_t)number * 100 + i + (UINT64_C(1) << 40);
		key->chunks[i] = (struct kvw_chunk){test_random(&state), i + 1, 0};
	}
}

static enum kvw_err insert(struct kvw_table *table, const struct key *key, uint32_t *home)
{
	return kvw_table_insert(table, key->chunks, key->at, key->node, 1 + key->at % 27, home);
}

static void remove_key(struct kvw_table *table, const struct key *key, uint32_t home)
{
	kvw_table_remove(table, key->chunks[key->at].hash, home, key->node);
}

/* The node that a prompt of this group would find; 0: none. */
static uint32_t find(const struct kvw_table *table, const struct key *key)
{
	struct kvw_table_asked asked;
	struct kvw_table_found found;

	kvw_table_ask(table, key->chunks, KVW_TABLE_GROUP, 0, &asked);
	kvw_table_look(table, key->chunks, &asked, &found);
	for (uint32_t i = 0; i < found.count; i++) {
		EXPECT(i == 0 || found.at[i] > found.at[i - 1]);
		if (found.at[i] == key->at) {
			EXPECT(kvw_entry_length(found.entries[i]) == 1 + key->at % 27);
			EXPECT(kvw_entry_place(found.entries[i]) == key->at);
			return kvw_entry_node(found.entries[i]);
		}
	}
	return 0;
}

START_TEST(entries_carry_all_fields)
{
	struct kvw_table table;
	void *memory = NULL;
	uint32_t home = 0;
	struct key key;

	make_table(&table, &memory, SHARD_BUCKETS);
	make_key(&key, 5, SIBLINGS, 5);
	key.node = 0xFFFFFFFE;
	ck_assert_uint_eq(find(&table, &key), 0);
	ck_assert_int_eq(insert(&table, &key, &home), KVW_OK);
	ck_assert_uint_eq(find(&table, &key), 0xFFFFFFFE);
	key.node = 9;
	ck_assert_int_eq(insert(&table, &key, &home), KVW_EINVAL);
	remove_key(&table, &key, home); /* another node's */
	ck_assert_uint_eq(find(&table, &key), 0xFFFFFFFE);
	key.node = 0xFFFFFFFE;
	remove_key(&table, &key, home);
	ck_assert_uint_eq(find(&table, &key), 0);
	ck_assert(is_empty(&table));
	free(memory);
}
END_TEST

/* Crowded far beyond what it is sized for: what was inserted is found, what was removed is not,
 * and emptied it is as new. */
START_TEST(equals_a_list_when_crowded)
{
	struct kvw_table table;
	void *memory = NULL;
	uint32_t homes[KEYS];
	bool in[KEYS] = {false};
	uint64_t dice = (uint64_t)_i + 1;
	unsigned refused = 0;
	struct key key;

	make_table(&table, &memory, SHARD_BUCKETS);
	for (unsigned step = 0; step < 40000; step++) {
		unsigned k = (unsigned)(test_random(&dice) % KEYS);

		make_key(&key, k, SIBLINGS, k % KVW_TABLE_GROUP);
		EXPECT(find(&table, &key) == (in[k] ? k + 1 : 0));
		if (in[k] && test_random(&dice) % 2 == 0) {
			remove_key(&table, &key, homes[k]);
			in[k] = false;
		} else if (!in[k]) {
			enum kvw_err err = insert(&table, &key, &homes[k]);

			EXPECT(err == KVW_OK || err == KVW_ELIMIT);
			in[k] = err == KVW_OK;
			refused += err != KVW_OK;
		}
	}
	ck_assert_uint_lt(refused, 400);
	for (unsigned k = 0; k < KEYS; k++)
		if (in[k]) {
			make_key(&key, k, SIBLINGS, k % KVW_TABLE_GROUP);
			remove_key(&table, &key, homes[k]);
		}
	ck_assert(is_empty(&table));
	free(memory);
}
END_TEST

/* A thousand prompts part at one chunk, more than a bucket can count. */
START_TEST(a_group_may_have_any_number)
{
	enum { MANY = 1000 };
	struct kvw_table table;
	void *memory = NULL;
	uint32_t homes[MANY];
	struct key key;

	make_table(&table, &memory, 128);
	for (unsigned round = 0; round < 2; round++) {
		for (unsigned k = 0; k < MANY; k++) {
			make_key(&key, k, MANY, (uint32_t)_i);
			EXPECT(insert(&table, &key, &homes[k]) == KVW_OK);
		}
		for (unsigned k = 0; k < MANY; k++) {
			make_key(&key, k, MANY, (uint32_t)_i);
			EXPECT(find(&table, &key) == k + 1);
			remove_key(&table, &key, homes[k]);
			EXPECT(find(&table, &key) == 0);
		}
	}
	free(memory);
}
END_TEST

/* A window has the nodes of all its groups, in order, and none beyond the prompt's end. */
START_TEST(a_window_is_in_order)
{
	struct kvw_table table;
	void *memory = NULL;
	struct kvw_chunk chunks[200];
	uint32_t home = 0;
	uint64_t state = 77;

	make_table(&table, &memory, 128);
	for (uint32_t i = 0; i < 200; i++)
		chunks[i] = (struct kvw_chunk){test_random(&state), i + 1, 0};
	for (uint32_t i = 0; i < 200; i += 3)
		ck_assert_int_eq(kvw_table_insert(&table, chunks, (i * 7 + 3) % 200, i + 1, 5, &home),
			KVW_OK);
	for (uint32_t count = 1; count <= 200; count++)
		for (uint32_t first = 0; first < count; first += KVW_TABLE_WINDOW) {
			struct kvw_table_asked asked;
			struct kvw_table_found found;
			uint32_t seen = 0;

			kvw_table_ask(&table, chunks, count, first, &asked);
			kvw_table_look(&table, chunks, &asked, &found);
			for (uint32_t i = 0; i < 200; i += 3) {
				uint32_t at = (i * 7 + 3) % 200;

				seen += at >= first && at < count && at < first + KVW_TABLE_WINDOW;
			}
			EXPECT(found.count == seen);
			for (uint32_t i = 0; i < found.count; i++) {
				EXPECT(found.at[i] >= first && found.at[i] < count);
				EXPECT(i == 0 || found.at[i] > found.at[i - 1]);
			}
		}
	free(memory);
}
END_TEST

/* However many shards there are, and wherever a window ends. */
START_TEST(groups_belong_where_they_are_entered)
{
	unsigned shard_bits = (unsigned)_i;
	void *memory = aligned_alloc(64, kvw_table_bytes(shard_bits, SHARD_BUCKETS));
	struct kvw_chunk chunks[2 * KVW_TABLE_WINDOW];
	struct kvw_table_asked asked;
	struct kvw_table table;
	uint64_t state = shard_bits + 1;

	ck_assert_ptr_nonnull(memory);
	memset(memory, 0, kvw_table_bytes(shard_bits, SHARD_BUCKETS));
	kvw_table_init(&table, memory, shard_bits, SHARD_BUCKETS, 77);
	for (uint32_t i = 0; i < 2 * KVW_TABLE_WINDOW; i++)
		chunks[i] = (struct kvw_chunk){test_random(&state), i + 1, 0};
	for (uint32_t first = 0; first <= KVW_TABLE_WINDOW; first += KVW_TABLE_GROUP)
		for (uint32_t count = first + 1; count <= 2 * KVW_TABLE_WINDOW; count++) {
			kvw_table_ask(&table, chunks, count, first, &asked);
			EXPECT(asked.count == (count - first < KVW_TABLE_WINDOW
							      ? count - first
							      : KVW_TABLE_WINDOW));
			for (uint32_t i = 0; i < asked.count; i++)
				EXPECT(asked.homes[i / KVW_TABLE_GROUP] ==
					kvw_table_group_home(&table, chunks, first + i));
		}
	free(memory);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("table");

	tcase_add_test(tcase, entries_carry_all_fields);
	tcase_add_loop_test(tcase, equals_a_list_when_crowded, 0, 4);
	tcase_add_loop_test(tcase, a_group_may_have_any_number, 0, KVW_TABLE_GROUP);
	tcase_add_test(tcase, a_window_is_in_order);
	tcase_add_loop_test(
		tcase, groups_belong_where_they_are_entered, 0, KVW_TABLE_SHARD_BITS + 1);
	return run_tcase("radix_table", tcase);
}
