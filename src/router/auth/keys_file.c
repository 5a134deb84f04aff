/*
 * keys_file.c - reads and checks the file of clients' keys.
 *
 * An entry is read like the configuration: by the same document, walk, keys and types
 * (config/keys.def). This file adds the rules between them. The existence of classes and models is
 * not checked: the configuration and the workers define them, and both change independently.
 */
#include "auth/keys_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/read_file.h"
#include "config/path_pattern.h"
#include "config/schema.h"
#include "settings/walk.h"

#define NAME_MOST  64
#define NODES_MOST 16000000u /* an entry with all its keys has about 20 nodes */
#define ENTRIES                                                                                    \
	"`keys:` and a list of entries such as `- {name: NAME, sha256: HASH}` (`keys: []` for "    \
	"none)"

static const char *const no_strategies[] = {NULL};
static const struct kvw_section no_sections[] = {{"", ""}};
static const struct kvw_schema schema = {
	.sections = no_sections, .section_count = 1, .names = no_strategies, .such_as = ENTRIES};

/* Entries read so far. */
struct reading {
	struct kvw_walk walk;
	struct kvw_client_key *keys; /* [count] */
	struct kvw_place *places;    /* `count` places in the file, one for each key's name */
	size_t count, room;
};

/* --- one entry --- */

bool kvw_keys_file_name_good(const char *name)
{
	size_t len =
		strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._@-");

	return len > 0 && len <= NAME_MOST && name[len] == '\0';
}

static void check_name(struct reading *r, size_t index, const char *member, const char *text,
	struct kvw_place place)
{
	char quoted[KVW_REPORT_QUOTE], path[KVW_SCHEMA_MAX_PATH];

	if (kvw_keys_file_name_good(text))
		return;
	snprintf(path, sizeof(path), "keys[%zu].%s", index, member);
	kvw_report_mistake(r->walk.report, place, path,
		"found %s, expected 1 to %d letters, digits or `._@-`",
		kvw_report_quote(quoted, text, strlen(text)), NAME_MOST);
}

static void check_paths(
	struct reading *r, size_t index, const struct kvw_strings *paths, struct kvw_place place)
{
	char quoted[KVW_REPORT_QUOTE], path[KVW_SCHEMA_MAX_PATH];

	snprintf(path, sizeof(path), "keys[%zu].paths", index);
	for (size_t i = 0; i < paths->count; i++)
		if (!kvw_path_pattern_good(paths->items[i]))
			kvw_report_mistake(r->walk.report, place, path,
				"found %s, expected " KVW_PATTERN_EXPECTED,
				kvw_report_quote(quoted, paths->items[i], strlen(paths->items[i])));
}

/* Checks names of models: a star is allowed only at a name's end; elsewhere it would not do what it
 * seems to. */
static void check_models(
	struct reading *r, size_t index, const struct kvw_strings *models, struct kvw_place place)
{
	char quoted[KVW_REPORT_QUOTE], path[KVW_SCHEMA_MAX_PATH];

	snprintf(path, sizeof(path), "keys[%zu].models", index);
	for (size_t i = 0; i < models->count; i++) {
		const char *star = strchr(models->items[i], '*');

		if (star != NULL && star[1] != '\0')
			kvw_report_mistake(r->walk.report, place, path,
				"found %s, expected a model's name, or its beginning and a star",
				kvw_report_quote(
					quoted, models->items[i], strlen(models->items[i])));
	}
}

static void check_entry(
	struct reading *r, size_t index, const struct kvw_met *met, struct kvw_place place)
{
	static const enum kvw_client_key_index needed[] = {
		KVW_CLIENT_KEY_name, KVW_CLIENT_KEY_sha256};
	const struct kvw_client_key *key = &r->keys[index];
	char path[KVW_SCHEMA_MAX_PATH];

	for (size_t i = 0; i < sizeof(needed) / sizeof(needed[0]); i++) {
		if (met[needed[i]].given)
			continue;
		snprintf(
			path, sizeof(path), "keys[%zu].%s", index, kvw_client_keys[needed[i]].path);
		kvw_report_mistake(r->walk.report, place, path,
			"found nothing, expected an entry such as `%s`",
			kvw_client_key_schema.such_as);
	}
	if (met[KVW_CLIENT_KEY_name].valid)
		check_name(r, index, "name", key->name, met[KVW_CLIENT_KEY_name].place);
	if (met[KVW_CLIENT_KEY_tenant].valid && key->tenant[0] != '\0')
		check_name(r, index, "tenant", key->tenant, met[KVW_CLIENT_KEY_tenant].place);
	check_paths(r, index, &key->paths, met[KVW_CLIENT_KEY_paths].place);
	check_models(r, index, &key->models, met[KVW_CLIENT_KEY_models].place);
}

static enum kvw_err read_entry(struct reading *r, const struct kvw_node *node)
{
	struct kvw_met met[KVW_CLIENT_KEY_COUNT] = {0};
	size_t index = r->count;
	enum kvw_err err;
	bool whole;

	r->places[r->count++] = node->place;
	err = kvw_walk_entry(&r->walk, &kvw_client_key_schema, "keys", index, node, &r->keys[index],
		met, &whole);
	if (err != KVW_OK || !whole)
		return err;
	if (met[KVW_CLIENT_KEY_name].valid)
		r->places[index] = met[KVW_CLIENT_KEY_name].place;
	check_entry(r, index, met, node->place);
	return KVW_OK;
}

/* --- all of them --- */

static enum kvw_err read_entries(struct reading *r, const struct kvw_node *list)
{
	enum kvw_err err = KVW_OK;

	if (list->kind == KVW_NODE_BAD)
		return KVW_OK;
	if (list->kind != KVW_NODE_LIST) {
		kvw_report_mistake(r->walk.report, list->place, "keys",
			"found %s, expected a list of entries", kvw_given_kind(list));
		return KVW_OK;
	}
	if (list->count > KVW_KEYRING_MOST) {
		kvw_report_mistake(r->walk.report, list->place, "keys",
			"found %zu entries, expected at most %d", list->count, KVW_KEYRING_MOST);
		return KVW_OK;
	}
	r->keys = calloc(list->count + 1, sizeof(r->keys[0]));
	r->places = calloc(list->count + 1, sizeof(r->places[0]));
	if (r->keys == NULL || r->places == NULL)
		return KVW_ENOMEM;
	for (const struct kvw_node *node = list->first; node != NULL && err == KVW_OK;
		node = node->next)
		err = read_entry(r, node);
	return err;
}

static enum kvw_err read_root(struct reading *r, const struct kvw_node *root)
{
	const struct kvw_place start = {.line = 1, .column = 1};
	const struct kvw_node *keys = NULL;
	enum kvw_err err = KVW_OK;

	if (root == NULL || root->kind != KVW_NODE_MAP) {
		if (root == NULL || root->kind != KVW_NODE_BAD)
			kvw_report_mistake(r->walk.report, root != NULL ? root->place : start, NULL,
				"found %s, expected " ENTRIES,
				root != NULL ? kvw_given_kind(root) : "nothing");
		return KVW_OK;
	}
	for (const struct kvw_node *node = root->first; node != NULL && err == KVW_OK;
		node = node->next) {
		if (node->key->kind != KVW_NODE_SCALAR)
			continue;
		if (strcmp(node->key->text, "keys") != 0) {
			kvw_report_mistake(r->walk.report, node->key->place, node->key->text,
				"found an unknown key, expected " ENTRIES);
		} else if (keys != NULL) {
			kvw_report_mistake(r->walk.report, node->key->place, "keys",
				"found a second time, expected once: first given in line %zu",
				keys->key->place.line);
		} else {
			keys = node;
			err = read_entries(r, node);
		}
	}
	if (err == KVW_OK && keys == NULL)
		kvw_report_mistake(
			r->walk.report, root->place, "keys", "found nothing, expected " ENTRIES);
	return err;
}

static int by_name(const void *a, const void *b, void *arg)
{
	const struct kvw_client_key *keys = arg;
	const size_t *one = a, *two = b;
	int order = strcmp(keys[*one].name, keys[*two].name);

	return order != 0 ? order : *one < *two ? -1 : 1;
}

/* Checks that no two valid entries have the same name. */
static enum kvw_err check_names(struct reading *r)
{
	size_t *order = calloc(r->count + 1, sizeof(*order));
	char path[KVW_SCHEMA_MAX_PATH];

	if (order == NULL)
		return KVW_ENOMEM;
	for (size_t i = 0; i < r->count; i++)
		order[i] = i;
	qsort_r(order, r->count, sizeof(*order), by_name, r->keys);
	for (size_t i = 1; i < r->count; i++) {
		if (strcmp(r->keys[order[i - 1]].name, r->keys[order[i]].name) != 0)
			continue;
		snprintf(path, sizeof(path), "keys[%zu].name", order[i]);
		kvw_report_mistake(r->walk.report, r->places[order[i]], path,
			"found `%s` a second time, expected each name once: first in line %zu",
			r->keys[order[i]].name, r->places[order[i - 1]].line);
	}
	free(order);
	return KVW_OK;
}

static enum kvw_err make_ring(struct reading *r, struct kvw_keyring **out)
{
	char path[KVW_SCHEMA_MAX_PATH];
	size_t twice = 0;
	enum kvw_err err = kvw_keyring_create(r->keys, r->count, out, &twice);

	r->keys = NULL;
	if (err != KVW_EINVAL)
		return err;
	snprintf(path, sizeof(path), "keys[%zu].sha256", twice);
	kvw_report_mistake(r->walk.report, r->places[twice], path,
		"found the hash of an entry before it, expected each key once");
	return KVW_EINVAL;
}

enum kvw_err kvw_keys_file_parse(
	const char *name, const char *text, size_t len, FILE *errors, struct kvw_keyring **out)
{
	struct kvw_document document = {0};
	struct kvw_report report;
	struct reading r = {.walk = {.schema = &schema, .report = &report}};
	enum kvw_err err;

	kvw_report_start(&report, name, errors);
	err = kvw_document_parse_most(len > 0 ? text : "", len, NODES_MOST, &report, &document);
	if (err == KVW_OK) {
		err = read_root(&r, document.root);
		kvw_document_finish(&document);
		if (err == KVW_OK && report.mistakes == 0)
			err = check_names(&r);
		if (err == KVW_OK && report.mistakes > 0)
			err = KVW_EINVAL;
		if (err == KVW_OK)
			err = make_ring(&r, out);
	}
	kvw_report_finish(&report);
	if (r.keys != NULL)
		kvw_client_keys_free(r.keys, r.count);
	free(r.places);
	return err;
}

/* --- the file --- */

static enum kvw_err unreadable(const char *path, FILE *errors, const char *why)
{
	fprintf(errors, "%s: cannot be read: %s\n", path, why);
	return KVW_EIO;
}

enum kvw_err kvw_keys_file_load(const char *path, FILE *errors, struct kvw_keyring **out)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	enum kvw_err err = KVW_OK;
	char *buffer = NULL;
	struct stat info;
	size_t len = 0, room;

	if (fd < 0)
		return unreadable(path, errors, strerror(errno));
	if (fstat(fd, &info) != 0) {
		err = unreadable(path, errors, strerror(errno));
		goto out;
	}
	if (!S_ISREG(info.st_mode)) {
		err = unreadable(path, errors, "not a regular file");
		goto out;
	}
	if (info.st_size > (off_t)KVW_KEYS_FILE_MAX_BYTES) {
		fprintf(errors, "%s: found more than %u bytes, expected a file of keys\n", path,
			KVW_KEYS_FILE_MAX_BYTES);
		err = KVW_EINVAL;
		goto out;
	}
	room = (size_t)info.st_size + 1;
	buffer = malloc(room);
	if (buffer == NULL)
		err = KVW_ENOMEM;
	else if (kvw_read_all(fd, buffer, room, &len) != KVW_OK)
		err = unreadable(path, errors, strerror(errno));
	else if (len == room)
		err = unreadable(path, errors, "it grows while it is read; replace it by a rename");
	if (err == KVW_OK)
		err = kvw_keys_file_parse(path, buffer, len, errors, out);
out:
	free(buffer);
	close(fd);
	return err;
}
