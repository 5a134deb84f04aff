/*
 * catalog_test.c - names in order, against a plain list; the file, whole, torn, grown and foreign.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bed.h"
#include "daemon/catalog.h"
#include "tests/unit/suite.h"

#define BUCKETS 5
#define KEYS    200

static struct kvt_surroundings surroundings;
static char folder[64], path[96], new_path[112];

static void ignore(void *self, uint32_t level, const char *line)
{
	(void)self;
	(void)level;
	(void)line;
}

static void setup(void)
{
	struct kvt_config config = {.log = ignore};

	kvt_surroundings_init(&surroundings, &config);
	strcpy(folder, "/tmp/kvt-catalog-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/names", folder);
	snprintf(new_path, sizeof(new_path), "%s.new", path);
}

static void teardown(void)
{
	unlink(path);
	unlink(new_path);
	ck_assert_int_eq(rmdir(folder), 0);
}

static enum kvt_status try_open(struct kvt_catalog **out, char *why)
{
	struct kvt_catalog_options options = {.path = path,
		.most = 100000,
		.most_bytes = 64 * MIB,
		.surroundings = &surroundings};

	return kvt_catalog_create(&options, why, out);
}

static struct kvt_catalog *opened(void)
{
	char why[KVT_REASON_BYTES] = "";
	struct kvt_catalog *c;

	ck_assert_msg(try_open(&c, why) == KVT_OK, "%s", why);
	return c;
}

static void note(struct kvt_catalog *c, const char *bucket, const char *key, uint64_t bytes)
{
	struct kvt_object_name name = name_of(bucket, key);

	kvt_catalog_note(c, &name, bytes);
}

static void forget(struct kvt_catalog *c, const char *bucket, const char *key)
{
	struct kvt_object_name name = name_of(bucket, key);

	kvt_catalog_forget(c, &name);
}

static void settle(struct kvt_catalog *c)
{
	while (kvt_catalog_step(c))
		;
}

/* The plain list: bytes of each name, 0: not there. */
struct plain {
	uint64_t bytes[BUCKETS][KEYS];
};

static void text_of(char text[16], char letter, size_t n)
{
	snprintf(text, 16, "%c%03d", letter, (int)n);
}

static void change(struct kvt_catalog *c, struct plain *p)
{
	size_t b = (size_t)lrand48() % BUCKETS, k = (size_t)lrand48() % KEYS;
	uint64_t bytes = 1 + (uint64_t)lrand48() % 1000;
	char bucket[16], key[16];

	text_of(bucket, 'b', b);
	text_of(key, 'k', k);
	if (lrand48() % 500 == 0) {
		kvt_catalog_forget_bucket(c, kvw_slice_of(bucket));
		memset(p->bytes[b], 0, sizeof(p->bytes[b]));
	} else if (lrand48() % 3 != 0) {
		note(c, bucket, key, bytes);
		p->bytes[b][k] = bytes;
	} else {
		forget(c, bucket, key);
		p->bytes[b][k] = 0;
	}
}

static void same_item(const struct kvt_catalog_item *item, size_t b, size_t k, uint64_t bytes)
{
	char bucket[16], key[16];

	text_of(bucket, 'b', b);
	text_of(key, 'k', k);
	ck_assert_str_eq(item->bucket, bucket);
	ck_assert_str_eq(item->key, key);
	ck_assert_uint_eq(item->bytes, bytes);
}

/* All of it, walked over in pieces of n. */
static void compare(struct kvt_catalog *c, const struct plain *p, size_t n)
{
	struct kvt_catalog_item *items = calloc(n, sizeof(*items)), last;
	struct kvt_catalog_stats stats;
	size_t have = 0, at = 0, names = 0;
	bool any = false;

	for (size_t b = 0; b < BUCKETS; b++)
		for (size_t k = 0; k < KEYS; k++) {
			if (p->bytes[b][k] == 0)
				continue;
			if (at == have) {
				have = kvt_catalog_walk(c, any ? &last : NULL, items, n);
				at = 0;
				ck_assert_uint_gt(have, 0);
			}
			same_item(&items[at], b, k, p->bytes[b][k]);
			last = items[at++];
			any = true;
			names++;
		}
	ck_assert_uint_eq(at, have);
	ck_assert_uint_eq(kvt_catalog_walk(c, any ? &last : NULL, items, n), 0);
	kvt_catalog_stats(c, &stats);
	ck_assert_uint_eq(stats.names, names);
	free(items);
}

START_TEST(random_names_as_in_a_plain_list_and_after_restarts)
{
	struct plain *p = calloc(1, sizeof(*p));
	struct kvt_catalog *c;

	setup();
	srand48(11);
	c = opened();
	for (int i = 0; i < 40000; i++) {
		change(c, p);
		if (lrand48() % 40 == 0)
			(void)kvt_catalog_step(c);
		if (i % 1000 == 0)
			compare(c, p, 1 + (size_t)lrand48() % 70);
		if (i % 7000 == 0) {
			kvt_catalog_destroy(c);
			c = opened();
			compare(c, p, 64);
		}
	}
	kvt_catalog_destroy(c);
	free(p);
	teardown();
}
END_TEST

static uint64_t file_size(void)
{
	struct stat st;

	return stat(path, &st) == 0 ? (uint64_t)st.st_size : 0;
}

START_TEST(the_file_does_not_grow_without_end)
{
	struct kvt_catalog_stats stats;
	struct kvt_catalog *c;
	char key[16];

	setup();
	c = opened();
	for (uint64_t i = 0; i < 200000; i++) {
		text_of(key, 'k', i % 50);
		note(c, "b", key, i + 1);
		if (i % 100 == 0)
			(void)kvt_catalog_step(c);
	}
	settle(c);
	kvt_catalog_stats(c, &stats);
	ck_assert_uint_eq(stats.names, 50);
	ck_assert_uint_le(file_size(), 100000);
	ck_assert_uint_le(stats.file_bytes, 100000);
	kvt_catalog_destroy(c);
	teardown();
}
END_TEST

START_TEST(a_torn_end_loses_the_last_name_only)
{
	struct kvt_catalog_item items[8];
	struct kvt_catalog *c;
	uint64_t whole;

	setup();
	c = opened();
	settle(c);
	note(c, "b", "one", 1);
	note(c, "b", "two", 2);
	note(c, "b", "zzz", 3);
	kvt_catalog_destroy(c);
	whole = file_size();
	for (uint64_t cut = 1; cut <= 20; cut++) {
		ck_assert_int_eq(truncate(path, (off_t)(whole - cut)), 0);
		c = opened();
		ck_assert_uint_eq(
			kvt_catalog_page(c, KVW_SLICE("b"), (struct kvw_slice){0}, items, 8), 2);
		ck_assert_str_eq(items[1].key, "two");
		note(c, "b", "zzz", 3); /* what comes later is found again */
		kvt_catalog_destroy(c);
		ck_assert_uint_eq(file_size(), whole);
	}
	teardown();
}
END_TEST

START_TEST(flipped_bits_are_noticed)
{
	struct kvt_catalog_item items[8];
	struct kvt_catalog *c;
	uint64_t whole;
	uint8_t byte;
	size_t n;
	int fd;

	setup();
	c = opened();
	settle(c);
	note(c, "b", "one", 1);
	note(c, "b", "two", 2);
	kvt_catalog_destroy(c);
	whole = file_size();
	for (uint64_t at = 16; at < whole; at++) {
		fd = open(path, O_RDWR);
		ck_assert_int_eq(pread(fd, &byte, 1, (off_t)at), 1);
		byte ^= 1;
		ck_assert_int_eq(pwrite(fd, &byte, 1, (off_t)at), 1);
		close(fd);
		c = opened();
		n = kvt_catalog_page(c, KVW_SLICE("b"), (struct kvw_slice){0}, items, 8);
		ck_assert_uint_lt(n, 2);
		if (n == 1)
			ck_assert_str_eq(items[0].key, "one");
		note(c, "b", "one", 1);
		note(c, "b", "two", 2);
		kvt_catalog_destroy(c);
		ck_assert_uint_eq(file_size(), whole);
	}
	teardown();
}
END_TEST

START_TEST(what_is_no_list_of_names_is_left_alone)
{
	char why[KVT_REASON_BYTES] = "", text[64] = "";
	struct kvt_catalog *c = NULL, *owner;
	int fd;

	setup();
	fd = open(path, O_RDWR | O_CREAT, 0600);
	ck_assert_int_eq(write(fd, "a person's letter, not ours", 27), 27);
	ck_assert_int_eq(try_open(&c, why), KVT_EFORMAT);
	ck_assert_ptr_null(c);
	ck_assert_int_eq(pread(fd, text, 63, 0), 27);
	ck_assert_str_eq(text, "a person's letter, not ours");
	close(fd);
	unlink(path);
	owner = opened();
	ck_assert_int_eq(try_open(&c, why), KVT_ELOCKED);
	settle(owner); /* the file has another inode by now */
	ck_assert_int_eq(try_open(&c, why), KVT_ELOCKED);
	kvt_catalog_destroy(owner);
	teardown();
}
END_TEST

static size_t names_in_file(void)
{
	struct kvt_catalog_stats stats;
	struct kvt_catalog *c = opened();

	kvt_catalog_stats(c, &stats);
	kvt_catalog_destroy(c);
	return (size_t)stats.names;
}

START_TEST(a_rewrite_that_failed_is_done_later)
{
	struct kvt_catalog *c;

	setup();
	c = opened();
	note(c, "b", "one", 1);
	unlink(path);
	ck_assert_int_eq(mkdir(path, 0700), 0); /* the new file cannot take the name */
	settle(c);
	note(c, "b", "two", 2);
	settle(c);
	ck_assert_int_eq(rmdir(path), 0);
	for (int i = 0; i < 1000 && file_size() == 0; i++) { /* a second later */
		settle(c);
		usleep(10000);
	}
	note(c, "b", "three", 3);
	kvt_catalog_destroy(c);
	ck_assert_uint_eq(names_in_file(), 3);
	c = opened();
	unlink(path);
	ck_assert_int_eq(mkdir(path, 0700), 0);
	for (uint64_t i = 0; i < 10000; i++) /* it has grown enough for another one */
		note(c, "b", "one", i + 2);
	settle(c);
	ck_assert_int_eq(rmdir(path), 0);
	kvt_catalog_destroy(c); /* the end waits for no second */
	ck_assert_uint_eq(names_in_file(), 3);
	teardown();
}
END_TEST

START_TEST(bounds_hold)
{
	struct kvt_catalog_options options = {
		.most = 10, .most_bytes = MIB, .surroundings = &surroundings};
	char why[KVT_REASON_BYTES], text[16], *longest = malloc(KVT_OBJECT_KEY_MOST + 1);
	struct kvt_catalog_stats stats;
	struct kvt_catalog *c;

	setup();
	ck_assert_int_eq(kvt_catalog_create(&options, why, &c), KVT_OK);
	for (size_t i = 0; i < 30; i++) {
		text_of(text, 'k', i);
		note(c, i < 10 ? "b" : text, text, 1);
	}
	kvt_catalog_stats(c, &stats);
	ck_assert_uint_eq(stats.names, 10);
	ck_assert_uint_eq(stats.buckets, 1);
	ck_assert_uint_eq(stats.unlisted, 20);
	note(c, "b", "k001", 7); /* one that is there may change */
	kvt_catalog_stats(c, &stats);
	ck_assert_uint_eq(stats.unlisted, 20);
	kvt_catalog_destroy(c);
	options.most = 100000;
	options.most_bytes = 100000;
	ck_assert_int_eq(kvt_catalog_create(&options, why, &c), KVT_OK);
	for (size_t i = 0; i < 1000; i++) {
		memset(longest, 'x', KVT_OBJECT_KEY_MOST);
		longest[KVT_OBJECT_KEY_MOST] = '\0';
		text_of(longest, 'k', i);
		longest[4] = 'x';
		note(c, "b", longest, 1);
	}
	kvt_catalog_stats(c, &stats);
	ck_assert_uint_le(stats.memory_bytes, 100000 + 1000);
	ck_assert_uint_gt(stats.names, 50);
	kvt_catalog_destroy(c);
	free(longest);
	teardown();
}
END_TEST

START_TEST(an_item_is_forgotten_unless_it_was_noted_again)
{
	struct kvt_catalog_item item;
	struct kvt_catalog *c;

	setup();
	c = opened();
	note(c, "b", "k", 5);
	ck_assert_uint_eq(kvt_catalog_walk(c, NULL, &item, 1), 1);
	note(c, "b", "k", 5);
	kvt_catalog_forget_item(c, &item);
	ck_assert_uint_eq(kvt_catalog_walk(c, NULL, &item, 1), 1);
	kvt_catalog_forget_item(c, &item);
	ck_assert_uint_eq(kvt_catalog_walk(c, NULL, &item, 1), 0);
	kvt_catalog_destroy(c);
	teardown();
}
END_TEST

int main(void)
{
	TCase *cases = tcase_create("catalog");

	tcase_set_timeout(cases, 60);
	tcase_add_test(cases, random_names_as_in_a_plain_list_and_after_restarts);
	tcase_add_test(cases, the_file_does_not_grow_without_end);
	tcase_add_test(cases, a_torn_end_loses_the_last_name_only);
	tcase_add_test(cases, flipped_bits_are_noticed);
	tcase_add_test(cases, what_is_no_list_of_names_is_left_alone);
	tcase_add_test(cases, a_rewrite_that_failed_is_done_later);
	tcase_add_test(cases, bounds_hold);
	tcase_add_test(cases, an_item_is_forgotten_unless_it_was_noted_again);
	return run_tcase("cache/daemon/catalog", cases);
}
