/*
 * radix_keep.h - the prefix tree as records that outlive the process (include/kvway/keep.h).
 *
 * Hashes of chunks, which worker holds how much, how recently: no prompt can be read from it. The
 * records name the seed of the table, which clients must not know; the file is its owner's alone.
 *
 * Keeping takes no lock and stops no thread: it reads each node as a look-up does. What changes
 * meanwhile may be kept as it was before or after; the windows of the views are read last, so that
 * nothing that a purge took away meanwhile is kept.
 */
#ifndef KVW_RADIX_KEEP_H
#define KVW_RADIX_KEEP_H

#include "kvway/keep.h"
#include "routing/radix.h"

/* Writes all that some worker holds. The error of out->put. */
enum kvw_err kvw_radix_keep(struct kvw_radix *tree, const struct kvw_keep_out *out) KVW_MUST_CHECK;

struct kvw_radix_recall;

/* The first record, of kind KVW_KEPT_TREE. The tree is empty, and no other thread uses it before
 * kvw_radix_recall_end. KVW_EPROTO: it is not for this tree, or the tree is not empty;
 * KVW_ENOMEM. */
enum kvw_err kvw_radix_recall_begin(struct kvw_radix *tree, const struct kvw_keep_in *in,
	const uint8_t *record, size_t len, struct kvw_radix_recall **out) KVW_MUST_CHECK;

/* Records of the kinds NODE and VIEW. What makes no sense or has no room is left out. */
void kvw_radix_recall_node(struct kvw_radix_recall *recall, const uint8_t *record, size_t len);
void kvw_radix_recall_view(struct kvw_radix_recall *recall, const uint8_t *record, size_t len);

/* Puts together what was recalled, and frees `recall`. NULL is allowed. */
void kvw_radix_recall_end(struct kvw_radix_recall *recall);

#endif
