/*
 * lmcache_settle.c - translates LMCache's values to kvtier's settings and keys of the connector.
 *
 * One common function translates the keys that lmcache.def calls honoured; this file has one
 * function for each tier's mapped keys.
 *
 * Sizes. LMCache's sizes are per worker, and so are the resulting settings: the connector opens a
 * cache of this size in each rank, and a node holds that size times its ranks. A missing size means
 * LMCache's default of 5 GiB, too, not `auto`.
 */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lmcache/lmcache.h"

#define GIB       ((double)(1 << 30))
/* memory for chunks on their way to lower tiers, if none is configured */
#define PASSAGE   "256MiB"
#define TEXT_ROOM 2304     /* room for a path or URL, for which settings.def allows 2048 bytes */

/* --- writing ---------------------------------------------------------------------------------- */

/* Sets a size in bytes, which is raised to the minimum of the setting. */
static void put_size(
	struct kvt_lmcache_reading *r, size_t from, const char *path, double gib, uint64_t least)
{
	double bytes = gib * GIB;
	char text[32];

	snprintf(text, sizeof(text), "%" PRIu64,
		bytes < (double)least ? least : (uint64_t)(bytes + 0.5));
	kvt_lmcache_put(r, from, path, text);
}

static const struct kvt_lmcache_value *valid(const struct kvt_lmcache_reading *r, size_t key)
{
	return r->values[key].valid ? &r->values[key] : NULL;
}

/* --- honoured keys ---------------------------------------------------------------------------- */

static void as_text(const struct kvt_lmcache_key *key, const struct kvt_lmcache_value *value,
	char *out, size_t room)
{
	if (key->type == KVT_LMCACHE_FLAG)
		snprintf(out, room, "%s", value->flag ? "true" : "false");
	else if (key->type == KVT_LMCACHE_TEXT)
		snprintf(out, room, "%s", value->text);
	else if (strcmp(key->unit, "s") == 0)
		snprintf(out, room, "%.0fms", ceil(value->number * 1000));
	else
		snprintf(out, room, "%" PRId64 "%s", value->count,
			strcmp(key->unit, "ms") == 0 ? "ms" : "");
}

static void settle_honoured(struct kvt_lmcache_reading *r)
{
	char text[TEXT_ROOM];

	for (size_t i = 0; i < KVT_LMC_COUNT && r->err == KVW_OK; i++) {
		const struct kvt_lmcache_key *key = &kvt_lmcache_keys[i];
		const struct kvt_lmcache_value *value = valid(r, i);

		if (value == NULL || key->fate != KVT_LMCACHE_HONOURED ||
			(key->type == KVT_LMCACHE_TEXT && value->len == 0))
			continue;
		as_text(key, value, text, sizeof(text));
		if (strchr(key->becomes, '.') != NULL) {
			kvt_lmcache_put(r, i, key->becomes, text);
		} else { /* the keys of the connector are numbers */
			text[strcspn(text, "m")] = '\0';
			kvt_lmcache_put_own(r, key->becomes, text);
		}
	}
}

static void settle_connector(struct kvt_lmcache_reading *r)
{
	const struct kvt_lmcache_value *value = valid(r, KVT_LMC_blocking_timeout_secs);
	char text[32];

	if (value == NULL)
		return;
	snprintf(text, sizeof(text), "%.0f", ceil(value->number * 1000));
	kvt_lmcache_put_own(r, "load_timeout_ms", text);
}

/* --- memory ----------------------------------------------------------------------------------- */

/* Reports a text such as "5 GiB of each of 4 ranks, 20 GiB together". */
static void report_ranks(struct kvt_lmcache_reading *r, size_t key, double gib)
{
	if (r->source->ranks > 1)
		kvt_lmcache_note(r, key,
			"%.10g GiB of each of %" PRIu32 " ranks, %.10g GiB together", gib,
			r->source->ranks, gib * r->source->ranks);
}

/* Sets the NUMA node of this rank, from extra_config.gpu_to_numa_mapping. */
static void settle_numa(struct kvt_lmcache_reading *r)
{
	const struct kvt_lmcache_value *mode = valid(r, KVT_LMC_numa_mode);
	const struct kvt_lmcache_value *map = valid(r, KVT_LMC_EXTRA_gpu_to_numa_mapping);
	char rank[16];

	if (mode == NULL || strcmp(mode->text, "auto") == 0 || mode->len == 0)
		return;
	if (strcmp(mode->text, "manual") != 0 || map == NULL) {
		kvt_lmcache_mistake(r, KVT_LMC_numa_mode,
			"found %s, expected auto, or manual together with "
			"`extra_config.gpu_to_numa_mapping`",
			strcmp(mode->text, "manual") == 0 ? "manual alone" : "another word");
		return;
	}
	snprintf(rank, sizeof(rank), "%" PRIu32, r->source->rank);
	for (const struct kvw_node *n = map->node->first; n != NULL; n = n->next)
		if (strcmp(n->key->text, rank) == 0 && n->kind == KVW_NODE_SCALAR)
			kvt_lmcache_put(
				r, KVT_LMC_EXTRA_gpu_to_numa_mapping, "l1.numa_node", n->text);
}

static void settle_memory(struct kvt_lmcache_reading *r)
{
	const struct kvt_lmcache_value *local = valid(r, KVT_LMC_local_cpu);
	const struct kvt_lmcache_value *size = valid(r, KVT_LMC_max_local_cpu_size);
	const struct kvt_lmcache_value *huge = valid(r, KVT_LMC_local_cpu_use_hugepages);
	double gib = size != NULL ? size->number
				  : strtod(kvt_lmcache_keys[KVT_LMC_max_local_cpu_size].def, NULL);

	if (local != NULL && !local->flag) {
		kvt_lmcache_put(r, KVT_LMC_local_cpu, "l1.capacity", PASSAGE);
		kvt_lmcache_note(r, KVT_LMC_local_cpu,
			"found false: " PASSAGE " of memory remain, through which chunks pass");
	} else if (gib == 0) {
		kvt_lmcache_put(r, KVT_LMC_max_local_cpu_size, "l1.capacity", PASSAGE);
		kvt_lmcache_note(r, KVT_LMC_max_local_cpu_size,
			"found 0: " PASSAGE " of memory remain, through which chunks pass");
	} else {
		put_size(r, KVT_LMC_max_local_cpu_size, "l1.capacity", gib, 1 << 20);
		if (size != NULL)
			report_ranks(r, KVT_LMC_max_local_cpu_size, gib);
	}
	if (huge != NULL && huge->flag)
		kvt_lmcache_put(r, KVT_LMC_local_cpu_use_hugepages, "l1.backing", "hugetlb");
	settle_numa(r);
}

static void settle_policy(struct kvt_lmcache_reading *r)
{
	static const char *const words[][2] = {
		{"LRU", "lru"}, {"LFU", "lfu"}, {"FIFO", "fifo"}, {"MRU", "default"}};
	const struct kvt_lmcache_value *value = valid(r, KVT_LMC_cache_policy);
	const char *policy = NULL;
	char shown[KVT_LMCACHE_SHOW];

	if (value == NULL)
		return;
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (strcasecmp(value->text, words[i][0]) == 0)
			policy = words[i][1];
	if (policy == NULL) {
		kvt_lmcache_mistake(r, KVT_LMC_cache_policy,
			"found %s, expected one of LRU, LFU, FIFO, MRU; the policy `default` "
			"applies",
			kvt_lmcache_show(value, KVT_LMC_cache_policy, shown));
		return;
	}
	if (strcmp(policy, "default") == 0)
		kvt_lmcache_note(
			r, KVT_LMC_cache_policy, "there is no MRU: the policy `default` applies");
	kvt_lmcache_put(r, KVT_LMC_cache_policy, "l1.policy", policy);
	kvt_lmcache_put(r, KVT_LMC_cache_policy, "nvme.policy", policy);
}

/* --- disk ------------------------------------------------------------------------------------- */

/* Chooses the folder of this rank from a list with commas. Returns false if there is none. */
static bool choose_folder(const char *list, uint32_t rank, struct kvw_slice *out, size_t *count)
{
	*count = 0;
	for (int pass = 0; pass < 2; pass++) {
		size_t i = 0;

		for (const char *at = list; *at != '\0'; at += *at == ',') {
			size_t len;

			at += strspn(at, " ");
			len = strcspn(at, ",");
			*out = (struct kvw_slice){at, len};
			at += len;
			while (out->len > 0 && out->data[out->len - 1] == ' ')
				out->len--;
			if (out->len > 0 && pass == 1 && i == rank % *count)
				return true;
			i += out->len > 0;
		}
		*count = i;
		if (i == 0)
			return false;
	}
	return false;
}

/* Makes an absolute path by LMCache's rules: "file://tmp/cache/" is in the working directory. */
static bool make_path(struct kvw_slice folder, char out[TEXT_ROOM], bool *relative)
{
	char here[TEXT_ROOM / 2] = "";
	int n;

	if (folder.len >= 7 && memcmp(folder.data, "file://", 7) == 0)
		folder = (struct kvw_slice){folder.data + 7, folder.len - 7};
	*relative = folder.len == 0 || folder.data[0] != '/';
	if (*relative && getcwd(here, sizeof(here)) == NULL)
		return false;
	while (folder.len > 0 && folder.data[folder.len - 1] == '/')
		folder.len--;
	n = snprintf(out, TEXT_ROOM, "%s%s%.*s/kvtier", here,
		*relative && folder.len > 0 ? "/" : "",
		(int)(folder.len < TEXT_ROOM ? folder.len : TEXT_ROOM), folder.data);
	return n > 0 && n < TEXT_ROOM;
}

static void settle_disk(struct kvt_lmcache_reading *r)
{
	const struct kvt_lmcache_value *disk = valid(r, KVT_LMC_local_disk);
	const struct kvt_lmcache_value *size = valid(r, KVT_LMC_max_local_disk_size);
	char path[TEXT_ROOM], quoted[KVW_REPORT_QUOTE];
	struct kvw_slice folder;
	bool relative = false;
	size_t count;

	if (disk == NULL || !choose_folder(disk->text, r->source->rank, &folder, &count)) {
		if (size != NULL && size->number > 0 && !r->values[KVT_LMC_local_disk].given)
			kvt_lmcache_note(r, KVT_LMC_max_local_disk_size,
				"without effect: `local_disk` is not set");
		return;
	}
	if (size == NULL || size->number == 0) {
		kvt_lmcache_mistake(r, KVT_LMC_local_disk,
			"found a folder without `max_local_disk_size`, expected its size in GiB as "
			"well: no disk is used, as with LMCache");
		return;
	}
	if (!make_path(folder, path, &relative)) {
		kvt_lmcache_mistake(r, KVT_LMC_local_disk,
			"found a path that is too long or that has no working directory, expected "
			"file:///FOLDER: no disk is used");
		return;
	}
	if (!kvt_lmcache_put(r, KVT_LMC_local_disk, "nvme.path", path))
		return;
	kvw_report_quote(quoted, path, strlen(path));
	if (relative)
		kvt_lmcache_note(r, KVT_LMC_local_disk,
			"found a path relative to the working directory: it is %s", quoted);
	if (count > 1)
		kvt_lmcache_note(r, KVT_LMC_local_disk, "rank %" PRIu32 " takes %s of %zu folders",
			r->source->rank, quoted, count);
	put_size(r, KVT_LMC_max_local_disk_size, "nvme.capacity", size->number, 16 << 20);
	report_ranks(r, KVT_LMC_max_local_disk_size, size->number);
}

void kvt_lmcache_settle(struct kvt_lmcache_reading *r)
{
	settle_honoured(r);
	settle_connector(r);
	settle_memory(r);
	settle_policy(r);
	settle_disk(r);
	kvt_lmcache_settle_remote(r);
	kvt_lmcache_settle_controller(r);
	kvt_lmcache_settle_blend(r);
}
