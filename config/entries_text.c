/* entries_text.c - writes a list of mappings on one line of YAML. */
#include "config/entries_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Appends texts to *text, which may be NULL. */
static enum kvw_err append(char **text, const char *before, const char *name, const char *value)
{
	size_t len = *text != NULL ? strlen(*text) : 0;
	size_t room = len + strlen(before) + strlen(name) + strlen(value) + 1;
	char *longer = malloc(room);

	if (longer == NULL)
		return KVW_ENOMEM;
	snprintf(longer, room, "%s%s%s%s", *text != NULL ? *text : "", before, name, value);
	free(*text);
	*text = longer;
	return KVW_OK;
}

static enum kvw_err append_entry(char **text, const struct kvw_entries *entries, const void *entry)
{
	enum kvw_err err = append(text, "{", "", "");
	const char *before = "";

	for (size_t key = 0; key < entries->key_count && err == KVW_OK; key++) {
		char *value = NULL;

		if (!entries->has(entry, key))
			continue;
		err = kvw_key_text(&entries->keys[key], entry, &value);
		if (err == KVW_OK)
			err = append(text, before, entries->keys[key].path, ": ");
		if (err == KVW_OK)
			err = append(text, value, "", "");
		free(value);
		before = ", ";
	}
	return err == KVW_OK ? append(text, "}", "", "") : err;
}

enum kvw_err kvw_entries_text(const struct kvw_entries *entries, char **out)
{
	char *text = NULL;
	enum kvw_err err = append(&text, "[", "", "");

	for (size_t i = 0; i < entries->count && err == KVW_OK; i++) {
		if (i > 0)
			err = append(&text, ", ", "", "");
		if (err == KVW_OK)
			err = append_entry(&text, entries, (const char *)entries->first + i * entries->size);
	}
	if (err == KVW_OK)
		err = append(&text, "]", "", "");
	if (err == KVW_OK)
		*out = text;
	else
		free(text);
	return err;
}
