/*
 * erase.c - `kvtier erase`: removes chunks of a tenant, of a model, or under a key, from every
 * tier.
 *
 * A running owner erases from its store itself, since only the owner reaches its memory and knows
 * its writes under way: the verb sends a request to the socket in the store's folder. The verb
 * opens a store without an owner, at its present size, so that nothing else of it is lost.
 */
#include "command/erase.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "admin/admin.h"
#include "admin/admin_text.h"
#include "command/command.h"
#include "command/output.h"
#include "tiers/nvme/nvme_inspect.h"

#define VERB        "erase"
#define TIMEOUT_NS  10000000000u
/* time for an owner's answer, in which the owner waits for its tiers */
#define ANSWER_NS   15000000000u
#define L1_BYTES    (16u << 20)  /* memory of a cache that is opened only for an erase */
#define LEAST_BYTES (16u << 20)  /* nvme.capacity */
#define MODEL_LEAST 8            /* least digits of --model */
#define CONFIG_MOST (1 << 20)

/* The command line. */
struct wish {
	struct kvt_tenant tenant;
	struct kvt_fingerprint fingerprint; /* whole fingerprints only */
	struct kvt_key key;
	bool by_tenant, by_key, whole_model;
	/* hex digits of the fingerprint: all, or the first ones; NULL: any model */
	const char *model;
	bool dry_run, yes, json;
	struct kvt_config config;
	bool has_config;
};

/* --- command line ----------------------------------------------------------------------------- */

static bool is_model(const char *text)
{
	size_t len = strlen(text);

	return len >= MODEL_LEAST && len <= 64 && strspn(text, "0123456789abcdefABCDEF") == len;
}

/* Reads the names. Returns an exit status: KVT_EXIT_OK if they are correct. */
static int take_names(struct wish *w, const char *tenant, const char *hash, const char *key)
{
	if (tenant != NULL && hash != NULL)
		return kvt_command_wrong(VERB, "--tenant and --tenant-hash exclude each other");
	if (hash != NULL && !kvt_admin_unhex(hash, w->tenant.bytes, sizeof(w->tenant.bytes)))
		return kvt_command_wrong(VERB,
			"--tenant-hash: found `%s`, expected 32 hex digits as `kvtier stat --json` "
			"prints "
			"them",
			hash);
	if (key != NULL && !kvt_admin_unhex(key, w->key.bytes, KVT_KEY_BYTES))
		return kvt_command_wrong(VERB, "--key: found `%s`, expected 64 hex digits", key);
	if (w->model != NULL && !is_model(w->model))
		return kvt_command_wrong(VERB,
			"--model: found `%s`, expected the model's fingerprint, 8 to 64 hex digits "
			"as "
			"`kvtier stat` prints it (a store does not know a model's name)",
			w->model);
	if (tenant != NULL)
		kvt_tenant_of(tenant, strlen(tenant), &w->tenant);
	w->by_tenant = tenant != NULL || hash != NULL;
	w->by_key = key != NULL;
	w->whole_model = w->model != NULL && kvt_admin_unhex(w->model, w->fingerprint.bytes,
						     sizeof(w->fingerprint.bytes));
	if (!w->by_tenant && !w->by_key && w->model == NULL)
		return kvt_command_wrong(
			VERB, "expected --tenant, --model or --key: nothing is erased by default");
	return KVT_EXIT_OK;
}

static int take_config(struct wish *w, const char *path)
{
	char *text = malloc(CONFIG_MOST), *report = NULL;
	FILE *file = fopen(path, "re");
	enum kvt_status status = KVT_EIO;
	size_t len = 0;

	if (file != NULL && text != NULL) {
		len = fread(text, 1, CONFIG_MOST, file);
		if (!ferror(file) && len < CONFIG_MOST)
			status = kvt_config_read(&w->config, path, text, len, &report);
	}
	if (status != KVT_OK)
		fprintf(stderr, "%s%skvtier erase: %s: %s\n", report != NULL ? report : "",
			report != NULL && report[0] != '\0' ? "\n" : "", path,
			status == KVT_EINVAL ? "mistakes in it; nothing was erased"
					     : "cannot be read");
	kvt_text_free(report);
	if (file != NULL)
		fclose(file);
	free(text);
	w->has_config = status == KVT_OK;
	return status == KVT_OK ? KVT_EXIT_OK : KVT_EXIT_FAILED;
}

/* --- one store -------------------------------------------------------------------------------- */

static struct kvt_which which_of(const struct wish *w, const struct kvt_fingerprint *fingerprint)
{
	return (struct kvt_which){
		.size = sizeof(struct kvt_which),
		.dry_run = w->dry_run,
		.tenant = w->by_tenant ? &w->tenant : NULL,
		.fingerprint = w->model != NULL ? fingerprint : NULL,
		.keys = w->by_key ? &w->key : NULL,
		.key_count = w->by_key,
	};
}

static void say(const char *folder, const char *text)
{
	fprintf(stderr, "kvtier erase: %s: %s\n", folder, text);
}

static bool ask_owner(
	const struct wish *w, const struct kvt_fingerprint *f, struct kvt_erase_result *r)
{
	const struct kvt_which which = which_of(w, f);
	char *line = malloc(KVT_ADMIN_LINE), *answer = malloc(KVT_ADMIN_LINE);
	enum kvt_status status = KVT_ENOMEM;
	bool done = false;

	if (line != NULL && answer != NULL &&
		kvt_admin_write_erase(&which, TIMEOUT_NS, line, KVT_ADMIN_LINE))
		status = kvt_admin_ask(r->folder, line, ANSWER_NS, answer);
	if (status == KVT_MISS)
		fprintf(stderr,
			"kvtier erase: %s: its owner (pid %lld) takes no requests: an older "
			"version, or "
			"one without threads; stop it and try again. Nothing was erased.\n",
			r->folder, (long long)r->owner.pid);
	else if (status != KVT_OK)
		fprintf(stderr,
			"kvtier erase: %s: its owner (pid %lld) did not answer: %s. It may have "
			"erased: "
			"run it again.\n",
			r->folder, (long long)r->owner.pid,
			status == KVT_EIO ? strerror(errno) : kvt_status_text(status));
	else if (!kvt_admin_read_erased(answer, &r->status, &r->erased))
		say(r->folder, answer);
	else
		done = true;
	free(line);
	free(answer);
	return done;
}

static void log_line(void *self, uint32_t level, const char *line)
{
	(void)self;
	if (level >= KVT_LOG_WARN)
		fprintf(stderr, "%s\n", line);
}

/* Changes the settings so that opening the cache does nothing else: no ports, and no limits for
 * which it would evict chunks. */
static void prepare(struct kvt_config *c)
{
	c->threads = KVT_THREADS_OWN;
	c->l1_capacity = L1_BYTES;
	c->l1_backing = "anon";
	c->l1_lock = 0;
	c->l1_numa_node = -1;
	c->l1_max_chunks = 0;
	c->tenant_l1_bytes = c->tenant_nvme_bytes = 0;
	c->events_publish = c->events_replay = "";
	c->controller_pull = c->controller_reply = "";
	c->store_inflight = 0;
	/* the node's daemon has the chunks of its engines, so it becomes the shared tier here */
	if (strcmp(c->node_share, "never") != 0) {
		c->l2_url = c->node_url;
		c->l2_segment = c->node_segment;
		c->node_share = "never";
	}
	c->log = log_line;
}

/* Notes which configured tiers are missing. */
static void note_missing(struct kvt *k, const struct kvt_config *c, struct kvt_erase_result *r)
{
	struct kvt_stats stats = {.size = sizeof(stats)};
	bool named[KVT_TIER_COUNT] = {
		[KVT_TIER_NVME] = c->nvme_path != NULL && c->nvme_path[0] != '\0',
		[KVT_TIER_L2] = c->l2_url != NULL && c->l2_url[0] != '\0'};

	if (kvt_stats(k, &stats) != KVT_OK)
		return;
	for (size_t i = 0; i < KVT_TIER_COUNT; i++) {
		const char *reason = stats.tiers[i].reason;

		if (named[i] && r->erased.tiers[i].counted == KVT_COUNTED_NO_TIER)
			(void)snprintf(r->why[i], sizeof(r->why[i]), "%s",
				reason[0] != '\0' ? reason : "cannot be opened");
	}
}

static bool open_and_erase(
	const struct wish *w, const struct kvt_config *config, struct kvt_erase_result *r)
{
	const struct kvt_which which = which_of(w, &config->fingerprint);
	struct kvt *k = NULL;

	r->status = kvt_open(config, &k);
	if (r->status != KVT_OK) {
		say(r->folder != NULL ? r->folder : "l2", kvt_status_text(r->status));
		return false;
	}
	r->erased.size = sizeof(r->erased);
	r->status = kvt_erase_which(k, &which, TIMEOUT_NS, &r->erased);
	note_missing(k, config, r);
	/* this cache was opened only for the erase: its memory is no tier of the user's */
	r->erased.tiers[KVT_TIER_L1].counted = KVT_COUNTED_NO_TIER;
	kvt_close(k);
	return true;
}

/* Finds PATH for a folder PATH/FINGERPRINT/RANK, since the configuration needs PATH. */
static bool path_of(const char *folder, char out[4096])
{
	char *end;
	int n = snprintf(out, 4096, "%s/../..", folder);

	if (n <= 0 || n >= 4096)
		return false;
	end = realpath(out, NULL);
	if (end == NULL || strlen(end) >= 4096) {
		free(end);
		return false;
	}
	(void)snprintf(out, 4096, "%s", end);
	free(end);
	return true;
}

static bool erase_unowned(
	const struct wish *w, const struct kvt_inspect_store *s, struct kvt_erase_result *r)
{
	struct kvt_config config = w->config;
	char path[4096];

	if (!path_of(r->folder, path)) {
		say(r->folder, "its path cannot be resolved");
		return false;
	}
	prepare(&config);
	config.fingerprint = s->fingerprint;
	config.rank = s->rank;
	config.nvme_path = path;
	config.nvme_capacity = s->data_bytes > LEAST_BYTES ? s->data_bytes : LEAST_BYTES;
	config.nvme_max_chunks =
		s->chunks + 64 < 1000000000 ? (uint32_t)s->chunks + 64 : 1000000000;
	return open_and_erase(w, &config, r);
}

/* Returns whether the store is of the model that was named; other stores are skipped. */
static bool is_meant(const struct wish *w, const struct kvt_fingerprint *f)
{
	char hex[65];

	for (size_t i = 0; i < sizeof(f->bytes); i++)
		sprintf(hex + 2 * i, "%02x", f->bytes[i]);
	return w->model == NULL || strncasecmp(hex, w->model, strlen(w->model)) == 0;
}

static int report(const struct wish *w, const struct kvt_erase_result *r, json_t *list)
{
	int result = KVT_EXIT_OK;

	if (w->json)
		result = kvt_json_add_take(VERB, list, kvt_erase_json(r));
	else
		kvt_erase_print(r, stdout);
	return kvt_erase_done(r) ? result : KVT_EXIT_FAILED;
}

/* *met: the store is of the model that was named. */
static int erase_store(const struct wish *w, const char *folder, json_t *list, bool *met)
{
	struct kvt_erase_result r = {.folder = folder, .dry_run = w->dry_run};
	struct kvt_surroundings surroundings;
	struct kvt_inspect_store store;
	char why[KVT_REASON_BYTES] = "";
	struct kvt_inspect *x = NULL;
	enum kvt_status status;

	kvt_surroundings_init(&surroundings, NULL);
	status = kvt_inspect_open(folder, NULL, &surroundings, why, &x);
	if (status != KVT_OK) {
		say(folder, why[0] != '\0' ? why : kvt_status_text(status));
		return KVT_EXIT_FAILED;
	}
	kvt_inspect_store(x, &store);
	kvt_inspect_close(x);
	if (!is_meant(w, &store.fingerprint))
		return KVT_EXIT_OK;
	*met = true;
	kvt_store_owner(folder, &r.owner);
	if (r.owner.alive ? !ask_owner(w, &store.fingerprint, &r) : !erase_unowned(w, &store, &r))
		return KVT_EXIT_FAILED;
	return report(w, &r, list);
}

/* --- all stores ------------------------------------------------------------------------------- */

static int erase_shared(const struct wish *w, json_t *list)
{
	struct kvt_erase_result r = {.dry_run = w->dry_run};
	struct kvt_config config = w->config;

	prepare(&config);
	if (w->whole_model)
		config.fingerprint = w->fingerprint;
	if (w->model != NULL && !w->whole_model)
		return kvt_command_wrong(
			VERB, "--model: without a store on disk all 64 digits are needed");
	return open_and_erase(w, &config, &r) ? report(w, &r, list) : KVT_EXIT_FAILED;
}

static bool agreed(const struct wish *w, const char *path)
{
	char answer[16] = "";

	if (w->yes || w->dry_run || isatty(STDIN_FILENO) == 0)
		return true;
	fprintf(stderr, "Erase in %s? Nothing brings it back. [y/N] ", path);
	return fgets(answer, sizeof(answer), stdin) != NULL &&
	       (answer[0] == 'y' || answer[0] == 'Y');
}

static int erase_all(const struct wish *w, const char *path, json_t *list)
{
	struct kvt_stores stores;
	int result = KVT_EXIT_OK;
	bool met = false;

	if (!kvt_stores_find(VERB, path, &stores))
		return KVT_EXIT_FAILED;
	for (size_t i = 0; i < stores.count; i++) {
		int one = erase_store(w, stores.folders[i], list, &met);

		result = one > result ? one : result;
	}
	if (!met && result == KVT_EXIT_OK) {
		say(path, "no store of that model");
		result = KVT_EXIT_FAILED;
	}
	kvt_stores_finish(&stores);
	return result;
}

static int run(struct wish *w, const char *path)
{
	json_t *list = json_array();
	int result;

	if (path == NULL && w->config.nvme_path != NULL && w->config.nvme_path[0] != '\0')
		path = w->config.nvme_path;
	if (path == NULL && (w->config.l2_url == NULL || w->config.l2_url[0] == '\0') &&
		strcmp(w->config.node_share, "never") == 0)
		result = kvt_command_wrong(VERB, "expected a store's folder, or --config");
	else if (!agreed(w, path != NULL ? path : "the shared tier"))
		result = KVT_EXIT_FAILED;
	else
		result = path != NULL ? erase_all(w, path, list) : erase_shared(w, list);
	if (w->json && result != KVT_EXIT_USAGE)
		return kvt_json_print_take(VERB, list, result);
	json_decref(list);
	return result;
}

int kvt_command_erase(int argc, char **argv)
{
	struct wish w = {.model = NULL};
	const char *tenant = NULL, *hash = NULL, *key = NULL, *config = NULL, *path[1] = {NULL};
	const struct kvt_option options[] = {{"--tenant", &tenant, NULL},
		{"--tenant-hash", &hash, NULL}, {"--model", &w.model, NULL}, {"--key", &key, NULL},
		{"--config", &config, NULL}, {"--dry-run", NULL, &w.dry_run},
		{"--yes", NULL, &w.yes}, {"--json", NULL, &w.json}, {0}};
	int result;

	if (kvt_options_take(argc, argv, options, path, 1) < 0)
		return KVT_EXIT_USAGE;
	kvt_config_init(&w.config, sizeof(w.config));
	result = take_names(&w, tenant, hash, key);
	if (result == KVT_EXIT_OK && config != NULL)
		result = take_config(&w, config);
	if (result == KVT_EXIT_OK)
		result = run(&w, path[0]);
	kvt_config_finish(&w.config);
	return result;
}
