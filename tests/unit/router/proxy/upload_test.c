/*
 * upload_test.c - a request's bytes: read as they come, changed where they lie, copied, handed on.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "proxy/upload.h"
#include "tests/unit/suite.h"

#define HEAD    "POST / HTTP/1.1\r\n\r\n"
#define PAYLOAD "{\"model\":\"alias\",\"prompt\":\"hello\"}"
#define CHANGED "{\"model\":\"a-longer-name\",\"prompt\":\"hello\"}"
#define NEXT    "GET /next HTTP/1.1\r\n"

static struct kvw_block_pool pool;
static struct kvw_upload upload;
static char seen[256];
static size_t seen_len;

static void see(void *arg, const char *data, size_t len)
{
	(void)arg;
	ck_assert_uint_le(seen_len + len, sizeof(seen));
	memcpy(seen + seen_len, data, len);
	seen_len += len;
}

static void arrive(const char *data, size_t len)
{
	ck_assert_int_eq(kvw_chain_append(&upload.in, &pool, data, len), KVW_OK);
}

static void begin(enum kvw_framing framing, uint64_t length)
{
	memset(&upload, 0, sizeof(upload));
	seen_len = 0;
	arrive(HEAD, sizeof(HEAD) - 1);
	upload.head_len = sizeof(HEAD) - 1;
	upload.framing = framing;
	upload.content_length = length;
	upload.feed = kvw_upload_body(&upload);
	kvw_body_begin(&upload.body, framing, length, 0);
}

static void end(void)
{
	kvw_chain_clear(&upload.in, &pool);
	kvw_block_pool_finish(&pool);
}

/* As chunks of 7 bytes, each fed when it is there. */
static void arrive_in_chunks(void)
{
	char chunk[32];
	size_t sent = 0;

	while (sent < sizeof(PAYLOAD) - 1) {
		size_t n = sizeof(PAYLOAD) - 1 - sent < 7 ? sizeof(PAYLOAD) - 1 - sent : 7;
		int len = snprintf(chunk, sizeof(chunk), "%zx\r\n%.*s\r\n", n, (int)n, &PAYLOAD[sent]);

		arrive(chunk, (size_t)len);
		ck_assert(kvw_upload_has_news(&upload));
		ck_assert_int_eq(kvw_upload_feed(&upload, see, NULL), KVW_OK);
		ck_assert(!upload.body.done);
		sent += n;
	}
	arrive("0\r\n\r\n" NEXT, 5 + sizeof(NEXT) - 1);
	ck_assert_int_eq(kvw_upload_feed(&upload, see, NULL), KVW_OK);
	ck_assert(upload.body.done);
}

static void assert_copy(const char *text)
{
	char *copy = malloc(strlen(text) + 1);

	ck_assert_uint_eq(kvw_upload_payload(&upload), strlen(text));
	ck_assert(kvw_upload_copy(&upload, copy, strlen(text)));
	ck_assert_mem_eq(copy, text, strlen(text));
	ck_assert(!kvw_upload_copy(&upload, copy, strlen(text) + 1)); /* it has no more */
	free(copy);
}

START_TEST(what_lies_behind_the_body_is_the_next_requests)
{
	struct kvw_chain next = {0};

	begin(KVW_FRAME_CHUNKED, 0);
	arrive_in_chunks();
	ck_assert_uint_eq(seen_len, sizeof(PAYLOAD) - 1);
	ck_assert_mem_eq(seen, PAYLOAD, seen_len);
	ck_assert_int_eq(kvw_upload_split(&upload, &pool, &next), KVW_OK);
	ck_assert_uint_eq(next.bytes, sizeof(NEXT) - 1);
	ck_assert_mem_eq(next.first->data + next.first->begin, NEXT, sizeof(NEXT) - 1);
	ck_assert(!kvw_upload_has_news(&upload));
	assert_copy(PAYLOAD);
	kvw_chain_clear(&next, &pool);
	end();
}
END_TEST

/* A member that is only taken out, or written again, changes what copies and tokens are made of, too. */
START_TEST(a_changed_body_is_what_is_read_again)
{
	struct kvw_splice splice = {.count = 1, .growth = 8};
	struct kvw_chain next = {0};
	bool chunked = _i == 0;

	splice.edits[0] = (struct kvw_splice_edit){10, 5, KVW_SLICE("a-longer-name")};
	begin(chunked ? KVW_FRAME_CHUNKED : KVW_FRAME_LENGTH, chunked ? 0 : sizeof(PAYLOAD) - 1);
	if (chunked) {
		arrive_in_chunks();
	} else {
		arrive(PAYLOAD NEXT, sizeof(PAYLOAD NEXT) - 1);
		ck_assert_int_eq(kvw_upload_feed(&upload, see, NULL), KVW_OK);
	}
	ck_assert_int_eq(kvw_upload_split(&upload, &pool, &next), KVW_OK);
	ck_assert_int_eq(kvw_upload_change(&upload, &pool, &splice), KVW_OK);
	ck_assert_int_eq(upload.framing, KVW_FRAME_LENGTH);
	ck_assert_uint_eq(upload.received, sizeof(CHANGED) - 1);
	assert_copy(CHANGED);
	kvw_upload_free_body(&upload, &pool);
	ck_assert_mem_eq(kvw_upload_head(&upload), HEAD, sizeof(HEAD) - 1);
	ck_assert_ptr_null(upload.in.first->next);
	kvw_chain_clear(&next, &pool);
	end();
}
END_TEST

START_TEST(its_pace_counts_from_when_it_was_awaited)
{
	begin(KVW_FRAME_LENGTH, 1000);
	kvw_upload_pace_begin(&upload, KVW_NS_PER_S);
	upload.received = 100;
	ck_assert(kvw_upload_keeps_pace(&upload, 2 * KVW_NS_PER_S, 100));
	ck_assert(!kvw_upload_keeps_pace(&upload, 2 * KVW_NS_PER_S, 101));
	ck_assert(kvw_upload_keeps_pace(&upload, 9 * KVW_NS_PER_S, 0));
	kvw_upload_pace_begin(&upload, 2 * KVW_NS_PER_S);
	ck_assert(!kvw_upload_keeps_pace(&upload, 3 * KVW_NS_PER_S, 1));
	end();
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("upload");

	tcase_add_test(tc, what_lies_behind_the_body_is_the_next_requests);
	tcase_add_loop_test(tc, a_changed_body_is_what_is_read_again, 0, 2);
	tcase_add_test(tc, its_pace_counts_from_when_it_was_awaited);
	return run_tcase("upload", tc);
}
