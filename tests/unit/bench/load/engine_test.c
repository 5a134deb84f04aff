/*
 * engine_test.c - `kvbench engine` around its workloads: options and configuration files, what
 * becomes of a request's times, the summary, and what an LMCache server reports.
 */
#include <check.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/load/engine.h"
#include "tests/unit/suite.h"

static enum kvw_err parse(const char *words, struct kvb_engine_options *out, FILE *error)
{
	static char copy[512]; /* options borrow from it */
	char *argv[40];
	int argc = 0;

	snprintf(copy, sizeof(copy), "kvbench engine %s", words);
	for (char *word = strtok(copy, " "); word != NULL; word = strtok(NULL, " "))
		argv[argc++] = word;
	return kvb_engine_options_parse(argc, argv, 2, NULL, out, error);
}

START_TEST(defaults_are_those_of_the_other_program)
{
	struct kvb_engine_options o;

	ck_assert_int_eq(
		parse("--engine-url u --workload random-prefill -q --json", &o, stderr), KVW_OK);
	ck_assert_double_eq(o.kv_cache_volume_gb, 100);
	ck_assert_int_eq(o.seed, 42);
	ck_assert(o.csv && o.json && o.quiet && o.warm_up && !o.ignore_eos);
	ck_assert_int_eq(o.ldqa.document_length, 10000);
	ck_assert_int_eq(o.ldqa.queries_per_document, 2);
	ck_assert_int_eq(o.ldqa.shuffle, KVB_SHUFFLE_RANDOM);
	ck_assert_int_eq(o.ldqa.inflight, 3);
	ck_assert_int_eq(o.ldqa.max_output, 128);
	ck_assert_int_eq(o.mrc.shared_prompt, 2000);
	ck_assert_int_eq(o.mrc.history, 10000);
	ck_assert_int_eq(o.mrc.user_input, 50);
	ck_assert_int_eq(o.mrc.output, 200);
	ck_assert_double_eq(o.mrc.qps, 1);
	ck_assert_double_eq(o.mrc.duration_s, 60);
	ck_assert_int_eq(o.ldp.contexts, 5);
	ck_assert_int_eq(o.ldp.context_length, 5000);
	ck_assert_int_eq(o.ldp.system_prompt, 1000);
	ck_assert_int_eq(o.ldp.permutations, 10);
	ck_assert_int_eq(o.ldp.inflight, 1);
	ck_assert_int_eq(o.psf.context_length, 8000);
	ck_assert_double_eq(o.psf.prefix_ratio, 0.8);
	ck_assert_double_eq(o.psf.thrash_gb, 20);
	ck_assert_int_eq(o.rp.length, 10000);
	ck_assert_int_eq(o.rp.requests, 50);
	kvb_engine_options_finish(&o);
}
END_TEST

START_TEST(wrong_options_say_what_is_expected)
{
	static const char *const wrong[][2] = {
		{"--engine-url u", "--workload is needed"},
		{"--engine-url u --workload rag-qa-quality", "multi-round-chat, "},
		{"--workload random-prefill", "--engine-url is needed"},
		{"--engine-url u --workload long-doc-qa", "--tokens-per-gb-kvcache"},
		{"--engine-url u --workload random-prefill --rp-num-requests 0", "from 1 to"},
		{"--engine-url u --workload random-prefill --json=yes", "takes no value"},
		{"--engine-url u --workload random-prefill --users 3", "unknown option '--users'"},
		{"--engine-url u --workload random-prefill more", "unknown option 'more'"},
		{"--engine-url u --workload random-prefill --ldqa-shuffle-policy x",
			"expected random, tile"},
		{"--workload random-prefill --engine-url", "needs a value"},
		{"--config /nowhere/at/all", "/nowhere/at/all"},
	};

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		struct kvb_engine_options o;
		char *said = NULL;
		size_t len;
		FILE *error = open_memstream(&said, &len);

		ck_assert_msg(parse(wrong[i][0], &o, error) != KVW_OK, "accepted: %s", wrong[i][0]);
		fclose(error);
		ck_assert_msg(
			strstr(said, wrong[i][1]) != NULL, "'%s' said '%s'", wrong[i][0], said);
		free(said);
		kvb_engine_options_finish(&o);
	}
}
END_TEST

static void write_file(const char *path, const char *text)
{
	FILE *file = fopen(path, "w");

	ck_assert_ptr_nonnull(file);
	fputs(text, file);
	fclose(file);
}

START_TEST(the_command_line_comes_before_a_configuration)
{
	char path[] = "/tmp/kvb-config-XXXXXX", words[128];
	struct kvb_engine_options o;

	close(mkstemp(path));
	/* As the other program writes it. */
	write_file(path, "{\"model\":\"m\",\"workload\":\"long-doc-qa\",\"kv_cache_volume\":50.0,"
			 "\"tokens_per_gb_kvcache\":6553,\"ignore_eos\":true,\"no_warmup\":false,"
			 "\"ldqa_document_length\":700,\"ldqa_shuffle_policy\":\"tile\","
			 "\"has_lmcache\":false}");
	snprintf(words, sizeof(words), "--config %s --engine-url u --kv-cache-volume 100", path);
	ck_assert_int_eq(parse(words, &o, stderr), KVW_OK);
	ck_assert_str_eq(o.workload, "long-doc-qa");
	ck_assert_str_eq(o.model, "m");
	ck_assert_double_eq(o.kv_cache_volume_gb, 100); /* also where it is the default */
	ck_assert_int_eq(o.tokens_per_gb, 6553);
	ck_assert(o.ignore_eos && o.warm_up);
	ck_assert_int_eq(o.ldqa.document_length, 700);
	ck_assert_int_eq(o.ldqa.shuffle, KVB_SHUFFLE_TILE);
	kvb_engine_options_finish(&o);
	remove(path);
}
END_TEST

START_TEST(wrong_configurations_are_refused)
{
	static const char *const wrong[] = {"", "[]", "{\"qps\":1}", "{\"model\":7}",
		"{\"mrc_qps\":\"often\"}", "{\"mrc_qps\":0}", "{\"ignore_eos\":1}",
		"{\"config\":\"x\"}", "{\"rp_num_requests\":1.5}", "{\"mrc_qps\":[1]}",
		"{\"seed\":1,\"seed\":2}"};
	char path[] = "/tmp/kvb-config-XXXXXX", words[160];
	FILE *silent = fopen("/dev/null", "w");
	struct kvb_engine_options o;

	close(mkstemp(path));
	snprintf(
		words, sizeof(words), "--config %s --engine-url u --workload random-prefill", path);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		write_file(path, wrong[i]);
		ck_assert_msg(parse(words, &o, silent) != KVW_OK, "accepted: %s", wrong[i]);
		kvb_engine_options_finish(&o);
	}
	fclose(silent);
	remove(path);
}
END_TEST

START_TEST(an_exported_configuration_is_read_again)
{
	char path[] = "/tmp/kvb-config-XXXXXX", words[256];
	struct kvb_engine_options o;
	json_t *all;

	close(mkstemp(path));
	snprintf(words, sizeof(words),
		"--workload multi-round-chat --tokens-per-gb-kvcache 77 --mrc-qps 2.5 --no-warmup "
		"--export-config %s",
		path);
	ck_assert_int_eq(parse(words, &o, stderr), KVW_OK);
	ck_assert_int_eq(kvb_engine_options_export(&o, stderr), KVW_OK);
	kvb_engine_options_finish(&o);
	all = json_load_file(path, 0, NULL);
	ck_assert_ptr_null(json_object_get(all, "engine_url")); /* it is portable */
	ck_assert_ptr_null(json_object_get(all, "ldqa_document_length"));
	ck_assert_int_eq(json_integer_value(json_object_get(all, "mrc_user_input_length")), 50);
	ck_assert(json_is_true(json_object_get(all, "no_warmup")));
	json_decref(all);
	snprintf(words, sizeof(words), "--engine-url u --config %s", path);
	ck_assert_int_eq(parse(words, &o, stderr), KVW_OK);
	ck_assert_str_eq(o.workload, "multi-round-chat");
	ck_assert_double_eq(o.mrc.qps, 2.5);
	ck_assert_int_eq(o.tokens_per_gb, 77);
	ck_assert(!o.warm_up);
	kvb_engine_options_finish(&o);
	remove(path);
}
END_TEST

/* A request handed over at 1 s, written at 1.2, first token at 1.7, ended at 2.7. */
static struct kvb_record answered(void)
{
	return (struct kvb_record){.ok = true,
		.error = "",
		.sent_ns = 1000000000,
		.written_ns = 1200000000,
		.first_ns = 1700000000,
		.end_ns = 2700000000,
		.prompt_tokens = 900,
		.completion_tokens = 11};
}

START_TEST(times_count_from_a_connection_that_stands)
{
	struct kvb_record record = answered();
	struct kvb_engine_request r =
		kvb_engine_request_of(&record, "one", 1, INT64_C(1000) * 1000000000);

	ck_assert(r.ok);
	ck_assert_double_eq_tol(r.connect_s, 0.2, 1e-9);
	ck_assert_double_eq_tol(r.ttft_s, 0.5, 1e-9);
	ck_assert_double_eq_tol(r.latency_s, 1.5, 1e-9);
	ck_assert_double_eq_tol(r.decode_speed, 11, 1e-9); /* 11 tokens in the second after it */
	ck_assert_double_eq_tol(r.submit_s, 1001.2, 1e-6);
	ck_assert_double_eq_tol(r.first_s, 1001.7, 1e-6);
	ck_assert_double_eq_tol(r.finish_s, 1002.7, 1e-6);
	r = kvb_engine_request_of(&record, "one", 20, 0);
	ck_assert_double_eq_tol(r.ttft_s, 10, 1e-9); /* in the engine's seconds */
	ck_assert_double_eq_tol(r.decode_speed, 0.55, 1e-9);
	record.ok = false;
	record.error = "answer cut short";
	r = kvb_engine_request_of(&record, "one", 1, 0);
	ck_assert(!r.ok && r.ttft_s == -1 && r.first_s == 0 && r.decode_speed == 0);
	ck_assert_int_eq(r.input_tokens + r.output_tokens, 0);
	ck_assert_str_eq(r.error, "answer cut short");
}
END_TEST

static double figure(const json_t *all, const char *group, const char *key)
{
	const json_t *value = json_object_get(json_object_get(all, group), key);

	ck_assert_msg(json_is_number(value), "%s.%s is missing", group, key);
	return json_number_value(value);
}

START_TEST(the_summary_has_the_other_programs_members)
{
	static const char *const config[] = {"engine_url", "model", "workload",
		"kv_cache_volume_gb", "tokens_per_gb_kvcache", "seed", "output_dir", "export_csv",
		"export_json", "quiet", "ignore_eos", "warmup_policy"};
	struct kvb_engine_options o;
	struct kvb_engine_stats stats = {0};
	struct kvb_record record = answered();
	struct kvb_tally tally = {.speed = 1};
	struct kvb_engine_outcome outcome = {.options = &o,
		.stats = &stats,
		.tally = &tally,
		.elapsed_s = 4,
		.planned = 5,
		.asked = 3};
	struct kvb_engine_request request;
	json_t *all;

	ck_assert_int_eq(
		parse("--engine-url u --workload random-prefill --model m", &o, stderr), KVW_OK);
	for (int i = 0; i < 2; i++) { /* TTFT 500 and 600 ms */
		record.written_ns -= i * 100000000;
		request = kvb_engine_request_of(&record, "r", 1, 0);
		kvb_engine_stats_add(&stats, &request);
	}
	record.ok = false;
	record.error = "connect";
	request = kvb_engine_request_of(&record, "r", 1, 0);
	kvb_engine_stats_add(&stats, &request);
	all = kvb_engine_summary(&outcome);
	for (size_t i = 0; i < sizeof(config) / sizeof(config[0]); i++)
		ck_assert_ptr_nonnull(json_object_get(json_object_get(all, "config"), config[i]));
	ck_assert_uint_eq(json_object_size(json_object_get(all, "config")), 12);
	ck_assert_uint_eq(json_object_size(json_object_get(all, "results")), 20);
	ck_assert_double_eq(figure(all, "results", "total_requests"), 3);
	ck_assert_double_eq(figure(all, "results", "successful_requests"), 2);
	ck_assert_double_eq(figure(all, "results", "failed_requests"), 1);
	ck_assert_double_eq(figure(all, "results", "elapsed_time"), 4);
	ck_assert_double_eq_tol(figure(all, "results", "mean_ttft_ms"), 550, 1e-6);
	ck_assert_double_eq_tol(figure(all, "results", "p50_ttft_ms"), 550, 1e-6);
	ck_assert_double_eq_tol(figure(all, "results", "p90_ttft_ms"), 590, 1e-6);
	ck_assert_double_eq_tol(figure(all, "results", "p99_ttft_ms"), 599, 1e-6);
	ck_assert_double_eq_tol(figure(all, "results", "mean_request_latency_ms"), 1550, 1e-6);
	ck_assert_double_eq_tol(figure(all, "results", "p99_decode_speed"), 11, 1e-6);
	ck_assert_double_eq(figure(all, "results", "total_input_tokens"), 1800);
	ck_assert_double_eq(figure(all, "results", "input_throughput"), 450);
	ck_assert_double_eq(figure(all, "results", "output_throughput"), 5.5);
	ck_assert_double_eq(figure(all, "kvbench", "unsent_requests"), 2);
	ck_assert_double_eq_tol(
		json_number_value(json_object_get(
			json_object_get(json_object_get(all, "kvbench"), "tpot_ms"), "mean")),
		100, 1e-6);
	json_decref(all);
	kvb_engine_stats_finish(&stats);
	kvb_engine_options_finish(&o);
}
END_TEST

START_TEST(rows_of_the_table_of_results)
{
	char path[] = "/tmp/kvb-csv-XXXXXX", line[512];
	struct kvb_engine_stats stats = {0};
	struct kvb_record record = answered();
	struct kvb_engine_request request;
	FILE *file;

	close(mkstemp(path));
	ck_assert_int_eq(kvb_engine_stats_open_csv(&stats, path, stderr), KVW_OK);
	request = kvb_engine_request_of(&record, "prefill_0", 1, 0);
	kvb_engine_stats_add(&stats, &request);
	record.ok = false;
	record.error = "stream: he said \"no\", then left";
	request = kvb_engine_request_of(&record, "prefill_1", 1, 0);
	kvb_engine_stats_add(&stats, &request);
	ck_assert_int_eq(kvb_engine_stats_close_csv(&stats), KVW_OK);
	file = fopen(path, "r");
	ck_assert_ptr_nonnull(fgets(line, sizeof(line), file));
	ck_assert_str_eq(line, "request_id,successful,ttft,request_latency,num_input_tokens,"
			       "num_output_tokens,decode_speed,submit_time,first_token_time,"
			       "finish_time,error\r\n");
	ck_assert_ptr_nonnull(fgets(line, sizeof(line), file));
	ck_assert_str_eq(line, "prefill_0,True,0.500000000,1.500000000,900,11,11.000000,1.200000,"
			       "1.700000,2.700000,\r\n");
	ck_assert_ptr_nonnull(fgets(line, sizeof(line), file));
	ck_assert_str_eq(line,
		"prefill_1,False,-1.000000000,1.500000000,0,0,0.000000,1.200000,0.000000,2.700000,"
		"\"stream: he said \"\"no\"\", then left\"\r\n");
	ck_assert_ptr_null(fgets(line, sizeof(line), file));
	fclose(file);
	kvb_engine_stats_finish(&stats);
	remove(path);
}
END_TEST

static enum kvw_err status(const char *text, int64_t *out, FILE *error)
{
	return kvb_status_tokens_per_gb(text, strlen(text), "m", out, error);
}

START_TEST(tokens_in_a_gb_come_from_the_lmcache_server)
{
	static const char *const wrong[] = {"", "{}", "{\"cache_context_meta\":[]}",
		"{\"cache_context_meta\":{\"0\":{\"model_name\":\"other\"}}}",
		"{\"cache_context_meta\":{\"0\":{\"model_name\":\"m\"}}}",
		"{\"cache_context_meta\":{\"0\":{\"model_name\":\"m\",\"kv_cache_layout\":"
		"{\"cache_size_per_token\":0}}}}",
		"{\"cache_context_meta\":{\"0\":{\"model_name\":\"m\",\"kv_cache_layout\":"
		"{\"cache_size_per_token\":-5},\"world_size\":-1e300}}}"};
	FILE *silent = fopen("/dev/null", "w");
	int64_t tokens = 7;

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		ck_assert_msg(
			status(wrong[i], &tokens, silent) != KVW_OK, "accepted: %s", wrong[i]);
	ck_assert_int_eq(tokens, 7);
	ck_assert_int_eq(status("{\"cache_context_meta\":{\"1\":{\"model_name\":\"x\"},"
				"\"0\":{\"model_name\":\"m\",\"world_size\":2,\"kv_cache_layout\":"
				"{\"cache_size_per_token\":70000}}}}",
				 &tokens, stderr),
		KVW_OK);
	ck_assert_int_eq(tokens, 7669); /* 2^30 / 140000 */
	ck_assert_int_eq(status("{\"cache_context_meta\":{},\"cb_gpu_context_meta\":{\"0\":"
				"{\"model_name\":\"m\",\"kv_cache_layout\":"
				"{\"cache_size_per_token\":131072}}}}",
				 &tokens, stderr),
		KVW_OK);
	ck_assert_int_eq(tokens, 8192);
	fclose(silent);
}
END_TEST

int main(void)
{
	TCase *tests = tcase_create("all");

	tcase_set_timeout(tests, 60);
	tcase_add_test(tests, defaults_are_those_of_the_other_program);
	tcase_add_test(tests, wrong_options_say_what_is_expected);
	tcase_add_test(tests, the_command_line_comes_before_a_configuration);
	tcase_add_test(tests, wrong_configurations_are_refused);
	tcase_add_test(tests, an_exported_configuration_is_read_again);
	tcase_add_test(tests, times_count_from_a_connection_that_stands);
	tcase_add_test(tests, the_summary_has_the_other_programs_members);
	tcase_add_test(tests, rows_of_the_table_of_results);
	tcase_add_test(tests, tokens_in_a_gb_come_from_the_lmcache_server);
	return run_tcase("load engine", tests);
}
