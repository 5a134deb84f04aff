/*
 * step.h - the steps of a request's way, between "its body is understood" and "it is on its way to
 * a worker".
 *
 * One step is one file of steps/ and one line of steps.def, whose order is that of the way. The
 * settings in force keep a list of the steps that they need (in_force.h): a feature that is off is
 * not asked about. kvw_exchange_advance takes a request from the first step; where it waited, it
 * begins with the first one again, so a step that acts once remembers that it has.
 *
 * A step calls no other step and not advance.c: it answers, and returns.
 *
 * Threads: those of the exchange's loop.
 */
#ifndef KVW_STEP_H
#define KVW_STEP_H

#include "fleet/link.h"
#include "proxy/exchange.h"
#include "proxy/in_force.h"

enum kvw_stepped {
	KVW_STEP_ON,     /* to the next one */
	KVW_STEP_CHOSEN, /* attempt.decision names a worker: to the next one that does not choose */
	KVW_STEP_WAITS,  /* its state says for what */
	KVW_STEP_ANSWERED, /* by kvway itself */
	KVW_STEP_AGAIN,    /* from the first one: what an earlier step has seen is no longer so */
};

/* What the steps of one walk hand on to each other. */
struct kvw_way {
	struct kvw_candidates set; /* workers that can have it; borrowed from the loop */
	/* What goes on with an exchange when something has come: */
	kvw_link_fn on_link;
	kvw_token_fn *on_tokens;
	void (*on_leg)(struct kvw_exchange *x); /* its prompt was prefilled elsewhere, or not */
};

struct kvw_step {
	const char *name;
	bool chooses; /* a worker; passed over once one is chosen */
	bool acts;    /* on more than the request: passed over in a dry run (dry.h) */
	/* NULL: all settings need it. The loop's parts are there, its settings are not yet. */
	bool (*needed)(const struct kvw_loop *loop, const struct kvw_config *config);
	enum kvw_stepped (*run)(struct kvw_exchange *x, struct kvw_way *way);
	/* In a dry run; NULL: run. */
	enum kvw_stepped (*dry)(struct kvw_exchange *x, struct kvw_way *way);
};

/* steps/<name>.c defines each. */
#define KVW_STEP(name) extern const struct kvw_step kvw_step_##name;
#include "proxy/steps.def"
#undef KVW_STEP

/* "goes on", ... */
const char *kvw_stepped_name(enum kvw_stepped stepped);

/* Those that a configuration needs, in their order; returns how many. */
size_t kvw_steps_needed(const struct kvw_loop *loop, const struct kvw_config *config,
	const struct kvw_step *list[KVW_STEPS]);

/* Takes a request that is in ROUTING from step to step, as far as it goes now. True: it has
 * passed all of them. */
bool kvw_steps_walk(struct kvw_exchange *x, struct kvw_way *way);

#endif
