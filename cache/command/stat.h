/*
 * stat.h - the contents of a store as found by `kvtier stat`, before they are printed.
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
	uint64_t l1_chunks, l1_bytes; /* in its owner's memory; bytes as occupied there */
	uint64_t l2_chunks, l2_bytes; /* in the shared tier, as its limit counts them */
};

struct kvt_stat {
	const char *folder;
	struct kvt_owner owner;
	struct kvt_inspect_store store;
	struct kvt_stat_tenant *tenants; /* owned; most bytes on disk first */
	size_t tenant_count;
	bool has_l1;                       /* the owner reported its memory's contents */
	bool has_l2;                       /* and its tenants in the shared tier */
	struct kvt_tenant_share l1_others; /* sums of tenants beyond the KVT_TENANTS_LISTED that the owner named */
	bool has_reuse;                    /* the owner reported its reuse of fragments */
	struct kvt_fragments_stats reuse;  /* since the owner began */
	uint64_t tokens;
	uint64_t smallest, largest;        /* bytes of a chunk; 0: the store is empty */
	uint64_t roots;                    /* chunks that begin a prompt, or a fragment */
	/* text that is no prefix; bytes: on disk */
	uint64_t fragments, fragment_chunks, fragment_tokens, fragment_bytes;
	uint64_t in_pieces;                /* chunks in more than one run */
	uint64_t summed_by_pieces;         /* chunks whose pieces have checksums of their own */
	uint64_t expired, mortal;          /* chunks past their expiry; chunks with an expiry */
	double oldest_use_s, newest_use_s; /* seconds ago, of chunks with a TTL; -1: no chunk has one */
	int64_t changed_wall_s;            /* last change of the log, since 1970; 0: unknown */
};

/* Sums up a store. False: no memory. Release with kvt_stat_finish. */
bool kvt_stat_collect(const struct kvt_inspect *x, int64_t wall_ns, struct kvt_stat *out);
void kvt_stat_finish(struct kvt_stat *s);

/* Adds the contents of the owner's memory. False: no memory. */
bool kvt_stat_add_l1(struct kvt_stat *s, const struct kvt_tenant_list *list);
/* Adds the contents of the owner's shared tier. */
bool kvt_stat_add_l2(struct kvt_stat *s, const struct kvt_tenant_list *list);

/* Lists `most` tenants. */
void kvt_stat_print(const struct kvt_stat *s, size_t most, int64_t wall_s, FILE *out);

/* Makes one object, owned by the caller; false: no memory. */
struct json_t *kvt_stat_json(const struct kvt_stat *s);

#endif
