/*
 * registry_sync.c - full syncs: a rank lists all its keys in one location.
 *
 * 	controller -> rank   full_sync, in a heartbeat's answer
 * 	rank -> controller   Start (answered), batches, End, then Status until it may store again
 *
 * The rank is frozen until a Status lets it go on, so a sync is requested at most once a minute,
 * and a Status never keeps a rank frozen for an unknown sync. Batches and operations share a socket
 * and an order, but operations that were queued when the list was made come late. For sets the last
 * report on each key is right in either order, with one exception: a batch must not restore a key
 * that was evicted after the batch was made.
 *
 * A sync is complete when all its batches have come, even if its End was lost.
 */
#include "feeds/lmcache/registry.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"

void kvw_lmreg_sync_drop(struct kvw_lmreg_rank *rank)
{
	struct kvw_lmreg_sync *sync = &rank->sync;

	free(sync->id);
	free(sync->seen);
	kvw_keyset_clear(&sync->evicted);
	*sync = (struct kvw_lmreg_sync){0};
}

void kvw_lmreg_want_sync(struct kvw_lmreg_rank *rank, const char *why)
{
	rank->whole = false;
	if (rank->want == NULL)
		rank->want = why;
}

/* Returns whether a location that a full sync covers has not been confirmed since the handover. */
static bool is_unproved(const struct kvw_lmreg_rank *rank)
{
	for (uint32_t i = 0; i < rank->place_count; i++)
		if (rank->places[i].unproved && rank->places[i].tier == KVW_TIER_HOST)
			return true;
	return false;
}

const char *kvw_lmreg_sync_reason(
	struct kvw_lmreg *reg, struct kvw_lmreg_rank *rank, int64_t now_ns)
{
	const char *reason = rank->want;

	if (rank->sync.active ||
		(rank->asked_ns != 0 && now_ns - rank->asked_ns < KVW_LMREG_SYNC_AGAIN_NS))
		return NULL;
	if (reason == NULL && rank->recalled_ns != 0 &&
		now_ns - rank->recalled_ns >= KVW_LMREG_PROVE_NS) {
		reason = is_unproved(rank) ? "controller_restart" : NULL;
		rank->recalled_ns = 0; /* once */
	}
	if (reason == NULL)
		return NULL;
	rank->asked_ns = now_ns;
	reg->stats.syncs_asked++;
	return reason;
}

static void complete(struct kvw_lmreg *reg, struct kvw_lmreg_rank *rank)
{
	struct kvw_lmreg_sync *sync = &rank->sync;

	sync->active = false;
	kvw_keyset_clear(&sync->evicted);
	free(sync->seen);
	sync->seen = NULL;
	reg->stats.syncs_done++;
	rank->want = NULL;
	rank->whole = true;
	kvw_info("lmcache", "full sync done sync=%s keys=%zu", sync->id,
		rank->places[sync->place].keys.count);
	if (sync->dirty)
		kvw_lmreg_want_sync(rank, "sequence_gap");
}

/* Begins a sync. Returns the text of a refusal; NULL: the sync has begun. */
static const char *begin_sync(struct kvw_lmreg *reg, struct kvw_lmreg_instance *instance,
	struct kvw_lmreg_rank *rank, const struct kvw_lmreg_request *request)
{
	const struct kvw_lmc_message *message = request->message;
	struct kvw_lmreg_place *place;
	struct kvw_lmreg_sync sync = {
		.batch_count = message->batch_count,
		.heard_ns = request->now_ns,
		.evicted.seed = reg->options.seed,
	};

	if (message->batch_count > KVW_LMREG_BATCHES)
		return "too many batches";
	place = kvw_lmreg_place(reg, rank, message->location);
	if (place == NULL)
		return "too many locations";
	sync.id = strndup(message->sync_id.data, message->sync_id.len);
	sync.seen = calloc(message->batch_count / 64 + 1, sizeof(sync.seen[0]));
	if (sync.id == NULL || sync.seen == NULL) {
		free(sync.seen);
		free(sync.id);
		return "out of memory";
	}
	kvw_lmreg_sync_drop(rank);
	kvw_lmreg_clear_place(reg, instance, rank, place);
	sync.place = (uint32_t)(place - rank->places);
	sync.active = true;
	rank->sync = sync;
	rank->whole = false;
	if (sync.batch_count == 0)
		complete(reg, rank);
	return NULL;
}

void kvw_lmreg_sync_start(struct kvw_lmreg *reg, struct kvw_lmreg_instance *instance,
	struct kvw_lmreg_rank *rank, const struct kvw_lmreg_request *request,
	struct kvw_mp_out *reply)
{
	const struct kvw_lmc_message *message = request->message;
	const struct kvw_lmreg_sync *sync = &rank->sync;
	const char *refusal = NULL;

	/* a Start that is repeated because the answer was late begins no new sync */
	if (!sync->active || !kvw_slice_equal(kvw_slice_of(sync->id), message->sync_id))
		refusal = begin_sync(reg, instance, rank, request);
	kvw_info("lmcache", "full sync %s instance=%s rank=%u keys=%llu batches=%u",
		refusal == NULL ? "begins" : refusal, instance->id, rank->id,
		(unsigned long long)message->total_keys, message->batch_count);
	kvw_lmc_put_sync_started(reply, message->sync_id, kvw_slice_of(refusal));
}

static bool is_current(const struct kvw_lmreg_rank *rank, const struct kvw_lmc_message *message)
{
	return rank->sync.id != NULL &&
	       kvw_slice_equal(kvw_slice_of(rank->sync.id), message->sync_id);
}

void kvw_lmreg_sync_batch(struct kvw_lmreg *reg, struct kvw_lmreg_instance *instance,
	struct kvw_lmreg_rank *rank, const struct kvw_lmreg_request *request)
{
	const struct kvw_lmc_message *message = request->message;
	struct kvw_lmreg_sync *sync = &rank->sync;
	uint64_t bit = UINT64_C(1) << (message->batch_id % 64);

	if (!is_current(rank, message) || !sync->active || message->batch_id >= sync->batch_count) {
		reg->stats.refused[KVW_LMCACHE_STALE]++;
		return;
	}
	sync->heard_ns = request->now_ns;
	for (size_t i = 0; i < message->key_count; i++)
		if (!kvw_keyset_has(&sync->evicted, message->keys[i]))
			kvw_lmreg_admit(
				reg, instance, rank, &rank->places[sync->place], message->keys[i]);
	if ((sync->seen[message->batch_id / 64] & bit) == 0) {
		sync->seen[message->batch_id / 64] |= bit;
		sync->received++;
	}
	if (sync->received == sync->batch_count)
		complete(reg, rank);
}

void kvw_lmreg_sync_end(
	struct kvw_lmreg *reg, struct kvw_lmreg_rank *rank, const struct kvw_lmreg_request *request)
{
	if (is_current(rank, request->message))
		rank->sync.heard_ns = request->now_ns;
	else
		reg->stats.refused[KVW_LMCACHE_STALE]++;
}

/* Returns the share of all ranks that need no sync. */
static double progress(const struct kvw_lmreg *reg)
{
	size_t ready = 0, all = 0;

	for (size_t i = 0; i < reg->count; i++)
		for (uint32_t r = 0; r < reg->instances[i]->rank_count; r++) {
			all++;
			ready += reg->instances[i]->ranks[r].whole;
		}
	return all == 0 ? 1.0 : (double)ready / (double)all;
}

void kvw_lmreg_sync_status(struct kvw_lmreg *reg, const struct kvw_lmreg_rank *rank,
	const struct kvw_lmreg_request *request, struct kvw_mp_out *reply)
{
	const struct kvw_lmreg_sync *sync = &rank->sync;
	bool current = is_current(rank, request->message);
	struct kvw_lmc_sync_status status = {
		.sync_id = request->message->sync_id,
		.complete = current && !sync->active,
		.can_exit_freeze = !current || !sync->active,
		.progress = progress(reg),
		.missing = reg->missing,
	};

	for (uint32_t i = 0; current && sync->active && i < sync->batch_count; i++)
		if ((sync->seen[i / 64] >> (i % 64) & 1) == 0 &&
			status.missing_count < KVW_LMREG_MISSING)
			reg->missing[status.missing_count++] = i;
	kvw_lmc_put_sync_status(reply, &status);
}

void kvw_lmreg_sync_tick(struct kvw_lmreg *reg, struct kvw_lmreg_instance *instance,
	struct kvw_lmreg_rank *rank, int64_t now_ns)
{
	if (!rank->sync.active || now_ns - rank->sync.heard_ns < KVW_LMREG_SYNC_SILENCE_NS)
		return;
	reg->stats.syncs_failed++;
	kvw_warn("lmcache", "full sync ended early instance=%s rank=%u batches=%u of=%u",
		instance->id, rank->id, rank->sync.received, rank->sync.batch_count);
	kvw_lmreg_sync_drop(rank);
	kvw_lmreg_want_sync(rank, "sync_failed_retry");
}
