/*
 * radix_keep.h - saves the prefix tree as records that outlive the process (include/kvway/keep.h).
 *
 * The records have hashes of chunks, holders and times of use: no prompt can be read from them.
 * They also have the seed of the table, which clients must not know; so only its owner may read the
 * file.
 *
 * Saving takes no lock and stops no thread: it reads each node as a look-up does. A node that
 * changes meanwhile may be saved in its state before or after; the windows of the views are read
 * last, so that entries purged meanwhile are not saved.
 */
#ifndef KVW_RADIX_KEEP_H
#define KVW_RADIX_KEEP_H

#include "kvway/keep.h"
#include "routing/radix.h"

/* Writes all nodes with holders. Returns the error of out->put. */
enum kvw_err kvw_radix_keep(struct kvw_radix *tree, const struct kvw_keep_out *out) KVW_MUST_CHECK;

struct kvw_radix_recall;

/* Reads the first record, of kind KVW_KEPT_TREE. The tree must be empty, and no other thread may
 * use it before kvw_radix_recall_end. KVW_EPROTO: the record is not for this tree, or the tree is
 * not empty; KVW_ENOMEM. */
enum kvw_err kvw_radix_recall_begin(struct kvw_radix *tree, const struct kvw_keep_in *in,
	const uint8_t *record, size_t len, struct kvw_radix_recall **out) KVW_MUST_CHECK;

/* Reads a record of kind NODE or VIEW. Invalid records, and those without room, are skipped. */
void kvw_radix_recall_node(struct kvw_radix_recall *recall, const uint8_t *record, size_t len);
void kvw_radix_recall_view(struct kvw_radix_recall *recall, const uint8_t *record, size_t len);

/* Links the recalled nodes, and frees `recall`. NULL is allowed. */
void kvw_radix_recall_end(struct kvw_radix_recall *recall);

#endif
