/*
 * prediction_check.h - checks exact predictions against answers.
 *
 * A worker's reports about its cache and the cached tokens of its answers come from the same
 * engine. If they differ, the cache is not the cause: kvway has other tokens, another block size,
 * or the events of another engine. The last predictions of a worker are kept as bits; when most of
 * them were wrong, one log line reports that, with settings to check.
 *
 * Threads: any. Two loops that record at the same moment may lose one bit.
 */
#ifndef KVW_PREDICTION_CHECK_H
#define KVW_PREDICTION_CHECK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "fleet/fleet.h"

/* Which of the last predictions of one worker were wrong. Zeroed: none was made. */
struct kvw_prediction_check {
	/* Last predictions, the newest in the lowest bit: bit n: too high, bit n + 32: too low. */
	_Atomic uint64_t history;
	_Atomic uint32_t noted;
	_Atomic bool complained;
};

#define KVW_PREDICTION_CHECK_WINDOW 32

/* Returns whether the prediction differs from the answer by less than a block. */
bool kvw_prediction_check_right(uint32_t predicted, uint32_t cached, uint32_t block_tokens);

/* Records one prediction. Returns true when more than half of the last ones were wrong, and then
 * not again until most are right. *too_many: most of the wrong ones were too high. */
bool kvw_prediction_check_note(struct kvw_prediction_check *prediction_check, uint32_t predicted,
	uint32_t cached, uint32_t block_tokens, bool *too_many);

void kvw_prediction_check_clear(struct kvw_prediction_check *prediction_check);

/* Logs that. */
void kvw_prediction_check_complain(
	const struct kvw_worker *worker, bool too_many, uint32_t predicted, uint32_t cached);

#endif
