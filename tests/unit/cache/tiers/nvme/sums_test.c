/*
 * sums_test.c - chunks that are summed while they are on their way: every bit counts, in whatever
 * order the operations end, and whatever becomes of one of them.
 */
#include <check.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "store.h"
#include "io/testing/test_disk.h"
#include "io/testing/test_faults.h"
#include "tiers/bytes.h"
#include "tiers/nvme/nvme.h"
#include "tests/unit/suite.h"

#define MORE (3u << 20) /* with what bytes_of() gives: four operations */
#define OPS  4u

static struct store s;
static struct kvt_disk *disk;
static struct kvt_faults *faults;
static struct kvt_io_layer layer;

static char said[512]; /* of a piece, last */

static void hear(void *self, uint32_t level, const char *line)
{
	(void)self;
	(void)level;
	if (strstr(line, "piece") != NULL)
		(void)snprintf(said, sizeof(said), "%s", line);
}

/* --- on real files ------------------------------------------------------------------------------ */

static void setup_files(void)
{
	store_init(&s);
	s.more_bytes = MORE;
	s.surroundings.log = hear;
	s.config.nvme_capacity = UINT64_C(1) << 30; /* data files of 16 MiB: a chunk lies in one */
	ck_assert_int_eq(store_open(&s), KVT_OK);
}

static void teardown_files(void)
{
	store_finish(&s);
}

/* Where the chunk that was written last begins. */
static uint64_t newest_chunk(int fd)
{
	uint64_t found = UINT64_MAX, newest = 0;
	uint8_t head[168];

	for (uint64_t at = 0; at + NVME_UNIT <= (16u << 20); at += NVME_UNIT) {
		ck_assert_int_eq(pread(fd, head, sizeof(head), (off_t)at), sizeof(head));
		if (memcmp(head, "kvtchunk", 8) != 0 || kvt_get64(head + 160) < newest)
			continue;
		newest = kvt_get64(head + 160);
		found = at;
	}
	ck_assert_uint_ne(found, UINT64_MAX);
	return found;
}

static void flip(int fd, uint64_t at, unsigned bit)
{
	uint8_t byte;

	ck_assert_int_eq(pread(fd, &byte, 1, (off_t)at), 1);
	byte ^= (uint8_t)(1u << bit % 8);
	ck_assert_int_eq(pwrite(fd, &byte, 1, (off_t)at), 1);
}

/* Puts chunk 1, flips a bit of its payload and reads it. */
static void must_find(int fd, uint64_t at, unsigned bit)
{
	char words[64];

	ck_assert_int_eq(store_put(&s, 1), KVT_OK);
	flip(fd, newest_chunk(fd) + NVME_PAGE + at, bit);
	ck_assert_msg(store_get(&s, 1) == KVT_ECORRUPT, "bit %u at %llu was not found", bit % 8,
		(unsigned long long)at);
	ck_assert_int_eq(store_get(&s, 1), KVT_MISS);
	(void)snprintf(words, sizeof(words), "piece %llu of %llu",
		(unsigned long long)(at / NVME_PIECE_BYTES + 1),
		(unsigned long long)nvme_piece_count(bytes_of(1) + MORE));
	ck_assert_msg(strstr(said, words) != NULL, "%s: said '%s'", words, said);
	/* Room is free once its removal is durable; without it a later chunk would lie in several runs. */
	ck_assert_int_eq(store_flush(&s), KVT_OK);
}

START_TEST(a_flipped_bit_is_found_in_any_piece)
{
	uint64_t bytes = bytes_of(1) + MORE;
	char path[512];
	unsigned n = 0;
	int fd;

	ck_assert_int_eq(store_put(&s, 2), KVT_OK); /* makes the file */
	store_path(&s, "data-00000", path, sizeof(path));
	fd = open(path, O_RDWR);
	ck_assert_int_ge(fd, 0);
	for (uint64_t from = 0; from < bytes; from += NVME_PIECE_BYTES) {
		uint64_t to = from + NVME_PIECE_BYTES < bytes ? from + NVME_PIECE_BYTES : bytes;

		must_find(fd, from, n++);
		must_find(fd, to - 1, n++);
	}
	ck_assert_uint_eq(store_stats(&s).corrupt, n);
	ck_assert_int_eq(store_put(&s, 1), KVT_OK);
	ck_assert_int_eq(store_get(&s, 1), KVT_OK);
	ck_assert_int_eq(store_get(&s, 2), KVT_OK);
	(void)close(fd);
}
END_TEST

/* Pages that are all right, but not at their places. */
START_TEST(pieces_that_changed_places_are_found)
{
	uint8_t *a = malloc(NVME_PIECE_BYTES), *b = malloc(NVME_PIECE_BYTES);
	char path[512];
	off_t first, second;
	int fd;

	ck_assert(a != NULL && b != NULL);
	ck_assert_int_eq(store_put(&s, 1), KVT_OK);
	store_path(&s, "data-00000", path, sizeof(path));
	fd = open(path, O_RDWR);
	ck_assert_int_ge(fd, 0);
	first = (off_t)newest_chunk(fd) + NVME_PAGE;
	second = first + 5 * (off_t)NVME_PIECE_BYTES;
	ck_assert_int_eq(pread(fd, a, NVME_PIECE_BYTES, first), NVME_PIECE_BYTES);
	ck_assert_int_eq(pread(fd, b, NVME_PIECE_BYTES, second), NVME_PIECE_BYTES);
	ck_assert_int_eq(pwrite(fd, b, NVME_PIECE_BYTES, first), NVME_PIECE_BYTES);
	ck_assert_int_eq(pwrite(fd, a, NVME_PIECE_BYTES, second), NVME_PIECE_BYTES);
	(void)close(fd);
	ck_assert_int_eq(store_get(&s, 1), KVT_ECORRUPT);
	free(a);
	free(b);
}
END_TEST

/* A chunk that is not what its put said any more does not get checksums that prove it. */
START_TEST(what_changed_in_memory_is_not_written)
{
	for (uint64_t at = 0; at < bytes_of(1) + MORE; at += NVME_PIECE_BYTES - 1) {
		struct wish *w = wish_new(&s, KVT_TIER_WRITE, 1, at % 3 * 4096);

		w->bytes[at] ^= 4;
		s.tier->ops->submit(s.tier, &w->request);
		ck_assert_int_eq(wish_wait(&s, w), KVT_ECORRUPT);
		wish_free(w);
		ck_assert(!store_has(&s, 1));
	}
	ck_assert_uint_eq(store_stats(&s).used, 0);
	ck_assert_int_eq(store_put(&s, 1), KVT_OK);
	ck_assert_int_eq(store_get(&s, 1), KVT_OK);
}
END_TEST

/* Checksums of pieces that a put made are written as they are: what has changed since is found when it is read. */
START_TEST(checksums_of_a_put_are_written)
{
	uint64_t count = nvme_piece_count(bytes_of(1) + MORE);
	struct kvt_checksum *sums = calloc(count, sizeof(*sums)), whole;

	ck_assert_ptr_nonnull(sums);
	for (unsigned round = 0; round < 3; round++) {
		struct wish *w = wish_new(&s, KVT_TIER_WRITE, 1, 300001);

		kvt_checksum_pieces(w->segments, w->request.segment_count, w->room, NVME_PIECE_BYTES,
			sums, &whole);
		w->request.pieces = sums;
		if (round == 1)
			sums[count - 1].high ^= 1;
		if (round == 2)
			w->bytes[5 * NVME_PIECE_BYTES] ^= 1;
		s.tier->ops->submit(s.tier, &w->request);
		ck_assert_int_eq(wish_wait(&s, w), KVT_OK);
		wish_free(w);
		ck_assert_int_eq(store_get(&s, 1), round == 0 ? KVT_OK : KVT_ECORRUPT);
		ck_assert_int_eq(store_erase(&s, 1), KVT_OK);
	}
	ck_assert(strstr(said, "piece 6 of") != NULL);
	free(sums);
}
END_TEST

static enum kvt_status ask(enum kvt_tier_verb verb, uint64_t n, uint64_t cut)
{
	struct wish *w = wish_new(&s, verb, n, cut);
	enum kvt_status status;

	s.tier->ops->submit(s.tier, &w->request);
	status = wish_wait(&s, w);
	wish_free(w);
	return status;
}

/* Payloads of any length, in segments that are cut anywhere. */
START_TEST(any_length_and_any_cut)
{
	const uint64_t more[] = {0, 1, NVME_PIECE_BYTES - 1, NVME_OP_BYTES,
		2 * NVME_PIECE_BYTES + 4095, 9 * NVME_PIECE_BYTES};
	const uint64_t cuts[] = {0, 1, 4096, NVME_PIECE_BYTES - 4096, NVME_PIECE_BYTES, 300001};

	for (uint64_t n = 1; n <= 36; n++) {
		s.more_bytes = more[n % 6];
		ck_assert_int_eq(ask(KVT_TIER_WRITE, n, cuts[n / 6 % 6]), KVT_OK);
		ck_assert_int_eq(ask(KVT_TIER_READ, n, cuts[(n + 1) % 6]), KVT_OK);
	}
	ck_assert_uint_eq(store_stats(&s).corrupt, 0);
}
END_TEST

/* --- on a disk that does what it is asked to ------------------------------------------------------ */

static void make_disk(uint64_t seed)
{
	struct kvt_disk_options options = {.seed = seed};

	store_init(&s);
	s.more_bytes = MORE;
	options.clock = &s.time;
	ck_assert_int_eq(kvt_disk_create(&options, &disk), KVT_OK);
	ck_assert_int_eq(kvt_faults_create(kvt_disk_layer(disk), 7, &s.time, &faults), KVT_OK);
	layer = kvt_faults_layer(faults);
	s.config.io = &layer;
	ck_assert_int_eq(store_open(&s), KVT_OK);
}

static void finish_disk(void)
{
	kvt_faults_clear(faults);
	store_finish(&s);
	kvt_faults_destroy(faults);
	kvt_disk_destroy(disk);
}

/* What goes wrong with one read of data, after `skip` others. */
static void rule(enum kvt_fault_kind kind, uint64_t skip, int64_t delay_ns)
{
	struct kvt_fault_rule r = {.kind = kind,
		.on = KVT_ON_READ,
		.name = "data",
		.skip = skip,
		.count = 1,
		.delay_ns = delay_ns};

	ck_assert_int_eq(kvt_faults_add(faults, &r), KVT_OK);
}

START_TEST(operations_may_end_in_any_order)
{
	for (uint64_t seed = 1; seed <= 12; seed++) {
		struct wish *w[5];

		make_disk(seed);
		for (uint64_t n = 0; n < 5; n++) {
			ck_assert_int_eq(ask(KVT_TIER_WRITE, n, 0), KVT_OK);
			w[n] = wish_new(&s, KVT_TIER_READ, n, n * 4096);
		}
		for (uint64_t n = 0; n < 5; n++)
			s.tier->ops->submit(s.tier, &w[n]->request);
		for (uint64_t n = 0; n < 5; n++) {
			ck_assert_int_eq(wish_wait(&s, w[n]), KVT_OK);
			wish_free(w[n]);
		}
		finish_disk();
	}
}
END_TEST

/* The first, a middle or the last operation comes long after all others. */
START_TEST(one_operation_is_late)
{
	for (uint64_t late = 0; late < OPS; late++) {
		struct wish *w;

		make_disk(0);
		ck_assert_int_eq(ask(KVT_TIER_WRITE, 1, 0), KVT_OK);
		rule(KVT_FAULT_STALL, late, INT64_MAX);
		w = wish_new(&s, KVT_TIER_READ, 1, 0);
		s.tier->ops->submit(s.tier, &w->request);
		store_step(&s, 50);
		ck_assert(!w->done);
		kvt_faults_clear(faults);
		ck_assert_int_eq(wish_wait(&s, w), KVT_OK);
		wish_free(w);
		finish_disk();
	}
}
END_TEST

/* Refused once: the chunk stays. Flipped: it goes. */
START_TEST(one_operation_fails)
{
	for (uint64_t bad = 0; bad < OPS; bad++) {
		make_disk(bad);
		ck_assert_int_eq(ask(KVT_TIER_WRITE, 1, 0), KVT_OK);
		rule(KVT_FAULT_ERROR, bad, 0);
		ck_assert_int_eq(store_get(&s, 1), KVT_EIO);
		ck_assert_int_eq(store_get(&s, 1), KVT_OK);
		rule(KVT_FAULT_SHORT, bad, 0);
		ck_assert_int_eq(store_get(&s, 1), KVT_EIO);
		ck_assert_int_eq(store_get(&s, 1), KVT_OK);
		rule(KVT_FAULT_FLIP, bad, 0);
		ck_assert_int_eq(store_get(&s, 1), KVT_ECORRUPT);
		ck_assert_int_eq(store_get(&s, 1), KVT_MISS);
		ck_assert_uint_eq(kvt_faults_struck(faults, KVT_FAULT_FLIP), 1);
		finish_disk();
	}
}
END_TEST

/* Closed, or erased, while some of it is here and some is not. */
START_TEST(closed_and_erased_in_the_middle)
{
	for (unsigned round = 0; round < 2 * OPS; round++) {
		struct wish *w[6];

		make_disk(round);
		for (uint64_t n = 0; n < 6; n++)
			ck_assert_int_eq(ask(KVT_TIER_WRITE, n, 0), KVT_OK);
		rule(KVT_FAULT_STALL, round / 2, 1000000000);
		for (uint64_t n = 0; n < 6; n++) {
			w[n] = wish_new(&s, KVT_TIER_READ, n, 0);
			s.tier->ops->submit(s.tier, &w[n]->request);
		}
		store_step(&s, 1 + round % 3);
		if (round % 2 == 0)
			ck_assert_int_eq(store_erase(&s, 0), KVT_OK);
		store_close(&s);
		for (uint64_t n = 0; n < 6; n++) {
			ck_assert(w[n]->done);
			ck_assert(w[n]->request.status == KVT_OK ||
				w[n]->request.status == KVT_ECANCELED ||
				w[n]->request.status == KVT_MISS);
			wish_free(w[n]);
		}
		ck_assert_int_eq(store_open(&s), KVT_OK);
		ck_assert_int_eq(store_get(&s, 0), round % 2 == 0 ? KVT_MISS : KVT_OK);
		ck_assert_int_eq(store_get(&s, 5), KVT_OK);
		finish_disk();
	}
}
END_TEST

/* --- helpers ------------------------------------------------------------------------------------ */

static bool has_thread(const char *name)
{
	DIR *tasks = opendir("/proc/self/task");
	struct dirent *task;
	bool found = false;

	ck_assert_ptr_nonnull(tasks);
	while ((task = readdir(tasks)) != NULL) {
		char path[300], comm[32] = "";
		FILE *file;

		(void)snprintf(path, sizeof(path), "/proc/self/task/%s/comm", task->d_name);
		file = fopen(path, "r");
		if (file == NULL)
			continue;
		if (fgets(comm, sizeof(comm), file) != NULL)
			found = found || strncmp(comm, name, strlen(name)) == 0;
		(void)fclose(file);
	}
	(void)closedir(tasks);
	return found;
}

/* More is here at once than one thread sums in a moment: others help, and it is right all the same. */
START_TEST(helpers_come_when_much_waits)
{
	struct kvt_disk_options options = {0};
	struct wish *w[16];

	store_init(&s);
	s.more_bytes = MORE;
	ck_assert_int_eq(kvt_disk_create(&options, &disk), KVT_OK);
	layer = kvt_disk_layer(disk);
	s.config.io = &layer;
	s.config.threads = KVT_THREADS_OWN;
	s.config.nvme_depth = 32;
	s.config.nvme_capacity = 256u << 20;
	ck_assert_int_eq(store_open(&s), KVT_OK);
	ck_assert(!has_thread("kvt-nvme-sum"));
	for (uint64_t n = 0; n < 16; n++)
		ck_assert_int_eq(ask(KVT_TIER_WRITE, n, 0), KVT_OK);
	for (unsigned round = 0; round < 4; round++) {
		for (uint64_t n = 0; n < 16; n++) {
			w[n] = wish_new(&s, KVT_TIER_READ, n, 0);
			s.tier->ops->submit(s.tier, &w[n]->request);
		}
		for (uint64_t n = 0; n < 16; n++) {
			ck_assert_int_eq(wish_wait(&s, w[n]), KVT_OK);
			wish_free(w[n]);
		}
	}
	if (sysconf(_SC_NPROCESSORS_ONLN) > 1)
		ck_assert(has_thread("kvt-nvme-sum"));
	ck_assert_uint_eq(store_stats(&s).corrupt, 0);
	store_finish(&s);
	for (int i = 0; i < 10000 && has_thread("kvt-nvme-sum"); i++)
		usleep(1000); /* a joined thread is listed for a moment */
	ck_assert(!has_thread("kvt-nvme-sum"));
	kvt_disk_destroy(disk);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cache-tiers-sums");
	TCase *files = tcase_create("files"), *tc = tcase_create("disk");

	tcase_add_checked_fixture(files, setup_files, teardown_files);
	tcase_set_timeout(files, 120);
	tcase_add_test(files, a_flipped_bit_is_found_in_any_piece);
	tcase_add_test(files, pieces_that_changed_places_are_found);
	tcase_add_test(files, what_changed_in_memory_is_not_written);
	tcase_add_test(files, checksums_of_a_put_are_written);
	tcase_add_test(files, any_length_and_any_cut);
	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, operations_may_end_in_any_order);
	tcase_add_test(tc, one_operation_is_late);
	tcase_add_test(tc, one_operation_fails);
	tcase_add_test(tc, closed_and_erased_in_the_middle);
	tcase_add_test(tc, helpers_come_when_much_waits);
	suite_add_tcase(suite, files);
	suite_add_tcase(suite, tc);
	return run_suite(suite);
}
