/*
 * files.h - a clock, a disk in memory under it, and what can go wrong with the disk.
 *
 * They outlive the cache that uses them, as a machine outlives a process. The disk fails by rules
 * and chance, and can lose power: then the next cache finds what a real disk might have kept.
 */
#ifndef MODEL_FILES_H
#define MODEL_FILES_H

#include <stdbool.h>

#include "kvtier/kvtier.h"

struct files;

/* disk: with one; record: it can lose power. Aborts without memory. */
struct files *files_create(bool disk, bool record, uint64_t seed);
void files_destroy(struct files *files);

struct kvt_clock files_clock(struct files *files);
void files_pass_time(struct files *files, int64_t ns);

/* NULL without a disk. Borrowed until files_go_on. */
const struct kvt_io_layer *files_layer(struct files *files);

/* Operations begin to fail, or stop to. */
void files_faults(struct files *files, bool on);

/* The machine stops now: power: what was not synced may be lost; else all that was done is there.
 * What the present cache still does is in vain. */
void files_crash(struct files *files, bool power, uint64_t seed);

/* The cache has been closed: the next one finds what there is. */
void files_go_on(struct files *files);

#endif
