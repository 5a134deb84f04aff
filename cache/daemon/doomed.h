/*
 * doomed.h - objects that are being replaced: whose old bytes must not come back.
 *
 * The answer to a put that replaces does not wait until the old object's erasure is on disk. Until it
 * is, the key stands here, in a small file that a process leaves behind however it ends; the next
 * one erases what stands there before it serves anything. So after a kill an object that was being
 * replaced is gone, or the new one; never the old one. Thread-safe.
 *
 * An erase may end without being durable: another process owns the store, or it cannot be synced. Its place is
 * kept then, one for each key however often that is replaced, until something later is durable.
 */
#ifndef KVT_DOOMED_H
#define KVT_DOOMED_H

#include <stdbool.h>

#include "chunk/note.h"

#define KVT_DOOMED_MOST 1024

struct kvt_doomed;

/* path NULL: nothing is kept. KVT_EIO, KVT_ENOMEM; why: KVT_REASON_BYTES. */
enum kvt_status kvt_doomed_create(const char *path, const struct kvt_surroundings *surroundings,
	char *why, struct kvt_doomed **out) KVT_MUST_CHECK;
void kvt_doomed_destroy(struct kvt_doomed *d); /* NULL is allowed */

/* The keys that the former process left; *n of them, borrowed until destroy. */
const struct kvt_key *kvt_doomed_left(const struct kvt_doomed *d, size_t *n);
/* They are erased for good. */
void kvt_doomed_clear(struct kvt_doomed *d);
/* They are erased, but not for good: their places are kept. */
void kvt_doomed_keep_left(struct kvt_doomed *d);

/* Before the erase is begun; *slot: its place. KVT_BUSY: as many as may be; KVT_EIO. A place that is kept for
 * this key is taken again. */
enum kvt_status kvt_doomed_add(
	struct kvt_doomed *d, const struct kvt_key *key, uint32_t *slot) KVT_MUST_CHECK;
/* The erase was not begun. */
void kvt_doomed_drop(struct kvt_doomed *d, uint32_t slot);
/* The erase is durable, and with it those of the key before it. */
void kvt_doomed_remove(struct kvt_doomed *d, uint32_t slot);
/* The erase is over and not durable: the place stays taken, for the next process. */
void kvt_doomed_keep(struct kvt_doomed *d, uint32_t slot);

/* The key's old bytes, if a tier that is not there yet has any, must not come back with the next process: its place is
 * kept at once. Nothing happens where half of the places are taken, which are for what is replaced for sure. */
void kvt_doomed_remember(struct kvt_doomed *d, const struct kvt_key *key);

/* A number that grows with each place that is kept; 0: none is kept now. */
uint64_t kvt_doomed_kept(struct kvt_doomed *d);
/* All erases up to the number `until` of kvt_doomed_kept() are durable: their places are free. */
void kvt_doomed_settled(struct kvt_doomed *d, uint64_t until);

#endif
