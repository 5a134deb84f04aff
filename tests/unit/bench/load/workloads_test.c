/*
 * workloads_test.c - the schedules of `kvbench engine`, walked through by a clock that the test
 * owns: how many requests, in which order, when, and which share a prefix.
 *
 * Hashes of texts (FNV-1a, 64 bits) are those of the texts that `lmcache bench engine` 0.5.6 makes
 * from the same options and seed.
 */
#include <check.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "bench/load/workload.h"
#include "tests/unit/suite.h"

static struct kvb_engine_options options;
static struct kvb_workload *workload;

/* A workload by these words of a command line. */
static void make(const char *words)
{
	char copy[512], *argv[40], program[] = "kvbench";
	int argc = 0;

	snprintf(copy, sizeof(copy), "%s --engine-url=x", words);
	argv[argc++] = program;
	for (char *word = strtok(copy, " "); word != NULL; word = strtok(NULL, " "))
		argv[argc++] = word;
	ck_assert_int_eq(
		kvb_engine_options_parse(argc, argv, 2, argv[1], &options, stderr), KVW_OK);
	ck_assert_int_eq(
		kvb_workload_find(options.workload)->create(&options, &workload, stderr), KVW_OK);
	ck_assert_int_eq(argc < 40, 1);
}

static void unmake(void)
{
	workload->ops->destroy(workload);
	kvb_engine_options_finish(&options);
}

static uint64_t fnv(const char *text)
{
	uint64_t hash = UINT64_C(0xcbf29ce484222325);

	for (; *text != '\0'; text++)
		hash = (hash ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
	return hash;
}

/* The messages of a request as JSON that the caller owns; releases the request's own. */
static json_t *messages_of(struct kvb_ask *ask)
{
	struct kvb_buf text = {0};
	json_t *all;

	kvb_buf_text(&text, "[");
	kvb_buf_add(&text, ask->messages.data, ask->messages.len);
	kvb_buf_text(&text, "]");
	all = json_loadb(text.data, text.len, 0, NULL);
	ck_assert(json_is_array(all));
	kvb_buf_finish(&text);
	kvb_buf_finish(&ask->messages);
	return all;
}

static const char *content(json_t *messages, size_t i)
{
	return json_string_value(json_object_get(json_array_get(messages, i), "content"));
}

/* The text of the only message; caller frees. */
static char *only_text(struct kvb_ask *ask)
{
	json_t *all = messages_of(ask);
	char *copy;

	ck_assert_uint_eq(json_array_size(all), 1);
	copy = strdup(content(all, 0));
	json_decref(all);
	return copy;
}

/* Must ask now; returns the id. */
static const char *asks(int64_t now_ns, struct kvb_ask *ask)
{
	int64_t wake_ns;

	ck_assert_int_eq(kvb_workload_next(workload, now_ns, ask, &wake_ns), KVB_ASK);
	return ask->id;
}

static void ask_and_drop(int64_t now_ns, const char *id)
{
	struct kvb_ask ask;

	ck_assert_str_eq(asks(now_ns, &ask), id);
	kvb_buf_finish(&ask.messages);
}

/* Must wait; returns until when at most. */
static int64_t waits(int64_t now_ns)
{
	struct kvb_ask ask;
	int64_t wake_ns = -1;

	ck_assert_int_eq(kvb_workload_next(workload, now_ns, &ask, &wake_ns), KVB_WAIT);
	return wake_ns;
}

static void is_done(int64_t now_ns)
{
	struct kvb_ask ask;
	int64_t wake_ns;

	ck_assert_int_eq(kvb_workload_next(workload, now_ns, &ask, &wake_ns), KVB_DONE);
}

static void end_with(uint64_t tag, bool ok, const char *text)
{
	kvb_workload_ended(workload, tag, ok, text, strlen(text));
}

#define SECOND INT64_C(1000000000)

START_TEST(documents_are_asked_in_pythons_order)
{
	static const char *const ids[] = {"doc2_q1", "doc3_q0", "doc2_q0", "doc3_q1", "doc0_q1",
		"doc1_q1", "doc4_q1", "doc4_q0", "doc0_q0", "doc1_q0"};
	struct kvb_ask ask;
	char *text;

	make("long-doc-qa --kv-cache-volume 1 --tokens-per-gb-kvcache 50000");
	ck_assert_uint_eq(workload->planned, 10);
	ck_assert_uint_eq(workload->warm_count, 5);
	ck_assert_str_eq(asks(7, &ask), ids[0]);
	ck_assert_int_eq(ask.max_tokens, 128);
	ck_assert_int_eq(ask.due_ns, 7);
	text = only_text(&ask);
	ck_assert_uint_eq(fnv(text), UINT64_C(0xd50c963e15a9598b));
	free(text);
	ask_and_drop(7, ids[1]);
	ask_and_drop(7, ids[2]);
	ck_assert_int_eq(waits(8), KVB_NEVER); /* three are under way */
	for (size_t i = 3; i < 10; i++) {
		end_with(0, i % 2 == 0, "");
		ask_and_drop(8, ids[i]);
	}
	is_done(9);
	unmake();
}
END_TEST

START_TEST(tiles_go_question_by_question_and_share_their_document)
{
	struct kvb_ask ask;
	char *warm, *asked;

	make("long-doc-qa --kv-cache-volume 1 --tokens-per-gb-kvcache 200 "
	     "--ldqa-document-length 100 --ldqa-shuffle-policy tile --ldqa-query-per-document 6 "
	     "--ldqa-num-inflight-requests 99");
	workload->ops->warm(workload, 1, &ask);
	ck_assert_str_eq(ask.id, "warmup_doc1");
	ck_assert_int_eq(ask.max_tokens, 1);
	warm = only_text(&ask);
	for (int question = 0; question < 6; question++) {
		char expected[64];

		snprintf(expected, sizeof(expected), "doc0_q%d", question);
		ask_and_drop(0, expected);
		snprintf(expected, sizeof(expected), "doc1_q%d", question);
		ck_assert_str_eq(asks(0, &ask), expected);
		ck_assert_uint_eq(ask.session, 2);
		asked = only_text(&ask);
		ck_assert_mem_eq(asked, warm, strlen(warm)); /* what the warm-up left is reused */
		free(asked);
	}
	is_done(0);
	free(warm);
	unmake();
}
END_TEST

START_TEST(chat_is_due_at_a_fixed_rate_and_in_turns)
{
	/* Three sessions: 1 * 36000 / (2000 + 10000). */
	make("multi-round-chat --kv-cache-volume 1 --tokens-per-gb-kvcache 36000 --mrc-qps 2 "
	     "--mrc-duration 4");
	ck_assert_uint_eq(workload->warm_count, 3);
	ck_assert_uint_eq(workload->planned, 8);
	for (int k = 0; k < 8; k++) {
		char expected[64];
		int64_t due_ns = k * SECOND / 2;

		snprintf(expected, sizeof(expected), "s%d_r%d", k % 3, k);
		if (k > 0)
			ck_assert_int_eq(waits(due_ns - 1), due_ns);
		ask_and_drop(due_ns, expected);
		end_with((uint64_t)(k % 3), true, "yes");
	}
	ck_assert_int_eq(waits(4 * SECOND - 1), 4 * SECOND); /* its time is not over yet */
	is_done(4 * SECOND);
	unmake();
}
END_TEST

START_TEST(a_busy_session_holds_the_others_up_and_they_catch_up)
{
	struct kvb_ask ask;

	make("multi-round-chat --kv-cache-volume 1 --tokens-per-gb-kvcache 24000 --mrc-qps 10 "
	     "--mrc-duration 2");
	ask_and_drop(0, "s0_r0");
	ask_and_drop(SECOND / 10, "s1_r1");
	end_with(1, true, "yes");
	/* Question 2 is session 0's, whose answer is missing: question 3 waits as well. */
	ck_assert_int_eq(waits(SECOND / 5), 2 * SECOND);
	ck_assert_int_eq(waits(SECOND), 2 * SECOND);
	end_with(0, true, "late");
	ck_assert_str_eq(asks(SECOND, &ask), "s0_r2");
	ck_assert_int_eq(ask.due_ns, SECOND / 5); /* so late is it */
	kvb_buf_finish(&ask.messages);
	ask_and_drop(SECOND, "s1_r3"); /* overdue: at once */
	end_with(0, true, "");
	end_with(1, true, "");
	ask_and_drop(SECOND, "s0_r4");
	is_done(2 * SECOND); /* those never sent show in planned */
	ck_assert_uint_eq(workload->planned, 20);
	unmake();
}
END_TEST

START_TEST(chat_keeps_what_was_answered)
{
	static const uint64_t hashes[] = {UINT64_C(0xa7d417a1737537fc),
		UINT64_C(0xa2e3c38e5b944e2e), UINT64_C(0x90e1eb0692ac666a),
		UINT64_C(0x72bea1c011357439)};
	struct kvb_ask ask;
	json_t *all;

	make("multi-round-chat --kv-cache-volume 1 --tokens-per-gb-kvcache 50000 --mrc-qps 1");
	ask_and_drop(0, "s0_r0");
	ask_and_drop(SECOND, "s1_r1");
	ck_assert_str_eq(asks(2 * SECOND, &ask), "s2_r2");
	ck_assert_int_eq(ask.max_tokens, 200);
	all = messages_of(&ask);
	ck_assert_uint_eq(json_array_size(all), 4);
	for (size_t i = 0; i < 4; i++)
		ck_assert_uint_eq(fnv(content(all, i)), hashes[i]);
	json_decref(all);
	ask_and_drop(3 * SECOND, "s3_r3");
	end_with(0, true, "say \"no\"\n");
	end_with(1, false, "half an ans");
	ck_assert_str_eq(asks(4 * SECOND, &ask), "s0_r4");
	all = messages_of(&ask);
	ck_assert_uint_eq(json_array_size(all), 6);
	ck_assert_uint_eq(fnv(content(all, 3)), hashes[3]);
	ck_assert_str_eq(content(all, 4), "say \"no\"\n");
	ck_assert_uint_eq(fnv(content(all, 5)), hashes[3]);
	json_decref(all);
	ck_assert_str_eq(asks(5 * SECOND, &ask), "s1_r5");
	all = messages_of(&ask);
	ck_assert_uint_eq(json_array_size(all), 4); /* a question that failed left nothing */
	json_decref(all);
	unmake();
}
END_TEST

START_TEST(chat_warms_every_session_up)
{
	struct kvb_ask ask;
	json_t *warm, *all;

	make("multi-round-chat --kv-cache-volume 1 --tokens-per-gb-kvcache 24000");
	workload->ops->warm(workload, 1, &ask);
	ck_assert_str_eq(ask.id, "warmup_s1");
	ck_assert_int_eq(ask.max_tokens, 1);
	warm = messages_of(&ask);
	ck_assert_str_eq(content(warm, 3), "Hello");
	ask_and_drop(0, "s0_r0");
	ck_assert_str_eq(asks(SECOND, &ask), "s1_r1");
	all = messages_of(&ask);
	for (size_t i = 0; i < 3; i++)
		ck_assert_str_eq(content(all, i), content(warm, i));
	json_decref(all);
	json_decref(warm);
	unmake();
}
END_TEST

/* Which documents come first in each request, by the document's first words. */
static void check_orders(const char *const *expected, size_t count)
{
	char *first[8];
	struct kvb_ask ask;

	for (size_t k = 0; k < count; k++) {
		char id[64], *text, *part;

		snprintf(id, sizeof(id), "perm%zu_req%zu", k, k);
		ck_assert_str_eq(asks(0, &ask), id);
		text = only_text(&ask);
		part = text;
		for (size_t i = 0; expected[k][i] != '\0'; i++) {
			size_t len = strcspn(part, "\n");
			size_t document = (size_t)(expected[k][i] - '0');

			if (k == 0)
				first[document] = strndup(part, len);
			ck_assert_uint_eq(len, strlen(first[document]));
			ck_assert_mem_eq(part, first[document], len);
			part += len + (part[len] == '\n' ? 2 : 0);
		}
		ck_assert_str_eq(part, "");
		free(text);
	}
	for (size_t i = 0; expected[0][i] != '\0'; i++)
		free(first[i]);
	is_done(0);
}

START_TEST(permutations_are_pythons_sample)
{
	static const char *const expected[] = {"01234", "03412", "04213", "14203", "21034", "30214",
		"41203", "42013", "43012", "43021"};

	make("long-doc-permutator --ldp-system-prompt-length 0 --ldp-context-length 30 "
	     "--ldp-num-inflight-requests 10");
	ck_assert_uint_eq(workload->planned, 10);
	check_orders(expected, 10);
	unmake();
}
END_TEST

START_TEST(permutations_are_all_or_the_first)
{
	static const char *const all[] = {"012", "021", "102", "120", "201", "210"};
	static const char *const first[] = {"0123", "0132", "0213"};

	make("long-doc-permutator --ldp-system-prompt-length 0 --ldp-context-length 30 "
	     "--ldp-num-contexts 3 --ldp-num-permutations 9 --ldp-num-inflight-requests 10");
	ck_assert_uint_eq(workload->planned, 6);
	check_orders(all, 6);
	unmake();
	make("long-doc-permutator --ldp-system-prompt-length 0 --ldp-context-length 30 "
	     "--ldp-num-contexts 4 --ldp-num-permutations 3 --ldp-num-inflight-requests 10");
	check_orders(first, 3);
	unmake();
	make("long-doc-permutator --ldp-num-contexts 1 --ldp-context-length 3");
	ck_assert_uint_eq(workload->planned, 1);
	unmake();
}
END_TEST

START_TEST(permuted_requests_share_their_system_prompt_alone)
{
	struct kvb_ask ask;
	json_t *one, *other, *warm;

	make("long-doc-permutator --ldp-context-length 20 --ldp-system-prompt-length 7");
	ck_assert_uint_eq(workload->warm_count, 1);
	workload->ops->warm(workload, 0, &ask);
	ck_assert_str_eq(ask.id, "warmup_0");
	warm = messages_of(&ask);
	ck_assert_uint_eq(strlen(content(warm, 1)), 500 * 7 - 1);
	asks(0, &ask);
	one = messages_of(&ask);
	ck_assert_int_eq(waits(0), KVB_NEVER); /* one at a time by default */
	end_with(0, true, "");
	asks(0, &ask);
	other = messages_of(&ask);
	ck_assert_uint_eq(json_array_size(one), 2);
	ck_assert_str_eq(content(one, 0), content(other, 0));
	ck_assert_uint_eq(strlen(content(one, 0)), 7 * 4 - 1); /* built-in words have 3 letters */
	ck_assert_str_ne(content(one, 1), content(other, 1));
	ck_assert_uint_eq(strlen(content(one, 1)), strlen(content(other, 1)));
	json_decref(one);
	json_decref(other);
	json_decref(warm);
	unmake();
}
END_TEST

START_TEST(tuner_sends_each_prefix_twice_with_ever_new_breakers)
{
	/* Of the first pass's two requests, then of the second's: breakers go on. */
	static const uint64_t hashes[] = {UINT64_C(0x568914949185cae4),
		UINT64_C(0x3314e33cd275012e), UINT64_C(0xec847a029c06c8ed),
		UINT64_C(0x1754465c2643d86a)};
	struct kvb_ask ask;
	char *text;

	make("prefix-suffix-tuner --psf-thrash 1 --tokens-per-gb-kvcache 50000");
	ck_assert_uint_eq(workload->planned, 6); /* 1.05 GB by 8000 tokens */
	ck_assert_uint_eq(workload->warm_count, 7);
	ck_assert_int_eq(workload->settle_ns, 5 * SECOND);
	workload->ops->warm(workload, 0, &ask);
	ck_assert_str_eq(ask.id, "engine_warmup");
	kvb_buf_finish(&ask.messages);
	for (uint64_t i = 0; i < 2; i++) {
		workload->ops->warm(workload, i + 1, &ask);
		ck_assert_str_eq(ask.id, i == 0 ? "pass1_p0" : "pass1_p1");
		text = only_text(&ask);
		ck_assert_uint_eq(fnv(text), hashes[i]);
		free(text);
	}
	for (uint64_t i = 0; i < 2; i++) {
		ck_assert_str_eq(asks(0, &ask), i == 0 ? "pass2_p0" : "pass2_p1");
		ck_assert_int_eq(ask.max_tokens, 1);
		text = only_text(&ask);
		ck_assert_uint_eq(fnv(text), hashes[2 + i]);
		free(text);
		ck_assert_int_eq(waits(0), KVB_NEVER); /* strictly one at a time */
		end_with(0, false, "");
	}
	for (int i = 2; i < 6; i++) {
		asks(0, &ask);
		kvb_buf_finish(&ask.messages);
		end_with(0, true, "");
	}
	is_done(0);
	unmake();
}
END_TEST

/* The texts between separators; how many. */
static size_t cut(char *text, char *parts[], size_t most)
{
	size_t count = 0;

	for (char *at = text; at != NULL && count < most; count++) {
		char *next = strstr(at, " # # ");

		parts[count] = at;
		if (next != NULL) {
			*next = '\0';
			next += strlen(" # # ");
		}
		at = next;
	}
	return count;
}

START_TEST(retrieval_asks_some_documents_in_any_order)
{
	char *known[5], *parts[5], *texts[5];
	size_t repeated = 0, moved = 0;
	struct kvb_ask ask;

	make("rag-qa --rag-num-documents 5 --rag-document-length 30 --rag-documents-per-request 3 "
	     "--rag-num-requests 20 --rag-num-inflight-requests 20 --rag-system-prompt-length 0");
	ck_assert_uint_eq(workload->warm_count, 5);
	for (uint64_t i = 0; i < 5; i++) {
		workload->ops->warm(workload, i, &ask);
		ck_assert_int_eq(ask.max_tokens, 1);
		texts[i] = only_text(&ask);
		ck_assert_uint_eq(cut(texts[i], parts, 5), 2);
		known[i] = parts[0];
		ck_assert_uint_eq(strlen(known[i]), 30 * 4 - 1);
		for (uint64_t k = 0; k < i; k++)
			ck_assert_str_ne(known[k], known[i]);
	}
	for (int n = 0; n < 20; n++) {
		unsigned seen = 0;
		char *text;

		asks(0, &ask);
		text = only_text(&ask);
		ck_assert_uint_eq(cut(text, parts, 5), 4); /* and the question */
		for (size_t i = 0; i < 3; i++)
			for (unsigned k = 0; k < 5; k++)
				if (strcmp(parts[i], known[k]) == 0) {
					repeated += (seen >> k) & 1;
					moved += i > 0 && k == 0;
					seen |= 1u << k;
				}
		ck_assert_int_eq(__builtin_popcount(seen), 3);
		free(text);
	}
	ck_assert_uint_eq(repeated, 0);
	ck_assert_uint_gt(moved, 0);
	is_done(0);
	for (uint64_t i = 0; i < 5; i++)
		free(texts[i]);
	unmake();
}
END_TEST

START_TEST(retrieval_keeps_to_a_topic)
{
	unsigned topics_seen = 0;

	make("rag-qa --rag-num-documents 11 --rag-document-length 30 --rag-documents-per-request 3 "
	     "--rag-num-topics 3 --rag-num-inflight-requests 40 --rag-num-requests 40 "
	     "--rag-system-prompt-length 0");
	for (int n = 0; n < 40; n++) {
		char *parts[5], *text, *known;
		unsigned topics = 0;
		struct kvb_ask ask;

		asks(0, &ask);
		text = only_text(&ask);
		ck_assert_uint_eq(cut(text, parts, 5), 4);
		for (uint64_t d = 0; d < 11; d++) {
			workload->ops->warm(workload, d, &ask);
			known = only_text(&ask);
			*strstr(known, " # # ") = '\0';
			for (size_t i = 0; i < 3; i++)
				if (strcmp(parts[i], known) == 0)
					topics |= 1u << d % 3;
			free(known);
		}
		ck_assert_int_eq(__builtin_popcount(topics), 1);
		topics_seen |= topics;
		free(text);
	}
	ck_assert_uint_eq(topics_seen, 7);
	unmake();
}
END_TEST

START_TEST(retrieval_sends_each_document_as_a_message_if_asked)
{
	struct kvb_ask ask;
	json_t *all;

	make("rag-qa --rag-layout messages --rag-document-length 10 --rag-num-documents 4 "
	     "--rag-documents-per-request 4");
	asks(0, &ask);
	all = messages_of(&ask);
	ck_assert_uint_eq(json_array_size(all), 6); /* system, documents, question */
	ck_assert_ptr_eq(strstr(content(all, 1), "#"), NULL);
	ck_assert_ptr_ne(strstr(content(all, 5), "Question 0: "), NULL);
	json_decref(all);
	unmake();
}
END_TEST

START_TEST(prefill_sends_all_at_once)
{
	struct kvb_ask ask;
	char *text;

	make("random-prefill --rp-num-requests 3 --rp-request-length 12");
	ck_assert_uint_eq(workload->warm_count, 0);
	ck_assert_uint_eq(workload->at_once, 3);
	ask_and_drop(0, "prefill_0");
	ck_assert_str_eq(asks(0, &ask), "prefill_1");
	ck_assert_int_eq(ask.max_tokens, 1);
	text = only_text(&ask);
	ck_assert_str_eq(text, "Request 1: hi hi");
	free(text);
	ask_and_drop(0, "prefill_2");
	is_done(0);
	unmake();
}
END_TEST

/* Words out of a vocabulary in a file. */
static char *write_vocabulary(const char *json)
{
	char *path = strdup("/tmp/kvb-words-XXXXXX");
	int fd = mkstemp(path);
	FILE *file = fdopen(fd, "w");

	ck_assert_ptr_nonnull(file);
	fputs(json, file);
	fclose(file);
	return path;
}

START_TEST(words_of_a_tokenizer_are_drawn_as_python_draws_them)
{
	struct kvb_word_pool pool;
	struct kvb_py_random random;
	struct kvb_buf json = {0}, text = {0};
	char *path;

	kvb_buf_text(&json, "{\"model\":{\"vocab\":{\"\\u0120Upper\":1,\"nomark\":2,"
			    "\"\\u0120a1\":3,\"\\u0120\":4,\"\\u2581ab\":5");
	for (char a = 'z'; a >= 'a'; a--)
		for (char b = 'a'; b <= 'z'; b++)
			kvb_buf_printf(&json, ",\"\\u0120%c%c\":%d", a, b, 100 + 26 * a + b);
	kvb_buf_text(&json, "}}}");
	path = write_vocabulary(kvb_buf_str(&json));
	ck_assert_int_eq(kvb_word_pool_load(&pool, path, 42, stderr), KVW_OK);
	ck_assert_uint_eq(pool.count, 26 * 26);
	kvb_py_seed(&random, 42);
	kvb_word_pool_text(&pool, &random, 5, &text);
	ck_assert_str_eq(kvb_buf_str(&text), " cl je gr mc nm");
	text.len = 0;
	kvb_py_seed(&random, 44);
	kvb_word_pool_text(&pool, &random, 4, &text);
	ck_assert_str_eq(kvb_buf_str(&text), " ab ri kf sl");
	kvb_buf_finish(&text);
	kvb_buf_finish(&json);
	kvb_word_pool_finish(&pool);
	remove(path);
	free(path);
}
END_TEST

START_TEST(tokenizers_that_will_not_do_are_refused)
{
	static const char *const wrong[] = {"", "[]", "{\"model\":{}}", "{\"model\":{\"vocab\":7}}",
		"{\"model\":{\"vocab\":{\"\\u0120only\":1}}}",
		"{\"model\":{\"vocab\":[[],[1],\"\\u2581a\",[\"\\u2581b\",0]]}}"};
	FILE *silent = fopen("/dev/null", "w");
	struct kvb_word_pool pool;

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		char *path = write_vocabulary(wrong[i]);

		ck_assert_msg(kvb_word_pool_load(&pool, path, 1, silent) != KVW_OK, "accepted: %s",
			wrong[i]);
		remove(path);
		free(path);
	}
	ck_assert_int_eq(kvb_word_pool_load(&pool, "/nowhere/at/all", 1, silent), KVW_EIO);
	fclose(silent);
}
END_TEST

START_TEST(what_cannot_be_sent_is_refused)
{
	static const char *const wrong[] = {
		"prefix-suffix-tuner --psf-prefix-ratio 0.99 --tokens-per-gb-kvcache 1000",
		"multi-round-chat --mrc-qps 1000 --mrc-duration 100000 --tokens-per-gb-kvcache 10",
		"long-doc-qa --kv-cache-volume 1e9 --tokens-per-gb-kvcache 1000000",
		"long-doc-permutator --ldp-num-contexts 1000 --ldp-context-length 100000",
		"long-doc-permutator --ldp-num-contexts 1000 --ldp-num-permutations 100000",
		"long-doc-permutator --tokenizer /nowhere/at/all",
	};
	FILE *silent = fopen("/dev/null", "w");

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		char copy[256], *argv[16], program[] = "kvbench";
		struct kvb_workload *made = NULL;
		int argc = 0;

		snprintf(copy, sizeof(copy), "%s --engine-url=x", wrong[i]);
		argv[argc++] = program;
		for (char *word = strtok(copy, " "); word != NULL; word = strtok(NULL, " "))
			argv[argc++] = word;
		ck_assert_int_eq(
			kvb_engine_options_parse(argc, argv, 2, argv[1], &options, stderr), KVW_OK);
		ck_assert_msg(
			kvb_workload_find(options.workload)->create(&options, &made, silent) !=
				KVW_OK,
			"accepted: %s", wrong[i]);
		ck_assert_ptr_null(made);
	}
	fclose(silent);
}
END_TEST

int main(void)
{
	TCase *tests = tcase_create("all");

	tcase_set_timeout(tests, 60);
	tcase_add_test(tests, documents_are_asked_in_pythons_order);
	tcase_add_test(tests, tiles_go_question_by_question_and_share_their_document);
	tcase_add_test(tests, chat_is_due_at_a_fixed_rate_and_in_turns);
	tcase_add_test(tests, a_busy_session_holds_the_others_up_and_they_catch_up);
	tcase_add_test(tests, chat_keeps_what_was_answered);
	tcase_add_test(tests, chat_warms_every_session_up);
	tcase_add_test(tests, permutations_are_pythons_sample);
	tcase_add_test(tests, permutations_are_all_or_the_first);
	tcase_add_test(tests, permuted_requests_share_their_system_prompt_alone);
	tcase_add_test(tests, tuner_sends_each_prefix_twice_with_ever_new_breakers);
	tcase_add_test(tests, retrieval_asks_some_documents_in_any_order);
	tcase_add_test(tests, retrieval_keeps_to_a_topic);
	tcase_add_test(tests, retrieval_sends_each_document_as_a_message_if_asked);
	tcase_add_test(tests, prefill_sends_all_at_once);
	tcase_add_test(tests, words_of_a_tokenizer_are_drawn_as_python_draws_them);
	tcase_add_test(tests, tokenizers_that_will_not_do_are_refused);
	tcase_add_test(tests, what_cannot_be_sent_is_refused);
	return run_tcase("load workloads", tests);
}
