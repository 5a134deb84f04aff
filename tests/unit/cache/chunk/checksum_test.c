/*
 * checksum_test.c - the value is XXH3-128 of the bytes, however they are cut, copied or not, and a
 * copy touches its bytes and no others.
 */
#include <check.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <xxhash.h>

#include "chunk/checksum.h"
#include "tests/unit/steps.h"
#include "tests/unit/suite.h"

#define MOST_BYTES    ((size_t)3 << 20)
#define MOST_SEGMENTS 16
#define GUARD         64

static uint64_t random_next(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

/* Bytes, and room for them in segments with guards around each. */
struct scene {
	uint8_t *from, *room;
	struct kvt_segment segments[MOST_SEGMENTS];
	size_t count, bytes, room_bytes;
	uint64_t random;
};

static void scene_init(struct scene *s, uint64_t seed)
{
	memset(s, 0, sizeof(*s));
	s->random = seed;
	s->room_bytes = MOST_BYTES + (MOST_SEGMENTS + 1) * (GUARD + 64);
	s->from = malloc(MOST_BYTES);
	s->room = malloc(s->room_bytes);
	ck_assert(s->from != NULL && s->room != NULL);
	for (size_t i = 0; i < MOST_BYTES; i++)
		s->from[i] = (uint8_t)random_next(&s->random);
}

static void scene_finish(struct scene *s)
{
	free(s->from);
	free(s->room);
}

/* Cuts `bytes` into `count` segments of any size, also empty ones, at any alignment. */
static void scene_cut(struct scene *s, size_t bytes, size_t count)
{
	size_t at = 0, left = bytes;

	s->bytes = bytes;
	s->count = count;
	memset(s->room, 0xa5, s->room_bytes);
	for (size_t i = 0; i < count; i++) {
		size_t n = i + 1 == count ? left : random_next(&s->random) % (left + 1);

		if (i + 1 < count && random_next(&s->random) % 4 == 0)
			n = n / 65536 * 65536;
		at += GUARD + random_next(&s->random) % 64;
		s->segments[i] = (struct kvt_segment){.base = s->room + at, .bytes = n};
		at += n;
		left -= n;
	}
	ck_assert_uint_le(at + GUARD, s->room_bytes);
}

static bool all_are(const uint8_t *from, const uint8_t *end, uint8_t value)
{
	while (from < end && *from == value)
		from++;
	return from >= end;
}

/* The segments hold the bytes, and what is between them is untouched. */
static void scene_check(const struct scene *s)
{
	const uint8_t *next = s->room;
	size_t at = 0;

	for (size_t i = 0; i < s->count; i++) {
		const uint8_t *base = s->segments[i].base;

		ck_assert(all_are(next, base, 0xa5));
		ck_assert_int_eq(memcmp(base, s->from + at, s->segments[i].bytes), 0);
		next = base + s->segments[i].bytes;
		at += s->segments[i].bytes;
	}
	ck_assert(all_are(next, s->room + s->room_bytes, 0xa5));
}

static struct kvt_checksum expected(const void *bytes, size_t n)
{
	XXH128_hash_t hash = XXH3_128bits(bytes, n);

	return (struct kvt_checksum){.low = hash.low64, .high = hash.high64};
}

/* Each piece has the checksum of its own bytes, and all of them that of the whole: of bytes where they
 * lie, or while they are copied there. */
static void check_pieces(struct scene *s, uint64_t piece, bool copied)
{
	struct kvt_checksum want = expected(s->from, s->bytes), whole = {0};
	uint64_t count = kvt_checksum_count(s->bytes, piece);
	struct kvt_checksum *sums = calloc(count + 1, sizeof(*sums));

	ck_assert_ptr_nonnull(sums);
	if (copied) {
		memset(s->room, 0xa5, s->room_bytes);
		kvt_checksum_copy_pieces(s->segments, s->count, s->from, s->bytes, piece, sums, &whole);
		scene_check(s);
	} else {
		kvt_checksum_pieces(s->segments, s->count, s->bytes, piece, sums, &whole);
	}
	ck_assert(kvt_checksum_equal(&whole, &want));
	for (uint64_t i = 0; i < count; i++) {
		uint64_t rest = s->bytes - i * piece;

		want = expected(s->from + i * piece, rest < piece ? rest : piece);
		ck_assert(kvt_checksum_equal(&sums[i], &want));
	}
	ck_assert(sums[count].low == 0 && sums[count].high == 0);
	free(sums);
}

static void check_cut(struct scene *s)
{
	struct kvt_checksum want = expected(s->from, s->bytes), got = {0};
	struct kvt_checksum_stream stream;

	kvt_checksum_copy(s->segments, s->count, s->from, s->bytes, &got);
	ck_assert(kvt_checksum_equal(&got, &want));
	scene_check(s);
	memset(&got, 0, sizeof(got));
	kvt_checksum_segments(s->segments, s->count, s->bytes, &got);
	ck_assert(kvt_checksum_equal(&got, &want));
	for (int copied = 0; copied < 2; copied++) {
		check_pieces(s, 256 * 1024, copied == 1);
		check_pieces(s, 100000, copied == 1);
	}
	kvt_checksum_begin(&stream);
	for (size_t at = 0; at < s->bytes;) {
		size_t n = 1 + random_next(&s->random) % (s->bytes - at);

		kvt_checksum_update(&stream, s->from + at, n);
		at += n;
	}
	memset(&got, 0, sizeof(got));
	kvt_checksum_end(&stream, &got);
	ck_assert(kvt_checksum_equal(&got, &want));
}

/* Both sides are cut; what is written is what was hashed, and nothing else is touched. */
static void check_take(struct scene *s)
{
	struct kvt_checksum want = expected(s->from, s->bytes), got = {0};
	size_t first = random_next(&s->random) % (s->bytes + 1);
	struct kvt_segment from[3] = {
		{.base = s->from, .bytes = first},
		{.base = s->from + first, .bytes = 0},
		{.base = s->from + first, .bytes = s->bytes - first},
	};

	memset(s->room, 0xa5, s->room_bytes);
	ck_assert_uint_eq(
		kvt_checksum_take(s->segments, s->count, from, 3, s->bytes, &got), s->bytes);
	ck_assert(kvt_checksum_equal(&got, &want));
	scene_check(s);
	ck_assert_uint_eq(kvt_checksum_take(s->segments, s->count, from, 1, s->bytes, &got),
		first); /* a source that is too short */
	want = expected(s->from, first);
	ck_assert(kvt_checksum_equal(&got, &want));
}

#if !KVT_TEST_SEES_RACES /* this has a race on purpose */
struct flicker {
	uint64_t *words;
	size_t count;
	_Atomic bool stop;
};

static void *flicker_run(void *arg)
{
	struct flicker *f = arg;

	for (uint64_t value = 1; !f->stop; value++)
		for (size_t i = 0; i < f->count; i += 8)
			__atomic_store_n(&f->words[i], value, __ATOMIC_RELAXED);
	return NULL;
}
#endif

START_TEST(test_sizes)
{
	static const size_t sizes[] = {0, 1, 15, 16, 17, 63, 64, 65, 128, 129, 240, 241, 255, 256,
		257, 4095, 4096, 65535, 65536, 65537, 131072, 262143, 262144, 262145, 1 << 20,
		(1 << 20) + 1, MOST_BYTES};
	struct scene s;

	scene_init(&s, 1);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		for (size_t count = 1; count <= 3; count++) {
			scene_cut(&s, sizes[i], count);
			check_cut(&s);
			check_take(&s);
		}
	}
	scene_finish(&s);
}
END_TEST

START_TEST(test_any_cut)
{
	struct scene s;

	scene_init(&s, 2);
	for (int round = 0; round < (int)kvt_test_steps(150); round++) {
		size_t most = round % 3 == 0 ? MOST_BYTES : round % 3 == 1 ? 200000 : 2000;
		size_t bytes = random_next(&s.random) % (most + 1);

		scene_cut(&s, bytes, 1 + random_next(&s.random) % MOST_SEGMENTS);
		check_cut(&s);
		check_take(&s);
	}
	scene_finish(&s);
}
END_TEST

#if !KVT_TEST_SEES_RACES
/* A thread writes into the source all the time: the checksum is that of what arrived. */
START_TEST(test_source_that_changes)
{
	enum { BYTES = 1 << 20 };
	struct flicker f = {.words = calloc(1, BYTES), .count = BYTES / sizeof(uint64_t)};
	uint8_t *to = malloc(BYTES);
	struct kvt_segment from = {.base = f.words, .bytes = BYTES};
	struct kvt_segment into[2] = {
		{.base = to, .bytes = 300001}, {.base = to + 300001, .bytes = BYTES - 300001}};
	pthread_t thread;

	ck_assert(f.words != NULL && to != NULL);
	ck_assert_int_eq(pthread_create(&thread, NULL, flicker_run, &f), 0);
	for (int round = 0; round < 100; round++) {
		struct kvt_checksum got, want;

		ck_assert_uint_eq(kvt_checksum_take(into, 2, &from, 1, BYTES, &got), BYTES);
		want = expected(to, BYTES);
		ck_assert(kvt_checksum_equal(&got, &want));
	}
	f.stop = true;
	(void)pthread_join(thread, NULL);
	free(f.words);
	free(to);
}
END_TEST
#endif

/* The last segment of a chunk may be longer than what is left of it. */
START_TEST(test_room_to_spare)
{
	struct kvt_checksum want, got;
	struct scene s;

	scene_init(&s, 3);
	scene_cut(&s, 500000, 2);
	want = expected(s.from, 300000);
	kvt_checksum_copy(s.segments, s.count, s.from, 300000, &got);
	ck_assert(kvt_checksum_equal(&got, &want));
	kvt_checksum_segments(s.segments, s.count, 300000, &got);
	ck_assert(kvt_checksum_equal(&got, &want));
	s.segments[0].bytes = 500000;
	kvt_checksum_segments(s.segments, 1, 0, &got);
	want = expected(s.from, 0);
	ck_assert(kvt_checksum_equal(&got, &want));
	scene_finish(&s);
}
END_TEST

/* The value is what is written to disk: it may never change. */
START_TEST(test_known_value)
{
	struct kvt_checksum got;
	struct kvt_segment segment;
	char text[] = "kvtier";

	segment = (struct kvt_segment){.base = text, .bytes = 6};
	kvt_checksum_segments(&segment, 1, 6, &got);
	ck_assert_uint_eq(got.high, UINT64_C(0x2212090f62f31ca4));
	ck_assert_uint_eq(got.low, UINT64_C(0x12c13ec0da2ff4f1));
}
END_TEST

START_TEST(test_one_bit)
{
	struct kvt_checksum want, got;
	struct scene s;

	scene_init(&s, 4);
	scene_cut(&s, 100000, 4);
	kvt_checksum_copy(s.segments, s.count, s.from, s.bytes, &want);
	for (size_t i = 0; i < s.count; i++) {
		uint8_t *base = s.segments[i].base;

		if (s.segments[i].bytes == 0)
			continue;
		base[s.segments[i].bytes - 1] ^= 0x10;
		kvt_checksum_segments(s.segments, s.count, s.bytes, &got);
		ck_assert(!kvt_checksum_equal(&got, &want));
		base[s.segments[i].bytes - 1] ^= 0x10;
	}
	scene_finish(&s);
}
END_TEST

static void *many_copies(void *self)
{
	struct scene *s = self;

	for (uint64_t i = 0; i < kvt_test_steps(20); i++) {
		scene_cut(s, 400000, 3);
		check_cut(s);
	}
	return NULL;
}

/* The first calls in a process choose the vectors: several threads at once. */
START_TEST(test_threads)
{
	struct scene scenes[4];
	pthread_t threads[4];

	for (uint64_t i = 0; i < 4; i++) {
		scene_init(&scenes[i], 5 + i);
		ck_assert_int_eq(pthread_create(&threads[i], NULL, many_copies, &scenes[i]), 0);
	}
	for (int i = 0; i < 4; i++) {
		pthread_join(threads[i], NULL);
		scene_finish(&scenes[i]);
	}
}
END_TEST

static uint8_t *shared;

/* The first reading has come to the 16th page: now the first one changes, which it has read. */
static void change_the_first(int number)
{
	(void)number;
	if (mprotect(shared, (size_t)1 << 20, PROT_READ | PROT_WRITE) != 0)
		_exit(99);
	shared[99] ^= 1;
}

/* Another process writes between two readings of one stretch, and nothing back. */
START_TEST(test_pieces_of_a_source_that_changes)
{
	enum { BYTES = 1 << 20, PIECE = 256 << 10, PAGE = 4096 };
	struct kvt_checksum before, first, sums[BYTES / PIECE], whole;
	struct sigaction act = {.sa_handler = change_the_first}, old;
	struct kvt_segment segment;

	shared = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(shared, MAP_FAILED);
	before = expected(shared, BYTES);
	first = expected(shared, PIECE);
	segment = (struct kvt_segment){.base = shared, .bytes = BYTES};
	ck_assert_int_eq(sigaction(SIGSEGV, &act, &old), 0);
	ck_assert_int_eq(mprotect(shared + 15 * PAGE, PAGE, PROT_NONE), 0);
	kvt_checksum_pieces(&segment, 1, BYTES, PIECE, sums, &whole);
	ck_assert_int_eq(sigaction(SIGSEGV, &old, NULL), 0);
	ck_assert_uint_eq(shared[99], 1); /* it did change */
	ck_assert(kvt_checksum_equal(&sums[0], &first));
	ck_assert(!kvt_checksum_equal(&whole, &before)); /* so it is noticed */
	munmap(shared, BYTES);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("all");

	tcase_set_timeout(tcase, 100);
	tcase_add_test(tcase, test_threads);
	tcase_add_test(tcase, test_sizes);
	tcase_add_test(tcase, test_any_cut);
#if !KVT_TEST_SEES_RACES
	tcase_add_test(tcase, test_source_that_changes);
#endif
	tcase_add_test(tcase, test_pieces_of_a_source_that_changes);
	tcase_add_test(tcase, test_room_to_spare);
	tcase_add_test(tcase, test_known_value);
	tcase_add_test(tcase, test_one_bit);
	return run_tcase("checksum", tcase);
}
