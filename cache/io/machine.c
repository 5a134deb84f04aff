/*
 * machine.c - a folder of the machine's file system behind kvtier_io.h.
 *
 * All calls are relative to one descriptor of the folder, so that a folder that is moved or
 * replaced while a store works never mixes two stores. Files are never mapped: a failing device is
 * an error of a call here, not a SIGBUS in the process.
 *
 * Lengths. POSIX makes a file's length durable by a sync of that file, not of its folder, and
 * kvtier_io.h promises both with sync_folder; so the layer counts changes of lengths, and
 * sync_folder first syncs files with a change that no SYNC has covered. A file that is closed
 * before is synced then.
 *
 * The lock is an open file description's (OFD): unlike a POSIX lock it also keeps two handles of
 * one process apart, and no close of another descriptor drops it. The owner's pid in the file is
 * only shown to people.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "io/direct.h"
#include "io/engine.h"
#include "io/folder.h"
#include "io/machine.h"
#include "io/ring.h"

#define NAME_BYTES 255u

struct machine {
	struct kvt_io base;
	int folder;
	int lock; /* -1: not held */
	struct kvt_engine *engine;
	struct kvt_machine_file *files;
	bool lost_sync; /* a sync during a close failed, which the next sync_folder reports */
	struct kvt_io_mode mode;
	char why[KVT_REASON_BYTES];
};

static struct machine *machine_of(struct kvt_io *io)
{
	return (struct machine *)io;
}

static struct kvt_machine_file *file_of(struct kvt_file *file)
{
	return (struct kvt_machine_file *)file;
}

/* --- errors
 * ------------------------------------------------------------------------------------- */

/* Notes the cause for why(), and returns the status for it. */
static enum kvt_status fail(struct machine *m, const char *verb, const char *name, int error)
{
	char text[64];

	(void)snprintf(m->why, sizeof(m->why), "%s %.64s: %s", verb, name,
		strerror_r(error, text, sizeof(text)));
	switch (error) {
	case ENOSPC:
	case EDQUOT:
		return KVT_FULL;
	case ENOENT:
		return KVT_MISS;
	case ENOMEM:
		return KVT_ENOMEM;
	default:
		return KVT_EIO;
	}
}

/* Like fail, for calls in which a missing file is an error, too. */
static enum kvt_status fail_hard(struct machine *m, const char *verb, const char *name, int error)
{
	enum kvt_status status = fail(m, verb, name, error);

	return status == KVT_MISS ? KVT_EIO : status;
}

static bool name_is_good(const char *name)
{
	return name[0] != '\0' && strchr(name, '/') == NULL && strlen(name) <= NAME_BYTES &&
		strcmp(name, ".") != 0 && strcmp(name, "..") != 0 &&
		strcmp(name, KVT_IO_LOCK_NAME) != 0;
}

/* Checks a name. KVT_EINVAL: it is not allowed, and the cause is noted. */
static enum kvt_status check_name(struct machine *m, const char *name)
{
	if (name_is_good(name))
		return KVT_OK;
	(void)snprintf(m->why, sizeof(m->why), "not a name of a file here: %.64s", name);
	return KVT_EINVAL;
}

/* --- files
 * -------------------------------------------------------------------------------------- */

static int open_flags(enum kvt_open_how how)
{
	/* the file might be a FIFO, which must not block the open */
	int flags = O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;

	if (how == KVT_OPEN_READ)
		return flags | O_RDONLY;
	return flags | O_RDWR | (how == KVT_OPEN_CREATE ? O_CREAT : 0);
}

static bool set_blocking(int fd)
{
	int flags = fcntl(fd, F_GETFL);

	return flags >= 0 && fcntl(fd, F_SETFL, flags & ~O_NONBLOCK) == 0;
}

/* Opens a file, with O_DIRECT if that has an effect. -1 with errno. */
static int open_file(struct machine *m, const char *name, int flags, bool direct,
	struct kvt_direct *what)
{
	struct stat st;
	int fd = -1;

	*what = (struct kvt_direct){.alignment = 1};
	if (direct && m->mode.direct) {
		fd = openat(m->folder, name, flags | O_DIRECT, 0600);
		if (fd >= 0)
			kvt_direct_look(fd, what);
		else if (errno != EINVAL)
			return -1;
	}
	if (fd >= 0 && !what->direct) {
		(void)close(fd);
		fd = -1;
	}
	if (fd < 0)
		fd = openat(m->folder, name, flags, 0600);
	if (fd < 0)
		return -1;
	/* With O_NONBLOCK, io_uring would not wait on some file systems, so it is removed. */
	if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && set_blocking(fd))
		return fd;
	(void)close(fd);
	errno = EMEDIUMTYPE;
	return -1;
}

static enum kvt_status machine_open(struct kvt_io *io, const char *name, enum kvt_open_how how,
	bool direct, struct kvt_file **out)
{
	struct machine *m = machine_of(io);
	struct kvt_machine_file *file;
	struct kvt_direct what;
	size_t len = strlen(name);

	if (check_name(m, name) != KVT_OK)
		return KVT_EINVAL;
	file = calloc(1, sizeof(*file) + len + 1);
	if (file == NULL)
		return fail(m, "open", name, ENOMEM);
	file->fd = open_file(m, name, open_flags(how), direct, &what);
	if (file->fd < 0) {
		int error = errno;

		free(file);
		return how == KVT_OPEN_CREATE ? fail_hard(m, "open", name, error)
					      : fail(m, "open", name, error);
	}
	file->alignment = what.alignment;
	file->direct = what.direct;
	memcpy(file->name, name, len + 1);
	file->next = m->files;
	if (m->files != NULL)
		m->files->prev = file;
	m->files = file;
	*out = (struct kvt_file *)file;
	return KVT_OK;
}

static void machine_close(struct kvt_io *io, struct kvt_file *handle)
{
	struct machine *m = machine_of(io);
	struct kvt_machine_file *file = file_of(handle);

	if (file->changes > file->safe && fsync(file->fd) != 0)
		m->lost_sync = true;
	if (file->prev != NULL)
		file->prev->next = file->next;
	else
		m->files = file->next;
	if (file->next != NULL)
		file->next->prev = file->prev;
	(void)close(file->fd);
	free(file);
}

static enum kvt_status machine_info(
	struct kvt_io *io, struct kvt_file *handle, struct kvt_io_file_info *out)
{
	struct kvt_machine_file *file = file_of(handle);
	struct stat st;

	if (fstat(file->fd, &st) != 0)
		return fail_hard(machine_of(io), "stat", file->name, errno);
	*out = (struct kvt_io_file_info){
		.bytes = (uint64_t)st.st_size,
		.alignment = file->alignment,
		.direct = file->direct,
	};
	return KVT_OK;
}

static enum kvt_status machine_reserve(struct kvt_io *io, struct kvt_file *handle, uint64_t bytes)
{
	struct kvt_machine_file *file = file_of(handle);
	int error = kvt_folder_reserve(file->fd, bytes);

	file->changes++;
	return error == 0 ? KVT_OK : fail_hard(machine_of(io), "reserve", file->name, error);
}

static enum kvt_status machine_truncate(struct kvt_io *io, struct kvt_file *handle, uint64_t bytes)
{
	struct kvt_machine_file *file = file_of(handle);

	if (bytes > INT64_MAX)
		return fail_hard(machine_of(io), "truncate", file->name, EFBIG);
	file->changes++;
	if (ftruncate(file->fd, (off_t)bytes) != 0)
		return fail_hard(machine_of(io), "truncate", file->name, errno);
	return KVT_OK;
}

/* --- folder
 * ------------------------------------------------------------------------------------- */

static enum kvt_status machine_remove(struct kvt_io *io, const char *name)
{
	struct machine *m = machine_of(io);

	if (check_name(m, name) != KVT_OK)
		return KVT_EINVAL;
	return unlinkat(m->folder, name, 0) == 0 ? KVT_OK : fail(m, "remove", name, errno);
}

static enum kvt_status machine_rename(struct kvt_io *io, const char *from, const char *to)
{
	struct machine *m = machine_of(io);

	if (check_name(m, from) != KVT_OK || check_name(m, to) != KVT_OK)
		return KVT_EINVAL;
	if (renameat(m->folder, from, m->folder, to) != 0)
		return fail(m, "rename", from, errno);
	return KVT_OK;
}

static enum kvt_status machine_sync_folder(struct kvt_io *io)
{
	struct machine *m = machine_of(io);

	if (m->lost_sync) {
		m->lost_sync = false;
		return fail_hard(m, "sync", "a file that was closed", EIO);
	}
	for (struct kvt_machine_file *f = m->files; f != NULL; f = f->next) {
		if (f->changes == f->safe)
			continue;
		if (fsync(f->fd) != 0)
			return fail_hard(m, "sync", f->name, errno);
		f->safe = f->changes;
	}
	return fsync(m->folder) == 0 ? KVT_OK : fail_hard(m, "sync", "folder", errno);
}

static enum kvt_status machine_list(
	struct kvt_io *io, void (*each)(void *self, const char *name), void *self)
{
	struct machine *m = machine_of(io);
	int error = kvt_folder_list(m->folder, KVT_IO_LOCK_NAME, each, self);

	return error == 0 ? KVT_OK : fail_hard(m, "list", "folder", error);
}

static enum kvt_status machine_free_bytes(struct kvt_io *io, uint64_t *out)
{
	struct machine *m = machine_of(io);
	struct statvfs fs;

	if (fstatvfs(m->folder, &fs) != 0)
		return fail_hard(m, "statvfs", "folder", errno);
	*out = (uint64_t)fs.f_bavail * fs.f_frsize;
	return KVT_OK;
}

static enum kvt_status machine_lock(struct kvt_io *io, int64_t *owner)
{
	struct machine *m = machine_of(io);
	int error = 0;

	if (m->lock >= 0)
		return KVT_OK;
	m->lock = kvt_folder_lock(m->folder, KVT_IO_LOCK_NAME, owner, &error);
	if (m->lock >= 0)
		return KVT_OK;
	if (error != 0)
		return fail_hard(m, "lock", KVT_IO_LOCK_NAME, error);
	(void)snprintf(m->why, sizeof(m->why), "locked by process %lld", (long long)*owner);
	return KVT_ELOCKED;
}

static bool machine_holds(struct kvt_io *io)
{
	struct machine *m = machine_of(io);

	return m->lock < 0 || kvt_folder_holds(m->folder, KVT_IO_LOCK_NAME, m->lock);
}

/* --- data
 * --------------------------------------------------------------------------------------- */

/* Several SYNCs of a file may overlap; then only what the first of them covers counts as
 * durable. */
static void sync_begins(struct kvt_machine_file *file)
{
	if (file->syncs++ == 0)
		file->syncing = file->changes;
}

static void sync_ends(struct kvt_machine_file *file, bool succeeded)
{
	file->syncs--;
	if (succeeded && file->syncing > file->safe)
		file->safe = file->syncing;
}

static void machine_submit(struct kvt_io *io, struct kvt_io_op *list)
{
	struct machine *m = machine_of(io);

	for (const struct kvt_io_op *op = list; op != NULL; op = op->next)
		if (op->kind == KVT_IO_SYNC)
			sync_begins(file_of(op->file));
	m->engine->ops->submit(m->engine, list);
}

static size_t machine_reap(struct kvt_io *io, struct kvt_io_op **out, size_t max, int64_t wait_ns)
{
	struct machine *m = machine_of(io);
	size_t n = m->engine->ops->reap(m->engine, out, max, wait_ns);

	for (size_t i = 0; i < n; i++)
		if (out[i]->kind == KVT_IO_SYNC)
			sync_ends(file_of(out[i]->file), out[i]->result >= 0);
	return n;
}

static void machine_wake(struct kvt_io *io)
{
	struct machine *m = machine_of(io);

	m->engine->ops->wake(m->engine);
}

static const struct kvt_io_mode *machine_mode(struct kvt_io *io)
{
	return &machine_of(io)->mode;
}

static const char *machine_why(struct kvt_io *io)
{
	return machine_of(io)->why;
}

static void machine_destroy(struct kvt_io *io)
{
	struct machine *m = machine_of(io);

	if (m == NULL)
		return;
	if (m->engine != NULL)
		m->engine->ops->destroy(m->engine);
	if (m->lock >= 0)
		kvt_folder_unlock(m->lock);
	if (m->folder >= 0)
		(void)close(m->folder);
	free(m);
}

static const struct kvt_io_ops machine_ops = {
	.open = machine_open,
	.close = machine_close,
	.info = machine_info,
	.reserve = machine_reserve,
	.truncate = machine_truncate,
	.remove = machine_remove,
	.rename = machine_rename,
	.sync_folder = machine_sync_folder,
	.list = machine_list,
	.free_bytes = machine_free_bytes,
	.lock = machine_lock,
	.submit = machine_submit,
	.reap = machine_reap,
	.wake = machine_wake,
	.mode = machine_mode,
	.why = machine_why,
	.destroy = machine_destroy,
	.holds = machine_holds,
};

/* --- creation
 * ----------------------------------------------------------------------------------- */

/* Appends a reason why a better mode was not possible. */
static void add_reason(struct kvt_io_mode *mode, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

static void add_reason(struct kvt_io_mode *mode, const char *format, ...)
{
	size_t used = strlen(mode->reason);
	va_list args;

	if (used > 0 && used + 3 < sizeof(mode->reason)) {
		memcpy(mode->reason + used, "; ", 3);
		used += 2;
	}
	va_start(args, format);
	(void)vsnprintf(mode->reason + used, sizeof(mode->reason) - used, format, args);
	va_end(args);
}

static void look_at_folder(struct machine *m, const struct kvt_io_options *options)
{
	struct kvt_direct what;

	m->mode.durable = kvt_direct_durable(m->folder);
	if (!m->mode.durable)
		add_reason(&m->mode, "a file system in memory: not durable");
	if (!options->direct) {
		add_reason(&m->mode, "O_DIRECT not asked for");
		return;
	}
	kvt_folder_probe(m->folder, &what);
	m->mode.direct = what.direct;
	if (!what.direct)
		add_reason(&m->mode, "no O_DIRECT: %s", what.reason);
}

static void name_mode(struct kvt_io_mode *mode, const char *name)
{
	(void)snprintf(mode->name, sizeof(mode->name), "%s", name);
}

static enum kvt_status make_ring(struct machine *m, const struct kvt_io_options *options)
{
	struct kvt_ring_report report;
	enum kvt_status status = kvt_ring_create(options, &m->engine, &report);
	char text[64];

	if (status == KVT_OK) {
		bool registered = report.registered == 0 && options->arena != NULL;

		name_mode(&m->mode, registered ? "uring" : "uring-plain");
		if (report.registered == ENODATA)
			add_reason(&m->mode, "memory not registered: not all of it is present");
		else if (report.registered == ENOMEM)
			add_reason(&m->mode, "memory not registered: RLIMIT_MEMLOCK");
		else if (report.registered != 0)
			add_reason(&m->mode, "memory not registered: %s",
				strerror_r(report.registered, text, sizeof(text)));
		else if (!registered)
			add_reason(&m->mode, "no memory to register");
	} else if (status == KVT_ENOTSUP) {
		add_reason(&m->mode, "io_uring refused: %s",
			strerror_r(report.setup, text, sizeof(text)));
		errno = report.setup;
	}
	return status;
}

static enum kvt_status make_engine(
	struct machine *m, const struct kvt_io_options *options, const char *mode)
{
	enum kvt_status status = KVT_ENOTSUP;
	int error = 0;

	if (strcmp(mode, "threads") != 0)
		status = make_ring(m, options);
	else
		add_reason(&m->mode, "threads were asked for");
	if (status != KVT_ENOTSUP || strcmp(mode, "uring") == 0)
		return status;
	status = kvt_pool_create(options->depth, &m->engine, &error);
	name_mode(&m->mode, "threads");
	if (status != KVT_OK)
		errno = error != 0 ? error : ENOMEM;
	return status;
}

static enum kvt_status machine_create(void *self, const char *folder,
	const struct kvt_io_options *options, struct kvt_io **out)
{
	const char *mode = options->mode == NULL ? "auto" : options->mode;
	struct machine *m;
	enum kvt_status status;
	int error;

	(void)self;
	if (options->depth < 1 || options->depth > 1024 ||
		(strcmp(mode, "auto") != 0 && strcmp(mode, "uring") != 0 &&
			strcmp(mode, "threads") != 0)) {
		errno = EINVAL;
		return KVT_EINVAL;
	}
	m = calloc(1, sizeof(*m));
	if (m == NULL)
		return KVT_ENOMEM;
	m->base.ops = &machine_ops;
	m->lock = -1;
	m->folder = kvt_folder_open(folder);
	if (m->folder < 0) {
		status = errno == ENOMEM ? KVT_ENOMEM : KVT_EIO;
	} else {
		status = make_engine(m, options, mode);
		look_at_folder(m, options);
	}
	if (status != KVT_OK) {
		error = errno;
		machine_destroy(&m->base);
		errno = error;
		return status;
	}
	*out = &m->base;
	return KVT_OK;
}

struct kvt_io_layer kvt_io_machine(void)
{
	return (struct kvt_io_layer){.create = machine_create};
}
