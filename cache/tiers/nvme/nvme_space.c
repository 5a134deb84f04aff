/*
 * nvme_space.c - data files and their units.
 *
 * Unit numbers run through all files: unit u lies in file u / units_per_file. Files are created
 * when room is needed and reserved as a whole, so that a full disk shows at the creation of a file
 * and not amid a chunk; then the store goes on with its present files, evicts for new chunks, and
 * tries again every half minute.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tiers/nvme/nvme.h"

#define GROW_AGAIN_NS 30000000000
#define EVICT_AT_ONCE 4096 /* most entries that are evicted for one chunk */
/* eviction for a chunk stops when this many times its need is free, even if in too many pieces */
#define ROOM_AT_MOST  8

void nvme_data_name(uint32_t number, char out[16])
{
	(void)snprintf(out, 16, "data-%05u", number % 100000u);
}

void nvme_place_pack(const struct kvt_extent *runs, uint32_t count, uint64_t place[4])
{
	memset(place, 0, 4 * sizeof(place[0]));
	for (uint32_t i = 0; i < count; i++)
		place[i] = (uint64_t)runs[i].first << 32 | runs[i].count;
}

uint32_t nvme_place_unpack(const uint64_t place[4], struct kvt_extent *runs)
{
	uint32_t n = 0;

	while (n < NVME_MAX_RUNS && (uint32_t)place[n] != 0) {
		runs[n].first = (uint32_t)(place[n] >> 32);
		runs[n].count = (uint32_t)place[n];
		n++;
	}
	return n;
}

/* Opens data file number n and extends it to its full length. */
static enum kvt_status open_file(struct nvme *t, uint32_t n, struct nvme_file *out)
{
	const struct kvt_io_ops *io = t->io->ops;
	struct kvt_io_file_info info;
	enum kvt_status status;
	char name[16];

	nvme_data_name(n, name);
	*out = (struct nvme_file){0};
	status = io->open(t->io, name, KVT_OPEN_CREATE, true, &out->file);
	if (status != KVT_OK)
		return status;
	status = io->info(t->io, out->file, &info);
	if (status == KVT_OK && info.bytes < t->format.file_bytes) {
		out->fresh = true;
		t->commit.folder_dirty = true;
		status = io->reserve(t->io, out->file, t->format.file_bytes);
	}
	if (status == KVT_OK && info.alignment > NVME_PAGE)
		status = KVT_ENOTSUP;
	if (status != KVT_OK) {
		io->close(t->io, out->file);
		/* the file was shorter than a data file, so it holds no chunk yet */
		if (out->fresh)
			(void)io->remove(t->io, name);
		*out = (struct nvme_file){0};
		return status;
	}
	if (info.alignment > t->space.alignment)
		t->space.alignment = info.alignment;
	return KVT_OK;
}

struct found {
	struct nvme *t;
	uint32_t files; /* highest number + 1 */
	uint32_t surplus[64];
	uint32_t surplus_count;
};

static void look(void *self, const char *name)
{
	struct found *f = self;
	unsigned n = 0;
	char again[16];

	if (sscanf(name, "data-%5u", &n) != 1)
		return;
	nvme_data_name(n, again);
	if (strcmp(again, name) != 0)
		return;
	if (n < f->t->space.allowed) {
		if (n + 1 > f->files)
			f->files = n + 1;
	} else if (f->surplus_count < 64) {
		f->surplus[f->surplus_count++] = n;
	}
}

/* Removes files beyond the present capacity. */
static void remove_surplus(struct nvme *t, struct found *f)
{
	do {
		char name[16];

		for (uint32_t i = 0; i < f->surplus_count; i++) {
			nvme_data_name(f->surplus[i], name);
			if (t->io->ops->remove(t->io, name) != KVT_OK)
				return;
		}
		if (f->surplus_count < 64)
			return;
		f->surplus_count = 0;
	} while (t->io->ops->list(t->io, look, f) == KVT_OK);
}

/* If the store's part is now less than its present size, no files are removed here: they are in
 * use. */
void nvme_space_allow(struct nvme *t)
{
	struct nvme_space *s = &t->space;
	uint64_t files = s->max_files;

	if (t->share.stores > 1)
		files = t->share.part / t->format.file_bytes;
	if (files < s->file_count || files == 0)
		files = s->file_count > 0 ? s->file_count : 1;
	pthread_mutex_lock(&t->lock);
	s->allowed = files < s->max_files ? (uint32_t)files : s->max_files;
	pthread_mutex_unlock(&t->lock);
}

enum kvt_status nvme_space_open(struct nvme *t)
{
	struct nvme_space *s = &t->space;
	struct found found = {.t = t};
	uint64_t files = t->capacity / t->format.file_bytes;
	enum kvt_status status;

	if (files == 0)
		files = 1;
	if (files > NVME_MAX_FILES) {
		files = NVME_MAX_FILES;
		kvt_note(t->s, KVT_LOG_WARN,
			"nvme: this store was made for less: it uses %llu GiB; "
			"remove its folder to use more",
			(unsigned long long)(files * t->format.file_bytes >> 30));
	}
	s->max_files = (uint32_t)files;
	nvme_space_allow(t);
	s->units_per_file = (uint32_t)(t->format.file_bytes / NVME_UNIT);
	s->alignment = 1;
	s->files = calloc(s->max_files, sizeof(s->files[0]));
	if (s->files == NULL)
		return KVT_ENOMEM;
	status = t->io->ops->list(t->io, look, &found);
	if (status != KVT_OK)
		return status;
	remove_surplus(t, &found);
	if (found.files == 0)
		found.files = 1;
	while (s->file_count < found.files) {
		status = open_file(t, s->file_count, &s->files[s->file_count]);
		if (status != KVT_OK)
			break;
		s->file_count++;
	}
	if (s->file_count == 0)
		return status == KVT_FULL ? KVT_EIO : status;
	return kvt_extents_create(s->file_count * s->units_per_file, &s->extents);
}

void nvme_space_close(struct nvme *t)
{
	struct nvme_space *s = &t->space;

	for (uint32_t i = 0; i < s->file_count; i++)
		t->io->ops->close(t->io, s->files[i].file);
	free(s->files);
	kvt_extents_destroy(s->extents);
	*s = (struct nvme_space){0};
}

/* Creates one more data file. */
static enum kvt_status grow(struct nvme *t)
{
	struct nvme_space *s = &t->space;
	int64_t now = kvt_now(t->s);
	enum kvt_status status;

	if (s->file_count >= s->allowed || now < s->grow_after_ns)
		return KVT_FULL;
	status = open_file(t, s->file_count, &s->files[s->file_count]);
	if (status == KVT_OK) {
		s->files[s->file_count].fresh = false;
		pthread_mutex_lock(&t->lock);
		status = kvt_extents_grow(s->extents, (s->file_count + 1) * s->units_per_file);
		pthread_mutex_unlock(&t->lock);
		if (status != KVT_OK)
			t->io->ops->close(t->io, s->files[s->file_count].file);
	}
	if (status != KVT_OK) {
		s->grow_after_ns = now + GROW_AGAIN_NS;
		if (!s->full_told)
			kvt_note(t->s, KVT_LOG_WARN,
				"nvme: no further file (%s): goes on with %u of %u",
				t->io->ops->why(t->io), s->file_count, s->max_files);
		s->full_told = true;
		return KVT_FULL;
	}
	s->full_told = false;
	s->file_count++;
	return KVT_OK;
}

static enum kvt_status take(
	struct nvme *t, uint32_t units, struct kvt_extent *runs, uint32_t *count)
{
	enum kvt_status status;

	*count = NVME_MAX_RUNS;
	pthread_mutex_lock(&t->lock);
	status = kvt_extents_take(t->space.extents, units, runs, count);
	pthread_mutex_unlock(&t->lock);
	return status;
}

static uint32_t free_units(struct nvme *t)
{
	uint32_t n;

	pthread_mutex_lock(&t->lock);
	n = kvt_extents_free(t->space.extents);
	pthread_mutex_unlock(&t->lock);
	return n;
}

enum kvt_status nvme_space_take(
	struct nvme *t, uint32_t units, struct kvt_extent *runs, uint32_t *count)
{
	enum kvt_status status = take(t, units, runs, count);

	while (status == KVT_FULL && grow(t) == KVT_OK)
		status = take(t, units, runs, count);
	for (uint32_t i = 0; status == KVT_FULL && i < EVICT_AT_ONCE; i++) {
		if (free_units(t) / ROOM_AT_MOST >= units || !kvt_index_evict(t->index))
			break;
		status = take(t, units, runs, count);
	}
	return status;
}

void nvme_space_give(struct nvme *t, const struct kvt_extent *runs, uint32_t count)
{
	if (count > 0)
		kvt_extents_give(t->space.extents, runs, count);
}

struct nvme_file *nvme_space_find(struct nvme *t, const struct kvt_extent *runs, uint32_t count,
	uint64_t at, uint64_t *offset, uint64_t *together)
{
	uint64_t unit_at = at / NVME_UNIT;

	for (uint32_t i = 0; i < count; i++) {
		if (unit_at < runs[i].count) {
			uint64_t unit = runs[i].first + unit_at;
			uint64_t left = runs[i].count - unit_at;
			uint64_t in_file = unit % t->space.units_per_file;

			if (left > t->space.units_per_file - in_file)
				left = t->space.units_per_file - in_file;
			*offset = in_file * NVME_UNIT + at % NVME_UNIT;
			*together = left * NVME_UNIT - at % NVME_UNIT;
			return &t->space.files[unit / t->space.units_per_file];
		}
		unit_at -= runs[i].count;
	}
	return NULL;
}
