/*
 * segment.c - the shared memory that clients of kvtierd read.
 *
 * Two links, NAME and .NAME.kvtierd, name one inode. A client's runtime removes the first; the
 * daemon makes a missing link again from the other one, which is possible as long as one exists (an
 * inode without any name cannot be linked again). The owner locks the inode (flock), and the side
 * file, so that two daemons never write into one segment.
 *
 * Promises. The side file has one record: the latest end of leases, by the monotonic clock, which
 * all processes share since the machine started, and by the wall clock. After a restart the later
 * of the two counts, but never more than the duration that was promised when the record was
 * written: a wall clock that jumps back shortens no wait, and a wall clock that jumps forward
 * lengthens none beyond that. If the record is of another boot, of another inode, damaged or
 * missing, while a segment exists, the daemon waits for the longest possible lease.
 *
 * A record is one pwrite of less than a sector, without a sync: it has to survive only the end of
 * the process. After a restart of the machine there is no segment and no reader.
 */
#include "daemon/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "chunk/checksum.h"
#include "memory/own_file.h"

#define FOLDER     "/dev/shm"
#define NAME_BYTES 240 /* short enough that the second link's name stays within NAME_MAX */
#define FILL_BYTES ((uint64_t)1 << 30) /* at once */
#define TRIES      16
#define STEP_SHARE 4 /* the side file promises this part of the longest lease more than was asked */
#define MAGIC      "kvtseg 1"

/* The side file. */
struct record {
	char magic[8];
	char boot[40]; /* id of the machine's start */
	uint64_t device, inode, bytes;
	int64_t pid;
	int64_t until_ns; /* monotonic clock; 0: no lease is out */
	int64_t until_wall_ns;
	uint64_t span_ns;        /* duration promised when the record was written */
	struct kvt_checksum sum; /* checksum of all members before it */
};

struct kvt_segment_file {
	const struct kvt_surroundings *surroundings; /* borrowed */
	char name[NAME_BYTES], hidden[NAME_BYTES + 16];
	char boot[40];
	uint64_t bytes, longest_ns;
	int folder, fd, side; /* -1: not open */
	dev_t device;
	ino_t inode;
	bool made; /* created by this open */

	_Atomic int64_t quiet_ns;    /* monotonic; 0: over */
	/* monotonic time that the side file promises; written with `lock` held */
	_Atomic int64_t promised_ns;
	_Atomic uint64_t relinked, side_writes, taken;
	_Atomic bool foreign, nameless;
	pthread_mutex_t lock; /* guards the side file and the links */
};

/* --- side file -------------------------------------------------------------------------------- */

static void checksum_of(struct record *r, struct kvt_checksum *out)
{
	struct kvt_segment all = {.base = r, .bytes = offsetof(struct record, sum)};

	kvt_checksum_segments(&all, 1, all.bytes, out);
}

static bool read_record(const struct kvt_segment_file *s, struct record *out)
{
	struct kvt_checksum sum;

	if (pread(s->side, out, sizeof(*out), 0) != (ssize_t)sizeof(*out) ||
		memcmp(out->magic, MAGIC, sizeof(out->magic)) != 0)
		return false;
	checksum_of(out, &sum);
	return kvt_checksum_equal(&sum, &out->sum);
}

/* Returns whether the record describes this inode, and was written since the machine started. */
static bool is_about(
	const struct kvt_segment_file *s, const struct record *r, const struct stat *st)
{
	return s->boot[0] != '\0' && memcmp(r->boot, s->boot, sizeof(s->boot)) == 0 &&
	       r->device == (uint64_t)st->st_dev && r->inode == (uint64_t)st->st_ino &&
	       r->bytes == (uint64_t)st->st_size;
}

/* until_ns 0: no lease is out. The caller holds the lock, or no other thread has the segment
 * yet. */
static bool write_record(struct kvt_segment_file *s, int64_t until_ns)
{
	int64_t now_ns = kvt_now(s->surroundings);
	struct record r;

	memset(&r, 0, sizeof(r));
	memcpy(r.magic, MAGIC, sizeof(r.magic));
	memcpy(r.boot, s->boot, sizeof(r.boot));
	r.device = s->device;
	r.inode = s->inode;
	r.bytes = s->bytes;
	r.pid = getpid();
	if (until_ns != 0) {
		r.until_ns = until_ns;
		r.span_ns = until_ns > now_ns ? (uint64_t)(until_ns - now_ns) : 0;
		r.until_wall_ns = kvt_wall(s->surroundings) + (int64_t)r.span_ns;
	}
	checksum_of(&r, &r.sum);
	if (pwrite(s->side, &r, sizeof(r), 0) != (ssize_t)sizeof(r)) {
		kvt_note(s->surroundings, KVT_LOG_ERROR, "segment: side file: %s", strerror(errno));
		return false;
	}
	atomic_fetch_add_explicit(&s->side_writes, 1, memory_order_relaxed);
	atomic_store_explicit(&s->promised_ns, until_ns, memory_order_release);
	return true;
}

static void read_boot(struct kvt_segment_file *s)
{
	int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd >= 0 ? read(fd, s->boot, sizeof(s->boot) - 1) : -1;

	if (n < 0)
		s->boot[0] = '\0';
	if (fd >= 0)
		close(fd);
}

static enum kvt_status open_side(struct kvt_segment_file *s, const char *path, char *why)
{
	struct record r = {.pid = 0};

	s->side = kvt_own_file(path, why);
	if (s->side < 0)
		return KVT_EIO;
	if (flock(s->side, LOCK_EX | LOCK_NB) == 0)
		return KVT_OK;
	snprintf(why, KVT_REASON_BYTES, "%.80s is owned by another process, pid %lld", path,
		read_record(s, &r) ? (long long)r.pid : -1);
	return KVT_ELOCKED;
}

/* --- the inode -------------------------------------------------------------------------------- */

/* Looks up a name. False: no file has it. */
static bool look_at(const struct kvt_segment_file *s, const char *name, struct stat *st)
{
	return fstatat(s->folder, name, st, AT_SYMLINK_NOFOLLOW) == 0;
}

static bool is_it(const struct kvt_segment_file *s, const struct stat *st)
{
	return st->st_dev == s->device && st->st_ino == s->inode;
}

static void remember_inode(struct kvt_segment_file *s, const struct stat *st)
{
	s->device = st->st_dev;
	s->inode = st->st_ino;
}

static enum kvt_status failed(const struct kvt_segment_file *s, char *why)
{
	snprintf(why, KVT_REASON_BYTES, FOLDER "/%.80s: %s", s->name, strerror(errno));
	return KVT_EIO;
}

/* Reports a foreign file, or a segment of another size. Clients may have mapped it, so that an
 * operator has to decide. The log has the command that removes it even if `why` is too short for
 * that. */
static enum kvt_status refused(const struct kvt_segment_file *s, const char *what, char *why)
{
	bool hidden = faccessat(s->folder, s->hidden, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
	char command[2 * sizeof(s->hidden) + 32];
	int n;

	snprintf(command, sizeof(command), "rm " FOLDER "/%s%s%s", s->name,
		hidden ? " " FOLDER "/" : "", hidden ? s->hidden : "");
	n = snprintf(why, KVT_REASON_BYTES, "%s; to remove it: %s", what, command);
	if (n >= KVT_REASON_BYTES)
		snprintf(
			why, KVT_REASON_BYTES, "%s; the log has the command that removes it", what);
	kvt_note(
		s->surroundings, KVT_LOG_ERROR, "segment: %s; to remove it: %.400s", what, command);
	return KVT_EFORMAT;
}

/* Locks the open inode, which must still have its second link. KVT_BUSY: it has lost it. */
static enum kvt_status lock_inode(struct kvt_segment_file *s, char *why)
{
	struct stat ours, named;

	if (flock(s->fd, LOCK_EX | LOCK_NB) != 0) {
		snprintf(why, KVT_REASON_BYTES, FOLDER "/%.80s is owned by another process",
			s->name);
		return KVT_ELOCKED;
	}
	if (fstat(s->fd, &ours) != 0)
		return failed(s, why);
	remember_inode(s, &ours);
	return look_at(s, s->hidden, &named) && is_it(s, &named) ? KVT_OK : KVT_BUSY;
}

/* The second link is gone but the name exists: the inode is ours if the side file names it. */
static enum kvt_status link_back(struct kvt_segment_file *s, char *why)
{
	struct record r;
	struct stat st;

	if (!look_at(s, s->name, &st))
		return KVT_MISS;
	if (!S_ISREG(st.st_mode) || !read_record(s, &r) || !is_about(s, &r, &st))
		return refused(s, "there is a segment of this name that is not ours", why);
	if (linkat(s->folder, s->name, s->folder, s->hidden, 0) != 0)
		return errno == ENOENT || errno == EEXIST ? KVT_BUSY : failed(s, why);
	if (look_at(s, s->hidden, &st) && is_about(s, &r, &st))
		return KVT_OK;
	unlinkat(s->folder, s->hidden, 0); /* the name pointed to another file by then */
	return KVT_BUSY;
}

/* Tries once to open the inode. KVT_BUSY: another process changed the links meanwhile. */
static enum kvt_status open_inode(struct kvt_segment_file *s, char *why)
{
	enum kvt_status status = KVT_OK;
	struct stat st;

	s->made = false;
	s->fd = openat(s->folder, s->hidden, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	if (s->fd < 0 && errno == ENOENT) {
		status = link_back(s, why);
		if (status == KVT_OK)
			return KVT_BUSY; /* open it */
		if (status != KVT_MISS)
			return status;
		s->fd = openat(s->folder, s->hidden,
			O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
		s->made = s->fd >= 0;
	}
	if (s->fd < 0 && errno == EACCES)
		return refused(s, "there is a segment of this name that is another user's", why);
	if (s->fd < 0)
		return errno == EEXIST || errno == ENOENT ? KVT_BUSY : failed(s, why);
	if (fstat(s->fd, &st) != 0)
		return failed(s, why);
	if (!S_ISREG(st.st_mode) || st.st_uid != geteuid())
		return refused(s, "there is a segment of this name that is not ours", why);
	return lock_inode(s, why);
}

static enum kvt_status fill(struct kvt_segment_file *s, uint64_t there, char *why)
{
	struct statvfs fs;
	uint64_t room, missing = there < s->bytes ? s->bytes - there : 0;

	if (fstatvfs(s->fd, &fs) == 0 && fs.f_blocks > 0) {
		room = (uint64_t)fs.f_bavail * fs.f_frsize;
		if (room < missing) {
			snprintf(why, KVT_REASON_BYTES,
				FOLDER " has %llu bytes free, the segment needs %llu more",
				(unsigned long long)room, (unsigned long long)missing);
			return KVT_ENOMEM;
		}
	}
	for (uint64_t at = 0; at < s->bytes;) {
		uint64_t n = s->bytes - at < FILL_BYTES ? s->bytes - at : FILL_BYTES;
		int error = posix_fallocate(s->fd, (off_t)at, (off_t)n);

		if (error == EINTR)
			continue;
		if (error != 0) {
			errno = error;
			(void)failed(s, why);
			return error == ENOSPC || error == ENOMEM ? KVT_ENOMEM : KVT_EIO;
		}
		at += n;
	}
	return KVT_OK;
}

/* Gives the inode its size, memory, mode and name. */
static enum kvt_status complete(struct kvt_segment_file *s, uint32_t mode, char *why)
{
	enum kvt_status status;
	struct stat st;

	if (fstat(s->fd, &st) != 0)
		return failed(s, why);
	if (st.st_size == 0) /* the process that made it ended early: no process has mapped it */
		s->made = true;
	else if ((uint64_t)st.st_size != s->bytes)
		return refused(s, "the segment that is there has another size", why);
	if (s->made && ftruncate(s->fd, (off_t)s->bytes) != 0)
		return failed(s, why);
	status = fill(s, (uint64_t)st.st_blocks * 512, why);
	if (status != KVT_OK)
		return status;
	if (fchmod(s->fd, mode != 0 ? mode & 0777 : 0600) != 0)
		return failed(s, why);
	if (look_at(s, s->name, &st))
		return is_it(s, &st)
			       ? KVT_OK
			       : refused(s, "there is a segment of this name that is not ours",
					 why);
	if (linkat(s->folder, s->hidden, s->folder, s->name, 0) != 0)
		return failed(s, why);
	return KVT_OK;
}

/* --- quiet time ------------------------------------------------------------------------------- */

/* Returns for how long leases of former daemons may still last. */
static uint64_t left_over(struct kvt_segment_file *s)
{
	int64_t now_ns = kvt_now(s->surroundings), wall_ns = kvt_wall(s->surroundings), left,
		by_wall;
	struct record r;
	struct stat st;

	if (s->made)
		return 0;
	if (fstat(s->fd, &st) != 0 || !read_record(s, &r) || !is_about(s, &r, &st))
		return s->longest_ns;
	if (r.until_ns == 0)
		return 0;
	left = r.until_ns - now_ns;
	by_wall = r.until_wall_ns - wall_ns;
	left = left > by_wall ? left : by_wall;
	if (left <= 0)
		return 0;
	return (uint64_t)left < r.span_ns ? (uint64_t)left : r.span_ns;
}

static bool begin_quiet(struct kvt_segment_file *s)
{
	uint64_t left = left_over(s);
	int64_t until_ns = left != 0 ? kvt_now(s->surroundings) + (int64_t)left : 0;

	atomic_store(&s->quiet_ns, until_ns);
	if (left != 0)
		kvt_note(s->surroundings, KVT_LOG_INFO,
			"segment: leases of a former daemon may last %llu ms more: no writes until "
			"then",
			(unsigned long long)(left / 1000000));
	return write_record(s, until_ns);
}

bool kvt_segment_is_quiet(const struct kvt_segment_file *s)
{
	int64_t until_ns = atomic_load_explicit(&s->quiet_ns, memory_order_relaxed);

	return until_ns != 0 && kvt_now(s->surroundings) < until_ns;
}

int64_t kvt_segment_quiet_until(const struct kvt_segment_file *s)
{
	int64_t until_ns = atomic_load_explicit(&s->quiet_ns, memory_order_relaxed);
	int64_t left = until_ns != 0 ? until_ns - kvt_now(s->surroundings) : 0;

	return left > 0 ? kvt_wall(s->surroundings) + left : 0;
}

/* --- life ------------------------------------------------------------------------------------- */

static bool name_is_good(const char *name)
{
	size_t len = strlen(name);

	return len > 0 && len < NAME_BYTES && name[0] != '.' && strchr(name, '/') == NULL;
}

static enum kvt_status open_parts(
	struct kvt_segment_file *s, const struct kvt_segment_options *options, char *why)
{
	enum kvt_status status;

	s->folder = open(FOLDER, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (s->folder < 0)
		return failed(s, why);
	read_boot(s);
	status = open_side(s, options->side_path, why);
	if (status != KVT_OK)
		return status;
	status = KVT_BUSY;
	for (int i = 0; i < TRIES && status == KVT_BUSY; i++) {
		if (s->fd >= 0)
			close(s->fd);
		status = open_inode(s, why);
	}
	if (status == KVT_BUSY) {
		snprintf(why, KVT_REASON_BYTES, FOLDER "/%.80s changes all the time", s->name);
		return KVT_EIO;
	}
	if (status != KVT_OK)
		return status;
	status = complete(s, options->mode, why);
	if (status != KVT_OK && s->made) /* no other process can have mapped it */
		unlinkat(s->folder, s->hidden, 0);
	if (status == KVT_OK && !begin_quiet(s)) {
		snprintf(why, KVT_REASON_BYTES, "%.100s cannot be written", options->side_path);
		return KVT_EIO;
	}
	return status;
}

enum kvt_status kvt_segment_open(
	const struct kvt_segment_options *options, char *why, struct kvt_segment_file **out)
{
	struct kvt_segment_file *s;
	enum kvt_status status;

	if (options->name == NULL || !name_is_good(options->name) || options->side_path == NULL ||
		options->surroundings == NULL || options->bytes == 0 ||
		options->bytes > INT64_MAX ||
		options->bytes % (uint64_t)sysconf(_SC_PAGESIZE) != 0 ||
		options->longest_lease_ns > INT64_MAX / 4) {
		snprintf(why, KVT_REASON_BYTES,
			"a name without '/', a size in whole pages and a side file "
			"are needed");
		return KVT_EINVAL;
	}
	s = calloc(1, sizeof(*s));
	if (s == NULL) {
		snprintf(why, KVT_REASON_BYTES, "out of memory");
		return KVT_ENOMEM;
	}
	s->surroundings = options->surroundings;
	s->bytes = options->bytes;
	s->longest_ns = options->longest_lease_ns;
	s->folder = s->fd = s->side = -1;
	pthread_mutex_init(&s->lock, NULL);
	snprintf(s->name, sizeof(s->name), "%s", options->name);
	snprintf(s->hidden, sizeof(s->hidden), ".%s.kvtierd", options->name);
	status = open_parts(s, options, why);
	if (status != KVT_OK)
		kvt_segment_close(s);
	else
		*out = s;
	return status;
}

void kvt_segment_close(struct kvt_segment_file *s)
{
	if (s == NULL)
		return;
	if (s->fd >= 0)
		close(s->fd);
	if (s->side >= 0)
		close(s->side);
	if (s->folder >= 0)
		close(s->folder);
	pthread_mutex_destroy(&s->lock);
	free(s);
}

bool kvt_segment_beside(const struct kvt_segment_file *s, const char *what, char *to, size_t room)
{
	int n = snprintf(to, room, FOLDER "/%s-%s", s->hidden, what);

	return n > 0 && (size_t)n < room;
}

int kvt_segment_fd(const struct kvt_segment_file *s)
{
	return s->fd;
}

/* --- promises --------------------------------------------------------------------------------- */

bool kvt_segment_promise_for(struct kvt_segment_file *s, uint64_t ns)
{
	int64_t now_ns = kvt_now(s->surroundings), until_ns;
	bool kept = true;

	if (ns > (uint64_t)(INT64_MAX / 2))
		return false;
	until_ns = now_ns + (int64_t)ns;
	if (until_ns <= atomic_load_explicit(&s->promised_ns, memory_order_acquire))
		return true;
	pthread_mutex_lock(&s->lock);
	if (until_ns > atomic_load_explicit(&s->promised_ns, memory_order_relaxed))
		kept = write_record(s, until_ns + (int64_t)(s->longest_ns / STEP_SHARE));
	pthread_mutex_unlock(&s->lock);
	return kept;
}

bool kvt_segment_promise(struct kvt_segment_file *s, int64_t wall_ns)
{
	int64_t left = wall_ns - kvt_wall(s->surroundings);

	return left <= 0 || kvt_segment_promise_for(s, (uint64_t)left);
}

void kvt_segment_settle(struct kvt_segment_file *s, uint64_t ns)
{
	int64_t now_ns = kvt_now(s->surroundings), until_ns = ns != 0 ? now_ns + (int64_t)ns : 0;
	int64_t quiet_ns = atomic_load(&s->quiet_ns);

	if (quiet_ns > now_ns && quiet_ns > until_ns)
		until_ns = quiet_ns;
	pthread_mutex_lock(&s->lock);
	(void)write_record(s, until_ns);
	pthread_mutex_unlock(&s->lock);
}

/* --- names ------------------------------------------------------------------------------------ */

/* Links `to` to the inode of `from`, if that is still our inode. */
static bool link_again(struct kvt_segment_file *s, const char *from, const char *to)
{
	struct stat st;

	return look_at(s, from, &st) && is_it(s, &st) &&
	       linkat(s->folder, from, s->folder, to, 0) == 0;
}

/* Logs a state once when it becomes bad. */
static void tell(struct kvt_segment_file *s, _Atomic bool *state, bool now, const char *what)
{
	if (atomic_exchange(state, now) == now || !now)
		return;
	kvt_note(s->surroundings, KVT_LOG_ERROR, "segment: " FOLDER "/%s %s", s->name, what);
}

bool kvt_segment_tend(struct kvt_segment_file *s)
{
	bool there, given_back = false, foreign;
	struct stat st, second;

	pthread_mutex_lock(&s->lock);
	there = look_at(s, s->name, &st);
	foreign = there && !is_it(s, &st);
	if (foreign && !atomic_load(&s->foreign))
		atomic_fetch_add(&s->taken, 1);
	tell(s, &s->foreign, foreign,
		"belongs to another program now: no leases until that file is removed");
	if (there && !foreign && !look_at(s, s->hidden, &second))
		(void)link_again(s, s->name, s->hidden);
	if (!there)
		given_back = link_again(s, s->hidden, s->name);
	tell(s, &s->nameless, !there && !given_back && !look_at(s, s->name, &second),
		"and its second link were removed: clients that come cannot open it until a "
		"restart");
	if (given_back)
		atomic_fetch_add(&s->relinked, 1);
	pthread_mutex_unlock(&s->lock);
	return given_back;
}

bool kvt_segment_is_ours(const struct kvt_segment_file *s)
{
	struct stat st;

	return !look_at(s, s->name, &st) || is_it(s, &st);
}

void kvt_segment_stats(const struct kvt_segment_file *s, struct kvt_segment_stats *out)
{
	*out = (struct kvt_segment_stats){
		.bytes = s->bytes,
		.relinked = atomic_load(&s->relinked),
		.side_writes = atomic_load(&s->side_writes),
		.taken = atomic_load(&s->taken),
		.foreign = atomic_load(&s->foreign),
		.nameless = atomic_load(&s->nameless),
	};
}
