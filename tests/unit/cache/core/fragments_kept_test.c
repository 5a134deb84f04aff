/*
 * fragments_kept_test.c - fragments on disk: what comes back after a restart, a kill, or with flipped bytes is what was
 * computed, or a miss.
 */
#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "paged.h"
#include "support.h"
#include "tests/unit/suite.h"

#define FRAGMENTS 12u

static char folder[64];
static uint32_t tokens[TOKENS];
static uint64_t chance_state = 7;

static uint32_t chance(uint32_t below)
{
	chance_state = chance_state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(chance_state >> 33) % below;
}

static void quiet(void *self, uint32_t level, const char *line)
{
	(void)self;
	(void)level;
	(void)line;
}

static struct kvt *open_cache(void)
{
	struct kvt_config config;
	struct kvt *k;

	kvt_config_init(&config, sizeof(config));
	config.l1_capacity = 16u << 20;
	config.nvme_path = folder;
	config.nvme_capacity = 64u << 20;
	config.nvme_sync_ns = 1000000;
	config.log = quiet;
	ck_assert_int_eq(kvt_open(&config, &k), KVT_OK);
	return k;
}

static struct kvt_fragments *fragments_in(struct kvt *k, uint8_t mark)
{
	struct kvt_fragments_config c;
	struct kvt_fragments *f;

	kvt_fragments_config_init(&c, sizeof(c));
	c.model = paged_model;
	c.model_bytes = strlen(paged_model);
	c.layers = LAYERS;
	c.heads = HEADS;
	c.head = c.value_head = HEAD;
	c.chunk_tokens = CHUNK_TOKENS;
	c.fingerprint.bytes[0] = mark;
	ck_assert_int_eq(kvt_fragments_create(k, &c, &f, NULL), KVT_OK);
	return f;
}

static struct kvt_fragment_text text_of(uint32_t number, uint64_t position)
{
	for (uint32_t i = 0; i < TOKENS; i++)
		tokens[i] = number * 100003 + i;
	return (struct kvt_fragment_text){
		.size = sizeof(struct kvt_fragment_text), .tokens = tokens, .count = TOKENS, .position = position};
}

static void store(struct kvt_fragments *f, uint32_t number)
{
	struct kvt_fragment_text text = text_of(number, 7 * number);
	struct paged p;

	paged_init(&p, ROWS, KVT_FRAGMENT_F32);
	p.fragment = number;
	compute(&p, 3, text.position);
	ck_assert_int_eq(kvt_fragments_store(f, &text, &p.place, NULL), KVT_OK);
	paged_finish(&p);
}

/* Loads it somewhere else, checks all that is in place, and returns how many tokens that is. */
static size_t load(struct kvt_fragments *f, uint32_t number)
{
	struct kvt_fragment_text text = text_of(number, 1000);
	struct paged p;
	size_t loaded = 0;

	paged_init(&p, HEADS_FIRST, KVT_FRAGMENT_F32);
	p.fragment = number;
	p.place.slot = 9;
	if (kvt_fragments_load(f, &text, 0, &p.place, &loaded) == KVT_OK)
		check_place(&p, 9, text.position, 0, (uint32_t)loaded);
	else
		ck_assert_uint_eq(loaded, 0);
	paged_finish(&p);
	return loaded;
}

static size_t load_all(uint8_t mark)
{
	struct kvt *k = open_cache();
	struct kvt_fragments *f = fragments_in(k, mark);
	size_t tokens_there = 0;

	for (uint32_t i = 0; i < FRAGMENTS; i++)
		tokens_there += load(f, i);
	kvt_fragments_destroy(f);
	kvt_close(k);
	return tokens_there;
}

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *at)
{
	(void)info;
	(void)kind;
	(void)at;
	return remove(path);
}

static void make_folder(void)
{
	strcpy(folder, "/tmp/kvt-fragments-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(folder));
}

static void remove_folder(void)
{
	nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static void store_all(void)
{
	struct kvt *k = open_cache();
	struct kvt_fragments *f = fragments_in(k, 1);

	for (uint32_t i = 0; i < FRAGMENTS; i++)
		store(f, i);
	ck_assert_int_eq(kvt_drain(k, 60 * SECOND), KVT_OK);
	kvt_fragments_destroy(f);
	kvt_close(k);
}

START_TEST(fragments_outlive_a_restart_for_their_own_model)
{
	store_all();
	ck_assert_uint_eq(load_all(2), 0);
	ck_assert_uint_eq(load_all(1), FRAGMENTS * TOKENS);
}
END_TEST

/* A process that stores is killed at a moment of its own choosing, the kernel's. */
START_TEST(a_killed_process_leaves_right_fragments_or_none)
{
	for (int round = 0; round < 4; round++) {
		pid_t child = fork();

		ck_assert_int_ge(child, 0);
		if (child == 0) {
			struct kvt *k = open_cache();
			struct kvt_fragments *f = fragments_in(k, 1);

			for (uint32_t i = 0;; i++)
				store(f, i % FRAGMENTS);
		}
		usleep(20000 + chance(150000));
		kill(child, SIGKILL);
		ck_assert_int_eq(waitpid(child, NULL, 0), child);
		(void)load_all(1); /* checks every byte that it finds */
	}
}
END_TEST

/* --- flipped bits ----------------------------------------------------------------------------- */

static size_t flipped;

/* Flips some bytes in the second half of a data file's pages, where chunks lie. */
static int flip(const char *path, const struct stat *info, int kind, struct FTW *at)
{
	int fd;

	(void)at;
	if (kind != FTW_F || info->st_size < 65536)
		return 0;
	fd = open(path, O_RDWR | O_CLOEXEC);
	ck_assert_int_ge(fd, 0);
	for (int i = 0; i < 400; i++) {
		off_t where = (off_t)chance((uint32_t)(info->st_size < 4 << 20 ? info->st_size : 4 << 20));
		uint8_t byte;

		if (pread(fd, &byte, 1, where) != 1)
			continue;
		byte ^= (uint8_t)(1u << chance(8));
		ck_assert_int_eq(pwrite(fd, &byte, 1, where), 1);
		flipped++;
	}
	close(fd);
	return 0;
}

START_TEST(flipped_bits_are_misses)
{
	store_all();
	ck_assert_int_eq(nftw(folder, flip, 16, FTW_PHYS), 0);
	ck_assert_uint_gt(flipped, 0);
	ck_assert_uint_lt(load_all(1), FRAGMENTS * TOKENS); /* and every byte of what is loaded is right */
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("kept");

	tcase_add_checked_fixture(tcase, make_folder, remove_folder);
	tcase_set_timeout(tcase, 120);
	tcase_add_test(tcase, fragments_outlive_a_restart_for_their_own_model);
	tcase_add_test(tcase, a_killed_process_leaves_right_fragments_or_none);
	tcase_add_test(tcase, flipped_bits_are_misses);
	return run_tcase("fragments", tcase);
}
