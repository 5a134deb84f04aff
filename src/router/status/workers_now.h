/*
 * workers_now.h - what is true of each worker now, and which ones are slower than their peers.
 * Threads: the control thread. Borrowed pointers are valid until the fleet's members change.
 */
#ifndef KVW_STATUS_WORKERS_NOW_H
#define KVW_STATUS_WORKERS_NOW_H

#include "admin/admin.h"
#include "admin/worker_id.h"

/* A worker is slow if its peers (usable workers of the same model and role) are, by their median,
 * at least so many times as fast. */
#define KVW_SLOW_FACTOR 2
/* Fewer samples than these prove nothing. */
#define KVW_SLOW_SAMPLES 8  /* times to first token from which a prefill rate is computed */
#define KVW_SLOW_TOKENS  64 /* tokens after the first, in the last minute */
/* Least difference that counts, so that idle or tiny workers do not alarm. */
#define KVW_SLOW_LEAST_MS 2 /* ms a token */

#define KVW_SLOW_TEXT 320

struct kvw_worker_fact {
	struct kvw_worker *worker; /* NULL: removed by the admin address */
	struct kvw_slice id;       /* as the admin address names it */
	bool leaves;
	struct kvw_worker_now now;
	struct kvw_worker_learned learned; /* zeroed: the strategy learns nothing */
	char slow[KVW_SLOW_TEXT];          /* how it is slower than its peers; "": it is not */
	char slow_why[KVW_SLOW_TEXT];      /* what may be the reason */
};

struct kvw_workers_now {
	struct kvw_worker_list list;   /* owned */
	struct kvw_worker_fact *items; /* owned; [list.count] */
};

enum kvw_err kvw_workers_now_read(const struct kvw_admin_facts *facts, int64_t now_ns,
	struct kvw_workers_now *out) KVW_MUST_CHECK;
void kvw_workers_now_finish(struct kvw_workers_now *now);
/* Returns a list of the workers as GET /workers shows them, with what is in their facts. NULL: out
 * of memory. */
struct json_t *kvw_workers_now_json(
	const struct kvw_workers_now *now, const struct kvw_admin_facts *facts, int64_t now_ns);

#endif
