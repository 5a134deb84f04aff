/*
 * memory_test.c - the index when allocations fail: each in turn, then at random.
 *
 * The linker sends malloc, calloc, aligned_alloc, mmap (mmap64 where files are large) and mprotect
 * here.
 */
#include <sys/mman.h>

#include "support.h"
#include "tests/unit/suite.h"

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size);
void *__real_mmap64(void *at, size_t bytes, int rights, int flags, int fd, off_t offset);
int __real_mprotect(void *at, size_t bytes, int rights);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);
void *__wrap_mmap64(void *at, size_t bytes, int rights, int flags, int fd, off_t offset);
int __wrap_mprotect(void *at, size_t bytes, int rights);

static bool armed;
static uint64_t countdown;   /* 1: the next one fails; 0: none in particular */
static uint64_t random_fail; /* state of a generator: one in four fails; 0: none */
static uint64_t failures;

static bool fails(void)
{
	bool fail;

	if (!armed)
		return false;
	fail = countdown == 1;
	if (countdown > 0)
		countdown--;
	if (random_fail != 0)
		fail |= test_random(&random_fail) % 4 == 0;
	failures += fail;
	return fail;
}

void *__wrap_malloc(size_t size)
{
	return fails() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t n, size_t size)
{
	return fails() ? NULL : __real_calloc(n, size);
}

void *__wrap_aligned_alloc(size_t alignment, size_t size)
{
	return fails() ? NULL : __real_aligned_alloc(alignment, size);
}

void *__wrap_mmap64(void *at, size_t bytes, int rights, int flags, int fd, off_t offset)
{
	return fails() ? MAP_FAILED : __real_mmap64(at, bytes, rights, flags, fd, offset);
}

int __wrap_mprotect(void *at, size_t bytes, int rights)
{
	return fails() ? -1 : __real_mprotect(at, bytes, rights);
}

static uint64_t gone;

static void on_gone(
	void *self, uint32_t entry, const struct kvt_key *key, const struct kvt_entry_info *info)
{
	(void)self, (void)entry, (void)key, (void)info;
	gone++;
}

START_TEST(create_fails_cleanly_at_each_allocation)
{
	const struct kvt_index_options options = {.max_entries = 1000,
		.capacity = 1000,
		.tenant_limit = 100,
		.policy = kvt_policy_names()[_i],
		.max_ghost_bytes = 4096,
		.gone = on_gone};
	struct kvt_index *x = NULL;
	enum kvt_status status = KVT_ENOMEM;
	struct bed bed; /* for its surroundings */
	uint64_t at = 0;

	bed_open(&bed, &(struct bed_options){.max_entries = 4, .capacity = 4});
	for (; status != KVT_OK; at++) {
		countdown = at + 1;
		armed = true;
		status = kvt_index_create(&options, &bed.surroundings, &x);
		armed = false;
		ck_assert(status == KVT_OK || (status == KVT_ENOMEM && x == NULL));
	}
	ck_assert_uint_gt(at, 9);
	kvt_index_destroy(x);
	bed_close(&bed);
}
END_TEST

/* What could be put is there, what could not is not, and all leave once. */
START_TEST(inserts_fail_alone)
{
	const uint64_t count = 60000;
	uint64_t put = 0, there = 0;
	struct kvt_index_stats stats;
	struct bed bed;

	bed_open(&bed, &(struct bed_options){.max_entries = 60000, .capacity = 1 << 30});
	random_fail = (uint64_t)_i + 1;
	for (uint64_t i = 0; i < count; i++) {
		struct kvt_entry_info info = info_of(1);
		enum kvt_status status;

		info.tenant = tenant_of(i % 3000);
		armed = true;
		status = bed_put(&bed, i, i % 7 == 0 ? i + 1 : UINT64_MAX, &info);
		armed = false;
		EXPECT(status == KVT_OK || status == KVT_ENOMEM);
		EXPECT(bed_has(&bed, i) == (status == KVT_OK));
		put += status == KVT_OK;
	}
	ck_assert_uint_gt(failures, 0);
	for (uint64_t i = 0; i < count; i++)
		there += bed_has(&bed, i);
	kvt_index_stats(bed.index, &stats);
	ck_assert_uint_eq(there, put);
	ck_assert_uint_eq(stats.entries, put);
	ck_assert_uint_eq(stats.used, put);
	bed_close(&bed);
	ck_assert_uint_eq(bed.gone, put);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("memory");
	int policies = 0;

	while (kvt_policy_names()[policies] != NULL)
		policies++;
	tcase_set_timeout(tcase, 120);
	tcase_add_loop_test(tcase, create_fails_cleanly_at_each_allocation, 0, policies);
	tcase_add_loop_test(tcase, inserts_fail_alone, 0, 4);
	return run_tcase("cache-index-memory", tcase);
}
