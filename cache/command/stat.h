/*
 * stat.h - the contents of a store as `kvtier stat` found them, before they are printed.
 */
#ifndef KVT_STAT_H
#define KVT_STAT_H

#include <stdbool.h>
#include <stdio.h>

#include "chunk/tenants.h"
#include "kvtier/kvtier_fragments.h"
#include "tiers/nvme/nvme_inspect.h"
#include "command/store.h"

/* Contents of one tenant. */
struct kvt_stat_tenant {
	struct kvt_tenant tenant;
	uint64_t chunks, bytes, disk_bytes;
	uint64_t l1_chunks, l1_bytes; /* in the memory of the store's owner; bytes with overhead */
	uint64_t l2_chunks, l2_bytes; /* in the shared tier, as counted for its limit */
};

struct kvt_stat {
	const char *folder;
	struct kvt_owner owner;
	struct kvt_inspect_store store;
	struct kvt_stat_tenant *tenants; /* owned; those with most bytes on disk come first */
	size_t tenant_count;
	bool has_l1;                       /* the owner reported the contents of its memory */
	bool has_l2;                       /* the owner reported its tenants in the shared tier */
	/* sums for all tenants except the KVT_TENANTS_LISTED that the owner named */
	struct kvt_tenant_share l1_others;
	bool has_reuse;                    /* the owner reported its reuse of fragments */
	struct kvt_fragments_stats reuse;  /* since the start of the owner */
	uint64_t tokens;
	/* bytes of the smallest and of the largest chunk; 0: the store is empty */
	uint64_t smallest, largest;
	uint64_t roots;                    /* number of chunks that begin a prompt, or a fragment */
	/* chunks of text that is not a prefix; bytes are those on disk */
	uint64_t fragments, fragment_chunks, fragment_tokens, fragment_bytes;
	uint64_t in_pieces;                /* number of chunks in more than one run */
	uint64_t summed_by_pieces; /* number of chunks whose pieces have their own checksums */
	/* number of chunks past their expiry; number of chunks that can expire */
	uint64_t expired, mortal;
	/* age in seconds of the last use, of chunks with a TTL; -1: no chunk has one */
	double oldest_use_s, newest_use_s;
	int64_t changed_wall_s; /* time of the last change of the log, since 1970; 0: unknown */
};

/* Sums up the chunks of a store. Returns false if memory is short. Release the result with
 * kvt_stat_finish. */
bool kvt_stat_collect(const struct kvt_inspect *x, int64_t wall_ns, struct kvt_stat *out);
void kvt_stat_finish(struct kvt_stat *s);

/* Adds the contents of the owner's memory. Returns false if memory is short. */
bool kvt_stat_add_l1(struct kvt_stat *s, const struct kvt_tenant_list *list);
/* Adds the contents of the owner's shared tier. */
bool kvt_stat_add_l2(struct kvt_stat *s, const struct kvt_tenant_list *list);

/* Lists `most` tenants. */
void kvt_stat_print(const struct kvt_stat *s, size_t most, int64_t wall_s, FILE *out);

/* Makes a JSON object that the caller owns; NULL: memory is short. */
struct json_t *kvt_stat_json(const struct kvt_stat *s);

#endif
