/*
 * record_ring_test.c - the ring against a plain array that remembers every record.
 */
#include <check.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "events/record_ring.h"
#include "tests/unit/suite.h"

#define RECORDS 5000u

/* What record n holds is a function of n. */
static size_t length_of(uint64_t number, size_t size)
{
	uint64_t x = (number + 1) * UINT64_C(0x9e3779b97f4a7c15);

	x ^= x >> 29;
	return x % 7 == 0 ? size / 2 + x % (size / 2) : x % 97;
}

static void fill(uint8_t *to, uint64_t number, size_t len)
{
	for (size_t i = 0; i < len; i++)
		to[i] = (uint8_t)(number * 31 + i);
}

static bool is_filled(const uint8_t *data, uint64_t number, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (data[i] != (uint8_t)(number * 31 + i))
			return false;
	return true;
}

static void check_kept(const struct kvt_record_ring *ring, size_t size)
{
	size_t held = 0, len;

	for (uint64_t n = ring->oldest; n < ring->next; n++) {
		const uint8_t *data = kvt_record_ring_at(ring, n, &len);

		if (length_of(n, size) > ring->size)
			ck_assert_uint_eq(len, 0);
		else
			ck_assert_uint_eq(len, length_of(n, size));
		ck_assert(is_filled(data, n, len));
		held += len;
	}
	ck_assert_uint_eq(held, ring->held);
	ck_assert_uint_le(held, ring->size);
}

static void run(size_t size, uint64_t most)
{
	struct kvt_record_ring ring;

	ck_assert_int_eq(kvt_record_ring_init(&ring, size, most, 5), KVT_OK);
	for (uint64_t n = 5; n < RECORDS; n++) {
		size_t len = length_of(n, size);
		uint8_t *to = kvt_record_ring_add(&ring, len);

		ck_assert_uint_eq(ring.next, n + 1);
		ck_assert_uint_le(ring.next - ring.oldest, ring.most);
		if (to == NULL) {
			ck_assert(len == 0 || len > ring.size);
			continue;
		}
		ck_assert_uint_eq((uintptr_t)to % 8, 0);
		ck_assert(to >= ring.data);
		ck_assert(to + len <= ring.data + ring.size);
		fill(to, n, len);
		if (n % 37 == 0)
			check_kept(&ring, size);
	}
	check_kept(&ring, size);
	kvt_record_ring_finish(&ring);
}

START_TEST(keeps_what_it_was_given)
{
	run(64, 4);
	run(100, 1);
	run(1000, 8);
	run(4096, 1000);
	run(20000, 64);
}
END_TEST

/* Nothing leaves while there is room for it. */
START_TEST(keeps_all_that_fits)
{
	struct kvt_record_ring ring;
	size_t len;

	ck_assert_int_eq(kvt_record_ring_init(&ring, 1024, 100, 0), KVT_OK);
	for (int i = 0; i < 16; i++)
		ck_assert_ptr_nonnull(kvt_record_ring_add(&ring, 64));
	ck_assert_uint_eq(ring.oldest, 0);
	ck_assert_uint_eq(ring.held, 1024);
	ck_assert_ptr_nonnull(kvt_record_ring_add(&ring, 1));
	ck_assert_uint_eq(ring.oldest, 1);
	ck_assert_ptr_nonnull(kvt_record_ring_add(&ring, 1024)); /* all of them leave for it */
	ck_assert_uint_eq(ring.oldest, 17);
	ck_assert_ptr_null(kvt_record_ring_add(&ring, 1025)); /* too long: a number without bytes */
	ck_assert_uint_eq(ring.next, 19);
	ck_assert_ptr_nonnull(kvt_record_ring_at(&ring, 17, &len));
	ck_assert_uint_eq(len, 1024);
	kvt_record_ring_finish(&ring);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("ring");

	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, keeps_what_it_was_given);
	tcase_add_test(tc, keeps_all_that_fits);
	return run_tcase("cache-events-ring", tc);
}
