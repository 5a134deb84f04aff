/*
 * registry_keys.c - applies admits and evictions of ranks, and checks their order.
 *
 * The index counts the stores of a holder; LMCache's places are sets. So each place keeps its keys,
 * and only changes are written to the index: a repeated admit (a batch sent again, or a message in
 * flight when a full sync began) is one holder, which one eviction removes.
 *
 * Sequence numbers count per place. A 0 after higher numbers means that the rank is a new process,
 * and all its places are emptied. Any other number than the expected one is a gap: a report was
 * lost, perhaps an eviction.
 */
#include "feeds/lmcache/registry.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"

#define LISTED 256 /* keys that are written to the index in one call */

/* --- the index --- */

static bool indexed(const struct kvw_lmreg_instance *instance, const struct kvw_lmreg_rank *rank)
{
	return instance->worker != KVW_LMREG_NONE && rank->source != KVW_LMREG_NONE;
}

static void report_keys(struct kvw_lmreg *reg, const struct kvw_lmreg_instance *instance,
	const struct kvw_lmreg_rank *rank, enum kvw_tier tier, const uint64_t *keys, size_t count,
	bool stored)
{
	struct kvw_kvindex_from from = {instance->worker, rank->source};
	struct kvw_kvindex_blocks blocks = {
		.space = instance->space,
		.tier = tier,
		.count = (uint32_t)count,
		.hashes = keys,
		.keys = keys,
	};

	if (!indexed(instance, rank) || count == 0)
		return;
	if (stored)
		kvw_kvindex_stored(reg->options.index, from, &blocks);
	else
		kvw_kvindex_removed(reg->options.index, from, &blocks);
}

static void tell_all(struct kvw_lmreg *reg, const struct kvw_lmreg_instance *instance,
	const struct kvw_lmreg_rank *rank, const struct kvw_lmreg_place *place, bool stored)
{
	uint64_t keys[LISTED];
	size_t at = 0, count;

	if (!indexed(instance, rank))
		return;
	while ((count = kvw_keyset_list(&place->keys, &at, keys, LISTED)) > 0)
		report_keys(reg, instance, rank, place->tier, keys, count, stored);
}

void kvw_lmreg_index_rank(struct kvw_lmreg *reg, const struct kvw_lmreg_instance *instance,
	const struct kvw_lmreg_rank *rank)
{
	for (uint32_t i = 0; i < rank->place_count; i++)
		tell_all(reg, instance, rank, &rank->places[i], true);
}

/* --- places --- */

struct kvw_lmreg_place *kvw_lmreg_place(
	struct kvw_lmreg *reg, struct kvw_lmreg_rank *rank, struct kvw_slice location)
{
	struct kvw_lmreg_place *place;

	for (uint32_t i = 0; i < rank->place_count; i++)
		if (kvw_slice_equal(kvw_slice_of(rank->places[i].name), location))
			return &rank->places[i];
	if (rank->place_count == KVW_LMREG_PLACES)
		return NULL;
	place = &rank->places[rank->place_count];
	*place = (struct kvw_lmreg_place){
		.name = strndup(location.data, location.len),
		.tier = kvw_lmc_tier(location),
		.keys.seed = reg->options.seed,
		/* the places of a rank that was heard from its start begin with 0 */
		.expects = rank->whole,
	};
	if (place->name == NULL)
		return NULL;
	rank->place_count++;
	return place;
}

void kvw_lmreg_clear_place(struct kvw_lmreg *reg, const struct kvw_lmreg_instance *instance,
	struct kvw_lmreg_rank *rank, struct kvw_lmreg_place *place)
{
	bool alone = true;

	for (uint32_t i = 0; i < rank->place_count; i++)
		if (&rank->places[i] != place && rank->places[i].tier == place->tier &&
			rank->places[i].keys.count > 0)
			alone = false;
	if (!alone)
		tell_all(reg, instance, rank, place, false);
	else if (indexed(instance, rank) && place->keys.count > 0)
		kvw_kvindex_cleared(
			reg->options.index, instance->worker, rank->source, place->tier);
	reg->stats.keys -= place->keys.count;
	kvw_keyset_clear(&place->keys);
	place->unproved = false;
}

void kvw_lmreg_clear_rank(struct kvw_lmreg *reg, const struct kvw_lmreg_instance *instance,
	struct kvw_lmreg_rank *rank)
{
	kvw_lmreg_sync_drop(rank);
	for (uint32_t i = 0; i < rank->place_count; i++) {
		kvw_lmreg_clear_place(reg, instance, rank, &rank->places[i]);
		rank->places[i].expects = rank->places[i].heard = false;
	}
	/* handed-over records that are still to be read are out of date, too */
	rank->recalled = false;
	rank->recalled_ns = 0;
}

void kvw_lmreg_admit_all(struct kvw_lmreg *reg, const struct kvw_lmreg_instance *instance,
	const struct kvw_lmreg_rank *rank, struct kvw_lmreg_place *place, uint64_t *keys,
	size_t count)
{
	size_t added = 0;

	for (size_t i = 0; i < count; i++) {
		enum kvw_err err = KVW_ELIMIT;

		if (reg->stats.keys < reg->options.key_limit)
			err = kvw_keyset_add(&place->keys, keys[i]);
		else if (kvw_keyset_has(&place->keys, keys[i]))
			err = KVW_EAGAIN;
		reg->stats.keys += err == KVW_OK;
		reg->stats.dropped += err != KVW_OK && err != KVW_EAGAIN;
		if (err == KVW_OK)
			keys[added++] = keys[i];
	}
	report_keys(reg, instance, rank, place->tier, keys, added, true);
}

void kvw_lmreg_admit(struct kvw_lmreg *reg, const struct kvw_lmreg_instance *instance,
	const struct kvw_lmreg_rank *rank, struct kvw_lmreg_place *place, uint64_t key)
{
	kvw_lmreg_admit_all(reg, instance, rank, place, &key, 1);
}

void kvw_lmreg_evict(struct kvw_lmreg *reg, const struct kvw_lmreg_instance *instance,
	const struct kvw_lmreg_rank *rank, struct kvw_lmreg_place *place, uint64_t key)
{
	if (!kvw_keyset_remove(&place->keys, key)) {
		reg->stats.unknown_evicts++;
		return;
	}
	reg->stats.keys--;
	report_keys(reg, instance, rank, place->tier, &key, 1, false);
}

/* --- sequence --- */

/* Logs only the 1st, 2nd, 4th, 8th ... gap: when two processes use one name, every message is a
 * gap. */
static bool worth_saying(uint64_t count)
{
	return (count & (count - 1)) == 0;
}

/* Handles lost reports, which may have been evictions. */
static void gap(struct kvw_lmreg *reg, struct kvw_lmreg_instance *instance,
	struct kvw_lmreg_rank *rank, struct kvw_lmreg_place *place, uint64_t number)
{
	reg->stats.gaps++;
	instance->gaps++;
	if (rank->sync.active && &rank->places[rank->sync.place] == place) {
		rank->sync.dirty =
			/* the sync's batches stay valid, but it must be repeated for what was
			 * lost */
			true;
		return;
	}
	if (worth_saying(instance->gaps))
		kvw_warn("lmcache",
			"gap instance=%s rank=%u location=%s expected=%llu got=%llu gaps=%llu: %s",
			instance->id, rank->id, place->name, (unsigned long long)place->next,
			(unsigned long long)number, (unsigned long long)instance->gaps,
			rank->answers ? "a full sync will be asked for"
				      : "forgotten; it sends no heartbeats, so it cannot be asked "
					"again");
	kvw_lmreg_clear_place(reg, instance, rank, place);
	kvw_lmreg_want_sync(rank, "sequence_gap");
}

/* Handles a new process. */
static void began_again(
	struct kvw_lmreg *reg, struct kvw_lmreg_instance *instance, struct kvw_lmreg_rank *rank)
{
	reg->stats.restarts++;
	if (worth_saying(++instance->restarts))
		kvw_info("lmcache",
			"sequence begins again instance=%s rank=%u: what it held is forgotten",
			instance->id, rank->id);
	kvw_lmreg_clear_rank(reg, instance, rank);
	rank->want = NULL;
	rank->whole = true;
	for (uint32_t i = 0; i < rank->place_count; i++) {
		rank->places[i].expects = true;
		rank->places[i].next = 0;
	}
	instance->matched = instance->missed = 0;
	instance->doubted = instance->warned = false;
}

static void check_number(struct kvw_lmreg *reg, struct kvw_lmreg_instance *instance,
	struct kvw_lmreg_rank *rank, struct kvw_lmreg_place *place, uint64_t number)
{
	bool first = true;

	for (uint32_t i = 0; i < rank->place_count; i++)
		first = first && !rank->places[i].heard;
	if (number == 0 && place->heard && !(place->expects && place->next == 0)) {
		began_again(reg, instance, rank);
	} else if (number == 0 && first && !rank->announced && !rank->sync.active &&
		   rank->want == NULL) {
		rank->whole = true; /* the rank was heard from its start */
	} else if (place->expects && number != place->next) {
		gap(reg, instance, rank, place, number);
	} else if (!place->expects && number != 0) {
		kvw_lmreg_want_sync(rank, "controller_restart");
	}
	place->expects = place->heard = true;
	place->unproved = false;
	place->next = number + 1;
}

/* --- operations --- */

static void remember(struct kvw_lmreg_instance *instance, uint64_t key, int64_t now_ns)
{
	if (instance->recent == NULL)
		instance->recent = calloc(KVW_LMREG_RECENT, sizeof(instance->recent[0]));
	if (instance->recent != NULL)
		instance->recent[instance->recent_count++ % KVW_LMREG_RECENT] =
			(struct kvw_lmreg_recent){key, now_ns};
}

/* Notes evictions during a sync, which older batches of the sync must not undo. */
static void note_for_sync(
	struct kvw_lmreg_rank *rank, const struct kvw_lmreg_place *place, uint64_t key, bool admit)
{
	struct kvw_lmreg_sync *sync = &rank->sync;

	if (!sync->active || &rank->places[sync->place] != place)
		return;
	if (admit)
		(void)kvw_keyset_remove(&sync->evicted, key);
	else if (sync->evicted.count >= KVW_LMREG_EVICTED ||
		 kvw_keyset_add(&sync->evicted, key) == KVW_ENOMEM)
		sync->dirty = true;
}

void kvw_lmreg_operations(struct kvw_lmreg *reg, struct kvw_lmreg_instance *instance,
	struct kvw_lmreg_rank *rank, const struct kvw_lmreg_request *request)
{
	const struct kvw_lmc_message *message = request->message;
	struct kvw_lmreg_place *place = kvw_lmreg_place(reg, rank, message->location);

	if (place == NULL) {
		reg->stats.refused[KVW_LMCACHE_NO_ROOM]++;
		/* a part of the contents was never reported to this process */
		kvw_lmreg_want_sync(rank, "sequence_gap");
		return;
	}
	for (size_t i = 0; i < message->key_count; i++) {
		bool admit = message->admits[i];

		if (message->numbers != NULL)
			check_number(reg, instance, rank, place, message->numbers[i]);
		note_for_sync(rank, place, message->keys[i], admit);
		if (admit) {
			reg->stats.admits++;
			kvw_lmreg_admit(reg, instance, rank, place, message->keys[i]);
			if (rank == &instance->ranks[0])
				remember(instance, message->keys[i], request->now_ns);
		} else {
			reg->stats.evicts++;
			kvw_lmreg_evict(reg, instance, rank, place, message->keys[i]);
		}
	}
}
