/*
 * in_force.h - the settings with which a loop's requests began, and those of the present turn.
 *
 * At the start of each turn a loop checks whether a reload has put other settings into force
 * (settings.h). A request keeps the settings with which it began until its end: the loop counts
 * requests for each set of settings.
 *
 * Threads: all of it belongs to one loop.
 */
#ifndef KVW_IN_FORCE_H
#define KVW_IN_FORCE_H

#include <stdint.h>

#include "admission/queue.h"
#include "config/config.h"
#include "kvway/err.h"
#include "kvway/route.h"
#include "openai/cuts.h"

struct kvw_loop;
struct kvw_settings;
struct kvw_step;

#define KVW_STEP(name) +1
enum {
	KVW_STEPS = 0
#include "proxy/steps.def"
};
#undef KVW_STEP

/* One pair of configuration and strategy, as this loop refers to it. */
struct kvw_in_force {
	struct kvw_settings *settings; /* NULL: settings that are not counted, and stay */
	const struct kvw_config *config;
	struct kvw_strategy *strategy;
	uint8_t class_labels[KVW_CLASSES]; /* labels of the classes, for metrics */
	uint8_t group_labels[KVW_MAX_MODEL_GROUPS]; /* by group, likewise */
	struct kvw_separator separator; /* where cuts */
	/* the steps of a request's way that these settings need */
	const struct kvw_step *steps[KVW_STEPS];
	size_t step_count;
	bool cuts; /* prompts are cut into the texts of kvaware.fragments */
	uint32_t requests; /* requests that began with these settings and have not ended */
	struct kvw_in_force *next;
};

/* Takes the first settings: the fleet's; or, if the fleet has none, those in the arguments. */
enum kvw_err kvw_in_force_begin(struct kvw_loop *loop, const struct kvw_config *config,
	struct kvw_strategy *strategy) KVW_MUST_CHECK;
/* Takes newer settings, if there are any. Called at the start of a turn. */
void kvw_in_force_look(struct kvw_loop *loop);
/* Releases the settings once the loop has no request any more. */
void kvw_in_force_end(struct kvw_loop *loop);

/* kvw_in_force_take returns the present settings, and counts a request that begins with them.
 * kvw_in_force_release ends that count, when the request has ended and its memory is no longer
 * used. */
struct kvw_in_force *kvw_in_force_take(struct kvw_loop *loop);
void kvw_in_force_release(struct kvw_loop *loop, struct kvw_in_force *in_force);

#endif
