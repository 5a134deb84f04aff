/*
 * check_l2.h - prints the warnings of `kvtier check` and `kvtierd check` about the shared tier.
 */
#ifndef KVT_CHECK_L2_H
#define KVT_CHECK_L2_H

#include <stddef.h>

#include "kvtier/kvtier.h"

/* Prints warnings on standard error, "KEY: text" in each line, with `in` before the key ("" or
 * "cache."); returns how many. Does not connect to the server. */
size_t kvt_check_l2(const struct kvt_config *config, const char *in);

/* Prints "# l2: ...", one line on standard output, without the password. */
void kvt_print_l2(const struct kvt_config *config);

#endif
