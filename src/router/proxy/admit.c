/* admit.c - see admit.h. */
#include "proxy/admit.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "proxy/advance.h"
#include "proxy/forward.h"
#include "proxy/prepare.h"
#include "proxy/reply.h"
#include "proxy/request.h"
#include "proxy/understand.h"
#include "routing/choice.h"

#define WAIT_TURN_NS  INT64_C(2000000)
#define PROGRAMS_NS   INT64_C(10000000)
#define MOST_AT_ONCE  256 /* let go on in one turn: other clients wait meanwhile */

static const struct {
	const char *code, *message;
	enum kvw_counter counter;
} refusals[KVW_REFUSED_COUNT] = {
	[KVW_REFUSED_SERVICE_LEVEL] = {"service_level",
		"the workers have too much to do: this request could not be answered within its service level",
		KVW_COUNT_REFUSED_SERVICE_LEVEL},
	[KVW_REFUSED_DEADLINE] = {"deadline",
		"the workers have too much to do: this request has waited for as long as it may",
		KVW_COUNT_REFUSED_DEADLINE},
	[KVW_REFUSED_QUEUE_FULL] = {"queue_full",
		"the workers have too much to do, and no further request may wait",
		KVW_COUNT_REFUSED_QUEUE_FULL},
};

static void refuse(struct kvw_exchange *x, enum kvw_refused why, int64_t retry_after_ns)
{
	int64_t seconds = (retry_after_ns + INT64_C(999999999)) / INT64_C(1000000000);
	char fields[64];

	(void)snprintf(fields, sizeof(fields), "retry-after: %d\r\n", (int)(seconds > 0 ? seconds : 1));
	kvw_metrics_add(x->loop->metrics, refusals[why].counter, 1);
	kvw_reply_error_code(x, 429, "overloaded", refusals[why].code, fields, refusals[why].message);
}

/* --- gates --- */

/* NULL: no memory. */
static struct kvw_gate *gate_of(struct kvw_loop *loop, const struct kvw_model *model)
{
	struct kvw_gates *gates = &loop->gates;
	size_t index = model == NULL ? 0 : (size_t)model->index + 1;

	if (gates->costs == NULL)
		gates->costs = calloc(KVW_MAX_WORKERS, sizeof(gates->costs[0]));
	if (gates->costs == NULL)
		return NULL;
	if (index >= gates->room) {
		struct kvw_gate **items = realloc(gates->items, (index + 1) * sizeof(items[0]));

		if (items == NULL)
			return NULL;
		memset(items + gates->room, 0, (index + 1 - gates->room) * sizeof(items[0]));
		gates->items = items;
		gates->room = index + 1;
	}
	if (gates->items[index] == NULL) {
		gates->items[index] = malloc(sizeof(*gates->items[index]));
		if (gates->items[index] != NULL)
			kvw_gate_init(gates->items[index], loop->shared->admission);
	}
	return gates->items[index];
}

void kvw_admit_finish(struct kvw_gates *gates)
{
	for (size_t i = 0; i < gates->room; i++) {
		if (gates->items[i] != NULL)
			kvw_gate_finish(gates->items[i]);
		free(gates->items[i]);
	}
	free(gates->items);
	free(gates->costs);
	*gates = (struct kvw_gates){0};
}

/* --- a request --- */

/* Value of the first of these header fields that the request has. */
static struct kvw_slice field_of(struct kvw_exchange *x, const char *name)
{
	const struct kvw_field *field = NULL;

	if (kvw_request_own_head(x))
		field = kvw_head_find(&x->loop->request_head, kvw_slice_of(name));
	return field == NULL ? (struct kvw_slice){NULL, 0} : field->value;
}

static uint8_t class_of(struct kvw_exchange *x)
{
	const struct kvw_strings *classes = &x->config->admission_classes;
	struct kvw_slice name = {NULL, 0};

	if (classes->count == 0)
		return 0;
	if (x->config->admission_class_header[0] != '\0')
		name = field_of(x, x->config->admission_class_header);
	for (size_t i = 0; i < classes->count && name.len > 0; i++)
		if (kvw_slice_equal_nocase(name, kvw_slice_of(classes->items[i])))
			return (uint8_t)i;
	return (uint8_t)(classes->count - 1);
}

/* Hash of the program that the request names; 0: it names none. */
static uint64_t program_of(struct kvw_exchange *x)
{
	const struct kvw_strings *names = &x->config->admission_program_headers;

	for (size_t i = 0; i < names->count; i++) {
		struct kvw_slice value = field_of(x, names->items[i]);

		if (value.len > 0)
			return XXH3_64bits(value.data, value.len) | 1;
	}
	return 0;
}

/* x-kvway-deadline-ms: of no use later than so long after it came. 0: it has none, or it is not a number. */
static int64_t deadline_of(struct kvw_exchange *x)
{
	struct kvw_slice value = field_of(x, "x-kvway-deadline-ms");
	int64_t ms = 0;

	if (value.len == 0 || value.len > 9)
		return 0;
	for (size_t i = 0; i < value.len; i++) {
		if (value.data[i] < '0' || value.data[i] > '9')
			return 0;
		ms = ms * 10 + (value.data[i] - '0');
	}
	return x->start_ns + ms * KVW_NS_PER_MS + (ms == 0);
}

static void enter(struct kvw_exchange *x)
{
	struct kvw_admission *admission = x->loop->shared->admission;
	struct kvw_entrant *e = &x->entrant;

	x->entered = true;
	e->promise = (struct kvw_promise){
		x->config->service_ttft_ms * KVW_NS_PER_MS,
		x->config->service_ttft_per_1k_ms * KVW_NS_PER_MS,
		x->config->service_tpot_ms * KVW_NS_PER_MS,
	};
	e->wait.came_ns = x->loop->now_ns;
	e->wait.class = class_of(x);
	e->wait.value = 1;
	e->tokens = kvw_request_tokens(&x->route);
	e->deadline_ns = deadline_of(x);
	if (admission->programs != NULL)
		e->turn = kvw_programs_find(admission->programs, &x->route, program_of(x));
}

static bool wants_gate(const struct kvw_exchange *x)
{
	return x->config->admission_enabled && x->whole && kvw_exchange_computes(x);
}

/* Asks the strategy, and chooses by that. False: there is no usable worker. */
static bool judge(struct kvw_exchange *x, const struct kvw_candidates *set)
{
	struct kvw_loop *loop = x->loop;
	struct kvw_decision wish;

	if (set->count == 0 || x->strategy->ops->explain(x->strategy, &x->route, set, loop->now_ns,
				       loop->gates.costs, &wish) != KVW_OK)
		return false;
	x->wish = wish.reason;
	x->wished = wish.worker_id;
	return kvw_gate_judge(x->gate, &x->entrant, set, loop->gates.costs, &wish, loop->now_ns);
}

static void set_terms(struct kvw_exchange *x)
{
	x->gate->terms = (struct kvw_gate_terms){
		.max_wait_ns = x->config->admission_max_wait_ms * KVW_NS_PER_MS,
		.ahead_ns = x->config->admission_worker_queue_ms * KVW_NS_PER_MS,
	};
}

static enum kvw_admitted wait_or_refuse(struct kvw_exchange *x)
{
	struct kvw_loop *loop = x->loop;
	bool impatient = kvw_slice_equal(field_of(x, "x-kvway-do-not-queue"), KVW_SLICE("1"));

	if (impatient ||
		kvw_gate_waiting(x->gate) * loop->fleet->loops >= (uint64_t)x->config->admission_max_queue ||
		kvw_gate_wait(x->gate, &x->entrant, loop->now_ns) != KVW_OK) {
		refuse(x, KVW_REFUSED_QUEUE_FULL, kvw_gate_retry_after_ns(x->gate));
		return KVW_ADMIT_NOT_NOW;
	}
	loop->gates.waiting++;
	kvw_metrics_gauge(loop->metrics, KVW_GAUGE_WAITING, 1);
	kvw_metrics_add(loop->metrics, KVW_COUNT_WAITED, 1);
	kvw_exchange_request_state(x, KVW_REQUEST_QUEUED);
	return KVW_ADMIT_NOT_NOW;
}

enum kvw_admitted kvw_admit(struct kvw_exchange *x, const struct kvw_candidates *set)
{
	if (!wants_gate(x))
		return KVW_ADMIT_ANY;
	if (x->admitted) {
		x->admitted = false;
		return KVW_ADMIT_ONE;
	}
	x->gate = gate_of(x->loop, x->model);
	if (x->gate == NULL)
		return KVW_ADMIT_ANY;
	if (!x->entered)
		enter(x);
	set_terms(x);
	if (x->attempts > 0 || (kvw_gate_waiting(x->gate) == 0 && kvw_gate_open(x->gate, set, x->loop->now_ns)))
		return KVW_ADMIT_ANY;
	if (!judge(x, set))
		return KVW_ADMIT_ANY;
	if (kvw_gate_waiting(x->gate) == 0 && x->entrant.wait_ns == 0)
		return KVW_ADMIT_ONE;
	return wait_or_refuse(x);
}

void kvw_admit_picked(struct kvw_exchange *x)
{
	if (x->gate != NULL && wants_gate(x) && x->attempt.picked)
		kvw_gate_passed(x->gate, &x->entrant, &x->attempt.decision, x->loop->now_ns);
}

void kvw_admit_first_token(struct kvw_exchange *x)
{
	if (x->gate != NULL)
		kvw_gate_first_token(x->gate, &x->entrant, x->event_stream, x->loop->now_ns);
}

void kvw_admit_token(struct kvw_exchange *x, int64_t gap_ns)
{
	if (x->gate != NULL && x->entrant.stream)
		kvw_gate_token(x->gate, &x->entrant, gap_ns, x->loop->now_ns);
}

void kvw_admit_ended(struct kvw_exchange *x)
{
	if (x->gate != NULL)
		kvw_gate_ended(x->gate, &x->entrant, x->loop->now_ns);
}

/* It is out of its gate, whoever took it out. */
static void waits_no_longer(struct kvw_exchange *x)
{
	x->loop->gates.waiting--;
	kvw_metrics_gauge(x->loop->metrics, KVW_GAUGE_WAITING, -1);
	kvw_exchange_request_state(x, KVW_REQUEST_ROUTING);
}

void kvw_admit_leave(struct kvw_exchange *x)
{
	kvw_gate_leave(x->gate, &x->entrant);
	waits_no_longer(x);
}

/* --- turns --- */

/* What kvw_gate_next hands to the judge. */
struct turn {
	struct kvw_loop *loop;
	struct kvw_exchange *lost; /* for which there is no worker any more */
};

static struct kvw_exchange *exchange_of(struct kvw_entrant *entrant)
{
	return (struct kvw_exchange *)((char *)entrant - offsetof(struct kvw_exchange, entrant));
}

static bool judge_again(void *user, struct kvw_entrant *entrant, int64_t now_ns)
{
	struct turn *turn = user;
	struct kvw_exchange *x = exchange_of(entrant);
	struct kvw_candidates set;

	(void)now_ns;
	if (kvw_request_candidates(x, &set) && judge(x, &set))
		return true;
	turn->lost = x;
	return false;
}

/* False: nothing can go on. */
static bool go_on(struct kvw_loop *loop, struct kvw_gate *gate)
{
	struct turn turn = {loop, NULL};
	struct kvw_entrant *entrant = NULL;
	enum kvw_next next = kvw_gate_next(gate, loop->now_ns, judge_again, &turn, &entrant);
	struct kvw_exchange *x = turn.lost;

	if (next != KVW_NOTHING) {
		x = exchange_of(entrant);
		waits_no_longer(x);
		kvw_metrics_waited(loop->metrics, loop->now_ns - entrant->wait.came_ns);
		x->admitted = next == KVW_SEND;
		if (next == KVW_REFUSE)
			refuse(x, entrant->refusal, entrant->retry_after_ns);
	} else if (x != NULL) {
		/* Routing says what becomes of it. */
		kvw_admit_leave(x);
		x->admitted = true;
	} else {
		return false;
	}
	kvw_exchange_advance(x);
	return true;
}

/* What was offered at gates where nothing waits any more counts less and less. */
static void fade(struct kvw_loop *loop)
{
	struct kvw_gates *gates = &loop->gates;
	struct kvw_entrant *none = NULL;

	gates->faded_ns = loop->now_ns;
	for (size_t i = 0; i < gates->room; i++)
		if (gates->items[i] != NULL && kvw_gate_waiting(gates->items[i]) == 0)
			(void)kvw_gate_next(gates->items[i], loop->now_ns, NULL, NULL, &none);
}

void kvw_admit_turn(struct kvw_loop *loop)
{
	struct kvw_admission *admission = loop->shared->admission;
	struct kvw_gates *gates = &loop->gates;

	if (admission == NULL || loop->now_ns - gates->turned_ns < WAIT_TURN_NS)
		return;
	gates->turned_ns = loop->now_ns;
	if (admission->programs != NULL && loop->now_ns - gates->counted_ns >= PROGRAMS_NS) {
		gates->counted_ns = loop->now_ns;
		kvw_programs_look(
			admission->programs, kvw_admission_full(admission), loop->now_ns);
	}
	kvw_admission_look(admission, atomic_load_explicit(&loop->fleet->count, memory_order_relaxed),
		loop->now_ns);
	if (loop->now_ns - gates->faded_ns >= KVW_NS_PER_S)
		fade(loop);
	for (size_t i = 0; i < gates->room && gates->waiting > 0; i++) {
		size_t steps = 0;

		while (gates->items[i] != NULL && kvw_gate_waiting(gates->items[i]) > 0 &&
			steps++ < MOST_AT_ONCE && go_on(loop, gates->items[i]))
			;
	}
}

int64_t kvw_admit_sleep_ns(const struct kvw_loop *loop)
{
	return loop->gates.waiting > 0 ? WAIT_TURN_NS : -1;
}
