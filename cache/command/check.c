/*
 * check.c - `kvtier check`: prints every mistake of a configuration, then its effects on this
 * machine.
 *
 * The verb opens and creates no store, since a store may be in use. Facts that only opening reveals
 * (whether a file system takes O_DIRECT, say) are left to the statistics of a running cache.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "options/check_l2.h"
#include "command/check_lmcache.h"
#include "command/check_machine.h"
#include "command/command.h"
#include "command/format.h"
#include "protect/key_file.h"
#include "lmcache/lmcache.h"
#include "base/read_file.h"
#include "options/settings.h"
#include "memory/neighbours.h"
#include "tiers/nvme/nvme_share.h"

#define CONFIG_MOST (1u << 20)
#define RANKS_MOST  1024

/* One check. */
struct check {
	struct kvt_config config;
	struct kvt_machine machine;
	uint64_t l1, nvme; /* bytes that each rank would use in L1 and on NVMe */
	uint32_t ranks;    /* number of ranks on this node, 1 to RANKS_MOST */
	char l1_why[KVT_REASON_BYTES], nvme_why[KVT_REASON_BYTES];
	size_t mistakes; /* lines printed so far */
	size_t warnings;
};

static void warn(struct check *c, const char *key, const char *text)
{
	fprintf(stderr, "%s: %s\n", key, text);
	c->warnings++;
}

static bool is_set(const char *text)
{
	return text != NULL && text[0] != '\0';
}

/* --- the machine's resources ------------------------------------------------------------------ */

static void check_memory(struct check *c)
{
	char room[KVT_FORMAT_BYTES], text[200];
	struct kvt_neighbours neighbours;
	struct rlimit lock;

	kvt_neighbours_look(&neighbours, NULL, c->ranks, &c->machine);
	if (neighbours.why[0] != '\0')
		warn(c, "l1.capacity", neighbours.why);
	kvt_neighbours_leave(&neighbours);
	c->l1 = kvt_size_l1(&c->machine, c->config.l1_backing, c->l1_why);
	if (c->config.l1_capacity != 0) {
		c->l1 = c->config.l1_capacity;
		snprintf(c->l1_why, sizeof(c->l1_why), "as configured");
	}
	if (c->l1 == 0)
		warn(c, "l1.capacity", c->l1_why);
	else
		c->warnings += kvt_check_memory(
			"l1.capacity", c->config.l1_backing, c->l1, 0, c->ranks, &c->machine);
	c->warnings += kvt_check_numa("", &c->config, &c->machine);
	if (c->config.l1_lock && getrlimit(RLIMIT_MEMLOCK, &lock) == 0 &&
		lock.rlim_cur != RLIM_INFINITY && lock.rlim_cur < c->l1) {
		snprintf(text, sizeof(text),
			"RLIMIT_MEMLOCK allows %s here: it would go on unlocked",
			kvt_format_size(room, (double)lock.rlim_cur));
		warn(c, "l1.lock", text);
	}
}

static void check_folder(struct check *c)
{
	struct kvt_nvme_share share;
	size_t mistakes;

	if (!is_set(c->config.nvme_path))
		return;
	mistakes = kvt_check_store("", &c->config, c->ranks, &c->machine);
	c->warnings += mistakes;
	if (mistakes > 0)
		return;
	kvt_nvme_share(&c->machine, c->config.nvme_path, NULL, c->ranks, &share, c->nvme_why);
	c->nvme = c->config.nvme_capacity != 0 ? c->config.nvme_capacity : share.part;
	if (c->config.nvme_capacity != 0)
		snprintf(c->nvme_why, sizeof(c->nvme_why), "as configured");
}

static void check_keys(struct check *c)
{
	struct kvt_surroundings surroundings;
	struct kvt_masters masters = {0};
	struct kvt_secrets secrets;
	enum kvt_status status;
	char *report = NULL;

	if (!is_set(c->config.protect_keys))
		return;
	kvt_surroundings_init(&surroundings, NULL);
	kvt_secrets_init(&secrets);
	status = kvt_key_file_read(
		c->config.protect_keys, &surroundings, &secrets, &masters, &report);
	if (status == KVT_OK)
		printf("# protect.keys: %zu keys, %" PRIu32 " seals\n", masters.count,
			kvt_masters_newest(&masters)->id);
	else
		warn(c, "protect.keys", report != NULL ? report : kvt_status_text(status));
	kvt_masters_finish(&masters, &secrets);
	kvt_secrets_finish(&secrets);
	kvt_text_free(report);
}

/* --- the verb --------------------------------------------------------------------------------- */

/* Reads the text of a configuration, which may be kvtier's or LMCache's. */
static bool read_text(struct check *c, const char *path, const char *text, size_t len)
{
	enum kvt_status status;
	char *report = NULL;

	status = kvt_config_read(&c->config, path, text, len, &report);
	if (report != NULL) {
		fputs(report, stderr);
		c->mistakes++;
	}
	kvt_text_free(report);
	return status == KVT_OK || status == KVT_EINVAL;
}

/* path NULL: LMCache's configuration, from its environment variables. */
static bool read_config(struct check *c, const char *path, bool lmcache)
{
	struct kvt_lmcache_source source = {.size = sizeof(source),
		.ranks = c->ranks,
		.variables = (const char *const *)environ};
	char why[KVT_READ_FILE_WHY];
	char *text = NULL;
	size_t len = 0;
	bool good;

	if (path != NULL)
		text = kvt_read_file(path, CONFIG_MOST, &len, why);
	if (path != NULL && text == NULL) {
		fprintf(stderr, "kvtier check: %s: %s\n", path, why);
		return false;
	}
	if (path == NULL || lmcache || kvt_lmcache_is_likely(path, text, len))
		good = kvt_check_lmcache(&source, path, text, len, &c->config, &c->mistakes);
	else
		good = read_text(c, path, text, len);
	free(text);
	return good;
}

/* Prints a text such as "; of each of 4 ranks, 20 GiB together". */
static void print_ranks(const struct check *c, uint64_t bytes)
{
	char size[KVT_FORMAT_BYTES];

	if (c->ranks > 1)
		printf("; of each of %" PRIu32 " ranks, %s together", c->ranks,
			kvt_format_size(size, (double)bytes * c->ranks));
	putchar('\n');
}

static void print_use(const struct check *c)
{
	char size[KVT_FORMAT_BYTES];

	printf("# l1: %s, %s", kvt_format_size(size, (double)c->l1), c->l1_why);
	print_ranks(c, c->l1);
	if (!is_set(c->config.nvme_path)) {
		puts("# nvme: none, nvme.path is empty");
	} else {
		printf("# nvme: %s, %s", kvt_format_size(size, (double)c->nvme), c->nvme_why);
		print_ranks(c, c->nvme);
	}
	kvt_print_l2(&c->config);
	kvt_settings_print(&c->config, stdout);
}

static bool take_ranks(const char *text, uint32_t *out)
{
	char *end = NULL;
	unsigned long ranks;

	if (text == NULL)
		return true;
	ranks = strtoul(text, &end, 10);
	if (end == text || *end != '\0' || *text == '-' || ranks < 1 || ranks > RANKS_MOST)
		return false;
	*out = (uint32_t)ranks;
	return true;
}

int kvt_command_check(int argc, char **argv)
{
	struct check c = {.ranks = 1};
	const char *files[1] = {NULL}, *ranks = NULL;
	bool lmcache = false;
	const struct kvt_option options[] = {
		{"--lmcache", NULL, &lmcache}, {"--ranks", &ranks, NULL}, {0}};
	int result = KVT_EXIT_FAILED;

	if (kvt_options_take(argc, argv, options, files, 1) < 0)
		return KVT_EXIT_USAGE;
	if (!take_ranks(ranks, &c.ranks))
		return kvt_command_wrong(
			"check", "`--ranks` expects a number from 1 to %d", RANKS_MOST);
	if (files[0] == NULL && !kvt_lmcache_has_variables((const char *const *)environ))
		return kvt_command_wrong(
			"check", "expected a YAML file, or LMCACHE_* variables in the environment");
	kvt_config_init(&c.config, sizeof(c.config));
	kvt_machine_read("", NULL, &c.machine);
	if (read_config(&c, files[0], lmcache)) {
		if (ranks == NULL)
			c.ranks = c.config.node_ranks;
		c.config.node_ranks = c.ranks;
		check_memory(&c);
		check_folder(&c);
		check_keys(&c);
		c.warnings += kvt_check_l2(&c.config, "");
		print_use(&c);
		result = c.mistakes + c.warnings > 0 ? KVT_EXIT_DAMAGE : KVT_EXIT_OK;
	}
	kvt_config_finish(&c.config);
	return result;
}
