/* groups_patch.c - reads and applies new weights of groups. */
#include "admin/groups_patch.h"

#include <jansson.h>
#include <stdatomic.h>
#include <stdio.h>

#define WEIGHT_MOST 1e6

/* Reads a group's weight from the body; false: the body has none. *weight below 0: null, the file's
 * weight. */
static bool said_of(const json_t *weights, const struct kvw_model_group *group, double *weight)
{
	const json_t *value = json_object_get(weights, group->group);

	if (value == NULL)
		return false;
	*weight = json_is_null(value)     ? group->weight
		  : json_is_number(value) ? json_number_value(value)
					  : -1;
	if (!(*weight >= 0 && *weight <= WEIGHT_MOST))
		*weight = -1;
	return true;
}

/* Checks the body and fills in each group's new weight. Returns the mistake; NULL: there is
 * none. */
static const char *check(const json_t *weights, struct kvw_model_groups groups,
	double new[KVW_MAX_MODEL_GROUPS], char why[160])
{
	size_t said = 0;
	double sum = 0;

	if (!json_is_object(weights) || json_object_size(weights) == 0)
		return "weights: expected a mapping from groups to numbers";
	for (size_t i = 0; i < groups.count; i++) {
		new[i] = atomic_load(groups.items[i].weight_now);
		said += said_of(weights, &groups.items[i], &new[i]);
		if (new[i] < 0) {
			(void)snprintf(why, 160,
				"weights.%s: expected a number from 0 to 1000000, or null",
				groups.items[i].group);
			return why;
		}
		sum += new[i];
	}
	if (said != json_object_size(weights))
		return "weights: found a group that the model does not have";
	return sum > 0 ? NULL : "weights: found 0 for every group, expected one above 0";
}

static int read_root(const struct kvw_config *config, const json_t *root,
	struct kvw_groups_patch *out, char why[160])
{
	const json_t *name = json_object_get(root, "model"),
		     *weights = json_object_get(root, "weights");
	const char *wrong;

	if (!json_is_string(name) || weights == NULL || json_object_size(root) != 2) {
		(void)snprintf(
			why, 160, "expected {\"model\": NAME, \"weights\": {GROUP: NUMBER}}");
		return 400;
	}
	out->groups = kvw_config_groups(
		config, (struct kvw_slice){json_string_value(name), json_string_length(name)});
	if (out->groups.count == 0) {
		(void)snprintf(why, 160, "model: this one has no groups (model_groups)");
		return 404;
	}
	wrong = check(weights, out->groups, out->weights, why);
	if (wrong == NULL)
		return 200;
	if (wrong != why)
		(void)snprintf(why, 160, "%s", wrong);
	return 400;
}

int kvw_groups_patch_read(const struct kvw_config *config, struct kvw_slice body,
	struct kvw_groups_patch *out, char why[160])
{
	json_t *root = json_loadb(
		body.data == NULL ? "" : body.data, body.len, JSON_REJECT_DUPLICATES, NULL);
	int status = read_root(config, root, out, why);

	json_decref(root);
	return status;
}

void kvw_groups_patch_apply(const struct kvw_groups_patch *patch)
{
	/* Weights above 0 are stored first: a loop that finds no weight above 0 has read some of
	 * them before, and finds one when it reads again. */
	for (size_t i = 0; i < patch->groups.count; i++)
		if (patch->weights[i] > 0)
			atomic_store(patch->groups.items[i].weight_now, patch->weights[i]);
	for (size_t i = 0; i < patch->groups.count; i++)
		if (patch->weights[i] <= 0)
			atomic_store(patch->groups.items[i].weight_now, 0);
}
