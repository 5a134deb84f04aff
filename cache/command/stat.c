/*
 * stat.c - `kvtier stat`: shows the contents of a store, with or without a running owner.
 */
#include "command/stat.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "admin/admin.h"
#include "admin/admin_text.h"
#include "chunk/fragment_mark.h"
#include "command/command.h"
#include "command/format.h"
#include "command/output.h"

#define TENANTS_SHOWN 10
/* time for an owner's answer: the owner may be busy with an erase */
#define ANSWER_NS     3000000000u

/* --- summing up ------------------------------------------------------------------------------- */

/* A hash table of tenants, by the first bytes of the tenant's name, which is a hash. */
struct sums {
	struct kvt_stat_tenant *slots;
	size_t mask;
};

static struct kvt_stat_tenant *slot_of(struct sums *sums, const struct kvt_tenant *tenant)
{
	uint64_t at;

	memcpy(&at, tenant->bytes, sizeof(at));
	for (at &= sums->mask;; at = (at + 1) & sums->mask) {
		struct kvt_stat_tenant *slot = &sums->slots[at];

		if (slot->chunks == 0 || memcmp(&slot->tenant, tenant, sizeof(*tenant)) == 0)
			return slot;
	}
}

static void count_use(struct kvt_stat *s, const struct kvt_inspect_chunk *c, int64_t wall_ns)
{
	double ago;

	if (c->expires_wall_ns == INT64_MAX)
		return;
	s->mortal++;
	s->expired += c->expires_wall_ns <= wall_ns;
	if (c->ttl_ns == 0)
		return;
	ago = ((double)wall_ns - ((double)c->expires_wall_ns - (double)c->ttl_ns)) / 1e9;
	ago = ago < 0 ? 0 : ago;
	if (s->newest_use_s < 0 || ago < s->newest_use_s)
		s->newest_use_s = ago;
	if (ago > s->oldest_use_s)
		s->oldest_use_s = ago;
}

static void count_chunk(
	struct kvt_stat *s, struct sums *sums, const struct kvt_inspect_chunk *c, int64_t wall_ns)
{
	struct kvt_stat_tenant *tenant = slot_of(sums, &c->tenant);

	s->tenant_count += tenant->chunks == 0;
	tenant->tenant = c->tenant;
	tenant->chunks++;
	tenant->bytes += c->bytes;
	tenant->disk_bytes += c->disk_bytes;
	s->tokens += c->tokens;
	s->roots += !c->has_parent;
	if (kvt_key_is_fragments(&c->key)) {
		s->fragments += !c->has_parent;
		s->fragment_chunks++;
		s->fragment_tokens += c->tokens;
		s->fragment_bytes += c->disk_bytes;
	}
	s->in_pieces += c->extents > 1;
	s->summed_by_pieces += c->has_pieces;
	if (s->smallest == 0 || c->bytes < s->smallest)
		s->smallest = c->bytes;
	if (c->bytes > s->largest)
		s->largest = c->bytes;
	count_use(s, c, wall_ns);
}

/* Compares tenants: those with most bytes on disk come first, then by name; empty slots come
 * last. */
static int by_size(const void *a, const void *b)
{
	const struct kvt_stat_tenant *x = a, *y = b;

	if (x->disk_bytes != y->disk_bytes)
		return x->disk_bytes < y->disk_bytes ? 1 : -1;
	if (x->chunks != y->chunks)
		return x->chunks < y->chunks ? 1 : -1;
	return memcmp(&x->tenant, &y->tenant, sizeof(x->tenant));
}

bool kvt_stat_collect(const struct kvt_inspect *x, int64_t wall_ns, struct kvt_stat *out)
{
	struct kvt_stat s = {.oldest_use_s = -1, .newest_use_s = -1};
	size_t count = kvt_inspect_count(x), room = 16;
	struct sums sums;

	kvt_inspect_store(x, &s.store);
	while (room < 2 * (s.store.tenants + 1))
		room *= 2;
	sums = (struct sums){calloc(room, sizeof(*sums.slots)), room - 1};
	if (sums.slots == NULL)
		return false;
	for (size_t i = 0; i < count; i++) {
		struct kvt_inspect_chunk chunk;

		kvt_inspect_chunk(x, i, &chunk);
		count_chunk(&s, &sums, &chunk, wall_ns);
	}
	qsort(sums.slots, room, sizeof(*sums.slots), by_size);
	s.tenants = sums.slots;
	*out = s;
	return true;
}

/* Returns the entry of the tenant; NULL: memory is short. */
static struct kvt_stat_tenant *place_of(struct kvt_stat *s, const struct kvt_tenant *tenant)
{
	struct kvt_stat_tenant *larger;
	size_t at = 0;

	while (at < s->tenant_count &&
		memcmp(&s->tenants[at].tenant, tenant, sizeof(*tenant)) != 0)
		at++;
	if (at < s->tenant_count)
		return &s->tenants[at];
	larger = reallocarray(s->tenants, at + 1, sizeof(*larger));
	if (larger == NULL)
		return NULL;
	s->tenants = larger;
	s->tenants[s->tenant_count++] = (struct kvt_stat_tenant){.tenant = *tenant};
	return &s->tenants[at];
}

bool kvt_stat_add_l2(struct kvt_stat *s, const struct kvt_tenant_list *list)
{
	for (size_t i = 0; i < list->count; i++) {
		struct kvt_stat_tenant *tenant = place_of(s, &list->at[i].tenant);

		if (tenant == NULL)
			return false;
		tenant->l2_chunks = list->at[i].chunks;
		tenant->l2_bytes = list->at[i].bytes;
	}
	s->has_l2 = list->count > 0;
	return true;
}

bool kvt_stat_add_l1(struct kvt_stat *s, const struct kvt_tenant_list *list)
{
	for (size_t i = 0; i < list->count; i++) {
		struct kvt_stat_tenant *tenant = place_of(s, &list->at[i].tenant);

		if (tenant == NULL)
			return false;
		tenant->l1_chunks = list->at[i].chunks;
		tenant->l1_bytes = list->at[i].bytes;
	}
	s->has_l1 = true;
	s->l1_others = list->others;
	return true;
}

void kvt_stat_finish(struct kvt_stat *s)
{
	free(s->tenants);
	s->tenants = NULL;
}

/* --- the verb --------------------------------------------------------------------------------- */

static int64_t changed_at(const char *folder)
{
	char path[4096];
	struct stat info;
	int n = snprintf(path, sizeof(path), "%s/log", folder);

	return n > 0 && (size_t)n < sizeof(path) && stat(path, &info) == 0
		       ? (int64_t)info.st_mtim.tv_sec
		       : 0;
}

/* Asks a store's owner for the contents of its memory and of its shared tier, and for its reuse of
 * fragments, if it knows them. */
static void ask_owner(struct kvt_stat *s)
{
	char request[64], *answer = malloc(KVT_ADMIN_LINE);
	struct kvt_tenant_list list;

	kvt_admin_write_tenants(KVT_TENANTS_LISTED, request, sizeof(request));
	if (answer != NULL && kvt_admin_ask(s->folder, request, ANSWER_NS, answer) == KVT_OK &&
		kvt_admin_read_listed(answer, &list))
		(void)kvt_stat_add_l1(s, &list);
	kvt_admin_write_shared(KVT_TENANTS_LISTED, request, sizeof(request));
	if (answer != NULL && s->has_l1 && kvt_admin_ask(s->folder, request, ANSWER_NS, answer) == KVT_OK &&
		kvt_admin_read_listed(answer, &list))
		(void)kvt_stat_add_l2(s, &list);
	if (answer != NULL && kvt_admin_ask(s->folder, KVT_ADMIN_FRAGMENTS, ANSWER_NS, answer) == KVT_OK)
		s->has_reuse = kvt_admin_read_reused(answer, &s->reuse);
	free(answer);
}

/* Shows one store; appends it to `list` if there is one. */
static int show(const char *folder, const struct kvt_surroundings *s, size_t most, json_t *list)
{
	char why[KVT_REASON_BYTES] = "";
	struct kvt_inspect *x = NULL;
	enum kvt_status status = kvt_inspect_open(folder, NULL, s, why, &x);
	struct kvt_stat stat = {0};
	int result;

	if (status != KVT_OK) {
		fprintf(stderr, "kvtier stat: %s: %s%s%s\n", folder, kvt_status_text(status),
			why[0] != '\0' ? ": " : "", why);
		return KVT_EXIT_FAILED;
	}
	if (!kvt_stat_collect(x, kvt_wall(s), &stat)) {
		fputs("kvtier stat: no memory\n", stderr);
		kvt_inspect_close(x);
		return KVT_EXIT_FAILED;
	}
	stat.folder = folder;
	stat.changed_wall_s = changed_at(folder);
	kvt_store_owner(folder, &stat.owner);
	if (stat.owner.alive)
		ask_owner(&stat);
	if (list == NULL)
		kvt_stat_print(&stat, most, kvt_wall(s) / 1000000000, stdout);
	result = list != NULL ? kvt_json_add_take("stat", list, kvt_stat_json(&stat)) : KVT_EXIT_OK;
	kvt_stat_finish(&stat);
	kvt_inspect_close(x);
	return result;
}

int kvt_command_stat(int argc, char **argv)
{
	bool json = false, all = false;
	const struct kvt_option options[] = {{"--json", NULL, &json}, {"--all", NULL, &all}, {0}};
	struct kvt_surroundings surroundings;
	struct kvt_stores stores;
	const char *path[1];
	int result = KVT_EXIT_OK;
	json_t *list;

	if (kvt_options_take(argc, argv, options, path, 1) != 1)
		return argc == 1 ? kvt_command_wrong("stat", "expected a store's folder")
				 : KVT_EXIT_USAGE;
	if (!kvt_stores_find("stat", path[0], &stores))
		return KVT_EXIT_FAILED;
	list = json ? json_array() : NULL;
	kvt_surroundings_init(&surroundings, NULL);
	for (size_t i = 0; i < stores.count; i++) {
		int one = show(
			stores.folders[i], &surroundings, all ? SIZE_MAX : TENANTS_SHOWN, list);

		result = one > result ? one : result;
	}
	kvt_stores_finish(&stores);
	return list != NULL ? kvt_json_print_take("stat", list, result) : result;
}
