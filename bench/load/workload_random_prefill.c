/*
 * workload_random_prefill.c - many long prompts at once, one token each, no warm-up.
 *
 * What it shows is the rate of prefill under a queue. Prompts begin with their number and share no
 * block; nothing in them is random but the name.
 */
#include <stdlib.h>

#include "bench/load/workload.h"

struct random_prefill {
	struct kvb_workload base;
	const struct kvb_engine_options *options;
};

static void destroy(struct kvb_workload *workload)
{
	free(workload); /* base is the first member, so this is the whole object */
}

static enum kvw_err create(
	const struct kvb_engine_options *options, struct kvb_workload **out, FILE *error)
{
	struct random_prefill *prefill = kvb_alloc(1, sizeof(*prefill));

	(void)error; /* the bounds of the options are checked already */
	prefill->base.ops = &kvb_random_prefill;
	prefill->base.planned = prefill->base.at_once = (uint64_t)options->rp.requests;
	prefill->options = options;
	*out = &prefill->base;
	return KVW_OK;
}

static void describe(const struct kvb_workload *workload, FILE *out)
{
	fprintf(out, "  requests %llu of %lld tokens, all at once, one token each\n",
		(unsigned long long)workload->planned,
		(long long)((const struct random_prefill *)workload)->options->rp.length);
}

static void warm(struct kvb_workload *workload, uint64_t n, struct kvb_ask *out)
{
	(void)workload; /* never called: there is no warm-up */
	(void)n;
	*out = (struct kvb_ask){0};
}

static enum kvb_turn next(
	struct kvb_workload *workload, int64_t now_ns, struct kvb_ask *out, int64_t *wake_ns)
{
	struct random_prefill *prefill = (struct random_prefill *)workload;
	int64_t words = prefill->options->rp.length - 10;
	struct kvb_buf text = {0};

	(void)now_ns;
	(void)wake_ns;
	if (prefill->base.asked == prefill->base.planned)
		return KVB_DONE;
	*out = (struct kvb_ask){.max_tokens = 1, .session = prefill->base.asked + 1};
	snprintf(out->id, sizeof(out->id), "prefill_%llu", (unsigned long long)prefill->base.asked);
	kvb_buf_printf(&text, "Request %llu: ", (unsigned long long)prefill->base.asked);
	kvb_fill(&text, "hi", words > 1 ? words : 1);
	kvb_ask_message(out, "user", text.data, text.len);
	kvb_buf_finish(&text);
	return KVB_ASK;
}

const struct kvb_workload_ops kvb_random_prefill = {
	.name = "random-prefill",
	.create = create,
	.describe = describe,
	.warm = warm,
	.next = next,
	.destroy = destroy,
};
