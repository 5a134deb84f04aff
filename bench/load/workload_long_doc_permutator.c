/*
 * workload_long_doc_permutator.c - the same documents in ever other orders.
 *
 * A request is the system prompt and all documents in one permutation. A cache of prefixes finds
 * what the permutation shares with an earlier one from the beginning; a cache that blends finds all
 * of it. Which permutations: all of them if there are no more than asked for; a seeded sample,
 * sorted, if there are more than ten times as many; else the first ones in lexicographic order.
 *
 * Documents are random words that cost a token each (word_pool.h); the warm-up is one request that
 * shares nothing with them.
 */
#include <stdlib.h>
#include <string.h>

#include "bench/load/workload.h"

#define MAX_TOKENS 20000000 /* most documents of one request */
#define MAX_PLACES 10000000 /* permutations x documents */
#define WARM_WORDS 500

struct long_doc_permutator {
	struct kvb_workload base;
	const struct kvb_engine_options *options;
	struct kvb_word_pool pool;
	struct kvb_buf system_prompt;
	struct kvb_buf *contexts; /* owned, `count` of them */
	uint32_t count;
	uint32_t *orders; /* permutations, `count` numbers each */
};

static void destroy(struct kvb_workload *workload)
{
	struct long_doc_permutator *p = (struct long_doc_permutator *)workload;

	if (p == NULL)
		return;
	for (uint32_t i = 0; i < p->count; i++)
		kvb_buf_finish(&p->contexts[i]);
	free(p->contexts);
	kvb_buf_finish(&p->system_prompt);
	kvb_word_pool_finish(&p->pool);
	free(p->orders);
	free(p);
}

/* Returns n!, but at most UINT64_MAX / 16. */
static uint64_t factorial(uint32_t n)
{
	uint64_t most = UINT64_MAX / 16, product = 1;

	for (uint32_t i = 2; i <= n; i++)
		product = product > most / i ? most : product * i;
	return product;
}

static int compare(const uint32_t *a, const uint32_t *b, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		if (a[i] != b[i])
			return a[i] < b[i] ? -1 : 1;
	return 0;
}

/* Replaces a permutation by the next one in lexicographic order, which must exist. */
static void advance(uint32_t *order, uint32_t n)
{
	uint32_t i = n - 1, j = n - 1, swapped;

	while (order[i - 1] >= order[i])
		i--;
	while (order[j] <= order[i - 1])
		j--;
	swapped = order[i - 1];
	order[i - 1] = order[j];
	order[j] = swapped;
	for (j = n - 1; i < j; i++, j--) {
		swapped = order[i];
		order[i] = order[j];
		order[j] = swapped;
	}
}

static void first_orders(struct long_doc_permutator *p)
{
	uint32_t n = p->count;

	for (uint32_t i = 0; i < n; i++)
		p->orders[i] = i;
	for (uint64_t k = 1; k < p->base.planned; k++) {
		memcpy(p->orders + k * n, p->orders + (k - 1) * n, n * sizeof(*p->orders));
		advance(p->orders + k * n, n);
	}
}

/* Returns the place of a permutation among the first `have`, which are sorted; *known: it is one of
 * them. */
static uint64_t place_of(
	const struct long_doc_permutator *p, uint64_t have, const uint32_t *order, bool *known)
{
	uint64_t low = 0, high = have;

	*known = false;
	while (low < high && !*known) {
		uint64_t middle = low + (high - low) / 2;
		int which = compare(p->orders + middle * p->count, order, p->count);

		*known = which == 0;
		if (which < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static void sample_orders(struct long_doc_permutator *p)
{
	uint32_t n = p->count;
	uint32_t *order = kvb_alloc(n, sizeof(*order));
	struct kvb_py_random random;
	uint64_t have = 0;

	kvb_py_seed(&random, p->options->seed);
	while (have < p->base.planned) {
		uint32_t *at;
		bool known;

		kvb_py_sample(&random, n, order, n);
		at = p->orders + place_of(p, have, order, &known) * n;
		if (known)
			continue;
		memmove(at + n, at, (size_t)((p->orders + have * n) - at) * sizeof(*p->orders));
		memcpy(at, order, n * sizeof(*order));
		have++;
	}
	free(order);
}

static void make_texts(struct long_doc_permutator *p)
{
	const struct kvb_engine_options *o = p->options;
	struct kvb_py_random random;

	kvb_py_seed(&random, o->seed);
	if (o->ldp.system_prompt > 0)
		kvb_word_pool_text(
			&p->pool, &random, (uint64_t)o->ldp.system_prompt, &p->system_prompt);
	for (uint32_t i = 0; i < p->count; i++) {
		kvb_py_seed(&random, o->seed + 1 + i);
		kvb_word_pool_text(
			&p->pool, &random, (uint64_t)o->ldp.context_length, &p->contexts[i]);
	}
}

/* Returns whether a run with these options fits the limits; if not, a message was written to
 * error. */
static bool fits(const struct kvb_engine_options *o, uint64_t planned, FILE *error)
{
	double tokens = (double)o->ldp.contexts * (double)o->ldp.context_length;
	double places = (double)o->ldp.contexts * (double)planned;

	if (tokens > MAX_TOKENS)
		fprintf(error, "kvbench: %.0f tokens in each request, at most %d are possible\n",
			tokens, MAX_TOKENS);
	else if (places > MAX_PLACES)
		fprintf(error,
			"kvbench: %llu permutations of %lld documents are too many to keep\n",
			(unsigned long long)planned, (long long)o->ldp.contexts);
	return tokens <= MAX_TOKENS && places <= MAX_PLACES;
}

static enum kvw_err create(
	const struct kvb_engine_options *options, struct kvb_workload **out, FILE *error)
{
	uint64_t possible = factorial((uint32_t)options->ldp.contexts);
	uint64_t asked = (uint64_t)options->ldp.permutations;
	uint64_t planned = asked < possible ? asked : possible;
	struct long_doc_permutator *p;
	enum kvw_err err;

	if (!fits(options, planned, error))
		return KVW_EINVAL;
	p = kvb_alloc(1, sizeof(*p));
	err = kvb_workload_words(options, &p->pool, error);
	if (err != KVW_OK) {
		free(p);
		return err;
	}
	p->base.ops = &kvb_long_doc_permutator;
	p->base.planned = planned;
	p->base.warm_count = 1;
	p->base.at_once = (uint64_t)options->ldp.inflight;
	p->options = options;
	p->count = (uint32_t)options->ldp.contexts;
	p->contexts = kvb_alloc(p->count, sizeof(*p->contexts));
	p->orders = kvb_alloc(planned * p->count, sizeof(*p->orders));
	if (asked < possible && possible > asked * 10)
		sample_orders(p);
	else
		first_orders(p);
	make_texts(p);
	*out = &p->base;
	return KVW_OK;
}

static void describe(const struct kvb_workload *workload, FILE *out)
{
	const struct long_doc_permutator *p = (const struct long_doc_permutator *)workload;
	const struct kvb_engine_options *o = p->options;

	fprintf(out,
		"  documents %u of %lld tokens behind a system prompt of %lld, %llu permutations, "
		"%lld under way\n  words from %s: %u\n",
		p->count, (long long)o->ldp.context_length, (long long)o->ldp.system_prompt,
		(unsigned long long)workload->planned, (long long)o->ldp.inflight,
		p->pool.from_model ? "the tokenizer" : "the built-in list (no --tokenizer)",
		p->pool.count);
}

static void warm(struct kvb_workload *workload, uint64_t n, struct kvb_ask *out)
{
	struct kvb_buf text = {0};

	(void)workload;
	*out = (struct kvb_ask){.max_tokens = 1};
	snprintf(out->id, sizeof(out->id), "warmup_%llu", (unsigned long long)n);
	kvb_fill(&text, "warmup", WARM_WORDS);
	kvb_ask_message(out, "system", "You are a helpful assistant.", 28);
	kvb_ask_message(out, "user", text.data, text.len);
	kvb_buf_finish(&text);
}

static enum kvb_turn next(
	struct kvb_workload *workload, int64_t now_ns, struct kvb_ask *out, int64_t *wake_ns)
{
	struct long_doc_permutator *p = (struct long_doc_permutator *)workload;
	unsigned long long n = p->base.asked;
	struct kvb_buf text = {0};

	(void)wake_ns;
	if (p->base.asked == p->base.planned)
		return KVB_DONE;
	*out = (struct kvb_ask){.max_tokens = p->options->ldp.max_output, .due_ns = now_ns};
	snprintf(out->id, sizeof(out->id), "perm%llu_req%llu", n, n);
	for (uint32_t i = 0; i < p->count; i++) {
		const struct kvb_buf *context = &p->contexts[p->orders[n * p->count + i]];

		if (i > 0)
			kvb_buf_text(&text, "\n\n");
		kvb_buf_add(&text, context->data, context->len);
	}
	if (p->system_prompt.len > 0)
		kvb_ask_message(out, "system", p->system_prompt.data, p->system_prompt.len);
	kvb_ask_message(out, "user", text.data, text.len);
	kvb_buf_finish(&text);
	return KVB_ASK;
}

const struct kvb_workload_ops kvb_long_doc_permutator = {
	.name = "long-doc-permutator",
	.create = create,
	.describe = describe,
	.warm = warm,
	.next = next,
	.destroy = destroy,
};
