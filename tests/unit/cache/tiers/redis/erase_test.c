/*
 * erase_test.c - what was erased cannot be read any more: by this handle at once, by others
 * with their next probe or within a second, also when Redis was away meanwhile.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "fake_redis.h"
#include "redis_rig.h"
#include "tiers/redis/redis_tier.h"
#include "tiers/redis/redis_value.h"

#define MS 1000000ll

static struct redis_rig rig;

static void setup(void)
{
	fake_reset();
	rig_init(&rig);
	rig.config.l2_part_bytes = 64u << 10;
	ck_assert_int_eq(rig_open(&rig, 0), KVT_OK);
	ck_assert_int_eq(rig_open(&rig, 1), KVT_OK);
}

static void teardown(void)
{
	rig_finish(&rig);
	fake_reset();
}

static enum kvt_status put_for(int handle, uint64_t n, uint8_t tenant)
{
	struct kvt_item item = {.size = sizeof(item), .bytes = 100, .tenant = {{tenant}}};

	return rig_put_item(&rig, handle, n, &item);
}

static void erase_tenant(int handle, uint8_t number)
{
	struct kvt_tenant tenant = {{number}};
	size_t erased;

	ck_assert_int_eq(
		rig.tiers[handle]->ops->erase_tenant(rig.tiers[handle], &tenant, &erased), KVT_OK);
}

static void erase_all(int handle)
{
	size_t erased;

	ck_assert_int_eq(rig.tiers[handle]->ops->erase_all(rig.tiers[handle], &erased), KVT_OK);
}

static void any_answer_is_old(void)
{
	rig.now_ns += 6000 * MS;
}

START_TEST(a_key_and_its_parts)
{
	ck_assert_int_eq(rig_put(&rig, 0, 1, 1600000), KVT_OK); /* 25 parts */
	ck_assert_int_eq(rig_put(&rig, 0, 2, 100), KVT_OK);
	ck_assert_uint_eq(rig_probe(&rig, 1, 1, 2), 2);
	ck_assert_int_eq(rig_erase(&rig, 0, 1), KVT_OK);
	ck_assert_uint_eq(fake_count("{"), 1);
	ck_assert(!rig_knows(&rig, 0, 1));
	ck_assert_int_eq(rig_get(&rig, 0, 1, 1600000), KVT_MISS);
	ck_assert_int_eq(rig_get(&rig, 1, 1, 1600000), KVT_MISS);
	ck_assert_int_eq(rig_get(&rig, 1, 2, 100), KVT_OK);
	ck_assert_int_eq(rig_flush(&rig, 0), KVT_OK);
	ck_assert_int_eq(rig_erase(&rig, 0, 55), KVT_OK); /* was never there */
	ck_assert_int_eq(rig_put(&rig, 0, 1, 500), KVT_OK);
	ck_assert_int_eq(rig_get(&rig, 1, 1, 500), KVT_OK);
}
END_TEST

START_TEST(a_key_while_redis_is_away)
{
	ck_assert_int_eq(rig_put(&rig, 0, 1, 100), KVT_OK);
	fake.down = true;
	ck_assert_int_eq(rig_erase(&rig, 0, 1), KVT_EIO);
	ck_assert_int_eq(rig_flush(&rig, 0), KVT_EIO);
	fake.stall_verb = "UNLINK"; /* back, but it has not forgotten it yet */
	fake.down = false;
	ck_assert_int_eq(rig_get(&rig, 0, 1, 100), KVT_MISS);
	ck_assert_uint_eq(rig_probe(&rig, 0, 1, 1), 0);
	ck_assert_int_eq(rig_put(&rig, 0, 1, 100), KVT_BUSY);
	fake.stall_verb = NULL;
	rig.now_ns += 2500 * MS;
	rig_steps(&rig, 0, 20);
	ck_assert_uint_eq(fake_count("{"), 0);
	ck_assert_int_eq(rig_flush(&rig, 0), KVT_OK);
	ck_assert_int_eq(rig_put(&rig, 0, 1, 100), KVT_OK);
	ck_assert_int_eq(rig_get(&rig, 0, 1, 100), KVT_OK);
}
END_TEST

START_TEST(many_keys_at_once)
{
	struct kvt_key keys[2000];
	struct kvt_tier_request request = {.verb = KVT_TIER_ERASE, .keys = keys, .key_count = 2000};

	for (uint64_t n = 0; n < 2000; n++) {
		keys[n] = rig_key(n);
		if (n % 2 == 0)
			ck_assert_int_eq(rig_put(&rig, 0, n, 20), KVT_OK);
	}
	ck_assert_int_eq(rig_run(&rig, 1, &request), KVT_OK);
	ck_assert_uint_eq(fake_count("{"), 0);
	ck_assert_uint_eq(rig_probe(&rig, 1, 0, 1), 0);
}
END_TEST

/* More than can be hidden one by one: everything of the fingerprint goes instead. */
START_TEST(too_many_to_hide)
{
	size_t n = 70000;
	struct kvt_key *keys = calloc(n, sizeof(*keys));
	struct kvt_tier_request request = {.verb = KVT_TIER_ERASE, .keys = keys, .key_count = n};

	for (size_t i = 0; i < n; i++)
		keys[i] = rig_key(i);
	ck_assert_int_eq(rig_put(&rig, 0, n - 1, 100), KVT_OK);
	ck_assert_int_eq(rig_put(&rig, 0, n + 1, 100), KVT_OK);
	fake.down = true;
	ck_assert_int_eq(rig_run(&rig, 0, &request), KVT_EIO);
	fake.down = false;
	fake.stall_verb = "UNLINK";
	ck_assert_int_ne(rig_get(&rig, 0, n - 1, 100), KVT_OK);
	ck_assert_int_ne(rig_get(&rig, 0, n + 1, 100), KVT_OK);
	rig.now_ns += 2000 * MS;
	rig_steps(&rig, 0, 20);
	ck_assert_int_eq(rig_get(&rig, 0, n - 1, 100), KVT_MISS);
	ck_assert_int_eq(rig_get(&rig, 1, n - 1, 100), KVT_MISS);
	free(keys);
}
END_TEST

START_TEST(a_tenant)
{
	ck_assert_int_eq(put_for(0, 1, 7), KVT_OK);
	ck_assert_int_eq(put_for(0, 2, 8), KVT_OK);
	ck_assert_int_eq(rig_get(&rig, 1, 1, 100), KVT_OK);
	ck_assert_int_eq(rig_get(&rig, 1, 2, 100), KVT_OK);
	any_answer_is_old();
	erase_tenant(0, 7);
	ck_assert(!rig_knows(&rig, 0, 1));
	ck_assert_int_eq(rig_get(&rig, 0, 1, 100), KVT_MISS);
	ck_assert_uint_eq(rig_probe(&rig, 0, 1, 1), 0);
	ck_assert_int_eq(rig_flush(&rig, 0), KVT_OK);
	ck_assert_uint_eq(rig_probe(&rig, 1, 1, 1), 0); /* another handle's next probe */
	ck_assert_int_eq(rig_get(&rig, 1, 2, 100), KVT_OK);
	ck_assert_int_eq(put_for(1, 1, 7), KVT_OK);
	ck_assert_int_eq(rig_get(&rig, 0, 1, 100), KVT_OK);
}
END_TEST

START_TEST(another_handle_learns_within_a_second)
{
	ck_assert_int_eq(put_for(0, 1, 7), KVT_OK);
	ck_assert_int_eq(rig_get(&rig, 1, 1, 100), KVT_OK);
	erase_tenant(0, 7);
	ck_assert_int_eq(rig_flush(&rig, 0), KVT_OK);
	rig.now_ns += 1000 * MS;
	ck_assert_int_eq(rig_get(&rig, 1, 1, 100), KVT_MISS);
	rig_close(&rig, 1);
	ck_assert_int_eq(rig_open(&rig, 1), KVT_OK);
	ck_assert_int_eq(rig_get(&rig, 1, 1, 100), KVT_MISS);
}
END_TEST

START_TEST(all)
{
	ck_assert_int_eq(put_for(0, 1, 7), KVT_OK);
	ck_assert_int_eq(rig_put(&rig, 0, 2, 100), KVT_OK);
	ck_assert_uint_eq(rig_probe(&rig, 1, 1, 2), 2);
	erase_all(1);
	ck_assert_uint_eq(rig_probe(&rig, 1, 1, 2), 0);
	ck_assert_int_eq(rig_flush(&rig, 1), KVT_OK);
	rig.now_ns += 1000 * MS;
	ck_assert_int_eq(rig_get(&rig, 0, 1, 100), KVT_MISS);
	ck_assert_int_eq(rig_get(&rig, 0, 2, 100), KVT_MISS);
	ck_assert_int_eq(rig_put(&rig, 0, 2, 100), KVT_OK);
	ck_assert_int_eq(rig_get(&rig, 1, 2, 100), KVT_OK);
}
END_TEST

START_TEST(a_tenant_while_redis_is_away)
{
	ck_assert_int_eq(put_for(0, 1, 7), KVT_OK);
	ck_assert_int_eq(put_for(0, 2, 8), KVT_OK);
	fake.down = true;
	erase_tenant(0, 7);
	rig_steps(&rig, 0, 5);
	ck_assert_int_eq(rig_flush(&rig, 0), KVT_EIO);
	fake.stall_verb = "INCRBY";
	fake.down = false;
	ck_assert_int_ne(rig_get(&rig, 0, 1, 100), KVT_OK);
	ck_assert_int_eq(rig_get(&rig, 0, 2, 100), KVT_OK);
	ck_assert_int_ne(put_for(0, 3, 7), KVT_OK);
	fake.stall_verb = NULL;
	rig.now_ns += 1100 * MS;
	rig_steps(&rig, 0, 10);
	ck_assert_int_eq(rig_flush(&rig, 0), KVT_OK);
	ck_assert_int_eq(rig_get(&rig, 0, 1, 100), KVT_MISS);
	rig.now_ns += 1100 * MS;
	ck_assert_int_eq(rig_get(&rig, 1, 1, 100), KVT_MISS);
	ck_assert_int_eq(put_for(0, 3, 7), KVT_OK);
	ck_assert_int_eq(rig_get(&rig, 0, 3, 100), KVT_OK);
}
END_TEST

START_TEST(more_tenants_than_wait)
{
	for (uint8_t i = 1; i <= 100; i++)
		ck_assert_int_eq(put_for(0, i, i), KVT_OK);
	for (uint8_t i = 1; i <= 100; i++)
		erase_tenant(0, i); /* no step in between */
	for (uint8_t i = 1; i <= 100; i++)
		ck_assert_int_eq(rig_get(&rig, 0, i, 100), KVT_MISS);
	ck_assert_int_eq(rig_flush(&rig, 0), KVT_OK);
	any_answer_is_old();
	ck_assert_uint_eq(rig_probe(&rig, 1, 1, 100), 0);
}
END_TEST

START_TEST(a_lost_epoch_brings_nothing_back)
{
	char name[REDIS_KEY_ROOM];
	struct kvt_tenant tenant = {{7}};

	ck_assert_int_eq(put_for(0, 1, 7), KVT_OK);
	erase_tenant(0, 7);
	ck_assert_int_eq(rig_flush(&rig, 0), KVT_OK);
	(void)redis_epoch_name(&rig.config.fingerprint, &tenant, name);
	ck_assert_uint_eq(fake_count(name), 1);
	fake_remove(name);
	any_answer_is_old();
	ck_assert_int_eq(rig_get(&rig, 1, 1, 100), KVT_MISS);
	ck_assert_int_eq(put_for(1, 2, 7), KVT_OK); /* makes a new one */
	ck_assert_int_eq(rig_get(&rig, 1, 1, 100), KVT_MISS);
	ck_assert_int_eq(rig_get(&rig, 0, 2, 100), KVT_OK);
	/* The same for all. */
	(void)redis_epoch_name(&rig.config.fingerprint, NULL, name);
	fake_remove(name);
	any_answer_is_old();
	ck_assert_uint_eq(rig_probe(&rig, 0, 2, 1), 0);
	ck_assert_int_eq(rig_get(&rig, 1, 2, 100), KVT_MISS);
}
END_TEST

START_TEST(an_epoch_that_is_none)
{
	char name[REDIS_KEY_ROOM];

	(void)redis_epoch_name(&rig.config.fingerprint, NULL, name);
	ck_assert_int_eq(rig_put(&rig, 0, 1, 100), KVT_OK);
	fake_set(name, "12x", 3);
	any_answer_is_old();
	ck_assert_int_eq(rig_get(&rig, 1, 1, 100), KVT_MISS);
	ck_assert_int_eq(rig_put(&rig, 1, 1, 100), KVT_OK);
	ck_assert_int_eq(rig_get(&rig, 1, 1, 100), KVT_OK);
	fake_make_list(name);
	erase_all(1);
	ck_assert_int_eq(rig_flush(&rig, 1), KVT_OK);
	ck_assert_int_eq(rig_get(&rig, 1, 1, 100), KVT_MISS);
	ck_assert_int_eq(rig_put(&rig, 1, 1, 100), KVT_OK);
	any_answer_is_old();
	ck_assert_int_eq(rig_get(&rig, 0, 1, 100), KVT_OK);
}
END_TEST

START_TEST(a_full_server_still_erases)
{
	ck_assert_int_eq(put_for(0, 1, 7), KVT_OK);
	fake.error = "OOM command not allowed when used memory > 'maxmemory'.";
	erase_tenant(0, 7);
	ck_assert_int_eq(rig_flush(&rig, 0), KVT_OK);
	ck_assert_int_eq(rig_get(&rig, 0, 1, 100), KVT_MISS);
	rig.now_ns += 1000 * MS;
	ck_assert_int_eq(rig_get(&rig, 1, 1, 100), KVT_MISS);
	fake.error = NULL;
	ck_assert_int_eq(put_for(0, 2, 7), KVT_OK);
	ck_assert_int_eq(rig_get(&rig, 0, 1, 100), KVT_MISS);
	ck_assert_int_eq(rig_get(&rig, 1, 2, 100), KVT_OK);
}
END_TEST

static void read_done(struct kvt_tier_request *request)
{
	request->user = NULL;
}

/* A read whose bytes are on their way when its chunk is erased. */
START_TEST(reads_under_way)
{
	struct kvt_key key = rig_key(1);
	uint8_t bytes[100];
	struct kvt_segment segment = {.base = bytes, .bytes = sizeof(bytes)};
	struct kvt_tier_request read = {.verb = KVT_TIER_READ,
		.keys = &key,
		.key_count = 1,
		.bytes = sizeof(bytes),
		.segments = &segment,
		.segment_count = 1,
		.done = read_done};

	for (int round = 0; round < 3; round++) {
		ck_assert_int_eq(put_for(0, 1, 7), KVT_OK);
		ck_assert_int_eq(rig_get(&rig, 0, 1, 100), KVT_OK);
		(void)rig_probe(&rig, 1, 1, 1); /* what was erased a round ago is not written */
		ck_assert_int_eq(put_for(1, 2, 7), KVT_OK); /* it knows the epochs, too */
		fake.stall_verb = "GET";
		read.user = &read;
		rig.tiers[0]->ops->submit(rig.tiers[0], &read);
		rig_steps(&rig, 0, 3);
		if (round == 0)
			ck_assert_int_eq(rig_erase(&rig, 0, 1), KVT_OK);
		else if (round == 1)
			erase_tenant(0, 7);
		else
			erase_all(0);
		ck_assert_ptr_nonnull(read.user);
		if (round == 0) /* the value comes back for a tier that reads it now */
			ck_assert_int_eq(put_for(1, 1, 7), KVT_OK);
		fake.stall_verb = NULL;
		for (int i = 0; i < 20 && read.user != NULL; i++)
			rig_steps(&rig, 0, 1);
		ck_assert_ptr_null(read.user);
		ck_assert_uint_eq(read.status, KVT_MISS);
		any_answer_is_old();
	}
}
END_TEST

START_TEST(erased_values_leave)
{
	for (uint64_t n = 0; n < 50; n++)
		ck_assert_int_eq(put_for(0, n, n % 2 == 0 ? 7 : 8), KVT_OK);
	fake_set("kvt1:another program's", "x", 1);
	erase_tenant(0, 7);
	ck_assert_int_eq(rig_flush(&rig, 0), KVT_OK);
	for (int i = 0; i < 30; i++) {
		rig.now_ns += 110 * MS;
		rig_steps(&rig, 0, 5);
	}
	ck_assert_uint_eq(fake_count("{"), 25);
	ck_assert_int_eq(rig_get(&rig, 1, 1, 100), KVT_OK);
	erase_all(0);
	for (int i = 0; i < 30; i++) {
		rig.now_ns += 110 * MS;
		rig_steps(&rig, 0, 5);
	}
	ck_assert_uint_eq(fake_count("{"), 0);
	ck_assert_uint_eq(fake_count("another program"), 1);
}
END_TEST

/* --- what another handle erased ---------------------------------------------------------------- */

static enum kvt_elsewhere_depth depth_of(uint8_t number)
{
	for (size_t i = 0; i < rig.elsewhere.count; i++)
		if (rig.elsewhere.tenants[i].bytes[0] == number)
			return rig.elsewhere.depths[i];
	return KVT_ELSEWHERE_NOTHING;
}

/* Both handles know the tenants, then the first erases one. */
static void erase_by_another(void)
{
	ck_assert_int_eq(put_for(0, 1, 7), KVT_OK);
	ck_assert_int_eq(put_for(0, 2, 8), KVT_OK);
	ck_assert_int_eq(rig_get(&rig, 1, 1, 100), KVT_OK);
	ck_assert_int_eq(rig_get(&rig, 1, 2, 100), KVT_OK);
	erase_tenant(0, 7);
	ck_assert_int_eq(rig_flush(&rig, 0), KVT_OK);
	ck_assert_uint_eq(rig.taken, 0);
}

START_TEST(an_erase_by_another_is_handed_out_once)
{
	erase_by_another();
	rig.now_ns += 1000 * MS;
	ck_assert_int_eq(rig_get(&rig, 1, 2, 100), KVT_OK); /* another tenant's: nothing is known of 7 */
	ck_assert_uint_eq(rig.taken, 0);
	ck_assert_int_eq(rig_get(&rig, 1, 1, 100), KVT_MISS);
	ck_assert_uint_eq(rig.taken, 1);
	ck_assert_uint_eq(rig.elsewhere.all, KVT_ELSEWHERE_NOTHING);
	ck_assert_uint_eq(rig.elsewhere.count, 1);
	ck_assert_uint_eq(depth_of(7), KVT_ELSEWHERE_ALL);
	any_answer_is_old();
	ck_assert_int_eq(rig_get(&rig, 1, 2, 100), KVT_OK);
	(void)rig_probe(&rig, 0, 1, 2);
	(void)rig_probe(&rig, 1, 1, 2);
	ck_assert_uint_eq(rig.taken, 1); /* the one that erased gets nothing */
	erase_all(0);
	ck_assert_int_eq(rig_flush(&rig, 0), KVT_OK);
	(void)rig_probe(&rig, 1, 1, 2);
	ck_assert_uint_eq(rig.taken, 2);
	ck_assert_uint_eq(rig.elsewhere.all, KVT_ELSEWHERE_ALL);
}
END_TEST

static void written(struct kvt_tier_request *request)
{
	request->user = NULL;
}

/* A chunk that waits to be written when another erases its tenant would be stamped as younger than the erase. */
START_TEST(what_was_put_before_is_not_stored_after)
{
	struct kvt_key keys[2] = {rig_key(3), rig_key(4)};
	uint8_t bytes[100] = {0};
	struct kvt_segment segment = {.base = bytes, .bytes = sizeof(bytes)};
	struct kvt_item items[2];
	struct kvt_tier_request writes[2];
	int64_t next;

	erase_by_another();
	rig.now_ns += 1000 * MS;
	rig.leave_elsewhere = true;
	for (int i = 0; i < 2; i++) {
		items[i] = (struct kvt_item){
			.size = sizeof(items[i]), .bytes = 100, .key = keys[i], .tenant = {{7}}};
		writes[i] = (struct kvt_tier_request){.verb = KVT_TIER_WRITE,
			.keys = &keys[i],
			.key_count = 1,
			.bytes = 100,
			.segments = &segment,
			.segment_count = 1,
			.item = &items[i],
			.wanted_ns = rig.now_ns,
			.done = written,
			.user = &writes[i]};
		kvt_checksum_segments(&segment, 1, 100, &writes[i].checksum);
	}
	rig.tiers[1]->ops->submit(rig.tiers[1], &writes[0]);
	for (int i = 0; i < 100 && writes[0].user != NULL; i++)
		rig_steps(&rig, 1, 1);
	ck_assert_ptr_null(writes[0].user);
	ck_assert_uint_eq(writes[0].status, KVT_MISS);
	/* Nor what comes before the caller has heard of it, though the tier knows the new epoch. */
	rig.tiers[1]->ops->submit(rig.tiers[1], &writes[1]);
	rig.leave_elsewhere = false;
	rig.tiers[1]->ops->take_elsewhere(rig.tiers[1], &rig.elsewhere);
	ck_assert_uint_eq(depth_of(7), KVT_ELSEWHERE_ALL);
	while (writes[1].user != NULL)
		(void)rig.tiers[1]->ops->step(rig.tiers[1], 0, &next);
	ck_assert_uint_eq(writes[1].status, KVT_MISS);
	ck_assert_uint_eq(fake_count("{"), 2);
	ck_assert_int_eq(rig_get(&rig, 0, 3, 100), KVT_MISS);
	ck_assert_int_eq(put_for(1, 3, 7), KVT_OK); /* it was put after it */
	ck_assert_int_eq(rig_get(&rig, 0, 3, 100), KVT_OK);
}
END_TEST

/* Redis lost the epoch: what was stored there is a miss, and no handle empties its memory for that. */
START_TEST(a_lost_epoch_is_no_erase)
{
	char name[REDIS_KEY_ROOM];
	struct kvt_tenant tenant = {{7}};

	for (int round = 0; round < 2; round++) {
		ck_assert_int_eq(put_for(0, 1, 7), KVT_OK);
		ck_assert_int_eq(rig_get(&rig, 1, 1, 100), KVT_OK);
		(void)redis_epoch_name(&rig.config.fingerprint, round == 0 ? &tenant : NULL, name);
		ck_assert_uint_ge(fake_count(name), 1);
		fake_remove(name);
		any_answer_is_old();
		ck_assert_int_eq(rig_get(&rig, 1, 1, 100), KVT_MISS);
		ck_assert_int_eq(put_for(1, 2, 7), KVT_OK);
		any_answer_is_old();
		ck_assert_int_eq(rig_get(&rig, 0, 2, 100), KVT_OK);
	}
	ck_assert_uint_eq(rig.taken, 0);
}
END_TEST

/* A new handle does not know when an epoch was raised: what its caller has in memory may be older. */
START_TEST(the_first_look)
{
	struct kvt_item item = {.size = sizeof(item), .bytes = 100, .tenant = {{7}}};

	erase_by_another();
	rig_close(&rig, 1);
	ck_assert_int_eq(rig_open(&rig, 1), KVT_OK);
	ck_assert_int_eq(rig_put_item(&rig, 1, 3, &item), KVT_OK); /* put a moment ago */
	ck_assert_uint_eq(rig.taken, 0);
	rig_close(&rig, 1);
	ck_assert_int_eq(rig_open(&rig, 1), KVT_OK);
	ck_assert_int_eq(rig_get(&rig, 1, 3, 100), KVT_OK);
	ck_assert_uint_eq(rig.taken, 1);
	ck_assert_uint_eq(depth_of(7), KVT_ELSEWHERE_MEMORY);
	ck_assert_uint_eq(depth_of(8), KVT_ELSEWHERE_NOTHING);
	ck_assert_int_eq(rig_put_item(&rig, 1, 4, &item), KVT_OK);
	/* It waited in the caller's line. */
	rig_close(&rig, 1);
	ck_assert_int_eq(rig_open(&rig, 1), KVT_OK);
	rig.waited_ns = 1000 * MS;
	ck_assert_int_eq(rig_put_item(&rig, 1, 5, &item), KVT_MISS);
	ck_assert_uint_eq(rig.taken, 2);
	ck_assert_uint_eq(depth_of(7), KVT_ELSEWHERE_MEMORY);
	ck_assert_int_eq(rig_put_item(&rig, 1, 5, &item), KVT_OK);
}
END_TEST

/* The answer is late: it comes when chunks have been put that are not being written yet. */
START_TEST(a_first_look_with_a_late_answer)
{
	erase_by_another();
	for (unsigned old = 0; old < 2; old++) {
		rig_close(&rig, 1);
		ck_assert_int_eq(rig_open(&rig, 1), KVT_OK);
		rig.since_ns = rig.now_ns + (old ? -1000 * MS : 100 * MS);
		ck_assert_int_eq(rig_get(&rig, 1, 1, 100), KVT_MISS);
		ck_assert_uint_eq(rig.taken, old);
	}
}
END_TEST

/* No request comes: the tier looks by the clock at what its caller holds, and at nothing else. */
START_TEST(a_look_by_the_clock)
{
	struct kvt_tenant held = {{7}};
	uint64_t before;
	int seconds = 0;

	erase_by_another();
	for (int i = 0; i < 30; i++) { /* nothing is held */
		before = fake.gets;
		rig.now_ns += 1000 * MS;
		rig_steps(&rig, 1, 3);
		ck_assert_uint_eq(fake.gets, before);
	}
	ck_assert_uint_eq(rig.taken, 0);
	before = fake.gets;
	for (; seconds < 10 && rig.taken == 0; seconds++) {
		rig.tiers[1]->ops->holds(rig.tiers[1], &held, 1);
		rig.now_ns += 1000 * MS;
		rig_steps(&rig, 1, 3);
	}
	ck_assert_uint_eq(depth_of(7), KVT_ELSEWHERE_ALL);
	ck_assert_int_lt(seconds, 10);
	for (int i = 0; i < 50; i++) {
		rig.tiers[1]->ops->holds(rig.tiers[1], &held, 1);
		rig.now_ns += 100 * MS;
		rig_steps(&rig, 1, 3);
	}
	ck_assert_uint_le(fake.gets - before, 8); /* two names, not once for each second */
	fake.down = true;
	before = fake.commands;
	for (int i = 0; i < 200; i++) {
		rig.tiers[1]->ops->holds(rig.tiers[1], &held, 1);
		rig.now_ns += 100 * MS;
		rig_steps(&rig, 1, 3);
	}
	ck_assert_uint_le(fake.commands - before, 22);
	ck_assert_uint_eq(rig.taken, 1);
}
END_TEST

/* The first look at what was put a moment ago is that of its store, which knows that it is younger than the erase. */
START_TEST(the_clock_leaves_the_first_look_to_stores)
{
	struct kvt_tenant held = {{7}};

	erase_by_another();
	rig_close(&rig, 1);
	ck_assert_int_eq(rig_open(&rig, 1), KVT_OK);
	rig.tiers[1]->ops->holds(rig.tiers[1], &held, 1);
	rig.now_ns += 10000 * MS; /* no look was ever */
	rig_steps(&rig, 1, 200);
	ck_assert_int_eq(put_for(1, 3, 7), KVT_OK);
	ck_assert_uint_eq(rig.taken, 0);
	rig_close(&rig, 1);
	ck_assert_int_eq(rig_open(&rig, 1), KVT_OK);
	for (int i = 0; i < 4; i++) { /* and nothing is stored */
		rig.tiers[1]->ops->holds(rig.tiers[1], &held, 1);
		rig.now_ns += 1000 * MS;
		rig_steps(&rig, 1, 3);
	}
	ck_assert_uint_eq(depth_of(7), KVT_ELSEWHERE_MEMORY);
}
END_TEST

/* More are due all the time than Redis is asked for at once: each has its turn. */
START_TEST(looks_take_turns)
{
	struct kvt_tenant held[250];

	rig_close(&rig, 1);
	rig.config.l2_seen_ns = 1000 * MS;
	ck_assert_int_eq(rig_open(&rig, 1), KVT_OK);
	for (uint8_t i = 0; i < 250; i++) {
		held[i] = (struct kvt_tenant){{i + 1}};
		ck_assert_int_eq(put_for(1, i, i + 1), KVT_OK);
	}
	for (unsigned erased = 1; erased <= 250; erased += 83) {
		erase_tenant(0, (uint8_t)erased);
		ck_assert_int_eq(rig_flush(&rig, 0), KVT_OK);
		rig.elsewhere = (struct kvt_elsewhere){.count = 0};
		for (int i = 0; i < 40 && depth_of(erased) == KVT_ELSEWHERE_NOTHING; i++) {
			rig.tiers[1]->ops->holds(rig.tiers[1], held, 250);
			rig.now_ns += 100 * MS;
			rig_steps(&rig, 1, 3);
		}
		ck_assert_uint_eq(depth_of(erased), KVT_ELSEWHERE_ALL);
	}
}
END_TEST

/* A table that is full of others forgets none whose chunks this handle holds: it would not know what was erased. */
START_TEST(what_is_held_is_not_forgotten)
{
	struct kvt_tenant held = {{7}}, other = {{8}};

	erase_by_another();
	rig.now_ns += 1000 * MS;
	ck_assert_int_eq(rig_get(&rig, 1, 1, 100), KVT_MISS);
	ck_assert_uint_eq(rig.taken, 1);
	for (uint32_t i = 0; i < 2 * REDIS_TENANTS; i += 100) {
		struct kvt_tenant many[100];

		for (uint32_t j = 0; j < 100; j++) {
			many[j] = other;
			memcpy(many[j].bytes + 4, &(uint32_t){i + j}, sizeof(i));
		}
		rig.tiers[1]->ops->holds(rig.tiers[1], &held, 1);
		rig.tiers[1]->ops->holds(rig.tiers[1], many, 100);
		rig.now_ns += 300 * MS;
		rig_steps(&rig, 1, 3);
	}
	ck_assert_uint_eq(rig.taken, 1);
}
END_TEST

/* More tenants than are listed one by one: all. */
START_TEST(an_overflow_is_all)
{
	rig.leave_elsewhere = true;
	for (uint8_t i = 1; i <= 100; i++) {
		ck_assert_int_eq(put_for(0, i, i), KVT_OK);
		ck_assert_int_eq(rig_get(&rig, 1, i, 100), KVT_OK);
	}
	for (uint8_t i = 1; i <= 100; i++)
		erase_tenant(0, i);
	ck_assert_int_eq(rig_flush(&rig, 0), KVT_OK);
	rig.now_ns += 1000 * MS;
	for (uint8_t i = 1; i <= 100; i++)
		ck_assert_int_eq(rig_get(&rig, 1, i, 100), KVT_MISS);
	rig.tiers[1]->ops->take_elsewhere(rig.tiers[1], &rig.elsewhere);
	ck_assert_uint_eq(rig.elsewhere.all, KVT_ELSEWHERE_ALL);
	ck_assert(!atomic_load(&rig.tiers[1]->elsewhere));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("redis erase");
	TCase *tcase = tcase_create("redis erase");
	SRunner *runner;
	int failed;

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, a_key_and_its_parts);
	tcase_add_test(tcase, a_key_while_redis_is_away);
	tcase_add_test(tcase, many_keys_at_once);
	tcase_add_test(tcase, too_many_to_hide);
	tcase_add_test(tcase, a_tenant);
	tcase_add_test(tcase, another_handle_learns_within_a_second);
	tcase_add_test(tcase, all);
	tcase_add_test(tcase, a_tenant_while_redis_is_away);
	tcase_add_test(tcase, more_tenants_than_wait);
	tcase_add_test(tcase, a_lost_epoch_brings_nothing_back);
	tcase_add_test(tcase, an_epoch_that_is_none);
	tcase_add_test(tcase, a_full_server_still_erases);
	tcase_add_test(tcase, reads_under_way);
	tcase_add_test(tcase, erased_values_leave);
	tcase_add_test(tcase, an_erase_by_another_is_handed_out_once);
	tcase_add_test(tcase, what_was_put_before_is_not_stored_after);
	tcase_add_test(tcase, a_lost_epoch_is_no_erase);
	tcase_add_test(tcase, the_first_look);
	tcase_add_test(tcase, a_first_look_with_a_late_answer);
	tcase_add_test(tcase, a_look_by_the_clock);
	tcase_add_test(tcase, the_clock_leaves_the_first_look_to_stores);
	tcase_add_test(tcase, looks_take_turns);
	tcase_add_test(tcase, what_is_held_is_not_forgotten);
	tcase_add_test(tcase, an_overflow_is_all);
	tcase_set_timeout(tcase, 120);
	suite_add_tcase(suite, tcase);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? 0 : 1;
}
