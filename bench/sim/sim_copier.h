/*
 * sim_copier.h - the thread that moves bytes between a worker's device, which does not exist, and
 * libkvtier's memory: what a GPU's copy engines do.
 *
 * Chunks that are put are filled with the bytes that their names stand for; what a lease holds is
 * checked against them, byte by byte. Jobs are done one after another, in order.
 *
 * The caller owns a job, hands it to the copier and gets it back through kvb_copier_take.
 */
#ifndef KVB_SIM_COPIER_H
#define KVB_SIM_COPIER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "kvtier/kvtier.h"

/* A chunk to be put. Owns what it points to, through `memory`. */
struct kvb_put {
	struct kvt_key key, parent;
	bool has_parent;
	struct kvt_tenant tenant;
	bool has_blocks;          /* events name its blocks */
	struct kvt_blocks blocks; /* into memory */
	void *memory;
};

enum kvb_copy_kind { KVB_COPY_CHECK, KVB_COPY_PUT };

struct kvb_copy {
	STAILQ_ENTRY(kvb_copy) entry;
	enum kvb_copy_kind kind;

	/* check; borrowed until it is taken back */
	const struct kvt_lease *lease;
	const struct kvt_key *keys; /* one for each view */
	uint32_t good;              /* leading chunks that are right */
	uint64_t wrong_bytes;
	int64_t copied_ns; /* real time; when the last byte had been copied */

	/* put */
	struct kvb_put *puts;
	uint32_t put_count;
	uint32_t stored, existing, refused; /* chunks */
};
STAILQ_HEAD(kvb_copy_list, kvb_copy);

struct kvb_copier;

/* Puts have so many bytes a chunk. `copies`: lease bytes are copied away before they are checked, as to
 * a device. NULL without memory or thread. */
struct kvb_copier *kvb_copier_create(
	struct kvt *cache, uint32_t chunk_tokens, uint64_t chunk_bytes, bool copies);
/* Finishes the jobs that it has; they can be taken from *left. NULL is allowed. */
void kvb_copier_destroy(struct kvb_copier *copier, struct kvb_copy_list *left);

void kvb_copier_give(struct kvb_copier *copier, struct kvb_copy *job);
/* One that is done, or NULL. */
struct kvb_copy *kvb_copier_take(struct kvb_copier *copier);
/* Readable when jobs are done, until it is read. */
int kvb_copier_fd(const struct kvb_copier *copier);

#endif
