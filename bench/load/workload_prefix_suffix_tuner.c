/*
 * workload_prefix_suffix_tuner.c - every prefix twice, one request after the other, a little more
 * of them than a tier holds.
 *
 * A request is prefix, breaker, suffix: a prefix of its own, 32 tokens that no other request has,
 * and one suffix for all, which only a cache that does not go by beginnings can reuse. The pool
 * overflows the tier of --psf-thrash GB by 5 %: under LRU in this order each prefix is gone when
 * its second turn comes, so the measured pass finds nothing there and everything in the tier below.
 * The first pass is the warm-up; then a pause lets evictions happen that are done in the background.
 *
 * With a tokenizer bodies are random words of a token each; without one they are filled with "hi",
 * and prefixes differ by their heading alone, which is enough for caches that chain their hashes.
 */
#include <math.h>
#include <stdlib.h>

#include "bench/load/workload.h"

#define BREAKER_TOKENS 32
#define LEAST_SUFFIX   100
#define HEADING_TOKENS 4
#define OVERFLOW       1.05
#define SETTLE_NS      INT64_C(5000000000)

struct prefix_suffix_tuner {
	struct kvb_workload base;
	const struct kvb_engine_options *options;
	struct kvb_word_pool pool;
	struct kvb_py_random breakers;
	int64_t prefix_tokens, suffix_tokens;
};

static void destroy(struct kvb_workload *workload)
{
	struct prefix_suffix_tuner *tuner = (struct prefix_suffix_tuner *)workload;

	if (tuner != NULL)
		kvb_word_pool_finish(&tuner->pool);
	free(tuner);
}

static enum kvw_err create(
	const struct kvb_engine_options *options, struct kvb_workload **out, FILE *error)
{
	int64_t length = options->psf.context_length;
	int64_t prefix = (int64_t)rint((double)length * options->psf.prefix_ratio); /* as Python */
	uint64_t prefixes =
		kvb_fits(options->psf.thrash_gb * OVERFLOW, options->tokens_per_gb, length);
	struct prefix_suffix_tuner *tuner;
	enum kvw_err err;

	prefix = prefix > 1 ? prefix : 1;
	if (length - prefix - BREAKER_TOKENS < LEAST_SUFFIX) {
		fprintf(error,
			"kvbench: --psf-prefix-ratio %g of %lld tokens leaves %lld for the suffix, "
			"at least %d are needed\n",
			options->psf.prefix_ratio, (long long)length,
			(long long)(length - prefix - BREAKER_TOKENS), LEAST_SUFFIX);
		return KVW_EINVAL;
	}
	if (kvb_check_count(kvb_prefix_suffix_tuner.name, (double)prefixes, error) != KVW_OK)
		return KVW_EINVAL;
	tuner = kvb_alloc(1, sizeof(*tuner));
	err = kvb_workload_words(options, &tuner->pool, error);
	if (err != KVW_OK) {
		free(tuner);
		return err;
	}
	tuner->base.ops = &kvb_prefix_suffix_tuner;
	tuner->base.planned = prefixes;
	tuner->base.warm_count = prefixes + 1;
	tuner->base.at_once = 1;
	tuner->base.settle_ns = SETTLE_NS;
	tuner->options = options;
	tuner->prefix_tokens = prefix;
	tuner->suffix_tokens = length - prefix - BREAKER_TOKENS;
	kvb_py_seed(&tuner->breakers, options->seed + 2);
	*out = &tuner->base;
	return KVW_OK;
}

static void describe(const struct kvb_workload *workload, FILE *out)
{
	const struct prefix_suffix_tuner *tuner = (const struct prefix_suffix_tuner *)workload;

	fprintf(out,
		"  prefixes %llu of %lld tokens, breaker %d, one suffix of %lld; overflows %g GB\n",
		(unsigned long long)workload->planned, (long long)tuner->prefix_tokens,
		BREAKER_TOKENS, (long long)tuner->suffix_tokens, tuner->options->psf.thrash_gb);
	if (!tuner->pool.from_model)
		fputs("  no tokenizer: lengths are rough, prefixes differ by their heading\n", out);
}

static void add_body(const struct prefix_suffix_tuner *tuner, struct kvb_py_random *random,
	int64_t tokens, struct kvb_buf *out)
{
	struct kvb_word_pool pool = tuner->pool;

	kvb_buf_text(out, " ");
	tokens = tokens > 1 ? tokens : 1;
	if (!pool.from_model) {
		kvb_fill(out, "hi", tokens);
		return;
	}
	pool.leading_blank = false; /* the one behind the heading is it */
	kvb_word_pool_text(&pool, random, (uint64_t)tokens, out);
}

/* Makes a request of the prefix, a new breaker and the suffix. */
static void add_request(struct prefix_suffix_tuner *tuner, uint64_t prefix, struct kvb_ask *out)
{
	int64_t seed = tuner->options->seed;
	struct kvb_py_random random;
	struct kvb_buf text = {0};

	kvb_buf_printf(&text, "PREFIX_%08llx", (unsigned long long)prefix);
	kvb_py_seed(&random, seed + 1000 + (int64_t)prefix);
	add_body(tuner, &random, tuner->prefix_tokens - HEADING_TOKENS, &text);
	kvb_buf_printf(&text, " BR_%08llx",
		(unsigned long long)kvb_py_randbelow(&tuner->breakers, UINT64_C(1) << 32));
	add_body(tuner, &tuner->breakers, BREAKER_TOKENS - HEADING_TOKENS, &text);
	kvb_buf_text(&text, " SUFFIX");
	kvb_py_seed(&random, seed + 1);
	add_body(tuner, &random, tuner->suffix_tokens - 1, &text);
	kvb_ask_message(out, "user", text.data, text.len);
	kvb_buf_finish(&text);
}

/* Makes a request of the warm-up: a greeting that wakes the engine, then those of the first
 * pass. */
static void warm(struct kvb_workload *workload, uint64_t n, struct kvb_ask *out)
{
	*out = (struct kvb_ask){.max_tokens = 1, .session = n};
	if (n == 0) {
		snprintf(out->id, sizeof(out->id), "engine_warmup");
		kvb_ask_message(out, "user", "Hello", 5);
		return;
	}
	snprintf(out->id, sizeof(out->id), "pass1_p%llu", (unsigned long long)(n - 1));
	add_request((struct prefix_suffix_tuner *)workload, n - 1, out);
}

static enum kvb_turn next(
	struct kvb_workload *workload, int64_t now_ns, struct kvb_ask *out, int64_t *wake_ns)
{
	struct prefix_suffix_tuner *tuner = (struct prefix_suffix_tuner *)workload;
	uint64_t n = tuner->base.asked;

	(void)wake_ns;
	if (tuner->base.asked == tuner->base.planned)
		return KVB_DONE;
	*out = (struct kvb_ask){.max_tokens = 1, .session = n + 1, .due_ns = now_ns};
	snprintf(out->id, sizeof(out->id), "pass2_p%llu", (unsigned long long)n);
	add_request(tuner, n, out);
	return KVB_ASK;
}

const struct kvb_workload_ops kvb_prefix_suffix_tuner = {
	.name = "prefix-suffix-tuner",
	.needs_volume = true,
	.create = create,
	.describe = describe,
	.warm = warm,
	.next = next,
	.destroy = destroy,
};
