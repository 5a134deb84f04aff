/*
 * disk_life.c - creates and destroys disks in memory, and reads and changes their contents.
 */
#include <assert.h>
#include <stdlib.h>
#include <time.h>

#include "io/testing/disk_state.h"

enum kvt_status kvt_disk_create(const struct kvt_disk_options *options, struct kvt_disk **out)
{
	struct kvt_disk *disk = calloc(1, sizeof(*disk));
	pthread_condattr_t attr;

	if (disk == NULL)
		return KVT_ENOMEM;
	disk->options = *options;
	if (disk->options.alignment == 0)
		disk->options.alignment = KVT_DISK_PAGE;
	disk->random = options->seed;
	disk->base_names.base = true;
	pthread_mutex_init(&disk->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&disk->woken, &attr);
	pthread_condattr_destroy(&attr);
	*out = disk;
	return KVT_OK;
}

void kvt_disk_destroy(struct kvt_disk *disk)
{
	if (disk == NULL)
		return;
	assert(disk->ios == NULL);
	disk_log_clear(disk);
	disk_names_finish(disk, &disk->base_names);
	disk_names_finish(disk, &disk->names);
	while (disk->inodes != NULL) { /* inodes of files that were never closed */
		disk->inodes->opens = 0;
		disk_inode_let_go(disk, disk->inodes);
	}
	pthread_cond_destroy(&disk->woken);
	pthread_mutex_destroy(&disk->lock);
	free(disk);
}

uint64_t kvt_disk_moment(struct kvt_disk *disk)
{
	uint64_t moment;

	pthread_mutex_lock(&disk->lock);
	moment = disk->moment;
	pthread_mutex_unlock(&disk->lock);
	return moment;
}

enum kvt_status kvt_disk_settle(struct kvt_disk *disk)
{
	bool ok;

	pthread_mutex_lock(&disk->lock);
	ok = disk_settle(disk);
	pthread_mutex_unlock(&disk->lock);
	return ok ? KVT_OK : KVT_ENOMEM;
}

static enum kvt_status meddle(struct kvt_disk *disk, const char *folder, const char *name,
	uint64_t offset, void *out, const void *from, uint64_t bytes)
{
	struct disk_inode *inode;
	enum kvt_status status = KVT_OK;

	pthread_mutex_lock(&disk->lock);
	inode = disk_names_find(&disk->names, folder, name);
	if (inode == NULL || offset > inode->now.length || bytes > inode->now.length - offset)
		status = KVT_MISS;
	else if (out != NULL)
		disk_content_read(&inode->now, offset, out, bytes);
	else if (!disk_content_write(&inode->now, offset, from, bytes))
		status = KVT_ENOMEM;
	pthread_mutex_unlock(&disk->lock);
	return status;
}

enum kvt_status kvt_disk_peek(struct kvt_disk *disk, const char *folder, const char *name,
	uint64_t offset, void *out, uint64_t bytes)
{
	return meddle(disk, folder, name, offset, out, NULL, bytes);
}

enum kvt_status kvt_disk_poke(struct kvt_disk *disk, const char *folder, const char *name,
	uint64_t offset, const void *from, uint64_t bytes)
{
	return meddle(disk, folder, name, offset, NULL, from, bytes);
}

void kvt_disk_stats(struct kvt_disk *disk, struct kvt_disk_stats *out)
{
	pthread_mutex_lock(&disk->lock);
	*out = disk->stats;
	out->allocated = 0;
	out->files = disk->names.count;
	for (const struct disk_inode *i = disk->inodes; i != NULL; i = i->next)
		if (i->opens > 0 || i->names > 0)
			out->allocated += i->now.allocated;
	pthread_mutex_unlock(&disk->lock);
}
