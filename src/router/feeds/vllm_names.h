/*
 * vllm_names.h - finds the worker that publishes under a topic kv@HOST:PORT@MODEL, by the HOST:PORT
 * of its URL and by its addresses. Needed for engines that connect instead of listening.
 *
 * Threads: the feed's.
 */
#ifndef KVW_VLLM_NAMES_H
#define KVW_VLLM_NAMES_H

#include "fleet/worker.h"
#include "kvway/slice.h"

struct kvw_vllm_name; /* a HOST:PORT and its worker */

/* Zeroed: none. */
struct kvw_vllm_names {
	struct kvw_vllm_name *items; /* owned, [count] */
	size_t count;
};

void kvw_vllm_names_clear(struct kvw_vllm_names *names);
/* Empties the table, and makes room for this many workers. */
enum kvw_err kvw_vllm_names_begin(struct kvw_vllm_names *names, size_t workers) KVW_MUST_CHECK;
enum kvw_err kvw_vllm_names_add(
	struct kvw_vllm_names *names, struct kvw_worker *worker) KVW_MUST_CHECK;
void kvw_vllm_names_end(struct kvw_vllm_names *names); /* makes the added names findable */

/* Finds a worker's id. False: the topic names no worker. */
bool kvw_vllm_names_find(
	const struct kvw_vllm_names *names, struct kvw_slice topic, uint32_t *worker);

#endif
