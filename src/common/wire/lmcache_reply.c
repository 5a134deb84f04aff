/*
 * lmcache_reply.c - writes a controller's answers to LMCache's workers.
 *
 * Members are in the order of LMCache's own classes, defaults included, integers in their shortest
 * form: the bytes equal those of LMCache's own controller.
 */
#include "wire/lmcache_wire.h"

static void put_key(struct kvw_mp_out *out, const char *key)
{
	kvw_mp_put_str(out, kvw_slice_of(key));
}

static void put_text(struct kvw_mp_out *out, const char *key, struct kvw_slice text)
{
	put_key(out, key);
	kvw_mp_put_str(out, text);
}

/* Begins a map with this number of members, the first of which is the type. */
static void begin_reply(struct kvw_mp_out *out, uint32_t members, const char *type)
{
	kvw_mp_put_map(out, members);
	put_text(out, "type", kvw_slice_of(type));
}

void kvw_lmc_put_registered(struct kvw_mp_out *out, struct kvw_slice heartbeat_url)
{
	begin_reply(out, 2, "RegisterRetMsg");
	put_key(out, "extra_config");
	kvw_mp_put_map(out, heartbeat_url.len > 0);
	if (heartbeat_url.len > 0)
		put_text(out, "heartbeat_url", heartbeat_url);
}

void kvw_lmc_put_heartbeat(struct kvw_mp_out *out, struct kvw_slice full_sync_reason)
{
	begin_reply(out, 2, "HeartbeatRetMsg");
	put_key(out, "commands");
	kvw_mp_put_array(out, full_sync_reason.len > 0);
	if (full_sync_reason.len == 0)
		return;
	kvw_mp_put_map(out, 3);
	put_text(out, "command_type", KVW_SLICE("full_sync"));
	put_text(out, "reason", full_sync_reason);
	put_key(out, "args");
	kvw_mp_put_nil(out);
}

void kvw_lmc_put_sync_started(
	struct kvw_mp_out *out, struct kvw_slice sync_id, struct kvw_slice refusal)
{
	begin_reply(out, 4, "FullSyncStartRetMsg");
	put_text(out, "sync_id", sync_id);
	put_key(out, "accepted");
	kvw_mp_put_bool(out, refusal.len == 0);
	put_key(out, "error_msg");
	if (refusal.len == 0)
		kvw_mp_put_nil(out);
	else
		kvw_mp_put_str(out, refusal);
}

void kvw_lmc_put_sync_status(struct kvw_mp_out *out, const struct kvw_lmc_sync_status *status)
{
	begin_reply(out, 6, "FullSyncStatusRetMsg");
	put_text(out, "sync_id", status->sync_id);
	put_key(out, "is_complete");
	kvw_mp_put_bool(out, status->complete);
	put_key(out, "global_progress");
	kvw_mp_put_real(out, status->progress);
	put_key(out, "can_exit_freeze");
	kvw_mp_put_bool(out, status->can_exit_freeze);
	put_key(out, "missing_batches");
	kvw_mp_put_array(out, status->missing_count);
	for (uint32_t i = 0; i < status->missing_count; i++)
		kvw_mp_put_uint(out, status->missing[i]);
}

void kvw_lmc_put_p2p(struct kvw_mp_out *out, const struct kvw_lmc_holder *holder)
{
	static const struct kvw_lmc_holder nobody = {{"", 0}, {"", 0}, {"", 0}, 0};

	if (holder == NULL)
		holder = &nobody;
	begin_reply(out, 2, "BatchedP2PLookupRetMsg");
	put_key(out, "layout_info");
	kvw_mp_put_array(out, 1);
	kvw_mp_put_array(out, 4);
	kvw_mp_put_str(out, holder->instance_id);
	kvw_mp_put_str(out, holder->location);
	kvw_mp_put_uint(out, holder->chunks);
	kvw_mp_put_str(out, holder->peer_init_url);
}

void kvw_lmc_put_error(struct kvw_mp_out *out, struct kvw_slice error)
{
	begin_reply(out, 2, "ErrorMsg");
	put_text(out, "error", error);
}
