/*
 * setting.c - settings.def as tables, and one key's text to a value within its limits.
 */
#include "options/setting.h"

#include <stdlib.h>
#include <string.h>

const struct kvt_setting kvt_settings[KVT_SETTING_COUNT] = {
#define KVT_SETTING(path, type, member, def, min, max, unit, text)                                 \
	{path, &kvt_setting_##type, offsetof(struct kvt_config, member), def, min, max, unit, text},
#include "options/settings.def"
};

const struct kvt_setting_section kvt_setting_sections[KVT_SETTING_SECTION_COUNT] = {
#define KVT_SECTION(name, path, text) {path, text},
#include "options/settings.def"
};

static const char *const key_paths[] = {
#define KVT_SETTING(path, type, member, def, min, max, unit, text) path,
#include "options/settings.def"
};
static const char *const section_paths[] = {
#define KVT_SECTION(name, path, text) path,
#include "options/settings.def"
};

const struct kvt_setting_table kvt_cache_settings = {
	.settings = kvt_settings,
	.setting_count = KVT_SETTING_COUNT,
	.sections = kvt_setting_sections,
	.section_count = KVT_SETTING_SECTION_COUNT,
	.known = {key_paths, KVT_SETTING_COUNT, section_paths, KVT_SETTING_SECTION_COUNT},
	.such_as = "`l1:` and `nvme:`",
};

/* A key's type is its member's C type. */
#define KVT_C_TYPE(name, c_type) typedef c_type kvt_c_type_##name;
KVT_SETTING_TYPES(KVT_C_TYPE)
#undef KVT_C_TYPE
#define KVT_SETTING(path, type, member, def, min, max, unit, text)                                 \
	_Static_assert(                                                                            \
		__builtin_types_compatible_p(                                                      \
			__typeof__(((struct kvt_config *)NULL)->member), kvt_c_type_##type),       \
		"the type of " path " is not that of " #member);
#include "options/settings.def"

size_t kvt_setting_find(const char *path)
{
	size_t i = 0;

	while (i < KVT_SETTING_COUNT && strcmp(kvt_settings[i].path, path) != 0)
		i++;
	return i;
}

size_t kvt_setting_find_section(const char *path)
{
	size_t i = 0;

	while (i < KVT_SETTING_SECTION_COUNT && strcmp(kvt_setting_sections[i].path, path) != 0)
		i++;
	return i;
}

static bool is_automatic(const struct kvt_setting *setting, const union kvt_setting_value *value)
{
	if (!setting->type->automatic)
		return false;
	return setting->type->bytes == sizeof(uint32_t) ? value->word == 0 : value->size == 0;
}

static bool in_range(const struct kvt_setting *setting, const union kvt_setting_value *value)
{
	const char *const limits[2] = {setting->min, setting->max};
	struct kvw_fault fault = {0};

	if (setting->type->compare == NULL || is_automatic(setting, value))
		return true;
	for (int i = 0; i < 2; i++) {
		union kvt_setting_value limit;
		int order;

		if (limits[i][0] == '\0' ||
			setting->type->parse(kvw_slice_of(limits[i]), &limit, &fault) != KVW_OK)
			continue;
		order = setting->type->compare(value, &limit);
		if (i == 0 ? order < 0 : order > 0)
			return false;
	}
	return true;
}

/* "1MiB to 64TiB" */
static void expect_range(const struct kvt_setting *setting, struct kvw_fault *fault)
{
	snprintf(fault->expected, sizeof(fault->expected), "%s%s to %s",
		setting->type->automatic ? "auto, or " : "", setting->min, setting->max);
}

enum kvw_err kvt_setting_parse(const struct kvt_setting *setting, struct kvw_slice text,
	union kvt_setting_value *out, struct kvw_fault *fault)
{
	union kvt_setting_value value;
	enum kvw_err err;

	*fault = (struct kvw_fault){0};
	if (text.len != (text.data == NULL ? 0 : strlen(text.data)))
		err = KVW_EINVAL; /* a NUL inside */
	else
		err = setting->type->parse(text, &value, fault);
	if (err == KVW_EINVAL) {
		if (setting->type->expected != NULL)
			snprintf(fault->expected, sizeof(fault->expected), "%s",
				setting->type->expected);
		else if (fault->expected[0] == '\0')
			snprintf(fault->expected, sizeof(fault->expected), "%s",
				setting->type->name);
		return err;
	}
	if (err != KVW_OK)
		return err;
	if (!in_range(setting, &value)) {
		expect_range(setting, fault);
		return KVW_EINVAL;
	}
	*out = value;
	return KVW_OK;
}

static void value_of(
	const struct kvt_setting *setting, const void *values, union kvt_setting_value *out)
{
	*out = (union kvt_setting_value){0};
	memcpy(out, (const char *)values + setting->offset, setting->type->bytes);
}

/* The tables' texts are static: a default needs no memory. */
void kvt_setting_set_default(const struct kvt_setting *setting, void *values)
{
	union kvt_setting_value value = {0};
	struct kvw_fault fault;
	void *member = (char *)values + setting->offset;

	if (setting->type->text)
		memcpy(member, &setting->def, sizeof(setting->def));
	else if (kvt_setting_parse(setting, kvw_slice_of(setting->def), &value, &fault) == KVW_OK)
		memcpy(member, &value, setting->type->bytes);
}

void kvt_setting_print(const struct kvt_setting *setting, const struct kvt_config *config,
	char out[KVT_SETTING_PRINT])
{
	kvt_setting_print_at(setting, config, out);
}

void kvt_setting_print_at(
	const struct kvt_setting *setting, const void *values, char out[KVT_SETTING_PRINT])
{
	union kvt_setting_value value;
	char empty[] = "";

	value_of(setting, values, &value);
	if (setting->type->text && value.text == NULL)
		value.text = empty;
	setting->type->print(&value, out, KVT_SETTING_PRINT);
}

bool kvt_setting_holds(
	const struct kvt_setting *setting, const struct kvt_config *config, struct kvw_fault *fault)
{
	union kvt_setting_value value, copy;
	enum kvw_err err;

	value_of(setting, config, &value);
	*fault = (struct kvw_fault){0};
	if (setting->type->text) {
		err = kvt_setting_parse(setting, kvw_slice_of(value.text), &copy, fault);
		if (err == KVW_OK)
			free(copy.text);
		return err != KVW_EINVAL;
	}
	if (setting->type == &kvt_setting_THREADS && value.word > KVT_THREADS_CALLER) {
		snprintf(fault->expected, sizeof(fault->expected), "%s", setting->type->name);
		return false;
	}
	if (in_range(setting, &value))
		return true;
	expect_range(setting, fault);
	return false;
}
