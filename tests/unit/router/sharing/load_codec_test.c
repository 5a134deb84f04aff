/*
 * load_codec_test.c - what replicas say of their load: written, read, cut, refused.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "sharing/load_codec.h"
#include "tests/unit/suite.h"

#define MS INT64_C(1000000)

static struct kvw_load_news said, heard;
static char text[KVW_LOAD_BYTES + 1];

static void setup(void)
{
	memset(&said, 0, sizeof(said));
	memset(&heard, 0xff, sizeof(heard));
	said.origin = UINT64_C(0xfedcba9876543210);
	said.sequence = 77;
	said.work = (struct kvw_admission_work){5000 * MS, 1000 * MS, 800 * MS};
	said.count = 2;
	said.entries[0] = (struct kvw_load_entry){UINT64_MAX, {1500 * MS, 2500 * MS, 12, 345678, 14, 3}};
	said.entries[1] = (struct kvw_load_entry){1, {0, 0, 1, 0, 1, 0}};
}

static void check_same(void)
{
	ck_assert_uint_eq(heard.origin, said.origin);
	ck_assert_uint_eq(heard.sequence, said.sequence);
	ck_assert_int_eq(heard.work.waiting_ns, said.work.waiting_ns);
	ck_assert_int_eq(heard.work.first_waiting_ns, said.work.first_waiting_ns);
	ck_assert_int_eq(heard.work.offered_per_s, said.work.offered_per_s);
	ck_assert_uint_eq(heard.count, said.count);
	for (size_t i = 0; i < said.count; i++) {
		ck_assert_uint_eq(heard.entries[i].key, said.entries[i].key);
		ck_assert_int_eq(heard.entries[i].part.queue_ns, said.entries[i].part.queue_ns);
		ck_assert_int_eq(heard.entries[i].part.waiting_ns, said.entries[i].part.waiting_ns);
		ck_assert_uint_eq(heard.entries[i].part.inflight, said.entries[i].part.inflight);
		ck_assert_uint_eq(heard.entries[i].part.context, said.entries[i].part.context);
		ck_assert_uint_eq(heard.entries[i].part.sequences, said.entries[i].part.sequences);
		ck_assert_uint_eq(heard.entries[i].part.unanswered, said.entries[i].part.unanswered);
	}
}

START_TEST(what_is_written_is_read)
{
	size_t len = kvw_load_write(&said, text);

	ck_assert_uint_lt(len, 100);
	ck_assert_int_eq(kvw_load_read(text, len, &heard), KVW_OK);
	check_same();
}
END_TEST

START_TEST(a_fleet_fits_and_costs_little)
{
	size_t len;

	said.count = KVW_MAX_WORKERS;
	for (size_t i = 0; i < said.count; i++)
		said.entries[i] = (struct kvw_load_entry){i * UINT64_C(0x9e3779b97f4a7c15),
			{KVW_LOAD_MOST_QUEUE_NS, KVW_LOAD_MOST_QUEUE_NS, KVW_LOAD_MOST_INFLIGHT,
				KVW_LOAD_MOST_CONTEXT, KVW_LOAD_MOST_INFLIGHT, KVW_LOAD_MOST_INFLIGHT}};
	len = kvw_load_write(&said, text);
	ck_assert_uint_lt(len, 30 * KVW_MAX_WORKERS);
	ck_assert_int_eq(kvw_load_read(text, len, &heard), KVW_OK);
	check_same();
}
END_TEST

START_TEST(what_no_replica_can_have_is_cut)
{
	size_t len;

	said.entries[0].part = (struct kvw_load_part){INT64_MAX, INT64_MAX, UINT32_MAX, UINT32_MAX, 5, UINT32_MAX};
	said.work = (struct kvw_admission_work){INT64_MAX, INT64_MAX, -1};
	len = kvw_load_write(&said, text);
	ck_assert_int_eq(kvw_load_read(text, len, &heard), KVW_OK);
	ck_assert_int_eq(heard.entries[0].part.queue_ns, KVW_LOAD_MOST_QUEUE_NS);
	ck_assert_int_eq(heard.entries[0].part.waiting_ns, KVW_LOAD_MOST_QUEUE_NS);
	ck_assert_uint_eq(heard.entries[0].part.inflight, KVW_LOAD_MOST_INFLIGHT);
	ck_assert_uint_eq(heard.entries[0].part.context, KVW_LOAD_MOST_CONTEXT);
	ck_assert_uint_eq(heard.entries[0].part.unanswered, 5);
	ck_assert_int_eq(heard.work.waiting_ns, KVW_LOAD_MOST_WORK_NS);
	ck_assert_int_eq(heard.work.offered_per_s, 0);
}
END_TEST

START_TEST(what_is_damaged_is_refused)
{
	size_t len = kvw_load_write(&said, text);

	for (size_t i = 0; i < len; i++) {
		ck_assert_int_eq(kvw_load_read(text, i, &heard), KVW_EPROTO);
		text[i] ^= 1;
		ck_assert_int_eq(kvw_load_read(text, len, &heard), KVW_EPROTO);
		text[i] ^= 1;
	}
	ck_assert_int_eq(kvw_load_read(text, len + 1, &heard), KVW_EPROTO);
	ck_assert_int_eq(kvw_load_read(text, len, &heard), KVW_OK);
}
END_TEST

START_TEST(nobodys_message_is_refused)
{
	said.origin = 0;
	ck_assert_int_eq(kvw_load_read(text, kvw_load_write(&said, text), &heard), KVW_EPROTO);
	said.origin = 1;
	said.sequence = 0;
	ck_assert_int_eq(kvw_load_read(text, kvw_load_write(&said, text), &heard), KVW_EPROTO);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("load_codec");

	tcase_add_checked_fixture(tcase, setup, NULL);
	tcase_add_test(tcase, what_is_written_is_read);
	tcase_add_test(tcase, a_fleet_fits_and_costs_little);
	tcase_add_test(tcase, what_no_replica_can_have_is_cut);
	tcase_add_test(tcase, what_is_damaged_is_refused);
	tcase_add_test(tcase, nobodys_message_is_refused);
	return run_tcase("load_codec", tcase);
}
