/*
 * trace_test.c - records of requests' ways, with a clock of the test's own; and a reader in
 * another thread.
 */
#include <check.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "tests/unit/suite.h"
#include "trace/trace.h"

#define MS    INT64_C(1000000)
#define START (1000 * MS)
#define WALL  INT64_C(1700000000000000000)
#define NAMES ((struct kvw_trace_words){states, 3})

static const char *const states[] = {"zero", "one", "two"};

static struct kvw_trace *create(size_t requests, size_t kept)
{
	struct kvw_trace_options options = {.loops = 1, .requests = requests, .kept = kept};
	struct kvw_trace *trace = NULL;

	options.words[KVW_TRACE_REQUEST] = options.words[KVW_TRACE_STEP] = NAMES;
	ck_assert_int_eq(kvw_trace_create(&options, &trace), KVW_OK);
	return trace;
}

/* A request of that id, which takes a millisecond and ends with that status. */
static void one(struct kvw_trace_ring *ring, const char *id, int status)
{
	struct kvw_trace_way *way = kvw_trace_begin(ring, START, WALL);

	ck_assert_ptr_nonnull(way);
	kvw_trace_name(way, kvw_slice_of(id), KVW_API_CHAT);
	kvw_trace_end(way, START + MS, KVW_END_COMPLETE, status, KVW_API_CHAT);
}

/* The story of this id. False: it is not there. */
static bool find(const struct kvw_trace *trace, const char *id, struct kvw_trace_story *story)
{
	for (size_t i = 0; i < kvw_trace_records(trace); i++)
		if (kvw_trace_read(trace, 0, i, story) &&
			kvw_slice_equal(kvw_trace_story_text(story, story->id_word, story->id_len),
				kvw_slice_of(id)))
			return true;
	return false;
}

static bool has_text(const struct kvw_trace_story *story, size_t note, const char *text)
{
	const struct kvw_trace_note *of = &story->notes[note];

	return kvw_slice_equal(
		kvw_trace_story_text(story, of->text_word, of->text_len), kvw_slice_of(text));
}

static const char *name_of(const struct kvw_trace *trace, const struct kvw_trace_note *note)
{
	return kvw_trace_code_name(trace, (enum kvw_trace_kind)note->kind, note->code);
}

START_TEST(nothing_is_traced_without_records)
{
	struct kvw_trace *trace = create(0, 64);
	struct kvw_trace_way *way = kvw_trace_begin(kvw_trace_ring(trace, 0), START, WALL);
	struct kvw_decision decision = {0};

	ck_assert_ptr_null(trace);
	ck_assert_ptr_null(way);
	kvw_trace_name(way, KVW_SLICE("id"), KVW_API_CHAT);
	kvw_trace_model(way, KVW_SLICE("model"));
	kvw_trace_note(way, START, KVW_TRACE_REQUEST, 1);
	kvw_trace_limit(way, START, START + MS);
	kvw_trace_step(way, START, "step", 1);
	kvw_trace_wait(way, START, "what", START + MS);
	kvw_trace_attempt(way, START, 1, 1, &decision, 0);
	kvw_trace_client(way, START, KVW_TRACE_CLIENT_LEFT);
	kvw_trace_end(way, START, KVW_END_COMPLETE, 200, KVW_API_CHAT);
	kvw_trace_destroy(trace);
}
END_TEST

START_TEST(a_way_under_way_and_ended)
{
	struct kvw_trace *trace = create(4, 0);
	struct kvw_trace_way *way = kvw_trace_begin(kvw_trace_ring(trace, 0), START, WALL);
	struct kvw_trace_story story;
	struct kvw_decision decision = {.reason = KVW_REASON_PREFIX,
		.hit_tokens = {[KVW_TIER_DEVICE] = 512},
		.knowledge = KVW_KNOWS_MISSED};

	kvw_trace_name(way, KVW_SLICE("id-1"), KVW_API_CHAT);
	kvw_trace_model(way, KVW_SLICE(""));
	kvw_trace_model(way, KVW_SLICE("a model"));
	kvw_trace_model(way, KVW_SLICE("another")); /* the first counts */
	kvw_trace_note(way, START + MS, KVW_TRACE_REQUEST, 2);
	kvw_trace_wait(way, START + MS, "room", START + 31 * MS);
	kvw_trace_step(way, START + MS, "admission", 2);
	kvw_trace_attempt(way, START + 2 * MS, 7, 3, &decision, 0x1122334455667788);
	kvw_trace_text(way, START + 3 * MS, KVW_TRACE_FAILED, 1, 0, "it broke");
	kvw_trace_attempt_end(way, START + 3 * MS);
	kvw_trace_attempt_end(way, START + 3 * MS); /* there is none */
	kvw_trace_client(way, START + 4 * MS, KVW_TRACE_CLIENT_SLOW);
	kvw_trace_client(way, START + 4 * MS, KVW_TRACE_CLIENT_LEFT); /* the first counts */
	ck_assert(find(trace, "id-1", &story));
	ck_assert_uint_eq(story.ended, 0);
	ck_assert_int_eq(story.api, KVW_API_CHAT);
	ck_assert(kvw_slice_equal(kvw_trace_story_text(&story, story.model_word, story.model_len),
		KVW_SLICE("a model")));
	ck_assert_uint_eq(story.note_count, 7);
	ck_assert_uint_eq(story.notes[0].at_us, 1000);
	ck_assert_str_eq(name_of(trace, &story.notes[0]), "two");
	ck_assert_ptr_null(kvw_trace_code_name(trace, KVW_TRACE_REQUEST, 3));
	ck_assert_str_eq(name_of(trace, &story.notes[1]), "two");
	ck_assert(has_text(&story, 1, "admission")); /* what the step did follows it */
	ck_assert_uint_eq(story.notes[2].number, 30);
	ck_assert(has_text(&story, 2, "room"));
	ck_assert_uint_eq(story.notes[3].more, kvw_trace_worker(7, 3));
	ck_assert_uint_eq(story.notes[3].number, 512);
	ck_assert(kvw_slice_equal(kvw_trace_knowledge(&story, &story.notes[3]),
		KVW_SLICE("degraded/missed")));
	ck_assert_uint_eq(kvw_trace_prefix(&story, &story.notes[3]), 0x1122334455667788);
	ck_assert_uint_eq(kvw_trace_prefix(&story, &story.notes[1]), 0);
	ck_assert(has_text(&story, 4, "it broke"));
	ck_assert_int_eq(story.notes[5].kind, KVW_TRACE_ATTEMPT_END);
	ck_assert_str_eq(name_of(trace, &story.notes[6]), "slow");
	kvw_trace_end(way, START + 5 * MS, KVW_END_TIMEOUT, 504, KVW_API_CHAT);
	ck_assert(find(trace, "id-1", &story));
	ck_assert_uint_eq(story.ended, 1);
	ck_assert_uint_eq(kvw_trace_ended(trace, 0), 1);
	ck_assert_int_eq(story.total_ns, 5 * MS);
	ck_assert_int_eq(story.status, 504);
	ck_assert_int_eq(story.end, KVW_END_TIMEOUT);
	ck_assert(story.failed);
	ck_assert_int_eq(story.notes[story.note_count - 1].kind, KVW_TRACE_END);
	kvw_trace_destroy(trace);
}
END_TEST

/* A stream that is paused and resumed again and again: what failed and how it ended are noted
 * all the same. */
START_TEST(many_states_leave_room_for_the_end)
{
	struct kvw_trace *trace = create(1, 0);
	struct kvw_trace_way *way = kvw_trace_begin(kvw_trace_ring(trace, 0), START, WALL);
	struct kvw_trace_story story;
	struct kvw_decision decision = {0};
	char text[200];

	memset(text, 'x', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	kvw_trace_name(way, KVW_SLICE("id"), KVW_API_CHAT);
	for (int i = 0; i < 1000; i++)
		kvw_trace_note(way, START, KVW_TRACE_RESPONSE, 1);
	kvw_trace_limit(way, START, START + MS); /* of a note that had no room: of none */
	for (int i = 0; i < 6; i++)
		kvw_trace_text(way, START, KVW_TRACE_FAILED, 1, 0, text);
	for (int i = 0; i < 10; i++)
		kvw_trace_attempt(way, START, 1, 1, &decision, 0);
	kvw_trace_end(way, START + INT64_C(10000000) * MS, KVW_END_COMPLETE, 200, KVW_API_CHAT);
	ck_assert(find(trace, "id", &story));
	ck_assert_uint_eq(story.note_count, KVW_TRACE_NOTES);
	ck_assert_uint_eq(story.skipped, 1000 + 6 + 10 + 1 - KVW_TRACE_NOTES);
	ck_assert_int_eq(story.notes[KVW_TRACE_NOTES - 1].kind, KVW_TRACE_END);
	ck_assert_uint_eq(story.notes[KVW_TRACE_NOTES - 1].at_us, UINT32_MAX);
	ck_assert_int_eq(story.notes[KVW_TRACE_NOTES - 8].kind, KVW_TRACE_FAILED);
	kvw_trace_destroy(trace);
}
END_TEST

START_TEST(texts_are_cut)
{
	struct kvw_trace *trace = create(1, 0);
	struct kvw_trace_way *way = kvw_trace_begin(kvw_trace_ring(trace, 0), START, WALL);
	struct kvw_trace_story story;
	char text[300];

	memset(text, 'x', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	kvw_trace_name(way, kvw_slice_of(text), KVW_API_CHAT);
	kvw_trace_model(way, kvw_slice_of(text));
	for (int i = 0; i < 3; i++)
		kvw_trace_text(way, START, KVW_TRACE_FAILED, 0, 0, text);
	ck_assert(kvw_trace_read(trace, 0, 0, &story));
	ck_assert_uint_eq(story.id_len, KVW_TRACE_ID_MOST);
	ck_assert_uint_eq(story.model_len, KVW_TRACE_MODEL_MOST);
	ck_assert_uint_eq(story.note_count, 3);
	ck_assert_uint_eq(
		story.notes[0].text_len + story.notes[1].text_len + story.notes[2].text_len,
		KVW_TRACE_TEXT - KVW_TRACE_ID_MOST - KVW_TRACE_MODEL_MOST);
	kvw_trace_end(way, START, KVW_END_COMPLETE, 200, KVW_API_CHAT);
	kvw_trace_destroy(trace);
}
END_TEST

START_TEST(the_oldest_are_forgotten_and_failed_ones_later)
{
	struct kvw_trace *trace = create(3, 2);
	struct kvw_trace_ring *ring = kvw_trace_ring(trace, 0);
	struct kvw_trace_story story;
	char id[16];

	one(ring, "bad-1", 500);
	one(ring, "bad-2", 502);
	one(ring, "bad-3", 503);
	for (int i = 0; i < 20; i++) {
		(void)snprintf(id, sizeof(id), "good-%d", i);
		one(ring, id, 200);
	}
	ck_assert(!find(trace, "bad-1", &story));
	ck_assert(find(trace, "bad-2", &story) && story.failed);
	ck_assert(find(trace, "bad-3", &story));
	ck_assert(!find(trace, "good-16", &story));
	ck_assert(find(trace, "good-17", &story) && story.ended == 21);
	ck_assert(find(trace, "good-19", &story) && story.ended == kvw_trace_ended(trace, 0));
	kvw_trace_destroy(trace);
}
END_TEST

/* However many quick requests come, slow ones stay; the last quick ones do, too. */
START_TEST(quick_ones_do_not_push_out_slow_ones)
{
	struct kvw_trace *trace = create(256, 0);
	struct kvw_trace_ring *ring = kvw_trace_ring(trace, 0);
	struct kvw_trace_way *way = kvw_trace_begin(ring, START, WALL);
	struct kvw_trace_story story;
	char id[16];

	kvw_trace_name(way, kvw_slice_of("slow"), KVW_API_CHAT);
	kvw_trace_end(way, START + 200 * MS, KVW_END_COMPLETE, 200, KVW_API_CHAT);
	for (int i = 0; i < 10000; i++) {
		(void)snprintf(id, sizeof(id), "quick-%d", i);
		one(ring, id, 200);
	}
	ck_assert(find(trace, "slow", &story));
	ck_assert(find(trace, "quick-9999", &story));
	ck_assert(find(trace, "quick-9940", &story));
	ck_assert(!find(trace, "quick-9000", &story));
	kvw_trace_destroy(trace);
}
END_TEST

START_TEST(one_without_a_record_is_not_traced)
{
	struct kvw_trace *trace = create(2, 0);
	struct kvw_trace_ring *ring = kvw_trace_ring(trace, 0);
	struct kvw_trace_way *first = kvw_trace_begin(ring, START, WALL),
			     *second = kvw_trace_begin(ring, START, WALL);

	ck_assert_ptr_nonnull(second);
	ck_assert_ptr_null(kvw_trace_begin(ring, START, WALL));
	kvw_trace_end(
		first, START, KVW_END_COMPLETE, 500, KVW_API_CHAT); /* kept 0: it is free again */
	ck_assert_ptr_eq(kvw_trace_begin(ring, START, WALL), first);
	kvw_trace_destroy(trace);
}
END_TEST

/* --- a reader in another thread --- */

#define ROUNDS 200000

struct reader {
	pthread_t thread;
	const struct kvw_trace *trace;
	_Atomic bool over;
	uint64_t seen, wrong;
};

/* Each request's id, notes and end are of one number. */
static bool is_whole(const struct kvw_trace_story *story)
{
	struct kvw_slice id = kvw_trace_story_text(story, story->id_word, story->id_len);
	unsigned number = story->note_count == 0 ? 0 : story->notes[0].number;
	char expected[16];

	(void)snprintf(expected, sizeof(expected), "%u", number);
	if (story->note_count > 0 && !kvw_slice_equal(id, kvw_slice_of(expected)))
		return false;
	for (size_t i = 0; i < story->note_count; i++)
		if (story->notes[i].kind != KVW_TRACE_END && story->notes[i].number != number)
			return false;
	return story->ended == 0 ||
	       (story->note_count == 4 && story->status == 200 + (int)(number % 100) &&
		       story->notes[3].kind == KVW_TRACE_END);
}

static void *read_on(void *arg)
{
	struct reader *reader = arg;
	struct kvw_trace_story story;
	bool over;

	do { /* at least once after the last was written */
		over = atomic_load(&reader->over);
		for (size_t i = 0; i < kvw_trace_records(reader->trace); i++)
			if (kvw_trace_read(reader->trace, 0, i, &story)) {
				reader->seen++;
				reader->wrong += !is_whole(&story);
			}
	} while (!over);
	return NULL;
}

START_TEST(no_torn_record_is_read_as_good)
{
	struct kvw_trace *trace = create(3, 1);
	struct kvw_trace_ring *ring = kvw_trace_ring(trace, 0);
	struct reader reader = {.trace = trace};
	char id[16];

	ck_assert_int_eq(pthread_create(&reader.thread, NULL, read_on, &reader), 0);
	for (unsigned i = 1; i <= ROUNDS; i++) {
		struct kvw_trace_way *way = kvw_trace_begin(ring, START, WALL);

		(void)snprintf(id, sizeof(id), "%u", i);
		kvw_trace_name(way, kvw_slice_of(id), KVW_API_CHAT);
		for (int k = 0; k < 3; k++)
			kvw_trace_text(way, START, KVW_TRACE_ANSWER, 0, i, "text");
		kvw_trace_end(way, START, KVW_END_COMPLETE, 200 + (int)(i % 100), KVW_API_CHAT);
	}
	atomic_store(&reader.over, true);
	pthread_join(reader.thread, NULL);
	ck_assert_uint_gt(reader.seen, 0);
	ck_assert_uint_eq(reader.wrong, 0);
	kvw_trace_destroy(trace);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("trace");

	tcase_set_timeout(tcase, 100);
	tcase_add_test(tcase, nothing_is_traced_without_records);
	tcase_add_test(tcase, a_way_under_way_and_ended);
	tcase_add_test(tcase, many_states_leave_room_for_the_end);
	tcase_add_test(tcase, texts_are_cut);
	tcase_add_test(tcase, the_oldest_are_forgotten_and_failed_ones_later);
	tcase_add_test(tcase, quick_ones_do_not_push_out_slow_ones);
	tcase_add_test(tcase, one_without_a_record_is_not_traced);
	tcase_add_test(tcase, no_torn_record_is_read_as_good);
	return run_tcase("trace", tcase);
}
