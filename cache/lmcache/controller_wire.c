/*
 * controller_wire.c - writes and reads messages. Writing uses the msgpack writer of
 * src/common/wire, whose bytes are checked against recorded ones. Reading goes member by member, in
 * any order, and skips unknown members.
 */
#include <stdlib.h>
#include <string.h>

#include "wire/msgpack.h"
#include "lmcache/controller_wire.h"

#define HEAD_MAX 512u /* most bytes of a message without its texts and lists */

void kvt_controller_buf_free(struct kvt_controller_buf *buf)
{
	free(buf->data);
	*buf = (struct kvt_controller_buf){0};
}

void kvt_controller_buf_clear(struct kvt_controller_buf *buf)
{
	buf->len = 0;
	buf->failed = false;
}

static bool reserve(struct kvt_controller_buf *buf, size_t more)
{
	size_t cap = buf->cap < 256 ? 256 : buf->cap;
	uint8_t *grown;

	if (buf->failed || buf->cap - buf->len >= more)
		return !buf->failed;
	while (cap - buf->len < more)
		cap *= 2;
	grown = realloc(buf->data, cap);
	buf->failed = grown == NULL;
	if (grown == NULL)
		return false;
	buf->data = grown;
	buf->cap = cap;
	return true;
}

/* Makes room for `more` bytes in addition to the head and the texts that every message has. */
static bool begin(struct kvt_controller_buf *out, const struct kvt_controller_sender *sender,
	const char *text, size_t more, struct kvw_mp_out *mp)
{
	size_t most = HEAD_MAX + more + (text == NULL ? 0 : strlen(text));

	if (sender != NULL)
		most += strlen(sender->instance) + strlen(sender->ip);
	if (!reserve(out, most))
		return false;
	kvw_mp_out_init(mp, out->data + out->len, most);
	return true;
}

static void end(struct kvt_controller_buf *out, const struct kvw_mp_out *mp)
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

static void put_key(struct kvw_mp_out *mp, const struct kvt_controller_sender *sender, uint64_t key)
{
	if (sender->signed_keys)
		kvw_mp_put_int(mp, (int64_t)key);
	else
		kvw_mp_put_uint(mp, key);
}

/* Writes the members with which every message of a worker begins. */
static void put_head(struct kvw_mp_out *mp, uint32_t members, const char *type,
	const struct kvt_controller_sender *sender)
{
	kvw_mp_put_map(mp, members);
	put_member(mp, "type", type);
	put_member(mp, "instance_id", sender->instance);
	put_count(mp, "worker_id", sender->worker);
}

void kvt_controller_put_presence(struct kvt_controller_buf *out, const char *type,
	const struct kvt_controller_sender *sender)
{
	bool leaves = strcmp(type, "DeRegisterMsg") == 0;
	struct kvw_mp_out mp;

	if (!begin(out, sender, type, 0, &mp))
		return;
	put_head(&mp, leaves ? 5 : 6, type, sender);
	put_member(&mp, "ip", sender->ip);
	put_count(&mp, "port", sender->port);
	if (!leaves) {
		put_text(&mp, "peer_init_url");
		kvw_mp_put_nil(&mp);
	}
	end(out, &mp);
}

void kvt_controller_put_operations(struct kvt_controller_buf *out,
	const struct kvt_controller_sender *sender, const char *location,
	const struct kvt_controller_operation *operations, uint32_t count)
{
	struct kvw_mp_out mp;

	if (!begin(out, sender, NULL, (size_t)count * 64, &mp))
		return;
	put_head(&mp, 5, "BatchedKVOperationMsg", sender);
	put_member(&mp, "location", location);
	put_text(&mp, "operations");
	kvw_mp_put_array(&mp, count);
	for (uint32_t i = 0; i < count; i++) {
		kvw_mp_put_map(&mp, 3);
		put_member(&mp, "op_type", operations[i].admit ? "admit" : "evict");
		put_text(&mp, "key");
		put_key(&mp, sender, operations[i].key);
		put_count(&mp, "seq_num", operations[i].number);
	}
	end(out, &mp);
}

static void put_sync_head(struct kvw_mp_out *mp, uint32_t members, const char *type,
	const struct kvt_controller_sender *sender, const char *location, const char *sync_id)
{
	put_head(mp, members, type, sender);
	put_member(mp, "location", location);
	put_member(mp, "sync_id", sync_id);
}

void kvt_controller_put_sync_start(struct kvt_controller_buf *out,
	const struct kvt_controller_sender *sender, const char *location, const char *sync_id,
	uint32_t keys, uint32_t batches)
{
	struct kvw_mp_out mp;

	if (!begin(out, sender, sync_id, 0, &mp))
		return;
	put_sync_head(&mp, 7, "FullSyncStartMsg", sender, location, sync_id);
	put_count(&mp, "total_keys", keys);
	put_count(&mp, "batch_count", batches);
	end(out, &mp);
}

void kvt_controller_put_sync_batch(struct kvt_controller_buf *out,
	const struct kvt_controller_sender *sender, const char *location, const char *sync_id,
	uint32_t batch, const uint64_t *keys, uint32_t count)
{
	struct kvw_mp_out mp;

	if (!begin(out, sender, sync_id, (size_t)count * 9, &mp))
		return;
	put_sync_head(&mp, 7, "FullSyncBatchMsg", sender, location, sync_id);
	put_count(&mp, "batch_id", batch);
	put_text(&mp, "keys");
	kvw_mp_put_array(&mp, count);
	for (uint32_t i = 0; i < count; i++)
		put_key(&mp, sender, keys[i]);
	end(out, &mp);
}

void kvt_controller_put_sync_end(struct kvt_controller_buf *out,
	const struct kvt_controller_sender *sender, const char *location, const char *sync_id,
	uint32_t keys)
{
	struct kvw_mp_out mp;

	if (!begin(out, sender, sync_id, 0, &mp))
		return;
	put_sync_head(&mp, 6, "FullSyncEndMsg", sender, location, sync_id);
	put_count(&mp, "actual_total_keys", keys);
	end(out, &mp);
}

void kvt_controller_put_sync_status(struct kvt_controller_buf *out,
	const struct kvt_controller_sender *sender, const char *sync_id)
{
	struct kvw_mp_out mp;

	if (!begin(out, sender, sync_id, 0, &mp))
		return;
	put_head(&mp, 4, "FullSyncStatusMsg", sender);
	put_member(&mp, "sync_id", sync_id);
	end(out, &mp);
}

void kvt_controller_put_number(
	struct kvt_controller_buf *out, const char *type, const char *member, uint64_t number)
{
	struct kvw_mp_out mp;

	if (!begin(out, NULL, type, 0, &mp))
		return;
	kvw_mp_put_map(&mp, 2);
	put_member(&mp, "type", type);
	put_count(&mp, member, number);
	end(out, &mp);
}

void kvt_controller_put_error(struct kvt_controller_buf *out, const char *text)
{
	struct kvw_mp_out mp;

	if (!begin(out, NULL, text, 0, &mp))
		return;
	kvw_mp_put_map(&mp, 2);
	put_member(&mp, "type", "ErrorMsg");
	put_member(&mp, "error", text);
	end(out, &mp);
}

/* Reads a text of at most size - 1 bytes; skips a value of another type and leaves "". */
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

static bool read_extra_config(struct kvw_mp *mp, struct kvt_controller_message *m)
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

/* Reads one command of a heartbeat's answer. */
static bool read_command(struct kvw_mp *mp, struct kvt_controller_message *m)
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

static bool read_commands(struct kvw_mp *mp, struct kvt_controller_message *m)
{
	uint32_t count;

	if (kvw_mp_array(mp, &count) != KVW_OK)
		return false;
	while (count-- > 0)
		if (!read_command(mp, m))
			return false;
	return true;
}

/* Reads a list of numbers; those after the first `most` are skipped. The array is on the heap and
 * belongs to the caller. */
static bool read_numbers(struct kvw_mp *mp, uint32_t most, uint32_t **out, uint32_t *out_count)
{
	uint32_t count, kept;
	uint64_t number;

	if (*out != NULL || kvw_mp_array(mp, &count) != KVW_OK)
		return false;
	kept = count < most ? count : most;
	*out = malloc(
		/* the message has at least one byte for each number */
		((size_t)kept + 1) * sizeof(**out));
	if (*out == NULL)
		return false;
	for (uint32_t i = 0; i < count; i++) {
		if (kvw_mp_uint(mp, UINT32_MAX, &number) != KVW_OK)
			return false;
		if (i < kept)
			(*out)[(*out_count)++] = (uint32_t)number;
	}
	return true;
}

static bool read_member(struct kvw_mp *mp, struct kvw_slice name, struct kvt_controller_message *m)
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
		return read_numbers(mp, KVT_CONTROLLER_MISSING_MAX, &m->missing, &m->missing_count);
	if (kvw_slice_equal(name, KVW_SLICE("is_complete")))
		return kvw_mp_bool(mp, &m->is_complete) == KVW_OK;
	if (kvw_slice_equal(name, KVW_SLICE("worker_event_id")))
		return read_text(mp, m->event_id, sizeof(m->event_id));
	if (kvw_slice_equal(name, KVW_SLICE("location")))
		return read_text(mp, m->location, sizeof(m->location));
	if (kvw_slice_equal(name, KVW_SLICE("tokens")))
		return kvw_mp_take_nil(mp) ||
		       read_numbers(mp, UINT32_MAX, &m->tokens, &m->token_count);
	return kvw_mp_skip(mp) == KVW_OK;
}

bool kvt_controller_read(const void *data, size_t len, struct kvt_controller_message *out)
{
	struct kvw_slice name;
	struct kvw_mp mp;
	uint32_t pairs;

	memset(out, 0, sizeof(*out));
	kvw_mp_init(&mp, data, len);
	if (len > KVT_CONTROLLER_MESSAGE_MAX || kvw_mp_map(&mp, &pairs) != KVW_OK)
		return false;
	while (pairs-- > 0) {
		if (kvw_mp_str(&mp, &name) != KVW_OK || !read_member(&mp, name, out)) {
			kvt_controller_message_free(out);
			return false;
		}
	}
	return true;
}

void kvt_controller_message_free(struct kvt_controller_message *message)
{
	free(message->tokens);
	free(message->missing);
	message->tokens = message->missing = NULL;
	message->token_count = message->missing_count = 0;
}
