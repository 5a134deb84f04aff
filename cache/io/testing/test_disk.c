/*
 * test_disk.c - kvt_ios on a disk in memory.
 *
 * Each kvt_io has a list of waiting operations. They are executed in reap, whose order decides
 * which bytes a read finds, and which of two writes to one place is the last. Each operation has a
 * due time, which follows from the latency and speed in the disk's options.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/random.h"
#include "io/testing/disk_state.h"
#include "io/queue.h"

#define SECOND INT64_C(1000000000)

/* An operation under way. */
struct pending {
	struct kvt_io_op *op;
	size_t event; /* index of the operation's event in the record */
	int64_t due_ns;
	uint64_t check; /* hash of a write's bytes when it was submitted */
};

struct disk_file {
	struct disk_inode *inode;
	bool direct, writable;
};

struct disk_io {
	struct kvt_io base;
	struct kvt_disk *disk;
	char *folder;
	bool owner; /* has the folder's lock */
	bool woken;
	struct pending *pending; /* has room for more operations than the options' depth */
	size_t pending_count, pending_room;
	struct kvt_io_queue refused; /* operations that were refused before they began */
	struct kvt_io_mode mode;
	char why[KVT_REASON_BYTES];
	struct disk_io *next; /* the disk's list */
};

static struct disk_io *enter(struct kvt_io *io)
{
	struct disk_io *d = (struct disk_io *)io;

	pthread_mutex_lock(&d->disk->lock);
	return d;
}

static enum kvt_status leave(struct disk_io *d, enum kvt_status status, const char *why)
{
	if (status != KVT_OK)
		(void)snprintf(d->why, sizeof(d->why), "%s", why);
	pthread_mutex_unlock(&d->disk->lock);
	return status;
}

/* --- files and names
 * ---------------------------------------------------------------------------- */

static struct disk_inode *make(struct disk_io *d, const char *name)
{
	struct kvt_disk *disk = d->disk;
	struct disk_inode *inode = disk_inode_new(disk, d->folder, disk->last_id + 1);
	size_t event;

	if (inode == NULL)
		return NULL;
	if (!disk_log_add(disk, &(struct disk_event){.kind = DISK_CREATE, .inode = inode,
			.folder = d->folder, .name = (char *)name}, &event)) {
		disk_inode_let_go(disk, inode);
		return NULL;
	}
	disk_log_finish_event(disk, event);
	if (!disk_names_set(disk, &disk->names, d->folder, name, inode)) {
		disk_inode_let_go(disk, inode);
		return NULL;
	}
	return inode;
}

static bool name_is_good(const char *name)
{
	return name[0] != '\0' && strchr(name, '/') == NULL && strcmp(name, ".") != 0 &&
		strcmp(name, "..") != 0;
}

static enum kvt_status io_open(struct kvt_io *io, const char *name, enum kvt_open_how how,
	bool direct, struct kvt_file **out)
{
	struct disk_io *d = enter(io);
	struct disk_inode *inode = disk_names_find(&d->disk->names, d->folder, name);
	struct disk_file *file;

	if (!name_is_good(name))
		return leave(d, KVT_EINVAL, "not a name");
	if (inode == NULL && how != KVT_OPEN_CREATE)
		return leave(d, KVT_MISS, "no such file");
	file = calloc(1, sizeof(*file));
	if (file != NULL && inode == NULL)
		inode = make(d, name);
	if (file == NULL || inode == NULL) {
		free(file);
		return leave(d, KVT_ENOMEM, "no memory");
	}
	inode->opens++;
	*file = (struct disk_file){inode, direct && d->mode.direct, how != KVT_OPEN_READ};
	*out = (struct kvt_file *)file;
	return leave(d, KVT_OK, "");
}

static void io_close(struct kvt_io *io, struct kvt_file *handle)
{
	struct disk_io *d = enter(io);
	struct disk_file *file = (struct disk_file *)handle;

	file->inode->opens--;
	disk_inode_let_go(d->disk, file->inode);
	free(file);
	(void)leave(d, KVT_OK, "");
}

static enum kvt_status io_info(
	struct kvt_io *io, struct kvt_file *handle, struct kvt_io_file_info *out)
{
	struct disk_io *d = enter(io);
	struct disk_file *file = (struct disk_file *)handle;

	*out = (struct kvt_io_file_info){
		.bytes = file->inode->now.length,
		.alignment = file->direct ? d->disk->options.alignment : 1,
		.direct = file->direct,
	};
	return leave(d, KVT_OK, "");
}

static uint64_t allocated(const struct kvt_disk *disk)
{
	uint64_t sum = 0;

	for (const struct disk_inode *i = disk->inodes; i != NULL; i = i->next)
		if (i->opens > 0 || i->names > 0)
			sum += i->now.allocated;
	return sum;
}

/* Returns whether a file of this size fits on the disk. */
static bool fits(const struct kvt_disk *disk, const struct disk_inode *inode, uint64_t bytes)
{
	uint64_t used;

	if (disk->options.capacity == 0 || bytes <= inode->now.allocated)
		return true;
	used = allocated(disk) - inode->now.allocated;
	return used <= disk->options.capacity && bytes <= disk->options.capacity - used;
}

static enum kvt_status set_length(struct disk_io *d, struct disk_file *file, uint64_t bytes,
	uint64_t room)
{
	struct disk_inode *inode = file->inode;
	size_t event;

	if (!file->writable)
		return leave(d, KVT_EIO, "opened for reading");
	if (bytes > INT64_MAX || !fits(d->disk, inode, room))
		return leave(d, KVT_FULL, "no space left");
	if (!disk_log_add(d->disk, &(struct disk_event){.kind = DISK_LENGTH, .inode = inode,
			.offset = bytes, .bytes = room}, &event))
		return leave(d, KVT_ENOMEM, "no memory");
	disk_log_finish_event(d->disk, event);
	disk_content_set_length(&inode->now, bytes, room);
	return leave(d, KVT_OK, "");
}

static enum kvt_status io_reserve(struct kvt_io *io, struct kvt_file *handle, uint64_t bytes)
{
	return set_length(enter(io), (struct disk_file *)handle, bytes, bytes);
}

static enum kvt_status io_truncate(struct kvt_io *io, struct kvt_file *handle, uint64_t bytes)
{
	struct disk_io *d = enter(io);
	struct disk_file *file = (struct disk_file *)handle;
	uint64_t room = file->inode->now.allocated;

	return set_length(d, file, bytes, bytes < room ? bytes : room);
}

static enum kvt_status log_names(
	struct disk_io *d, enum disk_event_kind kind, const char *name, const char *to)
{
	size_t event;

	if (!disk_log_add(d->disk, &(struct disk_event){.kind = kind, .folder = d->folder,
			.name = (char *)name, .to = (char *)to}, &event))
		return KVT_ENOMEM;
	disk_log_finish_event(d->disk, event);
	return KVT_OK;
}

static enum kvt_status io_remove(struct kvt_io *io, const char *name)
{
	struct disk_io *d = enter(io);

	if (disk_names_find(&d->disk->names, d->folder, name) == NULL)
		return leave(d, KVT_MISS, "no such file");
	if (log_names(d, DISK_REMOVE, name, NULL) != KVT_OK)
		return leave(d, KVT_ENOMEM, "no memory");
	(void)disk_names_drop(d->disk, &d->disk->names, d->folder, name);
	return leave(d, KVT_OK, "");
}

static enum kvt_status io_rename(struct kvt_io *io, const char *from, const char *to)
{
	struct disk_io *d = enter(io);
	struct disk_inode *inode = disk_names_find(&d->disk->names, d->folder, from);

	if (!name_is_good(to))
		return leave(d, KVT_EINVAL, "not a name");
	if (inode == NULL)
		return leave(d, KVT_MISS, "no such file");
	if (strcmp(from, to) == 0)
		return leave(d, KVT_OK, "");
	if (log_names(d, DISK_RENAME, from, to) != KVT_OK ||
		!disk_names_set(d->disk, &d->disk->names, d->folder, to, inode))
		return leave(d, KVT_ENOMEM, "no memory");
	(void)disk_names_drop(d->disk, &d->disk->names, d->folder, from);
	return leave(d, KVT_OK, "");
}

static enum kvt_status io_sync_folder(struct kvt_io *io)
{
	struct disk_io *d = enter(io);

	d->disk->stats.folder_syncs++;
	if (log_names(d, DISK_SYNC_FOLDER, NULL, NULL) != KVT_OK)
		return leave(d, KVT_ENOMEM, "no memory");
	return leave(d, KVT_OK, "");
}

static enum kvt_status io_list(
	struct kvt_io *io, void (*each)(void *self, const char *name), void *self)
{
	struct disk_io *d = enter(io);
	const struct disk_names *names = &d->disk->names;
	char **copies = calloc(names->count + 1, sizeof(*copies));
	size_t count = 0;
	bool ok = copies != NULL;

	for (size_t i = 0; ok && i < names->count; i++) {
		if (strcmp(names->items[i].folder, d->folder) != 0)
			continue;
		copies[count] = strdup(names->items[i].name);
		ok = copies[count++] != NULL;
	}
	(void)leave(d, ok ? KVT_OK : KVT_ENOMEM, "no memory");
	for (size_t i = 0; i < count; i++) {
		if (ok)
			each(self, copies[i]);
		free(copies[i]);
	}
	free(copies);
	return ok ? KVT_OK : KVT_ENOMEM;
}

static enum kvt_status io_free_bytes(struct kvt_io *io, uint64_t *out)
{
	struct disk_io *d = enter(io);
	uint64_t capacity = d->disk->options.capacity, used = allocated(d->disk);

	*out = capacity == 0 ? (uint64_t)1 << 50 : capacity > used ? capacity - used : 0;
	return leave(d, KVT_OK, "");
}

static enum kvt_status io_lock(struct kvt_io *io, int64_t *owner)
{
	struct disk_io *d = enter(io);

	for (const struct disk_io *o = d->disk->ios; o != NULL; o = o->next) {
		if (o == d || !o->owner || strcmp(o->folder, d->folder) != 0)
			continue;
		*owner = getpid();
		return leave(d, KVT_ELOCKED, "locked");
	}
	d->owner = true;
	return leave(d, KVT_OK, "");
}

/* --- data
 * --------------------------------------------------------------------------------------- */

static uint8_t *gather(const struct kvt_io_op *op)
{
	uint8_t *copy = malloc(kvt_io_bytes(op) + 1), *p = copy;

	for (uint32_t i = 0; copy != NULL && i < op->piece_count; i++) {
		memcpy(p, op->pieces[i].iov_base, op->pieces[i].iov_len);
		p += op->pieces[i].iov_len;
	}
	return copy;
}

/* Computes FNV-1a over words of eight bytes and the rest; only to notice changes. */
static uint64_t check_of(const struct kvt_io_op *op)
{
	uint64_t h = UINT64_C(0xcbf29ce484222325), word;

	for (uint32_t i = 0; op->kind == KVT_IO_WRITE && i < op->piece_count; i++) {
		const uint8_t *p = op->pieces[i].iov_base;
		size_t left = op->pieces[i].iov_len;

		for (; left > 0; p += left < 8 ? left : 8, left -= left < 8 ? left : 8) {
			word = 0;
			memcpy(&word, p, left < 8 ? left : 8);
			h = (h ^ word) * UINT64_C(0x100000001b3);
		}
	}
	return h;
}

/* Returns 0, or as -errno the mistake for which the operation is refused. */
static int64_t refuse(struct disk_io *d, const struct kvt_io_op *op)
{
	const struct disk_file *file = (const struct disk_file *)op->file;
	uint64_t unit = file->direct ? d->disk->options.alignment : 1, bad;

	if (op->kind == KVT_IO_SYNC)
		return 0;
	if (op->kind == KVT_IO_WRITE && !file->writable)
		return -EBADF;
	if (op->piece_count > KVT_IO_MAX_PIECES || op->offset > INT64_MAX - kvt_io_bytes(op))
		return -EINVAL;
	bad = op->offset % unit;
	for (uint32_t i = 0; i < op->piece_count; i++)
		bad |= op->pieces[i].iov_len % unit | (uintptr_t)op->pieces[i].iov_base % unit;
	d->disk->stats.misaligned += bad != 0;
	return bad != 0 ? -EINVAL : 0;
}

static int64_t due(struct kvt_disk *disk, uint64_t bytes)
{
	uint64_t now = (uint64_t)kvt_test_clock_now(disk->options.clock), speed;

	speed = disk->options.bytes_per_second;
	if (disk->options.latency_ns == 0 && speed == 0)
		return (int64_t)now;
	if (disk->busy_until_ns < now)
		disk->busy_until_ns = now;
	if (speed > 0)
		disk->busy_until_ns += (uint64_t)((double)bytes * 1e9 / (double)speed);
	return (int64_t)(disk->busy_until_ns + disk->options.latency_ns);
}

static int64_t take(struct disk_io *d, struct kvt_io_op *op)
{
	struct disk_event event = {.kind = op->kind == KVT_IO_WRITE ? DISK_WRITE : DISK_SYNC};
	int64_t wrong = refuse(d, op);
	struct pending *more, *p;

	if (wrong != 0)
		return wrong;
	if (d->pending_count == d->pending_room) {
		more = realloc(d->pending, 2 * d->pending_room * sizeof(*more));
		if (more == NULL)
			return -ENOMEM;
		d->pending = more;
		d->pending_room *= 2;
	}
	p = &d->pending[d->pending_count];
	*p = (struct pending){.op = op, .event = SIZE_MAX, .check = check_of(op)};
	if (op->kind != KVT_IO_READ) {
		event.inode = ((struct disk_file *)op->file)->inode;
		if (op->kind == KVT_IO_WRITE) {
			event.offset = op->offset;
			event.bytes = kvt_io_bytes(op);
			event.data = d->disk->options.record ? gather(op) : NULL;
			if (event.data == NULL && d->disk->options.record)
				return -ENOMEM;
		}
		if (!disk_log_add(d->disk, &event, &p->event))
			return -ENOMEM;
	}
	p->due_ns = due(d->disk, kvt_io_bytes(op));
	d->pending_count++;
	return 0;
}

static void io_submit(struct kvt_io *io, struct kvt_io_op *list)
{
	struct disk_io *d = enter(io);

	while (list != NULL) {
		struct kvt_io_op *op = list;

		list = op->next;
		op->result = take(d, op);
		if (op->result != 0)
			kvt_io_queue_add(&d->refused, op);
	}
	(void)leave(d, KVT_OK, "");
}

static int64_t write_now(struct disk_io *d, const struct kvt_io_op *op, struct disk_inode *inode)
{
	uint64_t offset = op->offset;

	d->disk->stats.writes++;
	d->disk->stats.write_bytes += kvt_io_bytes(op);
	if (!fits(d->disk, inode, op->offset + kvt_io_bytes(op)))
		return -ENOSPC;
	for (uint32_t i = 0; i < op->piece_count; i++) {
		if (!disk_content_write(
			    &inode->now, offset, op->pieces[i].iov_base, op->pieces[i].iov_len))
			return -ENOMEM;
		offset += op->pieces[i].iov_len;
	}
	return (int64_t)(offset - op->offset);
}

static int64_t read_now(struct disk_io *d, const struct kvt_io_op *op, const struct disk_inode *inode)
{
	uint64_t offset = op->offset, length = inode->now.length;

	d->disk->stats.reads++;
	d->disk->stats.read_bytes += kvt_io_bytes(op);
	for (uint32_t i = 0; i < op->piece_count && offset < length; i++) {
		uint64_t n = op->pieces[i].iov_len;

		if (n > length - offset)
			n = length - offset;
		disk_content_read(&inode->now, offset, op->pieces[i].iov_base, n);
		offset += n;
	}
	return (int64_t)(offset - op->offset);
}

static void carry_out(struct disk_io *d, const struct pending *p)
{
	struct kvt_io_op *op = p->op;
	struct disk_inode *inode = ((struct disk_file *)op->file)->inode;

	d->disk->stats.changed_under_way += check_of(op) != p->check;
	if (op->kind == KVT_IO_WRITE)
		op->result = write_now(d, op, inode);
	else if (op->kind == KVT_IO_READ)
		op->result = read_now(d, op, inode);
	else
		d->disk->stats.syncs++;
	if (op->kind != KVT_IO_READ)
		disk_log_finish_event(d->disk, p->event);
}

/* Executes one operation that is due, in the order that the disk chooses. NULL: none is due. */
static struct kvt_io_op *next_due(struct disk_io *d)
{
	int64_t now = kvt_test_clock_now(d->disk->options.clock);
	size_t start = 0, at = SIZE_MAX;
	struct kvt_io_op *op = kvt_io_queue_take(&d->refused);
	struct pending p;

	if (op != NULL)
		return op;
	if (d->disk->options.seed != 0 && d->pending_count > 1)
		start = kvw_random(&d->disk->random) % d->pending_count;
	for (size_t i = 0; at == SIZE_MAX && i < d->pending_count; i++)
		if (d->pending[(start + i) % d->pending_count].due_ns <= now)
			at = (start + i) % d->pending_count;
	if (at == SIZE_MAX)
		return NULL;
	p = d->pending[at];
	memmove(&d->pending[at], &d->pending[at + 1],
		(--d->pending_count - at) * sizeof(d->pending[0]));
	carry_out(d, &p);
	p.op->next = NULL;
	return p.op;
}

static int64_t earliest(const struct disk_io *d)
{
	int64_t due_ns = INT64_MAX;

	for (size_t i = 0; i < d->pending_count; i++)
		if (d->pending[i].due_ns < due_ns)
			due_ns = d->pending[i].due_ns;
	return due_ns;
}

/* Waits until an operation is due, another thread wakes the layer, or wait_ns have passed. */
static void wait_for_due(struct disk_io *d, int64_t wait_ns)
{
	struct kvt_test_clock *clock = d->disk->options.clock;
	int64_t end = kvt_test_clock_now(clock), now;

	end = wait_ns > INT64_MAX - end ? INT64_MAX : end + wait_ns;
	while (d->refused.first == NULL && !d->woken &&
		(now = kvt_test_clock_now(clock)) < end && earliest(d) > now) {
		int64_t until = earliest(d) < end ? earliest(d) : end;
		struct timespec at = {.tv_sec = until / SECOND, .tv_nsec = until % SECOND};

		if (clock != NULL)
			kvt_test_clock_advance(clock, until - now);
		else
			(void)pthread_cond_timedwait(&d->disk->woken, &d->disk->lock, &at);
	}
	d->woken = false;
}

static size_t io_reap(struct kvt_io *io, struct kvt_io_op **out, size_t max, int64_t wait_ns)
{
	struct disk_io *d = enter(io);
	size_t n = 0;

	if (wait_ns > 0)
		wait_for_due(d, wait_ns);
	while (n < max && (out[n] = next_due(d)) != NULL)
		n++;
	(void)leave(d, KVT_OK, "");
	return n;
}

static void io_wake(struct kvt_io *io)
{
	struct disk_io *d = enter(io);

	d->woken = true;
	pthread_cond_broadcast(&d->disk->woken);
	(void)leave(d, KVT_OK, "");
}

static const struct kvt_io_mode *io_mode(struct kvt_io *io)
{
	return &((struct disk_io *)io)->mode;
}

static const char *io_why(struct kvt_io *io)
{
	return ((struct disk_io *)io)->why;
}

static void io_destroy(struct kvt_io *io)
{
	struct disk_io *d = (struct disk_io *)io, **at;

	if (d == NULL)
		return;
	(void)enter(io);
	for (at = &d->disk->ios; *at != d; at = &(*at)->next)
		continue;
	*at = d->next;
	(void)leave(d, KVT_OK, "");
	free(d->pending);
	free(d->folder);
	free(d);
}

static const struct kvt_io_ops disk_ops = {
	.open = io_open,
	.close = io_close,
	.info = io_info,
	.reserve = io_reserve,
	.truncate = io_truncate,
	.remove = io_remove,
	.rename = io_rename,
	.sync_folder = io_sync_folder,
	.list = io_list,
	.free_bytes = io_free_bytes,
	.lock = io_lock,
	.submit = io_submit,
	.reap = io_reap,
	.wake = io_wake,
	.mode = io_mode,
	.why = io_why,
	.destroy = io_destroy,
};

static enum kvt_status io_create(void *self, const char *folder,
	const struct kvt_io_options *options, struct kvt_io **out)
{
	struct kvt_disk *disk = self;
	struct disk_io *d = calloc(1, sizeof(*d));

	if (d == NULL)
		return KVT_ENOMEM;
	d->base.ops = &disk_ops;
	d->disk = disk;
	d->folder = strdup(folder);
	d->pending_room = options->depth + 1;
	d->pending = calloc(d->pending_room, sizeof(*d->pending));
	if (d->folder == NULL || d->pending == NULL) {
		free(d->pending);
		free(d->folder);
		free(d);
		return KVT_ENOMEM;
	}
	d->mode = (struct kvt_io_mode){
		.name = "memory", .reason = "", .durable = true, .direct = options->direct};
	pthread_mutex_lock(&disk->lock);
	d->next = disk->ios;
	disk->ios = d;
	pthread_mutex_unlock(&disk->lock);
	*out = &d->base;
	return KVT_OK;
}

struct kvt_io_layer kvt_disk_layer(struct kvt_disk *disk)
{
	return (struct kvt_io_layer){.create = io_create, .self = disk};
}
