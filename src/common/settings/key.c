/*
 * key.c - see key.h.
 */
#include "settings/key.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

size_t kvw_schema_find_key(const struct kvw_schema *schema, const char *path)
{
	size_t i = 0;

	while (i < schema->key_count && strcmp(schema->keys[i].path, path) != 0)
		i++;
	return i;
}

size_t kvw_schema_find_section(const struct kvw_schema *schema, const char *path)
{
	size_t i = 0;

	while (i < schema->section_count && strcmp(schema->sections[i].path, path) != 0)
		i++;
	return i;
}

const char *kvw_name_in(const char *section, const char *path)
{
	size_t len = strlen(section);

	if (len > 0) {
		if (strncmp(path, section, len) != 0 || path[len] != '.')
			return NULL;
		path += len + 1;
	}
	return *path == '\0' || strchr(path, '.') != NULL ? NULL : path;
}

static bool is_automatic(const struct kvw_type *type, const union kvw_value *value)
{
	static const union kvw_value zero;

	return type->automatic && memcmp(value, &zero, type->size) == 0;
}

/* `auto` is 0, which cannot be written. */
static enum kvw_err parse_text(const struct kvw_schema *schema, const struct kvw_type *type,
	struct kvw_slice text, union kvw_value *out, struct kvw_fault *fault)
{
	if (schema->wording == KVW_WORDING_BRIEF && text.len > 0 &&
		memchr(text.data, '\0', text.len) != NULL)
		return KVW_EINVAL;
	if (type->automatic && kvw_slice_equal(text, KVW_SLICE("auto")))
		return KVW_OK;
	if (type->automatic && kvw_slice_equal(text, KVW_SLICE("0"))) {
		kvw_fault_suggest(fault, "auto");
		return KVW_EINVAL;
	}
	return type->parse(type, text, schema->names, out, fault);
}

/* A limit always parses; tests see to that. */
static bool is_beyond(
	const struct kvw_key *key, const union kvw_value *value, const char *limit, int way)
{
	const struct kvw_type *type = key->type;
	struct kvw_fault fault = {0};
	union kvw_value parsed;

	return limit[0] != '\0' &&
	       type->parse(type, kvw_slice_of(limit), NULL, &parsed, &fault) == KVW_OK &&
	       way * type->compare(value, &parsed) > 0;
}

static bool in_range(const struct kvw_key *key, const union kvw_value *value)
{
	return key->type->compare == NULL || is_automatic(key->type, value) ||
	       (!is_beyond(key, value, key->min, -1) && !is_beyond(key, value, key->max, 1));
}

/* A value outside: only the range is named. No value at all: also how to write one. */
static void expect(const struct kvw_schema *schema, const struct kvw_key *key, bool outside,
	struct kvw_fault *fault)
{
	const struct kvw_type *type = key->type;
	char *to = fault->expected;

	if (outside && schema->wording == KVW_WORDING_BRIEF)
		snprintf(to, sizeof(fault->expected), "%s%s to %s",
			type->automatic ? "auto, or " : "", key->min, key->max);
	else if (outside)
		snprintf(to, sizeof(fault->expected), "a %s from %s to %s", type->name, key->min,
			key->max);
	else if (type->compare != NULL && schema->wording == KVW_WORDING_FULL)
		snprintf(to, sizeof(fault->expected), "%s, from %s to %s", type->expected, key->min,
			key->max);
	else if (to[0] == '\0')
		snprintf(to, sizeof(fault->expected), "%s",
			type->expected != NULL ? type->expected : type->name);
}

enum kvw_err kvw_key_parse(const struct kvw_schema *schema, const struct kvw_key *key,
	struct kvw_slice text, union kvw_value *out, struct kvw_fault *fault)
{
	union kvw_value value = {0};
	enum kvw_err err;
	bool parsed;

	*fault = (struct kvw_fault){0};
	err = parse_text(schema, key->type, text, &value, fault);
	parsed = err == KVW_OK;
	if (parsed && !in_range(key, &value))
		err = KVW_EINVAL;
	if (err == KVW_EINVAL)
		expect(schema, key, parsed, fault);
	if (err == KVW_OK)
		*out = value;
	return err;
}

static union kvw_value value_of(const struct kvw_key *key, const void *values)
{
	union kvw_value value = {0};

	memcpy(&value, (const char *)values + key->offset, key->type->size);
	return value;
}

bool kvw_key_holds(const struct kvw_schema *schema, const struct kvw_key *key, const void *values,
	struct kvw_fault *fault)
{
	const union kvw_value value = value_of(key, values);
	const struct kvw_word *word = key->type->words;

	*fault = (struct kvw_fault){0};
	while (word != NULL && word->name != NULL && word->value != value.word)
		word++;
	if (word != NULL && word->name == NULL) {
		snprintf(fault->expected, sizeof(fault->expected), "%s", key->type->name);
		return false;
	}
	if (in_range(key, &value))
		return true;
	expect(schema, key, true, fault);
	return false;
}

void kvw_key_print(const struct kvw_key *key, const void *values, char out[KVW_KEY_PRINT])
{
	union kvw_value value = value_of(key, values);
	char empty[] = "";

	if (key->type->owned && value.text == NULL)
		value.text = empty;
	if (is_automatic(key->type, &value))
		snprintf(out, KVW_KEY_PRINT, "auto");
	else
		key->type->print(key->type, &value, out, KVW_KEY_PRINT);
}

void kvw_keys_release(const struct kvw_key *keys, size_t count, void *values)
{
	for (size_t i = 0; i < count; i++) {
		char *field = (char *)values + keys[i].offset;

		if (keys[i].type->owned) {
			free(*(char **)(void *)field);
		} else if (keys[i].type->item != NULL) {
			struct kvw_strings *list = (struct kvw_strings *)(void *)field;

			for (size_t k = 0; k < list->count; k++)
				free(list->items[k]);
			free(list->items);
		}
	}
}
