/*
 * daemon_settings.c - reads and prints kvtierd's configuration; see daemon_settings.h.
 */
#include "daemon/daemon_settings.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "settings/address.h"
#include "options/reader.h"
#include "settings/reference.h"

#define BUCKETS_MOST 1024

/* --- the table -------------------------------------------------------------------------------- */

enum own_index {
#define KVT_SETTING(path, type, member, def, min, max, unit, text) OWN_##member,
#include "daemon/daemon_settings.def"
	OWN_COUNT
};

static const struct kvw_key settings[] = {
#define KVT_SETTING(path, type, member, def, min, max, unit, text)                                 \
	{path, &kvt_setting_##type, offsetof(struct kvt_daemon_config, member), def, min, max,     \
		text, unit, false},
#include "daemon/daemon_settings.def"
#define KVT_SETTING(path, type, member, def, min, max, unit, text)                                 \
	{"cache." path, &kvt_setting_##type, offsetof(struct kvt_daemon_config, cache.member),     \
		def, min, max, text, unit, false},
#include "options/settings.def"
};
#define SETTINGS (sizeof(settings) / sizeof(settings[0]))

/* Keys of the cache stand below the section `cache`. */
#define BELOW_CACHE(path) (sizeof(path) == 1 ? "cache" : "cache." path)

static const struct kvw_section sections[] = {
#define KVT_SECTION(name, path, text) {path, text},
#include "daemon/daemon_settings.def"
#define KVT_SECTION(name, path, text) {BELOW_CACHE(path), text},
#include "options/settings.def"
};
#define SECTIONS (sizeof(sections) / sizeof(sections[0]))

/* The C type of a key's member decides how its value is read. */
#define KVT_C_TYPE(name, c_type) typedef c_type kvt_c_type_##name;
KVT_SETTING_TYPES(KVT_C_TYPE)
#undef KVT_C_TYPE
#define KVT_SETTING(path, type, member, def, min, max, unit, text)                                 \
	_Static_assert(__builtin_types_compatible_p(                                               \
			       __typeof__(((struct kvt_daemon_config *)NULL)->member),             \
			       kvt_c_type_##type),                                                 \
		"the type of " path " is not that of " #member);
#include "daemon/daemon_settings.def"

static const char *const removed[] = {
#define KVT_REMOVED(path) "cache." path, "",
#include "options/settings.def"
	NULL,
};

static const struct kvw_schema table = {
	.keys = settings,
	.key_count = SETTINGS,
	.sections = sections,
	.section_count = SECTIONS,
	.list = "buckets",
	.renamed = removed,
	.such_as = "sections such as `segment:` and `cache:`",
	.wording = KVW_WORDING_BRIEF,
};

#define SHARED_ALREADY "no such key: this is the store that engines share"
#define BY_ENGINES     "no such key: engines cut and blend fragments themselves"

/* Keys of the cache that the daemon sets itself, and the key to use instead. */
static const struct taken {
	size_t key;
	const char *expected;
} taken[] = {
#define TOLD_BY_ENGINES(member)                                                                    \
	{                                                                                          \
		OWN_COUNT + KVT_SETTING_##member,                                                  \
			"no such key: engines report to a controller themselves"                   \
	}
	{OWN_COUNT + KVT_SETTING_fingerprint, "nothing: objects are named by bucket and key alone"},
	{OWN_COUNT + KVT_SETTING_rank, "nothing: one daemon serves all ranks"},
	{OWN_COUNT + KVT_SETTING_threads, "nothing: the daemon runs the cache's threads"},
	{OWN_COUNT + KVT_SETTING_l1_capacity, "`segment.size`: the segment is the cache's memory"},
	{OWN_COUNT + KVT_SETTING_l1_backing, "`segment.name`: the segment is the cache's memory"},
	TOLD_BY_ENGINES(controller_pull),
	TOLD_BY_ENGINES(controller_reply),
	TOLD_BY_ENGINES(controller_heartbeat),
	TOLD_BY_ENGINES(controller_instance),
	TOLD_BY_ENGINES(controller_ip),
	TOLD_BY_ENGINES(controller_bind),
	TOLD_BY_ENGINES(controller_ports),
	TOLD_BY_ENGINES(controller_heartbeat_ns),
	TOLD_BY_ENGINES(controller_heartbeat_delay_ns),
	TOLD_BY_ENGINES(controller_answer_ns),
	TOLD_BY_ENGINES(controller_sync_delay_ns),
	TOLD_BY_ENGINES(controller_sync_batch),
	TOLD_BY_ENGINES(controller_queue),
	TOLD_BY_ENGINES(controller_max_chunks),
	TOLD_BY_ENGINES(controller_pin_ns),
	TOLD_BY_ENGINES(controller_chunk_size),
	TOLD_BY_ENGINES(controller_worker),
	TOLD_BY_ENGINES(controller_hash),
	TOLD_BY_ENGINES(controller_hash_seed),
	TOLD_BY_ENGINES(controller_none_hash),
	{OWN_COUNT + KVT_SETTING_node_share, SHARED_ALREADY},
	{OWN_COUNT + KVT_SETTING_node_url, SHARED_ALREADY},
	{OWN_COUNT + KVT_SETTING_node_segment, SHARED_ALREADY},
	{OWN_COUNT + KVT_SETTING_node_ranks, SHARED_ALREADY},
	{OWN_COUNT + KVT_SETTING_fragments_enabled, BY_ENGINES},
	{OWN_COUNT + KVT_SETTING_fragments_cut, BY_ENGINES},
	{OWN_COUNT + KVT_SETTING_fragments_separator, BY_ENGINES},
	{OWN_COUNT + KVT_SETTING_fragments_min_tokens, BY_ENGINES},
	{OWN_COUNT + KVT_SETTING_fragments_average_tokens, BY_ENGINES},
	{OWN_COUNT + KVT_SETTING_fragments_max_tokens, BY_ENGINES},
	{OWN_COUNT + KVT_SETTING_fragments_recompute_share, BY_ENGINES},
	{OWN_COUNT + KVT_SETTING_fragments_first_tokens, BY_ENGINES},
	{OWN_COUNT + KVT_SETTING_fragments_check_layer, BY_ENGINES},
#undef TOLD_BY_ENGINES
};
#define TAKEN (sizeof(taken) / sizeof(taken[0]))

static bool is_taken(size_t key)
{
	bool found = false;

	for (size_t i = 0; i < TAKEN; i++)
		found = found || taken[i].key == key;
	return found;
}

/* --- limits of buckets ------------------------------------------------------------------------ */

#define IN_BUCKET(member) offsetof(struct kvt_bucket_limit, member)
static const struct kvw_key bucket_settings[] = {
	{"name", &kvt_setting_TEXT, IN_BUCKET(bucket), "", "", "", "The bucket.", "", false},
	{"memory", &kvt_setting_SIZE, IN_BUCKET(memory_bytes), "0", "0", "64TiB",
		"Most of the segment that its objects may hold; 0: all of it.", "bytes", false},
	{"nvme", &kvt_setting_SIZE, IN_BUCKET(nvme_bytes), "0", "0", "1024TiB",
		"Most room on disk that its objects may hold; 0: all of it.", "bytes", false},
};
#define BUCKET_SETTINGS (sizeof(bucket_settings) / sizeof(bucket_settings[0]))

static const struct kvw_schema bucket_table = {
	.keys = bucket_settings,
	.key_count = BUCKET_SETTINGS,
	.one_of = "name, memory or nvme",
	.such_as = "- {name: lmcache, memory: 10GiB}",
	.wording = KVW_WORDING_BRIEF,
};

static enum kvw_err read_bucket(struct kvw_walk *w, const struct kvw_node *node, size_t index)
{
	struct kvt_daemon_config *config = w->values;
	struct kvw_met met[BUCKET_SETTINGS] = {0};
	struct kvt_bucket_limit limit = {0};
	bool whole, none;
	enum kvw_err err = kvw_walk_entry(w, &bucket_table, w->schema->list, index, node, &limit, met, &whole);
	char entry[48];

	if (err != KVW_OK || !whole)
		return err;
	snprintf(entry, sizeof(entry), "buckets[%zu]", index);
	none = limit.bucket == NULL || limit.bucket[0] == '\0';
	if (none || strlen(limit.bucket) > KVT_BUCKET_MOST) {
		kvw_report_mistake(w->report, node->place, entry,
			"found %s name, expected `name:` with 1 to %d bytes",
			none ? "no" : "too long a", KVT_BUCKET_MOST);
		return KVW_OK;
	}
	for (size_t i = 0; i < config->bucket_count; i++)
		if (strcmp(config->buckets[i].bucket, limit.bucket) == 0) {
			kvw_report_mistake(w->report, node->place, entry,
				"found a bucket of this name a second time, expected once");
			return KVW_OK;
		}
	config->buckets[config->bucket_count++] = limit;
	return KVW_OK;
}

static enum kvw_err read_buckets(struct kvw_walk *w, const struct kvw_node *list)
{
	struct kvt_daemon_config *config = w->values;
	const struct kvw_node *node = list->first;
	enum kvw_err err = KVW_OK;

	if (list->kind == KVW_NODE_BAD || kvw_node_is_null(list))
		return KVW_OK;
	if (list->kind != KVW_NODE_LIST || config->buckets != NULL || list->count > BUCKETS_MOST) {
		kvw_report_mistake(w->report, list->place, w->schema->list,
			"found %s, expected a list of at most %d entries such as "
			"`- {name: lmcache, memory: 10GiB}`",
			list->kind != KVW_NODE_LIST ? kvw_node_kind_name(list)
			: config->buckets != NULL   ? "a second one"
						    : "more entries",
			BUCKETS_MOST);
		return KVW_OK;
	}
	config->buckets = calloc(list->count + 1, sizeof(config->buckets[0]));
	if (config->buckets == NULL)
		return KVW_ENOMEM;
	for (size_t i = 0; i < list->count && err == KVW_OK; i++, node = node->next)
		err = read_bucket(w, node, i);
	return err;
}

/* --- rules between keys
 * ------------------------------------------------------------------------ */

static void mistake(struct kvt_reader *r, size_t key, const char *text)
{
	kvw_report_mistake(&r->report, r->walk.met[key].place, settings[key].path, "%s", text);
}

static bool is_loopback(const char *address)
{
	struct kvw_address parts;

	if (kvw_address_split(kvw_slice_of(address), &parts) != KVW_ADDRESS_OK)
		return false;
	if (parts.v6)
		return kvw_slice_equal(parts.host, KVW_SLICE("::1"));
	return kvw_slice_equal(parts.host, KVW_SLICE("localhost")) ||
	       (parts.host.len > 4 && memcmp(parts.host.data, "127.", 4) == 0);
}

static void check_addresses(struct kvt_reader *r, struct kvt_daemon_config *now)
{
	if (now->listen[0] == '\0') {
		mistake(r, OWN_listen,
			"found an empty text, expected HOST:PORT such as "
			"127.0.0.1:9200");
		kvt_setting_set_default(&settings[OWN_listen], now);
	}
	if (now->admin[0] != '\0' && !is_loopback(now->admin)) {
		mistake(r, OWN_admin,
			"found an address that other machines may reach, expected one "
			"of 127.0.0.0/8, localhost or [::1]: a client of this address "
			"can erase everything");
		kvt_setting_set_default(&settings[OWN_admin], now);
	}
}

/* Notes a mistake if the value of key `less` is greater than that of key `more`. */
static void check_order(struct kvt_reader *r, size_t less, size_t more, uint64_t a, uint64_t b)
{
	size_t at = r->walk.met[less].given ? less : more;
	char text[160];

	if (a <= b || (!r->walk.met[less].given && !r->walk.met[more].given))
		return;
	snprintf(text, sizeof(text), "found more in %s than in %s, expected at most as much",
		settings[less].path, settings[more].path);
	mistake(r, at, text);
	kvt_setting_set_default(&settings[less], r->walk.values);
	kvt_setting_set_default(&settings[more], r->walk.values);
}

/* The segment's size is not rounded, since it has to equal that of an existing segment. */
static void check_segment(struct kvt_reader *r, struct kvt_daemon_config *now)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), rest = now->segment_bytes % page;
	char text[160];

	if (rest == 0)
		return;
	snprintf(text, sizeof(text), "found %llu bytes, expected whole pages of %llu bytes, such as %llu",
		(unsigned long long)now->segment_bytes, (unsigned long long)page,
		(unsigned long long)(now->segment_bytes - rest + page));
	mistake(r, OWN_segment_bytes, text);
	kvt_setting_set_default(&settings[OWN_segment_bytes], now);
}

static void check_taken(struct kvt_reader *r)
{
	for (size_t i = 0; i < TAKEN; i++) {
		const struct kvw_met *met = &r->walk.met[taken[i].key];

		if (!met->given)
			continue;
		kvw_report_mistake(&r->report, met->place, settings[taken[i].key].path,
			"found a value of its own, expected %s", taken[i].expected);
		kvt_setting_set_default(&settings[taken[i].key], r->walk.values);
	}
}

static void check_all(struct kvt_reader *r)
{
	const struct kvt_daemon_config *before = r->before;
	struct kvt_daemon_config *now = r->walk.values;

	check_taken(r);
	check_addresses(r, now);
	check_segment(r, now);
	check_order(r, OWN_lease_ttl_ns, OWN_lease_ttl_max_ns, now->lease_ttl_ns,
		now->lease_ttl_max_ns);
	check_order(r, OWN_lease_wait_ns, OWN_lease_wait_max_ns, now->lease_wait_ns,
		now->lease_wait_max_ns);
	if (now->segment_bytes != 0 && r->walk.met[OWN_object_bytes].given)
		check_order(r, OWN_object_bytes, OWN_segment_bytes, now->object_bytes,
			now->segment_bytes);
	kvt_reader_cache_rules(r, OWN_COUNT, &now->cache, &before->cache);
}

/* --- the whole -------------------------------------------------------------------------------- */

void kvt_daemon_config_init(struct kvt_daemon_config *config)
{
	memset(config, 0, sizeof(*config));
	kvt_config_init(&config->cache, sizeof(config->cache));
	for (size_t i = 0; i < OWN_COUNT; i++)
		kvt_setting_set_default(&settings[i], config);
}

void kvt_daemon_config_finish(struct kvt_daemon_config *config)
{
	kvt_config_texts_free(config->texts);
	free(config->buckets);
	kvt_daemon_config_init(config);
}

/* Keeps the texts of an earlier read, since values that were not given again point at them. */
enum kvt_status kvt_daemon_config_read(struct kvt_daemon_config *config, const char *name,
	const char *yaml, size_t len, char **report)
{
	struct kvt_daemon_config now = *config;
	struct kvt_reader reader = {
		.walk = {.schema = &table, .values = &now, .list = read_buckets},
		.before = config,
		.rules = check_all,
	};
	enum kvt_status status;

	*report = NULL;
	now.buckets = NULL;
	now.bucket_count = 0;
	status = kvt_reader_run(&reader, name, yaml, len, &now.texts, report);
	if (status == KVT_ENOMEM) {
		free(now.buckets);
		return status;
	}
	if (now.buckets == NULL) {
		now.buckets = config->buckets;
		now.bucket_count = config->bucket_count;
	} else {
		free(config->buckets);
	}
	*config = now;
	return status;
}

/* --- printing --------------------------------------------------------------------------------- */

static bool has_keys(const struct kvw_schema *t, const char *section)
{
	size_t len = strlen(section);
	bool found = false;

	for (size_t i = 0; i < t->key_count; i++)
		found = found || (strncmp(t->keys[i].path, section, len) == 0 &&
					 t->keys[i].path[len] == '.');
	return found;
}

/* Copies the table of keys without those that the daemon sets itself. */
static struct kvw_schema visible(struct kvw_key rows[SETTINGS])
{
	struct kvw_schema shown = table;
	size_t count = 0;

	for (size_t i = 0; i < SETTINGS; i++)
		if (!is_taken(i))
			rows[count++] = settings[i];
	shown.keys = rows;
	shown.key_count = count;
	while (!has_keys(&shown, sections[shown.section_count - 1].path))
		shown.section_count--; /* no key of the section is left */
	return shown;
}

void kvt_daemon_reference(FILE *out)
{
	struct kvw_key rows[SETTINGS];
	struct kvw_schema shown = visible(rows);

	fputs("# Configuration of kvtierd\n\n"
	      "Written by `kvtierd reference` from `daemon_settings.def` and the cache's\n"
	      "`settings.def`; do not edit.\n\n"
	      "A YAML file of mappings; every key may be left out, and so may the file. If the "
	      "file has\n"
	      "mistakes, kvtierd prints each with its line and column and does not start;\n"
	      "`kvtierd check FILE` prints them together with the values that would be used.\n\n"
	      "Sizes are `64MiB` (KiB, MiB, GiB, TiB, or plain bytes), durations `250ms`, `2s`,\n"
	      "`10m`, `1h`.\n\n"
	      "## buckets\n\n"
	      "A list: limits of single buckets in place of `cache.protect.tenant_l1_bytes` and\n"
	      "`cache.protect.tenant_nvme_bytes`, which hold for each tenant that a client names (engines\n"
	      "of libkvtier name their cache salts), else for each bucket. A bucket in this list is one\n"
	      "tenant, whatever its clients name.\n\n"
	      "    buckets:\n"
	      "      - {name: lmcache, memory: 10GiB, nvme: 100GiB}\n\n"
	      "| Key | Type | What it does |\n|---|---|---|\n",
		out);
	for (size_t i = 0; i < BUCKET_SETTINGS; i++)
		fprintf(out, "| `%s` | %s | %s |\n", bucket_settings[i].path,
			bucket_settings[i].type->name, bucket_settings[i].text);
	kvw_reference_sections(out, &shown);
}

void kvt_daemon_example(FILE *out)
{
	struct kvw_key rows[SETTINGS];
	struct kvw_schema shown = visible(rows);

	fputs("# Every key of kvtierd with its default. Written by `kvtierd reference "
	      "--example`.\n",
		out);
	kvw_reference_example(out, &shown);
	fputs("\n# Limits of single buckets.\nbuckets: []\n", out);
}

void kvt_daemon_config_print(const struct kvt_daemon_config *config, FILE *out)
{
	char value[KVT_SETTING_PRINT];

	for (size_t i = 0; i < SETTINGS; i++) {
		if (is_taken(i))
			continue;
		kvt_setting_show(&settings[i], config, value);
		fprintf(out, "%s: %s\n", settings[i].path, value);
	}
	for (size_t i = 0; i < config->bucket_count; i++)
		fprintf(out, "buckets[%zu]: %s memory %llu nvme %llu\n", i,
			config->buckets[i].bucket,
			(unsigned long long)config->buckets[i].memory_bytes,
			(unsigned long long)config->buckets[i].nvme_bytes);
}
