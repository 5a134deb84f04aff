/*
 * sim_copier.h - a thread that copies bytes between a worker's simulated device and libkvtier's
 * memory, as a GPU's copy engines do.
 *
 * Chunks that are put are filled with bytes that follow from their names; bytes of a lease are
 * checked against these, byte by byte. Jobs are done one after another, in order.
 *
 * The caller owns a job, passes it to the copier, and gets it back by kvb_copier_take.
 */
#ifndef KVB_SIM_COPIER_H
#define KVB_SIM_COPIER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "kvtier/kvtier.h"

/* A chunk to be put. Owns the memory to which it points, through `memory`. */
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

	/* a lease to be checked; borrowed until the job is taken back */
	const struct kvt_lease *lease;
	const struct kvt_key *keys; /* one for each view */
	uint32_t good;              /* number of chunks, from the first on, whose bytes are right */
	uint64_t wrong_bytes;
	int64_t copied_ns; /* real time when the last byte had been copied */

	/* put */
	struct kvb_put *puts;
	uint32_t put_count;
	uint32_t stored, existing, refused; /* chunks */
};
STAILQ_HEAD(kvb_copy_list, kvb_copy);

struct kvb_copier;

/* Starts a copier; each chunk that it puts has so many bytes. `copies`: leased bytes are copied
 * before they are checked, as to a device. Returns NULL if memory is short, or no thread could
 * be started. */
struct kvb_copier *kvb_copier_create(
	struct kvt *cache, uint32_t chunk_tokens, uint64_t chunk_bytes, bool copies);
/* Finishes the jobs that it has, which are then in *left. NULL is allowed. */
void kvb_copier_destroy(struct kvb_copier *copier, struct kvb_copy_list *left);

void kvb_copier_give(struct kvb_copier *copier, struct kvb_copy *job);
/* Returns a job that is done, or NULL. */
struct kvb_copy *kvb_copier_take(struct kvb_copier *copier);
/* Returns a descriptor that becomes readable when jobs are done, until it is read. */
int kvb_copier_fd(const struct kvb_copier *copier);

#endif
