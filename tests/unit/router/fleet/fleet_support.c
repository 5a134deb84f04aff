/*
 * fleet_support.c - a fleet of workers on loopback ports, for tests that need one.
 */
#include "fleet_support.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct kvw_config *fleet_test_config(size_t workers, uint16_t first_port)
{
	char text[8192];
	struct kvw_config *config = NULL;
	size_t len;

	len = (size_t)snprintf(text, sizeof(text), "routing: {strategy: roundrobin}\nworkers:\n");
	for (size_t i = 0; i < workers; i++)
		len += (size_t)snprintf(text + len, sizeof(text) - len,
			"  - url: http://127.0.0.1:%zu\n", first_port + i);
	ck_assert_int_eq(kvw_config_parse("test", text, len, kvw_strategies, stderr, &config), KVW_OK);
	return config;
}

struct kvw_fleet *fleet_test_create(const struct kvw_config *config, size_t loops)
{
	struct kvw_fleet *fleet = NULL;

	ck_assert_int_eq(kvw_fleet_create(config, loops, stderr, &fleet), KVW_OK);
	return fleet;
}

void fleet_test_models(struct kvw_fleet *fleet, size_t worker, const char *names)
{
	char *copy = strdup(names), *rest = copy, *name;
	const char *items[64];
	size_t count = 0;

	while ((name = strsep(&rest, ",")) != NULL)
		if (name[0] != '\0')
			items[count++] = name;
	ck_assert_int_eq(kvw_fleet_set_models(fleet, fleet->workers[worker], items, count), KVW_OK);
	free(copy);
}

const char *fleet_test_ids(const struct kvw_fleet *fleet, const char *model)
{
	static char text[256];
	struct kvw_candidate items[16];
	struct kvw_model *entry;
	size_t count, len = 0;
	bool known;

	ck_assert_uint_le(fleet->count, 16);
	count = kvw_fleet_candidates(fleet, kvw_slice_of(model), items, &known, &entry);
	if (!known) {
		ck_assert_uint_eq(count, 0);
		return "unknown";
	}
	ck_assert(model == NULL || strcmp(entry->name, model) == 0);
	text[0] = '\0';
	for (size_t i = 0; i < count; i++)
		len += (size_t)snprintf(
			text + len, sizeof(text) - len, i == 0 ? "%u" : " %u", items[i].id);
	return text;
}
