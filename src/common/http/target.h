/*
 * target.h - the parts of a request's target: its path and the parameters of its query.
 *
 * Pure functions; slices are borrowed from the target.
 */
#ifndef KVW_HTTP_TARGET_H
#define KVW_HTTP_TARGET_H

#include "kvway/err.h"
#include "kvway/slice.h"

/* Returns the target without its query. */
struct kvw_slice kvw_target_path(struct kvw_slice target);

/* Decodes %XX, and '+' as a space if `plus`, with a NUL behind it. False: it cannot be read (or has
 * %00), or has more than room - 1 bytes. */
bool kvw_target_decode(
	struct kvw_slice coded, bool plus, char *text, size_t room, size_t *len) KVW_MUST_CHECK;

/* Sets *coded to the query's first parameter of that name; its data is NULL if there is none.
 * False: a parameter has no name or no equals sign, which says nothing of *coded. */
bool kvw_target_query(
	struct kvw_slice target, const char *name, struct kvw_slice *coded);

#endif
