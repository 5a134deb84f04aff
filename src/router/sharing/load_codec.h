/*
 * load_codec.h - encodes and decodes a replica's message about its load.
 *
 * Values are totals, not changes, so the next message corrects the effect of a lost or repeated
 * one. `origin` (random) identifies a process, and `sequence` grows with each message, so late
 * older messages are recognised without a clock. Workers without load are left out.
 *
 *	"kvL" version(1) | origin(8) | sequence | waiting_us | first_waiting_us
 *	  | offered_us_per_s | count
 *	  | count x { key(8) | queue_us | waiting_us | inflight | context | sequences | unanswered }
 *	  | check(4): XXH3-64 of all before, its lower half
 *
 * Numbers with a width are little-endian, the others LEB128 of at most 9 bytes.
 *
 * The reader trusts no message: a malformed one is refused whole, and each value is limited to what
 * one replica can reasonably have on one worker (KVW_LOAD_MOST_*), so that false values do limited
 * harm.
 *
 * Pure functions.
 */
#ifndef KVW_LOAD_CODEC_H
#define KVW_LOAD_CODEC_H

#include <stddef.h>
#include <stdint.h>

#include "admission/admission.h"
#include "kvway/err.h"
#include "kvway/load.h"

/* Largest values that one replica can reasonably have on one worker. */
#define KVW_LOAD_MOST_QUEUE_NS INT64_C(30000000000)
#define KVW_LOAD_MOST_INFLIGHT 4096u
#define KVW_LOAD_MOST_CONTEXT  (1u << 26)
/* Largest value of one replica for its waiting or offered work. */
#define KVW_LOAD_MOST_WORK_NS INT64_C(3600000000000)

#define KVW_LOAD_BYTES (64 + KVW_MAX_WORKERS * 56) /* room for any message */

/* Load on one worker. */
struct kvw_load_entry {
	uint64_t key; /* hash of the worker's URL, the same in all replicas */
	struct kvw_load_part part;
};

/* A message. */
struct kvw_load_news {
	uint64_t origin;   /* identifies the replica, != 0 */
	uint64_t sequence; /* number of the message; > 0 */
	struct kvw_admission_work work;
	size_t count;
	struct kvw_load_entry entries[KVW_MAX_WORKERS];
};

/* Writes a message to out, which has room for KVW_LOAD_BYTES; returns its length. news->count must
 * be at most KVW_MAX_WORKERS. */
size_t kvw_load_write(const struct kvw_load_news *news, char *out);

/* KVW_EPROTO: the message is malformed, and *out is undefined. */
enum kvw_err kvw_load_read(const char *data, size_t len, struct kvw_load_news *out) KVW_MUST_CHECK;

#endif
