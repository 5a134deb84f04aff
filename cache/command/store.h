/*
 * store.h - finds the stores that a path names, and their owners.
 */
#ifndef KVT_STORE_H
#define KVT_STORE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "tiers/nvme/nvme_share.h" /* kvt_store_owner */

/* A sorted list of stores' folders; the caller owns the list and the texts. */
struct kvt_stores {
	char **folders;
	size_t count;
	bool failed; /* no memory */
};

/*
 * Finds the store if the path is its own folder, or all stores below if the path is nvme.path.
 * Returns false on failure; the cause was printed on standard error as of `verb`.
 */
bool kvt_stores_find(const char *verb, const char *path, struct kvt_stores *out);
void kvt_stores_finish(struct kvt_stores *s);

#endif
