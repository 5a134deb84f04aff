/*
 * rules_admission.c - rules for admission.* and service_levels.
 *
 * Names of classes are compared without regard to case, like the values of the header that carries
 * them.
 */
#include <string.h>

#include "config/rules.h"
#include "settings/suggest.h"

/* Returns the index of a class, or KVW_EVERY_CLASS if there is none. */
static size_t find_class(const struct kvw_strings *classes, const char *name)
{
	for (size_t i = 0; i < classes->count; i++)
		if (kvw_slice_equal_nocase(kvw_slice_of(classes->items[i]), kvw_slice_of(name)))
			return i;
	return KVW_EVERY_CLASS;
}

static void check_classes(struct kvw_build *build)
{
	const struct kvw_strings *classes = &build->config->admission_classes;
	char shown[48], quoted[KVW_REPORT_QUOTE];

	for (size_t i = 0; i < classes->count; i++) {
		if (find_class(classes, classes->items[i]) == i)
			continue;
		snprintf(shown, sizeof(shown), "admission.classes[%zu]", i);
		kvw_report_mistake(build->walk.report, build->met[KVW_KEY_admission_classes].place, shown,
			"found %s again, expected each class once: case does not matter",
			kvw_report_quote(quoted, classes->items[i], strlen(classes->items[i])));
	}
}

/* Returns the index of a class; reports a mistake if there is none. */
static size_t require_class(
	struct kvw_build *build, const char *name, struct kvw_place place, const char *shown)
{
	const struct kvw_strings *classes = &build->config->admission_classes;
	size_t index = find_class(classes, name);
	char quoted[KVW_REPORT_QUOTE], all[KVW_REPORT_QUOTE];
	struct kvw_suggest near;
	size_t used = 0;

	if (index != KVW_EVERY_CLASS)
		return index;
	kvw_report_quote(quoted, name, strlen(name));
	if (classes->count == 0) {
		kvw_report_mistake(build->walk.report, place, shown,
			"found %s, expected no class while `admission.classes` is empty", quoted);
		return index;
	}
	all[0] = '\0';
	kvw_suggest_start(&near, name);
	for (size_t i = 0; i < classes->count; i++) {
		if (used < sizeof(all))
			used += (size_t)snprintf(all + used, sizeof(all) - used, "%s%s",
				i > 0 ? ", " : "", classes->items[i]);
		kvw_suggest_offer(&near, classes->items[i], classes->items[i]);
	}
	kvw_report_mistake(build->walk.report, place, shown,
		"found %s, expected one of `admission.classes`: %s%s%s%s%s", quoted, all,
		used >= sizeof(all) ? "..." : "", near.best != NULL ? "; did you mean `" : "",
		near.best != NULL ? near.best : "", near.best != NULL ? "`?" : "");
	return index;
}

/* Returns whether every value that was given could be read. */
static bool is_whole(const struct kvw_service_level *level, const struct kvw_met *met)
{
	for (size_t key = 0; key < KVW_LEVEL_KEY_COUNT; key++)
		if (met[key].given && !met[key].valid)
			return false;
	return level->model != NULL && level->class != NULL;
}

static void check_contents(struct kvw_build *build, const struct kvw_service_level *level,
	const struct kvw_met *met, struct kvw_place place, const char *shown)
{
	char path[80];

	if (level->model[0] == '\0' && level->class[0] == '\0') {
		bool empty = met[KVW_LEVEL_KEY_model].given || met[KVW_LEVEL_KEY_class].given;

		kvw_report_mistake(build->walk.report, place, shown,
			"found %s, expected `model`, `class` or both: what holds for all is "
			"`service_level`",
			empty ? "an empty model or class" : "neither model nor class");
	} else {
		for (size_t key = KVW_LEVEL_KEY_model; key <= KVW_LEVEL_KEY_class; key++) {
			const char *text =
				key == KVW_LEVEL_KEY_model ? level->model : level->class;

			if (!met[key].given || text[0] != '\0')
				continue;
			snprintf(path, sizeof(path), "%s.%s", shown, kvw_level_keys[key].path);
			kvw_report_mistake(build->walk.report, met[key].place, path,
				"found empty text, expected a name; leave the key out for all");
		}
	}
	if (level->ttft_ms == KVW_INHERITED && level->ttft_per_1k_ms == KVW_INHERITED &&
		level->tpot_ms == KVW_INHERITED)
		kvw_report_mistake(build->walk.report, place, shown,
			"found no duration, expected `ttft`, `ttft_per_1k_tokens` or `tpot`");
}

/* Checks that no entry before `index` has the same model and class; the classes of those entries
 * are known by now. */
static void check_twice(struct kvw_build *build, size_t index, const char *shown)
{
	const struct kvw_service_level *levels = build->config->service_levels;
	const struct kvw_service_level *level = &levels[index];

	for (size_t i = 0; i < index; i++) {
		if (levels[i].model == NULL || levels[i].class == NULL ||
			strcmp(levels[i].model, level->model) != 0 ||
			!kvw_slice_equal_nocase(
				kvw_slice_of(levels[i].class), kvw_slice_of(level->class)))
			continue;
		kvw_report_mistake(build->walk.report, build->level_places[index], shown,
			"found the same model and class again, expected each pair once: it is "
			"service_levels[%zu] already",
			i);
		return;
	}
}

static void check_level(struct kvw_build *build, size_t index)
{
	struct kvw_service_level *level = &build->config->service_levels[index];
	const struct kvw_met *met = build->level_met[index];
	char shown[48], path[64];

	if (!is_whole(level, met))
		return;
	snprintf(shown, sizeof(shown), "service_levels[%zu]", index);
	snprintf(path, sizeof(path), "%s.class", shown);
	check_contents(build, level, met, build->level_places[index], shown);
	if (level->class[0] != '\0' && build->met[KVW_KEY_admission_classes].valid)
		level->class_index =
			require_class(build, level->class, met[KVW_LEVEL_KEY_class].place, path);
	if (level->model[0] != '\0' || level->class[0] != '\0')
		check_twice(build, index, shown);
}

void kvw_rules_check_admission(struct kvw_build *build)
{
	const struct kvw_met *given = &build->met[KVW_KEY_admission_default_class];
	const char *name = build->config->admission_default_class;

	if (build->met[KVW_KEY_admission_classes].valid)
		check_classes(build);
	if (build->met[KVW_KEY_admission_classes].valid && given->valid && name[0] != '\0')
		(void)require_class(build, name, given->place, "admission.default_class");
	for (size_t i = 0; i < build->config->service_level_count; i++)
		check_level(build, i);
}
