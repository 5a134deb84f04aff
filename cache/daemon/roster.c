/*
 * roster.c - tenants of buckets; roster.h says why.
 *
 * A table of fixed size, whose records never move: a hash finds them, and a walk goes by their number.
 */
#include "daemon/roster.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "chunk/checksum.h"

#define SLOTS (2 * KVT_ROSTER_MOST)

/* A record, in memory and in the file. */
struct record {
	struct kvt_tenant bucket, tenant;
	struct kvt_checksum sum; /* of both */
};

struct kvt_roster {
	const struct kvt_surroundings *surroundings; /* borrowed */
	int fd;                                      /* -1: no file */
	pthread_mutex_t lock;                        /* guards what follows */
	struct record *records;                      /* room for KVT_ROSTER_MOST; owned */
	uint32_t *slots;                             /* number + 1; 0: free; owned */
	uint32_t count;
	off_t end;  /* of the file */
	bool dirty; /* written since the last sync */
	bool told;  /* that one more had no room */
};

static struct kvt_checksum sum_of(struct record *record)
{
	struct kvt_segment both = {.base = record, .bytes = offsetof(struct record, sum)};
	struct kvt_checksum sum;

	kvt_checksum_segments(&both, 1, both.bytes, &sum);
	return sum;
}

/* Tenants and buckets are hashes themselves. */
static uint32_t *slot_of(struct kvt_roster *r, const struct record *record)
{
	uint32_t a, b, at;

	memcpy(&a, record->bucket.bytes, sizeof(a));
	memcpy(&b, record->tenant.bytes, sizeof(b));
	for (at = (a ^ b * 0x9e3779b1u) % SLOTS; r->slots[at] != 0; at = (at + 1) % SLOTS) {
		if (memcmp(&r->records[r->slots[at] - 1], record, offsetof(struct record, sum)) == 0)
			break;
	}
	return &r->slots[at];
}

static void add(struct kvt_roster *r, const struct record *record)
{
	uint32_t *slot = slot_of(r, record);

	if (*slot != 0)
		return;
	r->records[r->count] = *record;
	*slot = ++r->count;
}

static void read_all(struct kvt_roster *r)
{
	struct kvt_checksum sum;
	struct record record;

	while (r->fd >= 0 && r->count < KVT_ROSTER_MOST &&
		pread(r->fd, &record, sizeof(record), r->end) == (ssize_t)sizeof(record)) {
		sum = sum_of(&record);
		if (kvt_checksum_equal(&sum, &record.sum))
			add(r, &record);
		r->end += (off_t)sizeof(record); /* a record that is cut is written over */
	}
}

enum kvt_status kvt_roster_create(const char *path, const struct kvt_surroundings *surroundings,
	char *why, struct kvt_roster **out)
{
	struct kvt_roster *r = calloc(1, sizeof(*r));

	if (r == NULL)
		return KVT_ENOMEM;
	r->surroundings = surroundings;
	r->fd = -1;
	(void)pthread_mutex_init(&r->lock, NULL);
	r->records = calloc(KVT_ROSTER_MOST, sizeof(*r->records));
	r->slots = calloc(SLOTS, sizeof(*r->slots));
	if (r->records == NULL || r->slots == NULL) {
		kvt_roster_destroy(r);
		return KVT_ENOMEM;
	}
	if (path != NULL) {
		r->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
		if (r->fd < 0) {
			snprintf(why, KVT_REASON_BYTES, "%.100s: %s", path, strerror(errno));
			kvt_roster_destroy(r);
			return KVT_EIO;
		}
	}
	read_all(r);
	*out = r;
	return KVT_OK;
}

void kvt_roster_destroy(struct kvt_roster *r)
{
	if (r == NULL)
		return;
	kvt_roster_sync(r);
	if (r->fd >= 0)
		close(r->fd);
	(void)pthread_mutex_destroy(&r->lock);
	free(r->records);
	free(r->slots);
	free(r);
}

/* With the lock. */
static bool append(struct kvt_roster *r, const struct record *record)
{
	if (r->fd >= 0 && pwrite(r->fd, record, sizeof(*record), r->end) != (ssize_t)sizeof(*record))
		return false;
	r->end += (off_t)sizeof(*record);
	r->dirty = true;
	add(r, record);
	return true;
}

bool kvt_roster_enter(
	struct kvt_roster *r, const struct kvt_tenant *bucket, const struct kvt_tenant *tenant)
{
	struct record record = {.bucket = *bucket, .tenant = *tenant};
	bool there, tell;

	pthread_mutex_lock(&r->lock);
	there = *slot_of(r, &record) != 0;
	if (!there && r->count < KVT_ROSTER_MOST) {
		record.sum = sum_of(&record);
		there = append(r, &record);
	}
	tell = !there && !r->told;
	r->told = r->told || tell;
	pthread_mutex_unlock(&r->lock);
	if (tell)
		kvt_note(r->surroundings, KVT_LOG_WARN,
			"objects: no room for one more tenant (%u are known), or its file cannot be "
			"written: what it puts counts for its bucket",
			KVT_ROSTER_MOST);
	return there;
}

bool kvt_roster_next(struct kvt_roster *r, const struct kvt_tenant *bucket, uint32_t *at,
	struct kvt_tenant *tenant)
{
	bool found = false;

	pthread_mutex_lock(&r->lock);
	for (; *at < r->count && !found; (*at)++) {
		found = memcmp(&r->records[*at].bucket, bucket, sizeof(*bucket)) == 0;
		if (found)
			*tenant = r->records[*at].tenant;
	}
	pthread_mutex_unlock(&r->lock);
	return found;
}

void kvt_roster_sync(struct kvt_roster *r)
{
	bool dirty;

	pthread_mutex_lock(&r->lock);
	dirty = r->dirty;
	r->dirty = false;
	pthread_mutex_unlock(&r->lock);
	if (!dirty || r->fd < 0 || fdatasync(r->fd) == 0)
		return;
	pthread_mutex_lock(&r->lock);
	r->dirty = true; /* tried again */
	pthread_mutex_unlock(&r->lock);
}

uint32_t kvt_roster_count(struct kvt_roster *r)
{
	uint32_t count;

	pthread_mutex_lock(&r->lock);
	count = r->count;
	pthread_mutex_unlock(&r->lock);
	return count;
}
