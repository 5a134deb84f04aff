/*
 * gates.c - keeps the gates of a loop, and updates them when requests were sent. Calls no functions
 * of the proxy's other files.
 */
#include "proxy/gates.h"

#include <stdlib.h>
#include <string.h>

#include "proxy/exchange.h"
#include "proxy/groups.h"
#include "proxy/loop.h"

/* number of labels for groups; groups without a label of their own share one */
#define GROUP_GATES ((size_t)UINT8_MAX + 1)

/* Returns the index of the request's gate. Groups come first, by their labels in metrics; a label
 * belongs to the group's name even if a reload moves the group in the list. So a busy group delays
 * no other group's requests. */
static size_t index_of(const struct kvw_exchange *x)
{
	if (x->division.group != NULL)
		return 1 + (size_t)kvw_groups_label(x);
	return x->model == NULL ? 0 : 1 + GROUP_GATES + (size_t)x->model->index;
}

static void free_gate(struct kvw_gate **gate)
{
	if (*gate != NULL)
		kvw_gate_finish(*gate);
	free(*gate);
	*gate = NULL;
}

static struct kvw_gate *gate_of(const struct kvw_exchange *x)
{
	uint64_t serial = x->division.group == NULL && x->model != NULL ? x->model->serial : 0;
	struct kvw_loop *loop = x->loop;
	struct kvw_gates *gates = &loop->gates;
	size_t index = index_of(x);

	if (gates->costs == NULL)
		gates->costs = calloc(KVW_MAX_WORKERS, sizeof(gates->costs[0]));
	if (gates->outlooks == NULL)
		gates->outlooks = calloc(1, sizeof(*gates->outlooks));
	if (gates->costs == NULL || gates->outlooks == NULL)
		return NULL;
	if (index >= gates->room) {
		struct kvw_gate **items = realloc(gates->items, (index + 1) * sizeof(items[0]));

		if (items == NULL)
			return NULL;
		memset(items + gates->room, 0, (index + 1 - gates->room) * sizeof(items[0]));
		gates->items = items;
		gates->room = index + 1;
	}
	/* The gate belongs to a former model of this index: a request that lost its worker may
	 * still refer to it. */
	if (gates->items[index] != NULL && gates->items[index]->of != serial) {
		if (gates->items[index]->users == 0)
			free_gate(&gates->items[index]);
		else
			gates->items[index]->of = serial;
	}
	if (gates->items[index] == NULL) {
		gates->items[index] = malloc(sizeof(*gates->items[index]));
		if (gates->items[index] == NULL)
			return NULL;
		kvw_gate_init(gates->items[index], loop->shared->admission, gates->outlooks);
		gates->items[index]->of = serial;
	}
	return gates->items[index];
}

bool kvw_gates_enter(struct kvw_exchange *x)
{
	struct kvw_gate *gate = gate_of(x);

	if (gate != x->admission.gate) {
		kvw_gates_exit(x);
		if (gate != NULL)
			gate->users++;
		x->admission.gate = gate;
	}
	if (gate != NULL)
		gate->used_ns = x->loop->now_ns;
	return gate != NULL;
}

void kvw_gates_exit(struct kvw_exchange *x)
{
	if (x->admission.gate != NULL)
		x->admission.gate->users--;
	x->admission.gate = NULL;
}

void kvw_gates_shed(struct kvw_loop *loop)
{
	for (size_t i = 0; i < loop->gates.room; i++) {
		struct kvw_gate **gate = &loop->gates.items[i];

		if (*gate != NULL && (*gate)->users == 0 &&
			loop->now_ns - (*gate)->used_ns > KVW_GATES_IDLE_NS)
			free_gate(gate);
	}
}

void kvw_gates_finish(struct kvw_gates *gates)
{
	for (size_t i = 0; i < gates->room; i++)
		free_gate(&gates->items[i]);
	free(gates->items);
	free(gates->costs);
	free(gates->outlooks);
	*gates = (struct kvw_gates){0};
}

bool kvw_gates_want(const struct kvw_exchange *x)
{
	return x->config->admission_enabled && x->whole && kvw_exchange_computes(x);
}

void kvw_gates_picked(struct kvw_exchange *x)
{
	if (x->admission.gate == NULL || !kvw_gates_want(x) || !x->attempt.picked)
		return;
	x->admission.entrant.shows = x->route.stream;
	kvw_gate_passed(
		x->admission.gate, &x->admission.entrant, &x->attempt.decision, x->loop->now_ns);
}

void kvw_gates_first_token(struct kvw_exchange *x)
{
	if (x->admission.gate != NULL)
		kvw_gate_first_token(
			x->admission.gate, &x->admission.entrant, x->event_stream, x->loop->now_ns);
}

void kvw_gates_token(struct kvw_exchange *x, int64_t gap_ns)
{
	if (x->admission.gate != NULL && x->admission.entrant.stream)
		kvw_gate_token(x->admission.gate, &x->admission.entrant, gap_ns, x->loop->now_ns);
}

void kvw_gates_ended(struct kvw_exchange *x)
{
	if (x->admission.gate != NULL)
		kvw_gate_ended(x->admission.gate, &x->admission.entrant, x->loop->now_ns);
}

void kvw_gates_out(struct kvw_exchange *x)
{
	if (--x->loop->gates.waiting == 0)
		kvw_metrics_oldest(x->loop->metrics, 0);
	kvw_metrics_gauge(x->loop->metrics, KVW_GAUGE_WAITING, -1);
}

void kvw_gates_leave(struct kvw_exchange *x)
{
	kvw_gate_leave(x->admission.gate, &x->admission.entrant);
	kvw_gates_out(x);
}
