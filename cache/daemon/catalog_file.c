/*
 * catalog_file.c - the catalog's file: a list of changes, rewritten when it has twice the length
 * that it needs.
 *
 * A record: checksum (4 bytes of XXH3 over the rest), kind (1), length of the bucket (1), of the
 * key (2), size of the object (8), bucket, key; in this machine's byte order. Reading ends at the
 * first incomplete record: a killed process leaves at most one at the end.
 *
 * A rewrite goes in steps, so that the writing thread is never busy for long: each step writes some
 * names, in order, into a new file, and meanwhile changes go into both files. A change may precede
 * its name in the new file, or occur twice. The last record of a name is right in either file,
 * because the rewrite copies the present state of a name, and a later change is recorded later. At
 * the end the new file is renamed over the old one.
 *
 * A rewrite that fails leaves the old file unchanged and begins again after a second.
 *
 * The file is not synced: after a crash of the machine lists may lack names.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/catalog_parts.h"
#include "chunk/checksum.h"

#define MAGIC       "kvtnames 1\n\0\0\0\0"
#define MAGIC_BYTES 16
#define HEAD_BYTES  16
#define TAIL_MOST   ((size_t)4 << 20) /* records that wait */
#define SLACK_BYTES ((uint64_t)64 << 10)
#define STEP_NAMES  64
#define READ_BYTES  ((size_t)1 << 16)
#define RETRY_NS    1000000000 /* pause before a failed rewrite is tried again */

/* --- records ---------------------------------------------------------------------------------- */

struct head {
	uint32_t sum;
	uint8_t kind, bucket_len;
	uint16_t key_len;
	uint64_t bytes;
};
_Static_assert(sizeof(struct head) == HEAD_BYTES, "a record's head has no gaps");

uint64_t kvt_catalog_record_bytes(size_t bucket_len, size_t key_len)
{
	return HEAD_BYTES + bucket_len + key_len;
}

static uint32_t sum_of(uint8_t *record, size_t len)
{
	struct kvt_segment all = {
		.base = record + sizeof(uint32_t), .bytes = len - sizeof(uint32_t)};
	struct kvt_checksum sum;

	kvt_checksum_segments(&all, 1, all.bytes, &sum);
	return (uint32_t)sum.low;
}

static bool make_room(struct kvt_catalog_tail *tail, size_t more)
{
	size_t room = tail->room;
	uint8_t *at;

	if (tail->len + more <= room)
		return true;
	if (tail->len + more > TAIL_MOST)
		return false;
	while (room < tail->len + more)
		room = room == 0 ? 4096 : room * 2;
	at = realloc(tail->at, room);
	if (at == NULL)
		return false;
	tail->at = at;
	tail->room = room;
	return true;
}

static bool append(struct kvt_catalog_tail *tail, enum kvt_catalog_kind kind,
	struct kvw_slice bucket, struct kvw_slice key, uint64_t bytes)
{
	struct head head = {.kind = (uint8_t)kind,
		.bucket_len = (uint8_t)bucket.len,
		.key_len = (uint16_t)key.len,
		.bytes = bytes};
	size_t len = (size_t)kvt_catalog_record_bytes(bucket.len, key.len);
	uint8_t *at;

	if (!make_room(tail, len))
		return false;
	at = tail->at + tail->len;
	memcpy(at, &head, sizeof(head));
	memcpy(at + HEAD_BYTES, bucket.data, bucket.len);
	if (key.len != 0)
		memcpy(at + HEAD_BYTES + bucket.len, key.data, key.len);
	head.sum = sum_of(at, len);
	memcpy(at, &head, sizeof(head));
	tail->len += len;
	return true;
}

void kvt_catalog_tell(struct kvt_catalog *c, enum kvt_catalog_kind kind, struct kvw_slice bucket,
	struct kvw_slice key, uint64_t bytes)
{
	if (c->path != NULL && !append(&c->tail, kind, bucket, key, bytes))
		c->incomplete = true;
}

/* --- reading ---------------------------------------------------------------------------------- */

/* Returns whether a complete record begins here; sets *len to its length. */
static bool record_at(uint8_t *at, size_t left, struct head *head, size_t *len)
{
	if (left < HEAD_BYTES)
		return false;
	memcpy(head, at, sizeof(*head));
	*len = (size_t)kvt_catalog_record_bytes(head->bucket_len, head->key_len);
	return *len <= left && head->bucket_len >= 1 && head->bucket_len <= KVT_BUCKET_MOST &&
	       head->key_len <= KVT_OBJECT_KEY_MOST && head->sum == sum_of(at, *len) &&
	       memchr(at + HEAD_BYTES, '\0', *len - HEAD_BYTES) == NULL;
}

static void replay(struct kvt_catalog *c, const struct head *head, const char *text)
{
	struct kvt_object_name name = {
		{text, head->bucket_len}, {text + head->bucket_len, head->key_len}};

	if (head->kind == KVT_NAME_BUCKET_GONE)
		kvt_catalog_forget_bucket(c, name.bucket);
	else if (head->kind == KVT_NAME_GONE)
		kvt_catalog_forget(c, &name);
	else if (head->kind == KVT_NAME_THERE && head->key_len != 0)
		kvt_catalog_note(c, &name, head->bytes);
}

/* Replays records up to the end or the first incomplete one; *end: the offset reached. */
static enum kvt_status replay_all(struct kvt_catalog *c, uint64_t *end)
{
	size_t have = 0, at = 0, len;
	uint8_t *buffer = malloc(READ_BYTES);
	struct head head;
	ssize_t n;

	if (buffer == NULL)
		return KVT_ENOMEM;
	*end = MAGIC_BYTES;
	while ((n = pread(c->fd, buffer + have, READ_BYTES - have, (off_t)(*end + have))) > 0) {
		have += (size_t)n;
		for (at = 0; record_at(buffer + at, have - at, &head, &len); at += len)
			replay(c, &head, (const char *)buffer + at + HEAD_BYTES);
		if (at == 0 && have == READ_BYTES)
			break; /* longer than any record: incomplete */
		memmove(buffer, buffer + at, have - at);
		have -= at;
		*end += at;
	}
	free(buffer);
	return n < 0 ? KVT_EIO : KVT_OK;
}

static enum kvt_status read_file(struct kvt_catalog *c, uint64_t size, char *why)
{
	char magic[MAGIC_BYTES];
	enum kvt_status status;
	uint64_t end;

	if (size < MAGIC_BYTES) {
		c->incomplete = true; /* the file is new, or its writer was killed at once */
		return KVT_OK;
	}
	if (pread(c->fd, magic, sizeof(magic), 0) != (ssize_t)sizeof(magic) ||
		memcmp(magic, MAGIC, sizeof(magic)) != 0) {
		snprintf(why, KVT_REASON_BYTES, "%.100s is no list of names; remove it", c->path);
		return KVT_EFORMAT;
	}
	status = replay_all(c, &end);
	if (status != KVT_OK) {
		snprintf(why, KVT_REASON_BYTES, "%.100s: %s", c->path, strerror(errno));
		return status;
	}
	c->tail.len = 0; /* replaying has recorded changes that the file already has */
	c->file_bytes = end;
	c->incomplete = end != size;
	if (c->incomplete)
		kvt_note(c->surroundings, KVT_LOG_WARN,
			"names: the file ends in %llu bytes that are no names",
			(unsigned long long)(size - end));
	return KVT_OK;
}

enum kvt_status kvt_catalog_file_open(struct kvt_catalog *c, const char *path, char *why)
{
	size_t len = strlen(path);
	struct stat st;

	c->path = strdup(path);
	c->new_path = malloc(len + 5);
	c->cursor = calloc(1, sizeof(*c->cursor));
	if (c->path == NULL || c->new_path == NULL || c->cursor == NULL)
		return KVT_ENOMEM;
	snprintf(c->new_path, len + 5, "%s.new", path);
	c->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (c->fd < 0 || fstat(c->fd, &st) != 0) {
		snprintf(why, KVT_REASON_BYTES, "%.100s: %s", path, strerror(errno));
		return KVT_EIO;
	}
	if (flock(c->fd, LOCK_EX | LOCK_NB) != 0) {
		snprintf(why, KVT_REASON_BYTES, "%.100s is owned by another process", path);
		return KVT_ELOCKED;
	}
	return read_file(c, (uint64_t)st.st_size, why);
}

/* --- writing ---------------------------------------------------------------------------------- */

static void log_once(struct kvt_catalog *c)
{
	if (!c->failed)
		kvt_note(c->surroundings, KVT_LOG_ERROR, "names: %s: %s", c->path, strerror(errno));
	c->failed = true;
}

static bool write_all(struct kvt_catalog *c, int fd, const void *from, size_t len, uint64_t at)
{
	const char *bytes = from;

	while (len != 0) {
		ssize_t n = pwrite(fd, bytes, len, (off_t)at);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) {
			log_once(c);
			return false;
		}
		bytes += n;
		at += (uint64_t)n;
		len -= (size_t)n;
	}
	return true;
}

static void drop_new(struct kvt_catalog *c)
{
	if (c->new_fd < 0)
		return;
	close(c->new_fd);
	c->new_fd = -1;
	unlink(c->new_path);
}

/* The rewrite failed: the file still lacks what it lacked, and the rewrite is tried again later. */
static void fail_new(struct kvt_catalog *c)
{
	drop_new(c);
	c->again_ns = kvt_now(c->surroundings) + RETRY_NS;
	pthread_mutex_lock(&c->lock);
	c->incomplete = true;
	pthread_mutex_unlock(&c->lock);
}

/* Locks the new file before it is renamed: another process that opens it finds it locked. */
static void begin_new(struct kvt_catalog *c)
{
	c->new_fd = open(c->new_path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (c->new_fd < 0 || flock(c->new_fd, LOCK_EX | LOCK_NB) != 0 ||
		!write_all(c, c->new_fd, MAGIC, MAGIC_BYTES, 0)) {
		fail_new(c);
		return;
	}
	c->new_bytes = MAGIC_BYTES;
	c->cursor->bucket[0] = c->cursor->key[0] = '\0';
}

static void end_new(struct kvt_catalog *c)
{
	if (rename(c->new_path, c->path) != 0) {
		log_once(c);
		fail_new(c);
		return;
	}
	close(c->fd);
	c->fd = c->new_fd;
	c->new_fd = -1;
	c->failed = false;
	pthread_mutex_lock(&c->lock);
	c->file_bytes = c->new_bytes;
	pthread_mutex_unlock(&c->lock);
}

/* Copies some more names. False: these were the last, or writing failed. */
static bool copy_some(struct kvt_catalog *c)
{
	struct kvt_catalog_item *items = calloc(STEP_NAMES, sizeof(*items));
	struct kvt_catalog_tail batch = {0};
	size_t n = 0;
	bool good = items != NULL;

	if (good)
		n = kvt_catalog_walk(
			c, c->cursor->bucket[0] != '\0' ? c->cursor : NULL, items, STEP_NAMES);
	for (size_t i = 0; i < n && good; i++)
		good = append(&batch, KVT_NAME_THERE, kvw_slice_of(items[i].bucket),
			kvw_slice_of(items[i].key), items[i].bytes);
	if (good)
		good = write_all(c, c->new_fd, batch.at, batch.len, c->new_bytes);
	if (good && n != 0) {
		c->new_bytes += batch.len;
		*c->cursor = items[n - 1];
	}
	free(batch.at);
	free(items);
	if (!good)
		fail_new(c);
	else if (n == 0)
		end_new(c);
	return good && n != 0;
}

/* Writes the recorded changes into the file, and into the new file if there is one. */
static void write_tail(struct kvt_catalog *c, bool *again)
{
	struct kvt_catalog_tail tail;
	uint64_t at;
	bool good;

	pthread_mutex_lock(&c->lock);
	tail = c->tail;
	c->tail = (struct kvt_catalog_tail){0};
	at = c->file_bytes;
	if (c->incomplete && c->new_fd >= 0)
		drop_new(c); /* the new file lacks the changes that could not be recorded */
	pthread_mutex_unlock(&c->lock);
	good = at == 0 || write_all(c, c->fd, tail.at, tail.len, at);
	if (c->new_fd >= 0) {
		if (write_all(c, c->new_fd, tail.at, tail.len, c->new_bytes))
			c->new_bytes += tail.len;
		else
			fail_new(c);
	}
	pthread_mutex_lock(&c->lock);
	if (good && at != 0)
		c->file_bytes = at + tail.len;
	if (!good)
		c->incomplete = true;
	*again = c->new_fd < 0 && kvt_now(c->surroundings) >= c->again_ns &&
		 (c->incomplete || c->file_bytes > 2 * c->live_bytes + SLACK_BYTES);
	if (*again)
		c->incomplete = false;
	pthread_mutex_unlock(&c->lock);
	free(tail.at);
}

bool kvt_catalog_step(struct kvt_catalog *c)
{
	bool again;

	if (c->path == NULL)
		return false;
	write_tail(c, &again);
	if (again)
		begin_new(c);
	return c->new_fd >= 0 && copy_some(c);
}

void kvt_catalog_file_close(struct kvt_catalog *c)
{
	c->again_ns = INT64_MIN; /* one more try, if the last rewrite failed */
	while (c->fd >= 0 && kvt_catalog_step(c))
		;
	drop_new(c);
	if (c->fd >= 0)
		close(c->fd);
	free(c->path);
	free(c->new_path);
	free(c->cursor);
	c->path = NULL; /* the file is given up, and changes are no longer recorded */
}
