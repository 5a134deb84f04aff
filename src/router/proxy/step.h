/*
 * step.h - the steps of a request, from the scan of its body until it is sent to a worker.
 *
 * One step is one file of steps/ and one line of steps.def, which has the steps in their order. The
 * settings in force keep a list of the steps that they need (in_force.h): a disabled feature costs
 * no step. kvw_exchange_advance takes a request from the first step on; after a wait the request
 * begins with the first step again, so a step that acts once remembers that it has.
 *
 * A step calls no other step and not advance.c: its return value says how the request goes on.
 *
 * A step reads header fields by kvw_request_field (request.h), the body's meaning in x->route and
 * x->named, and settings in x->config. It refuses a request by kvw_reply_error_code (reply.h) and
 * KVW_STEP_ANSWERED. A dry run has a loop of its own, whose metrics are not shown, and its replies
 * become the explanation: a step that only counts and replies needs no `dry`.
 *
 * Threads: those of the exchange's loop.
 */
#ifndef KVW_STEP_H
#define KVW_STEP_H

#include "fleet/link.h"
#include "proxy/exchange.h"
#include "proxy/in_force.h"

enum kvw_stepped {
	KVW_STEP_ON,     /* the request goes on to the next step */
	/* attempt.decision names a worker: the request goes on to the next step that does not
	 * choose */
	KVW_STEP_CHOSEN,
	KVW_STEP_WAITS,  /* the request waits; its state says for what */
	KVW_STEP_ANSWERED, /* by kvway itself */
	/* the request begins again with the first step, since the finding of an earlier step has
	 * changed */
	KVW_STEP_AGAIN,
};

/* Data that the steps of one walk pass to each other. */
struct kvw_way {
	struct kvw_candidates set; /* workers that can have the request; borrowed from the loop */
	/* Functions that continue an exchange after an event. on_link: of its connection; */
	kvw_link_fn on_link;
	kvw_token_fn *on_tokens;
	void (*on_leg)(struct kvw_exchange *x); /* its prefill elsewhere has ended */
	kvw_timer_fn on_lease;                  /* of kvw_parted's timer */
};

struct kvw_step {
	const char *name;
	bool chooses; /* the step chooses a worker, and is skipped once one is chosen */
	bool acts; /* the step changes more than the request, and is skipped in a dry run (dry.h) */
	/* Returns whether these settings need the step; NULL: all settings do. The loop's parts
	 * exist, but its settings are not set yet. */
	bool (*needed)(const struct kvw_loop *loop, const struct kvw_config *config);
	enum kvw_stepped (*run)(struct kvw_exchange *x, struct kvw_way *way);
	/* Called instead of `run` in a dry run; NULL: `run` itself. */
	enum kvw_stepped (*dry)(struct kvw_exchange *x, struct kvw_way *way);
};

/* steps/<name>.c defines each. */
#define KVW_STEP(name) extern const struct kvw_step kvw_step_##name;
#include "proxy/steps.def"
#undef KVW_STEP

/* "goes on", ... */
const char *kvw_stepped_name(enum kvw_stepped stepped);

/* Finds the steps that a configuration needs, in their order; returns how many. */
size_t kvw_steps_needed(const struct kvw_loop *loop, const struct kvw_config *config,
	const struct kvw_step *list[KVW_STEPS]);

/* Takes a request in state ROUTING from step to step, as far as possible now. True: the request has
 * passed all steps. */
bool kvw_steps_walk(struct kvw_exchange *x, struct kvw_way *way);

#endif
