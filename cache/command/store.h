/*
 * store.h - finding the stores that a path names, and their owners.
 */
#ifndef KVT_STORE_H
#define KVT_STORE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "tiers/nvme/nvme_share.h" /* kvt_store_owner */

/* Folders of stores, sorted; owned by the caller together with the list. */
struct kvt_stores {
	char **folders;
	size_t count;
	bool failed; /* no memory */
};

/*
 * Finds a store's own folder, or all stores below nvme.path. False: `verb` printed the cause on
 * standard error.
 */
bool kvt_stores_find(const char *verb, const char *path, struct kvt_stores *out);
void kvt_stores_finish(struct kvt_stores *s);

#endif
