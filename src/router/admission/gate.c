/* gate.c - the requests of one model that wait in one event loop. */
#include "admission/gate_inside.h"

#include <math.h>
#include <string.h>

#define LOOKS             64 /* limit of requests that one call of kvw_gate_next judges again */
#define PLAN_NS           INT64_C(2000000)     /* least time between two plans of the queue */
#define PLAN_EACH_NS      INT64_C(2000) /* further time between two plans, per waiting request */
/* with fewer waiting requests the queue is planned at each new one */
#define PLAN_AT_ONCE      1000
#define TELL_NS           INT64_C(1000000000)  /* time between two reports of an empty gate */
#define TELL_LEAST        1e6 /* offered work (ns per s) below this is reported as 0 */
/* a request with a promise goes to a worker with less work than this before it */
#define PROMPT_AHEAD_NS   INT64_C(200000000)
/* overdue requests are sent for this long, then refused, ... */
#define LATE_NS           INT64_C(1000000000)
/* ... until no request has been overdue for this long */
#define LATE_OVER_NS      INT64_C(2000000000)
/* while streams are late, a prompt may take this many token times of prefill */
#define SHORT_TOKENS      3
#define TOKEN_NS          1e8 /* a token's time where no time per token is promised */
/* a request that cannot keep its promise may wait until this times its own time */
#define PATIENT           1.5
#define HEAVY_NS          5e9 /* prefill that delays a worker's streams noticeably */
#define HEAVY_WEIGHT      0.6
/* cost of an answer whose first token comes after its service level's time */
#define TOO_LATE_NS       1e15
/* part of a prompt's prefill that is added for each foreign stream that it delays */
#define FOREIGN_WEIGHT    0.07
/* a program comes back almost surely if this share of its turns had a next one */
#define SURE              0.8
#define LEARN             (1 / 128.0) /* weight of a new request in the mean work of a request */
#define WAKE_NS           INT64_C(5000000)
#define RETRY_LEAST_NS    INT64_C(1000000000)
#define RETRY_MOST_NS     INT64_C(60000000000)

void kvw_gate_init(
	struct kvw_gate *gate, struct kvw_admission *admission, struct kvw_outlooks *outlooks)
{
	memset(gate, 0, sizeof(*gate));
	gate->admission = admission;
	gate->outlooks = outlooks;
	gate->lag = 1;
	gate->more_ns = SAFE_NS;
	kvw_price_init(&gate->price);
}

/* Publishes this gate's waiting work to the other gates. first: work of the most important
 * class. */
static void tell_waiting(struct kvw_gate *gate, int64_t by_ns, bool first)
{
	gate->told_waiting_ns += by_ns;
	atomic_fetch_add_explicit(&gate->admission->waiting_ns, by_ns, memory_order_relaxed);
	if (!first)
		return;
	gate->told_first_ns += by_ns;
	atomic_fetch_add_explicit(&gate->admission->first_waiting_ns, by_ns, memory_order_relaxed);
}

static bool is_first(const struct kvw_waiter *w)
{
	return w->class == 0 && !w->aged;
}

static void show_value(_Atomic float *shown, double value)
{
	atomic_store_explicit(shown, (float)value, memory_order_relaxed);
}

static void tell_offered(struct kvw_gate *gate, int64_t now_ns)
{
	double per_s = 1e9 * kvw_price_offered(&gate->price, now_ns);
	int64_t offered = per_s < TELL_LEAST ? 0 : (int64_t)per_s;

	atomic_fetch_add_explicit(&gate->admission->offered_per_s, offered - gate->told_offered,
		memory_order_relaxed);
	gate->told_offered = offered;
	gate->told_ns = now_ns;
	show_value(&gate->admission->mean_ns, gate->mean_ns);
	show_value(&gate->admission->lag, gate->lag);
}

void kvw_gate_finish(struct kvw_gate *gate)
{
	if (gate->admission == NULL)
		return;
	tell_waiting(gate, -gate->told_first_ns, true);
	tell_waiting(gate, -gate->told_waiting_ns, false);
	atomic_fetch_sub_explicit(
		&gate->admission->offered_per_s, gate->told_offered, memory_order_relaxed);
	gate->told_offered = 0;
	kvw_queue_finish(&gate->queue);
}

/* Streams that are behind their promise keep new prompts out, but not a short prompt that would
 * otherwise break its own promise. Returns how much prefill counts as short. */
static double short_of(const struct kvw_entrant *e, int64_t now_ns)
{
	if (!e->wait.promised || !e->wait.waits ||
		e->wait.start_ns - now_ns >= e->wait.first_ns / 4)
		return 0;
	return SHORT_TOKENS * (e->promise.tpot_ns > 0 ? (double)e->promise.tpot_ns : TOKEN_NS);
}

/* Returns the time that a worker's queue will really take. */
static int64_t queue_of(const struct kvw_gate *gate, const struct kvw_candidate *c, int64_t now_ns)
{
	double rate = kvw_admission_rate(gate->admission);
	int64_t predicted = (int64_t)((double)kvw_load_queue_ns(c->load, now_ns) / rate);

	return longer(predicted, kvw_pace_undone_ns(&gate->admission->paces[c->id], rate, now_ns));
}

/* Returns the time until a worker can take this prompt. foreign_ns: its work for foreign
 * requests. */
static int64_t wait_of(const struct kvw_gate *gate, const struct kvw_candidate *c,
	int64_t foreign_ns, int64_t ahead_ns, int64_t now_ns)
{
	int64_t wait = kvw_pace_wait_ns(&gate->admission->paces[c->id], queue_of(gate, c, now_ns),
		ahead_ns - foreign_ns, now_ns);

	return longer(wait, foreign_ns - ahead_ns);
}

static bool is_promised(const struct kvw_entrant *e)
{
	return e->promise.ttft_ns > 0 || e->promise.ttft_per_1k_ns > 0;
}

/* Returns how much work a worker may have before it gets this request. */
static int64_t ahead_of(const struct kvw_gate *gate, const struct kvw_entrant *e)
{
	return is_promised(e) ? PROMPT_AHEAD_NS : gate->terms.ahead_ns;
}

bool kvw_gate_open(struct kvw_gate *gate, const struct kvw_entrant *e,
	const struct kvw_candidates *set, int64_t now_ns)
{
	int64_t ahead_ns = ahead_of(gate, e);

	if (now_ns < gate->open_until_ns && ahead_ns >= gate->open_ahead_ns)
		return true;
	for (size_t i = 0; i < set->count; i++)
		if (set->items[i].usable &&
			wait_of(gate, &set->items[i],
				kvw_load_before_ns(set->items[i].load, e->wait.came_ns, now_ns),
				ahead_ns, now_ns) > 0)
			return false;
	gate->open_ahead_ns = ahead_ns;
	gate->open_until_ns = now_ns + KVW_OPEN_NS;
	return true;
}

static bool is_idle(const struct kvw_gate *gate, uint32_t worker, int64_t now_ns)
{
	return !kvw_pace_busy(&gate->admission->paces[worker], now_ns);
}

/* Returns whether the strategy would pass over this worker. */
static bool is_barred(const struct kvw_cost *cost)
{
	return cost->verdict == KVW_VERDICT_UNUSABLE || cost->verdict == KVW_VERDICT_BOUND ||
	       cost->verdict == KVW_VERDICT_SLOW_START;
}

/* Cost of a long prompt for the streams of a worker. The strategy's cost counts kvway's own
 * streams; this adds foreign ones, at the same weight. */
static double hold_up_ns(const struct kvw_cost *cost, uint32_t foreign)
{
	double heavy = cost->prefill_ns < HEAVY_NS ? cost->prefill_ns / HEAVY_NS : 1;
	double weight = HEAVY_WEIGHT * heavy * heavy * heavy;

	return weight * cost->prefill_ns * cost->inflight +
	       (weight + FOREIGN_WEIGHT) * cost->prefill_ns * foreign;
}

/* The epoch changes with time and rate; then workers are examined again. */
static uint64_t epoch_of(struct kvw_gate *gate, int64_t now_ns)
{
	double rate = kvw_admission_rate(gate->admission);
	struct kvw_outlooks *outlooks = gate->outlooks;

	if (outlooks->epoch == 0 || outlooks->seen_ns != now_ns || outlooks->seen_rate != rate)
		outlooks->epoch++;
	outlooks->seen_ns = now_ns;
	outlooks->seen_rate = rate;
	return outlooks->epoch;
}

static struct kvw_outlook *look_at_worker(
	struct kvw_gate *gate, const struct kvw_candidate *c, int64_t now_ns)
{
	struct kvw_outlook *o = &gate->outlooks->workers[c->id];

	o->epoch = gate->outlooks->epoch;
	o->queue_ns = queue_of(gate, c, now_ns);
	o->pace = kvw_pace_see(&gate->admission->paces[c->id], now_ns);
	o->foreign = kvw_load_before_ns(c->load, now_ns, now_ns) > 0;
	o->foreign_running = kvw_load_foreign_running(c->load);
	return o;
}

/* Time that a worker's foreign requests take before this request, or until its engine has room. */
static inline int64_t foreign_of(const struct kvw_outlook *o, const struct kvw_candidate *c,
	const struct kvw_entrant *e, int64_t now_ns)
{
	return o->foreign ? kvw_load_before_ns(c->load, e->wait.came_ns, now_ns) : 0;
}

/* Time until the worker can take this prompt; 0: now. A prompt with less work than short_ns is
 * taken even if the worker's streams are late. */
static inline int64_t wait_seen(const struct kvw_outlook *o, int64_t foreign_ns, double work_ns,
	int64_t ahead_ns, double short_ns)
{
	int64_t left_ns = ahead_ns - foreign_ns;
	int64_t wait = work_ns < short_ns
			       ? o->queue_ns - left_ns
			       : kvw_pace_seen_wait_ns(&o->pace, o->queue_ns, left_ns);

	return longer(longer(wait, -left_ns), 0);
}

/* Returns when the request's first token is due; INT64_MAX: no promise. */
static int64_t first_due_of(const struct kvw_entrant *e)
{
	return is_promised(e) ? e->wait.came_ns + kvw_promise_first_ns(&e->promise, e->tokens)
			      : INT64_MAX;
}

/* Chooses the worker of the lowest cost, including the time until that worker can take a prompt.
 * While the workers have spare time, any worker where the promise will be kept is better than any
 * where it will not, however many streams the prompt delays there. Also sums up numbers over all
 * workers; with a thousand workers this loop is the main cost of admission. */
static size_t place_of(struct kvw_gate *gate, struct kvw_entrant *e,
	const struct kvw_candidates *set, const struct kvw_cost *costs,
	const struct kvw_decision *wish, int64_t now_ns)
{
	int64_t ahead_ns = ahead_of(gate, e);
	double short_ns = short_of(e, now_ns);
	int64_t due_ns = e->wait.late == KVW_LATE_NEVER ? INT64_MAX : first_due_of(e);
	bool weighed = costs[wish->pos].total_ns > 0;
	double best = INFINITY;
	size_t pos = wish->pos;
	size_t usable = 0, open = 0, idle = 0, foreign = 0, full = 0;
	int64_t ahead_sum_ns = 0;
	double whole_ns = 0;
	uint64_t held = 0;
	uint64_t epoch = epoch_of(gate, now_ns);

	for (size_t i = 0; i < set->count; i++) {
		const struct kvw_candidate *c = &set->items[i];
		const struct kvw_outlook *o = &gate->outlooks->workers[c->id];
		double cost = 0;
		int64_t wait = 0;
		int64_t foreign_ns = 0;
		uint64_t hit = 0;

		if (costs[i].verdict == KVW_VERDICT_UNUSABLE)
			continue;
		if (o->epoch != epoch)
			o = look_at_worker(gate, c, now_ns);
		foreign_ns = foreign_of(o, c, e, now_ns);
		wait = wait_seen(o, foreign_ns, costs[i].prefill_ns, ahead_ns, short_ns);
		usable++;
		open += wait == 0;
		idle += !o->pace.busy && foreign_ns == 0;
		foreign += foreign_ns > ahead_ns;
		full += foreign_ns >= KVW_LOAD_FULL_NS;
		ahead_sum_ns +=
			foreign_ns < KVW_LOAD_FULL_NS ? wait : longer(o->queue_ns - ahead_ns, 0);
		whole_ns = costs[i].prefill_ns > whole_ns ? costs[i].prefill_ns : whole_ns;
		hit = hit_of(costs[i].hit_tokens);
		held = hit > held ? hit : held;
		/* The strategy's cost counts predicted work; this adds the worker's delay beyond
		 * the prediction. */
		cost = costs[i].total_ns +
		       fmax(0, (double)longer(wait, o->queue_ns) - costs[i].queue_ns);
		if (!weighed || cost >= best || (i != wish->pos && is_barred(&costs[i])))
			continue;
		cost += hold_up_ns(&costs[i], o->foreign_running);
		if ((double)(due_ns - now_ns - longer(wait, o->queue_ns)) <
			gate->lag * costs[i].prefill_ns)
			cost += TOO_LATE_NS;
		if (cost < best) {
			best = cost;
			pos = i;
		}
	}
	gate->usable = usable;
	gate->any_open = open > 0;
	gate->any_idle = idle > 0;
	gate->all_foreign = foreign == usable;
	gate->all_full = full == set->count;
	gate->ahead_sum_ns = (double)ahead_sum_ns;
	e->whole_ns = whole_ns;
	e->held_tokens = held;
	/* Other loops send requests, too, so that this worker's state is read again. */
	if (costs[pos].verdict != KVW_VERDICT_UNUSABLE) {
		const struct kvw_candidate *c = &set->items[pos];
		const struct kvw_outlook *o = look_at_worker(gate, c, now_ns);

		e->queue_ns = o->queue_ns;
		e->wait_ns = wait_seen(
			o, foreign_of(o, c, e, now_ns), costs[pos].prefill_ns, ahead_ns, short_ns);
	}
	return pos;
}

/* Value of the request, in units of a usual request; it includes the context of its program, if the
 * program would come back. */
static double value_of(const struct kvw_gate *gate, const struct kvw_entrant *e)
{
	struct kvw_programs_stats programs;

	if (e->turn.turns == 0 || gate->admission->programs == NULL || gate->mean_ns <= 0)
		return 1;
	kvw_programs_stats(gate->admission->programs, &programs);
	return 1 + programs.returning * e->whole_ns / gate->mean_ns;
}

static bool late_for_long(const struct kvw_gate *gate, int64_t now_ns)
{
	return now_ns - gate->late_ns <= LATE_OVER_NS &&
	       gate->late_ns - gate->late_since_ns > LATE_NS;
}

/* Returns whether the waiting work of the most important class takes longer than this request's
 * promise. The workers' busy time shows that only seconds later, the prices only after a minute of
 * offered work. */
static bool is_crowd(const struct kvw_gate *gate, const struct kvw_entrant *e)
{
	int64_t waiting =
		atomic_load_explicit(&gate->admission->first_waiting_ns, memory_order_relaxed) +
		atomic_load_explicit(
			&gate->admission->peers_first_waiting_ns, memory_order_relaxed);
	double rate =
		kvw_admission_rate(gate->admission) * (double)(gate->usable > 0 ? gate->usable : 1);

	if (e->wait.waits)
		waiting -= e->wait.work_ns;
	return (double)waiting > rate * (double)kvw_promise_first_ns(&e->promise, e->tokens);
}

/* While the workers have spare time, no other request gains by a refusal (except one of a more
 * important class), and a program that is almost sure to come back loses more by a refusal than by
 * one late turn. A series of overdue requests shows overload sooner than the workers' busy time
 * does. */
static enum kvw_late lateness(
	const struct kvw_gate *gate, const struct kvw_entrant *e, int64_t now_ns)
{
	struct kvw_programs_stats programs = {0};

	if (e->turn.turns > 0 && gate->admission->programs != NULL)
		kvw_programs_stats(gate->admission->programs, &programs);
	if (programs.returning >= SURE)
		return KVW_LATE_IN_TURN;
	if (e->wait.class > 0 || gate->all_foreign || kvw_admission_full(gate->admission) ||
		late_for_long(gate, now_ns) || is_crowd(gate, e) ||
		isfinite(gate->price.limit[KVW_CLASSES - 1]) || isfinite(gate->price.limit[0]))
		return KVW_LATE_NEVER;
	return KVW_LATE_SENT;
}

/* Sets how long a request may wait. */
static void set_limits(struct kvw_gate *gate, struct kvw_entrant *e, int64_t now_ns)
{
	struct kvw_waiter *w = &e->wait;
	int64_t work_ns = (int64_t)(gate->lag * (double)w->work_ns);
	int64_t idle_ns = work_ns + SAFE_NS; /* the request's time on an idle worker */
	int64_t need_ns = 0;

	w->until_ns = gate->terms.max_wait_ns < INT64_MAX - w->came_ns
			      ? w->came_ns + gate->terms.max_wait_ns : INT64_MAX;
	if (e->deadline_ns > 0 && e->deadline_ns < w->until_ns)
		w->until_ns = e->deadline_ns;
	w->promised = is_promised(e);
	w->first_ns = INT64_MAX;
	w->start_ns = w->until_ns;
	w->late = lateness(gate, e, now_ns);
	if (!w->promised)
		return;
	w->first_ns = kvw_promise_first_ns(&e->promise, e->tokens);
	if (w->first_ns < idle_ns)
		w->first_ns = (int64_t)(PATIENT * (double)idle_ns);
	/* At least half of its time remains for waiting, however late first tokens have been. */
	need_ns = work_ns + (int64_t)fmin(gate->more_ns, fmax(SAFE_NS, (double)w->first_ns / 2));
	if (w->came_ns + w->first_ns - need_ns < w->start_ns)
		w->start_ns = w->came_ns + w->first_ns - need_ns;
	/* A request that can just keep its promise keeps half of the safety margin. */
	if (w->start_ns < w->came_ns + SAFE_NS / 2 && w->until_ns > w->came_ns + SAFE_NS / 2)
		w->start_ns = w->came_ns + SAFE_NS / 2;
}

/* Returns when the request's wait ends. */
static int64_t due_of(const struct kvw_waiter *w)
{
	return w->late == KVW_LATE_IN_TURN ? w->until_ns : w->start_ns;
}

static void note_due(struct kvw_gate *gate, const struct kvw_waiter *w)
{
	if (due_of(w) < gate->due_ns)
		gate->due_ns = due_of(w);
}

bool kvw_gate_judge(struct kvw_gate *gate, struct kvw_entrant *e, const struct kvw_candidates *set,
	const struct kvw_cost *costs, const struct kvw_decision *wish, int64_t now_ns)
{
	struct kvw_waiter *w = &e->wait;
	int64_t work_ns = w->work_ns;

	w->promised = is_promised(e);
	e->pos = place_of(gate, e, set, costs, wish, now_ns);
	w->worker = set->items[e->pos].id;
	w->work_ns = (int64_t)costs[e->pos].prefill_ns;
	w->value = value_of(gate, e);
	set_limits(gate, e, now_ns);
	if (w->waits) {
		tell_waiting(gate, w->work_ns - work_ns, is_first(w));
		note_due(gate, w);
	}
	return gate->usable > 0;
}

void kvw_gate_offer(struct kvw_gate *gate, struct kvw_entrant *e, int64_t now_ns)
{
	if (e->offered)
		return;
	e->offered = true;
	gate->mean_ns +=
		((double)e->wait.work_ns - gate->mean_ns) * (gate->mean_ns == 0 ? 1 : LEARN);
	kvw_price_offer(&gate->price, &e->wait, now_ns);
	if (now_ns - gate->told_ns >= PLAN_NS)
		tell_offered(gate, now_ns);
}

/* Returns the time that the workers need for what waits at the gates of this model, in all loops
 * and routers. Other loops and routers are taken to have as much of this model as of all. */
static double waiting_before_ns(const struct kvw_gate *gate, uint64_t loops)
{
	double all = (double)atomic_load_explicit(
		&gate->admission->waiting_ns, memory_order_relaxed);
	double peers = (double)atomic_load_explicit(
		&gate->admission->peers_waiting_ns, memory_order_relaxed);
	double waiting = (double)gate->told_waiting_ns * (double)loops;

	return waiting * (all > 0 ? 1 + peers / all : 1) /
	       (kvw_admission_rate(gate->admission) *
		       (double)(gate->usable > 0 ? gate->usable : 1));
}

struct kvw_scale_prediction kvw_gate_predict(const struct kvw_gate *gate,
	const struct kvw_entrant *e, uint64_t loops, int64_t now_ns)
{
	double wait_ns = (double)e->wait_ns + waiting_before_ns(gate, loops);
	double most_ns = (double)(e->wait.until_ns - now_ns);

	return (struct kvw_scale_prediction){{
		[KVW_SCALE_WAIT] = (int64_t)fmin(wait_ns, most_ns),
		[KVW_SCALE_QUEUE] = longer(e->queue_ns - e->wait_ns, 0),
		[KVW_SCALE_PREFILL] = (int64_t)(gate->lag * (double)e->wait.work_ns),
	}};
}

enum kvw_err kvw_gate_wait(struct kvw_gate *gate, struct kvw_entrant *e, int64_t now_ns)
{
	if (kvw_queue_add(&gate->queue, &e->wait) != KVW_OK)
		return KVW_ENOMEM;
	tell_waiting(gate, e->wait.work_ns, is_first(&e->wait));
	kvw_gate_offer(gate, e, now_ns);
	note_due(gate, &e->wait);
	if (gate->queue.count < PLAN_AT_ONCE)
		gate->planned_ns = 0;
	return KVW_OK;
}

void kvw_gate_leave(struct kvw_gate *gate, struct kvw_entrant *e)
{
	if (!e->wait.waits)
		return;
	kvw_queue_remove(&gate->queue, &e->wait);
	tell_waiting(gate, -e->wait.work_ns, is_first(&e->wait));
	e->wait.class += e->wait.aged;
	e->wait.aged = false;
}

/* Returns this gate's share of the total of waiting, or of offered, work. */
static double part(int64_t mine, const _Atomic int64_t *all, const _Atomic int64_t *peers)
{
	int64_t sum = atomic_load_explicit(all, memory_order_relaxed) +
		      atomic_load_explicit(peers, memory_order_relaxed);

	return sum <= mine || mine <= 0 ? 1 : (double)mine / (double)sum;
}

/* The program is new, or its context has been evicted. */
bool kvw_gate_crowds(const struct kvw_gate *gate, const struct kvw_entrant *e)
{
	struct kvw_programs_stats programs;
	bool begins = e->turn.turns == 0;

	if (e->turn.key == 0 || gate->admission->programs == NULL ||
		!kvw_admission_full(gate->admission) ||
		(!begins && e->held_tokens * 2 >= e->turn.context))
		return false;
	kvw_programs_stats(gate->admission->programs, &programs);
	/* A single program evicts no other's context. */
	if (programs.running <= (begins ? 0 : 1))
		return false;
	return (double)programs.context + (begins ? (double)e->tokens : 0) > programs.limit;
}

/* Prevents starvation: a request that has waited for long counts as one class better. */
static void age(struct kvw_gate *gate, int64_t now_ns)
{
	for (size_t i = 0; i < gate->queue.count; i++) {
		struct kvw_waiter *w = gate->queue.items[i];

		if (w->aged || w->class == 0 || now_ns - w->came_ns <= gate->terms.max_wait_ns / 2)
			continue;
		w->aged = true;
		/* The request moves forward in the queue, before requests that this loop has
		 * examined. */
		kvw_queue_promote(&gate->queue, w);
	}
}

static void plan(struct kvw_gate *gate, int64_t now_ns)
{
	double each = kvw_admission_rate(gate->admission);
	double rate = each * (double)(gate->usable > 0 ? gate->usable : 1);
	double waiting_part = part(gate->told_waiting_ns, &gate->admission->waiting_ns,
		&gate->admission->peers_waiting_ns);
	int64_t pause_ns = (int64_t)gate->queue.count * PLAN_EACH_NS;

	if (now_ns - gate->planned_ns < (pause_ns > PLAN_NS ? pause_ns : PLAN_NS))
		return;
	gate->planned_ns = now_ns;
	age(gate, now_ns);
	tell_offered(gate, now_ns);
	kvw_price_limits(&gate->price,
		rate * part(gate->told_offered, &gate->admission->offered_per_s,
			       &gate->admission->peers_offered_per_s),
		now_ns);
	for (size_t class = 0; class < KVW_CLASSES; class++)
		show_value(&gate->admission->limits[class], gate->price.limit[class]);
	atomic_store_explicit(&gate->admission->planned_ns, now_ns, memory_order_relaxed);
	kvw_queue_plan(&gate->queue, now_ns, rate * waiting_part,
		gate->ahead_sum_ns * each * waiting_part);
}

int64_t kvw_gate_retry_after_ns(const struct kvw_gate *gate)
{
	double rate =
		kvw_admission_rate(gate->admission) * (double)(gate->usable > 0 ? gate->usable : 1);
	double waiting =
		(double)(atomic_load_explicit(&gate->admission->waiting_ns, memory_order_relaxed) +
			 atomic_load_explicit(
				 &gate->admission->peers_waiting_ns, memory_order_relaxed));
	int64_t after = (int64_t)(waiting / rate);

	return after < RETRY_LEAST_NS  ? RETRY_LEAST_NS
	       : after > RETRY_MOST_NS ? RETRY_MOST_NS
				       : after;
}

static void note_late(struct kvw_gate *gate, int64_t now_ns)
{
	if (now_ns - gate->late_ns > LATE_OVER_NS)
		gate->late_since_ns = now_ns;
	gate->late_ns = now_ns;
}

/* A request whose wait is over. */
static struct kvw_entrant *overdue(struct kvw_gate *gate, int64_t now_ns)
{
	int64_t first_ns = INT64_MAX;

	if (now_ns < gate->due_ns)
		return NULL;
	for (size_t i = 0; i < gate->queue.count; i++) {
		struct kvw_entrant *e = (struct kvw_entrant *)gate->queue.items[i];
		int64_t due_ns = due_of(&e->wait);

		if (now_ns >= due_ns) {
			e->refusal = now_ns >= e->wait.until_ns ? KVW_REFUSED_DEADLINE
							        : KVW_REFUSED_SERVICE_LEVEL;
			return e;
		}
		first_ns = due_ns < first_ns ? due_ns : first_ns;
	}
	gate->due_ns = first_ns;
	return NULL;
}

/* Ranks of waiting requests, the best first: KEPT (by the last plan), GIVEN_UP (by the last plan),
 * NO_ROOM (more important classes should fill the workers, but a worker is idle), TOO_DEAR (may not
 * go). */
enum rank { KEPT, GIVEN_UP, NO_ROOM, TOO_DEAR };

static enum rank rank_of(const struct kvw_gate *gate, const struct kvw_waiter *w)
{
	if (w->promised && kvw_price_too_high(&gate->price, w))
		return gate->price.limit[w->class] > 0 ? TOO_DEAR : NO_ROOM;
	return w->given_up ? GIVEN_UP : KEPT;
}

/* Returns whether a request of this rank could be sent, by the workers' states at the last
 * judgement. */
static bool has_worker(const struct kvw_gate *gate, enum rank rank)
{
	if (rank == GIVEN_UP)
		return gate->queue.given_up > 0;
	return rank == KEPT || (gate->any_idle && gate->price.limit[KVW_CLASSES - 1] <= 0);
}

/* Finds a request of this rank that can be sent now. */
static struct kvw_entrant *ready(struct kvw_gate *gate, enum rank rank, int64_t now_ns,
	kvw_gate_judge_fn *judge, void *user)
{
	size_t looked = 0;
	size_t i = 0;

	while (i < gate->queue.count && looked < LOOKS && has_worker(gate, rank)) {
		struct kvw_entrant *e = (struct kvw_entrant *)gate->queue.items[i];

		if (rank_of(gate, &e->wait) != rank || kvw_gate_crowds(gate, e)) {
			i++;
			continue;
		}
		looked++;
		if (judge(user, e, now_ns) && e->wait_ns == 0 &&
			(rank != NO_ROOM || is_idle(gate, e->wait.worker, now_ns)))
			return e;
		if (gate->all_full)
			return NULL;
		/* If the judged request moved back in the queue, another request is at this index
		 * now. */
		i += gate->queue.items[i] == &e->wait ||
		     kvw_waiter_before(&e->wait, gate->queue.items[i]);
	}
	return NULL;
}

enum kvw_next kvw_gate_next(struct kvw_gate *gate, int64_t now_ns, kvw_gate_judge_fn *judge,
	void *user, struct kvw_entrant **out)
{
	struct kvw_entrant *e = NULL;

	if (gate->queue.count == 0) {
		if (now_ns - gate->told_ns >= TELL_NS && gate->told_offered != 0)
			tell_offered(gate, now_ns);
		return KVW_NOTHING;
	}
	e = overdue(gate, now_ns);
	if (e != NULL && is_first(&e->wait) && e->refusal == KVW_REFUSED_SERVICE_LEVEL)
		note_late(gate, now_ns);
	if (e != NULL && (!e->wait.promised || kvw_gate_sends_late(e, now_ns)) &&
		judge(user, e, now_ns)) {
		if (kvw_gate_sends_late(e, now_ns)) {
			kvw_gate_leave(gate, e);
			*out = e;
			return KVW_SEND;
		}
		/* By the new judgement the request still has time. */
		if (now_ns < due_of(&e->wait))
			e = NULL;
	}
	if (e != NULL) {
		e->retry_after_ns =
			kvw_gate_crowds(gate, e) ? KVW_CROWDED_NS : kvw_gate_retry_after_ns(gate);
		kvw_gate_leave(gate, e);
		*out = e;
		atomic_fetch_add_explicit(&gate->admission->refused, 1, memory_order_relaxed);
		return KVW_REFUSE;
	}
	plan(gate, now_ns);
	/* Without a judgement the workers' states are unknown, and any of them may take a
	 * prompt. */
	gate->any_open = true;
	gate->any_idle = true;
	for (enum rank rank = KEPT; e == NULL && rank <= NO_ROOM; rank++)
		if (rank != GIVEN_UP || gate->any_open)
			e = ready(gate, rank, now_ns, judge, user);
	if (e == NULL)
		return KVW_NOTHING;
	kvw_gate_leave(gate, e);
	*out = e;
	return KVW_SEND;
}

int64_t kvw_gate_wake_ns(const struct kvw_gate *gate, int64_t now_ns)
{
	if (gate->queue.count > 0)
		return now_ns + WAKE_NS;
	return gate->told_offered != 0 ? now_ns + TELL_NS : INT64_MAX;
}
