/* step.c - the steps of a request, from the scan of its body until it is sent to a worker. */
#include "proxy/step.h"

#include "admin/explanation.h"
#include "proxy/in_force.h"

static const struct kvw_step *const steps[] = {
#define KVW_STEP(name) &kvw_step_##name,
#include "proxy/steps.def"
#undef KVW_STEP
};

size_t kvw_steps_needed(const struct kvw_loop *loop, const struct kvw_config *config,
	const struct kvw_step *list[KVW_STEPS])
{
	size_t count = 0;

	for (size_t i = 0; i < KVW_STEPS; i++)
		if (steps[i]->needed == NULL || steps[i]->needed(loop, config))
			list[count++] = steps[i];
	return count;
}

const char *kvw_stepped_name(enum kvw_stepped stepped)
{
	static const char *const names[] = {
		[KVW_STEP_ON] = "goes on",
		[KVW_STEP_CHOSEN] = "chosen",
		[KVW_STEP_WAITS] = "waits",
		[KVW_STEP_ANSWERED] = "answered",
		[KVW_STEP_AGAIN] = "again",
	};

	return names[stepped];
}

/* Runs the step's dry function and notes its result. */
static enum kvw_stepped run_dry(
	struct kvw_exchange *x, const struct kvw_step *step, struct kvw_way *way)
{
	struct kvw_explanation *e = x->dry;
	enum kvw_stepped stepped;

	if (step->acts)
		return KVW_STEP_ON;
	if (e->step_count < KVW_EXPLAINED_STEPS)
		e->steps[e->step_count].why[0] = '\0';
	stepped = (step->dry != NULL ? step->dry : step->run)(x, way);
	if (e->step_count < KVW_EXPLAINED_STEPS) {
		e->steps[e->step_count].name = step->name;
		e->steps[e->step_count++].verdict = kvw_stepped_name(stepped);
	}
	return stepped;
}

/* Returns the step with which the walk begins: the first one, or if the request has waited after
 * its lease was taken, the step in which it waited. */
static size_t first_step(const struct kvw_exchange *x)
{
	size_t i = 0;

	if (x->response_state != KVW_RESPONSE_WAITING)
		return 0;
	while (i < x->in_force->step_count && x->in_force->steps[i] != &kvw_step_prefill)
		i++;
	return i;
}

bool kvw_steps_walk(struct kvw_exchange *x, struct kvw_way *way)
{
	const struct kvw_in_force *in_force = x->in_force;
	bool chosen = false;

	kvw_trace_model(x->trace, x->route.model);
	for (size_t i = first_step(x); i < in_force->step_count; i++) {
		const struct kvw_step *step = in_force->steps[i];
		enum kvw_stepped stepped;

		if (chosen && step->chooses)
			continue;
		stepped = x->dry == NULL ? step->run(x, way) : run_dry(x, step, way);
		if (stepped != KVW_STEP_ON)
			kvw_trace_step(x->trace, x->loop->now_ns, step->name, stepped);
		if (stepped == KVW_STEP_CHOSEN)
			chosen = true;
		else if (stepped != KVW_STEP_ON)
			return false;
	}
	return true;
}
