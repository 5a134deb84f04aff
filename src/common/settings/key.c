/*
 * key.c - tables of a configuration's keys, and the conversion of one key's text to its value.
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

/* `auto` stands for 0, which cannot be written as a number. */
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

/* Returns whether a value is beyond a limit. A limit can always be parsed, which tests check. */
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

/* Writes the text for "expected". For a value outside the range: the range. For a text that is no
 * value: the form, too. */
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

static size_t room_of(const char *text)
{
	return 2 * strlen(text) + 3; /* see kvw_text_print */
}

static char *text_of_list(const struct kvw_type *item, const struct kvw_strings *list)
{
	size_t room = sizeof("[]"), used = 0;
	char *text;

	for (size_t i = 0; i < list->count; i++)
		room += room_of(list->items[i]) + strlen(", ");
	text = malloc(room);
	if (text == NULL)
		return NULL;
	text[used++] = '[';
	for (size_t i = 0; i < list->count; i++) {
		const union kvw_value value = {.text = list->items[i]};

		if (i > 0)
			used += (size_t)snprintf(text + used, room - used, ", ");
		item->print(item, &value, text + used, room - used);
		used += strlen(text + used);
	}
	snprintf(text + used, room - used, "]");
	return text;
}

enum kvw_err kvw_key_text(const struct kvw_key *key, const void *values, char **out)
{
	const struct kvw_type *type = key->type;
	union kvw_value value = value_of(key, values);
	char empty[] = "", *text;
	size_t room = 128; /* room for several numbers and words */

	if (type->item != NULL) {
		text = text_of_list(type->item,
			(const struct kvw_strings *)(const void *)((const char *)values +
								   key->offset));
	} else {
		if (type->owned && value.text == NULL)
			value.text = empty;
		if (type->owned && room < room_of(value.text))
			room = room_of(value.text);
		text = malloc(room);
		if (text != NULL && is_automatic(type, &value))
			snprintf(text, room, "auto");
		else if (text != NULL && type->secret)
			snprintf(text, room, "%s", value.text[0] != '\0' ? "(secret)" : "\"\"");
		else if (text != NULL)
			type->print(type, &value, text, room);
	}
	if (text == NULL)
		return KVW_ENOMEM;
	*out = text;
	return KVW_OK;
}

static bool same_lists(const struct kvw_strings *a, const struct kvw_strings *b)
{
	bool same = a->count == b->count;

	for (size_t i = 0; same && i < a->count; i++)
		same = strcmp(a->items[i], b->items[i]) == 0;
	return same;
}

bool kvw_key_same(const struct kvw_key *key, const void *a, const void *b)
{
	const struct kvw_type *type = key->type;
	union kvw_value first, second;

	if (type->item != NULL)
		return same_lists(
			(const struct kvw_strings *)(const void *)((const char *)a + key->offset),
			(const struct kvw_strings *)(const void *)((const char *)b + key->offset));
	first = value_of(key, a);
	second = value_of(key, b);
	if (type->owned)
		return strcmp(first.text != NULL ? first.text : "",
			       second.text != NULL ? second.text : "") == 0;
	if (type->compare != NULL)
		return type->compare(&first, &second) == 0;
	return memcmp(&first, &second, type->size) == 0;
}

static void release_list(struct kvw_strings *list)
{
	for (size_t k = 0; k < list->count; k++)
		free(list->items[k]);
	free(list->items);
}

static enum kvw_err copy_list(const struct kvw_strings *from, struct kvw_strings *to)
{
	struct kvw_strings copy = {0};
	union kvw_value value;
	enum kvw_err err = KVW_OK;

	if (from->count > 0) {
		copy.items = calloc(from->count, sizeof(*copy.items));
		if (copy.items == NULL)
			return KVW_ENOMEM;
	}
	while (copy.count < from->count && err == KVW_OK) {
		err = kvw_text_copy(kvw_slice_of(from->items[copy.count]), &value);
		if (err == KVW_OK)
			copy.items[copy.count++] = value.text;
	}
	if (err != KVW_OK) {
		release_list(&copy);
		return err;
	}
	release_list(to);
	*to = copy;
	return KVW_OK;
}

enum kvw_err kvw_key_copy(const struct kvw_key *key, const void *from, void *to)
{
	const char *source = (const char *)from + key->offset;
	char *target = (char *)to + key->offset;
	union kvw_value value = value_of(key, from);
	enum kvw_err err;

	if (key->type->item != NULL)
		return copy_list((const struct kvw_strings *)(const void *)source,
			(struct kvw_strings *)(void *)target);
	if (key->type->owned && value.text != NULL) {
		err = kvw_text_copy(kvw_slice_of(value.text), &value);
		if (err != KVW_OK)
			return err;
	}
	if (key->type->owned)
		free(*(char **)(void *)target);
	memcpy(target, &value, key->type->size);
	return KVW_OK;
}

void kvw_keys_release(const struct kvw_key *keys, size_t count, void *values)
{
	for (size_t i = 0; i < count; i++) {
		char *field = (char *)values + keys[i].offset;

		if (keys[i].type->owned) {
			free(*(char **)(void *)field);
		} else if (keys[i].type->item != NULL) {
			release_list((struct kvw_strings *)(void *)field);
		}
	}
}
