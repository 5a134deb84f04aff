/*
 * real_test.c - the Redis tier over the real client and a redis-server of its own: bits that
 * flip in the server, a server that is stopped, killed, or full.
 */
#include <check.h>
#include <signal.h>
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

#define MS 1000000ll

static struct redis_rig rig;
static struct real server;
static char url[160];

static void open_both(void)
{
	for (int i = 0; i < RIG_HANDLES; i++)
		ck_assert_int_eq(rig_open(&rig, i), KVT_OK);
}

static void setup(void)
{
	real_init(&server);
	real_start(&server, false);
	rig_init(&rig);
	rig.real = 1;
	(void)snprintf(url, sizeof(url), "unix://%s", server.socket);
	rig.config.l2_url = url;
	rig.config.l2_missing_ns = 1;
	rig.config.l2_deadline_ns = 10000 * (uint64_t)MS;
	open_both();
}

static void teardown(void)
{
	rig_finish(&rig);
	real_finish(&server);
}

/* --- looking into the server -------------------------------------------------------------------- */

/* Sends one command and returns the number that answers it (":N"). */
static long ask_server(
	const char *verb, const char *key, const char *middle, const void *last, size_t last_len)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	char text[600], reply[64];
	int words = 2 + (middle != NULL) + (last != NULL);
	int n = snprintf(text, sizeof(text), "*%d\r\n$%zu\r\n%s\r\n$%zu\r\n%s\r\n", words,
		strlen(verb), verb, strlen(key), key);
	ssize_t got;

	if (middle != NULL)
		n += snprintf(text + n, sizeof(text) - (size_t)n, "$%zu\r\n%s\r\n", strlen(middle),
			middle);
	if (last != NULL) {
		n += snprintf(text + n, sizeof(text) - (size_t)n, "$%zu\r\n", last_len);
		memcpy(text + n, last, last_len);
		n += (int)last_len;
		memcpy(text + n, "\r\n", 2);
		n += 2;
	}
	(void)snprintf(address.sun_path, sizeof(address.sun_path), "%s", server.socket);
	ck_assert_int_eq(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	ck_assert_int_eq(write(fd, text, (size_t)n), n);
	got = read(fd, reply, sizeof(reply) - 1);
	ck_assert_int_gt(got, 0);
	reply[got] = '\0';
	ck_assert_msg(reply[0] == ':', "%s", reply);
	close(fd);
	return strtol(reply + 1, NULL, 10);
}

static long length_of(const char *name)
{
	return ask_server("STRLEN", name, NULL, NULL, 0);
}

/* Flips one bit of a value, whose byte there is known. */
static void flip(const char *name, long at, uint8_t was)
{
	uint8_t now = was ^ (uint8_t)(1u << (at % 8));
	char offset[24];

	(void)snprintf(offset, sizeof(offset), "%ld", at);
	ck_assert_int_gt(ask_server("SETRANGE", name, offset, &now, 1), 0);
}

/* A byte that differs from what is there, without knowing it: one of two values does. */
static void change(const char *name, long at, uint8_t to)
{
	char offset[24];

	(void)snprintf(offset, sizeof(offset), "%ld", at);
	ck_assert_int_gt(ask_server("SETRANGE", name, offset, &to, 1), 0);
}

/* --- tests --------------------------------------------------------------------------------------- */

START_TEST(written_found_read)
{
	const uint64_t sizes[] = {1, 5000, 1 << 20, (4 << 20) - 1, 4 << 20, (4 << 20) + 1, 9 << 20};

	for (uint64_t i = 0; i < 7; i++)
		ck_assert_int_eq(rig_put(&rig, 0, i, sizes[i]), KVT_OK);
	ck_assert_uint_eq(rig_probe(&rig, 1, 0, 8), 7);
	for (uint64_t i = 0; i < 7; i++)
		ck_assert_int_eq(rig_get(&rig, 1, i, sizes[i]), KVT_OK);
	for (uint64_t n = 100; n < 1400; n++)
		ck_assert_int_eq(rig_put(&rig, 0, n, 64), KVT_OK);
	ck_assert_uint_eq(rig_probe(&rig, 1, 100, 2000), 1300);
	ck_assert_int_eq(rig_erase(&rig, 1, 6), KVT_OK);
	ck_assert_int_eq(length_of(rig_name(&rig, 6, 0)), 0);
	ck_assert_int_eq(length_of(rig_name(&rig, 6, 2)), 0);
	ck_assert_int_eq(rig_flush(&rig, 1), KVT_OK);
	ck_assert_int_eq(rig_get(&rig, 0, 6, 9 << 20), KVT_MISS);
}
END_TEST

/* Handle 1 found it wrong: it unlinks it, though no caller waits for that. */
static void must_leave(uint64_t n)
{
	for (int i = 0; i < 1000 && length_of(rig_name(&rig, n, 0)) != 0; i++)
		rig_steps(&rig, 1, 1);
	ck_assert_int_eq(length_of(rig_name(&rig, n, 0)), 0);
}

/* Every byte of the footer, and of the payload some that are chosen by a seed. */
START_TEST(flipped_in_redis)
{
	const uint64_t bytes = 100000;
	unsigned misses = 0;

	for (long at = 0; at < (long)REDIS_FOOTER; at++) {
		for (unsigned to = 0; to < 2; to++) {
			enum kvt_status status;

			ck_assert_int_eq(rig_put(&rig, 0, 1, bytes), KVT_OK);
			change(rig_name(&rig, 1, 0), (long)bytes + at, to == 0 ? 0x00 : 0xa5);
			status = rig_get(&rig, 1, 1, bytes);
			misses += status != KVT_OK;
			ck_assert(status == KVT_OK || status == KVT_ECORRUPT);
			if (status != KVT_OK)
				must_leave(1);
		}
	}
	ck_assert_uint_ge(misses, REDIS_FOOTER); /* of two values one at least was another */
	srandom(7);
	for (int i = 0; i < 300; i++) {
		long at = random() % (long)bytes;

		ck_assert_int_eq(rig_put(&rig, 0, 1, bytes), KVT_OK);
		flip(rig_name(&rig, 1, 0), at, rig_byte(1, (uint64_t)at));
		ck_assert_int_eq(rig_get(&rig, 1, 1, bytes), KVT_ECORRUPT);
		must_leave(1);
	}
}
END_TEST

START_TEST(stopped)
{
	enum kvt_status status;
	int64_t begun;

	rig_finish(&rig);
	rig.config.l2_deadline_ns = 2000 * (uint64_t)MS;
	open_both();
	ck_assert_int_eq(rig_put(&rig, 0, 1, 1 << 20), KVT_OK);
	ck_assert_int_eq(kill(server.pid, SIGSTOP), 0);
	begun = rig.clock.now_ns(&rig);
	ck_assert_int_eq(rig_get(&rig, 0, 1, 1 << 20), KVT_EIO);
	ck_assert_int_ge(rig.clock.now_ns(&rig) - begun, 1990 * MS);
	ck_assert_int_eq(
		rig_get_by(&rig, 0, 1, 1 << 20, rig.clock.now_ns(&rig) + 1000 * MS), KVT_EIO);
	ck_assert_int_eq(rig_put(&rig, 0, 2, 1 << 20), KVT_EIO);
	ck_assert_int_eq(kill(server.pid, SIGCONT), 0);
	status = rig_get(&rig, 0, 1, 1 << 20);
	for (int i = 0; i < 6000 && status != KVT_OK; i++) {
		rig_steps(&rig, 0, 10);
		status = rig_get(&rig, 0, 1, 1 << 20);
	}
	ck_assert_int_eq(status, KVT_OK);
}
END_TEST

START_TEST(killed_and_back)
{
	rig_finish(&rig);
	rig.config.l2_deadline_ns = 2000 * (uint64_t)MS;
	open_both();
	ck_assert_int_eq(rig_put(&rig, 0, 1, 1000), KVT_OK);
	real_stop(&server);
	ck_assert_int_eq(rig_get(&rig, 0, 1, 1000), KVT_EIO);
	ck_assert_int_eq(rig_erase(&rig, 0, 1), KVT_EIO);
	real_start(&server, false);
	for (int i = 0; i < 100 && rig_put(&rig, 0, 2, 1000) != KVT_OK; i++)
		rig_steps(&rig, 0, 20);
	ck_assert_int_eq(rig_get(&rig, 1, 2, 1000), KVT_OK);
	ck_assert_int_eq(rig_get(&rig, 1, 1, 1000), KVT_MISS);
}
END_TEST

START_TEST(full)
{
	enum kvt_status status = KVT_OK;
	uint64_t n = 0;

	rig_finish(&rig);
	real_stop(&server);
	(void)snprintf(server.arguments, sizeof(server.arguments),
		"--maxmemory 20mb --maxmemory-policy noeviction");
	real_start(&server, false);
	open_both();
	while (status == KVT_OK && n < 200)
		status = rig_put(&rig, 0, n++, 1 << 20);
	ck_assert_int_eq(status, KVT_FULL);
	ck_assert_uint_ge(n, 3);
	ck_assert_int_eq(rig_get(&rig, 1, 0, 1 << 20), KVT_OK);
	ck_assert_int_eq(rig_erase(&rig, 0, 0), KVT_OK);
	ck_assert_uint_eq(rig_probe(&rig, 0, 0, 1), 0);
	ck_assert_int_eq(rig_get(&rig, 0, 0, 1 << 20), KVT_MISS);
}
END_TEST

/* The table of generations. */
struct table {
	struct kvt_table_ask ask;
	uint8_t next;
};

static struct table table;

/* Asks by what is known, and gives this slot another generation. */
static void ask_table(int handle, uint32_t raise)
{
	table.ask.raise = raise;
	memset(table.ask.fresh, ++table.next, sizeof(table.ask.fresh));
	ck_assert_int_eq(rig_ask_table(&rig, handle, &table.ask), KVT_OK);
}

/* The answer is known from now on. */
static void know(void)
{
	memcpy(table.ask.id, table.ask.now, sizeof(table.ask.id));
	for (uint32_t i = 0; i < table.ask.change_count; i++)
		table.ask.after = table.ask.changes[i].number;
}

START_TEST(a_table_and_its_changes)
{
	table = (struct table){.next = 0};
	ask_table(0, KVT_SLOT_NONE);
	ck_assert_uint_eq(table.ask.change_count, 0);
	ck_assert_uint_eq(table.ask.now[5], 1);
	know();
	ask_table(0, 70);
	ck_assert_uint_eq(table.ask.change_count, 1);
	ck_assert_uint_eq(table.ask.now[5], 1);
	ask_table(0, KVT_SLOTS - 1); /* what a handle does not know yet comes with it */
	ck_assert_uint_eq(table.ask.change_count, 2);
	ck_assert_uint_eq(table.ask.changes[0].slot, 70);
	ck_assert_uint_eq(table.ask.changes[1].slot, KVT_SLOTS - 1);
	ck_assert_uint_gt(table.ask.changes[1].number, table.ask.changes[0].number);
	ck_assert_uint_eq(table.ask.sum, table.ask.changes[0].number + table.ask.changes[1].number);
	know();
	ask_table(1, 70); /* once more: the slot has one number, the last */
	ck_assert_uint_eq(table.ask.change_count, 1);
	ck_assert_uint_gt(table.ask.changes[0].number, table.ask.after);
	table.ask.after = 0;
	ask_table(1, KVT_SLOT_NONE);
	ck_assert_uint_eq(table.ask.change_count, 2);
	ck_assert(!table.ask.more);
	ck_assert_uint_eq(table.ask.sum, table.ask.changes[0].number + table.ask.changes[1].number);
	know();
	table.ask.after = KVT_NUMBER_LOST; /* the asker's sum is another one */
	ask_table(0, KVT_SLOT_NONE);
	ck_assert_uint_eq(table.ask.now[5], table.next);
	ck_assert_uint_eq(table.ask.change_count + table.ask.sum, 0);
}
END_TEST

START_TEST(a_table_that_is_lost)
{
	table = (struct table){.next = 0};
	ask_table(0, 1);
	know();
	ask_table(0, 2);
	ck_assert_int_eq(ask_server("DEL", "kvt1:generations", NULL, NULL, 0), 1);
	ask_table(0, KVT_SLOT_NONE);
	ck_assert_uint_eq(table.ask.now[5], 3);
	ck_assert_uint_eq(table.ask.change_count, 0);
	know();
	table.ask.after = 9; /* a master came back without its last changes */
	ask_table(0, KVT_SLOT_NONE);
	ck_assert_uint_eq(table.ask.now[5], 4);
	(void)ask_server("DEL", "kvt1:generations", NULL, NULL, 0);
	(void)ask_server("LPUSH", "kvt1:generations", "x", NULL, 0); /* something else under its name */
	table.ask.after = 0;
	ask_table(0, 3);
	ck_assert_uint_eq(table.ask.now[5], 5);
	ck_assert_uint_eq(table.ask.change_count, 1);
}
END_TEST

/* More changes than one answer has. */
START_TEST(a_long_table)
{
	uint32_t count = 0, slots = KVT_CHANGES_MOST + 200;

	table = (struct table){.next = 0};
	for (uint32_t i = 0; i < slots; i++)
		ask_table(0, i);
	table.ask.after = 0;
	do {
		ask_table(1, KVT_SLOT_NONE);
		count += table.ask.change_count;
		know();
	} while (table.ask.more);
	ck_assert_uint_eq(count, slots);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("redis real");

	if (!real_exists())
		return 77;
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, written_found_read);
	tcase_add_test(tcase, flipped_in_redis);
	tcase_add_test(tcase, stopped);
	tcase_add_test(tcase, killed_and_back);
	tcase_add_test(tcase, full);
	tcase_add_test(tcase, a_table_and_its_changes);
	tcase_add_test(tcase, a_table_that_is_lost);
	tcase_add_test(tcase, a_long_table);
	tcase_set_timeout(tcase, 200);
	return run_tcase("redis real", tcase);
}
