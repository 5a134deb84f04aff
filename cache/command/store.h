/*
 * store.h - finding the stores that a path names, and their owners.
 */
#ifndef KVT_STORE_H
#define KVT_STORE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "tiers/nvme/nvme_share.h" /* kvt_store_owner */

/* Folders of stores, sorted; each is the caller's with the list. */
struct kvt_stores {
	char **folders;
	size_t count;
	bool failed; /* no memory */
};

/*
 * A store's own folder, or what nvme.path names (all stores under it). False: `verb` said on
 * standard error why there is none.
 */
bool kvt_stores_find(const char *verb, const char *path, struct kvt_stores *out);
void kvt_stores_finish(struct kvt_stores *s);

#endif
