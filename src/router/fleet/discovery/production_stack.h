/*
 * production_stack.h - the dynamic configuration of vLLM production-stack, as far as it lists
 * workers.
 *
 * Its JSON form has `static_backends: "URL,URL"` and `static_models: "NAME,NAME"`, of one length;
 * its YAML form has `static_models: {NAME: {static_backends: [URL, ...]}}`. Lists are accepted for
 * comma texts. A backend listed for several models is one worker with all of them. Other keys have
 * no meaning here; each one present becomes a note. Private to worker_list.c.
 */
#ifndef KVW_PRODUCTION_STACK_H
#define KVW_PRODUCTION_STACK_H

#include "config/build.h"
#include "settings/suggest.h"

#define KVW_PRODUCTION_STACK_MOST 16384 /* pairs of backend and model */

/* Members found at the document's top level. All borrowed from the document. Zeroed but for
 * notes. */
struct kvw_production_stack {
	struct kvw_report *notes;
	const struct kvw_node *first; /* key of it; NULL: none yet */
	const struct kvw_node *backends, *models;
};

/* Takes a key of the top with its value. False: not one of production-stack's. */
bool kvw_production_stack_key(
	struct kvw_production_stack *stack, const struct kvw_node *node, struct kvw_report *report);

/* Adds the workers. KVW_ENOMEM or KVW_OK; mistakes are in the report of the build. */
enum kvw_err kvw_production_stack_workers(
	const struct kvw_production_stack *stack, struct kvw_build *build) KVW_MUST_CHECK;

void kvw_production_stack_suggest(struct kvw_suggest *near);

#endif
