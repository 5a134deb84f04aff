/*
 * in_force.h - the settings by which a loop's requests began, and those of the present turn.
 *
 * A loop looks at the start of each turn whether a reload has put other settings into force
 * (settings.h). A request keeps those that it began with until it has ended: its loop counts its
 * requests for each.
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

/* One pair, as this loop refers to it. */
struct kvw_in_force {
	struct kvw_settings *settings; /* NULL: they are not counted, and stay */
	const struct kvw_config *config;
	struct kvw_strategy *strategy;
	uint8_t class_labels[KVW_CLASSES]; /* by class, for metrics */
	uint8_t group_labels[KVW_MAX_MODEL_GROUPS]; /* by group, likewise */
	struct kvw_separator separator; /* where cuts */
	/* of a request's way, those that these settings need */
	const struct kvw_step *steps[KVW_STEPS];
	size_t step_count;
	bool cuts; /* prompts are cut into the texts of kvaware.fragments */
	uint32_t requests; /* that began with it and have not ended */
	struct kvw_in_force *next;
};

/* The first settings: the fleet's, or where it has none these. */
enum kvw_err kvw_in_force_begin(struct kvw_loop *loop, const struct kvw_config *config,
	struct kvw_strategy *strategy) KVW_MUST_CHECK;
/* At the start of a turn. */
void kvw_in_force_look(struct kvw_loop *loop);
/* The loop has no request any more. */
void kvw_in_force_end(struct kvw_loop *loop);

/* A request has begun, and has ended and is no longer looked at. */
struct kvw_in_force *kvw_in_force_take(struct kvw_loop *loop);
void kvw_in_force_release(struct kvw_loop *loop, struct kvw_in_force *in_force);

#endif
