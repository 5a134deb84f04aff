/*
 * slots_test.c - slots of keys against the specification's vectors, maps of clusters as servers of
 * several versions send them, redirections; and that nothing hostile gets through.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "redis/slots.h"
#include "tests/unit/suite.h"

static const struct kvw_redis_node asked = {"asked.example", 7000};

static uint32_t slot(const char *key)
{
	return kvw_redis_slot(key, strlen(key));
}

/* --- slots ------------------------------------------------------------------------------------ */

START_TEST(keys_have_the_slots_of_the_specification)
{
	ck_assert_uint_eq(slot("123456789"), 0x31c3 % KVW_REDIS_SLOTS);
	ck_assert_uint_eq(slot("foo"), 12182);
	ck_assert_uint_eq(slot("bar"), 5061);
	ck_assert_uint_eq(slot("hello"), 866);
	ck_assert_uint_eq(slot("somekey"), 11058);
	ck_assert_uint_eq(slot(""), 0);
	ck_assert_uint_eq(kvw_redis_slot("\0\xff\x80{", 4), kvw_redis_slot("\0\xff\x80{", 4));
}
END_TEST

START_TEST(only_the_first_tag_that_is_not_empty_counts)
{
	ck_assert_uint_eq(slot("{user1000}.following"), slot("user1000"));
	ck_assert_uint_eq(slot("{user1000}.followers"), slot("user1000"));
	ck_assert_uint_eq(slot("foo{{bar}}zap"), slot("{bar"));
	ck_assert_uint_eq(slot("foo{bar}{zap}"), slot("bar"));
	ck_assert_uint_ne(slot("foo{}{bar}"), slot("bar")); /* an empty tag: the whole key */
	ck_assert_uint_eq(slot("foo{}{bar}"), 8363);
	ck_assert_uint_ne(slot("foo{bar"), slot("bar"));
	ck_assert_uint_ne(slot("foo}bar{"), slot("bar"));
}
END_TEST

/* --- maps ------------------------------------------------------------------------------------- */

/* A reply, one digit of depth and a text per element: "20", "2100", "3host", "3port"; "3" alone:
 * nil. */
static enum kvw_err read_map(struct kvw_redis_slot_map *map, const char *const *texts, size_t n)
{
	struct kvw_redis_element *elements = calloc(n + 1, sizeof(*elements));
	enum kvw_err status;

	for (size_t i = 0; i < n; i++) {
		elements[i].depth = (uint32_t)(texts[i][0] - '0');
		if (texts[i][1] == '\0')
			continue;
		elements[i].data = strdup(texts[i][1] == '!' ? "" : texts[i] + 1);
		elements[i].len = strlen(elements[i].data);
	}
	status = kvw_redis_slot_map_read(map, elements, n, &asked);
	for (size_t i = 0; i < n; i++)
		free(elements[i].data);
	free(elements);
	return status;
}

#define READ(map, ...)                                                                             \
	read_map(map, (const char *const[]){__VA_ARGS__},                                          \
		sizeof((const char *const[]){__VA_ARGS__}) / sizeof(const char *))

static struct kvw_redis_slot_map *map;

static void setup(void)
{
	map = malloc(sizeof(*map));
	ck_assert_ptr_nonnull(map);
	memset(map, 0xa5, sizeof(*map));
}

static void teardown(void)
{
	free(map);
}

static void check_owner(uint32_t of, const char *host, uint16_t port)
{
	ck_assert_uint_lt(map->owner[of], map->master_count);
	ck_assert_str_eq(map->nodes[map->owner[of]].host, host);
	ck_assert_uint_eq(map->nodes[map->owner[of]].port, port);
}

START_TEST(a_map_names_owners_and_replicas)
{
	ck_assert_int_eq(READ(map, "20", "25460", "3127.0.0.1", "330001", "3id-a", "3127.0.0.1",
				 "330004", "3id-b", "25461", "210922", "3127.0.0.2", "330001",
				 "3id-c", "210923", "216383", "3127.0.0.1", "330003", "3id-d"),
		KVW_OK);
	ck_assert_uint_eq(map->covered, KVW_REDIS_SLOTS);
	ck_assert_uint_eq(map->master_count, 3);
	ck_assert_uint_eq(map->node_count, 4);
	check_owner(0, "127.0.0.1", 30001);
	check_owner(5460, "127.0.0.1", 30001);
	check_owner(5461, "127.0.0.2", 30001);
	check_owner(10923, "127.0.0.1", 30003);
	check_owner(16383, "127.0.0.1", 30003);
	ck_assert_uint_eq(map->nodes[3].port, 30004);
}
END_TEST

START_TEST(a_server_of_several_ranges_is_one_and_gaps_have_no_owner)
{
	ck_assert_int_eq(READ(map, "20", "20", "3h", "31", "3x", "22", "22", "3h", "31", "3x", "24",
				 "24", "3h", "32", "3y"),
		KVW_OK);
	ck_assert_uint_eq(map->node_count, 2);
	ck_assert_uint_eq(map->covered, 3);
	ck_assert_uint_eq(map->owner[0], map->owner[2]);
	ck_assert_uint_ne(map->owner[0], map->owner[4]);
	ck_assert_uint_eq(map->owner[1], KVW_REDIS_NO_OWNER);
	ck_assert_uint_eq(map->owner[16383], KVW_REDIS_NO_OWNER);
}
END_TEST

START_TEST(a_server_that_does_not_know_its_host_is_the_one_asked)
{
	ck_assert_int_eq(READ(map, "20", "20", "3", "330001", "3id", "21", "21", "3!", "330002",
				 "3id", "22", "22", "3?", "330003", "3id", "23", "23", "3?",
				 "330004", "3id", "4ip", "410.0.0.4", "24", "24", "3name.example",
				 "330005", "3id", "4ip", "410.0.0.5"),
		KVW_OK);
	check_owner(0, asked.host, 30001);
	check_owner(1, asked.host, 30002);
	check_owner(2, asked.host, 30003);
	check_owner(3, "10.0.0.4", 30004);
	check_owner(4, "name.example", 30005);
}
END_TEST

START_TEST(a_server_without_an_endpoint_owns_nothing)
{
	ck_assert_int_eq(READ(map, "20", "25", "3h", "30", "3id", "26", "29", "3h", "37"), KVW_OK);
	ck_assert_uint_eq(map->owner[5], KVW_REDIS_NO_OWNER);
	check_owner(6, "h", 7);
	ck_assert_uint_eq(map->covered, 4);
}
END_TEST

START_TEST(a_cluster_without_slots_is_an_empty_map)
{
	ck_assert_int_eq(kvw_redis_slot_map_read(map, NULL, 0, &asked), KVW_OK);
	ck_assert_uint_eq(map->node_count, 0);
	ck_assert_uint_eq(map->covered, 0);
}
END_TEST

START_TEST(replies_that_make_no_sense_are_refused)
{
	ck_assert_int_eq(READ(map, "1OK"), KVW_EPROTO);
	ck_assert_int_eq(READ(map, "20"), KVW_EPROTO);
	ck_assert_int_eq(READ(map, "20", "3h", "31", "3id"), KVW_EPROTO);
	ck_assert_int_eq(READ(map, "20", "216384", "3h", "31", "3id"), KVW_EPROTO);
	ck_assert_int_eq(READ(map, "25", "24", "3h", "31", "3id"), KVW_EPROTO);
	ck_assert_int_eq(READ(map, "2-1", "24", "3h", "31", "3id"), KVW_EPROTO);
	ck_assert_int_eq(READ(map, "2", "2", "3h", "31", "3id"), KVW_EPROTO);
	ck_assert_int_eq(READ(map, "20", "24", "3h"), KVW_EPROTO);
	ck_assert_int_eq(READ(map, "20", "24", "3h", "3"), KVW_EPROTO);
	ck_assert_int_eq(READ(map, "20", "24", "3h", "365536", "3id"), KVW_EPROTO);
	ck_assert_int_eq(READ(map, "20", "24", "3h h", "31", "3id"), KVW_EPROTO);
	ck_assert_int_eq(READ(map, "20", "24", "4h", "41"), KVW_EPROTO);
	/* one slot twice */
	ck_assert_int_eq(READ(map, "20", "24", "3h", "31", "3id", "24", "25", "3h", "32", "3id"),
		KVW_EPROTO);
}
END_TEST

/* n masters of one slot each, and a replica of each if asked for. */
static enum kvw_err read_many(uint32_t n, bool replicas)
{
	size_t per = replicas ? 8 : 5;
	const char **texts = calloc(n * per, sizeof(*texts));
	char(*made)[4][16] = calloc(n, sizeof(*made));
	enum kvw_err status;

	for (uint32_t i = 0; i < n; i++) {
		const char **t = texts + i * per;

		snprintf(made[i][0], sizeof(made[i][0]), "2%u", i);
		snprintf(made[i][1], sizeof(made[i][1]), "3%u", 1000 + i);
		snprintf(made[i][2], sizeof(made[i][2]), "3%u", 9000 + i);
		t[0] = t[1] = made[i][0];
		t[2] = "3h", t[3] = made[i][1], t[4] = "3id";
		if (replicas)
			t[5] = "3h", t[6] = made[i][2], t[7] = "3id";
	}
	status = read_map(map, texts, n * per);
	free(texts);
	free(made);
	return status;
}

START_TEST(more_servers_than_there_is_room_for)
{
	ck_assert_int_eq(read_many(KVW_REDIS_SERVERS, true), KVW_OK);
	ck_assert_uint_eq(map->master_count, KVW_REDIS_SERVERS);
	ck_assert_uint_eq(map->node_count, KVW_REDIS_SERVERS);
	ck_assert_int_eq(read_many(200, true), KVW_OK); /* replicas as far as there is room */
	ck_assert_uint_eq(map->master_count, 200);
	ck_assert_uint_eq(map->node_count, KVW_REDIS_SERVERS);
	ck_assert_int_eq(read_many(KVW_REDIS_SERVERS + 1, false), KVW_ELIMIT);
}
END_TEST

/* Random elements, some of them plausible: no crash, no owner outside the table. */
START_TEST(nothing_random_breaks_the_reader)
{
	static const char *const parts[] = {"20", "21", "2100", "216383", "3h", "31", "3::1", "3?",
		"3", "3!", "4ip", "410.0.0.1", "1OK", "2", "399999", "3id", "416", "4"};
	size_t n_parts = sizeof(parts) / sizeof(parts[0]);
	uint64_t state = 88172645463325252u;
	size_t good = 0;

	for (int round = 0; round < 20000; round++) {
		const char *texts[12];
		size_t n;

		state ^= state << 13, state ^= state >> 7, state ^= state << 17;
		n = state % 12;
		for (size_t i = 0; i < n; i++) {
			state ^= state << 13, state ^= state >> 7, state ^= state << 17;
			texts[i] = parts[state % n_parts];
		}
		if (read_map(map, texts, n) != KVW_OK)
			continue;
		good += map->node_count > 0;
		ck_assert_uint_le(map->master_count, map->node_count);
		for (uint32_t s = 0; s < KVW_REDIS_SLOTS; s += 97)
			ck_assert(map->owner[s] == KVW_REDIS_NO_OWNER ||
				  map->owner[s] < map->master_count);
	}
	ck_assert_uint_gt(good, 0);
}
END_TEST

/* --- redirections ----------------------------------------------------------------------------- */

static struct kvw_redis_redirect redirect(const char *text)
{
	size_t len = strlen(text) + 1;
	char *exact = malloc(len); /* so that a sanitizer sees a read past its end */
	struct kvw_redis_redirect out;

	memset(&out, 0xa5, sizeof(out));
	memcpy(exact, text, len);
	kvw_redis_redirect_read(exact, &asked, &out);
	free(exact);
	return out;
}

static void check_target(const char *text, enum kvw_redis_redirect_kind kind, uint32_t slot_number,
	const char *host, uint16_t port)
{
	struct kvw_redis_redirect r = redirect(text);

	ck_assert_msg(r.kind == kind, "%s: kind %d", text, (int)r.kind);
	ck_assert_uint_eq(r.slot, slot_number);
	ck_assert_str_eq(r.node.host, host);
	ck_assert_uint_eq(r.node.port, port);
}

START_TEST(redirections_name_a_server)
{
	check_target(
		"MOVED 3999 127.0.0.1:6381", KVW_REDIS_REDIRECT_MOVED, 3999, "127.0.0.1", 6381);
	check_target(
		"ASK 16383 node-3.example:1", KVW_REDIS_REDIRECT_ASK, 16383, "node-3.example", 1);
	check_target("MOVED 0 ::1:6381", KVW_REDIS_REDIRECT_MOVED, 0, "::1", 6381);
	check_target("MOVED 0 [fe80::1%lo]:6381", KVW_REDIS_REDIRECT_MOVED, 0, "fe80::1%lo", 6381);
	check_target("MOVED 7 :6381", KVW_REDIS_REDIRECT_MOVED, 7, asked.host, 6381);
	check_target("ASK 7 ?:6381", KVW_REDIS_REDIRECT_ASK, 7, asked.host, 6381);
	check_target("MOVED 7 h:9 more words", KVW_REDIS_REDIRECT_MOVED, 7, "h", 9);
}
END_TEST

START_TEST(other_errors_say_when_to_ask_again)
{
	ck_assert_int_eq(redirect("TRYAGAIN Multiple keys request").kind, KVW_REDIS_REDIRECT_LATER);
	ck_assert_int_eq(redirect("LOADING Redis is loading").kind, KVW_REDIS_REDIRECT_LATER);
	ck_assert_int_eq(
		redirect("CLUSTERDOWN Hash slot not served").kind, KVW_REDIS_REDIRECT_DOWN);
	ck_assert_int_eq(redirect("CLUSTERDOWN").kind, KVW_REDIS_REDIRECT_DOWN);
	ck_assert_int_eq(redirect("READONLY You can't write").kind, KVW_REDIS_REDIRECT_REPLICA);
	ck_assert_int_eq(redirect("MASTERDOWN Link with MASTER").kind, KVW_REDIS_REDIRECT_REPLICA);
	ck_assert_int_eq(redirect("ERR unknown command").kind, KVW_REDIS_REDIRECT_NONE);
	ck_assert_int_eq(redirect("READONLYX").kind, KVW_REDIS_REDIRECT_NONE);
	ck_assert_int_eq(redirect("").kind, KVW_REDIS_REDIRECT_NONE);
}
END_TEST

START_TEST(redirections_that_cannot_be_understood_are_errors)
{
	static const char *const texts[] = {"MOVED", "ASK", "MOVED ", "ASK 1", "ASK 1 ",
		"MOVED x h:1", "MOVED 16384 h:1", "MOVED -1 h:1", "MOVED 1 h",
		"MOVED 1 h:", "MOVED 1 h:0", "MOVED 1 h:65536", "MOVED 1 h:1x", "MOVED 1  h:1",
		"MOVED 1 h/x:1", "MOVED 1h:1", "MOVED 1 [h:1"};
	char text[600] = "MOVED 1 ";

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		ck_assert_msg(redirect(texts[i]).kind == KVW_REDIS_REDIRECT_NONE, "%s", texts[i]);
	memset(text + 8, 'h', 300);
	memcpy(text + 308, ":1", 3);
	ck_assert_int_eq(redirect(text).kind, KVW_REDIS_REDIRECT_NONE);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("slots");
	TCase *keys = tcase_create("keys"), *maps = tcase_create("maps");
	TCase *errors = tcase_create("errors");

	tcase_add_test(keys, keys_have_the_slots_of_the_specification);
	tcase_add_test(keys, only_the_first_tag_that_is_not_empty_counts);
	suite_add_tcase(suite, keys);
	tcase_add_checked_fixture(maps, setup, teardown);
	tcase_add_test(maps, a_map_names_owners_and_replicas);
	tcase_add_test(maps, a_server_of_several_ranges_is_one_and_gaps_have_no_owner);
	tcase_add_test(maps, a_server_that_does_not_know_its_host_is_the_one_asked);
	tcase_add_test(maps, a_server_without_an_endpoint_owns_nothing);
	tcase_add_test(maps, a_cluster_without_slots_is_an_empty_map);
	tcase_add_test(maps, replies_that_make_no_sense_are_refused);
	tcase_add_test(maps, more_servers_than_there_is_room_for);
	tcase_add_test(maps, nothing_random_breaks_the_reader);
	tcase_set_timeout(maps, 60);
	suite_add_tcase(suite, maps);
	tcase_add_test(errors, redirections_name_a_server);
	tcase_add_test(errors, other_errors_say_when_to_ask_again);
	tcase_add_test(errors, redirections_that_cannot_be_understood_are_errors);
	suite_add_tcase(suite, errors);
	return run_suite(suite);
}
