/*
 * admit_turn.c - between two turns of a loop: sends waiting requests that may go on.
 */
#include "proxy/admit_turn.h"

#include "proxy/admit.h"
#include "proxy/advance.h"
#include "proxy/forward.h"
#include "proxy/gates.h"

#define WAIT_TURN_NS  INT64_C(2000000)
#define PROGRAMS_NS   INT64_C(10000000)
#define OLDEST_NS     INT64_C(100000000)
/* limit of requests that go on in one turn, since other clients wait meanwhile */
#define MOST_AT_ONCE  256

/* The argument that kvw_gate_next passes to the judge. */
struct turn {
	struct kvw_loop *loop;
	/* a request for which no worker is left; the caller routes it again */
	struct kvw_exchange *lost;
};

static struct kvw_exchange *exchange_of(struct kvw_entrant *entrant)
{
	return (struct kvw_exchange *)((char *)entrant -
				       offsetof(struct kvw_exchange, admission.entrant));
}

static bool judge_again(void *user, struct kvw_entrant *entrant, int64_t now_ns)
{
	struct turn *turn = user;
	struct kvw_exchange *x = exchange_of(entrant);
	struct kvw_candidates set;

	(void)now_ns;
	if (kvw_request_candidates(x, &set) && kvw_admit_judge(x, &set))
		return true;
	turn->lost = x;
	return false;
}

/* Sends the next request of a gate. False: none can go on. */
static bool send_next(struct kvw_loop *loop, struct kvw_gate *gate)
{
	struct turn turn = {loop, NULL};
	struct kvw_entrant *entrant = NULL;
	enum kvw_next next = kvw_gate_next(gate, loop->now_ns, judge_again, &turn, &entrant);
	struct kvw_exchange *x = turn.lost;

	if (next != KVW_NOTHING) {
		x = exchange_of(entrant);
		kvw_wait_end(x, KVW_WAITED);
		kvw_metrics_waited(loop->metrics, loop->now_ns - entrant->wait.came_ns);
		x->admission.admitted = next == KVW_SEND;
		if (next == KVW_REFUSE)
			kvw_admit_refuse(x, entrant->refusal, entrant->retry_after_ns);
	} else if (x != NULL) {
		/* The ROUTING state decides what follows. */
		kvw_wait_end(x, KVW_WAITED_LEFT);
		x->admission.admitted = true;
	} else {
		return false;
	}
	kvw_exchange_advance(x);
	return true;
}

/* Lets the counts of offered requests fade at gates where none waits any more. */
static void fade_offers(struct kvw_loop *loop)
{
	struct kvw_gates *gates = &loop->gates;
	struct kvw_entrant *none = NULL;

	gates->faded_ns = loop->now_ns;
	for (size_t i = 0; i < gates->room; i++)
		if (gates->items[i] != NULL && kvw_gate_waiting(gates->items[i]) == 0)
			(void)kvw_gate_next(gates->items[i], loop->now_ns, NULL, NULL, &none);
	kvw_gates_shed(loop);
}

/* Finds the oldest waiting request, for its metric; a queue is not ordered by arrival. */
static void find_oldest(struct kvw_loop *loop)
{
	struct kvw_gates *gates = &loop->gates;
	int64_t came_ns = loop->now_ns;

	gates->aged_ns = loop->now_ns;
	for (size_t i = 0; i < gates->room; i++) {
		size_t count = gates->items[i] == NULL ? 0 : kvw_gate_waiting(gates->items[i]);

		for (size_t k = 0; k < count; k++)
			if (gates->items[i]->queue.items[k]->came_ns < came_ns)
				came_ns = gates->items[i]->queue.items[k]->came_ns;
	}
	kvw_metrics_oldest(loop->metrics, came_ns);
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
	kvw_admission_look(admission,
		atomic_load_explicit(&loop->fleet->count, memory_order_relaxed),
		atomic_load_explicit(&loop->fleet->live, memory_order_relaxed), loop->now_ns);
	if (loop->now_ns - gates->faded_ns >= KVW_NS_PER_S)
		fade_offers(loop);
	for (size_t i = 0; i < gates->room && gates->waiting > 0; i++) {
		size_t steps = 0;

		while (gates->items[i] != NULL && kvw_gate_waiting(gates->items[i]) > 0 &&
			steps++ < MOST_AT_ONCE && send_next(loop, gates->items[i]))
			;
	}
	if (gates->waiting > 0 && loop->now_ns - gates->aged_ns >= OLDEST_NS)
		find_oldest(loop);
}

int64_t kvw_admit_sleep_ns(const struct kvw_loop *loop)
{
	return loop->gates.waiting > 0 ? WAIT_TURN_NS : -1;
}
