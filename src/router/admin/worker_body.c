/*
 * worker_body.c - reads workers from a body.
 *
 * A body is parsed as JSON, written out again as the `workers` of an otherwise empty file, and
 * loaded: JSON as jansson writes it is YAML. From the loader's messages the place is removed, since
 * it is a place in the text that was written out; if the body is one worker, so is `workers[0].`.
 */
#include "admin/worker_body.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "config/schema.h"
#include "kvway/route.h"

#define NAME "body"

static enum kvw_err say(char **why, const char *format, const char *found)
{
	return asprintf(why, format, found) < 0 ? KVW_ENOMEM : KVW_EINVAL;
}

/* Writes one line of the loader's messages. */
static void put_line(FILE *out, const char *line, size_t len, bool many)
{
	const char *at = line, *end = line + len;
	const char *prefix = many ? "workers" : "workers[0].";

	if (strncmp(at, NAME ":", sizeof(NAME)) == 0) {
		const char *message = memmem(at, (size_t)(end - at), ": ", 2);

		if (message != NULL)
			at = message + 2;
	}
	if ((size_t)(end - at) > strlen(prefix) && strncmp(at, prefix, strlen(prefix)) == 0)
		at += strlen(prefix);
	fwrite(at, 1, (size_t)(end - at), out);
}

static char *clean(const char *lines, bool many)
{
	char *text = NULL;
	size_t len;
	FILE *out = open_memstream(&text, &len);

	if (out == NULL)
		return NULL;
	while (*lines != '\0') {
		size_t line = strcspn(lines, "\n");

		put_line(out, lines, line, many);
		lines += line + (lines[line] == '\n');
		if (*lines != '\0')
			fputs("; ", out);
	}
	if (fclose(out) != 0) {
		free(text);
		return NULL;
	}
	return text;
}

/* Loads a list of workers, and takes it. */
static enum kvw_err load_take(json_t *workers, bool many, struct kvw_config **out, char **why)
{
	json_t *root = json_pack("{s:o}", "workers", workers);
	char *text = root == NULL ? NULL : json_dumps(root, 0), *lines = NULL;
	size_t len = 0;
	FILE *errors = text == NULL ? NULL : open_memstream(&lines, &len);
	enum kvw_err err = KVW_ENOMEM;

	if (errors != NULL) {
		err = kvw_config_parse(NAME, text, strlen(text), kvw_strategies, errors, out);
		if (fclose(errors) != 0 && err == KVW_EINVAL)
			err = KVW_ENOMEM;
	}
	if (err == KVW_EINVAL) {
		*why = clean(lines, many);
		err = *why == NULL ? KVW_ENOMEM : KVW_EINVAL;
	}
	free(lines);
	free(text);
	json_decref(root);
	return err;
}

static enum kvw_err parse(struct kvw_slice body, json_t **out, char **why)
{
	json_error_t error;

	if (body.len == 0)
		return say(why, "%s, expected JSON such as {\"url\":\"http://HOST:PORT\"}",
			"found no body");
	*out = json_loadb(body.data, body.len, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &error);
	return *out == NULL ? say(why, "the body is not JSON: %s", error.text) : KVW_OK;
}

enum kvw_err kvw_worker_body_read(
	struct kvw_slice body, bool *many, struct kvw_config **out, char **why)
{
	json_t *root, *list;
	enum kvw_err err = parse(body, &root, why);

	if (err != KVW_OK)
		return err;
	*many = json_is_array(root);
	if (*many ? json_array_size(root) == 0 : !json_is_object(root)) {
		json_decref(root);
		return say(why,
			"found %s, expected a worker such as {\"url\":\"http://HOST:PORT\"}, or a "
			"list of them",
			*many ? "an empty list" : "another kind of value");
	}
	list = *many ? root : json_pack("[o]", root);
	return load_take(list, *many, out, why);
}

/* Returns those keys of a worker that are set. */
static json_t *worker_json(const struct kvw_worker_config *worker)
{
	json_t *root = json_object();

	for (size_t i = 0; root != NULL && i < KVW_WORKER_KEY_COUNT; i++) {
		const struct kvw_key *key = &kvw_worker_keys[i];
		const char *member = (const char *)worker + key->offset;
		char text[KVW_KEY_PRINT];
		json_t *value = NULL;

		if (key->type->item != NULL) {
			const struct kvw_strings *list = (const void *)member;

			value = json_array();
			for (size_t k = 0; k < list->count; k++)
				json_array_append_new(value, json_string(list->items[k]));
		} else if (key->type->owned) {
			value = json_string(*(char *const *)(const void *)member);
		} else {
			kvw_key_print(key, worker, text);
			value = json_string(text);
		}
		if ((json_is_string(value) && json_string_length(value) == 0) ||
			(json_is_array(value) && json_array_size(value) == 0))
			json_decref(value);
		else
			json_object_set_new(root, key->path, value);
	}
	return root;
}

/* Returns whether the body names another worker than `base` by its URL. */
static bool is_other_url(const json_t *change, const struct kvw_worker_config *base)
{
	const json_t *url = json_object_get(change, "url");

	return url != NULL &&
	       (!json_is_string(url) || strcmp(json_string_value(url), base->url) != 0);
}

enum kvw_err kvw_worker_body_change(struct kvw_slice body, const struct kvw_worker_config *base,
	struct kvw_config **out, char **why)
{
	json_t *change, *whole, *value;
	const char *key;
	enum kvw_err err = parse(body, &change, why);

	if (err != KVW_OK)
		return err;
	if (!json_is_object(change) || json_object_size(change) == 0)
		err = say(why,
			"found %s, expected the keys to change, such as {\"models\":[\"NAME\"]}",
			json_is_object(change) ? "no key" : "another kind of value");
	else if (is_other_url(change, base))
		err = say(why,
			"url: found another one, expected `%s`, or none: a worker is known by it",
			base->url);
	whole = err == KVW_OK ? worker_json(base) : NULL;
	json_object_foreach (change, key, value) {
		if (err != KVW_OK)
			break;
		if (json_is_null(value) &&
			kvw_schema_find_key(&kvw_worker_schema, key) < KVW_WORKER_KEY_COUNT)
			json_object_del(whole, key);
		else
			json_object_set(whole, key, value);
	}
	json_decref(change);
	return err == KVW_OK ? load_take(json_pack("[o]", whole), false, out, why) : err;
}
