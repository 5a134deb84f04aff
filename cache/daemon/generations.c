/*
 * generations.c - the file of the table of generations: records of 16 bytes. The first has the
 * table's id; then follows one for each slot, with its number and a check of the number under the
 * id. A record lies within one disk sector and is written as a whole; zeros are a slot that never
 * changed.
 */
#include "daemon/generations.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>
#include <xxhash.h>

struct place {
	uint64_t number, check;
};

struct kvt_generation_table {
	const struct kvt_surroundings *surroundings; /* borrowed */
	int fd;                                      /* -1: no file */
	/* lets one thread change the table at a time; taken before `lock` */
	pthread_mutex_t writing;
	pthread_mutex_t lock;    /* guards what follows */
	uint8_t id[KVT_TABLE_ID_BYTES];
	uint64_t last;
	/* Slots whose records in the file cannot be trusted: they are being written, or writing
	 * them failed. */
	uint32_t own_first, own_count;
	uint64_t numbers[KVT_SLOTS];
};

_Static_assert(sizeof(struct place) == KVT_TABLE_ID_BYTES, "the id has a place, too");

static uint64_t check_of(const uint8_t id[KVT_TABLE_ID_BYTES], uint32_t slot, uint64_t number)
{
	struct {
		uint8_t id[KVT_TABLE_ID_BYTES];
		uint64_t number, slot;
	} in = {.number = number, .slot = slot};

	memcpy(in.id, id, sizeof(in.id));
	return XXH3_64bits(&in, sizeof(in));
}

static bool write_at(struct kvt_generation_table *g, uint64_t place, const void *bytes, size_t len)
{
	if (g->fd < 0)
		return true;
	if (pwrite(g->fd, bytes, len, (off_t)(place * sizeof(struct place))) == (ssize_t)len && fdatasync(g->fd) == 0)
		return true;
	kvt_note(g->surroundings, KVT_LOG_ERROR, "generations: %s", strerror(errno));
	return false;
}

/* With `writing`. */
static enum kvt_status renew(struct kvt_generation_table *g)
{
	static const uint8_t none[KVT_TABLE_ID_BYTES];
	size_t len = (size_t)(1 + KVT_SLOTS) * sizeof(struct place);
	uint8_t *bytes = calloc(1, len);
	bool good = bytes != NULL && getrandom(bytes, KVT_TABLE_ID_BYTES, 0) == KVT_TABLE_ID_BYTES;

	/* The id is zeroed while the records are, so that a power loss cannot leave a table with
	 * parts of both. */
	if (!good || !write_at(g, 0, none, sizeof(none)) ||
		!write_at(g, 1, bytes + sizeof(struct place), len - sizeof(struct place)) ||
		!write_at(g, 0, bytes, sizeof(g->id))) {
		free(bytes);
		return KVT_EIO;
	}
	pthread_mutex_lock(&g->lock);
	memcpy(g->id, bytes, sizeof(g->id));
	memset(g->numbers, 0, sizeof(g->numbers));
	g->last = 0;
	g->own_count = 0;
	pthread_mutex_unlock(&g->lock);
	free(bytes);
	return KVT_OK;
}

/* Reads the table from the file. False: the file has no complete table. */
static bool take_file(struct kvt_generation_table *g)
{
	static const uint8_t none[KVT_TABLE_ID_BYTES];
	size_t len = (size_t)(1 + KVT_SLOTS) * sizeof(struct place);
	struct place *places = malloc(len);
	bool good = places != NULL && g->fd >= 0 && pread(g->fd, places, len, 0) == (ssize_t)len;

	if (good)
		memcpy(g->id, places, sizeof(g->id));
	good = good && memcmp(g->id, none, sizeof(none)) != 0;
	for (uint32_t slot = 0; slot < KVT_SLOTS && good; slot++) {
		const struct place *p = &places[1 + slot];

		good = (p->number == 0 && p->check == 0) || p->check == check_of(g->id, slot, p->number);
		g->numbers[slot] = p->number;
		g->last = p->number > g->last ? p->number : g->last;
	}
	free(places);
	return good;
}

enum kvt_status kvt_generation_table_create(const char *path, const struct kvt_surroundings *surroundings,
	char *why, struct kvt_generation_table **out)
{
	struct kvt_generation_table *g = calloc(1, sizeof(*g));

	if (g == NULL)
		return KVT_ENOMEM;
	g->surroundings = surroundings;
	g->fd = -1;
	pthread_mutex_init(&g->writing, NULL);
	pthread_mutex_init(&g->lock, NULL);
	if (path != NULL)
		g->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if ((path != NULL && g->fd < 0) || (!take_file(g) && renew(g) != KVT_OK)) {
		snprintf(why, KVT_REASON_BYTES, "%.100s: %s", path != NULL ? path : "generations", strerror(errno));
		kvt_generation_table_destroy(g);
		return KVT_EIO;
	}
	*out = g;
	return KVT_OK;
}

void kvt_generation_table_destroy(struct kvt_generation_table *g)
{
	if (g == NULL)
		return;
	if (g->fd >= 0)
		close(g->fd);
	pthread_mutex_destroy(&g->writing);
	pthread_mutex_destroy(&g->lock);
	free(g);
}

void kvt_generation_table_read(struct kvt_generation_table *g, struct kvt_table_ask *ask)
{
	bool known, behind;

	pthread_mutex_lock(&g->lock);
	known = memcmp(g->id, ask->id, sizeof(g->id)) == 0;
	behind = known && g->last < ask->after;
	pthread_mutex_unlock(&g->lock);
	if (behind) { /* an older copy of the file was put back */
		pthread_mutex_lock(&g->writing);
		pthread_mutex_lock(&g->lock);
		/* the store's former owner may have written the file meanwhile */
		behind = !take_file(g) || g->last < ask->after;
		pthread_mutex_unlock(&g->lock);
		if (behind)
			(void)renew(g);
		pthread_mutex_unlock(&g->writing);
	}
	pthread_mutex_lock(&g->lock);
	known = memcmp(g->id, ask->id, sizeof(g->id)) == 0;
	memcpy(ask->now, g->id, sizeof(g->id));
	kvt_slots_collect(g->numbers, known ? ask->after : 0, ask);
	pthread_mutex_unlock(&g->lock);
}

/* Stops trusting these slots' records until they have been written successfully; count 0: trusts
 * all. Returns the last number. */
static uint64_t distrust(struct kvt_generation_table *g, uint32_t first, uint32_t count)
{
	uint64_t last;

	pthread_mutex_lock(&g->lock);
	g->own_first = first;
	g->own_count = count;
	last = g->last;
	pthread_mutex_unlock(&g->lock);
	return last;
}

/* Writes the former numbers again after a write that failed, since a part of it may be in the
 * file. */
static void write_back(struct kvt_generation_table *g, uint32_t first, uint32_t count, struct place *places)
{
	for (uint32_t i = 0; i < count; i++) {
		uint64_t number = g->numbers[first + i];

		places[i] = (struct place){number, number != 0 ? check_of(g->id, first + i, number) : 0};
	}
	if (write_at(g, 1 + first, places, count * sizeof(*places)))
		(void)distrust(g, 0, 0);
}

/* Fills `places` with new records for slots from `first` on, and writes them. `writing` is held. */
static enum kvt_status write_places(
	struct kvt_generation_table *g, uint32_t first, uint32_t count, struct place *places)
{
	uint8_t random[3];
	uint64_t last = distrust(g, first, count);

	for (uint32_t i = 0; i < count; i++) {
		if (getrandom(random, sizeof(random), 0) != sizeof(random))
			return KVT_EIO;
		last += kvt_change_step(random);
		places[i] = (struct place){last, check_of(g->id, first + i, last)};
	}
	if (!write_at(g, 1 + first, places, count * sizeof(*places))) {
		write_back(g, first, count, places);
		return KVT_EIO;
	}
	pthread_mutex_lock(&g->lock);
	for (uint32_t i = 0; i < count; i++)
		g->numbers[first + i] = places[i].number;
	g->last = last > g->last ? last : g->last;
	g->own_count = 0;
	pthread_mutex_unlock(&g->lock);
	return KVT_OK;
}

enum kvt_status kvt_generation_table_raise(struct kvt_generation_table *g, uint32_t first, uint32_t count)
{
	struct place *places;
	enum kvt_status status;

	if (first >= KVT_SLOTS || count == 0 || count > KVT_SLOTS - first)
		return KVT_EINVAL;
	places = calloc(count, sizeof(*places));
	if (places == NULL)
		return KVT_ENOMEM;
	pthread_mutex_lock(&g->writing);
	status = write_places(g, first, count, places);
	pthread_mutex_unlock(&g->writing);
	free(places);
	return status;
}

void kvt_generation_table_numbers(struct kvt_generation_table *g, const uint32_t *slots, size_t n,
	uint64_t *numbers, uint8_t id[KVT_TABLE_ID_BYTES])
{
	struct place p;

	pthread_mutex_lock(&g->lock);
	memcpy(id, g->id, sizeof(g->id));
	for (size_t i = 0; i < n; i++) {
		off_t at = (off_t)((1 + slots[i]) * sizeof(p));

		if (g->fd >= 0 && slots[i] - g->own_first >= g->own_count &&
			pread(g->fd, &p, sizeof(p), at) == sizeof(p) && p.number > g->numbers[slots[i]] &&
			p.check == check_of(g->id, slots[i], p.number)) {
			g->numbers[slots[i]] = p.number;
			g->last = p.number > g->last ? p.number : g->last;
		}
		numbers[i] = g->numbers[slots[i]];
	}
	pthread_mutex_unlock(&g->lock);
}
