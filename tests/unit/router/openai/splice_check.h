/*
 * splice_check.h - one body and its splice, held against a tree of jansson. For the test and the fuzz target.
 */
#ifndef KVW_TEST_SPLICE_CHECK_H
#define KVW_TEST_SPLICE_CHECK_H

#include "openai/splice.h"

/*
 * Scans the body in pieces cut by `seed`, plans, writes. NULL, or what is wrong: the changed body means another thing
 * than the body with those two members, or another scan of it does not find them. *changed: there was a plan, and
 * the tree could read the body.
 */
const char *splice_check(enum kvw_api api, const char *body, size_t len, uint64_t seed, bool *changed);

#endif
