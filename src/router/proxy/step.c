/* step.c - see step.h. */
#include "proxy/step.h"

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

bool kvw_steps_walk(struct kvw_exchange *x, struct kvw_way *way)
{
	const struct kvw_in_force *in_force = x->in_force;
	bool chosen = false;

	kvw_trace_model(x->trace, x->route.model);
	for (size_t i = 0; i < in_force->step_count; i++) {
		const struct kvw_step *step = in_force->steps[i];
		enum kvw_stepped stepped;

		if (chosen && step->chooses)
			continue;
		stepped = step->run(x, way);
		if (stepped != KVW_STEP_ON)
			kvw_trace_step(x->trace, x->loop->now_ns, step->name, stepped);
		if (stepped == KVW_STEP_CHOSEN)
			chosen = true;
		else if (stepped != KVW_STEP_ON)
			return false;
	}
	return true;
}
