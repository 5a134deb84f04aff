/*
 * stack_flags.c - reads the flags of production-stack's router.
 *
 * Each flag becomes text for its key, and is then handled like a user's text, so that types, ranges
 * and rules are those of a file. `listen` and `workers` are each made from two flags, when all
 * flags were read.
 */
#include "config/stack_flags.h"

#include <stdlib.h>
#include <string.h>

#include "settings/address.h"

const struct kvw_stack_flag kvw_stack_flags[KVW_STACK_FLAG_COUNT] = {
#define KVW_STACK_FLAG(flag, argument, use, keys, text)                                            \
	{flag, argument, KVW_STACK_##use, keys, text},
#include "config/stack_flags.def"
};

/* Values of flags that have a meaning only together. Borrowed; NULL: not given. */
struct joined {
	const char *host, *port, *backends, *models, *labels, *prefill, *decode;
};

/* Reads the entries of a list with commas between them. */
struct entries {
	char *text; /* owned: a copy in which NULs replace the commas */
	char **items;
	size_t count;
};

static void entries_finish(struct entries *entries)
{
	free(entries->text);
	free(entries->items);
}

/* Begins to read a list. Spaces around entries are ignored. entries_finish must follow. */
static enum kvw_err entries_init(struct entries *entries, const char *text)
{
	union kvw_value copy;
	size_t most = 1;
	char *rest;

	for (const char *c = text; *c != '\0'; c++)
		most += *c == ',';
	if (kvw_text_copy(kvw_slice_of(text), &copy) != KVW_OK)
		return KVW_ENOMEM;
	*entries = (struct entries){.text = copy.text, .items = calloc(most, sizeof(char *))};
	if (entries->items == NULL)
		return KVW_ENOMEM;
	rest = copy.text;
	while (entries->count < most) {
		char *item = rest, *end = rest + strcspn(rest, ",");

		rest = end + 1;
		item += strspn(item, " ");
		while (end > item && end[-1] == ' ')
			end--;
		*end = '\0';
		entries->items[entries->count++] = item;
	}
	return KVW_OK;
}

static void report_found(
	struct kvw_build *build, const char *flag, const char *found, const char *expected)
{
	const struct kvw_place place = {.flag = flag};
	char quoted[KVW_REPORT_QUOTE];

	kvw_report_mistake(build->walk.report, place, NULL, "found %s, expected %s",
		found[0] != '\0' ? kvw_report_quote(quoted, found, strlen(found)) : "empty text",
		expected);
}

/* --- one flag, its own keys ------------------------------------------------------------------- */

static bool is_number(const char *text, long least, long most)
{
	size_t digits = strspn(text, "0123456789");

	return digits > 0 && digits < 9 && text[digits] == '\0' && atol(text) >= least &&
	       atol(text) <= most;
}

static enum kvw_err set_text(
	struct kvw_build *build, const char *key, const char *flag, const char *text)
{
	return kvw_build_set_flag(build, kvw_own_find_key(&build->own, key), flag, text);
}

static enum kvw_err set_seconds(
	struct kvw_build *build, const char *key, const char *flag, const char *text)
{
	char duration[16];

	if (!is_number(text, 0, 99999999)) {
		report_found(build, flag, text, "a whole number of seconds");
		return KVW_OK;
	}
	snprintf(duration, sizeof(duration), "%lds", atol(text));
	return set_text(build, key, flag, duration);
}

static enum kvw_err set_port(
	struct kvw_build *build, const char *key, const char *flag, const char *text)
{
	char address[32];

	if (!is_number(text, 1, UINT16_MAX)) {
		report_found(build, flag, text, "a port from 1 to 65535");
		return KVW_OK;
	}
	snprintf(address, sizeof(address), "0.0.0.0:%ld", atol(text));
	return set_text(build, key, flag, address);
}

/* Sets keys that are lists, each to a list with this one name. */
static enum kvw_err set_lists(
	struct kvw_build *build, const char *keys, const char *flag, const char *text)
{
	const struct kvw_key name = {.path = "", .type = &kvw_type_TOKEN, .min = "", .max = ""};
	const struct kvw_given given = {.place = {.flag = flag}, .text = kvw_slice_of(text)};
	char *parsed = NULL, path[KVW_SCHEMA_MAX_PATH];
	enum kvw_err err;
	bool valid;

	err = kvw_walk_value(&build->walk, &name, "", &given, &parsed, &valid);
	free(parsed);
	while (err == KVW_OK && valid && *keys != '\0') {
		size_t len = strcspn(keys, " ");

		snprintf(path, sizeof(path), "%.*s", (int)len, keys);
		err = kvw_build_set_flag_list(
			build, kvw_own_find_key(&build->own, path), flag, text);
		keys += len;
		keys += *keys == ' ';
	}
	return err;
}

static void check_only(
	struct kvw_build *build, const struct kvw_stack_flag *flag, const char *value)
{
	if (strcmp(value, flag->keys) != 0)
		report_found(build, flag->flag, value, flag->text);
}

static void refuse(struct kvw_build *build, const struct kvw_stack_flag *flag)
{
	const struct kvw_place place = {.flag = flag->flag};

	kvw_report_mistake(build->walk.report, place, NULL,
		"found a flag that kvway has no use for, expected %s", flag->text);
}

/* Sets the strategy; the router's two ways to split prefill and decode set the transfer, too. */
static enum kvw_err set_logic(
	struct kvw_build *build, const struct kvw_stack_flag *flag, const char *value)
{
	bool orchestrated = strcmp(value, "disaggregated_prefill_orchestrated") == 0;
	enum kvw_err err;

	if (!orchestrated && strcmp(value, "disaggregated_prefill") != 0)
		return set_text(build, flag->keys, flag->flag, value);
	err = set_text(build, flag->keys, flag->flag, "prefixaware");
	if (err == KVW_OK)
		err = set_text(build, "pd.transfer", flag->flag, orchestrated ? "nixl" : "shared");
	return err;
}

static enum kvw_err apply_one(struct kvw_build *build, const struct kvw_stack_flag *flag,
	const char *value, struct joined *joined)
{
	switch (flag->use) {
	case KVW_STACK_TEXT:
		return set_text(build, flag->keys, flag->flag, value);
	case KVW_STACK_SECONDS:
		return set_seconds(build, flag->keys, flag->flag, value);
	case KVW_STACK_LIST:
		return set_lists(build, flag->keys, flag->flag, value);
	case KVW_STACK_LMCACHE_PORT:
		return set_port(build, flag->keys, flag->flag, value);
	case KVW_STACK_HOST:
		joined->host = value;
		break;
	case KVW_STACK_PORT:
		joined->port = value;
		break;
	case KVW_STACK_BACKENDS:
		joined->backends = value;
		break;
	case KVW_STACK_MODELS:
		joined->models = value;
		break;
	case KVW_STACK_LABELS:
		joined->labels = value;
		break;
	case KVW_STACK_PREFILL_LABELS:
		joined->prefill = value;
		break;
	case KVW_STACK_DECODE_LABELS:
		joined->decode = value;
		break;
	case KVW_STACK_LOGIC:
		return set_logic(build, flag, value);
	case KVW_STACK_ONLY:
		check_only(build, flag, value);
		break;
	case KVW_STACK_REFUSED:
		refuse(build, flag);
		break;
	case KVW_STACK_NOTE:
	case KVW_STACK_SHARED:
		break;
	}
	return KVW_OK;
}

/* --- listen ----------------------------------------------------------------------------------- */

/* Sets `listen`; an IPv6 address is put into brackets. */
static enum kvw_err set_listen(struct kvw_build *build, const struct joined *joined)
{
	const char *host = joined->host != NULL ? joined->host : "0.0.0.0";
	const char *port = joined->port != NULL ? joined->port : "8001";
	bool bare = strchr(host, ':') != NULL && host[0] != '[';
	char address[KVW_ADDRESS_MAX_HOST + 32];
	int len;

	if (joined->host == NULL && joined->port == NULL && build->met[KVW_KEY_listen].given)
		return KVW_OK; /* --listen */
	if (!is_number(port, 1, UINT16_MAX)) {
		report_found(build, "--port", port, "a port from 1 to 65535");
		return KVW_OK;
	}
	len = snprintf(address, sizeof(address), "%s%s%s:%ld", bare ? "[" : "", host,
		bare ? "]" : "", atol(port));
	if (len >= (int)sizeof(address)) {
		report_found(build, "--host", host, "a host name or IP address");
		return KVW_OK;
	}
	return kvw_build_set_flag(
		build, KVW_KEY_listen, joined->host != NULL ? "--host" : "--port", address);
}

/* --- workers ---------------------------------------------------------------------------------- */

/* Returns an earlier worker with the URL of the newest one; NULL: there is none. */
static struct kvw_worker_config *same_url(struct kvw_build *build)
{
	struct kvw_worker_config *newest = kvw_build_newest_worker(build);

	for (size_t i = 0; newest->url != NULL && i + 1 < build->config->worker_count; i++)
		if (build->config->workers[i].url != NULL &&
			strcmp(build->config->workers[i].url, newest->url) == 0)
			return &build->config->workers[i];
	return NULL;
}

/* Adds a model to a worker, unless the worker has it already. */
static enum kvw_err add_model(
	struct kvw_build *build, struct kvw_worker_config *worker, const char *model)
{
	const struct kvw_key name = {.path = "", .type = &kvw_type_STRING, .min = "", .max = ""};
	const struct kvw_given given = {
		.place = {.flag = "--static-models"}, .text = kvw_slice_of(model)};
	struct kvw_strings *models = &worker->models;
	char *copy = NULL, **items;
	enum kvw_err err;
	bool valid;

	if (model[0] == '\0') {
		report_found(build, "--static-models", model, "a model's name between commas");
		return KVW_OK;
	}
	for (size_t i = 0; i < models->count; i++)
		if (strcmp(models->items[i], model) == 0)
			return KVW_OK;
	err = kvw_walk_value(&build->walk, &name, "", &given, &copy, &valid);
	if (err != KVW_OK || !valid)
		return err;
	items = calloc(models->count + 1, sizeof(*items));
	if (items == NULL) {
		free(copy);
		return KVW_ENOMEM;
	}
	if (models->count > 0)
		memcpy(items, models->items, models->count * sizeof(*items));
	items[models->count++] = copy;
	free(models->items);
	models->items = items;
	return KVW_OK;
}

/* One backend, by the lists of the flags. model NULL: kvway asks the worker which models it has. role
 * NULL: both. */
struct backend {
	const char *url, *model, *role;
};

static enum kvw_err set_role(
	struct kvw_build *build, struct kvw_worker_config *worker, const char *role, struct kvw_met *met)
{
	const struct kvw_given given = {
		.place = {.flag = "--static-model-labels"}, .text = kvw_slice_of(role)};

	*met = (struct kvw_met){given.place, true, false};
	return kvw_walk_value(&build->walk, &kvw_worker_keys[KVW_WORKER_KEY_role], "role", &given,
		worker, &met->valid);
}

static enum kvw_err add_backend(struct kvw_build *build, const struct backend *backend)
{
	const char *url = backend->url, *model = backend->model;
	const struct kvw_place place = {.flag = "--static-backends"};
	struct kvw_met met[KVW_WORKER_KEY_COUNT] = {[KVW_WORKER_KEY_url] = {place, true, false},
		[KVW_WORKER_KEY_models] = {place, model != NULL, model != NULL}};
	const struct kvw_given given = {.place = place, .text = kvw_slice_of(url)};
	struct kvw_worker_config *worker, *earlier;
	enum kvw_err err;

	kvw_build_add_worker(build);
	worker = kvw_build_newest_worker(build);
	err = kvw_walk_value(&build->walk, &kvw_worker_keys[KVW_WORKER_KEY_url], "url", &given,
		worker, &met[KVW_WORKER_KEY_url].valid);
	if (err != KVW_OK)
		return err;
	earlier = model != NULL ? same_url(build) : NULL;
	if (earlier != NULL) {
		kvw_build_drop_worker(build);
		return add_model(build, earlier, model);
	}
	if (model != NULL)
		err = add_model(build, worker, model);
	if (err == KVW_OK && backend->role != NULL)
		err = set_role(build, worker, backend->role, &met[KVW_WORKER_KEY_role]);
	return err == KVW_OK ? kvw_build_end_worker(build, met, place) : err;
}

/* The lists of all flags about workers. */
struct lists {
	struct entries urls, models, labels, prefill, decode;
};

/* Returns whether a list has one entry for each backend, or none; else reports a mistake. */
static bool has_one_each(struct kvw_build *build, const struct lists *lists,
	const struct entries *entries, const char *flag, const char *what)
{
	if (entries->count == 0 || entries->count == lists->urls.count)
		return true;
	kvw_report_mistake(build->walk.report, (struct kvw_place){.flag = flag}, NULL,
		"found %zu %s, expected one for each of --static-backends, in the same order: %zu",
		entries->count, what, lists->urls.count);
	return false;
}

static bool has_entry(const struct entries *entries, const char *wanted)
{
	for (size_t i = 0; i < entries->count; i++)
		if (strcmp(entries->items[i], wanted) == 0)
			return true;
	return false;
}

static const char *role_of(const struct lists *lists, const char *label)
{
	bool prefills = has_entry(&lists->prefill, label), decodes = has_entry(&lists->decode, label);

	if (prefills == decodes)
		return NULL;
	return prefills ? "prefill" : "decode";
}

static enum kvw_err add_backends(struct kvw_build *build, const struct lists *lists)
{
	const struct entries *urls = &lists->urls;
	enum kvw_err err = KVW_OK;

	if (!has_one_each(build, lists, &lists->models, "--static-models", "names") ||
		!has_one_each(build, lists, &lists->labels, "--static-model-labels", "labels"))
		return KVW_OK;
	if (urls->count > KVW_MAX_WORKERS) {
		kvw_report_mistake(build->walk.report,
			(struct kvw_place){.flag = "--static-backends"}, NULL,
			"found %zu workers, expected at most %d", urls->count, KVW_MAX_WORKERS);
		return KVW_OK;
	}
	err = kvw_build_reserve_workers(build, urls->count);
	for (size_t i = 0; i < urls->count && err == KVW_OK; i++) {
		struct backend backend = {.url = urls->items[i]};

		if (lists->models.count > 0)
			backend.model = lists->models.items[i];
		if (lists->labels.count > 0)
			backend.role = role_of(lists, lists->labels.items[i]);
		err = add_backend(build, &backend);
	}
	return err;
}

/* Reads each list that was given. */
static enum kvw_err read_lists(struct lists *lists, const struct joined *joined)
{
	const struct {
		const char *text;
		struct entries *entries;
	} given[] = {{joined->backends, &lists->urls}, {joined->models, &lists->models},
		{joined->labels, &lists->labels}, {joined->prefill, &lists->prefill},
		{joined->decode, &lists->decode}};
	enum kvw_err err = KVW_OK;

	for (size_t i = 0; i < sizeof(given) / sizeof(given[0]) && err == KVW_OK; i++)
		if (given[i].text != NULL)
			err = entries_init(given[i].entries, given[i].text);
	return err;
}

static void finish_lists(struct lists *lists)
{
	entries_finish(&lists->urls);
	entries_finish(&lists->models);
	entries_finish(&lists->labels);
	entries_finish(&lists->prefill);
	entries_finish(&lists->decode);
}

static enum kvw_err set_workers(struct kvw_build *build, const struct joined *joined, bool others)
{
	const struct kvw_place place = {.flag = "--static-backends"};
	struct lists lists = {0};
	enum kvw_err err;

	if (others) {
		if (joined->backends != NULL)
			kvw_report_mistake(build->walk.report, place, NULL,
				"found together with --worker, expected one of the two");
		else if (joined->models != NULL)
			report_found(build, "--static-models", joined->models,
				"--static-backends with it, in place of --worker");
		return KVW_OK;
	}
	if (joined->backends == NULL) {
		kvw_report_mistake(build->walk.report, place, NULL,
			"found nothing, expected the workers' URLs, "
			"http://HOST:PORT,http://HOST:PORT");
		return KVW_OK;
	}
	err = read_lists(&lists, joined);
	if (err == KVW_OK)
		err = add_backends(build, &lists);
	finish_lists(&lists);
	return err;
}

/* --- all -------------------------------------------------------------------------------------- */

/* Makes kvway listen for LMCache's workers, as production-stack's router does without any flag. */
static enum kvw_err set_lmcache_default(struct kvw_build *build)
{
	const struct kvw_met *strategy = &build->met[KVW_KEY_routing_strategy];

	if (!strategy->valid || strcmp(build->config->routing_strategy, "kvaware") != 0 ||
		build->met[KVW_KEY_kvaware_lmcache_pull].given)
		return KVW_OK;
	return kvw_build_set_flag(
		build, KVW_KEY_kvaware_lmcache_pull, "--lmcache-controller-port", "0.0.0.0:9000");
}

enum kvw_err kvw_stack_apply(struct kvw_build *build, const struct kvw_config_flags *flags)
{
	struct joined joined = {0};
	enum kvw_err err = KVW_OK;

	for (size_t i = 0; i < flags->stack_count && err == KVW_OK; i++)
		err = apply_one(build, &kvw_stack_flags[flags->stack[i].flag],
			flags->stack[i].value, &joined);
	if (err == KVW_OK)
		err = set_listen(build, &joined);
	if (err == KVW_OK)
		err = set_lmcache_default(build);
	if (err == KVW_OK)
		err = set_workers(build, &joined, flags->worker_count > 0);
	return err;
}

const char *kvw_stack_log_level(const char *level)
{
	static const char *const pairs[][2] = {
		{"warning", "warn"}, {"critical", "error"}, {"trace", "debug"}};

	for (size_t i = 0; level != NULL && i < sizeof(pairs) / sizeof(pairs[0]); i++)
		if (strcmp(level, pairs[i][0]) == 0)
			return pairs[i][1];
	return level;
}
