/*
 * quota_test.c - tenants' quotas in Redis, over the real client and a redis-server of its own.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "tests/unit/common/redis/real.h"
#include "redis_rig.h"
#include "tiers/redis/redis_value.h"
#include "tests/unit/suite.h"

#define MS    1000000ll
#define CHUNK 65536u
#define ROOM  10u /* chunks that a tenant may have */

static struct redis_rig rig;
static struct real server;
static char url[160];
static int64_t later_ns; /* the wall clock is this far ahead */

static int64_t wall_later(void *self)
{
	(void)self;
	return 1700000000000000000 + rig.clock.now_ns(&rig) + later_ns;
}

static void open_both(void)
{
	for (int i = 0; i < RIG_HANDLES; i++)
		ck_assert_int_eq(rig_open(&rig, i), KVT_OK);
}

static void open_again(void)
{
	for (int i = 0; i < RIG_HANDLES; i++)
		rig_close(&rig, i);
	open_both();
}

static void setup(void)
{
	real_init(&server);
	real_start(&server, false);
	rig_init(&rig);
	rig.real = 1;
	later_ns = 0;
	rig.surroundings.clock.wall_ns = wall_later;
	(void)snprintf(url, sizeof(url), "unix://%s", server.socket);
	rig.config.l2_url = url;
	rig.config.l2_missing_ns = 1;
	rig.config.l2_deadline_ns = 10000 * (uint64_t)MS;
	rig.config.tenant_l2_bytes = ROOM * (CHUNK + REDIS_FOOTER);
	open_both();
}

static void teardown(void)
{
	rig_finish(&rig);
	real_finish(&server);
}

/* One command in RESP; returns the answer's number, or what an error says makes the test fail. */
static long ask_server(int count, const char *const *words)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	char text[1000], reply[100];
	int n = snprintf(text, sizeof(text), "*%d\r\n", count);
	ssize_t got;

	for (int i = 0; i < count; i++)
		n += snprintf(text + n, sizeof(text) - (size_t)n, "$%zu\r\n%s\r\n",
			strlen(words[i]), words[i]);
	(void)snprintf(address.sun_path, sizeof(address.sun_path), "%s", server.socket);
	ck_assert_int_eq(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	ck_assert_int_eq(write(fd, text, (size_t)n), n);
	got = read(fd, reply, sizeof(reply) - 1);
	ck_assert_int_gt(got, 0);
	reply[got] = '\0';
	close(fd);
	ck_assert_msg(reply[0] == ':' || reply[0] == '+', "%s", reply);
	return strtol(reply + 1, NULL, 10);
}

static long ask_key(const char *verb, const char *key)
{
	return ask_server(2, (const char *const[]){verb, key});
}

static bool exists(uint64_t n)
{
	return ask_key("EXISTS", rig_name(&rig, n, 0)) == 1;
}

static unsigned existing(uint64_t from, uint64_t to)
{
	unsigned count = 0;

	for (uint64_t n = from; n < to; n++)
		count += exists(n);
	return count;
}

static struct kvt_tenant tenant_of(const char *salt)
{
	struct kvt_tenant tenant;

	kvt_tenant_of(salt, strlen(salt), &tenant);
	return tenant;
}

static enum kvt_status put_sized(int handle, const char *salt, uint64_t n, uint64_t bytes)
{
	struct kvt_item item = {.size = sizeof(item), .tokens = 256, .bytes = bytes};

	item.tenant = tenant_of(salt);
	return rig_put_item(&rig, handle, n, &item);
}

static enum kvt_status put(int handle, const char *salt, uint64_t n)
{
	return put_sized(handle, salt, n, CHUNK);
}

static struct kvt_tenant_list listed(int handle)
{
	struct kvt_tenant_list list;

	rig.tiers[handle]->ops->tenants(rig.tiers[handle], KVT_TENANTS_LISTED, &list);
	return list;
}

static uint64_t evicted(int handle)
{
	uint64_t evictions, refusals;

	rig.tiers[handle]->ops->limited(rig.tiers[handle], &evictions, &refusals);
	return evictions;
}

/* --- tests ------------------------------------------------------------------------------------- */

START_TEST(a_flood_leaves_others_alone)
{
	struct kvt_tenant_list list;

	for (uint64_t n = 100; n < 105; n++)
		ck_assert_int_eq(put(0, "quiet", n), KVT_OK);
	for (uint64_t n = 0; n < 40; n++) {
		ck_assert_int_eq(put((int)(n % 2), "flood", n), KVT_OK);
		ck_assert_uint_le(existing(0, 40), ROOM);
	}
	ck_assert_uint_eq(existing(30, 40), ROOM); /* the newest, of both handles */
	ck_assert_uint_eq(existing(100, 105), 5);
	ck_assert_uint_eq(evicted(0) + evicted(1), 30);
	for (uint64_t n = 100; n < 105; n++)
		ck_assert_int_eq(rig_get(&rig, 1, n, CHUNK), KVT_OK);
	list = listed(0);
	ck_assert_uint_eq(list.count, 2);
	ck_assert_uint_eq(list.at[0].chunks, ROOM);
	ck_assert_uint_eq(list.at[0].bytes, ROOM * (CHUNK + REDIS_FOOTER));
	ck_assert_uint_eq(list.at[1].bytes, 5 * (CHUNK + REDIS_FOOTER));
}
END_TEST

/* The same again, by processes that know nothing of what was. */
START_TEST(handles_that_start_again)
{
	for (uint64_t n = 0; n < 8; n++)
		ck_assert_int_eq(put(0, "a", n), KVT_OK);
	open_again();
	for (uint64_t n = 8; n < 16; n++)
		ck_assert_int_eq(put(1, "a", n), KVT_OK);
	ck_assert_uint_eq(existing(0, 16), ROOM);
	ck_assert_uint_eq(existing(6, 16), ROOM);
	ck_assert_int_eq(rig_get(&rig, 0, 6, CHUNK), KVT_OK);
}
END_TEST

/* Of two prompts the older loses its end, not its beginning. */
START_TEST(ends_of_prompts_leave_first)
{
	for (uint64_t prompt = 0; prompt < 2; prompt++) {
		for (uint64_t i = 0; i < 8; i++) {
			struct kvt_key parent = rig_key(100 * prompt + i - 1);
			struct kvt_item item = {.size = sizeof(item), .tokens = 256, .bytes = CHUNK};

			item.parent = i > 0 ? &parent : NULL;
			ck_assert_int_eq(rig_put_item(&rig, 0, 100 * prompt + i, &item), KVT_OK);
		}
		usleep(20000);
	}
	ck_assert_uint_eq(existing(100, 108), 8);
	ck_assert_uint_eq(existing(0, 2), 2);
	ck_assert_uint_eq(existing(2, 8), 0);
}
END_TEST

/* What is read stays; what is not read leaves. */
START_TEST(what_is_read_is_young)
{
	for (uint64_t n = 0; n < ROOM; n++)
		ck_assert_int_eq(put(0, "a", n), KVT_OK);
	later_ns = 61000 * MS;
	ck_assert_int_eq(rig_get(&rig, 1, 0, CHUNK), KVT_OK);
	rig_steps(&rig, 1, 20);
	later_ns += 1000 * MS;
	for (uint64_t n = 20; n < 25; n++)
		ck_assert_int_eq(put(0, "a", n), KVT_OK);
	ck_assert(exists(0));
	ck_assert_uint_eq(existing(1, 6), 0);
	ck_assert_uint_eq(existing(6, ROOM), ROOM - 6);
}
END_TEST

/* Redis evicted the account, or a handle without a quota wrote: it begins again, and holds from then on. */
START_TEST(an_account_that_is_gone)
{
	struct kvt_tenant tenant = tenant_of("a");
	char name[REDIS_KEY_ROOM];

	for (uint64_t n = 0; n < ROOM; n++)
		ck_assert_int_eq(put(0, "a", n), KVT_OK);
	open_again();
	(void)redis_account_name(&rig.config.fingerprint, &tenant, name);
	ck_assert_int_eq(ask_key("DEL", name), 1);
	for (uint64_t n = 20; n < 40; n++)
		ck_assert_int_eq(put(1, "a", n), KVT_OK);
	ck_assert_uint_eq(existing(20, 40), ROOM);
	ck_assert_uint_eq(existing(0, ROOM), ROOM); /* until they leave by TTL or eviction */
}
END_TEST

/* What Redis evicted, or a TTL ended, is counted until it is old; never too little. */
START_TEST(what_redis_evicted_is_counted_too_long)
{
	for (uint64_t n = 0; n < ROOM; n++)
		ck_assert_int_eq(put(0, "a", n), KVT_OK);
	for (uint64_t n = 3; n < 6; n++)
		ck_assert_int_eq(ask_key("DEL", rig_name(&rig, n, 0)), 1);
	for (uint64_t n = 20; n < 20 + ROOM; n++) {
		ck_assert_int_eq(put(0, "a", n), KVT_OK);
		ck_assert_uint_le(existing(0, 20 + ROOM), ROOM);
	}
	ck_assert_uint_eq(existing(20, 20 + ROOM), ROOM);
}
END_TEST

START_TEST(what_is_past_its_ttl_is_not_counted)
{
	rig.config.l2_ttl_ns = 1000 * (uint64_t)MS;
	open_again();
	for (uint64_t n = 0; n < ROOM; n++)
		ck_assert_int_eq(put(0, "a", n), KVT_OK);
	later_ns = 200000 * MS;
	ck_assert_int_eq(put(0, "a", 20), KVT_OK);
	ck_assert_uint_eq(listed(0).at[0].chunks, 1);
	ck_assert_uint_eq(evicted(0), 0);
}
END_TEST

START_TEST(large_and_larger)
{
	uint64_t evictions, refusals;

	rig.config.l2_part_bytes = 65536;
	open_again();
	ck_assert_int_eq(put_sized(0, "a", 1, 3 * CHUNK), KVT_OK);
	ck_assert_int_eq(put_sized(0, "a", 2, 3 * CHUNK), KVT_OK);
	ck_assert_int_eq(put_sized(0, "a", 3, 3 * CHUNK), KVT_OK);
	ck_assert_int_eq(ask_key("EXISTS", rig_name(&rig, 1, 2)), 1);
	ck_assert_int_eq(put_sized(0, "a", 4, 3 * CHUNK), KVT_OK);
	ck_assert_int_eq(ask_key("EXISTS", rig_name(&rig, 1, 0)), 0);
	ck_assert_int_eq(ask_key("EXISTS", rig_name(&rig, 1, 2)), 0);
	ck_assert_int_eq(rig_get(&rig, 1, 2, 3 * CHUNK), KVT_OK);
	ck_assert_int_eq(put_sized(0, "a", 5, 12 * CHUNK), KVT_FULL);
	ck_assert_int_eq(rig_get(&rig, 1, 2, 3 * CHUNK), KVT_OK);
	rig.tiers[0]->ops->limited(rig.tiers[0], &evictions, &refusals);
	ck_assert_uint_eq(evictions, 1);
	ck_assert_uint_eq(refusals, 1);
}
END_TEST

/* Where no account can be kept nothing is stored, and what is there is read on. */
START_TEST(a_server_that_runs_no_scripts)
{
	ck_assert_int_eq(put(0, "a", 1), KVT_OK);
	(void)ask_server(4, (const char *const[]){"ACL", "SETUSER", "default", "-eval"});
	ck_assert_int_eq(put(0, "a", 2), KVT_FULL);
	ck_assert(strstr(rig.last_log, "protect.tenant_l2_bytes: NOPERM") != NULL);
	ck_assert(!exists(2));
	ck_assert_int_eq(rig_get(&rig, 1, 1, CHUNK), KVT_OK);
	(void)ask_server(4, (const char *const[]){"ACL", "SETUSER", "default", "+eval"});
	ck_assert_int_eq(put(0, "a", 2), KVT_OK);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("redis quota");

	if (!real_exists())
		return 77;
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, a_flood_leaves_others_alone);
	tcase_add_test(tcase, handles_that_start_again);
	tcase_add_test(tcase, ends_of_prompts_leave_first);
	tcase_add_test(tcase, what_is_read_is_young);
	tcase_add_test(tcase, an_account_that_is_gone);
	tcase_add_test(tcase, what_redis_evicted_is_counted_too_long);
	tcase_add_test(tcase, what_is_past_its_ttl_is_not_counted);
	tcase_add_test(tcase, large_and_larger);
	tcase_add_test(tcase, a_server_that_runs_no_scripts);
	tcase_set_timeout(tcase, 200);
	return run_tcase("redis quota", tcase);
}
