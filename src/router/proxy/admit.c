/* admit.c - decides whether a request is sent now or waits in kvway. */
#include "proxy/admit.h"

#include <stdlib.h>
#include <string.h>

#include "proxy/groups.h"
#include "proxy/guard.h"
#include "proxy/pd.h"
#include "proxy/predicted.h"
#include "proxy/reply.h"
#include "proxy/request.h"
#include "routing/choice.h"

static const struct {
	const char *code, *message;
	enum kvw_counter counter;
} refusals[KVW_REFUSED_COUNT] = {
	[KVW_REFUSED_SERVICE_LEVEL] = {"service_level",
		"the workers have too much to do: this request could not be answered within its "
		"service level",
		KVW_COUNT_REFUSED_SERVICE_LEVEL},
	[KVW_REFUSED_DEADLINE] = {"deadline",
		"the workers have too much to do: this request has waited for as long as it may",
		KVW_COUNT_REFUSED_DEADLINE},
	[KVW_REFUSED_QUEUE_FULL] = {"queue_full",
		"the workers have too much to do, and no further request may wait",
		KVW_COUNT_REFUSED_QUEUE_FULL},
};

void kvw_admit_refuse(struct kvw_exchange *x, enum kvw_refused why, int64_t retry_after_ns)
{
	int64_t seconds = (retry_after_ns + INT64_C(999999999)) / INT64_C(1000000000);
	char fields[64];

	(void)snprintf(
		fields, sizeof(fields), "retry-after: %d\r\n", (int)(seconds > 0 ? seconds : 1));
	kvw_metrics_refused(x->loop->metrics,
		x->in_force->class_labels[x->admission.entrant.wait.class], refusals[why].counter);
	kvw_reply_error_code(
		x, 429, "overloaded", refusals[why].code, fields, refusals[why].message);
}

/* --- a request --- */

uint8_t kvw_admit_class(struct kvw_exchange *x)
{
	struct kvw_slice name = {NULL, 0};

	if (x->config->admission_classes.count == 0)
		return 0;
	if (x->config->admission_class_header[0] != '\0' && kvw_guard_trusts(x))
		name = kvw_request_field(x, kvw_slice_of(x->config->admission_class_header));
	if (name.len == 0 && x->caller.key != NULL)
		name = kvw_slice_of(x->caller.key->class);
	return (uint8_t)kvw_config_class(x->config, name);
}

/* Returns the promise to the request, by the model's name as the client wrote it. */
static struct kvw_promise promise_of(const struct kvw_exchange *x, size_t class_index)
{
	struct kvw_service_level_ms ms;

	struct kvw_slice model = kvw_groups_model(x);

	kvw_config_promise(x->config, model.data, model.len, class_index, &ms);
	return (struct kvw_promise){ms.ttft * KVW_NS_PER_MS, ms.ttft_per_1k_tokens * KVW_NS_PER_MS,
		ms.tpot * KVW_NS_PER_MS};
}

struct kvw_promise kvw_admit_promise(struct kvw_exchange *x)
{
	return x->admission.entered ? x->admission.entrant.promise
				    : promise_of(x, kvw_admit_class(x));
}

/* Returns the hash of the program that the request names; 0: it names none. The hash depends on the
 * client's key, so that no client joins another client's program. */
static uint64_t program_of(struct kvw_exchange *x)
{
	const struct kvw_strings *names = &x->config->admission_program_headers;

	for (size_t i = 0; i < names->count; i++) {
		struct kvw_slice value = kvw_request_field(x, kvw_slice_of(names->items[i]));

		if (value.len > 0)
			return kvw_program_of_key(kvw_program_named(value),
				kvw_slice_of(x->caller.key == NULL ? NULL : x->caller.key->name));
	}
	return 0;
}

int64_t kvw_admit_deadline_ns(struct kvw_exchange *x)
{
	int64_t after_ns = kvw_admission_deadline_ns(
		kvw_request_field(x, KVW_SLICE("x-kvway-deadline-ms")));

	return after_ns > 0 ? x->start_ns + after_ns : 0;
}

bool kvw_admit_impatient(struct kvw_exchange *x)
{
	return kvw_slice_equal(
		kvw_request_field(x, KVW_SLICE("x-kvway-do-not-queue")), KVW_SLICE("1"));
}

void kvw_admit_enter(struct kvw_exchange *x)
{
	struct kvw_admission *admission = x->loop->shared->admission;
	struct kvw_entrant *e = &x->admission.entrant;

	if (x->admission.entered || !kvw_gates_want(x))
		return;
	x->admission.entered = true;
	e->wait.came_ns = x->loop->now_ns;
	e->wait.class = kvw_admit_class(x);
	e->promise = promise_of(x, e->wait.class);
	e->wait.value = 1;
	e->tokens = kvw_request_tokens(&x->route);
	e->deadline_ns = kvw_admit_deadline_ns(x);
	if (admission->programs != NULL)
		e->turn = kvw_programs_find(admission->programs, &x->route, program_of(x));
}

/* Asks the strategy and notes its choice. False: no worker is usable. */
bool kvw_admit_judge(struct kvw_exchange *x, const struct kvw_candidates *set)
{
	struct kvw_loop *loop = x->loop;
	struct kvw_decision wish;

	if (set->count == 0 || x->strategy->ops->explain(x->strategy, &x->route, set, loop->now_ns,
				       loop->gates.costs, &wish) != KVW_OK)
		return false;
	kvw_pd_price(x, set, &wish, loop->gates.costs);
	x->admission.wish = wish.reason;
	x->admission.wished = wish.worker_id;
	x->admission.knowledge = wish.knowledge;
	return kvw_gate_judge(x->admission.gate, &x->admission.entrant, set, loop->gates.costs,
		&wish, loop->now_ns);
}

struct kvw_gate_terms kvw_admit_terms(const struct kvw_exchange *x)
{
	return (struct kvw_gate_terms){
		.max_wait_ns = x->config->admission_max_wait_ms * KVW_NS_PER_MS,
		.ahead_ns = x->config->admission_worker_queue_ms * KVW_NS_PER_MS,
	};
}

/* Takes a request out of its gate, unless sending or refusing it has done so already. */
static void leave_gate(struct kvw_exchange *x, enum kvw_waited how)
{
	if (how == KVW_WAITED)
		kvw_gates_out(x);
	else
		kvw_gates_leave(x);
}

static const struct kvw_wait_kind room = {
	.name = "room",
	.text = "room at a worker",
	.ended = leave_gate,
};

static enum kvw_admitted wait_or_refuse(struct kvw_exchange *x)
{
	struct kvw_loop *loop = x->loop;

	kvw_predicted_held(x);
	if (kvw_admit_impatient(x) ||
		kvw_gate_is_full(kvw_gate_waiting(x->admission.gate), loop->fleet->loops,
			(uint64_t)x->config->admission_max_queue) ||
		kvw_gate_wait(x->admission.gate, &x->admission.entrant, loop->now_ns) != KVW_OK) {
		kvw_admit_refuse(
			x, KVW_REFUSED_QUEUE_FULL, kvw_gate_retry_after_ns(x->admission.gate));
		return KVW_ADMIT_NOT_NOW;
	}
	if (loop->gates.waiting++ == 0)
		kvw_metrics_oldest(loop->metrics, x->admission.entrant.wait.came_ns);
	kvw_metrics_gauge(loop->metrics, KVW_GAUGE_WAITING, 1);
	kvw_metrics_add(loop->metrics, KVW_COUNT_WAITED, 1);
	kvw_wait_begin(x, &room, 0);
	kvw_trace_limit(x->trace, loop->now_ns,
		x->admission.entrant.wait.came_ns + x->admission.gate->terms.max_wait_ns);
	return KVW_ADMIT_NOT_NOW;
}

enum kvw_admitted kvw_admit(struct kvw_exchange *x, const struct kvw_candidates *set)
{
	if (!kvw_gates_want(x))
		return KVW_ADMIT_ANY;
	if (x->admission.admitted) {
		x->admission.admitted = false;
		return KVW_ADMIT_ONE;
	}
	if (!kvw_gates_enter(x))
		return KVW_ADMIT_ANY;
	kvw_admit_enter(x);
	x->admission.gate->terms = kvw_admit_terms(x);
	if ((x->tried.attempts > 0 && !x->tried.full) ||
		(kvw_gate_waiting(x->admission.gate) == 0 &&
			kvw_gate_open(
				x->admission.gate, &x->admission.entrant, set, x->loop->now_ns)))
		return KVW_ADMIT_ANY;
	if (!kvw_admit_judge(x, set))
		return KVW_ADMIT_ANY;
	if (kvw_gate_waiting(x->admission.gate) == 0 && x->admission.entrant.wait_ns == 0)
		return KVW_ADMIT_ONE;
	return wait_or_refuse(x);
}
