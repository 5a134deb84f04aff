/*
 * vllm_names.h - which worker publishes under a topic kv@HOST:PORT@MODEL: by its URL's HOST:PORT,
 * and by its addresses. For engines that connect instead of listening.
 *
 * Threads: the feed's.
 */
#ifndef KVW_VLLM_NAMES_H
#define KVW_VLLM_NAMES_H

#include "fleet/worker.h"
#include "kvway/slice.h"

struct kvw_vllm_name; /* HOST:PORT and its worker */

/* Zeroed: none. */
struct kvw_vllm_names {
	struct kvw_vllm_name *items; /* owned, [count] */
	size_t count;
};

void kvw_vllm_names_clear(struct kvw_vllm_names *names);
/* Clears, and makes room for so many workers. */
enum kvw_err kvw_vllm_names_begin(struct kvw_vllm_names *names, size_t workers) KVW_MUST_CHECK;
enum kvw_err kvw_vllm_names_add(
	struct kvw_vllm_names *names, struct kvw_worker *worker) KVW_MUST_CHECK;
void kvw_vllm_names_end(struct kvw_vllm_names *names); /* from now on they can be found */

/* The worker's id. False: the topic names none. */
bool kvw_vllm_names_find(
	const struct kvw_vllm_names *names, struct kvw_slice topic, uint32_t *worker);

#endif
