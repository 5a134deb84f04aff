/*
 * setting.c - settings.def as a schema, and the static texts of the library's struct.
 */
#include "options/setting.h"

#include <stdlib.h>
#include <string.h>

const struct kvw_key kvt_settings[KVT_SETTING_COUNT] = {
#define KVT_SETTING(path, type, member, def, min, max, unit, text)                                 \
	{path, &kvt_setting_##type, offsetof(struct kvt_config, member), def, min, max, text,      \
		unit, false},
#include "options/settings.def"
};

const struct kvw_section kvt_setting_sections[KVT_SETTING_SECTION_COUNT] = {
#define KVT_SECTION(name, path, text) {path, text},
#include "options/settings.def"
};

static const char *const removed[] = {
#define KVT_REMOVED(path) path, "",
#include "options/settings.def"
	NULL,
};

const struct kvw_schema kvt_cache_settings = {
	.keys = kvt_settings,
	.key_count = KVT_SETTING_COUNT,
	.sections = kvt_setting_sections,
	.section_count = KVT_SETTING_SECTION_COUNT,
	.renamed = removed,
	.such_as = "sections such as `l1:` and `nvme:`",
	.wording = KVW_WORDING_BRIEF,
};

/* The C type of a key's member decides how its value is read. */
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
	return kvw_schema_find_key(&kvt_cache_settings, path);
}

size_t kvt_setting_find_section(const char *path)
{
	return kvw_schema_find_section(&kvt_cache_settings, path);
}

enum kvw_err kvt_setting_parse(const struct kvw_key *setting, struct kvw_slice text,
	union kvw_value *out, struct kvw_fault *fault)
{
	return kvw_key_parse(&kvt_cache_settings, setting, text, out, fault);
}

/* The tables' texts are static, so that a default needs no memory. */
void kvt_setting_set_default(const struct kvw_key *setting, void *values)
{
	union kvw_value value = {0};
	struct kvw_fault fault;
	void *member = (char *)values + setting->offset;

	if (setting->type->owned)
		memcpy(member, &setting->def, sizeof(setting->def));
	else if (kvt_setting_parse(setting, kvw_slice_of(setting->def), &value, &fault) == KVW_OK)
		memcpy(member, &value, setting->type->size);
}

void kvt_setting_print(
	const struct kvw_key *setting, const struct kvt_config *config, char out[KVT_SETTING_PRINT])
{
	kvw_key_print(setting, config, out);
}

bool kvt_setting_holds(
	const struct kvw_key *setting, const struct kvt_config *config, struct kvw_fault *fault)
{
	union kvw_value copy;
	const char *text;
	enum kvw_err err;

	if (!setting->type->owned)
		return kvw_key_holds(&kvt_cache_settings, setting, config, fault);
	memcpy(&text, (const char *)config + setting->offset, sizeof(text));
	err = kvt_setting_parse(setting, kvw_slice_of(text), &copy, fault);
	if (err == KVW_OK)
		free(copy.text);
	return err != KVW_EINVAL;
}
