/*
 * production_stack.h - the dynamic configuration of vLLM production-stack, as far as it lists
 * workers. Private to worker_list.c.
 *
 * Its JSON form has `static_backends: "URL,URL"` and `static_models: "NAME,NAME"`, of one length;
 * its YAML form has `static_models: {NAME: {static_backends: [URL, ...]}}`. Lists are accepted for
 * comma texts. A backend listed for several models is one worker with all of them. Other keys have
 * no meaning here; each one present becomes a note.
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
	/* the first key of production-stack that was found; NULL: none yet */
	const struct kvw_node *first;
	const struct kvw_node *backends, *models;
};

/* Takes a top-level key with its value. False: it is not a key of production-stack. */
bool kvw_production_stack_key(
	struct kvw_production_stack *stack, const struct kvw_node *node, struct kvw_report *report);

/* Adds the listed workers to the build. KVW_ENOMEM or KVW_OK; mistakes go to the build's report. */
enum kvw_err kvw_production_stack_workers(
	const struct kvw_production_stack *stack, struct kvw_build *build) KVW_MUST_CHECK;

void kvw_production_stack_suggest(struct kvw_suggest *near);

#endif
