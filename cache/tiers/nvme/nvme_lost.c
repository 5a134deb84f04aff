/*
 * nvme_lost.c - a store whose folder or lock file was removed while it was open.
 *
 * The folder's files may belong to another process by now, or take space without a name. The tier
 * checks once a second whether the file named `lock` is still the one that it has locked. If not,
 * the tier touches the store no more: its index is empty, requests end without a disk, and once all
 * operations under way have ended it closes its files. The core then makes another tier in its
 * place (refused.c), which takes the lock like any other and begins empty.
 */
#include <stdio.h>

#include "tiers/nvme/nvme.h"

#define LOOK_NS 1000000000

static void lose(struct nvme *t)
{
	pthread_mutex_lock(&t->lock);
	t->closing = true; /* keeps the removals that follow out of the log */
	t->log.pending.count = 0;
	(void)snprintf(t->reason, sizeof(t->reason), "%.110s: its folder or lock file was removed",
		t->folder);
	t->state = KVT_TIER_BROKEN;
	pthread_mutex_unlock(&t->lock);
	kvt_note(t->s, KVT_LOG_ERROR,
		"nvme: %s: nothing of it is used any more, and it begins again, empty", t->reason);
	t->lost = true;
	(void)kvt_index_erase_all(t->index);
}

static void close_files(struct nvme *t)
{
	for (uint32_t i = 0; i < t->space.file_count; i++)
		t->io->ops->close(t->io, t->space.files[i].file);
	t->space.file_count = 0;
	if (t->log.file != NULL)
		t->io->ops->close(t->io, t->log.file);
	t->log.file = NULL;
}

void nvme_lost_look(struct nvme *t, int64_t now)
{
	if (t->io->ops->holds == NULL || t->let_go)
		return;
	if (!t->lost && now >= t->look_ns) {
		t->look_ns = now + LOOK_NS;
		if (!t->io->ops->holds(t->io))
			lose(t);
	}
	if (!t->lost || t->ops_under_way > 0 || t->batch != NULL || t->issuing != NULL ||
		t->reads_active > 0 || t->writes_active > 0 || t->commit.phase != NVME_IDLE ||
		t->commit.stored != NULL)
		return;
	close_files(t);
	t->let_go = true;
}

bool nvme_lost(struct kvt_tier *base)
{
	return ((struct nvme *)base)->let_go;
}
