/*
 * fuzz_groups_patch.c - any bytes as the body of PATCH /groups.
 *
 * What is refused changes no weight and says why, on a line; what is accepted has a weight for each group within what
 * the configuration allows, one of them above 0, leaves other models alone, and says the same when it is written out.
 */
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>

#include "admin/groups_patch.h"
#include "kvway/route.h"
#include "tests/fuzz/lines.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char text[] = "model_groups:\n"
			   "  - {model: m, group: a, weight: 90, workers: [a]}\n"
			   "  - {model: m, group: b, weight: 10, workers: [b]}\n"
			   "  - {model: m, group: c, weight: 0, workers: [c]}\n"
			   "  - {model: n, group: a, workers: [a]}\n"
			   "workers: [{url: \"http://127.0.0.1:1\"}]\n";

static struct kvw_config *config;

static double now(size_t i)
{
	return atomic_load(config->model_groups[i].weight_now);
}

static void check_same(const struct kvw_groups_patch *patch)
{
	struct kvw_groups_patch again;
	char body[512], why[160];
	size_t len = (size_t)snprintf(body, sizeof(body), "{\"weights\":{");

	for (size_t i = 0; i < patch->groups.count; i++)
		len += (size_t)snprintf(body + len, sizeof(body) - len, "%s\"%s\":%.17g", i > 0 ? "," : "",
			patch->groups.items[i].group, patch->weights[i]);
	len += (size_t)snprintf(
		body + len, sizeof(body) - len, "},\"model\":\"%s\"}", patch->groups.items[0].model);
	require(kvw_groups_patch_read(config, (struct kvw_slice){body, len}, &again, why) == 200);
	require(again.groups.items == patch->groups.items);
	for (size_t i = 0; i < patch->groups.count; i++)
		require(again.weights[i] == patch->weights[i]);
}

static void check_taken(const struct kvw_groups_patch *patch)
{
	size_t first = (size_t)(patch->groups.items - config->model_groups);
	double sum = 0, before[4];

	require(config->model_group_count == 4 && first + patch->groups.count <= 4 && patch->groups.count > 0);
	for (size_t i = 0; i < 4; i++)
		before[i] = now(i);
	for (size_t i = 0; i < patch->groups.count; i++) {
		require(patch->weights[i] >= 0 && patch->weights[i] <= 1e6);
		sum += patch->weights[i];
	}
	require(sum > 0);
	kvw_groups_patch_apply(patch);
	for (size_t i = 0; i < 4; i++)
		require(now(i) == (i >= first && i < first + patch->groups.count ? patch->weights[i - first] : before[i]));
	check_same(patch);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct kvw_groups_patch patch;
	char why[160] = "";
	int status;

	if (config == NULL)
		require(kvw_config_parse("f.yaml", text, sizeof(text) - 1, kvw_strategies, stderr, &config) == KVW_OK);
	status = kvw_groups_patch_read(config, (struct kvw_slice){(const char *)data, size}, &patch, why);
	if (status == 200) {
		check_taken(&patch);
		return 0;
	}
	require(status == 400 || status == 404);
	require(why[0] != '\0' && memchr(why, '\0', sizeof(why)) != NULL && strpbrk(why, "\r\n") == NULL);
	return 0;
}
