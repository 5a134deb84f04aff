/*
 * sim_lmcache_wire.c - written with the msgpack writer of src/upstream/kv, whose bytes are checked against
 * recorded ones; read member by member, in any order, unknown ones skipped.
 */
#include <stdlib.h>
#include <string.h>

#include "msgpack.h"
#include "sim_lmcache_wire.h"

#define HEAD_MAX 512u /* of a message without its texts and lists */

/* Room for `more` bytes beyond the head and the texts that every message has. */
static bool begin(struct kvb_buf *out, const struct kvb_lmc_identity *who, const char *text,
	size_t more, struct kvw_mp_out *mp)
{
	size_t most = HEAD_MAX + more + (text == NULL ? 0 : strlen(text));

	if (who != NULL)
		most += strlen(who->instance) + strlen(who->ip);
	if (!kvb_buf_reserve(out, most))
		return false;
	kvw_mp_out_init(mp, out->data + out->len, most);
	return true;
}

static void end(struct kvb_buf *out, const struct kvw_mp_out *mp)
{
	out->len += mp->len;
	out->failed |= mp->full;
}

static void put_text(struct kvw_mp_out *mp, const char *text)
{
	kvw_mp_put_str(mp, kvw_slice_of(text));
}

static void put_member(struct kvw_mp_out *mp, const char *name, const char *value)
{
	put_text(mp, name);
	put_text(mp, value);
}

static void put_count(struct kvw_mp_out *mp, const char *name, uint64_t value)
{
	put_text(mp, name);
	kvw_mp_put_uint(mp, value);
}

static void put_key(struct kvw_mp_out *mp, const struct kvb_lmc_identity *who, uint64_t key)
{
	if (who->signed_keys)
		kvw_mp_put_int(mp, (int64_t)key);
	else
		kvw_mp_put_uint(mp, key);
}

/* The members that every message of a worker begins with. */
static void put_head(struct kvw_mp_out *mp, uint32_t members, const char *type,
	const struct kvb_lmc_identity *who)
{
	kvw_mp_put_map(mp, members);
	put_member(mp, "type", type);
	put_member(mp, "instance_id", who->instance);
	put_count(mp, "worker_id", who->worker);
}

void kvb_lmc_put_presence(struct kvb_buf *out, const char *type, const struct kvb_lmc_identity *who)
{
	bool leaves = strcmp(type, "DeRegisterMsg") == 0;
	struct kvw_mp_out mp;

	if (!begin(out, who, type, 0, &mp))
		return;
	put_head(&mp, leaves ? 5 : 6, type, who);
	put_member(&mp, "ip", who->ip);
	put_count(&mp, "port", who->port);
	if (!leaves) {
		put_text(&mp, "peer_init_url");
		kvw_mp_put_nil(&mp);
	}
	end(out, &mp);
}

void kvb_lmc_put_operations(struct kvb_buf *out, const struct kvb_lmc_identity *who,
	const struct kvb_lmc_operation *operations, uint32_t count)
{
	struct kvw_mp_out mp;

	if (!begin(out, who, NULL, (size_t)count * 64, &mp))
		return;
	put_head(&mp, 5, "BatchedKVOperationMsg", who);
	put_member(&mp, "location", KVB_LMC_LOCATION);
	put_text(&mp, "operations");
	kvw_mp_put_array(&mp, count);
	for (uint32_t i = 0; i < count; i++) {
		kvw_mp_put_map(&mp, 3);
		put_member(&mp, "op_type", operations[i].admit ? "admit" : "evict");
		put_text(&mp, "key");
		put_key(&mp, who, operations[i].key);
		put_count(&mp, "seq_num", operations[i].number);
	}
	end(out, &mp);
}

static void put_sync_head(struct kvw_mp_out *mp, uint32_t members, const char *type,
	const struct kvb_lmc_identity *who, const char *sync_id)
{
	put_head(mp, members, type, who);
	put_member(mp, "location", KVB_LMC_LOCATION);
	put_member(mp, "sync_id", sync_id);
}

void kvb_lmc_put_sync_start(struct kvb_buf *out, const struct kvb_lmc_identity *who,
	const char *sync_id, uint32_t keys, uint32_t batches)
{
	struct kvw_mp_out mp;

	if (!begin(out, who, sync_id, 0, &mp))
		return;
	put_sync_head(&mp, 7, "FullSyncStartMsg", who, sync_id);
	put_count(&mp, "total_keys", keys);
	put_count(&mp, "batch_count", batches);
	end(out, &mp);
}

void kvb_lmc_put_sync_batch(struct kvb_buf *out, const struct kvb_lmc_identity *who,
	const char *sync_id, uint32_t batch, const uint64_t *keys, uint32_t count)
{
	struct kvw_mp_out mp;

	if (!begin(out, who, sync_id, (size_t)count * 9, &mp))
		return;
	put_sync_head(&mp, 7, "FullSyncBatchMsg", who, sync_id);
	put_count(&mp, "batch_id", batch);
	put_text(&mp, "keys");
	kvw_mp_put_array(&mp, count);
	for (uint32_t i = 0; i < count; i++)
		put_key(&mp, who, keys[i]);
	end(out, &mp);
}

void kvb_lmc_put_sync_end(
	struct kvb_buf *out, const struct kvb_lmc_identity *who, const char *sync_id, uint32_t keys)
{
	struct kvw_mp_out mp;

	if (!begin(out, who, sync_id, 0, &mp))
		return;
	put_sync_head(&mp, 6, "FullSyncEndMsg", who, sync_id);
	put_count(&mp, "actual_total_keys", keys);
	end(out, &mp);
}

void kvb_lmc_put_sync_status(
	struct kvb_buf *out, const struct kvb_lmc_identity *who, const char *sync_id)
{
	struct kvw_mp_out mp;

	if (!begin(out, who, sync_id, 0, &mp))
		return;
	put_head(&mp, 4, "FullSyncStatusMsg", who);
	put_member(&mp, "sync_id", sync_id);
	end(out, &mp);
}

void kvb_lmc_put_number(struct kvb_buf *out, const char *type, const char *member, uint64_t number)
{
	struct kvw_mp_out mp;

	if (!begin(out, NULL, type, 0, &mp))
		return;
	kvw_mp_put_map(&mp, 2);
	put_member(&mp, "type", type);
	put_count(&mp, member, number);
	end(out, &mp);
}

void kvb_lmc_put_error(struct kvb_buf *out, const char *text)
{
	struct kvw_mp_out mp;

	if (!begin(out, NULL, text, 0, &mp))
		return;
	kvw_mp_put_map(&mp, 2);
	put_member(&mp, "type", "ErrorMsg");
	put_member(&mp, "error", text);
	end(out, &mp);
}

/* A text of at most size - 1 bytes; a value of another type is passed and leaves "". */
static bool read_text(struct kvw_mp *mp, char *out, size_t size)
{
	struct kvw_slice text;

	out[0] = '\0';
	if (kvw_mp_str(mp, &text) != KVW_OK)
		return kvw_mp_skip(mp) == KVW_OK;
	if (text.len < size) {
		memcpy(out, text.data, text.len);
		out[text.len] = '\0';
	}
	return true;
}

static bool read_extra_config(struct kvw_mp *mp, struct kvb_lmc_message *m)
{
	struct kvw_slice name;
	uint32_t pairs;

	if (kvw_mp_map(mp, &pairs) != KVW_OK)
		return kvw_mp_skip(mp) == KVW_OK;
	while (pairs-- > 0) {
		if (kvw_mp_str(mp, &name) != KVW_OK)
			return false;
		if (kvw_slice_equal(name, KVW_SLICE("heartbeat_url"))
				? !read_text(mp, m->heartbeat_url, sizeof(m->heartbeat_url))
				: kvw_mp_skip(mp) != KVW_OK)
			return false;
	}
	return true;
}

/* One command of a heartbeat's answer. */
static bool read_command(struct kvw_mp *mp, struct kvb_lmc_message *m)
{
	struct kvw_slice name;
	char type[32];
	uint32_t pairs;

	if (kvw_mp_map(mp, &pairs) != KVW_OK)
		return false;
	while (pairs-- > 0) {
		if (kvw_mp_str(mp, &name) != KVW_OK)
			return false;
		if (!kvw_slice_equal(name, KVW_SLICE("command_type"))) {
			if (kvw_mp_skip(mp) != KVW_OK)
				return false;
			continue;
		}
		if (!read_text(mp, type, sizeof(type)))
			return false;
		m->full_sync |= strcmp(type, "full_sync") == 0;
	}
	return true;
}

static bool read_commands(struct kvw_mp *mp, struct kvb_lmc_message *m)
{
	uint32_t count;

	if (kvw_mp_array(mp, &count) != KVW_OK)
		return false;
	while (count-- > 0)
		if (!read_command(mp, m))
			return false;
	return true;
}

static bool read_missing(struct kvw_mp *mp, struct kvb_lmc_message *m)
{
	uint32_t count;
	uint64_t number;

	if (kvw_mp_array(mp, &count) != KVW_OK)
		return false;
	while (count-- > 0) {
		if (kvw_mp_uint(mp, UINT32_MAX, &number) != KVW_OK)
			return false;
		if (m->missing_count < sizeof(m->missing) / sizeof(m->missing[0]))
			m->missing[m->missing_count++] = (uint32_t)number;
	}
	return true;
}

static bool read_tokens(struct kvw_mp *mp, struct kvb_lmc_message *m)
{
	uint32_t count;
	uint64_t token;

	if (kvw_mp_take_nil(mp))
		return true;
	if (m->tokens != NULL || kvw_mp_array(mp, &count) != KVW_OK)
		return false;
	m->tokens = malloc(((size_t)count + 1) * sizeof(*m->tokens)); /* a byte each is there */
	if (m->tokens == NULL)
		return false;
	for (; m->token_count < count; m->token_count++) {
		if (kvw_mp_uint(mp, UINT32_MAX, &token) != KVW_OK)
			return false;
		m->tokens[m->token_count] = (uint32_t)token;
	}
	return true;
}

static bool read_member(struct kvw_mp *mp, struct kvw_slice name, struct kvb_lmc_message *m)
{
	if (kvw_slice_equal(name, KVW_SLICE("type")))
		return read_text(mp, m->type, sizeof(m->type));
	if (kvw_slice_equal(name, KVW_SLICE("extra_config")))
		return read_extra_config(mp, m);
	if (kvw_slice_equal(name, KVW_SLICE("commands")))
		return read_commands(mp, m);
	if (kvw_slice_equal(name, KVW_SLICE("accepted")))
		return kvw_mp_bool(mp, &m->accepted) == KVW_OK;
	if (kvw_slice_equal(name, KVW_SLICE("can_exit_freeze")))
		return kvw_mp_bool(mp, &m->can_exit_freeze) == KVW_OK;
	if (kvw_slice_equal(name, KVW_SLICE("missing_batches")))
		return read_missing(mp, m);
	if (kvw_slice_equal(name, KVW_SLICE("worker_event_id")))
		return read_text(mp, m->event_id, sizeof(m->event_id));
	if (kvw_slice_equal(name, KVW_SLICE("location")))
		return read_text(mp, m->location, sizeof(m->location));
	if (kvw_slice_equal(name, KVW_SLICE("tokens")))
		return read_tokens(mp, m);
	return kvw_mp_skip(mp) == KVW_OK;
}

bool kvb_lmc_read(const void *data, size_t len, struct kvb_lmc_message *out)
{
	struct kvw_slice name;
	struct kvw_mp mp;
	uint32_t pairs;

	memset(out, 0, sizeof(*out));
	kvw_mp_init(&mp, data, len);
	if (kvw_mp_map(&mp, &pairs) != KVW_OK)
		return false;
	while (pairs-- > 0) {
		if (kvw_mp_str(&mp, &name) != KVW_OK || !read_member(&mp, name, out)) {
			free(out->tokens);
			out->tokens = NULL;
			return false;
		}
	}
	return true;
}
