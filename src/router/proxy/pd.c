/*
 * pd.c - see pd.h.
 *
 * Engine ids: a pair of workers has a word in a table, by a hash of both, with the engine id at its
 * last transfer that worked. Two pairs may share a word; then one of them does its transfers one at
 * a time for a while, which costs time and nothing else.
 */
#include "proxy/pd.h"

#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/log.h"
#include "http/target.h"
#include "openai/splice.h"
#include "proxy/loop.h"
#include "proxy/transfer.h"
#include "routing/choice.h"

#define PAIRS      4096
#define LEGS_MOST  3 /* of a request; then it is served whole */
#define MARGIN_NS  (1 * KVW_NS_PER_S) /* clocks and networks, before a lease's end */
#define SCRAPE_NS  (2 * KVW_NS_PER_S) /* by which a reading of metrics may be late */
#define FULL_TOKENS 128 /* to be transferred; fewer may fill no block, and then hit nothing */
#define EXPIRY_MOST_S 86400.0 /* a time further ahead is on another clock */

struct kvw_pd_shared {
	struct kvw_transfer transfers[KVW_MAX_MODEL_GROUPS + 1];
	_Atomic uint64_t proven[PAIRS];       /* engine id of its last good transfer; 0: none yet */
	_Atomic int64_t probed_until_ns[PAIRS]; /* one transfer tries the pair until then; 0: none */
};

const char *kvw_pd_leg_why(enum kvw_pd_leg outcome)
{
	static const char *const why[KVW_PD_LEGS] = {
		[KVW_PD_LEG_OK] = "it has prefilled",
		[KVW_PD_LEG_NO_PARAMS] = "its answer has no kv_transfer_params",
		[KVW_PD_LEG_ERROR] = "it answered an error to a prefill",
		[KVW_PD_LEG_LOST] = "its connection was lost while it prefilled",
		[KVW_PD_LEG_TIMEOUT] = "it did not prefill in time",
		[KVW_PD_LEG_FULL] = "it is full",
		[KVW_PD_LEG_CANCELLED] = "the request ended",
	};

	return why[outcome];
}

struct kvw_pd_shared *kvw_pd_shared_create(void)
{
	struct kvw_pd_shared *shared = calloc(1, sizeof(*shared));

	for (size_t i = 0; shared != NULL && i <= KVW_MAX_MODEL_GROUPS; i++)
		kvw_transfer_init(&shared->transfers[i]);
	return shared;
}

void kvw_pd_shared_destroy(struct kvw_pd_shared *shared)
{
	free(shared);
}

struct kvw_transfer *kvw_pd_transfer(struct kvw_pd_shared *shared, size_t group)
{
	return &shared->transfers[group < KVW_MAX_MODEL_GROUPS ? group : KVW_MAX_MODEL_GROUPS];
}

static struct kvw_transfer *transfer_of(const struct kvw_exchange *x)
{
	return kvw_pd_transfer(x->loop->shared->pd,
		x->division.group == NULL ? SIZE_MAX
					  : (size_t)(x->division.group - x->config->model_groups));
}

/* --- roles --- */

bool kvw_pd_has_roles(const struct kvw_exchange *x)
{
	return atomic_load_explicit(&x->loop->fleet->roles, memory_order_relaxed) > 0;
}

bool kvw_pd_chooses(const struct kvw_exchange *x)
{
	return x->strategy->ops->prepare >= KVW_PREPARE_CONTENT;
}

bool kvw_pd_reads(const struct kvw_exchange *x)
{
	return kvw_pd_has_roles(x) && x->config->pd_transfer != KVW_PD_TRANSFER_OFF &&
	       x->config->pd_threshold >= 0;
}

/* --- the plan --- */

static bool ends_with(struct kvw_slice text, const char *end)
{
	size_t len = strlen(end);

	return text.len >= len && memcmp(text.data + text.len - len, end, len) == 0;
}

/* One answer to one prompt, on a path whose body both legs can have. */
static bool can_be_split(const struct kvw_exchange *x)
{
	struct kvw_slice path = kvw_target_path(x->target);

	if (!x->whole || !x->scanned || !x->route.teaches || !x->route.content_known ||
		x->route.chain_count != 1 || x->route.choices > 1 || x->pin.len > 0 ||
		x->sagemaker.invocation || kvw_exchange_kept(x).len > 0)
		return false;
	switch (x->route.api) {
	case KVW_API_CHAT:
		return ends_with(path, "/chat/completions");
	case KVW_API_COMPLETIONS:
		return ends_with(path, "/completions");
	case KVW_API_RESPONSES:
		return ends_with(path, "/responses");
	case KVW_API_MESSAGES:
		return ends_with(path, "/messages");
	default:
		return false;
	}
}

static void drop_params(struct kvw_parted *pd)
{
	free(pd->params);
	pd->params = NULL;
	pd->params_len = 0;
}

static void drop_copy(struct kvw_exchange *x)
{
	free(x->pd->copy);
	x->pd->copy = NULL;
	kvw_account_update(x->loop->shared->memory, &x->pd->memory, 0);
}

bool kvw_pd_read_body(struct kvw_exchange *x)
{
	struct kvw_parted *pd = x->pd;

	drop_copy(x);
	if (!kvw_upload_whole(&x->upload, &pd->plain, &pd->copy))
		return false;
	if (pd->copy != NULL)
		kvw_account_update(x->loop->shared->memory, &pd->memory, pd->plain.len);
	return true;
}

static void drop_body(struct kvw_parted *pd)
{
	pd->body.count = 0;
	pd->body.len = pd->body_sent = 0;
}

void kvw_pd_drop_sent(struct kvw_exchange *x)
{
	if (x->pd->leg != NULL || x->pd->body_sent < x->pd->body.len)
		return;
	drop_body(x->pd);
	drop_copy(x);
}

static void count_decode(const struct kvw_exchange *x, enum kvw_pd_decode outcome)
{
	kvw_metrics_pd_decode(x->loop->metrics, outcome);
	kvw_trace_note(x->trace, x->loop->now_ns, KVW_TRACE_DECODE, outcome);
}

/* The time that is left for the first token. */
static int64_t time_left_ns(const struct kvw_exchange *x)
{
	return x->complete_ns + x->config->timeout_first_token_ms * KVW_NS_PER_MS -
	       x->loop->now_ns;
}

/* Whether this request may have a leg, after those that it had. */
static bool may_split_again(const struct kvw_exchange *x)
{
	return !x->pd->settled && x->pd->legs < LEGS_MOST &&
	       (x->dry != NULL || time_left_ns(x) > 0);
}

/* --- whole requests --- */

static bool strays(const struct kvw_candidate *item)
{
	return item->role == KVW_ROLE_PREFILL;
}

/* Whether a pair will be looked for by seconds: then prefillers can be compared as well. */
static bool is_priced(const struct kvw_exchange *x)
{
	return x->config->pd_transfer != KVW_PD_TRANSFER_OFF && x->config->pd_threshold < 0 &&
	       kvw_pd_chooses(x) && kvw_exchange_computes(x) &&
	       (x->pd == NULL || (x->pd->state != KVW_PD_PREFILLED && may_split_again(x))) &&
	       can_be_split(x);
}

static void drop_strays(struct kvw_fleet_table *table)
{
	table->version = 0; /* it is refilled next time */
	for (size_t i = 0; i < table->count; i++)
		if (strays(&table->items[i]))
			table->items[i].usable = false;
}

bool kvw_pd_strays(const struct kvw_candidates *set)
{
	bool decodes = false, any = false;

	for (size_t i = 0; i < set->count; i++) {
		decodes = decodes || (set->items[i].usable && !strays(&set->items[i]));
		any = any || (set->items[i].usable && strays(&set->items[i]));
	}
	return any && decodes;
}

void kvw_pd_keep(const struct kvw_exchange *x, struct kvw_fleet_table *table)
{
	struct kvw_candidates set = {.items = table->items, .count = table->count};

	if (!kvw_pd_has_roles(x))
		return;
	for (size_t i = 0; i < table->count; i++) {
		struct kvw_candidate *item = &table->items[i];

		item->prefills = item->usable && item->role != KVW_ROLE_DECODE &&
				 !kvw_load_is_full(item->load, x->loop->now_ns);
	}
	if (kvw_pd_strays(&set) && !(x->config->pd_whole && is_priced(x)))
		drop_strays(table);
}

void kvw_pd_price(struct kvw_exchange *x, const struct kvw_candidates *set,
	const struct kvw_decision *decision, struct kvw_cost *costs)
{
	if (kvw_pd_strays(set))
		kvw_split_price(set, costs, decision->prompt_tokens, transfer_of(x));
}

void kvw_pd_leave(struct kvw_exchange *x, struct kvw_candidates *set)
{
	if (!kvw_pd_strays(set))
		return;
	drop_strays(&x->loop->candidates);
	set->version = 0;
}

int64_t kvw_pd_leg_until_ns(const struct kvw_exchange *x)
{
	return x->loop->now_ns + time_left_ns(x) / (x->config->pd_fallback ? 2 : 1);
}

/* Parameters that were handed to no decoder are not used. */
static void forget(struct kvw_exchange *x, enum kvw_pd_decode why)
{
	drop_params(x->pd);
	x->pd->state = KVW_PD_UNPLANNED;
	count_decode(x, why);
}

void kvw_pd_forget(struct kvw_exchange *x)
{
	if (x->pd != NULL && x->pd->state == KVW_PD_PREFILLED)
		forget(x, KVW_PD_DECODE_REPEATED);
}

/* x->pd; NULL: no memory. */
static struct kvw_parted *make_parted(struct kvw_exchange *x, kvw_timer_fn on_lease)
{
	if (x->pd == NULL)
		x->pd = calloc(1, sizeof(*x->pd));
	if (x->pd != NULL) {
		x->pd->x = x;
		x->pd->timer.fn = on_lease;
	}
	return x->pd;
}

bool kvw_pd_begin(struct kvw_exchange *x, kvw_timer_fn on_lease)
{
	struct kvw_parted *pd;

	if (!kvw_pd_has_roles(x) || x->config->pd_transfer == KVW_PD_TRANSFER_OFF ||
		!kvw_exchange_computes(x))
		return false;
	pd = make_parted(x, on_lease);
	if (pd == NULL)
		return false;
	if (pd->state == KVW_PD_PREFILLED && x->loop->now_ns < pd->until_ns)
		return false; /* for whichever decoder is chosen now */
	if (pd->state == KVW_PD_PREFILLED)
		forget(x, KVW_PD_DECODE_EXPIRED);
	pd->state = KVW_PD_UNPLANNED;
	if (!may_split_again(x))
		return false;
	if (!can_be_split(x)) {
		if (x->dry == NULL && !pd->settled)
			kvw_metrics_pd_plan(x->loop->metrics, KVW_PD_PLAN_WHOLE);
		pd->settled = true;
		return false;
	}
	return true;
}

/* Costs of all workers, those that only prefill included. */
static bool weigh(struct kvw_exchange *x, const struct kvw_candidates *set, uint32_t *prompt_tokens)
{
	struct kvw_loop *loop = x->loop;
	struct kvw_candidate *items = loop->candidates.items;
	struct kvw_candidates all = *set;
	struct kvw_decision decision;
	bool had[KVW_MAX_WORKERS];
	enum kvw_err err;

	decision.prompt_tokens = 0;
	if (x->strategy->ops->explain == NULL || set->items != items)
		return false;
	if (loop->gates.costs == NULL)
		loop->gates.costs = calloc(KVW_MAX_WORKERS, sizeof(loop->gates.costs[0]));
	if (loop->gates.costs == NULL)
		return false;
	for (size_t i = 0; i < set->count; i++) {
		had[i] = items[i].usable;
		items[i].usable = had[i] || items[i].prefills;
	}
	all.version = 0;
	err = x->strategy->ops->explain(x->strategy, &x->route, &all, loop->now_ns,
		loop->gates.costs, &decision);
	for (size_t i = 0; i < set->count; i++)
		items[i].usable = had[i];
	*prompt_tokens = kvw_pd_chooses(x) ? decision.prompt_tokens : kvw_request_tokens(&x->route);
	return err == KVW_OK;
}

bool kvw_pd_plan(struct kvw_exchange *x, const struct kvw_candidates *set, size_t decoder,
	struct kvw_split *found)
{
	struct kvw_parted *pd = x->pd;
	uint32_t tokens;

	*found = (struct kvw_split){.split = false};
	if (!weigh(x, set, &tokens))
		return false;
	kvw_split_choose(set, x->loop->gates.costs, tokens, transfer_of(x),
		x->config->pd_threshold, decoder, found);
	/* A leg is counted as it begins, and a prefiller's whole request as it is sent. */
	if (x->dry == NULL && found->has_here && !found->split &&
		!strays(&set->items[found->here]))
		kvw_metrics_pd_plan(x->loop->metrics,
			found->has_pair ? KVW_PD_PLAN_HERE : KVW_PD_PLAN_DECODER_ALONE);
	if (!found->split)
		return false;
	pd->state = KVW_PD_PLANNED;
	pd->kind = kvw_transfer_kind(x->config);
	pd->decision = (struct kvw_decision){.pos = found->prefiller,
		.worker_id = set->items[found->prefiller].id,
		.prompt_tokens = tokens,
		.prefill_ns = (int64_t)x->loop->gates.costs[found->prefiller].prefill_ns};
	pd->tokens = found->tokens;
	pd->transfer_ns = found->transfer_ns;
	return true;
}

enum kvw_err kvw_pd_pick(struct kvw_exchange *x, struct kvw_candidates *set, uint32_t id,
	struct kvw_decision *out)
{
	struct kvw_fleet_table *table = &x->loop->candidates;
	bool had[KVW_MAX_WORKERS];
	enum kvw_err err;

	table->version = set->version = 0;
	for (size_t i = 0; i < table->count; i++) {
		struct kvw_candidate *item = &table->items[i];

		had[i] = item->usable;
		item->usable = item->id == id && (had[i] || item->prefills);
	}
	err = x->strategy->ops->pick(x->strategy, &x->route, set, x->loop->now_ns, out);
	for (size_t i = 0; i < table->count; i++)
		table->items[i].usable = had[i];
	return err;
}

/* --- the leg --- */

/* Returns the time from now until half of the prefiller's lease has passed. expires_s: when the
 * prefiller says that the lease ends, in seconds since 1970; 0: it does not say. */
static int64_t half_of_lease_ns(const struct kvw_exchange *x, double expires_s)
{
	double left_s = expires_s - (double)kvw_clock_wall_ns() / 1e9;
	int64_t lease_ns = x->config->pd_lease_ms * KVW_NS_PER_MS;

	if (expires_s > 0 && left_s > -EXPIRY_MOST_S && left_s < EXPIRY_MOST_S &&
		left_s * 1e9 - (double)MARGIN_NS < (double)lease_ns / 2)
		return (int64_t)(left_s * 1e9) - MARGIN_NS;
	return lease_ns / 2;
}

/* Makes the id of the leg's transfer, unlike any other of this process and of other replicas. */
static void make_id(struct kvw_exchange *x)
{
	(void)snprintf(x->pd->id, sizeof(x->pd->id), "%016llx%016llx",
		(unsigned long long)x->loop->request_id_prefix,
		(unsigned long long)x->loop->request_id_next++);
}


bool kvw_pd_take_answer(struct kvw_exchange *x, struct kvw_slice answer)
{
	struct kvw_parted *pd = x->pd;

	pd->answered_ns = x->loop->now_ns;
	if (pd->kind->once && pd->leg_time == KVW_LEG_FIRST)
		pd->until_ns = x->loop->now_ns + half_of_lease_ns(x, 0);
	return pd->kind->take == NULL || pd->kind->take(x, answer);
}

bool kvw_pd_take_params(struct kvw_exchange *x, const struct kvw_leg_params *params)
{
	struct kvw_parted *pd = x->pd;
	char *copy = malloc(params->text.len + 1);

	if (copy == NULL)
		return false;
	memcpy(copy, params->text.data, params->text.len);
	drop_params(pd);
	pd->params = copy;
	pd->params_len = params->text.len;
	pd->engine = XXH3_64bits(params->engine_id.data, params->engine_id.len) | 1;
	pd->until_ns = x->loop->now_ns + half_of_lease_ns(x, params->expires_s);
	return true;
}

void kvw_pd_leg_ended(struct kvw_exchange *x, enum kvw_pd_leg outcome, int status)
{
	struct kvw_parted *pd = x->pd;
	struct kvw_loop *loop = x->loop;

	kvw_metrics_pd_leg(loop->metrics, outcome, pd->prefill_ns, pd->prompt_tokens,
		pd->cached_tokens);
	kvw_trace_text(x->trace, loop->now_ns, KVW_TRACE_PREFILLED, outcome, pd->prompt_tokens,
		outcome == KVW_PD_LEG_OK ? "" : kvw_pd_leg_why(outcome));
	if (outcome != KVW_PD_LEG_OK || x->first_token_ns != 0)
		kvw_pd_drop_sent(x);
	pd->state = outcome == KVW_PD_LEG_OK ? KVW_PD_PREFILLED : KVW_PD_ALONE;
	if (outcome == KVW_PD_LEG_CANCELLED && pd->leg_time != KVW_LEG_FIRST)
		pd->state = KVW_PD_UNPLANNED; /* for another decoder it is prefilled again */
	if (outcome == KVW_PD_LEG_OK || pd->state == KVW_PD_UNPLANNED)
		return;
	pd->settled = pd->failed = true;
	pd->denied = outcome == KVW_PD_LEG_ERROR && status >= 400 && status < 500;
	kvw_debug("proxy", "prefill failed url=%s why=\"%s\" status=%d request_id=%.*s",
		pd->prefiller->url, kvw_pd_leg_why(outcome), status, (int)x->request_id.len,
		x->request_id.data);
}

/* --- the decoder --- */

static uint64_t pair_key(const struct kvw_exchange *x)
{
	const struct kvw_worker *p = x->pd->prefiller, *d = x->attempt.worker;
	uint32_t ids[4] = {p->id, p->use, d->id, d->use};

	return XXH3_64bits(ids, sizeof(ids));
}

/* Returns whether the pair may transfer now. Where the prefiller is another engine than at the
 * pair's last transfer, one request at a time tries it. */
static bool may_transfer(struct kvw_exchange *x)
{
	struct kvw_pd_shared *shared = x->loop->shared->pd;
	size_t pair = pair_key(x) % PAIRS;
	uint64_t proven = atomic_load_explicit(&shared->proven[pair], memory_order_relaxed);
	int64_t until = atomic_load_explicit(&shared->probed_until_ns[pair], memory_order_relaxed);
	int64_t now_ns = x->loop->now_ns;

	x->pd->probe = false;
	if (proven == 0 || x->pd->engine == 0 || proven == x->pd->engine)
		return true;
	if (now_ns < until ||
		!atomic_compare_exchange_strong(&shared->probed_until_ns[pair], &until,
			now_ns + x->config->pd_lease_ms * KVW_NS_PER_MS))
		return false;
	kvw_info("proxy", "prefiller has another engine id: one transfer tries it prefiller=%s "
			  "decoder=%s",
		x->pd->prefiller->url, x->attempt.worker->url);
	x->pd->probe = true;
	return true;
}

bool kvw_pd_leg_begins(struct kvw_exchange *x)
{
	struct kvw_parted *pd = x->pd;

	make_id(x);
	pd->answered_ns = 0;
	pd->engine = 0;
	pd->until_ns = INT64_MAX;
	pd->leg_time = pd->kind->when != NULL ? pd->kind->when(x) : pd->kind->leg;
	if (pd->leg_time == KVW_LEG_UNREADY)
		kvw_metrics_pd_plan(x->loop->metrics, KVW_PD_PLAN_WHOLE);
	else if (pd->leg_time == KVW_LEG_BESIDE && !may_transfer(x))
		count_decode(x, KVW_PD_DECODE_QUARANTINED);
	else
		return true;
	pd->state = KVW_PD_ALONE;
	pd->settled = pd->counted = true;
	return false;
}

/* The client's body with the parameters. False: it cannot have them. */
static bool make_body(struct kvw_exchange *x)
{
	struct kvw_parted *pd = x->pd;
	struct kvw_writer w = KVW_WRITER(pd->told, sizeof(pd->told));
	struct kvw_slice params = pd->kind->give(x, &w);
	struct kvw_splice splice;

	if (w.overflow || kvw_leg_decode(pd->plain, params, &splice) != KVW_OK)
		return false;
	kvw_splice_pieces(&splice, pd->plain, &pd->body);
	return true;
}

void kvw_pd_hand_over(struct kvw_exchange *x)
{
	struct kvw_parted *pd = x->pd;

	if (x->loop->now_ns >= pd->until_ns) {
		count_decode(x, KVW_PD_DECODE_EXPIRED);
	} else if (pd->prefiller != x->attempt.worker) { /* else it has the prompt in its cache */
		pd->given = pd->kind->give == NULL;
		if (pd->leg_time == KVW_LEG_FIRST && !may_transfer(x))
			count_decode(x, KVW_PD_DECODE_QUARANTINED);
		else if (pd->given || make_body(x))
			return;
		else
			count_decode(x, KVW_PD_DECODE_FALLBACK);
	}
	pd->state = KVW_PD_ALONE;
	pd->settled = pd->counted = true;
	drop_params(pd);
	kvw_pd_drop_sent(x);
}

bool kvw_pd_too_late(struct kvw_exchange *x)
{
	if (x->attempt.written > 0 || x->loop->now_ns < x->pd->until_ns)
		return false;
	kvw_attempt_excused(&x->attempt, KVW_EXCUSE_LACKS,
		"half of the lease passed before it was sent what was prefilled for it");
	return true;
}

void kvw_pd_handed(struct kvw_exchange *x)
{
	struct kvw_parted *pd = x->pd;

	if (pd->handed_ns != 0 || !kvw_pd_hands(x))
		return;
	pd->handed_ns = kvw_clock_ns();
	if (pd->answered_ns != 0 && pd->leg_time == KVW_LEG_FIRST)
		kvw_metrics_pd_handover(x->loop->metrics, pd->handed_ns - pd->answered_ns);
	if (pd->until_ns != INT64_MAX)
		kvw_timer_set(&x->loop->timers, &pd->timer, KVW_TIMER_LEASE, pd->until_ns);
}

static void prove(struct kvw_exchange *x)
{
	struct kvw_pd_shared *shared = x->loop->shared->pd;
	size_t pair = pair_key(x) % PAIRS;

	if (x->pd->engine == 0)
		return;
	atomic_store_explicit(&shared->proven[pair], x->pd->engine, memory_order_relaxed);
	if (x->pd->probe)
		atomic_store_explicit(&shared->probed_until_ns[pair], 0, memory_order_relaxed);
	x->pd->probe = false;
}

void kvw_pd_first_token(struct kvw_exchange *x)
{
	struct kvw_parted *pd = x->pd;
	int64_t since_ns = pd->handed_ns > pd->answered_ns ? pd->handed_ns : pd->answered_ns;
	int64_t took_ns = x->loop->now_ns - since_ns;

	kvw_timer_clear(&x->loop->timers, &pd->timer);
	prove(x);
	if (pd->tokens >= FULL_TOKENS)
		atomic_fetch_add_explicit(
			&x->attempt.worker->transfers, 1, memory_order_relaxed);
	count_decode(x, KVW_PD_DECODE_TRANSFERRED);
	pd->settled = true;
	kvw_pd_drop_sent(x);
	if (!x->event_stream || (pd->leg_time == KVW_LEG_BESIDE && pd->answered_ns == 0))
		return;
	if (pd->leg_time == KVW_LEG_NEVER) /* the prefill is in it, as predicted */
		took_ns -= pd->decision.queue_ns + pd->decision.prefill_ns;
	took_ns = took_ns > 0 ? took_ns : 0;
	kvw_metrics_pd_transfer(x->loop->metrics, took_ns);
	took_ns -= x->attempt.decision.queue_ns;
	kvw_transfer_learn(transfer_of(x), pd->tokens, took_ns > 0 ? (double)took_ns : 0);
}

bool kvw_pd_uses_up(const struct kvw_exchange *x)
{
	return kvw_pd_hands(x) && (x->pd->kind->once || x->pd->leg_time != KVW_LEG_FIRST);
}

bool kvw_pd_refused(struct kvw_exchange *x, const char *why)
{
	if (!kvw_pd_uses_up(x) || x->first_token_ns != 0)
		return false;
	count_decode(x, KVW_PD_DECODE_REFUSED);
	x->pd->settled = true;
	/* The decoder may have got the id of a former engine. */
	if (x->pd->leg_time == KVW_LEG_BESIDE)
		kvw_worker_set_kv_source(x->pd->prefiller, KVW_SLICE(""));
	kvw_attempt_excused(&x->attempt, KVW_EXCUSE_LACKS, why);
	return true;
}

/* Returns whether the decoder's engine has computed since it was handed the request, and lately:
 * then its scheduler has seen the request, and its heartbeats prolong the prefiller's lease. */
static bool engine_moves(const struct kvw_exchange *x)
{
	int64_t moved_ns = kvw_stall_moved_ns(&x->attempt.worker->stall);
	int64_t lately_ns = x->config->pd_lease_ms * KVW_NS_PER_MS / 4;
	int64_t read_ns = x->config->health_metrics_interval_ms * KVW_NS_PER_MS + SCRAPE_NS;

	if (lately_ns < read_ns)
		lately_ns = read_ns;
	return moved_ns > x->pd->handed_ns && x->loop->now_ns - moved_ns < lately_ns;
}

bool kvw_pd_prefiller_works(const struct kvw_exchange *x)
{
	const struct kvw_worker *worker = x->pd->prefiller;

	return kvw_worker_life(worker) != KVW_WORKER_GONE && kvw_worker_is_up(worker) &&
	       !kvw_worker_fell_asleep(worker) &&
	       kvw_stall_state(&worker->stall) != KVW_STALL_FOUND;
}

bool kvw_pd_lease_passed(struct kvw_exchange *x)
{
	struct kvw_parted *pd = x->pd;
	bool moves;

	if (!kvw_pd_hands(x) || x->first_token_ns != 0 || kvw_exchange_answering(x))
		return false;
	moves = engine_moves(x);
	if (moves && kvw_pd_prefiller_works(x)) {
		kvw_timer_set(&x->loop->timers, &pd->timer, KVW_TIMER_LEASE,
			x->loop->now_ns + x->config->pd_lease_ms * KVW_NS_PER_MS / 4);
		return false;
	}
	count_decode(x, KVW_PD_DECODE_EXPIRED);
	pd->ended = true;
	if (moves) {
		pd->settled = true;
		kvw_attempt_excused(&x->attempt, KVW_EXCUSE_LACKS,
			"the worker that prefilled for it stands still");
		return true;
	}
	x->attempt.failure.left = true; /* not to the same decoder, as after a stale connection */
	kvw_attempt_excused(&x->attempt, KVW_EXCUSE_BUSY,
		"it has not begun on what was prefilled for it within half of the lease");
	return true;
}

void kvw_pd_attempt_ended(struct kvw_exchange *x)
{
	struct kvw_parted *pd = x->pd;
	bool reusable;

	if (pd == NULL)
		return;
	if (pd->leg != NULL)
		pd->end_leg(x);
	kvw_timer_clear(&x->loop->timers, &pd->timer);
	if (!kvw_pd_hands(x))
		return;
	reusable = !kvw_pd_uses_up(x) ||
		   (x->attempt.written == 0 && pd->leg_time == KVW_LEG_FIRST);
	drop_body(pd);
	pd->given = false;
	if (reusable && x->first_token_ns == 0) { /* another decoder can have what is there */
		pd->handed_ns = 0;
		return;
	}
	if (pd->ended)
		pd->ended = false;
	else if (x->first_token_ns == 0 && kvw_exchange_answering(x) &&
		 x->attempt.answered && x->status >= 400 && x->status < 500)
		count_decode(x, KVW_PD_DECODE_REFUSED);
	else if (x->first_token_ns == 0 && !kvw_exchange_ended(x) && !pd->settled)
		count_decode(x, KVW_PD_DECODE_REPEATED);
	else if (x->first_token_ns == 0 && x->client->state == KVW_CLIENT_LOST)
		count_decode(x, KVW_PD_DECODE_LEFT);
	drop_params(pd);
	pd->state = KVW_PD_UNPLANNED;
	pd->handed_ns = 0;
}

void kvw_pd_record(const struct kvw_parted *pd, struct kvw_request_record *record)
{
	if (pd->prefiller == NULL)
		return;
	record->prefiller_url = kvw_slice_of(pd->prefiller->url);
	record->prefill_ns = pd->prefill_ns;
	record->prefill_prompt = pd->prompt_tokens;
	record->prefill_cached = pd->cached_tokens;
}

void kvw_pd_end(struct kvw_exchange *x)
{
	if (x->pd == NULL)
		return;
	drop_params(x->pd);
	drop_copy(x);
	if (x->pd->prefiller != NULL)
		kvw_links_unhold(&x->loop->links, x->pd->prefiller);
	x->pd->prefiller = NULL;
}
