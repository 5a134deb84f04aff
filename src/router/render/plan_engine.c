/*
 * plan_engine.c - reads the workers' arguments and variables.
 */
#include "render/plan_engine.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "render/plan_model.h"

/* The plan being made. */
struct maker {
	const struct kvw_manifest *manifest;
	struct kvw_report *mistakes;
	struct kvw_plan *plan;
};

static bool field_given(const struct maker *m, enum kvw_field_id id)
{
	return m->manifest->nodes[id] != NULL;
}

static void mistake(struct maker *m, enum kvw_field_id id, const char *text)
{
	kvw_report_mistake(
		m->mistakes, m->manifest->nodes[id]->place, kvw_fields[id].path, "%s", text);
}

/* Returns vLLM's short form of a flag, which has one dash; NULL: kvway needs none. */
static const char *short_form(const char *name)
{
	return strcmp(name, "tensor-parallel-size") == 0     ? "tp"
	       : strcmp(name, "pipeline-parallel-size") == 0 ? "pp"
							     : NULL;
}

static bool flag_of(const struct kvw_node *args, const char *name, const char **value)
{
	if (args == NULL)
		return false;
	for (const struct kvw_node *node = args->first; node != NULL; node = node->next) {
		const char *text = node->text, *form;
		size_t i = 0;

		if (node->kind != KVW_NODE_SCALAR || text[0] != '-')
			continue;
		form = text[1] == '-' ? name : short_form(name);
		if (form == NULL)
			continue;
		text += text[1] == '-' ? 2 : 1;
		while (form[i] != '\0' &&
			(text[i] == form[i] || (form[i] == '-' && text[i] == '_')))
			i++;
		if (form[i] != '\0' || (text[i] != '\0' && text[i] != '='))
			continue;
		if (value != NULL)
			*value = text[i] == '=' ? text + i + 1
				 : node->next != NULL && node->next->kind == KVW_NODE_SCALAR
					 ? node->next->text
					 : "";
		return true;
	}
	return false;
}

/* A pool's arguments stand last, and vLLM takes the last flag of a name. */
bool kvw_plan_flag(const struct kvw_plan *plan, const char *name, const char **value)
{
	return (plan->pool != NULL &&
		       flag_of(plan->manifest->nodes[plan->pool->args], name, value)) ||
	       flag_of(plan->args, name, value);
}

const struct kvw_node *kvw_plan_env(const struct kvw_plan *plan, const char *name)
{
	for (const struct kvw_node *node = plan->env != NULL ? plan->env->first : NULL;
		node != NULL; node = node->next) {
		const struct kvw_node *its = kvw_manifest_member(node, "name");

		if (its != NULL && its->kind == KVW_NODE_SCALAR && strcmp(its->text, name) == 0)
			return node;
	}
	return NULL;
}

const char *kvw_plan_env_text(const struct kvw_plan *plan, const char *name)
{
	const struct kvw_node *value = kvw_manifest_member(kvw_plan_env(plan, name), "value");

	return value != NULL && value->text[0] != '\0' ? value->text : NULL;
}

void kvw_plan_env_report(
	const struct kvw_plan *plan, const char *name, struct kvw_report *report, const char *text)
{
	const struct kvw_node *entry = kvw_plan_env(plan, name);
	enum kvw_field_id id = plan->manifest->kind == KVW_KIND_JUMPSTART ? KVW_F_jsEnv : KVW_F_env;
	char path[128];
	size_t index = 0;

	for (const struct kvw_node *node = plan->env->first; node != entry; node = node->next)
		index++;
	snprintf(path, sizeof(path), "%s[%zu]", kvw_fields[id].path, index);
	kvw_report_mistake(report, entry->place, path, "%s: %s", name, text);
}

/* Returns the field whose arguments a mistake names: a pool's own, where it has some. */
static enum kvw_field_id args_field(const struct kvw_plan *plan)
{
	bool own = plan->pool != NULL && plan->manifest->nodes[plan->pool->args] != NULL;

	return own ? plan->pool->args : KVW_F_args;
}

/* Returns a number in the arguments; `otherwise` if it is missing or not positive. */
static int arg_number(const struct kvw_plan *plan, const char *flag, int otherwise)
{
	const char *value;
	long number;

	if (!kvw_plan_flag(plan, flag, &value))
		return otherwise;
	number = strtol(value, NULL, 10);
	return number > 0 && number <= 65535 ? (int)number : otherwise;
}

/* Returns the number of GPUs of one worker; 0: the manifest does not have it. */
static int count_gpus(const struct maker *m)
{
	const struct kvw_node *limit =
		kvw_manifest_member(m->manifest->nodes[m->plan->limits], "nvidia.com/gpu");
	long number;

	if (m->manifest->kind == KVW_KIND_JUMPSTART)
		return m->plan->gpus;
	number =
		limit != NULL && limit->kind == KVW_NODE_SCALAR ? strtol(limit->text, NULL, 10) : 0;
	return number > 0 && number < 10000 ? (int)number : 0;
}

/* Returns the value of a variable as the Large Model Inference container reads it, where `max`
 * means every GPU. 0: it is invalid. */
static int degree_of(const char *text, int every)
{
	if (strcmp(text, "max") == 0)
		return every;
	return kvw_manifest_fits(text, "^[1-9][0-9]{0,3}$") ? atoi(text) : 0;
}

/* Finds the degree in variables and arguments, which must agree. By default that container and a
 * JumpStartModel use every GPU, while vLLM itself uses one. */
static int take_tensor_parallel(struct maker *m, int pipeline)
{
	const struct kvw_plan *plan = m->plan;
	bool lmi = plan->engine_flags == KVW_BY_ENV;
	const char *name = "OPTION_TENSOR_PARALLEL_DEGREE", *text;
	int gpus = count_gpus(m), every = gpus > pipeline ? gpus / pipeline : gpus > 0;
	int in_args = arg_number(plan, "tensor-parallel-size", 0), degree;
	char why[160];

	if (lmi && kvw_plan_env(plan, name) == NULL)
		name = "TENSOR_PARALLEL_DEGREE";
	text = kvw_plan_env_text(plan, name);
	if (text == NULL)
		return in_args > 0                                                     ? in_args
		       : every > 0 && (lmi || m->manifest->kind == KVW_KIND_JUMPSTART) ? every
										       : 1;
	degree = degree_of(text, lmi && every == 0 ? 1 : every);
	if (degree == 0) {
		kvw_plan_env_report(plan, name, m->mistakes,
			strcmp(text, "max") == 0
				? "found `max` without GPUs in the workers' limits, expected a "
				  "number"
				: "found no degree, expected `max` or a number from 1 to 9999");
	} else if (in_args > 0 && in_args != degree) {
		snprintf(why, sizeof(why),
			"found %d and `--tensor-parallel-size %d` in `%s`, expected the same",
			degree, in_args, kvw_fields[args_field(plan)].path);
		kvw_plan_env_report(plan, name, m->mistakes, why);
	}
	return degree > 0 ? degree : 1;
}

static int take_ranks(struct maker *m)
{
	int pipeline = arg_number(m->plan, "pipeline-parallel-size", 1);
	int tensor = take_tensor_parallel(m, pipeline);
	int64_t ranks = (int64_t)tensor * pipeline;
	char text[160];

	m->plan->tensor_parallel = tensor;
	if (ranks <= 65535)
		return (int)ranks;
	snprintf(text, sizeof(text),
		"found %" PRId64 " ranks as tensor times pipeline parallel, expected at most 65535",
		ranks);
	mistake(m, args_field(m->plan), text);
	return 1;
}

/* Returns whether the command is `sh -c`: further arguments would not reach vLLM. */
static bool is_shell(const struct kvw_node *command)
{
	const char *name;

	if (command == NULL || command->first == NULL || command->first->kind != KVW_NODE_SCALAR)
		return false;
	name = strrchr(command->first->text, '/');
	name = name != NULL ? name + 1 : command->first->text;
	return strcmp(name, "sh") == 0 || strcmp(name, "bash") == 0;
}

static bool has_options(const struct kvw_plan *plan)
{
	for (const struct kvw_node *node = plan->env != NULL ? plan->env->first : NULL;
		node != NULL; node = node->next) {
		const struct kvw_node *name = kvw_manifest_member(node, "name");

		if (name != NULL && name->kind == KVW_NODE_SCALAR &&
			strncmp(name->text, "OPTION_", 7) == 0)
			return true;
	}
	return false;
}

static void check_env(struct maker *m, enum kvw_field_id id)
{
	char path[128];
	size_t index = 0;

	for (const struct kvw_node *node = m->plan->env != NULL ? m->plan->env->first : NULL;
		node != NULL; node = node->next, index++) {
		const struct kvw_node *name = kvw_manifest_member(node, "name");

		snprintf(path, sizeof(path), "%s[%zu]", kvw_fields[id].path, index);
		if (kvw_manifest_member(node, "value") != NULL &&
			kvw_manifest_member(node, "valueFrom") != NULL)
			kvw_report_mistake(m->mistakes, node->place, path,
				"found `value` and `valueFrom`, expected one of them");
		for (const struct kvw_node *other = m->plan->env->first;
			other != node && name != NULL; other = other->next) {
			const struct kvw_node *its = kvw_manifest_member(other, "name");

			if (its == NULL || its->kind != KVW_NODE_SCALAR ||
				name->kind != KVW_NODE_SCALAR || strcmp(its->text, name->text) != 0)
				continue;
			kvw_report_mistake(m->mistakes, name->place, path,
				"found a variable that is set in line %zu already, expected it "
				"once",
				its->place.line);
			break;
		}
	}
}

static void take_engine(struct maker *m)
{
	const struct kvw_manifest *manifest = m->manifest;
	struct kvw_plan *plan = m->plan;
	bool jumpstart = manifest->kind == KVW_KIND_JUMPSTART;
	enum kvw_field_id env = jumpstart ? KVW_F_jsEnv : KVW_F_env;

	plan->args = manifest->nodes[KVW_F_args];
	plan->env = manifest->nodes[env];
	plan->replicas = (int)kvw_manifest_int(manifest, KVW_F_replicas);
	plan->split = field_given(m, KVW_F_pdSpec);
	plan->several = field_given(m, KVW_F_scaling) || plan->replicas > 1 || plan->split;
	plan->limits = KVW_F_limits;
	plan->requests = KVW_F_requests;
	plan->port = field_given(m, KVW_F_containerPort)
			     ? (int)kvw_manifest_int(manifest, KVW_F_containerPort)
			     : 8000;
	plan->model_path = kvw_manifest_text(manifest, KVW_F_mountPath);
	plan->image = plan->options->image != NULL ? plan->options->image
						   : kvw_manifest_text(manifest, KVW_F_image);
	check_env(m, env);
	if (is_shell(manifest->nodes[KVW_F_command]))
		plan->engine_flags = KVW_BY_NONE;
	else if (plan->args == NULL && has_options(plan) && !jumpstart)
		plan->engine_flags = KVW_BY_ENV;
	if (jumpstart)
		kvw_plan_gpus(manifest, m->mistakes, plan);
}

static void check_port(struct maker *m)
{
	const struct kvw_plan *plan = m->plan;
	char text[160];

	if (arg_number(plan, "port", plan->port) == plan->port)
		return;
	snprintf(text, sizeof(text), "found %d and `--port %d` in `%s`, expected the same",
		plan->port, arg_number(plan, "port", 0), kvw_fields[args_field(plan)].path);
	mistake(m, KVW_F_containerPort, text);
}

/* Checks the number of GPUs, because vLLM does not start with fewer GPUs than ranks. */
static void check_gpus(struct maker *m)
{
	const struct kvw_node *gpus =
		kvw_manifest_member(m->manifest->nodes[m->plan->limits], "nvidia.com/gpu");
	char text[160], path[128];

	if (gpus == NULL || gpus->kind != KVW_NODE_SCALAR ||
		strtol(gpus->text, NULL, 10) >= m->plan->ranks)
		return;
	snprintf(text, sizeof(text),
		"found %.20s GPUs, expected at least %d: the engine has so many ranks", gpus->text,
		m->plan->ranks);
	snprintf(path, sizeof(path), "%s.nvidia.com/gpu", kvw_fields[m->plan->limits].path);
	kvw_report_mistake(m->mistakes, gpus->place, path, "%s", text);
}

void kvw_plan_ranks(
	const struct kvw_manifest *manifest, struct kvw_report *mistakes, struct kvw_plan *plan)
{
	struct maker m = {.manifest = manifest, .mistakes = mistakes, .plan = plan};

	plan->ranks = take_ranks(&m);
	check_port(&m);
	check_gpus(&m);
}

void kvw_plan_engine(
	const struct kvw_manifest *manifest, struct kvw_report *mistakes, struct kvw_plan *plan)
{
	struct maker m = {.manifest = manifest, .mistakes = mistakes, .plan = plan};

	take_engine(&m);
	if (!plan->split)
		kvw_plan_ranks(manifest, mistakes, plan);
}
