/*
 * doomed.c - objects that are being replaced; doomed.h says why.
 *
 * The file is an array of places for a key and its check, so that it never grows; a place is written
 * and emptied by one pwrite. It is not synced: it guards against the end of the process, after which
 * the system still writes what it was given. A place whose check is wrong is an empty one.
 */
#include "daemon/doomed.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "chunk/checksum.h"
#include "memory/own_file.h"

/* One place in the file. */
struct place {
	struct kvt_key key;
	struct kvt_checksum sum;
};

/* A place as this process uses it. */
struct use {
	struct kvt_key key;
	uint32_t erases; /* under way */
	uint64_t kept;   /* number of the keeping; 0: it is not kept */
};

struct kvt_doomed {
	const struct kvt_surroundings *surroundings; /* borrowed */
	int fd;                                      /* -1: no file */
	struct kvt_key left[KVT_DOOMED_MOST];
	uint32_t left_places[KVT_DOOMED_MOST];
	size_t left_count;
	pthread_mutex_t lock; /* guards what follows */
	uint32_t free[KVT_DOOMED_MOST];
	size_t free_count;
	struct use uses[KVT_DOOMED_MOST];
	size_t kept_count;
	uint64_t keepings;
};

static struct kvt_checksum sum_of(struct kvt_key *key)
{
	struct kvt_segment all = {.base = key, .bytes = sizeof(*key)};
	struct kvt_checksum sum;

	kvt_checksum_segments(&all, 1, sizeof(*key), &sum);
	return sum;
}

static bool write_place(struct kvt_doomed *d, uint32_t slot, const struct place *place)
{
	return pwrite(d->fd, place, sizeof(*place), (off_t)(slot * sizeof(*place))) ==
	       (ssize_t)sizeof(*place);
}

/* Is there a key in this place? */
static bool read_place(struct kvt_doomed *d, uint32_t slot, struct kvt_key *key)
{
	struct kvt_checksum sum;
	struct place place;

	if (d->fd < 0 || pread(d->fd, &place, sizeof(place), (off_t)(slot * sizeof(place))) !=
				 (ssize_t)sizeof(place))
		return false;
	sum = sum_of(&place.key);
	*key = place.key;
	return kvt_checksum_equal(&sum, &place.sum);
}

/* What was left keeps its places until it is erased. */
static void read_places(struct kvt_doomed *d)
{
	struct kvt_key key;

	for (uint32_t i = KVT_DOOMED_MOST; i-- > 0;) {
		if (read_place(d, i, &key)) {
			d->left[d->left_count] = key;
			d->left_places[d->left_count++] = i;
			d->uses[i] = (struct use){.key = key, .erases = 1};
		} else {
			d->free[d->free_count++] = i;
		}
	}
}

enum kvt_status kvt_doomed_create(const char *path, const struct kvt_surroundings *surroundings,
	char *why, struct kvt_doomed **out)
{
	struct kvt_doomed *d = calloc(1, sizeof(*d));

	if (d == NULL)
		return KVT_ENOMEM;
	d->surroundings = surroundings;
	d->fd = -1;
	if (path != NULL) {
		d->fd = kvt_own_file(path, why);
		if (d->fd < 0) {
			free(d);
			return KVT_EIO;
		}
	}
	read_places(d);
	pthread_mutex_init(&d->lock, NULL);
	*out = d;
	return KVT_OK;
}

void kvt_doomed_destroy(struct kvt_doomed *d)
{
	if (d == NULL)
		return;
	if (d->fd >= 0)
		close(d->fd);
	pthread_mutex_destroy(&d->lock);
	free(d);
}

const struct kvt_key *kvt_doomed_left(const struct kvt_doomed *d, size_t *n)
{
	*n = d->left_count;
	return d->left;
}

void kvt_doomed_clear(struct kvt_doomed *d)
{
	while (d->left_count != 0)
		kvt_doomed_remove(d, d->left_places[--d->left_count]);
}

void kvt_doomed_keep_left(struct kvt_doomed *d)
{
	while (d->left_count != 0)
		kvt_doomed_keep(d, d->left_places[--d->left_count]);
}

/* --- kept places; with the lock --------------------------------------------------------------- */

/* The place that is kept for this key, or KVT_DOOMED_MOST. */
static uint32_t find_kept(const struct kvt_doomed *d, const struct kvt_key *key)
{
	for (uint32_t i = 0; d->kept_count != 0 && i < KVT_DOOMED_MOST; i++)
		if (d->uses[i].kept != 0 && memcmp(&d->uses[i].key, key, sizeof(*key)) == 0)
			return i;
	return KVT_DOOMED_MOST;
}

/* Frees the place unless something needs it. */
static void let_go(struct kvt_doomed *d, uint32_t slot)
{
	struct place none;

	if (d->uses[slot].erases != 0 || d->uses[slot].kept != 0)
		return;
	memset(&none, 0, sizeof(none)); /* of which the check is wrong */
	if (d->fd >= 0 && !write_place(d, slot, &none))
		kvt_note(d->surroundings, KVT_LOG_ERROR, "replaced objects: %s", strerror(errno));
	d->free[d->free_count++] = slot;
}

static void stop_keeping(struct kvt_doomed *d, uint32_t slot)
{
	if (d->uses[slot].kept != 0)
		d->kept_count--;
	d->uses[slot].kept = 0;
}

/* A place that is kept, from now on. */
static void keep(struct kvt_doomed *d, uint32_t slot)
{
	d->kept_count += d->uses[slot].kept == 0;
	d->uses[slot].kept = ++d->keepings;
}

/* --- places ----------------------------------------------------------------------------------- */

/* A free place gets the key, for one erase. With the lock. */
static enum kvt_status take_place(struct kvt_doomed *d, const struct kvt_key *key, uint32_t *slot)
{
	struct place place = {.key = *key};
	uint32_t mine = d->free[--d->free_count];

	d->uses[mine] = (struct use){.key = *key, .erases = 1};
	place.sum = sum_of(&place.key);
	*slot = mine;
	if (d->fd < 0 || write_place(d, mine, &place))
		return KVT_OK;
	kvt_note(d->surroundings, KVT_LOG_ERROR, "replaced objects: %s", strerror(errno));
	d->uses[mine].erases = 0;
	let_go(d, mine);
	return KVT_EIO;
}

enum kvt_status kvt_doomed_add(struct kvt_doomed *d, const struct kvt_key *key, uint32_t *slot)
{
	enum kvt_status status = KVT_OK;
	uint32_t mine;

	pthread_mutex_lock(&d->lock);
	mine = find_kept(d, key);
	if (mine != KVT_DOOMED_MOST)
		d->uses[mine].erases++; /* the key is in the file */
	else
		status = d->free_count == 0 ? KVT_BUSY : take_place(d, key, &mine);
	pthread_mutex_unlock(&d->lock);
	if (status == KVT_OK)
		*slot = mine;
	return status;
}

void kvt_doomed_remember(struct kvt_doomed *d, const struct kvt_key *key)
{
	uint32_t slot;

	pthread_mutex_lock(&d->lock);
	if (d->free_count > KVT_DOOMED_MOST / 2 && find_kept(d, key) == KVT_DOOMED_MOST &&
		take_place(d, key, &slot) == KVT_OK) {
		d->uses[slot].erases = 0;
		keep(d, slot);
	}
	pthread_mutex_unlock(&d->lock);
}

void kvt_doomed_drop(struct kvt_doomed *d, uint32_t slot)
{
	pthread_mutex_lock(&d->lock);
	d->uses[slot].erases--;
	let_go(d, slot);
	pthread_mutex_unlock(&d->lock);
}

void kvt_doomed_remove(struct kvt_doomed *d, uint32_t slot)
{
	pthread_mutex_lock(&d->lock);
	d->uses[slot].erases--;
	stop_keeping(d, slot);
	let_go(d, slot);
	pthread_mutex_unlock(&d->lock);
}

void kvt_doomed_keep(struct kvt_doomed *d, uint32_t slot)
{
	uint32_t other;

	pthread_mutex_lock(&d->lock);
	other = find_kept(d, &d->uses[slot].key);
	if (other != KVT_DOOMED_MOST && other != slot) { /* one place holds for all of a key */
		stop_keeping(d, other);
		let_go(d, other);
	}
	d->uses[slot].erases--;
	keep(d, slot);
	pthread_mutex_unlock(&d->lock);
}

uint64_t kvt_doomed_kept(struct kvt_doomed *d)
{
	uint64_t kept;

	pthread_mutex_lock(&d->lock);
	kept = d->kept_count != 0 ? d->keepings : 0;
	pthread_mutex_unlock(&d->lock);
	return kept;
}

void kvt_doomed_settled(struct kvt_doomed *d, uint64_t until)
{
	pthread_mutex_lock(&d->lock);
	for (uint32_t i = 0; d->kept_count != 0 && i < KVT_DOOMED_MOST; i++) {
		if (d->uses[i].kept == 0 || d->uses[i].kept > until)
			continue;
		stop_keeping(d, i);
		let_go(d, i);
	}
	pthread_mutex_unlock(&d->lock);
}
