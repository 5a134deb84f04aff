/*
 * session.c - keeps a session on its worker.
 *
 * A new session goes to the worker with the highest rendezvous score among those whose load is
 * within the bound (consistent hashing with bounded loads, Mirrokni et al., arXiv 1608.01350): a
 * worker may have at most ceil(bound * mean) requests in flight, counting the new one. So when the
 * fleet changes, only sessions of the changed worker are placed again, and a hot worker passes new
 * sessions on to each session's own next choice. A worker with a limited share has that share of
 * the bound, and its scores are lowered so that it is the first choice of that share of sessions.
 *
 * A table stores each session's worker. The load bound is for new sessions only, and a worker that
 * comes back (or joins) attracts new sessions, never those placed elsewhere by now. Only a session
 * whose worker cannot serve it is moved, once. The table forgets sessions unused for the TTL, and
 * the least recently used beyond its size; a forgotten session is placed by its hash again.
 *
 * Requests for another model are another session, because other workers may serve it, and so are
 * those of another tenant: no client can find or move another's session.
 */
#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "routing/choice.h"
#include "routing/session_table.h"
#include "routing/strategies.h"

#define NS_PER_MS   UINT64_C(1000000)
#define PLACE_TRIES 4 /* attempts to place a session that other loops place at the same time */

enum { TTL, TABLE, LOAD_BOUND, SETTINGS };         /* own settings */
enum { HOME, PLACED, MOVED, NO_SESSION, REASONS }; /* own reasons */

struct session {
	struct kvw_strategy base;
	struct kvw_prefill_model model;
	struct kvw_session_table *table;
	_Atomic double load_bound; /* a relaxed atomic, since the option may change */
	uint64_t seed;
	/* counter from which requests without a session take their salt */
	_Alignas(64) _Atomic uint64_t turn;
};

static uint64_t ttl_ns_of(const struct kvw_strategy_options *options)
{
	return (uint64_t)options->own[TTL].integer * NS_PER_MS;
}

/* Takes all options but the table's. */
static void take_options(struct session *s, const struct kvw_strategy_options *options)
{
	double bound = options->own[LOAD_BOUND].ratio;

	atomic_store_explicit(&s->load_bound, bound >= 1 ? bound : 1, memory_order_relaxed);
	kvw_prefill_model_set(&s->model, options);
}

static enum kvw_err session_create(
	const struct kvw_strategy_options *options, struct kvw_strategy **out)
{
	struct session *s = aligned_alloc(64, sizeof(*s));

	if (s == NULL)
		return KVW_ENOMEM;
	memset(s, 0, sizeof(*s));
	s->base.ops = &kvw_session_ops;
	s->seed = options->seed;
	take_options(s, options);
	if (kvw_session_table_create((uint32_t)options->own[TABLE].integer, ttl_ns_of(options),
		    &s->table) != KVW_OK) {
		free(s);
		return KVW_ENOMEM;
	}
	*out = &s->base;
	return KVW_OK;
}

static void session_reconfigure(
	struct kvw_strategy *self, const struct kvw_strategy_options *options)
{
	struct session *s = (struct session *)self;

	take_options(s, options);
	kvw_session_table_set_ttl(s->table, ttl_ns_of(options));
}

/* Returns a session's key in the table, made with a secret seed, so that clients cannot choose
 * colliding keys. */
static uint64_t table_key(const struct session *s, const struct kvw_route_request *request)
{
	uint64_t model = XXH3_64bits_withSeed(
		request->model.data, request->model.len, s->seed ^ request->tenant);

	return XXH3_64bits_withSeed(request->session.data, request->session.len, model);
}

/* Returns the key that decides where a session is placed, made without a seed, so that all replicas
 * of the router agree. */
static uint64_t place_key(const struct kvw_route_request *request)
{
	uint64_t model =
		XXH3_64bits_withSeed(request->model.data, request->model.len, request->tenant);

	return XXH3_64bits_withSeed(request->session.data, request->session.len, model);
}

/* Returns the bound on requests in flight, the new one included, up to which a worker of a full
 * share takes a new session. */
static double load_limit(const struct session *s, const struct kvw_candidates *set)
{
	double bound = atomic_load_explicit(&s->load_bound, memory_order_relaxed);
	bool limited = false;
	double shares = kvw_share_sum(set, &limited);
	uint64_t total = 1;

	for (size_t i = 0; i < set->count; i++)
		if (set->items[i].usable)
			total += kvw_load_inflight(set->items[i].load);
	return bound * (double)total / (shares > 0 ? shares : 1);
}

/* Returns the first choice by hash within the bound. *passed_on: a worker with a higher score was
 * over its bound. */
static size_t place_by_hash(
	const struct session *s, const struct kvw_candidates *set, uint64_t key, bool *passed_on)
{
	double full_limit = load_limit(s, set);
	size_t favourite = set->count; /* worker with the highest score, whatever its load */
	size_t best = set->count;
	uint64_t favourite_score = 0;
	uint64_t best_score = 0;

	for (size_t i = 0; i < set->count; i++) {
		const struct kvw_candidate *c = &set->items[i];
		uint64_t score = kvw_rendezvous(key, c->key);
		double limit = full_limit;

		if (!c->usable)
			continue;
		if (c->share < 1) {
			score = kvw_limit_score(score, c->share);
			limit *= c->share;
		}
		if (favourite == set->count || score > favourite_score) {
			favourite = i;
			favourite_score = score;
		}
		if (kvw_load_inflight(c->load) >= ceil(limit))
			continue;
		if (best == set->count || score > best_score) {
			best = i;
			best_score = score;
		}
	}
	/* Loads change meanwhile, so that all workers may seem to be over the bound. */
	if (best == set->count)
		best = favourite;
	*passed_on = best != favourite;
	return best;
}

/* Returns the position of a usable worker; set->count: it is missing or not usable. */
static size_t position_of(const struct kvw_candidates *set, uint32_t id)
{
	size_t pos = kvw_place_from(set, id);

	return pos < set->count && set->items[pos].id == id && set->items[pos].usable ? pos
										      : set->count;
}

/* Finds or places the session's worker. At least one candidate must be usable. */
static size_t settle_session(struct session *s, const struct kvw_route_request *request,
	const struct kvw_candidates *set, int64_t now_ns, enum kvw_reason *reason)
{
	uint64_t key = table_key(s, request);
	uint32_t home = kvw_session_table_use(s->table, key, now_ns);
	size_t pos = position_of(set, home);
	bool passed_on = false;

	*reason = KVW_OWN_REASON(session, HOME);
	for (unsigned i = 0; i < PLACE_TRIES && pos == set->count; i++) {
		uint32_t old = home;
		size_t choice = place_by_hash(s, set, place_key(request), &passed_on);

		*reason = old == KVW_NO_WORKER && !passed_on ? KVW_OWN_REASON(session, PLACED)
							     : KVW_OWN_REASON(session, MOVED);
		home = kvw_session_table_place(s->table, key, old, set->items[choice].id, now_ns);
		if (home != set->items[choice].id)
			/* another loop has placed the session first */
			*reason = KVW_OWN_REASON(session, HOME);
		pos = position_of(set, home);
	}
	return pos < set->count ? pos : place_by_hash(s, set, place_key(request), &passed_on);
}

/* Returns the worker that settle_session would choose, without placing the session. */
static size_t look_up_session(struct session *s, const struct kvw_route_request *request,
	const struct kvw_candidates *set, int64_t now_ns, enum kvw_reason *reason)
{
	uint32_t home = kvw_session_table_look(s->table, table_key(s, request), now_ns);
	size_t pos = position_of(set, home);
	bool passed_on = false;

	*reason = KVW_OWN_REASON(session, HOME);
	if (pos < set->count)
		return pos;
	pos = place_by_hash(s, set, place_key(request), &passed_on);
	*reason = home == KVW_NO_WORKER && !passed_on ? KVW_OWN_REASON(session, PLACED)
						      : KVW_OWN_REASON(session, MOVED);
	return pos;
}

static struct kvw_decision decision_for(const struct session *s,
	const struct kvw_route_request *request, const struct kvw_candidates *set, size_t pos,
	enum kvw_reason reason, int64_t now_ns)
{
	return (struct kvw_decision){
		.pos = pos,
		.reason = reason,
		.prompt_tokens = kvw_request_tokens(request),
		.prefill_ns = kvw_request_prefill_ns(&s->model, request),
		.queue_ns = kvw_load_queue_ns(set->items[pos].load, now_ns),
		.inflight = kvw_load_inflight(set->items[pos].load),
		.worker_id = set->items[pos].id,
	};
}

static enum kvw_err session_pick(struct kvw_strategy *self, const struct kvw_route_request *request,
	const struct kvw_candidates *set, int64_t now_ns, struct kvw_decision *out)
{
	struct session *s = (struct session *)self;
	enum kvw_reason reason = KVW_OWN_REASON(session, NO_SESSION);
	size_t pos = 0;

	if (kvw_usable_count(set) == 0)
		return KVW_ENOWORKER;
	assert(set->count <= KVW_MAX_WORKERS);
	if (request->session.len > 0)
		pos = settle_session(s, request, set, now_ns, &reason);
	else
		pos = kvw_choose_by_load(&s->model, set, now_ns,
			atomic_fetch_add_explicit(&s->turn, 1, memory_order_relaxed));
	*out = decision_for(s, request, set, pos, reason, now_ns);
	return KVW_OK;
}

static enum kvw_err session_explain(struct kvw_strategy *self,
	const struct kvw_route_request *request, const struct kvw_candidates *set, int64_t now_ns,
	struct kvw_cost *costs, struct kvw_decision *out)
{
	struct session *s = (struct session *)self;
	enum kvw_reason reason = KVW_OWN_REASON(session, NO_SESSION);
	size_t pos = 0;

	if (kvw_usable_count(set) == 0)
		return KVW_ENOWORKER;
	if (request->session.len > 0)
		pos = look_up_session(s, request, set, now_ns, &reason);
	else
		pos = kvw_choose_by_load(&s->model, set, now_ns,
			atomic_load_explicit(&s->turn, memory_order_relaxed));
	kvw_explain_unweighed(&s->model, request, set, now_ns, pos, costs);
	*out = decision_for(s, request, set, pos, reason, now_ns);
	return KVW_OK;
}

static void session_left(struct kvw_strategy *self, uint32_t worker_id)
{
	kvw_session_table_forget(((struct session *)self)->table, worker_id);
}

static void session_stats(struct kvw_strategy *self, struct kvw_strategy_stats *out)
{
	struct session *s = (struct session *)self;

	*out = (struct kvw_strategy_stats){.sessions = kvw_session_table_count(s->table)};
}

static void session_destroy(struct kvw_strategy *self)
{
	struct session *s = (struct session *)self;

	if (s == NULL)
		return;
	kvw_session_table_destroy(s->table);
	free(s);
}

/* --- over a restart --- */

/* The record with the seed of all keys of sessions. */
struct places_record {
	uint64_t seed;
};

struct session_record {
	uint64_t key;
	int64_t age_ns; /* time since the session's last use */
	uint32_t worker;
	uint32_t unused;
};

_Static_assert(sizeof(struct session_record) == 24, "records have no gaps");

static enum kvw_err keep_session(void *arg, uint64_t key, uint32_t worker, int64_t used_ns)
{
	const struct kvw_keep_out *out = arg;
	const struct session_record record = {
		.key = key, .age_ns = out->now_ns - used_ns, .worker = worker};

	return out->put(out->arg, KVW_KEPT_SESSION, &record, sizeof(record));
}

static enum kvw_err session_keep(struct kvw_strategy *self, const struct kvw_keep_out *out)
{
	struct session *s = (struct session *)self;
	const struct places_record head = {s->seed};
	enum kvw_err err = out->put(out->arg, KVW_KEPT_PLACES, &head, sizeof(head));

	return err != KVW_OK ? err : kvw_session_table_each(s->table, keep_session, (void *)out);
}

static int compare_ages(const void *a, const void *b)
{
	int64_t age = ((const struct session_record *)a)->age_ns;
	int64_t other = ((const struct session_record *)b)->age_ns;

	return (age < other) - (age > other);
}

/* Reads a session. Its worker is KVW_KEPT_GONE if another worker has its slot, and the session must
 * be left out. */
static struct session_record read_session(
	const struct kvw_keep_in *in, const uint8_t *bytes, size_t len)
{
	struct session_record record = {.worker = KVW_KEPT_GONE};

	if (len != sizeof(record))
		return record;
	memcpy(&record, bytes, sizeof(record));
	record.worker =
		record.worker < KVW_MAX_WORKERS ? in->workers[record.worker] : KVW_KEPT_GONE;
	if (record.age_ns < 0)
		record.age_ns = 0;
	if (record.age_ns > in->now_ns - in->passed_ns)
		record.worker = KVW_KEPT_GONE; /* older than the clock's range */
	return record;
}

/* Adds the sessions oldest first, so that the table forgets them in the right order. */
static void session_recall(struct kvw_strategy *self, const struct kvw_keep_in *in)
{
	struct session *s = (struct session *)self;
	uint32_t room = kvw_session_table_capacity(s->table), count = 0;
	struct session_record *sessions = malloc(room * sizeof(sessions[0]));
	const uint8_t *bytes;
	enum kvw_keep_kind kind;
	size_t len;

	while (sessions != NULL && in->next(in->arg, &kind, &bytes, &len)) {
		if (kind == KVW_KEPT_PLACES && len == sizeof(s->seed))
			memcpy(&s->seed, bytes, len);
		if (kind != KVW_KEPT_SESSION || count == room)
			continue;
		sessions[count] = read_session(in, bytes, len);
		count += sessions[count].worker < KVW_MAX_WORKERS;
	}
	if (count > 0)
		qsort(sessions, count, sizeof(sessions[0]), compare_ages);
	for (uint32_t i = 0; i < count; i++)
		kvw_session_table_recall(s->table, sessions[i].key, sessions[i].worker,
			in->now_ns - in->passed_ns - sessions[i].age_ns);
	free(sessions);
}

static const struct kvw_own_setting settings[] = {
	[TTL] = {"ttl", KVW_SETTING_DURATION, "1h", "1s", "720h", true,
		"kvway forgets a session that is unused for this long."},
	[TABLE] = {"table", KVW_SETTING_INT, "100000", "16", "100000000", false,
		"Most sessions remembered; the least recently used are forgotten first."},
	[LOAD_BOUND] = {"load_bound", KVW_SETTING_RATIO, "1.25", "1", "100", true,
		"A new session skips workers with more than this times the mean of requests in "
		"flight."},
	[SETTINGS] = {.name = NULL},
};

static const struct kvw_reason_text reasons[] = {
	[HOME] = {"session", "it is the worker of this session"},
	[PLACED] = {"session_new", "the session is new and its name leads there"},
	[MOVED] = {"session_moved", "the worker of this session is gone or has too much to do"},
	[NO_SESSION] = {"no_session", "the request names no session, and it has least to do"},
	[REASONS] = {.name = NULL},
};

const struct kvw_strategy_ops kvw_session_ops = {
	.name = "session",
	.help = "a session (header, cookie or body field) stays with its worker",
	.settings = settings,
	.reasons = reasons,
	.prepare = KVW_PREPARE_CONTENT,
	.create = session_create,
	.pick = session_pick,
	.explain = session_explain,
	.reconfigure = session_reconfigure,
	.left = session_left,
	.keep = session_keep,
	.recall = session_recall,
	.stats = session_stats,
	.destroy = session_destroy,
};
