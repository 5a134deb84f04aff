/*
 * prediction_check.c - checks exact predictions of cached tokens against answers.
 */
#include "feeds/prediction_check.h"

#include "base/log.h"

#define WRONG_MOST  (KVW_PREDICTION_CHECK_WINDOW / 2)
/* With so few wrong predictions the check is calm again, and reports the next series. */
#define WRONG_CALM  (KVW_PREDICTION_CHECK_WINDOW / 8)

bool kvw_prediction_check_right(uint32_t predicted, uint32_t cached, uint32_t block_tokens)
{
	uint32_t off = predicted > cached ? predicted - cached : cached - predicted;

	return off <= block_tokens;
}

bool kvw_prediction_check_note(struct kvw_prediction_check *prediction_check, uint32_t predicted,
	uint32_t cached, uint32_t block_tokens, bool *too_many)
{
	bool right = kvw_prediction_check_right(predicted, cached, block_tokens);
	uint64_t history = atomic_load_explicit(&prediction_check->history, memory_order_relaxed);
	uint32_t many = (uint32_t)history << 1, few = (uint32_t)(history >> 32) << 1;
	unsigned wrong;

	many |= !right && predicted > cached;
	few |= !right && predicted < cached;
	atomic_store_explicit(
		&prediction_check->history, (uint64_t)few << 32 | many, memory_order_relaxed);
	wrong = (unsigned)__builtin_popcount(many | few);
	if (wrong <= WRONG_CALM)
		atomic_store_explicit(&prediction_check->complained, false, memory_order_relaxed);
	if (atomic_fetch_add_explicit(&prediction_check->noted, 1, memory_order_relaxed) + 1 <
			KVW_PREDICTION_CHECK_WINDOW || wrong <= WRONG_MOST)
		return false;
	*too_many = __builtin_popcount(many) > __builtin_popcount(few);
	return !atomic_exchange_explicit(&prediction_check->complained, true, memory_order_relaxed);
}

void kvw_prediction_check_clear(struct kvw_prediction_check *prediction_check)
{
	atomic_store_explicit(&prediction_check->history, 0, memory_order_relaxed);
	atomic_store_explicit(&prediction_check->noted, 0, memory_order_relaxed);
	atomic_store_explicit(&prediction_check->complained, false, memory_order_relaxed);
}

void kvw_prediction_check_complain(
	const struct kvw_worker *worker, bool too_many, uint32_t predicted, uint32_t cached)
{
	const char *why = too_many ? "it drops blocks that its events do not report, or the events "
				     "are another engine's (look at kvaware.events.endpoint and "
				     "workers[].events_endpoint), or requests carry what the "
				     "events do not (a LoRA adapter that workers[].models hides)"
				   : "its tokens differ from those of the worker that was asked "
				     "(another tokenizer or chat template under one model name), "
				     "or its blocks are named otherwise (look at "
				     "kvaware.lmcache.hash, hash_seed and chunk_size), or its "
				     "events come late (kvway_kvaware_feed_lag_seconds)";

	kvw_warn("kvaware",
		"most predictions are wrong url=%s predicted_cached_tokens=%u cached_tokens=%u "
		"why=\"%s\"",
		worker->url, predicted, cached, why);
}
