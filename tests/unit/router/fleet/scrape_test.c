/*
 * scrape_test.c - what is read from a worker's /metrics and /v1/models, recorded and made up.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fleet/scrape.h"
#include "tests/unit/suite.h"

/* The body of a recorded answer. Caller frees *file. */
static struct kvw_slice recorded(const char *name, char **file)
{
	char path[512];
	size_t size = 0;
	ssize_t len;
	char *body;
	FILE *in;

	snprintf(path, sizeof(path), "%s/%s", DATA_DIR, name);
	in = fopen(path, "re");
	ck_assert_msg(in != NULL, "cannot open %s", path);
	*file = NULL;
	len = getdelim(file, &size, '\0', in);
	fclose(in);
	ck_assert_int_gt(len, 0);
	body = strstr(*file, "\r\n\r\n");
	ck_assert_ptr_nonnull(body);
	body += 4;
	return (struct kvw_slice){body, (size_t)(*file + len - body)};
}

static struct kvw_scrape scrape(const char *text)
{
	struct kvw_scrape out;

	kvw_scrape_metrics(text, strlen(text), &out);
	return out;
}

START_TEST(metrics_of_a_real_vllm)
{
	char *file;
	struct kvw_slice body = recorded("vllm_metrics.resp", &file);
	struct kvw_scrape out;

	kvw_scrape_metrics(body.data, body.len, &out);
	ck_assert(out.capacity_known);
	ck_assert_uint_eq(out.capacity_tokens, 1023 * 32);
	ck_assert_uint_eq(out.block_size, 32);
	ck_assert(out.started_known);
	ck_assert_double_eq(out.started_s, 1.79524212883e+09);
	ck_assert_double_eq(out.kv_usage, 0);
	ck_assert_double_eq(out.requests_waiting, 0);
	ck_assert_double_eq(out.requests_running, 0);
	ck_assert_double_eq(out.prompts, 164);
	ck_assert_double_eq(out.prompt_tokens, 20986);
	ck_assert_double_eq(out.first_tokens, 164);
	ck_assert_double_eq(out.cache_queries, 21106);
	ck_assert_double_eq(out.cache_hits, 9088);
	ck_assert(!out.asleep);
	free(file);
}
END_TEST

START_TEST(kv_use_of_several_engines)
{
	struct kvw_scrape out = scrape("vllm:kv_cache_usage_perc{engine=\"0\"} 0.5\n"
				       "vllm:kv_cache_usage_perc{engine=\"1\"} 1.0\n");

	ck_assert_double_eq(out.kv_usage, 0.75);
	ck_assert_double_eq(scrape("vllm:gpu_cache_usage_perc 0.25\n").kv_usage, 0.25);
	ck_assert(!out.progress_known && !out.running);
	out = scrape("vllm:iteration_tokens_total_count{engine=\"0\"} 16.0\n"
		     "vllm:prompt_tokens_total{engine=\"1\"} 1484.0\n"
		     "vllm:generation_tokens_total{engine=\"1\"} 32.0\n"
		     "vllm:num_requests_running{engine=\"1\"} 2.0\n");
	ck_assert(out.progress_known && out.running);
	ck_assert_double_eq(out.progress, 1532);
	out = scrape("vllm:gpu_cache_usage_perc 0.25\nvllm:kv_cache_usage_perc 0.5\n");
	ck_assert_double_eq(out.kv_usage, 0.5);
}
END_TEST

START_TEST(requests_of_all_engines)
{
	struct kvw_scrape out = scrape("vllm:num_requests_waiting{engine=\"0\"} 3.0\n"
				       "vllm:num_requests_waiting{engine=\"1\"} 4.0\n"
				       "vllm:num_requests_waiting_by_reason{engine=\"1\",reason=\"capacity\"} 4.0\n"
				       "vllm:num_requests_running{engine=\"0\"} 8.0\n"
				       "vllm:num_requests_running{engine=\"1\"} 0.0\n");

	ck_assert_double_eq(out.requests_waiting, 7);
	ck_assert_double_eq(out.requests_running, 8);
	out = scrape("vllm:num_requests_waiting 1e15\nvllm:num_requests_running -1\n");
	ck_assert_double_eq(out.requests_waiting, -1);
	ck_assert_double_eq(out.requests_running, -1);
	ck_assert_double_eq(out.prompts, -1);
}
END_TEST

#define SLEEP(state, value) "vllm:engine_sleep_state{sleep_state=\"" state "\"} " value "\n"

START_TEST(an_engine_that_sleeps)
{
	ck_assert(scrape(SLEEP("awake", "0.0") SLEEP("discard_all", "1.0")).asleep);
	ck_assert(scrape(SLEEP("awake", "1.0") SLEEP("awake", "0")).asleep); /* one of two */
	ck_assert(!scrape(SLEEP("awake", "1.0") SLEEP("weights_offloaded", "0.0")).asleep);
	ck_assert(!scrape(SLEEP("awake", "") SLEEP("awake", "x")).asleep);
	ck_assert(!scrape("vllm:engine_sleep_state 0\n").asleep);
	ck_assert(!scrape("vllm:engine_sleep_state{sleep_state=\"awake\" 0\n").asleep);
}
END_TEST

START_TEST(a_worker_that_blends_says_so)
{
	ck_assert(scrape("kvtier:fragments_enabled{engine=\"0\",model_name=\"m\"} 1.0\n").blends);
	ck_assert(scrape("kvtier:fragments_enabled 0\nkvtier:fragments_enabled{a=\"b\"} 1\n").blends);
	ck_assert(!scrape("kvtier:fragments_enabled 0\n").blends);
	ck_assert(!scrape("kvtier:fragments_enabled -1\nkvtier:fragments_enabled nan\n").blends);
	ck_assert(!scrape("kvtier:fragments_enabled_total 1\n").blends);
}
END_TEST

START_TEST(drafts_of_several_engines)
{
	struct kvw_scrape out = scrape("vllm:spec_decode_num_drafts_total{engine=\"0\"} 20\n"
				       "vllm:spec_decode_num_draft_tokens_total{engine=\"0\"} 60\n"
				       "vllm:spec_decode_num_draft_tokens_total{engine=\"1\"} 30\n"
				       "vllm:spec_decode_num_accepted_tokens_total{engine=\"0\"} 40\n"
				       "vllm:spec_decode_num_accepted_tokens_total{engine=\"1\"} 10\n"
				       "vllm:spec_decode_num_accepted_tokens_per_pos_total{position=\"0\"} 15\n"
				       "vllm:spec_decode_num_draft_tokens_created 1.79e9\n");

	ck_assert_double_eq(out.draft_tokens, 90);
	ck_assert_double_eq(out.draft_accepted, 50);
	out = scrape("");
	ck_assert(out.draft_tokens == -1 && out.draft_accepted == -1);
}
END_TEST

START_TEST(kv_use_that_cannot_be_is_unknown)
{
	static const char *const texts[] = {"", "vllm:kv_cache_usage_perc\n",
		"vllm:kv_cache_usage_perc 1.5\n", "vllm:kv_cache_usage_perc -0.1\n",
		"vllm:kv_cache_usage_perc NaN\n", "vllm:kv_cache_usage_perc{a=\"b\" 0.5\n",
		"vllm:kv_cache_usage_perc{a=\"b} 0.5\n", "vllm:kv_cache_usage_percent 0.5\n",
		"vllm:num_requests_waiting -1\n", "vllm:num_requests_waiting +Inf\n",
		"vllm:num_requests_waiting x\n"};

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		struct kvw_scrape out = scrape(texts[i]);

		ck_assert_msg(out.kv_usage == -1 && out.requests_waiting == -1, "%s", texts[i]);
	}
}
END_TEST

START_TEST(ranks_add_up)
{
	struct kvw_scrape out = scrape("vllm:cache_config_info{block_size=\"16\",engine=\"0\",num_"
				       "gpu_blocks=\"101\"} 1.0\n"
				       "vllm:cache_config_info{block_size=\"16\",engine=\"1\",num_"
				       "gpu_blocks=\"201\"} 1.0\n"
				       "vllm:cache_config_info{block_size=\"16\",engine=\"1\",num_"
				       "gpu_blocks=\"201\"} 1.0");

	ck_assert(out.capacity_known);
	ck_assert_uint_eq(out.capacity_tokens, 300 * 16);
	ck_assert_uint_eq(out.block_size, 16);
	ck_assert(!out.started_known);
}
END_TEST

#define RANK(engine, more)                                                                         \
	"vllm:cache_config_info{block_size=\"32\",engine=\"" engine "\"," more                       \
	"num_gpu_blocks=\"2048\"} 1.0\n"

/* As vLLM 0.32 writes it: two ranks of 1,024 blocks, and each sample names the blocks of both. */
START_TEST(ranks_that_state_the_sum_are_not_counted_twice)
{
	static const char *const texts[] = {
		RANK("0", "kv_cache_size_tokens=\"32768\",") RANK("1", "kv_cache_size_tokens=\"32768\","),
		RANK("0", "") RANK("1", ""), /* before it named the tokens */
	};

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		struct kvw_scrape out = scrape(texts[i]);

		ck_assert(out.capacity_known);
		ck_assert_uint_eq(out.capacity_tokens, 2 * 1023 * 32);
	}
	ck_assert_uint_eq(scrape(RANK("0", "kv_cache_size_tokens=\"1\",")).capacity_tokens, 2047 * 32);
}
END_TEST

/* Before an engine has measured its memory, and whatever else is no number of blocks. */
START_TEST(capacity_that_is_not_told_is_unknown)
{
	static const char *const texts[] = {
		"",
		"vllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"None\"} 1.0\n",
		"vllm:cache_config_info{block_size=\"None\",num_gpu_blocks=\"100\"} 1.0\n",
		"vllm:cache_config_info{block_size=\"16\"} 1.0\n",
		"vllm:cache_config_info{num_gpu_blocks=\"100\"} 1.0\n",
		"vllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"1\"} 1.0\n",
		"vllm:cache_config_info{block_size=\"0\",num_gpu_blocks=\"100\"} 1.0\n",
		"vllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"-5\"} 1.0\n",
		"vllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"1e3\"} 1.0\n",
		"vllm:cache_config_info{block_size=\"16\",num_gpu_blocks="
		"\"99999999999999999999999\"} 1\n",
		"vllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"\"} 1.0\n",
		"vllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"100\" 1.0\n",
		"vllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"100\n\"} 1.0\n",
		"vllm:cache_config_info{block_size=\"16\" num_gpu_blocks=\"100\"} 1.0\n",
		"vllm:cache_config_info 1.0\n",
		"# vllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"100\"} 1.0\n",
		"vllm:cache_config_info_x{block_size=\"16\",num_gpu_blocks=\"100\"} 1.0\n",
		/* one of two engines does not know yet */
		("vllm:cache_config_info{engine=\"0\",block_size=\"16\",num_gpu_blocks=\"100\"} 1\n"
		 "vllm:cache_config_info{engine=\"1\",block_size=\"16\",num_gpu_blocks=\"None\"} "
		 "1\n"),
	};

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		struct kvw_scrape out = scrape(texts[i]);

		ck_assert_msg(!out.capacity_known && out.capacity_tokens == 0, "%s", texts[i]);
	}
}
END_TEST

/* What the format allows: blanks, escapes and commas in values, a trailing comma, CRLF, a time. */
START_TEST(every_legal_way_to_write_a_sample)
{
	static const char *const texts[] = {
		"vllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"100\",} 1.0 "
		"1700000000\n",
		"  vllm:cache_config_info{ block_size = \"16\" , num_gpu_blocks=\"100\" } 1\r\n",
		"vllm:cache_config_info{a=\"x\\\"},\\\\\",block_size=\"16\",num_gpu_blocks=\"100\"}"
		" 1",
		"\n\n# EOF\nvllm:cache_config_info{num_gpu_blocks=\"100\",block_size=\"16\"} 1\n",
	};

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		struct kvw_scrape out = scrape(texts[i]);

		ck_assert_msg(out.capacity_known && out.capacity_tokens == 99 * 16, "%s", texts[i]);
	}
}
END_TEST

START_TEST(start_times)
{
	ck_assert_double_eq(scrape("process_start_time_seconds 1.5e9\n").started_s, 1.5e9);
	ck_assert_double_eq(scrape("process_start_time_seconds 12.25\r\n").started_s, 12.25);
	ck_assert(!scrape("process_start_time_seconds\n").started_known);
	ck_assert(!scrape("process_start_time_seconds NaN\n").started_known);
	ck_assert(!scrape("process_start_time_seconds +Inf\n").started_known);
	ck_assert(!scrape("process_start_time_seconds -1\n").started_known);
	ck_assert(!scrape("process_start_time_seconds 1x\n").started_known);
	ck_assert(!scrape("process_start_time_seconds{pid=\"1\"} 5\n").started_known);
}
END_TEST

START_TEST(more_engines_than_the_limit_are_unknown)
{
	char *text = NULL;
	size_t len = 0;
	FILE *out = open_memstream(&text, &len);
	struct kvw_scrape result;

	for (int i = 0; i <= KVW_SCRAPE_MAX_ENGINES; i++)
		fprintf(out,
			"vllm:cache_config_info{engine=\"%d\",block_size=\"16\",num_gpu_blocks="
			"\"100\"} 1\n",
			i);
	fclose(out);
	kvw_scrape_metrics(text, len, &result);
	ck_assert(!result.capacity_known);
	free(text);
}
END_TEST

START_TEST(models_of_a_real_vllm)
{
	char *file;
	struct kvw_slice body = recorded("vllm_models.resp", &file);
	struct kvw_model_names names;

	ck_assert_int_eq(kvw_scrape_models(body.data, body.len, &names), KVW_OK);
	ck_assert_uint_eq(names.count, 1);
	ck_assert_str_eq(names.items[0], "tiny");
	ck_assert_str_eq(names.cards[0].root, "tiny");
	ck_assert_ptr_null(names.cards[0].parent);
	ck_assert_str_eq(names.cards[0].owned_by, "vllm");
	ck_assert_int_eq(names.cards[0].created_s, 1795242761);
	ck_assert_uint_eq(names.cards[0].max_model_len, 16384);
	kvw_model_names_finish(&names);
	free(file);
}
END_TEST

static enum kvw_err models(const char *text, struct kvw_model_names *out)
{
	return kvw_scrape_models(text, strlen(text), out);
}

START_TEST(models_are_sorted_and_unique)
{
	struct kvw_model_names names;

	ck_assert_int_eq(
		models("{\"object\":\"list\",\"data\":[{\"id\":\"lora-b\"},{\"id\":\"base\"},{"
		       "\"id\":\"lora-b\"},{\"id\":\"lora-a\",\"parent\":\"base\"}]}",
			&names),
		KVW_OK);
	ck_assert_uint_eq(names.count, 3);
	ck_assert_str_eq(names.items[0], "base");
	ck_assert_str_eq(names.items[1], "lora-a");
	ck_assert_str_eq(names.items[2], "lora-b");
	ck_assert_ptr_null(names.cards[0].parent);
	ck_assert_str_eq(names.cards[1].parent, "base");
	ck_assert_ptr_null(names.cards[2].parent);
	kvw_model_names_finish(&names);
	ck_assert_int_eq(models("{\"data\":[]}", &names), KVW_OK);
	ck_assert_uint_eq(names.count, 0);
	kvw_model_names_finish(&names);
}
END_TEST

/* What a list says besides names is passed over where it makes no sense; the names count all the same. */
START_TEST(cards_are_read_without_trust)
{
	static const char *const texts[] = {"{\"id\":\"a\"}", "{\"id\":\"a\",\"root\":1,\"parent\":[],\"max_model_len\":\"9\"}",
		"{\"id\":\"a\",\"owned_by\":{},\"created\":-1,\"max_model_len\":-5}",
		"{\"id\":\"a\",\"created\":1.5,\"max_model_len\":99999999999}"};
	struct kvw_model_names names;
	char text[2048], root[1200];

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		(void)snprintf(text, sizeof(text), "{\"data\":[%s]}", texts[i]);
		ck_assert_int_eq(models(text, &names), KVW_OK);
		ck_assert(kvw_model_card_equal(&names.cards[0], &(struct kvw_model_card){0}));
		ck_assert_int_eq(names.cards[0].created_s, 0);
		kvw_model_names_finish(&names);
	}
	memset(root, 'r', sizeof(root) - 1);
	root[sizeof(root) - 1] = '\0';
	(void)snprintf(text, sizeof(text), "{\"data\":[{\"id\":\"a\",\"root\":\"%s\"}]}", root);
	ck_assert_int_eq(models(text, &names), KVW_OK);
	ck_assert_ptr_null(names.cards[0].root);
	kvw_model_names_finish(&names);
}
END_TEST

START_TEST(what_is_no_list_of_models_is_refused)
{
	static const char *const texts[] = {"", "{", "[]", "null", "{}", "{\"data\":{}}",
		"{\"data\":[1]}", "{\"data\":[{}]}", "{\"data\":[{\"id\":7}]}",
		"{\"data\":[{\"id\":\"\"}]}", "{\"data\":[{\"id\":\"a\\u0000b\"}]}",
		"{\"data\":[{\"id\":\"ok\"},null]}", "<html>"};
	struct kvw_model_names names = {NULL, NULL, 77};

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		ck_assert_msg(models(texts[i], &names) == KVW_EPROTO, "%s", texts[i]);
	ck_assert_uint_eq(names.count, 77);
}
END_TEST

START_TEST(model_limits)
{
	struct kvw_model_names names;
	char *text = NULL;
	size_t len = 0;
	FILE *out = open_memstream(&text, &len);

	fprintf(out, "{\"data\":[{\"id\":\"%0*d\"}]}", KVW_SCRAPE_MAX_MODEL_NAME + 1, 1);
	fclose(out);
	ck_assert_int_eq(kvw_scrape_models(text, len, &names), KVW_ELIMIT);
	free(text);
	out = open_memstream(&text, &len);
	fputs("{\"data\":[{\"id\":\"m\"}", out);
	for (int i = 0; i < KVW_SCRAPE_MAX_MODELS; i++)
		fputs(",{\"id\":\"m\"}", out);
	fputs("]}", out);
	fclose(out);
	ck_assert_int_eq(kvw_scrape_models(text, len, &names), KVW_ELIMIT);
	free(text);
}
END_TEST

/* Bytes changed, cut and doubled at random: no read outside the text (the sanitizers watch a copy
 * that ends exactly at its end), and no capacity beyond what the format can say. */
static void mangle(const char *name, int rounds, void (*read_it)(const char *, size_t))
{
	char *file;
	struct kvw_slice body = recorded(name, &file);

	for (int round = 0; round < rounds; round++) {
		size_t from = (size_t)rand() % body.len;
		size_t len = (size_t)rand() % (body.len - from) % 4096 + 1;
		char *copy = malloc(len);

		memcpy(copy, body.data + from, len);
		for (int change = rand() % 8; change > 0; change--) {
			static const char bytes[] = "\"\\{},=\n\r 0None9\xFF";

			copy[(size_t)rand() % len] =
				rand() % 4 == 0 ? (char)rand()
						: bytes[(size_t)rand() % sizeof(bytes)];
		}
		read_it(copy, len);
		free(copy);
	}
	free(file);
}

static void read_metrics(const char *text, size_t len)
{
	struct kvw_scrape out;

	kvw_scrape_metrics(text, len, &out);
	ck_assert(out.capacity_known || out.capacity_tokens == 0);
	ck_assert(!out.capacity_known || out.block_size > 0);
	ck_assert(out.kv_usage == -1 || (out.kv_usage >= 0 && out.kv_usage <= 1));
	ck_assert(out.requests_waiting == -1 || out.requests_waiting >= 0);
}

static void read_models(const char *text, size_t len)
{
	struct kvw_model_names names;

	if (kvw_scrape_models(text, len, &names) == KVW_OK)
		kvw_model_names_finish(&names);
}

START_TEST(mangled_pages)
{
	srand(5);
	mangle("vllm_metrics.resp", 20000, read_metrics);
	mangle("vllm_models.resp", 20000, read_models);
}
END_TEST

/* The same, around the one sample that matters. */
START_TEST(mangled_cache_sample)
{
	static const char sample[] = "vllm:cache_config_info{block_size=\"16\",engine=\"0\",num_"
				     "gpu_blocks=\"100\"} 1.0\nprocess_start_time_seconds 1.5\n";

	srand(6);
	for (int round = 0; round < 100000; round++) {
		size_t len = (size_t)rand() % sizeof(sample) + 1;
		char *copy = malloc(len);

		memcpy(copy, sample, len);
		for (int change = rand() % 4; change > 0; change--)
			copy[(size_t)rand() % len] = "\"\\{},=\n 0N9\xFF"[rand() % 12];
		read_metrics(copy, len);
		free(copy);
	}
}
END_TEST

/* Two data-parallel ranks behind one server. */
START_TEST(ranks_of_a_real_vllm)
{
	char *file;
	struct kvw_slice body = recorded("vllm_dp_metrics.resp", &file);
	struct kvw_scrape_page page;
	struct kvw_scrape all;

	kvw_scrape_metrics(body.data, body.len, &all);
	kvw_scrape_ranks(body.data, body.len, &page);
	ck_assert_mem_eq(&page.all, &all, sizeof(all));
	ck_assert(!all.started_known);
	ck_assert_uint_eq(all.capacity_tokens, 2 * 1023 * 32);
	ck_assert_double_eq(all.prompt_tokens, 764 + 1484);
	ck_assert_uint_eq(page.rank_count, 2);
	ck_assert(!page.more_ranks);
	for (uint32_t i = 0; i < 2; i++) {
		ck_assert_uint_eq(page.ranks[i].global, i);
		ck_assert(page.ranks[i].said.capacity_known);
		ck_assert_uint_eq(page.ranks[i].said.capacity_tokens, 1023 * 32);
		ck_assert_uint_eq(page.ranks[i].said.block_size, 32);
	}
	ck_assert_double_eq(page.ranks[0].said.prompt_tokens, 764);
	ck_assert_double_eq(page.ranks[1].said.prompt_tokens, 1484);
	ck_assert_double_eq(page.ranks[0].said.cache_hits, 0);
	ck_assert_double_eq(page.ranks[1].said.cache_hits, 544);
	free(file);
}
END_TEST

START_TEST(a_rank_s_place_is_that_of_its_number)
{
	static const char text[] = "vllm:num_requests_running{engine=\"6\"} 3\n"
				   "vllm:num_requests_running{engine=\"4\"} 1\n"
				   "vllm:num_requests_running{engine=\"x\"} 9\n"
				   "vllm:num_requests_running{engine=\"5\"} 2\n"
				   "vllm:num_requests_waiting{engine=\"7\"} 2\n";
	struct kvw_scrape_page page;

	kvw_scrape_ranks(text, strlen(text), &page);
	ck_assert_uint_eq(page.rank_count, 3);
	for (uint32_t i = 0; i < 3; i++) {
		ck_assert_uint_eq(page.ranks[i].global, 4 + i);
		ck_assert_double_eq(page.ranks[i].said.requests_running, 1 + i);
		ck_assert_double_eq(page.ranks[i].said.requests_waiting, -1);
	}
	ck_assert_double_eq(page.all.requests_running, 15);
}
END_TEST

START_TEST(more_ranks_than_are_told_apart_are_said)
{
	char text[8192] = "", *at = text;
	struct kvw_scrape_page page;

	for (int i = 0; i < KVW_RANKS_MOST + 1; i++)
		at += sprintf(at, "vllm:num_requests_running{engine=\"%d\"} 1\n", i);
	kvw_scrape_ranks(text, strlen(text), &page);
	ck_assert_uint_eq(page.rank_count, KVW_RANKS_MOST);
	ck_assert(page.more_ranks);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("scrape");

	tcase_set_timeout(tcase, 120);
	tcase_add_test(tcase, metrics_of_a_real_vllm);
	tcase_add_test(tcase, ranks_of_a_real_vllm);
	tcase_add_test(tcase, a_rank_s_place_is_that_of_its_number);
	tcase_add_test(tcase, more_ranks_than_are_told_apart_are_said);
	tcase_add_test(tcase, kv_use_of_several_engines);
	tcase_add_test(tcase, requests_of_all_engines);
	tcase_add_test(tcase, an_engine_that_sleeps);
	tcase_add_test(tcase, a_worker_that_blends_says_so);
	tcase_add_test(tcase, kv_use_that_cannot_be_is_unknown);
	tcase_add_test(tcase, drafts_of_several_engines);
	tcase_add_test(tcase, ranks_add_up);
	tcase_add_test(tcase, ranks_that_state_the_sum_are_not_counted_twice);
	tcase_add_test(tcase, capacity_that_is_not_told_is_unknown);
	tcase_add_test(tcase, every_legal_way_to_write_a_sample);
	tcase_add_test(tcase, start_times);
	tcase_add_test(tcase, more_engines_than_the_limit_are_unknown);
	tcase_add_test(tcase, models_of_a_real_vllm);
	tcase_add_test(tcase, models_are_sorted_and_unique);
	tcase_add_test(tcase, cards_are_read_without_trust);
	tcase_add_test(tcase, what_is_no_list_of_models_is_refused);
	tcase_add_test(tcase, model_limits);
	tcase_add_test(tcase, mangled_pages);
	tcase_add_test(tcase, mangled_cache_sample);
	return run_tcase("scrape", tcase);
}
