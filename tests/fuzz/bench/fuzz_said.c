/*
 * fuzz_said.c - what files and servers say to `kvbench engine`. The first byte chooses: a
 * configuration, a tokenizer's vocabulary, an LMCache server's status, or a stream of answers, which
 * must be read alike however it is cut.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "bench/load/answer.h"
#include "bench/load/engine.h"
#include "bench/load/sse.h"
#include "bench/load/workload.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds)
{
	if (!holds)
		abort();
}

static void check_configuration(const char *text, size_t len, FILE *silent)
{
	struct kvb_engine_options o;

	kvb_engine_options_init(&o);
	if (kvb_engine_options_read(&o, text, len, "f", silent) == KVW_OK) {
		require(o.mrc.qps > 0 && o.mrc.duration_s > 0 && o.speed > 0 && o.timeout_s > 0);
		require(o.rp.requests >= 1 && o.rp.requests <= 100000);
		require(o.ldp.contexts >= 1 && o.ldp.permutations >= 1);
		require(o.psf.prefix_ratio > 0 && o.psf.prefix_ratio < 1);
		require(o.ldqa.shuffle == KVB_SHUFFLE_RANDOM || o.ldqa.shuffle == KVB_SHUFFLE_TILE);
		require(o.tokens_per_gb >= 0 && o.kv_cache_volume_gb > 0);
	}
	kvb_engine_options_finish(&o);
}

static void check_vocabulary(const char *text, size_t len, FILE *silent)
{
	struct kvb_word_pool pool;
	struct kvb_py_random random;
	struct kvb_buf out = {0};
	size_t blanks = 0;

	if (kvb_word_pool_read(&pool, text, len, "f", 42, silent) != KVW_OK)
		return;
	require(pool.count >= 1 && pool.count <= 8000);
	kvb_py_seed(&random, 1);
	kvb_word_pool_text(&pool, &random, 9, &out);
	for (size_t i = 0; i < out.len; i++) {
		require(out.data[i] == ' ' || (out.data[i] >= 'a' && out.data[i] <= 'z'));
		blanks += out.data[i] == ' ';
	}
	require(blanks == (pool.leading_blank ? 9 : 8));
	kvb_buf_finish(&out);
	kvb_word_pool_finish(&pool);
}

static void check_status(const char *text, size_t len, FILE *silent)
{
	int64_t tokens = -1;

	if (kvb_status_tokens_per_gb(text, len, "m", &tokens, silent) == KVW_OK)
		require(tokens >= 1 && tokens <= 1 << 30);
	else
		require(tokens == -1);
}

static void on_event(void *arg, const char *data, size_t len)
{
	struct kvb_answer *answer = arg;
	bool content;

	if (kvb_answer_read(answer, data, len, &content) != KVW_OK)
		answer->failed = true;
}

/* step: bytes at a time. */
static struct kvb_answer read_stream(const char *text, size_t len, size_t step)
{
	struct kvb_answer answer = {0};
	struct kvb_sse sse = {0};

	for (size_t at = 0; at < len; at += step)
		kvb_sse_feed(&sse, text + at, len - at < step ? len - at : step, on_event, &answer);
	kvb_sse_finish(&sse);
	return answer;
}

static void check_stream(const char *text, size_t len)
{
	struct kvb_answer whole = read_stream(text, len, len ? len : 1);
	struct kvb_answer pieces = read_stream(text, len, 3);

	require(whole.done == pieces.done && whole.failed == pieces.failed);
	require(whole.prompt_tokens == pieces.prompt_tokens);
	require(whole.text.len == pieces.text.len);
	require(whole.text.len == 0 ||
		memcmp(whole.text.data, pieces.text.data, whole.text.len) == 0);
	kvb_answer_finish(&whole);
	kvb_answer_finish(&pieces);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	FILE *silent = fopen("/dev/null", "w");
	const char *text = (const char *)data + 1;

	require(silent != NULL);
	if (size > 0 && data[0] == 'c')
		check_configuration(text, size - 1, silent);
	else if (size > 0 && data[0] == 'v')
		check_vocabulary(text, size - 1, silent);
	else if (size > 0 && data[0] == 's')
		check_status(text, size - 1, silent);
	else if (size > 0)
		check_stream(text, size - 1);
	fclose(silent);
	return 0;
}
