/*
 * disk_state.c - keeps pages, inodes, names and the record of a disk in memory.
 */
#include <stdlib.h>
#include <string.h>

#include "io/testing/disk_state.h"

/* --- content
 * ------------------------------------------------------------------------------------ */

static bool content_room(struct disk_content *c, uint64_t pages)
{
	uint64_t room = c->page_count == 0 ? 16 : c->page_count;
	uint8_t **array;

	if (pages <= c->page_count)
		return true;
	while (room < pages)
		room *= 2;
	array = realloc(c->pages, room * sizeof(*array));
	if (array == NULL)
		return false;
	memset(array + c->page_count, 0, (room - c->page_count) * sizeof(*array));
	c->pages = array;
	c->page_count = room;
	return true;
}

bool disk_content_write(struct disk_content *c, uint64_t offset, const void *from, uint64_t bytes)
{
	const uint8_t *p = from;
	uint64_t end = offset + bytes;

	if (!content_room(c, (end + KVT_DISK_PAGE - 1) / KVT_DISK_PAGE))
		return false;
	while (offset < end) {
		uint64_t page = offset / KVT_DISK_PAGE, at = offset % KVT_DISK_PAGE;
		uint64_t n = KVT_DISK_PAGE - at < end - offset ? KVT_DISK_PAGE - at : end - offset;

		if (c->pages[page] == NULL)
			c->pages[page] = calloc(1, KVT_DISK_PAGE);
		if (c->pages[page] == NULL)
			return false;
		memcpy(c->pages[page] + at, p, n);
		p += n;
		offset += n;
	}
	if (end > c->length)
		c->length = end;
	if (end > c->allocated)
		c->allocated = end;
	return true;
}

void disk_content_read(const struct disk_content *c, uint64_t offset, void *out, uint64_t bytes)
{
	uint8_t *p = out;

	while (bytes > 0) {
		uint64_t page = offset / KVT_DISK_PAGE, at = offset % KVT_DISK_PAGE;
		uint64_t n = KVT_DISK_PAGE - at < bytes ? KVT_DISK_PAGE - at : bytes;

		if (page < c->page_count && c->pages[page] != NULL)
			memcpy(p, c->pages[page] + at, n);
		else
			memset(p, 0, n);
		p += n;
		offset += n;
		bytes -= n;
	}
}

void disk_content_set_length(struct disk_content *c, uint64_t length, uint64_t allocated)
{
	for (uint64_t i = length / KVT_DISK_PAGE; i < c->page_count && length < c->length; i++) {
		uint64_t from = i * KVT_DISK_PAGE;

		if (c->pages[i] == NULL)
			continue;
		if (from < length) {
			memset(c->pages[i] + (length - from), 0, KVT_DISK_PAGE - (length - from));
		} else {
			free(c->pages[i]);
			c->pages[i] = NULL;
		}
	}
	c->length = length;
	c->allocated = allocated;
}

bool disk_content_copy(const struct disk_content *from, struct disk_content *to)
{
	*to = (struct disk_content){.length = from->length, .allocated = from->allocated};
	if (!content_room(to, from->page_count))
		return false;
	for (uint64_t i = 0; i < from->page_count; i++) {
		if (from->pages[i] == NULL)
			continue;
		to->pages[i] = malloc(KVT_DISK_PAGE);
		if (to->pages[i] == NULL)
			return false;
		memcpy(to->pages[i], from->pages[i], KVT_DISK_PAGE);
	}
	return true;
}

void disk_content_finish(struct disk_content *c)
{
	for (uint64_t i = 0; i < c->page_count; i++)
		free(c->pages[i]);
	free(c->pages);
	*c = (struct disk_content){0};
}

/* --- inodes
 * ------------------------------------------------------------------------------------- */

struct disk_inode *disk_inode_new(struct kvt_disk *disk, const char *folder, uint64_t id)
{
	struct disk_inode *inode = calloc(1, sizeof(*inode));

	if (inode == NULL)
		return NULL;
	inode->folder = strdup(folder);
	if (inode->folder == NULL) {
		free(inode);
		return NULL;
	}
	inode->id = id;
	if (id > disk->last_id)
		disk->last_id = id;
	inode->next = disk->inodes;
	disk->inodes = inode;
	return inode;
}

void disk_inode_let_go(struct kvt_disk *disk, struct disk_inode *inode)
{
	struct disk_inode **at = &disk->inodes;

	if (inode->names + inode->base_names + inode->opens + inode->events > 0)
		return;
	while (*at != inode)
		at = &(*at)->next;
	*at = inode->next;
	disk_content_finish(&inode->now);
	disk_content_finish(&inode->base);
	free(inode->folder);
	free(inode);
}

/* --- names
 * -------------------------------------------------------------------------------------- */

static struct disk_name *find(
	const struct disk_names *names, const char *folder, const char *name)
{
	for (size_t i = 0; i < names->count; i++)
		if (strcmp(names->items[i].name, name) == 0 &&
			strcmp(names->items[i].folder, folder) == 0)
			return &names->items[i];
	return NULL;
}

struct disk_inode *disk_names_find(
	const struct disk_names *names, const char *folder, const char *name)
{
	const struct disk_name *found = find(names, folder, name);

	return found == NULL ? NULL : found->inode;
}

static uint32_t *uses_of(const struct disk_names *names, struct disk_inode *inode)
{
	return names->base ? &inode->base_names : &inode->names;
}

static bool names_room(struct disk_names *names)
{
	size_t room = names->room == 0 ? 16 : 2 * names->room;
	struct disk_name *items;

	if (names->count < names->room)
		return true;
	items = realloc(names->items, room * sizeof(*items));
	if (items == NULL)
		return false;
	names->items = items;
	names->room = room;
	return true;
}

bool disk_names_set(struct kvt_disk *disk, struct disk_names *names, const char *folder,
	const char *name, struct disk_inode *inode)
{
	struct disk_name *found = find(names, folder, name);
	struct disk_inode *old;

	++*uses_of(names, inode);
	if (found != NULL) {
		old = found->inode;
		found->inode = inode;
		--*uses_of(names, old);
		disk_inode_let_go(disk, old);
		return true;
	}
	if (names_room(names)) {
		found = &names->items[names->count];
		*found = (struct disk_name){strdup(folder), strdup(name), inode};
		if (found->folder != NULL && found->name != NULL) {
			names->count++;
			return true;
		}
		free(found->folder);
		free(found->name);
	}
	--*uses_of(names, inode);
	return false;
}

bool disk_names_drop(
	struct kvt_disk *disk, struct disk_names *names, const char *folder, const char *name)
{
	struct disk_name *found = find(names, folder, name);
	struct disk_inode *inode;

	if (found == NULL)
		return false;
	inode = found->inode;
	free(found->folder);
	free(found->name);
	*found = names->items[--names->count];
	--*uses_of(names, inode);
	disk_inode_let_go(disk, inode);
	return true;
}

void disk_names_finish(struct kvt_disk *disk, struct disk_names *names)
{
	while (names->count > 0)
		(void)disk_names_drop(disk, names, names->items[0].folder, names->items[0].name);
	free(names->items);
	*names = (struct disk_names){.base = names->base};
}

/* --- the record
 * --------------------------------------------------------------------------------- */

static char *copy_of(const char *text, bool *ok)
{
	char *copy = text == NULL ? NULL : strdup(text);

	if (text != NULL && copy == NULL)
		*ok = false;
	return copy;
}

static void event_finish(struct kvt_disk *disk, struct disk_event *e)
{
	free(e->folder);
	free(e->name);
	free(e->to);
	free(e->data);
	if (e->inode != NULL) {
		e->inode->events--;
		disk_inode_let_go(disk, e->inode);
	}
}

bool disk_log_add(struct kvt_disk *disk, const struct disk_event *event, size_t *index)
{
	struct disk_log *log = &disk->log;
	size_t room = log->room == 0 ? 64 : 2 * log->room;
	struct disk_event *items, *e;
	bool ok = true;

	disk->moment++;
	*index = SIZE_MAX;
	if (!disk->options.record) {
		free(event->data);
		return true;
	}
	if (log->count == log->room) {
		items = realloc(log->items, room * sizeof(*items));
		if (items == NULL) {
			free(event->data);
			return false;
		}
		log->items = items;
		log->room = room;
	}
	e = &log->items[log->count];
	*e = *event;
	e->begun = disk->moment;
	e->finished = DISK_UNFINISHED;
	e->folder = copy_of(event->folder, &ok);
	e->name = copy_of(event->name, &ok);
	e->to = copy_of(event->to, &ok);
	if (e->inode != NULL)
		e->inode->events++;
	if (!ok) {
		event_finish(disk, e);
		return false;
	}
	*index = log->count++;
	return true;
}

void disk_log_finish_event(struct kvt_disk *disk, size_t index)
{
	disk->moment++;
	if (index != SIZE_MAX)
		disk->log.items[index].finished = disk->moment;
}

void disk_log_clear(struct kvt_disk *disk)
{
	for (size_t i = 0; i < disk->log.count; i++)
		event_finish(disk, &disk->log.items[i]);
	free(disk->log.items);
	disk->log = (struct disk_log){0};
}

bool disk_settle(struct kvt_disk *disk)
{
	bool ok = true;

	disk_log_clear(disk);
	disk_names_finish(disk, &disk->base_names);
	for (size_t i = 0; ok && i < disk->names.count; i++) {
		const struct disk_name *n = &disk->names.items[i];

		ok = disk_names_set(disk, &disk->base_names, n->folder, n->name, n->inode);
	}
	for (struct disk_inode *i = disk->inodes; ok && i != NULL; i = i->next) {
		disk_content_finish(&i->base);
		if (disk->options.record)
			ok = disk_content_copy(&i->now, &i->base);
	}
	return ok;
}
