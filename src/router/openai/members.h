/*
 * members.h - finds the top-level members of a JSON object in its text.
 *
 * One pass skips the values: no tree is built and nothing is copied. The text need not be valid
 * JSON, but brackets must match; the walk ends where a value cannot be skipped. Pure function.
 */
#ifndef KVW_OPENAI_MEMBERS_H
#define KVW_OPENAI_MEMBERS_H

#include <stdbool.h>

#include "kvway/err.h"
#include "kvway/slice.h"

/* One member. Borrowed from the text. */
struct kvw_member {
	struct kvw_slice name;  /* the text between its quotes, as spelled */
	struct kvw_slice value; /* without white space around it */
	bool escaped;           /* the name has a backslash: it may be any name */
};

/* Called for each member. Returning false ends the walk. */
typedef bool kvw_member_fn(void *arg, const struct kvw_member *member);

/*
 * Calls fn for each member in the order of the text. *open: offset after the opening brace. *count:
 * members seen. KVW_EPROTO: the text is not an object, or is nested deeper than 64.
 */
enum kvw_err kvw_members_walk(struct kvw_slice text, kvw_member_fn *fn, void *arg, size_t *open,
	size_t *count) KVW_MUST_CHECK;

#endif
