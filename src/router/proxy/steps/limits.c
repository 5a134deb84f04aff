/*
 * limits.c - checks the limits of the request's key, tenant and model, and charges the request once
 * (rate.h).
 */
#include "proxy/step.h"

#include <stdio.h>

#include "admin/explanation.h"
#include "proxy/groups.h"
#include "proxy/loop.h"
#include "proxy/rate.h"
#include "proxy/reply.h"
#include "routing/choice.h"

/* --- parties with limits --- */

static void add_party(struct kvw_rate_party *parties, size_t *count, enum kvw_rate_kind kind,
	struct kvw_slice name, struct kvw_rate_limits limits)
{
	if (kvw_rate_limits_any(&limits))
		parties[(*count)++] = (struct kvw_rate_party){kind, name, limits};
}

static size_t parties_of(
	const struct kvw_exchange *x, struct kvw_rate_party parties[KVW_RATE_KINDS])
{
	const struct kvw_rate_limit *limit;
	size_t count = 0;

	if (x->caller.key != NULL) {
		struct kvw_slice tenant = kvw_slice_of(x->caller.key->tenant);

		add_party(parties, &count, KVW_RATE_KEY, kvw_slice_of(x->caller.key->name),
			KVW_RATE_LIMITS_OF(x->caller.key));
		limit = kvw_config_tenant_rate(x->config, tenant);
		if (limit != NULL)
			add_party(parties, &count, KVW_RATE_TENANT, tenant,
				KVW_RATE_LIMITS_OF(limit));
	}
	/* The model behind an alias, of a group, or meant by a body that names none; earlier steps
	 * have set it. */
	limit = kvw_config_served_rate(x->config,
		x->named.meant != NULL ? kvw_slice_of(x->named.meant->name) : kvw_groups_model(x));
	if (limit != NULL)
		add_party(parties, &count, KVW_RATE_MODEL, kvw_slice_of(limit->model),
			KVW_RATE_LIMITS_OF(limit));
	return count;
}

/* --- expected use --- */

static uint64_t prompt_tokens(struct kvw_exchange *x)
{
	/* For a complete body these are the client's own bytes, without those that rewrite.c has
	 * added. */
	bool announced =
		!x->upload.body.done && x->upload.content_length > x->upload.body.payload_bytes;
	uint64_t bytes = announced ? x->upload.content_length : x->upload.body.payload_bytes;

	if (!x->route.content_known)
		return (uint64_t)((double)bytes / x->config->routing_bytes_per_token);
	x->route.tokens_per_unit =
		kvw_fleet_tokens_per_unit(x->loop->fleet, x->model, &x->route, &x->measure.keys);
	return kvw_request_tokens(&x->route);
}

/* Returns how many sequences an engine writes for the request; 0: it only reads. */
static uint64_t answers_of(const struct kvw_exchange *x)
{
	uint64_t choices = x->route.choices > 1 ? x->route.choices : 1;

	switch (x->path.api) {
	case KVW_API_COMPLETIONS:
	case KVW_API_CHAT: /* also for a batch of prompts */
		return x->route.chain_count > 1 ? choices * x->route.chain_count : choices;
	case KVW_API_RESPONSES:
	case KVW_API_MESSAGES:
	case KVW_API_AUDIO:
	case KVW_API_GENERATE:
	case KVW_API_CHAT_BATCH:
	/* the body was not read; this path takes requests that generate, too */
	case KVW_API_INVOCATIONS:
		return choices;
	default:
		return 0;
	}
}

/* --- a refusal --- */

static const char *const names[KVW_RATE_LIMITED_COUNT] = {
	[KVW_RATE_REQUESTS] = "requests per minute (RPM)",
	[KVW_RATE_TOKENS] = "tokens per minute (TPM)",
	[KVW_RATE_DAY] = "tokens per day (TPD)",
	[KVW_RATE_CONCURRENT] = "requests at once",
};
static const enum kvw_counter counters[KVW_RATE_LIMITED_COUNT] = {
	[KVW_RATE_REQUESTS] = KVW_COUNT_RATE_REQUESTS,
	[KVW_RATE_TOKENS] = KVW_COUNT_RATE_TOKENS,
	[KVW_RATE_DAY] = KVW_COUNT_RATE_DAY,
	[KVW_RATE_CONCURRENT] = KVW_COUNT_RATE_CONCURRENT,
};

/* Returns the type of error as OpenAI's clients know it. */
static const char *error_type_of(enum kvw_rate_limited limit)
{
	return limit == KVW_RATE_TOKENS || limit == KVW_RATE_DAY ? "tokens" : "requests";
}

static void refuse_over_limit(struct kvw_exchange *x, const struct kvw_rate_refusal *refusal)
{
	static const char *const kinds[KVW_RATE_KINDS] = {
		"this API key", "this tenant", "this model"};
	long long ms = (long long)((refusal->wait_ns + 999999) / 1000000);
	char message[256], fields[KVW_RATE_ROOM + 96];
	size_t len = kvw_rate_fields(x, fields);

	(void)snprintf(fields + len, sizeof(fields) - len,
		"retry-after: %lld\r\nretry-after-ms: %lld\r\n", (ms + 999) / 1000, ms);
	(void)snprintf(message, sizeof(message),
		"Rate limit reached for %s on %s: limit %lld. Please try again in %lld.%03llds.",
		kinds[refusal->kind], names[refusal->limit], (long long)refusal->most, ms / 1000,
		ms % 1000);
	kvw_rates_drop(&x->rating.ticket);
	kvw_metrics_add(x->loop->metrics, counters[refusal->limit], 1);
	kvw_reply_error_code(
		x, 429, error_type_of(refusal->limit), "rate_limit_exceeded", fields, message);
}

static bool refuse_beyond(struct kvw_exchange *x)
{
	struct kvw_rate_party parties[KVW_RATE_KINDS];
	struct kvw_rate_time time = kvw_rate_time_of(x->loop);
	struct kvw_rate_demand demand = {0};
	struct kvw_rate_refusal refusal;
	size_t count;

	if (x->rating.rated || (x->caller.key == NULL && x->config->rate_limit_count == 0))
		return false;
	count = parties_of(x, parties);
	if (count == 0)
		return false;
	x->rating.rated = true;
	x->rating.prompt = x->rating.answers = 0;
	if (kvw_exchange_computes(x)) {
		demand.prompt_tokens = x->rating.prompt = prompt_tokens(x);
		demand.answer_tokens = x->route.answer_most;
		demand.answers = x->rating.answers = answers_of(x);
	}
	if (!kvw_rates_take(x->loop->shared->rates, parties, count, &demand, &time,
		    &x->rating.ticket, &refusal)) {
		refuse_over_limit(x, &refusal);
		return true;
	}
	kvw_metrics_add(x->loop->metrics, KVW_COUNT_RATE_PREDICTED, x->rating.ticket.tokens);
	return false;
}
/* Notes whether this limit would refuse the request. */
static void note_short(struct kvw_exchange *x, const struct kvw_explained_limit *limit)
{
	const struct kvw_rate_left *left[KVW_RATE_LIMITED_COUNT] = {
		[KVW_RATE_REQUESTS] = &limit->state.requests,
		[KVW_RATE_TOKENS] = &limit->state.tokens,
		[KVW_RATE_DAY] = &limit->state.day,
		[KVW_RATE_CONCURRENT] = &limit->state.concurrent,
	};

	for (int i = 0; i < KVW_RATE_LIMITED_COUNT; i++)
		if (left[i]->limit > 0 && left[i]->remaining <= 0)
			kvw_explanation_note(
				x->dry, "429 now: no %s left of its %s", names[i], limit->of);
}

/* In a dry run: notes what is left for each party, and whether it is less than the request's
 * expected use. */
static enum kvw_stepped limits_dry(struct kvw_exchange *x, struct kvw_way *way)
{
	static const char *const kinds[KVW_RATE_KINDS] = {"key", "tenant", "model"};
	struct kvw_rate_party parties[KVW_RATE_KINDS];
	struct kvw_rate_time time = kvw_rate_time_of(x->loop);
	struct kvw_explanation *e = x->dry;

	(void)way;
	e->limit_count = parties_of(x, parties);
	for (size_t i = 0; i < e->limit_count; i++) {
		struct kvw_explained_limit *limit = &e->limits[i];

		limit->of = kinds[parties[i].kind];
		limit->name = parties[i].name;
		kvw_rates_look(x->loop->shared->rates, &parties[i], &time, &limit->state);
		note_short(x, limit);
	}
	return KVW_STEP_ON;
}

static enum kvw_stepped limits_run(struct kvw_exchange *x, struct kvw_way *way)
{
	(void)way;
	return refuse_beyond(x) ? KVW_STEP_ANSWERED : KVW_STEP_ON;
}

static bool limits_needed(const struct kvw_loop *loop, const struct kvw_config *config)
{
	return loop->auth != NULL || config->rate_limit_count > 0;
}

const struct kvw_step kvw_step_limits = {
	.name = "limits",
	.needed = limits_needed,
	.run = limits_run,
	.dry = limits_dry,
};
