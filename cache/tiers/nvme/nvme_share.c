/*
 * nvme_share.c - finds the stores below a path and their owners, and divides the disk's room among
 * them.
 *
 * A store lies in PATH/FINGERPRINT/RANK, and its owner has a lock on a file there. Stores of one
 * fingerprint are the ranks of an engine: ranks that have not opened yet count as well. Stores of
 * other fingerprints count if they have an owner. The files of stores without an owner belong to
 * the room that is divided: their owner may come back, and then shares it.
 */
#include "tiers/nvme/nvme_share.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "io/machine.h"
#include "tiers/nvme/nvme_inspect.h"

#define MIB       ((uint64_t)1 << 20)
#define MOST_LIVE 256 /* most stores whose files are measured */

void kvt_store_owner(const char *folder, struct kvt_owner *out)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	char path[4096], text[32] = "";
	int fd, n = snprintf(path, sizeof(path), "%s/%s", folder, KVT_IO_LOCK_NAME);

	*out = (struct kvt_owner){0};
	if (n < 0 || (size_t)n >= sizeof(path))
		return;
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0)
		return;
	/* F_OFD_GETLK finds the lock but not its owner's pid, since the lock belongs to an open
	 * file; so the owner wrote its pid into the file */
	out->alive = fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
	if (out->alive && pread(fd, text, sizeof(text) - 1, 0) > 0)
		out->pid = strtoll(text, NULL, 10);
	(void)close(fd);
}

/* Stores owned by other processes. */
struct live {
	const char *folder; /* the caller's */
	/* length of the leading part of the store's path that names its fingerprint's folder */
	size_t engine;
	uint32_t siblings, others;
	uint64_t bytes[MOST_LIVE]; /* bytes of each store's files */
};

static void look(void *self, const char *folder)
{
	struct live *live = self;
	uint32_t count = live->siblings + live->others;
	struct kvt_owner owner;

	if (live->folder != NULL && strcmp(folder, live->folder) == 0)
		return;
	kvt_store_owner(folder, &owner);
	if (!owner.alive || count == MOST_LIVE)
		return;
	live->bytes[count] = kvt_folder_bytes(folder);
	if (live->folder != NULL && strncmp(folder, live->folder, live->engine) == 0)
		live->siblings++;
	else
		live->others++;
}

/* Returns the size that all stores with at most their part can have, when others have more than
 * `part`. */
static uint64_t part_beside(const struct live *live, uint64_t room, uint64_t part, uint32_t stores)
{
	uint64_t beyond = 0;

	for (uint32_t i = 0; i < live->siblings + live->others; i++)
		if (live->bytes[i] > part && stores > 1) {
			beyond += live->bytes[i];
			stores--;
		}
	if (beyond == 0)
		return part;
	room = room > beyond ? (room - beyond) / stores : 0;
	return room < part ? room : part;
}

void kvt_nvme_share(const struct kvt_machine *m, const char *path, const char *folder, uint32_t ranks,
	struct kvt_nvme_share *out, char why[KVT_REASON_BYTES])
{
	uint64_t keep = m->disk_total / 20, room = m->disk_free + m->disk_ours, part, own = 0, left;
	uint64_t whole = kvt_size_nvme(m, why);
	struct live live = {.folder = folder};
	uint32_t stores = ranks;
	size_t n = strlen(why);

	if (folder != NULL)
		live.engine = (size_t)(strrchr(folder, '/') - folder) + 1;
	(void)!kvt_inspect_stores(path, look, &live);
	if (live.siblings + 1 > stores)
		stores = live.siblings + 1;
	stores += live.others;
	part = whole / stores;
	if (stores > 1) {
		own = folder != NULL ? kvt_folder_bytes(folder) : 0;
		left = own + (m->disk_free > keep ? m->disk_free - keep : 0);
		part = part_beside(&live, room > keep ? room - keep : 0, part, stores);
		part = (part < left ? part : left) / MIB * MIB;
		(void)snprintf(why + n, KVT_REASON_BYTES - n, ", for %u stores (%u in use by others)",
			stores, live.siblings + live.others);
	}
	*out = (struct kvt_nvme_share){stores, whole, part};
}
