/*
 * worker_list.c - reads lists of workers from worker files and URLs.
 *
 * A worker file is read like the configuration: the same document, walk, worker keys, defaults and
 * rules (config/build.h); only its top-level keys differ, and its list may be empty.
 */
#include "fleet/discovery/worker_list.h"

#include <stdlib.h>
#include <string.h>

#include "config/build.h"
#include "fleet/discovery/production_stack.h"
#include "settings/suggest.h"

static const struct kvw_strategy_ops *const no_strategies[] = {NULL};

static const char unknown_key[] =
	"found an unknown key, expected `workers`, or keys of production-stack's dynamic "
	"configuration such as `static_backends`";

/* Ends a build and keeps only its list of workers. */
static enum kvw_err end_build(struct kvw_build *build, enum kvw_err err, struct kvw_config **out)
{
	if (err == KVW_OK && build->walk.report->mistakes > 0)
		err = KVW_EINVAL;
	if (err == KVW_OK) {
		*out = build->config;
		build->config = NULL;
	}
	kvw_build_drop(build);
	return err;
}

static enum kvw_err read_workers(struct kvw_build *build, const struct kvw_node *list)
{
	if (build->workers != NULL) {
		kvw_report_mistake(build->walk.report, list->key->place, "workers",
			"found a second time, expected once: first given in line %zu",
			build->workers->key->place.line);
		return KVW_OK;
	}
	build->workers = list;
	if (list->kind == KVW_NODE_LIST)
		return kvw_build_list_workers(build, list);
	if (list->kind != KVW_NODE_BAD)
		kvw_report_mistake(build->walk.report, list->place, "workers",
			"found %s, expected a list with an entry `- url: http://HOST:PORT` for "
			"each "
			"worker, or `[]`",
			kvw_given_kind(list));
	return KVW_OK;
}

static void report_unknown(struct kvw_report *report, const struct kvw_node *key)
{
	struct kvw_suggest near;

	kvw_suggest_start(&near, key->text);
	kvw_suggest_offer(&near, "workers", "workers");
	kvw_production_stack_suggest(&near);
	kvw_report_mistake(report, key->place, key->text, "%s%s%s%s", unknown_key,
		near.best != NULL ? "; did you mean `" : "", near.best != NULL ? near.best : "",
		near.best != NULL ? "`?" : "");
}

static enum kvw_err read_root(
	struct kvw_build *build, const struct kvw_node *root, struct kvw_report *notes)
{
	const struct kvw_place start = {.line = 1, .column = 1};
	struct kvw_production_stack stack = {.notes = notes};
	struct kvw_report *report = build->walk.report;
	enum kvw_err err = KVW_OK;

	if (root == NULL || root->kind != KVW_NODE_MAP) {
		if (root == NULL || root->kind != KVW_NODE_BAD)
			kvw_report_mistake(report, root != NULL ? root->place : start, NULL,
				"found %s, expected `workers:` and a list of workers (`workers: "
				"[]` "
				"for none)",
				root != NULL ? kvw_given_kind(root) : "nothing");
		return KVW_OK;
	}
	for (const struct kvw_node *node = root->first; node != NULL && err == KVW_OK;
		node = node->next) {
		if (node->key->kind != KVW_NODE_SCALAR)
			continue;
		if (strcmp(node->key->text, "workers") == 0)
			err = read_workers(build, node);
		else if (!kvw_production_stack_key(&stack, node, report))
			report_unknown(report, node->key);
	}
	if (err != KVW_OK)
		return err;
	if (build->workers != NULL && stack.first != NULL)
		kvw_report_mistake(report, stack.first->key->place, stack.first->key->text,
			"found together with `workers`, expected one of the two");
	else if (build->workers == NULL && stack.first == NULL && report->mistakes == 0)
		kvw_report_mistake(report, root->place, "workers",
			"found nothing, expected a list of workers (`workers: []` for none)");
	else if (build->workers == NULL)
		err = kvw_production_stack_workers(&stack, build);
	return err;
}

enum kvw_err kvw_worker_file_parse(const char *name, const char *text, size_t len, FILE *errors,
	FILE *notes, struct kvw_config **out)
{
	struct kvw_document document = {0};
	struct kvw_report report, noted;
	struct kvw_build build;
	enum kvw_err err;

	kvw_report_start(&report, name, errors);
	kvw_report_start(&noted, name, notes);
	err = kvw_document_parse(len > 0 ? text : "", len, &report, &document);
	if (err != KVW_OK)
		goto out;
	err = kvw_build_start(&build, &report, no_strategies);
	if (err == KVW_OK) {
		err = read_root(&build, document.root, &noted);
		err = end_build(&build, err, out);
	}
	kvw_document_finish(&document);
out:
	kvw_report_finish(&report);
	return err;
}

enum kvw_err kvw_worker_list_of_urls(const char *const *urls, size_t count, struct kvw_config **out)
{
	const struct kvw_place place = {.flag = "discovery"};
	struct kvw_report report;
	struct kvw_build build;
	char *said = NULL;
	size_t said_len;
	/* mistakes are not printed, since the source has checked the URLs */
	FILE *nowhere = open_memstream(&said, &said_len);
	enum kvw_err err;

	if (nowhere == NULL)
		return KVW_ENOMEM;
	kvw_report_start(&report, "discovery", nowhere);
	err = kvw_build_start(&build, &report, no_strategies);
	if (err != KVW_OK)
		goto out;
	err = kvw_build_reserve_workers(&build, count);
	for (size_t i = 0; i < count && err == KVW_OK; i++) {
		struct kvw_met met[KVW_WORKER_KEY_COUNT] = {
			[KVW_WORKER_KEY_url] = {place, true, false}};
		const struct kvw_given given = {.place = place, .text = kvw_slice_of(urls[i])};

		kvw_build_add_worker(&build);
		err = kvw_walk_value(&build.walk, &kvw_worker_keys[KVW_WORKER_KEY_url], "url",
			&given, kvw_build_newest_worker(&build), &met[KVW_WORKER_KEY_url].valid);
		if (err == KVW_OK)
			err = kvw_build_end_worker(&build, met, place);
	}
	err = end_build(&build, err, out);
out:
	fclose(nowhere);
	free(said);
	return err;
}
