/*
 * file_source.c - workers from a file (`discovery.file`), read again whenever it changes.
 *
 * The source watches the file's folder: a rename replaces a file by another inode, and Kubernetes
 * replaces a folder behind a symbolic link (`..data`), without any event of the file itself. Where
 * the kernel reports nothing (network file systems, links to other places, a folder that is created
 * later) a slow poll of the file's identity detects changes. Changes within SETTLE_MS are read
 * once.
 *
 * A file is read and checked whole; with a mistake the former list stays. Each content is parsed
 * once, so that a mistake is logged once. A text that grows while it is read is read again; a text
 * that is written slowly in place may be read half, so the documentation asks for a rename.
 */
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include <event2/event.h>
#include <xxhash.h>

#include "base/log.h"
#include "fleet/discovery/source.h"
#include "fleet/discovery/worker_list.h"

#define ROOM       "discovery"
#define SETTLE_MS  50
#define LINES_MOST 20 /* limit of log lines about one file's mistakes */
#define WATCHED                                                                                    \
	(IN_CLOSE_WRITE | IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO | IN_DELETE_SELF |   \
		IN_MOVE_SELF | IN_ONLYDIR)

/* Identity and state of the file, from stat. */
struct identity {
	dev_t device;
	ino_t inode;
	off_t size;
	struct timespec modified, changed;
};

struct file_source {
	struct kvw_source base;
	kvw_source_found_fn *found;
	void *arg;
	char *path, *folder; /* owned */
	const char *name;    /* in path */
	struct event *interval, *settle, *notified;
	int notify; /* inotify; -1: none */
	int watch;  /* inotify's number of the folder; -1: not watched */
	struct identity seen;
	uint64_t content; /* hash of the content that was parsed last */
	bool any;         /* `seen` and `content` are set */
	int missing;      /* errno that was reported last; 0: none */
};

static void fail_file(struct file_source *file, const char *why)
{
	file->found(file->arg, file->base.ops, NULL, 0, false, why);
}

/* --- a content --- */

/* Logs each of the lines; *first gets the first one. */
static void log_lines(enum kvw_log_level level, char *lines, char **first)
{
	size_t count = 0;
	char *rest = NULL;

	for (char *line = strtok_r(lines, "\n", &rest); line != NULL;
		line = strtok_r(NULL, "\n", &rest)) {
		if (count == 0)
			*first = line;
		if (count++ < LINES_MOST)
			kvw_log(level, ROOM, "%s", line);
	}
	if (count > LINES_MOST)
		kvw_log(level, ROOM, "%zu more lines about this file", count - LINES_MOST);
}

static void take_content(struct file_source *file, const char *text, size_t len)
{
	char *errors = NULL, *notes = NULL, *first = NULL;
	size_t errors_len = 0, notes_len = 0;
	FILE *to_errors = open_memstream(&errors, &errors_len);
	FILE *to_notes = open_memstream(&notes, &notes_len);
	struct kvw_config *list = NULL;
	enum kvw_err err = KVW_ENOMEM;

	if (to_errors != NULL && to_notes != NULL)
		err = kvw_worker_file_parse(file->path, text, len, to_errors, to_notes, &list);
	if (to_errors != NULL)
		fclose(to_errors);
	if (to_notes != NULL)
		fclose(to_notes);
	if (err == KVW_OK) {
		log_lines(KVW_LOG_INFO, notes, &first);
		kvw_info(ROOM, "%s: %zu workers", file->path, list->worker_count);
		file->found(file->arg, file->base.ops, list->workers, list->worker_count, false,
			NULL);
	} else if (err == KVW_EINVAL) {
		log_lines(KVW_LOG_ERROR, errors, &first);
		kvw_error(ROOM, "%s: has mistakes and changes nothing", file->path);
		fail_file(file, first != NULL ? first : "has mistakes");
	} else {
		file->any = false; /* parse it again */
		fail_file(file, "out of memory");
	}
	kvw_config_destroy(list);
	free(errors);
	free(notes);
}

/* --- the file --- */

static struct identity identity_of(const struct stat *st)
{
	return (struct identity){.device = st->st_dev,
		.inode = st->st_ino,
		.size = st->st_size,
		.modified = st->st_mtim,
		.changed = st->st_ctim};
}

static bool same_time(struct timespec a, struct timespec b)
{
	return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

static bool is_same_identity(const struct identity *a, const struct identity *b)
{
	return a->device == b->device && a->inode == b->inode && a->size == b->size &&
	       same_time(a->modified, b->modified) && same_time(a->changed, b->changed);
}

/* Reports that the file cannot be read, once for each series of failures of one cause. */
static void report_missing(struct file_source *file, int error)
{
	char why[256];

	if (file->missing == error)
		return;
	file->missing = error;
	snprintf(why, sizeof(why), "%.180s: cannot be read: %s", file->path,
		error == EINVAL ? "not a regular file" : strerror(error));
	kvw_warn(ROOM, "%s; what it said before stays in force", why);
	fail_file(file, why);
}

static void after(struct event *event, int64_t ms)
{
	const struct timeval delay = {
		.tv_sec = (time_t)(ms / 1000), .tv_usec = (suseconds_t)(ms % 1000 * 1000)};

	event_add(event, &delay);
}

/* Reads the file. Returns 0 or errno. *len may be one more than allowed, which shows that the file
 * is too long. */
static int read_bytes(int fd, char *buffer, size_t room, size_t *len)
{
	*len = 0;
	while (*len < room) {
		ssize_t n = read(fd, buffer + *len, room - *len);

		if (n == 0)
			return 0;
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errno;
		*len += (size_t)n;
	}
	return 0;
}

static void look_at_content(struct file_source *file, const char *text, size_t len)
{
	uint64_t content = XXH3_64bits(text, len) ^ len;
	bool back = file->missing != 0;
	char why[256];

	file->missing = 0;
	if (file->any && content == file->content && !back)
		return;
	file->content = content;
	file->any = true;
	if (len <= KVW_WORKER_FILE_MAX_BYTES) {
		take_content(file, text, len);
		return;
	}
	snprintf(why, sizeof(why), "%.150s: found more than %u bytes, expected a list of workers",
		file->path, KVW_WORKER_FILE_MAX_BYTES);
	kvw_error(ROOM, "%s", why);
	fail_file(file, why);
}

static void read_file(struct file_source *file)
{
	const size_t room = KVW_WORKER_FILE_MAX_BYTES + 1;
	int fd = open(file->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	struct stat before, later;
	char *buffer = NULL;
	int error = 0;
	size_t len;

	if (fd < 0) {
		report_missing(file, errno);
		return;
	}
	if (fstat(fd, &before) != 0)
		error = errno;
	else if (S_ISDIR(before.st_mode))
		error = EISDIR;
	else if (!S_ISREG(before.st_mode))
		error = EINVAL;
	if (error == 0) {
		size_t size = before.st_size < 0 ? 0 : (size_t)before.st_size;

		/* with one byte more than its size, a file that grows is noticed */
		buffer = malloc(size < room ? size + 1 : room);
		error = buffer == NULL
				? ENOMEM
				: read_bytes(fd, buffer, size < room ? size + 1 : room, &len);
	}
	if (error == 0 && fstat(fd, &later) == 0) {
		struct identity one = identity_of(&before), two = identity_of(&later);

		file->seen = two;
		if (is_same_identity(&one, &two))
			look_at_content(file, buffer, len);
		else
			after(file->settle, SETTLE_MS); /* the file is still being written */
	}
	if (error != 0)
		report_missing(file, error);
	free(buffer);
	close(fd);
}

/* --- signs of a change --- */

static void watch_folder(struct file_source *file)
{
	if (file->notify >= 0 && file->watch < 0)
		file->watch = inotify_add_watch(file->notify, file->folder, WATCHED);
}

static void on_settle(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	read_file(arg);
}

static void on_interval(evutil_socket_t fd, short what, void *arg)
{
	struct file_source *file = arg;
	struct stat st;

	(void)fd;
	(void)what;
	watch_folder(file);
	if (stat(file->path, &st) == 0) {
		struct identity now = identity_of(&st);

		if (file->any && file->missing == 0 && is_same_identity(&now, &file->seen))
			return;
	}
	read_file(file);
}

static void on_notified(evutil_socket_t fd, short what, void *arg)
{
	char buffer[4096] __attribute__((aligned(__alignof__(struct inotify_event))));
	struct file_source *file = arg;
	bool ours = false;
	ssize_t len;

	(void)what;
	while ((len = read(fd, buffer, sizeof(buffer))) > 0) {
		for (char *at = buffer; at < buffer + len;) {
			const struct inotify_event *event = (const void *)at;

			if (event->len == 0 || strcmp(event->name, file->name) == 0 ||
				strcmp(event->name, "..data") == 0)
				ours = true;
			if (event->mask & (IN_IGNORED | IN_MOVE_SELF) && event->wd == file->watch) {
				if (event->mask & IN_MOVE_SELF)
					inotify_rm_watch(fd, file->watch);
				file->watch = -1; /* the periodic poll tries again */
			}
			at += sizeof(*event) + event->len;
		}
	}
	if (ours && !event_pending(file->settle, EV_TIMEOUT, NULL))
		after(file->settle, SETTLE_MS);
}

/* --- life --- */

static bool file_configured(const struct kvw_config *config)
{
	return config->discovery_file[0] != '\0';
}

static void file_stop(struct kvw_source *source)
{
	struct file_source *file = (struct file_source *)source;

	if (file == NULL)
		return;
	if (file->interval != NULL)
		event_free(file->interval);
	if (file->settle != NULL)
		event_free(file->settle);
	if (file->notified != NULL)
		event_free(file->notified);
	if (file->notify >= 0)
		close(file->notify);
	free(file->path);
	free(file->folder);
	free(file);
}

static bool set_paths(struct file_source *file, const char *path)
{
	const char *slash = strrchr(path, '/');
	char *copy;

	file->path = strdup(path);
	copy = strdup(path);
	if (copy != NULL)
		/* copied, since dirname may return a constant */
		file->folder = strdup(dirname(copy));
	free(copy);
	if (file->path == NULL || file->folder == NULL)
		return false;
	file->name = file->path + (slash == NULL ? 0 : slash + 1 - path);
	return true;
}

static enum kvw_err file_start(struct event_base *base, const struct kvw_config *config,
	kvw_source_found_fn *found, void *arg, struct kvw_source **out)
{
	const struct timeval interval = {
		.tv_sec = (time_t)(config->discovery_file_interval_ms / 1000),
		.tv_usec = (suseconds_t)(config->discovery_file_interval_ms % 1000 * 1000)};
	struct file_source *file = calloc(1, sizeof(*file));

	if (file == NULL)
		return KVW_ENOMEM;
	file->base.ops = &kvw_source_file;
	file->found = found;
	file->arg = arg;
	file->watch = -1;
	file->notify = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
	if (file->notify < 0)
		kvw_warn(ROOM, "inotify: %s; changes are found by discovery.file_interval alone",
			strerror(errno));
	if (!set_paths(file, config->discovery_file))
		goto fail;
	file->interval = event_new(base, -1, EV_PERSIST, on_interval, file);
	file->settle = event_new(base, -1, 0, on_settle, file);
	if (file->interval == NULL || file->settle == NULL || event_add(file->interval, &interval))
		goto fail;
	if (file->notify >= 0) {
		file->notified =
			event_new(base, file->notify, EV_READ | EV_PERSIST, on_notified, file);
		if (file->notified == NULL || event_add(file->notified, NULL) != 0)
			goto fail;
	}
	/* before the first look at the file, so that no change between the two is missed */
	watch_folder(file);
	*out = &file->base;
	read_file(file);
	return KVW_OK;
fail:
	file_stop(&file->base);
	return KVW_ENOMEM;
}

const struct kvw_source_ops kvw_source_file = {
	.name = "file",
	.configured = file_configured,
	.start = file_start,
	.stop = file_stop,
};
