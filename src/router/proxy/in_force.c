/* in_force.c - keeps the settings of a loop's requests. */
#include "proxy/in_force.h"

#include <stdlib.h>

#include "base/log.h"
#include "proxy/loop.h"
#include "proxy/step.h"

static struct kvw_in_force *make_in_force(const struct kvw_loop *loop,
	struct kvw_settings *settings, const struct kvw_config *config,
	struct kvw_strategy *strategy)
{
	struct kvw_in_force *in_force = calloc(1, sizeof(*in_force));

	if (in_force == NULL)
		return NULL;
	in_force->settings = settings;
	in_force->config = config;
	in_force->strategy = strategy;
	in_force->cuts = config->kvaware_fragments &&
			 strategy->ops->prepare == KVW_PREPARE_TOKENS &&
			 kvw_separator_make(config->kvaware_fragments_separator,
				 (uint32_t)config->kvaware_fragments_min, &in_force->separator);
	in_force->step_count = kvw_steps_needed(loop, config, in_force->steps);
	if (settings != NULL)
		kvw_settings_ref(settings);
	return in_force;
}

static void drop_in_force(struct kvw_in_force *in_force)
{
	if (in_force->settings != NULL)
		kvw_settings_unref(in_force->settings);
	free(in_force);
}

static void label_classes(struct kvw_loop *loop, struct kvw_in_force *in_force)
{
	const struct kvw_strings *classes = &in_force->config->admission_classes;

	if (!in_force->config->admission_enabled)
		return;
	if (classes->count == 0)
		in_force->class_labels[0] =
			kvw_metrics_class(loop->metrics, (struct kvw_slice){NULL, 0});
	for (size_t i = 0; i < classes->count && i < KVW_CLASSES; i++)
		in_force->class_labels[i] =
			kvw_metrics_class(loop->metrics, kvw_slice_of(classes->items[i]));
}

static void label_groups(struct kvw_loop *loop, struct kvw_in_force *in_force)
{
	for (size_t i = 0; i < in_force->config->model_group_count; i++) {
		const struct kvw_model_group *group = &in_force->config->model_groups[i];

		in_force->group_labels[i] = kvw_metrics_group(
			loop->metrics, kvw_slice_of(group->model), kvw_slice_of(group->group));
	}
}

/* Makes the loop's own copies of settings. Scans of running requests borrow from the settings of
 * those requests. */
static void adopt_settings(struct kvw_loop *loop, struct kvw_in_force *in_force)
{
	const struct kvw_config *config = in_force->config;

	label_classes(loop, in_force);
	label_groups(loop, in_force);
	loop->in_force = in_force;
	loop->config = config;
	loop->links.config = config;
	while (loop->scan_count > 0)
		kvw_scan_destroy(loop->scans[--loop->scan_count]);
	loop->scan_bytes = 0;
	kvw_account_set_most(loop->shared->memory, config->limits_body_memory);
}

/* Makes room in heads for limits.headers; older requests with a higher limit keep it. False: out of
 * memory, and nothing has changed. */
static bool grow_heads(struct kvw_loop *loop, const struct kvw_config *config)
{
	struct kvw_head request = {0}, response = {0};
	size_t fields = (size_t)config->limits_headers;

	if (fields <= loop->head_room)
		return true;
	if (kvw_head_init(&request, fields) != KVW_OK ||
		kvw_head_init(&response, fields) != KVW_OK) {
		kvw_head_finish(&request);
		kvw_head_finish(&response);
		return false;
	}
	kvw_head_finish(&loop->request_head);
	kvw_head_finish(&loop->response_head);
	loop->request_head = request;
	loop->response_head = response;
	if (loop->auth != NULL)
		kvw_head_remember_none(&loop->request_head);
	loop->head_room = fields;
	loop->head_owner = NULL; /* the owner parses its head again when needed */
	return true;
}

enum kvw_err kvw_in_force_begin(
	struct kvw_loop *loop, const struct kvw_config *config, struct kvw_strategy *strategy)
{
	struct kvw_settings *settings = atomic_load(&loop->fleet->settings);
	struct kvw_in_force *in_force = settings != NULL
		? make_in_force(loop, settings, settings->config, settings->strategy)
		: make_in_force(loop, NULL, config, strategy);

	if (in_force == NULL)
		return KVW_ENOMEM;
	if (!grow_heads(loop, in_force->config)) {
		drop_in_force(in_force);
		return KVW_ENOMEM;
	}
	adopt_settings(loop, in_force);
	return KVW_OK;
}

static void take_new(struct kvw_loop *loop, struct kvw_settings *settings)
{
	struct kvw_in_force *before = loop->in_force, *in_force;

	in_force = make_in_force(loop, settings, settings->config, settings->strategy);
	if (in_force == NULL || !grow_heads(loop, in_force->config)) {
		if (in_force != NULL)
			drop_in_force(in_force);
		return; /* out of memory: tried again in the next turn */
	}
	adopt_settings(loop, in_force);
	if (before->requests == 0) {
		drop_in_force(before);
		return;
	}
	before->next = loop->in_force_before;
	loop->in_force_before = before;
}

void kvw_in_force_look(struct kvw_loop *loop)
{
	struct kvw_settings *settings =
		atomic_load_explicit(&loop->fleet->settings, memory_order_acquire);

	if (settings != loop->in_force->settings)
		take_new(loop, settings);
}

void kvw_in_force_end(struct kvw_loop *loop)
{
	struct kvw_in_force *before;

	while ((before = loop->in_force_before) != NULL) {
		loop->in_force_before = before->next;
		drop_in_force(before);
	}
	if (loop->in_force != NULL)
		drop_in_force(loop->in_force);
	loop->in_force = NULL;
}

struct kvw_in_force *kvw_in_force_take(struct kvw_loop *loop)
{
	loop->in_force->requests++;
	return loop->in_force;
}

void kvw_in_force_release(struct kvw_loop *loop, struct kvw_in_force *in_force)
{
	struct kvw_in_force **link = &loop->in_force_before;

	if (--in_force->requests > 0 || in_force == loop->in_force)
		return;
	while (*link != in_force)
		link = &(*link)->next;
	*link = in_force->next;
	drop_in_force(in_force);
}
