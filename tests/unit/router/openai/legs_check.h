/*
 * legs_check.h - the two bodies of a request that is prefilled elsewhere, held against a tree of jansson. For the test
 * and the fuzz target.
 */
#ifndef KVW_TEST_LEGS_CHECK_H
#define KVW_TEST_LEGS_CHECK_H

#include "openai/legs.h"

/*
 * Plans and writes both bodies. NULL, or what is wrong: a written body means another thing than the client's with the
 * members changed that are meant, or is none although the client's is one. *split: both were planned, and the tree
 * could read the client's body.
 */
const char *legs_check(enum kvw_api api, const char *body, size_t len, bool *split);

#endif
