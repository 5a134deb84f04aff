/*
 * lmcache_controller.c - LMCache's controller keys as controller.* settings.
 *
 * These keys count only where `enable_controller` is true, and for ranks that `lmcache_worker_ids` names. A controller
 * must name chunks like its workers: so the hash and its seed are translated, too. kvtier always sends heartbeats,
 * which LMCache sends only where configured: controllers forget a silent worker.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "lmcache/lmcache.h"

#define TEXT_ROOM 2304
#define SEED      "PYTHONHASHSEED"

static const struct kvt_lmcache_value *valid(const struct kvt_lmcache_reading *r, size_t key)
{
	const struct kvt_lmcache_value *value = &r->values[key];

	return value->valid && (value->text == NULL || value->len > 0) ? value : NULL;
}

/* Joins a list, or one entry, or texts with commas between them, in the last of these forms. */
static void join(const struct kvt_lmcache_value *value, char *out, size_t room)
{
	size_t used = 0;

	out[0] = '\0';
	if (value->text != NULL) {
		snprintf(out, room, "%s", value->text);
		return;
	}
	for (const struct kvw_node *n = value->node->first; n != NULL && used < room; n = n->next) {
		int wrote = snprintf(out + used, room - used, "%s%s", used > 0 ? "," : "",
			n->kind == KVW_NODE_SCALAR ? n->text : "?");

		used += wrote > 0 ? (size_t)wrote : 0;
	}
}

/* Returns whether this rank reports to the controller; false if the list omits it. */
static bool is_named(struct kvt_lmcache_reading *r)
{
	const struct kvt_lmcache_value *ids = valid(r, KVT_LMC_lmcache_worker_ids);
	char list[TEXT_ROOM];
	char *rest = list;

	if (ids == NULL)
		return true;
	join(ids, list, sizeof(list));
	while (*rest != '\0') {
		char *end = rest;
		unsigned long id = strtoul(rest, &end, 10);

		if (end != rest && id == r->source->rank)
			return true;
		rest = end + strcspn(end, ",");
		rest += *rest == ',';
	}
	kvt_lmcache_note(r, KVT_LMC_lmcache_worker_ids,
		"rank %" PRIu32 " is not listed: it reports nothing to the controller",
		r->source->rank);
	return false;
}

/* Sets "HOST:PORT" as LMCache writes it, or with its protocol. */
static void put_address(struct kvt_lmcache_reading *r, size_t key, const char *path)
{
	const struct kvt_lmcache_value *value = valid(r, key);
	char text[TEXT_ROOM];

	if (value == NULL)
		return;
	snprintf(text, sizeof(text), "%s%s", strstr(value->text, "://") == NULL ? "tcp://" : "",
		value->text);
	kvt_lmcache_put(r, key, path, text);
}

static void put_text(struct kvt_lmcache_reading *r, size_t key, const char *path)
{
	const struct kvt_lmcache_value *value = valid(r, key);
	char text[TEXT_ROOM];

	if (value == NULL)
		return;
	join(value, text, sizeof(text));
	kvt_lmcache_put(r, key, path, text);
}

/* Sets seconds where `unit` is "s", else a plain number. */
static void put_count(struct kvt_lmcache_reading *r, size_t key, const char *path, const char *unit)
{
	const struct kvt_lmcache_value *value = valid(r, key);
	char text[32];

	if (value == NULL)
		return;
	snprintf(text, sizeof(text), "%" PRId64 "%s", value->count, unit);
	kvt_lmcache_put(r, key, path, text);
}

static void put_hash(struct kvt_lmcache_reading *r)
{
	const char *seed = kvt_lmcache_variable(r->source->variables, SEED, sizeof(SEED) - 1);

	put_count(r, KVT_LMC_chunk_size, "controller.chunk_size", "");
	put_text(r, KVT_LMC_pre_caching_hash_algorithm, "controller.hash");
	kvt_lmcache_put(r, KVT_LMC_enable_controller, "controller.hash_seed",
		seed != NULL && *seed != '\0' ? seed : "unset");
}

void kvt_lmcache_settle_controller(struct kvt_lmcache_reading *r)
{
	const struct kvt_lmcache_value *enabled = valid(r, KVT_LMC_enable_controller);

	if (enabled == NULL || !enabled->flag || !is_named(r))
		return;
	if (valid(r, KVT_LMC_controller_pull_url) == NULL) {
		kvt_lmcache_mistake(r, KVT_LMC_enable_controller,
			"found true, expected `controller_pull_url` to be set too: no controller "
			"gets reports");
		return;
	}
	put_address(r, KVT_LMC_controller_pull_url, "controller.pull");
	put_address(r, KVT_LMC_controller_reply_url, "controller.reply");
	put_text(r, KVT_LMC_lmcache_instance_id, "controller.instance");
	put_text(r, KVT_LMC_lmcache_worker_ports, "controller.ports");
	put_count(r, KVT_LMC_lmcache_worker_heartbeat_time, "controller.heartbeat_time", "s");
	put_count(
		r, KVT_LMC_lmcache_worker_heartbeat_delay_time, "controller.heartbeat_delay", "s");
	put_count(r, KVT_LMC_pin_timeout_sec, "controller.pin_time", "s");
	put_count(r, KVT_LMC_EXTRA_full_sync_startup_delay_s, "controller.sync_delay", "s");
	put_count(r, KVT_LMC_EXTRA_worker_socket_recv_timeout_ms, "controller.answer_time", "ms");
	put_count(r, KVT_LMC_EXTRA_full_sync_batch_size, "controller.sync_batch", "");
	put_hash(r);
}
