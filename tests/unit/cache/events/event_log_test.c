/*
 * event_log_test.c - the queue behind kvt_events: what goes in comes out, in order, and what was
 * lost can be seen.
 */
#include <check.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "events_support.h"
#include "tests/unit/suite.h"

static struct world world;
static struct chunk chunk;

static struct kvt_event_log *make(uint32_t queue)
{
	struct kvt_config config = {.size = sizeof(config), .events_queue = queue};
	struct kvt_event_log *log = NULL;

	world_init(&world);
	ck_assert_int_eq(kvt_event_log_create(&config, &world.s, &log), KVT_OK);
	return log;
}

static uint64_t lost(struct kvt_event_log *log)
{
	struct kvt_event_log_stats stats;

	kvt_event_log_stats(log, &stats);
	return stats.lost;
}

static void check_stored(const struct kvt_event *event, const struct chunk *of)
{
	const struct kvt_blocks *b = &of->blocks;

	ck_assert_uint_eq(event->kind, KVT_EVENT_STORED);
	ck_assert_uint_eq(event->count, b->count);
	ck_assert_uint_eq(event->hash_bytes, b->hash_bytes);
	ck_assert_mem_eq(event->hashes, b->hashes, (size_t)b->count * b->hash_bytes);
	ck_assert_uint_eq(event->block_size, b->block_size);
	ck_assert_int_eq(event->parent != NULL, b->parent != NULL);
	if (b->parent != NULL)
		ck_assert_mem_eq(event->parent, b->parent, b->hash_bytes);
	ck_assert_int_eq(event->tokens != NULL, b->tokens != NULL);
	if (b->tokens != NULL)
		ck_assert_mem_eq(event->tokens, b->tokens,
			(size_t)b->count * b->block_size * sizeof(uint32_t));
	ck_assert_pstr_eq(event->lora_name, b->lora_name);
}

START_TEST(comes_out_as_it_went_in)
{
	static const uint32_t widths[] = {8, 16, 32};
	struct kvt_event_log *log = make(64);
	struct kvt_event out[64];

	for (uint32_t w = 0; w < 3; w++) {
		for (uint32_t form = 0; form < 8; form++) {
			chunk_make(&chunk, w * 8 + form, 3 + form, widths[w], 5);
			if (form & 1)
				chunk.blocks.parent = NULL;
			if (form & 2)
				chunk.blocks.tokens = NULL;
			if (form & 4)
				chunk.blocks.lora_name = "an adapter";
			kvt_event_log_stored(log, form % KVT_TIER_COUNT, &chunk.blocks);
			ck_assert_uint_eq(kvt_event_log_take(log, out, 64), 1);
			check_stored(&out[0], &chunk);
			ck_assert_uint_eq(out[0].tier, form % KVT_TIER_COUNT);
			ck_assert_uint_eq(out[0].sequence, 1 + w * 8 + form);
		}
	}
	kvt_event_log_removed(log, KVT_TIER_NVME, &chunk.blocks);
	kvt_event_log_cleared(log, KVT_TIER_L1);
	ck_assert_uint_eq(kvt_event_log_take(log, out, 64), 2);
	ck_assert_uint_eq(out[0].kind, KVT_EVENT_REMOVED);
	ck_assert_uint_eq(out[0].tier, KVT_TIER_NVME);
	ck_assert_mem_eq(out[0].hashes, chunk.hashes, (size_t)chunk.blocks.count * 32);
	ck_assert_ptr_null(out[0].tokens);
	ck_assert_ptr_null(out[0].parent);
	ck_assert_ptr_null(out[0].lora_name);
	ck_assert_uint_eq(out[1].kind, KVT_EVENT_CLEARED);
	ck_assert_uint_eq(out[1].tier, KVT_TIER_L1);
	ck_assert_uint_eq(out[1].count, 0);
	ck_assert_uint_eq(kvt_event_log_take(log, out, 64), 0);
	ck_assert_uint_eq(lost(log), 0);
	kvt_event_log_destroy(log);
}
END_TEST

/* What was taken stays until the next take, whatever is added meanwhile. */
START_TEST(taken_events_stay)
{
	static struct chunk first;
	struct kvt_event_log *log = make(4);
	struct kvt_event out[4];

	chunk_make(&first, 1, 16, 32, 16);
	kvt_event_log_stored(log, KVT_TIER_L1, &first.blocks);
	ck_assert_uint_eq(kvt_event_log_take(log, out, 4), 1);
	for (uint64_t i = 0; i < 20000; i++) {
		chunk_make(&chunk, i, 16, 32, 16);
		kvt_event_log_stored(log, KVT_TIER_L1, &chunk.blocks);
	}
	check_stored(&out[0], &first);
	kvt_event_log_destroy(log);
}
END_TEST

START_TEST(oldest_lost_first)
{
	struct kvt_event_log *log = make(8);
	struct kvt_event out[16];

	for (uint64_t i = 0; i < 30; i++) {
		chunk_make(&chunk, i, 2, 8, 4);
		kvt_event_log_stored(log, KVT_TIER_L1, &chunk.blocks);
	}
	ck_assert_uint_eq(lost(log), 0); /* no reader, so nothing is lost */
	ck_assert_uint_eq(kvt_event_log_take(log, out, 16), 8);
	ck_assert_uint_eq(lost(log), 22);
	ck_assert_ptr_nonnull(strstr(world.lines, "events: 22 were lost"));
	for (uint64_t i = 0; i < 8; i++) {
		chunk_make(&chunk, 22 + i, 2, 8, 4);
		ck_assert_uint_eq(out[i].sequence, 23 + i);
		check_stored(&out[i], &chunk);
	}
	for (uint64_t i = 0; i < 9; i++)
		kvt_event_log_removed(log, KVT_TIER_L1, &chunk.blocks);
	ck_assert_uint_eq(lost(log), 23); /* seen before the next take already */
	ck_assert_uint_eq(kvt_event_log_take(log, out, 3), 3);
	ck_assert_uint_eq(out[0].sequence, 32);
	ck_assert_uint_eq(kvt_event_log_take(log, out, 16), 5);
	ck_assert_uint_eq(out[4].sequence, 39);
	kvt_event_log_destroy(log);
}
END_TEST

/* What is announced in the background waits while half of the queue has not been read. */
START_TEST(room_for_what_can_wait)
{
	struct kvt_event_log *log = make(8);
	struct kvt_event out[16];

	chunk_make(&chunk, 1, 2, 8, 4);
	for (uint64_t i = 0; i < 4; i++) {
		ck_assert(kvt_event_log_has_room(log));
		kvt_event_log_stored(log, KVT_TIER_L1, &chunk.blocks);
	}
	kvt_event_log_stored(log, KVT_TIER_L1, &chunk.blocks);
	ck_assert(!kvt_event_log_has_room(log));
	ck_assert_uint_eq(kvt_event_log_take(log, out, 2), 2);
	ck_assert(kvt_event_log_has_room(log));
	for (uint64_t i = 0; i < 5; i++)
		kvt_event_log_stored(log, KVT_TIER_L1, &chunk.blocks);
	ck_assert(!kvt_event_log_has_room(log)); /* 8 kept, none of them read */
	ck_assert_uint_eq(kvt_event_log_take(log, out, 16), 8);
	ck_assert(kvt_event_log_has_room(log));
	ck_assert_uint_eq(lost(log), 0);
	kvt_event_log_destroy(log);
}
END_TEST

/* Large events push each other out before the number of events does. */
START_TEST(bytes_are_bounded)
{
	struct kvt_event_log *log = make(1000);
	struct kvt_event_log_stats stats;
	struct kvt_event out[8];
	uint64_t seen = 0, last = 0;
	size_t n;

	chunk_make(&chunk, 1, BLOCKS_MAX, 32, 16);
	for (int i = 0; i < 900; i++)
		kvt_event_log_stored(log, KVT_TIER_L1, &chunk.blocks);
	while ((n = kvt_event_log_take(log, out, 8)) > 0) {
		check_stored(&out[n - 1], &chunk);
		seen += n;
		last = out[n - 1].sequence;
	}
	kvt_event_log_stats(log, &stats);
	ck_assert_uint_eq(last, 900);
	ck_assert_uint_eq(seen + stats.lost, 900);
	ck_assert_uint_ge(seen, 8);
	ck_assert_uint_le(seen, 20);
	ck_assert_uint_le(stats.memory_bytes, 8u << 20);
	kvt_event_log_destroy(log);
}
END_TEST

/* What cannot be an event leaves a gap; what is none leaves nothing. */
START_TEST(impossible_events)
{
	struct kvt_event_log *log = make(16);
	struct kvt_event out[16];

	chunk_make(&chunk, 1, 4, 8, 4);
	kvt_event_log_stored(log, KVT_TIER_L1, NULL);
	chunk.blocks.count = 0;
	kvt_event_log_removed(log, KVT_TIER_L1, &chunk.blocks);
	ck_assert_uint_eq(kvt_event_log_take(log, out, 16), 0);

	chunk_make(&chunk, 1, 4, 8, 4);
	chunk.blocks.hash_bytes = 7;
	kvt_event_log_stored(log, KVT_TIER_L1, &chunk.blocks);
	chunk_make(&chunk, 1, 4, 8, 4);
	chunk.blocks.block_size = UINT32_MAX; /* with tokens: beyond the limit of a record */
	kvt_event_log_stored(log, KVT_TIER_L1, &chunk.blocks);
	chunk.blocks.count = UINT32_MAX;
	kvt_event_log_stored(log, KVT_TIER_L1, &chunk.blocks);
	kvt_event_log_cleared(log, KVT_TIER_NVME);
	ck_assert_uint_eq(kvt_event_log_take(log, out, 16), 1);
	ck_assert_uint_eq(out[0].sequence, 4);
	ck_assert_uint_eq(lost(log), 3);
	kvt_event_log_destroy(log);
}
END_TEST

/* Without a queue events are counted and nothing else. */
START_TEST(no_queue)
{
	struct kvt_event_log *log = make(0);
	struct kvt_event_log_stats stats;
	struct kvt_event out[4];
	int64_t next = INT64_MAX;

	for (int i = 0; i < 10; i++)
		kvt_event_log_cleared(log, KVT_TIER_L1);
	ck_assert_uint_eq(kvt_event_log_take(log, out, 4), 0);
	ck_assert_uint_eq(kvt_event_log_step(log, &next), 0);
	ck_assert_int_eq(next, INT64_MAX);
	kvt_event_log_stats(log, &stats);
	ck_assert_uint_eq(stats.events, 10);
	ck_assert_uint_eq(stats.lost, 10);
	ck_assert_str_eq(kvt_event_log_address(log), "");
	kvt_event_log_destroy(log);
	kvt_event_log_destroy(NULL);
}
END_TEST

#define ADDERS      4
#define ADDED_EACH  20000u
#define TAG(thread) ((uint8_t)(0x40 + (thread)))

struct adder {
	struct kvt_event_log *log;
	unsigned number;
};

static void *add_many(void *arg)
{
	const struct adder *adder = arg;
	uint8_t hash[16] = {TAG(adder->number)};
	struct kvt_blocks blocks = {.hashes = hash, .hash_bytes = 16, .count = 1, .block_size = 16};

	for (uint32_t i = 0; i < ADDED_EACH; i++) {
		memcpy(hash + 4, &i, sizeof(i));
		kvt_event_log_stored(adder->log, KVT_TIER_L1, &blocks);
	}
	return NULL;
}

/* Each adder's events come in its order, numbers only grow, and gaps are exactly what was lost. */
START_TEST(many_threads)
{
	struct kvt_event_log *log = make(1024);
	struct adder adders[ADDERS];
	pthread_t threads[ADDERS];
	struct kvt_event out[100];
	int64_t last[ADDERS] = {-1, -1, -1, -1};
	uint64_t expected = 1, gaps = 0, seen = 0;
	size_t n;

	for (unsigned i = 0; i < ADDERS; i++) {
		adders[i] = (struct adder){log, i};
		ck_assert_int_eq(pthread_create(&threads[i], NULL, add_many, &adders[i]), 0);
	}
	while (expected <= ADDERS * ADDED_EACH) {
		n = kvt_event_log_take(log, out, 100);
		for (size_t i = 0; i < n; i++) {
			unsigned who = out[i].hashes[0] - TAG(0);
			uint32_t value;

			ck_assert_uint_lt(who, ADDERS);
			memcpy(&value, out[i].hashes + 4, sizeof(value));
			ck_assert_int_gt(value, last[who]);
			last[who] = value;
			ck_assert_uint_ge(out[i].sequence, expected);
			gaps += out[i].sequence - expected;
			expected = out[i].sequence + 1;
		}
		seen += n;
	}
	for (unsigned i = 0; i < ADDERS; i++)
		pthread_join(threads[i], NULL);
	ck_assert_uint_eq(seen + gaps, ADDERS * ADDED_EACH);
	ck_assert_uint_eq(lost(log), gaps);
	kvt_event_log_destroy(log);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("queue");

	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, comes_out_as_it_went_in);
	tcase_add_test(tc, taken_events_stay);
	tcase_add_test(tc, oldest_lost_first);
	tcase_add_test(tc, room_for_what_can_wait);
	tcase_add_test(tc, bytes_are_bounded);
	tcase_add_test(tc, impossible_events);
	tcase_add_test(tc, no_queue);
	tcase_add_test(tc, many_threads);
	return run_tcase("cache-events-log", tc);
}
