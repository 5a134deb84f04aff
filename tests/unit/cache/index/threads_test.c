/*
 * threads_test.c - readers without a lock, while writers churn.
 *
 * What lies under an entry is a page of the test's own, whose words are a function of the key. A
 * writer fills it before publish and spoils it in `gone`; a reader under a hold must see the words
 * of the key it asked for, before and after looking around. Under ThreadSanitizer the same shows
 * every access that is not ordered.
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <time.h>

#include "support.h"
#include "tests/unit/suite.h"

#define KEYS    96
#define ENTRIES 48
#define WORDS   8
#define READERS 3
#define WRITERS 2
#define MOST_S  60 /* for a first hit; readers may begin long after writers */

struct stage {
	struct kvt_index *index;
	struct kvt_surroundings surroundings;
	_Atomic int64_t wall_ns;
	uint64_t pages[ENTRIES][WORDS]; /* plain memory, as a tier's is */
	_Atomic uint32_t inserted, gone;
	_Atomic uint32_t hits;
	_Atomic bool stop;
	_Atomic uint32_t writing; /* writers that are not done */
};

static struct stage stage;

static int64_t wall(void *self)
{
	(void)self;
	return atomic_load(&stage.wall_ns);
}

static void quiet(void *self, uint32_t level, const char *line)
{
	(void)self, (void)level, (void)line;
}

static void fill_page(uint32_t entry, const struct kvt_key *key)
{
	uint64_t word;

	memcpy(&word, key, sizeof(word));
	for (uint64_t i = 0; i < WORDS; i++)
		stage.pages[entry][i] = word + i;
}

static bool page_is_of(uint32_t entry, const struct kvt_key *key)
{
	uint64_t word;

	memcpy(&word, key, sizeof(word));
	for (uint64_t i = 0; i < WORDS; i++)
		if (stage.pages[entry][i] != word + i)
			return false;
	return true;
}

static void on_gone(
	void *self, uint32_t entry, const struct kvt_key *key, const struct kvt_entry_info *info)
{
	(void)self;
	EXPECT(info->place[0] == entry + 1ull || info->place[0] == 0);
	if (info->place[0] != 0)
		EXPECT(page_is_of(entry, key));
	memset(stage.pages[entry], 0xee, sizeof(stage.pages[entry]));
	atomic_fetch_add(&stage.gone, 1);
}

/* Chains of eight keys. */
static uint64_t parent_of(uint64_t number)
{
	return number % 8 == 0 ? UINT64_MAX : number - 1;
}

static void write_one(uint64_t number, uint64_t *random)
{
	const struct kvt_key key = key_of(number), parent = key_of(parent_of(number));
	struct kvt_entry_info info = info_of(1 + test_random(random) % 4);
	uint64_t place[4] = {0};
	uint32_t entry;

	info.tenant = tenant_of(number % 3);
	if (test_random(random) % 4 == 0) {
		info.ttl_ns = 50;
		info.expires_wall_ns = atomic_load(&stage.wall_ns) + 50;
	}
	if (kvt_index_insert(stage.index, &key, parent_of(number) == UINT64_MAX ? NULL : &parent,
		    &info, &entry) != KVT_OK)
		return;
	atomic_fetch_add(&stage.inserted, 1);
	if (test_random(random) % 16 == 0) {
		kvt_index_discard(stage.index, entry);
		return;
	}
	fill_page(entry, &key);
	place[0] = entry + 1ull;
	kvt_index_place(stage.index, entry, place);
	if (kvt_index_publish(stage.index, entry) == KVT_OK)
		EXPECT(page_is_of(entry, &key));
	kvt_index_release(stage.index, entry);
}

/* Writers are not done before a reader has found something. */
static bool no_hit_yet(time_t begun)
{
	return atomic_load(&stage.hits) == 0 && time(NULL) - begun < MOST_S;
}

static void *writer(void *seed)
{
	uint64_t random = (uint64_t)(uintptr_t)seed;
	const char *rounds = getenv("INDEX_ROUNDS");
	const uint32_t steps = rounds == NULL ? 30000 : (uint32_t)strtoul(rounds, NULL, 10);
	const time_t begun = time(NULL);
	struct kvt_index_stats stats;

	for (uint32_t i = 0; i < steps || no_hit_yet(begun); i++) {
		const uint64_t number = test_random(&random) % KEYS;
		const struct kvt_key key = key_of(number);
		const struct kvt_tenant tenant = tenant_of(number % 3);

		switch (test_random(&random) % 64) {
		case 0:
			(void)kvt_index_erase_tenant(stage.index, &tenant);
			break;
		case 1:
		case 2:
			(void)kvt_index_expire(stage.index, 8);
			break;
		case 3:
			(void)kvt_index_evict(stage.index);
			break;
		case 4:
		case 5:
			(void)kvt_index_pin(stage.index, &key, 1, number % 16 == 0);
			break;
		case 6:
			kvt_index_stats(stage.index, &stats);
			EXPECT(stats.used <= stats.capacity);
			break;
		case 7:
		case 8:
		case 9:
		case 10:
			(void)kvt_index_erase(stage.index, &key, 1);
			/* another writer may have put it again, but then it is another life */
			break;
		default:
			write_one(number, &random);
		}
		atomic_fetch_add(&stage.wall_ns, 1);
	}
	atomic_fetch_sub(&stage.writing, 1);
	return NULL;
}

static void read_chain(uint64_t *random)
{
	const uint64_t root = test_random(random) % (KEYS / 8) * 8;
	const uint64_t skip = test_random(random) % 8;
	uint32_t entries[8], other;
	struct kvt_key keys[8];
	size_t got;

	for (uint64_t i = 0; i < 8 - skip; i++)
		keys[i] = key_of(root + skip + i);
	EXPECT(kvt_index_match(stage.index, keys, 8 - skip) <= 8 - skip);
	got = kvt_index_hold_chain(
		stage.index, keys, 8 - skip, test_random(random) % 2 == 0, entries);
	for (size_t i = 0; i < got; i++) {
		struct kvt_entry_info info;

		EXPECT(page_is_of(entries[i], &keys[i]));
		EXPECT(memcmp(kvt_index_key(stage.index, entries[i]), &keys[i], sizeof(keys[i])) ==
			0);
		kvt_index_info(stage.index, entries[i], &info);
		EXPECT(info.place[0] == entries[i] + 1ull);
	}
	if (got > 0 && test_random(random) % 8 == 0) {
		kvt_index_drop(stage.index, entries[0]);
		EXPECT(page_is_of(entries[0], &keys[0]));
	}
	if (got > 0 && kvt_index_hold(stage.index, &keys[0], false, &other) == KVT_OK) {
		EXPECT(page_is_of(other, &keys[0]));
		kvt_index_release(stage.index, other);
	}
	for (size_t i = 0; i < got; i++) {
		EXPECT(page_is_of(entries[i], &keys[i]));
		kvt_index_release(stage.index, entries[i]);
	}
	atomic_fetch_add(&stage.hits, (uint32_t)got);
}

static void *reader(void *seed)
{
	uint64_t random = (uint64_t)(uintptr_t)seed;
	uint32_t cursor = 0, entry;

	while (atomic_load(&stage.writing) > 0) {
		for (int i = 0; i < 16; i++)
			read_chain(&random);
		if (kvt_index_next(stage.index, &cursor, &entry)) {
			EXPECT(page_is_of(entry, kvt_index_key(stage.index, entry)));
			kvt_index_release(stage.index, entry);
		}
	}
	return NULL;
}

START_TEST(a_hold_is_under_the_right_key)
{
	const struct kvt_index_options options = {
		.max_entries = ENTRIES,
		.capacity = 100,
		.tenant_limit = _i == 0 ? 0 : 60,
		.policy = kvt_policy_names()[_i],
		.max_ghost_bytes = 4096,
		.gone = on_gone,
	};
	pthread_t threads[READERS + WRITERS];
	struct kvt_index_stats stats;

	memset(&stage, 0, sizeof(stage));
	stage.surroundings =
		(struct kvt_surroundings){.clock = {.now_ns = wall, .wall_ns = wall}, .log = quiet};
	atomic_store(&stage.wall_ns, 1000);
	atomic_store(&stage.writing, WRITERS);
	ck_assert_int_eq(kvt_index_create(&options, &stage.surroundings, &stage.index), KVT_OK);
	for (uintptr_t i = 0; i < READERS + WRITERS; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, i < WRITERS ? writer : reader,
					 (void *)(i * 1000 + 7)),
			0);
	for (size_t i = 0; i < READERS + WRITERS; i++)
		ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
	kvt_index_stats(stage.index, &stats);
	ck_assert_uint_eq(stats.held, 0);
	ck_assert_uint_gt(atomic_load(&stage.hits), 0);
	kvt_index_destroy(stage.index);
	ck_assert_uint_eq(atomic_load(&stage.gone), atomic_load(&stage.inserted));
}
END_TEST

static void *steady_reader(void *unused)
{
	struct kvt_key keys[64];
	uint64_t missed = 0;

	(void)unused;
	for (uint64_t i = 0; i < 64; i++)
		keys[i] = key_of(i);
	while (atomic_load(&stage.writing) > 0)
		missed += 64 - kvt_index_match(stage.index, keys, 64);
	return (void *)(uintptr_t)missed;
}

/*
 * 64 keys stay; others come and go around them. In a table of 128 slots nearly every deletion moves
 * some of those that stay; in one that grows they move together. No lookup may miss one that
 * stays. (A
 * writer that loses its processor in the middle of a move outlasts a reader's patience; that is
 * legal and rare, so a handful is let pass.)
 */
START_TEST(what_stays_is_seen_while_slots_move)
{
	const uint32_t entries = _i == 0 ? 90 : 20000;
	const struct kvt_entry_info info = info_of(1);
	const char *rounds = getenv("INDEX_ROUNDS");
	const uint32_t steps = rounds == NULL ? 100000 : (uint32_t)strtoul(rounds, NULL, 10);
	struct bed bed = {0};
	uint64_t random = 3;
	pthread_t thread;
	void *missed;

	memset(&stage, 0, sizeof(stage));
	atomic_store(&stage.writing, 1);
	bed_open(&bed, &(struct bed_options){.max_entries = entries, .capacity = entries});
	stage.index = bed.index;
	for (uint64_t i = 0; i < 64; i++) {
		const struct kvt_key key = key_of(i);

		ck_assert_int_eq(bed_put(&bed, i, UINT64_MAX, &info), KVT_OK);
		ck_assert_uint_eq(kvt_index_pin(bed.index, &key, 1, true), 1);
	}
	ck_assert_int_eq(pthread_create(&thread, NULL, steady_reader, NULL), 0);
	for (uint32_t i = 0; i < steps; i++) {
		const uint64_t others = _i == 0 ? 26 : i / 8 + 1;
		const uint64_t number = 64 + test_random(&random) % others;
		const struct kvt_key key = key_of(number);

		if (kvt_index_erase(bed.index, &key, 1) == 0)
			EXPECT(bed_put(&bed, number, UINT64_MAX, &info) == KVT_OK);
	}
	atomic_store(&stage.writing, 0);
	ck_assert_int_eq(pthread_join(thread, &missed), 0);
	ck_assert_uint_le((uintptr_t)missed, 64 * 3);
	bed_close(&bed);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("threads");
	int policies = 0;

	while (kvt_policy_names()[policies] != NULL)
		policies++;
	tcase_set_timeout(tcase, 0);
	tcase_add_loop_test(tcase, a_hold_is_under_the_right_key, 0, policies);
	tcase_add_loop_test(tcase, what_stays_is_seen_while_slots_move, 0, 2);
	return run_tcase("cache-index-threads", tcase);
}
