/*
 * moves_test.c - chunks between L1 and a tier below: stores, loads, what waits for them, and what
 * they wait for. Without threads, so that each step is the test's.
 */
#include <poll.h>
#include <string.h>

#include "support.h"
#include "tests/unit/suite.h"

#define LONG (1000 * SECOND)

static struct rig rig;

static void open_rig(void)
{
	rig_init(&rig);
	rig_open(&rig);
}

static void close_rig(void)
{
	if (rig.k != NULL)
		rig_close(&rig);
}

/* Chain 1 of n chunks below, and not in L1. */
static void below_only(uint32_t n)
{
	rig_put_chain(&rig, 1, n);
	rig_settle(&rig);
	rig_push_out(&rig);
	ck_assert_uint_ge(fake_chunks(fake_tier()), n);
}

static uint64_t begin_get(uint32_t chain, uint32_t n, uint64_t timeout_ns)
{
	struct kvt_key keys[64];
	uint64_t op = 0;

	keys_of(chain, n, keys);
	ck_assert_int_eq(kvt_get_begin(rig.k, keys, n, timeout_ns, 7, &op), KVT_OK);
	return op;
}

/* The one completion that is there. */
static struct kvt_completion completion(void)
{
	struct kvt_completion c[2];

	ck_assert_uint_eq(kvt_poll(rig.k, c, 2), 1);
	return c[0];
}

static bool readable(void)
{
	struct pollfd p = {.fd = kvt_eventfd(rig.k), .events = POLLIN};

	return poll(&p, 1, 0) == 1;
}

static size_t take(uint64_t op, uint32_t chain, uint32_t n)
{
	struct kvt_key keys[64];
	struct kvt_lease *lease;
	size_t count;

	keys_of(chain, n, keys);
	if (kvt_get_take(rig.k, op, &lease) != KVT_OK)
		return 0;
	check_lease(lease, keys, n);
	count = lease->count;
	kvt_release(rig.k, lease);
	return count;
}

/* --- down ------------------------------------------------------------------------------------- */

START_TEST(what_is_put_goes_down)
{
	struct kvt_key key = key_of(1, 2);

	rig_put_chain(&rig, 1, 3);
	rig_settle(&rig);
	ck_assert_uint_eq(fake_chunks(fake_tier()), 3);
	ck_assert(fake_has(fake_tier(), &key));
	ck_assert_uint_eq(rig_stats(&rig).tiers[KVT_TIER_NVME].stores, 3);
	ck_assert_uint_eq(rig_stats(&rig).tiers[KVT_TIER_NVME].store_bytes, 3 * CHUNK);
}
END_TEST

/* A commit that makes the checksum makes those of pieces for the tier, which checks them. */
START_TEST(checksums_of_pieces_go_down)
{
	static const uint64_t bytes[] = {FAKE_PIECE, FAKE_PIECE + 1, CHUNK};
	const struct kvt_segment *segments;
	struct kvt_reservation *r;
	uint32_t count, status;

	for (uint32_t i = 0; i < 3; i++) {
		struct kvt_item item = {.size = sizeof(item), .key = key_of(1, i), .bytes = bytes[i]};

		ck_assert_int_eq(
			kvt_put_reserve(rig.k, &item, 1, &r, &segments, &count, &status), KVT_OK);
		for (uint32_t k = 0; k < count; k++)
			memset(segments[k].base, (int)(1 + i + k), segments[k].bytes);
		ck_assert_int_eq(kvt_put_commit(rig.k, r, 1, NULL), KVT_OK);
		rig_settle(&rig);
		ck_assert_uint_eq(fake_chunks(fake_tier()), i + 1);
		ck_assert_uint_eq(fake_tier()->with_pieces, i);
	}
}
END_TEST

/* So does a put of bytes that lie elsewhere, while it copies them. */
START_TEST(a_copied_chunk_s_pieces_go_down)
{
	static char bytes[CHUNK];

	for (uint32_t i = 0; i < 2; i++) {
		struct kvt_item item = {.size = sizeof(item), .key = key_of(1, i), .bytes = i == 0 ? FAKE_PIECE : CHUNK};

		for (size_t at = 0; at < sizeof(bytes); at++)
			bytes[at] = (char)(i + at % 251);
		ck_assert_int_eq(kvt_put(rig.k, &item, bytes), KVT_OK);
		rig_settle(&rig);
		ck_assert_uint_eq(fake_chunks(fake_tier()), i + 1);
		ck_assert_uint_eq(fake_tier()->with_pieces, i);
	}
}
END_TEST

/* The tier found that a chunk in memory is not what was put: it is given to no one any more. */
START_TEST(what_changed_in_memory_leaves_it)
{
	fake_answer(fake_tier(), KVT_TIER_WRITE, KVT_ECORRUPT, 1);
	ck_assert_int_eq(rig_put(&rig, 1, 0), KVT_OK);
	rig_settle(&rig);
	ck_assert_uint_eq(fake_chunks(fake_tier()), 0);
	ck_assert_uint_eq(rig_get(&rig, 1, 1, 0), 0);
	ck_assert_uint_eq(rig_stats(&rig).tiers[KVT_TIER_L1].corrupt, 1);
	ck_assert_uint_eq(rig_stats(&rig).tiers[KVT_TIER_L1].chunks, 0);
	ck_assert_int_eq(rig_put(&rig, 1, 0), KVT_OK);
	rig_settle(&rig);
	ck_assert_uint_eq(rig_get(&rig, 1, 1, 0), 1);
	ck_assert_uint_eq(fake_chunks(fake_tier()), 1);
}
END_TEST

START_TEST(a_drain_waits_for_stores)
{
	uint64_t op;

	fake_hold(fake_tier(), KVT_TIER_WRITE, true);
	rig_put_chain(&rig, 1, 3);
	ck_assert_int_eq(kvt_drain_begin(rig.k, LONG, 9, &op), KVT_OK);
	rig_settle(&rig);
	ck_assert(!readable());
	ck_assert_int_eq(rig_put(&rig, 2, 0), KVT_OK); /* after it */
	fake_hold(fake_tier(), KVT_TIER_WRITE, false);
	rig_settle(&rig);
	ck_assert(readable());
	ck_assert_uint_eq(completion().status, KVT_OK);
	ck_assert_uint_eq(fake_begun(fake_tier(), KVT_TIER_FLUSH), 1);
	ck_assert_int_eq(kvt_drain(rig.k, 0), KVT_MISS);
	ck_assert_int_eq(kvt_drain(rig.k, LONG), KVT_OK);
}
END_TEST

START_TEST(the_oldest_store_is_dropped_first)
{
	struct kvt_key keys[64];

	rig_close(&rig);
	rig_init(&rig);
	rig.config.store_inflight = 20 * CHUNK;
	rig_open(&rig);
	fake_hold(fake_tier(), KVT_TIER_WRITE, true);
	rig_put_chain(&rig, 1, 30);
	ck_assert_uint_eq(rig_stats(&rig).stores_dropped, 10);
	fake_hold(fake_tier(), KVT_TIER_WRITE, false);
	rig_settle(&rig);
	ck_assert_uint_eq(fake_chunks(fake_tier()), 20);
	keys_of(1, 30, keys);
	for (uint32_t i = 0; i < 30; i++) /* half was being written, the next 10 were oldest */
		ck_assert_int_eq(fake_has(fake_tier(), &keys[i]), i < 10 || i >= 20);
	ck_assert_uint_eq(rig_get(&rig, 1, 30, 0), 30);
}
END_TEST

START_TEST(a_store_whose_chunk_is_gone_is_dropped)
{
	fake_hold(fake_tier(), KVT_TIER_WRITE, true);
	for (uint32_t i = 0; i < 17; i++) /* a quarter of L1 is being written, the last one waits */
		ck_assert_int_eq(rig_put(&rig, i, 0), KVT_OK);
	for (uint32_t i = 0; i < 64; i++)
		ck_assert_int_eq(rig_put(&rig, 100 + i, 0), KVT_OK);
	fake_hold(fake_tier(), KVT_TIER_WRITE, false);
	rig_settle(&rig);
	for (uint32_t i = 0; i < 17; i++) {
		struct kvt_key key = key_of(i, 0);

		ck_assert_int_eq(fake_has(fake_tier(), &key), i < 16);
	}
	ck_assert_uint_ge(rig_stats(&rig).stores_dropped, 1);
}
END_TEST

START_TEST(a_chunk_that_is_below_is_not_written_again)
{
	below_only(1);
	fake_hold(fake_tier(), KVT_TIER_READ, true);
	ck_assert_int_eq(rig_put(&rig, 1, 0), KVT_OK); /* into L1 without reading */
	rig_settle(&rig);
	ck_assert_uint_eq(fake_begun(fake_tier(), KVT_TIER_WRITE), 65);
	ck_assert_uint_eq(rig_get(&rig, 1, 1, 0), 1);
	ck_assert_uint_eq(rig_stats(&rig).stores_dropped, 0);
}
END_TEST

/* --- up --------------------------------------------------------------------------------------- */

START_TEST(a_get_brings_chunks_up)
{
	uint8_t tiers[4];

	below_only(4);
	ck_assert_uint_eq(rig_lookup(&rig, 1, 4, tiers), 4);
	for (int i = 0; i < 4; i++)
		ck_assert_uint_eq(tiers[i], KVT_TIER_NVME);
	ck_assert_uint_eq(rig_get(&rig, 1, 6, LONG), 4);
	ck_assert_uint_eq(rig_lookup(&rig, 1, 4, tiers), 4);
	for (int i = 0; i < 4; i++)
		ck_assert_uint_eq(tiers[i], KVT_TIER_L1);
	ck_assert_uint_eq(rig_stats(&rig).promotions, 4);
	ck_assert_uint_eq(rig_stats(&rig).tiers[KVT_TIER_NVME].hits, 4);
	ck_assert_uint_eq(rig_stats(&rig).tiers[KVT_TIER_NVME].loads, 4);
	ck_assert_uint_eq(rig_stats(&rig).tiers[KVT_TIER_NVME].load_bytes, 4 * CHUNK);
}
END_TEST

START_TEST(a_view_names_the_tier_it_came_from)
{
	struct kvt_key keys[3];
	struct kvt_lease *lease;

	keys_of(1, 3, keys);
	below_only(3);
	ck_assert_int_eq(rig_put(&rig, 1, 1), KVT_OK);
	ck_assert_int_eq(kvt_get(rig.k, keys, 3, LONG, &lease), KVT_OK);
	ck_assert_uint_eq(lease->count, 3);
	ck_assert_uint_eq(lease->views[0].tier, KVT_TIER_NVME);
	ck_assert_uint_eq(lease->views[1].tier, KVT_TIER_L1);
	ck_assert_uint_eq(lease->views[2].tier, KVT_TIER_NVME);
	kvt_release(rig.k, lease);
}
END_TEST

START_TEST(loads_of_one_key_are_one)
{
	uint64_t ops[3];

	below_only(3);
	fake_hold(fake_tier(), KVT_TIER_READ, true);
	for (int i = 0; i < 3; i++)
		ops[i] = begin_get(1, 3, LONG);
	rig_settle(&rig);
	ck_assert_uint_eq(fake_begun(fake_tier(), KVT_TIER_READ), 3);
	ck_assert_uint_eq(rig_stats(&rig).joined_loads, 6);
	fake_hold(fake_tier(), KVT_TIER_READ, false);
	rig_settle(&rig);
	for (int i = 0; i < 3; i++)
		ck_assert_uint_eq(take(ops[i], 1, 3), 3);
}
END_TEST

START_TEST(one_get_may_name_a_key_twice)
{
	struct kvt_key keys[3];
	struct kvt_lease *lease;

	below_only(1);
	for (int i = 0; i < 3; i++)
		keys[i] = key_of(1, 0);
	ck_assert_int_eq(kvt_get(rig.k, keys, 3, LONG, &lease), KVT_OK);
	check_lease(lease, keys, 3);
	ck_assert_uint_eq(lease->count, 3);
	kvt_release(rig.k, lease);
	rig_push_out(&rig);
	fake_answer(fake_tier(), KVT_TIER_READ, KVT_ECORRUPT, 1);
	ck_assert_int_eq(kvt_get(rig.k, keys, 3, LONG, &lease), KVT_MISS);
}
END_TEST

START_TEST(at_the_deadline_there_is_the_prefix)
{
	uint64_t op;

	below_only(4);
	ck_assert_uint_eq(rig_get(&rig, 1, 2, LONG), 2); /* these are in L1 now */
	fake_hold(fake_tier(), KVT_TIER_READ, true);
	op = begin_get(1, 4, 5 * SECOND);
	rig_settle(&rig);
	rig_advance(&rig, 4 * SECOND);
	ck_assert(!readable());
	rig_advance(&rig, 1 * SECOND);
	ck_assert(readable());
	ck_assert_uint_eq(completion().count, 2);
	ck_assert_uint_eq(take(op, 1, 4), 2);
	ck_assert_uint_eq(rig_stats(&rig).get_timeouts, 1);
	fake_hold(fake_tier(), KVT_TIER_READ, false); /* the load goes on and publishes */
	rig_settle(&rig);
	ck_assert_uint_eq(rig_get(&rig, 1, 4, 0), 4);
}
END_TEST

START_TEST(a_get_without_time_still_starts_loads)
{
	below_only(2);
	ck_assert_uint_eq(rig_get(&rig, 1, 2, 0), 0);
	rig_settle(&rig);
	ck_assert_uint_eq(rig_get(&rig, 1, 2, 0), 2);
}
END_TEST

START_TEST(where_time_stands_still_a_get_ends)
{
	below_only(1);
	fake_hold(fake_tier(), KVT_TIER_READ, true);
	ck_assert_uint_eq(rig_get(&rig, 1, 1, LONG), 0);
	fake_hold(fake_tier(), KVT_TIER_READ, false);
	rig_settle(&rig);
}
END_TEST

START_TEST(a_bad_chunk_ends_the_prefix)
{
	struct kvt_key key = key_of(1, 2);

	below_only(5);
	fake_damage(fake_tier(), &key);
	ck_assert_uint_eq(rig_get(&rig, 1, 5, LONG), 2);
	ck_assert_uint_eq(rig_stats(&rig).tiers[KVT_TIER_NVME].corrupt, 1);
	ck_assert_uint_eq(rig_stats(&rig).tiers[KVT_TIER_L1].leased, 0);
	ck_assert_uint_eq(rig_lookup(&rig, 1, 5, NULL), 2);
}
END_TEST

START_TEST(loads_stay_below_their_limit)
{
	uint64_t op;

	rig_close(&rig);
	rig_init(&rig);
	rig.config.load_inflight = 3 * CHUNK;
	rig_open(&rig);
	below_only(10);
	fake_hold(fake_tier(), KVT_TIER_READ, true);
	op = begin_get(1, 10, LONG);
	rig_settle(&rig);
	ck_assert_uint_eq(fake_begun(fake_tier(), KVT_TIER_READ), 3);
	ck_assert_uint_eq(rig_stats(&rig).tiers[KVT_TIER_NVME].queued_read_bytes, 3 * CHUNK);
	fake_hold(fake_tier(), KVT_TIER_READ, false);
	rig_settle(&rig);
	ck_assert_uint_eq(take(op, 1, 10), 10);
}
END_TEST

START_TEST(stores_trickle_while_loads_run)
{
	uint64_t op;

	below_only(2);
	fake_hold(fake_tier(), KVT_TIER_READ, true);
	fake_hold(fake_tier(), KVT_TIER_WRITE, true);
	op = begin_get(1, 2, LONG);
	rig_settle(&rig);
	rig_put_chain(&rig, 2, 6);
	ck_assert_uint_eq(fake_begun(fake_tier(), KVT_TIER_WRITE), 66 + 2);
	fake_hold(fake_tier(), KVT_TIER_READ, false);
	rig_settle(&rig);
	ck_assert_uint_eq(fake_begun(fake_tier(), KVT_TIER_WRITE), 66 + 6);
	ck_assert_uint_eq(take(op, 1, 2), 2);
	fake_hold(fake_tier(), KVT_TIER_WRITE, false);
	rig_settle(&rig);
}
END_TEST

START_TEST(a_full_l1_does_not_block_loads)
{
	struct kvt_lease *leases[64];
	uint32_t held = 0;

	rig_close(&rig);
	rig_init(&rig);
	rig.config.l1_staging_share = 0.1; /* 6 chunks and a bit */
	rig_open(&rig);
	below_only(4);
	for (uint32_t i = 0; i < 64; i++) {
		struct kvt_key key = key_of(1000 + i, 0);

		if (rig_put(&rig, 1000 + i, 0) != KVT_OK)
			break;
		ck_assert_int_eq(kvt_get(rig.k, &key, 1, 0, &leases[held++]), KVT_OK);
	}
	rig_settle(&rig);
	ck_assert_uint_lt(held, 60);
	ck_assert_uint_eq(rig_get(&rig, 1, 4, LONG), 4);
	while (held > 0)
		kvt_release(rig.k, leases[--held]);
}
END_TEST

START_TEST(a_chain_longer_than_l1_gives_what_fits)
{
	uint32_t n = 63;

	rig_close(&rig);
	rig_init(&rig);
	rig.config.l1_capacity = 16 * CHUNK;
	rig_open(&rig);
	for (uint32_t i = 0; i < n; i++) {
		ck_assert_int_eq(rig_put(&rig, 1, i), KVT_OK);
		rig_settle(&rig);
		if (i % 8 == 7)
			rig_push_out(
				&rig); /* only leaves leave, so that the chain cannot push itself out */
	}
	rig_settle(&rig);
	ck_assert_uint_eq(rig_lookup(&rig, 1, n, NULL), n);
	ck_assert_uint_eq(rig_get(&rig, 1, n, LONG), 16);
	ck_assert_uint_eq(rig_get(&rig, 1, n, LONG), 16);
}
END_TEST

START_TEST(a_prefetch_brings_up_and_does_not_wait)
{
	struct kvt_key keys[4];

	keys_of(1, 4, keys);
	below_only(3);
	ck_assert_int_eq(kvt_prefetch(rig.k, keys, 4), KVT_OK);
	ck_assert_uint_eq(rig_stats(&rig).prefetches, 3);
	rig_settle(&rig);
	ck_assert_uint_eq(rig_get(&rig, 1, 4, 0), 3);
}
END_TEST

START_TEST(a_promoted_chunk_keeps_its_tenant_and_ttl)
{
	struct kvt_tenant tenant = {{9}};
	struct kvt_item item = {.size = sizeof(item),
		.key = key_of(9, 0),
		.bytes = CHUNK,
		.tenant = tenant,
		.ttl_ns = 100 * SECOND};
	static uint8_t data[CHUNK];

	bytes_of(&item.key, data, CHUNK);
	ck_assert_int_eq(kvt_put(rig.k, &item, data), KVT_OK);
	rig_settle(&rig);
	rig_push_out(&rig);
	ck_assert_uint_eq(rig_get(&rig, 9, 1, LONG), 1);
	fake_hold(fake_tier(), KVT_TIER_READ, true);
	rig_advance(&rig, 101 * SECOND);
	ck_assert_uint_eq(
		rig_get(&rig, 9, 1, 0), 0); /* gone from L1; the fake tier forgets nothing */
	fake_hold(fake_tier(), KVT_TIER_READ, false);
	rig_settle(&rig);
	ck_assert_int_eq(kvt_erase_tenant(rig.k, &tenant, 0, NULL), KVT_MISS);
	ck_assert_uint_eq(rig_lookup(&rig, 9, 1, NULL), 0);
}
END_TEST

/* --- operations ------------------------------------------------------------------------------- */

START_TEST(completions_come_once)
{
	struct kvt_completion c;
	struct kvt_lease *lease;
	uint64_t op;

	rig_put_chain(&rig, 1, 2);
	op = begin_get(1, 2, 0);
	ck_assert(readable());
	c = completion();
	ck_assert(!readable());
	ck_assert_uint_eq(c.op, op);
	ck_assert_uint_eq(c.user, 7);
	ck_assert_uint_eq(c.kind, KVT_OP_GET);
	ck_assert_uint_eq(c.count, 2);
	ck_assert_uint_eq(kvt_poll(rig.k, &c, 1), 0);
	ck_assert_uint_eq(take(op, 1, 2), 2);
	ck_assert_int_eq(kvt_get_take(rig.k, op, &lease), KVT_MISS);
	op = begin_get(2, 2, 0);
	ck_assert_uint_eq(completion().status, KVT_MISS);
	ck_assert_int_eq(kvt_get_take(rig.k, op, &lease), KVT_MISS);
}
END_TEST

START_TEST(the_table_is_bounded)
{
	struct kvt_key key = key_of(1, 0);
	struct kvt_completion c[20];
	uint64_t ops[16], one;

	rig_put_chain(&rig, 1, 1);
	for (int i = 0; i < 16; i++)
		ops[i] = begin_get(1, 1, 0);
	ck_assert_int_eq(kvt_get_begin(rig.k, &key, 1, 0, 0, &one), KVT_BUSY);
	ck_assert_uint_eq(take(ops[3], 1, 1), 1); /* taken before it is polled */
	ck_assert_int_eq(kvt_get_begin(rig.k, &key, 1, 0, 0, &one), KVT_BUSY);
	ck_assert_uint_eq(kvt_poll(rig.k, c, 20), 16);
	ck_assert_int_eq(kvt_get_begin(rig.k, &key, 1, 0, 0, &one), KVT_OK);
	ck_assert_int_eq(kvt_get_begin(rig.k, &key, 1, 0, 0, &one), KVT_BUSY);
	for (int i = 0; i < 16; i++)
		if (i != 3)
			ck_assert_uint_eq(take(ops[i], 1, 1), 1);
	ck_assert_uint_eq(take(ops[3], 1, 1), 0); /* an old number finds nothing */
} /* one lease is never taken: close releases it */
END_TEST

START_TEST(a_cancelled_get_holds_nothing)
{
	struct kvt_lease *lease;
	uint64_t op;

	below_only(3);
	ck_assert_uint_eq(rig_get(&rig, 1, 1, LONG), 1);
	fake_hold(fake_tier(), KVT_TIER_READ, true);
	op = begin_get(1, 3, LONG);
	ck_assert_int_eq(kvt_get_take(rig.k, op, &lease), KVT_BUSY);
	ck_assert_int_eq(kvt_cancel(rig.k, op), KVT_OK);
	ck_assert_int_eq(kvt_get_take(rig.k, op, &lease), KVT_ECANCELED);
	ck_assert_uint_eq(completion().status, KVT_ECANCELED);
	ck_assert_int_eq(kvt_cancel(rig.k, op), KVT_MISS);
	fake_hold(fake_tier(), KVT_TIER_READ, false);
	rig_settle(&rig);
	ck_assert_uint_eq(rig_stats(&rig).tiers[KVT_TIER_L1].leased, 0);
	ck_assert_uint_eq(rig_get(&rig, 1, 3, 0), 3);
}
END_TEST

START_TEST(close_with_things_under_way)
{
	uint64_t op;

	below_only(3);
	begin_get(1, 3, LONG);
	rig_put_chain(&rig, 2, 20);
	ck_assert_int_eq(kvt_drain_begin(rig.k, LONG, 0, &op), KVT_OK);
	begin_get(1, 2, LONG);
	rig_close(&rig); /* waits for the I/O; the leak checker sees the rest */
}
END_TEST

START_TEST(events_name_what_moves)
{
	static const uint8_t hashes[64] = {1, 2, 3};
	static const uint32_t tokens[4] = {5, 6, 7, 8};
	struct kvt_blocks blocks = {
		.hashes = hashes, .hash_bytes = 32, .count = 2, .tokens = tokens, .block_size = 2};
	struct kvt_item item = {
		.size = sizeof(item), .key = key_of(1, 0), .bytes = CHUNK, .blocks = &blocks};
	static uint8_t data[CHUNK];
	struct kvt_event events[8];

	bytes_of(&item.key, data, CHUNK);
	ck_assert_int_eq(kvt_put(rig.k, &item, data), KVT_OK);
	rig_settle(&rig);
	ck_assert_uint_eq(kvt_events(rig.k, events, 8), 2);
	ck_assert_uint_eq(events[0].kind, KVT_EVENT_STORED);
	ck_assert_uint_eq(events[0].tier, KVT_TIER_L1);
	ck_assert_uint_eq(events[0].count, 2);
	ck_assert_mem_eq(events[0].hashes, hashes, 64);
	ck_assert_ptr_nonnull(events[0].tokens);
	ck_assert_mem_eq(events[0].tokens, tokens, sizeof(tokens));
	ck_assert_uint_eq(events[1].kind, KVT_EVENT_STORED);
	ck_assert_uint_eq(events[1].tier, KVT_TIER_NVME);
	ck_assert_mem_eq(events[1].hashes, hashes, 64);
	ck_assert_int_eq(kvt_erase(rig.k, &item.key, 1, 0, NULL), KVT_MISS);
	rig_settle(&rig);
	ck_assert_uint_eq(kvt_events(rig.k, events, 8), 1);
	ck_assert_uint_eq(events[0].kind, KVT_EVENT_REMOVED);
	ck_assert_uint_eq(events[0].tier, KVT_TIER_L1);
	ck_assert_mem_eq(events[0].hashes, hashes, 64);
	ck_assert_uint_gt(rig_stats(&rig).events, 2);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("over a fake tier");

	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, open_rig, close_rig);
	tcase_add_test(tc, what_is_put_goes_down);
	tcase_add_test(tc, checksums_of_pieces_go_down);
	tcase_add_test(tc, a_copied_chunk_s_pieces_go_down);
	tcase_add_test(tc, what_changed_in_memory_leaves_it);
	tcase_add_test(tc, a_drain_waits_for_stores);
	tcase_add_test(tc, the_oldest_store_is_dropped_first);
	tcase_add_test(tc, a_store_whose_chunk_is_gone_is_dropped);
	tcase_add_test(tc, a_chunk_that_is_below_is_not_written_again);
	tcase_add_test(tc, a_get_brings_chunks_up);
	tcase_add_test(tc, a_view_names_the_tier_it_came_from);
	tcase_add_test(tc, loads_of_one_key_are_one);
	tcase_add_test(tc, one_get_may_name_a_key_twice);
	tcase_add_test(tc, at_the_deadline_there_is_the_prefix);
	tcase_add_test(tc, a_get_without_time_still_starts_loads);
	tcase_add_test(tc, where_time_stands_still_a_get_ends);
	tcase_add_test(tc, a_bad_chunk_ends_the_prefix);
	tcase_add_test(tc, loads_stay_below_their_limit);
	tcase_add_test(tc, stores_trickle_while_loads_run);
	tcase_add_test(tc, a_full_l1_does_not_block_loads);
	tcase_add_test(tc, a_chain_longer_than_l1_gives_what_fits);
	tcase_add_test(tc, a_prefetch_brings_up_and_does_not_wait);
	tcase_add_test(tc, a_promoted_chunk_keeps_its_tenant_and_ttl);
	tcase_add_test(tc, completions_come_once);
	tcase_add_test(tc, the_table_is_bounded);
	tcase_add_test(tc, a_cancelled_get_holds_nothing);
	tcase_add_test(tc, close_with_things_under_way);
	tcase_add_test(tc, events_name_what_moves);
	return run_tcase("cache/core moves", tc);
}
