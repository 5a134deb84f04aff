/*
 * nvme_recover.c - opens a store: its format, and its chunks.
 *
 * Opening reads no data. The log lists the chunks; they are sorted by generation, so that of two
 * that claim the same units or the same key the later one stays, and enter the index oldest first.
 * Only a read shows whether a chunk is really there: a chunk whose erase was lost with the power
 * may have been overwritten; then that read is a miss, the chunk leaves, and its next put is
 * stored.
 *
 * A log that is missing or damaged at its beginning means an empty store: losing chunks is legal. A
 * format file of another major version, of another program, or with a wrong checksum means an
 * unknown store: it stays untouched.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "tiers/nvme/nvme.h"
#include "tiers/nvme/nvme_replay.h"

#define GHOST_BYTES_PER_ENTRY 160
#define MAX_GHOST_BYTES       (64u << 20)

#define FILE_LEAST  (1ull << 20)
#define FILE_MOST   (16ull << 30)
#define FILES_USUAL 64
/* number of generations that one log may give out before it is rewritten */
#define PER_OPEN    (1ull << 32)

/* --- format ----------------------------------------------------------------------------------- */

/* Writes a small file so that it exists completely or not at all. */
static enum kvt_status write_whole(
	struct kvt_io *io, const char *temp, const char *name, const void *bytes, size_t len)
{
	struct kvt_io_op op = {.kind = KVT_IO_WRITE, .piece_count = 1};
	enum kvt_status status;

	status = io->ops->remove(io, temp);
	if (status != KVT_OK && status != KVT_MISS)
		return status;
	status = io->ops->open(io, temp, KVT_OPEN_CREATE, false, &op.file);
	if (status != KVT_OK)
		return status;
	op.pieces[0] = (struct iovec){(void *)(uintptr_t)bytes, len};
	if (nvme_io_now(io, &op) != (int64_t)len)
		status = KVT_EIO;
	op.kind = KVT_IO_SYNC;
	op.piece_count = 0;
	if (status == KVT_OK && nvme_io_now(io, &op) != 0)
		status = KVT_EIO;
	io->ops->close(io, op.file);
	if (status == KVT_OK)
		status = io->ops->rename(io, temp, name);
	return status == KVT_OK ? io->ops->sync_folder(io) : status;
}

static uint64_t file_bytes_for(uint64_t capacity)
{
	uint64_t bytes = FILE_LEAST;

	while (bytes < FILE_MOST && bytes * 2 <= capacity / FILES_USUAL)
		bytes *= 2;
	return bytes;
}

static enum kvt_status make_store(struct nvme *t, const struct kvt_config *config)
{
	struct nvme_format *f = &t->format;
	uint8_t block[NVME_PAGE];
	enum kvt_status status;

	*f = (struct nvme_format){
		.major = NVME_MAJOR,
		.minor = NVME_MINOR,
		.fingerprint = config->fingerprint,
		.rank = config->rank,
		.file_bytes = file_bytes_for(t->capacity),
	};
	if (getrandom(f->store_id, sizeof(f->store_id), 0) != (ssize_t)sizeof(f->store_id))
		return KVT_EIO;
	status = t->io->ops->remove(t->io, "log");
	if (status != KVT_OK && status != KVT_MISS)
		return status;
	nvme_format_encode(f, block);
	return write_whole(t->io, "format.tmp", "format", block, sizeof(block));
}

static enum kvt_status read_format(
	struct nvme *t, const struct kvt_config *config, const char *folder, char *why)
{
	uint8_t *bytes = NULL;
	size_t len = 0;
	enum kvt_status status = nvme_file_read(t->io, "format", 1 << 20, &bytes, &len);

	if (status == KVT_MISS)
		return make_store(t, config);
	if (status == KVT_OK)
		status = nvme_format_decode(bytes, len, &t->format);
	free(bytes);
	if (status == KVT_OK && (memcmp(&t->format.fingerprint, &config->fingerprint,
					 sizeof(config->fingerprint)) != 0 ||
					t->format.rank != config->rank))
		status = KVT_EFORMAT;
	if (status == KVT_EFORMAT || status == KVT_ECORRUPT) {
		(void)snprintf(why, KVT_REASON_BYTES, "%s; for an empty store: rm -r -- '%.100s'",
			status == KVT_EFORMAT ? "another format" : "format file damaged", folder);
		kvt_note(t->s, KVT_LOG_ERROR,
			"nvme: not a store that this version can read, left untouched; to start "
			"with an empty store: rm -r -- '%s'",
			folder);
		return KVT_EFORMAT;
	}
	return status;
}

/* --- into the index --------------------------------------------------------------------------- */

/* Marks the units of a chunk as used: all of them, or none if one is in use. */
static bool mark(struct nvme *t, const struct nvme_record *r)
{
	uint64_t units = (uint64_t)t->space.file_count * t->space.units_per_file;

	for (uint32_t i = 0; i < r->run_count; i++) {
		const struct kvt_extent run = r->runs[i];
		uint32_t first = run.first / t->space.units_per_file;
		uint64_t end = (uint64_t)run.first + run.count;
		bool good = end <= units;

		for (uint64_t f = first; good && f * t->space.units_per_file < end; f++)
			good = !t->space.files[f].fresh;
		if (!good || kvt_extents_mark(t->space.extents, run) != KVT_OK) {
			nvme_space_give(t, r->runs, i);
			return false;
		}
	}
	return true;
}

/* Returns when a chunk expires, at most its TTL from now: so a wall clock that was set back since
 * the chunk's put does not make the chunk live longer. */
static int64_t expires_of(const struct nvme *t, const struct nvme_record *r)
{
	int64_t wall = kvt_steady_wall(t->s);

	if (r->ttl_ns == 0 || r->ttl_ns >= (uint64_t)(INT64_MAX - wall) ||
		r->expires_wall_ns <= wall + (int64_t)r->ttl_ns)
		return r->expires_wall_ns;
	return wall + (int64_t)r->ttl_ns;
}

static enum kvt_status insert(struct nvme *t, const struct nvme_record *r)
{
	const struct kvt_key *parent = (r->flags & NVME_HAS_PARENT) != 0 ? &r->parent : NULL;
	struct kvt_entry_info info = {
		.bytes = r->bytes,
		.tenant = r->tenant,
		.expires_wall_ns = expires_of(t, r),
		.ttl_ns = r->ttl_ns,
		.tokens = r->tokens,
		.cost_ns = r->cost_ns,
	};
	enum kvt_status status;
	uint32_t entry;

	for (uint32_t i = 0; i < r->run_count; i++)
		info.charge += (uint64_t)r->runs[i].count * NVME_UNIT;
	nvme_place_pack(r->runs, r->run_count, info.place);
	status = kvt_index_insert(t->index, &r->keys[0], parent, &info, &entry);
	if (status == KVT_EXISTS) { /* the index has an older chunk of the same key */
		(void)kvt_index_erase(t->index, &r->keys[0], 1);
		status = kvt_index_insert(t->index, &r->keys[0], parent, &info, &entry);
	}
	if (status != KVT_OK) {
		nvme_space_give(t, r->runs, r->run_count);
		return status;
	}
	t->side[entry] = (struct nvme_side){
		.generation = r->generation,
		.header_pages = r->header_pages,
		.flags = r->flags & (NVME_HAS_NAMES | NVME_HAS_PIECES),
		.logged = true,
	};
	status = kvt_index_publish(t->index, entry);
	kvt_index_release(t->index, entry);
	return status;
}

/* Goes through the ADD records from the newest on, so that of two chunks that claim the same units
 * the later one has them; then inserts them into the index from the oldest on, since the index
 * takes that order for the order of use. */
static enum kvt_status apply(struct nvme *t, struct nvme_replay *p)
{
	int64_t wall = kvt_steady_wall(t->s);
	bool *kept = calloc(p->add_count + 1, sizeof(*kept));
	struct nvme_record r;

	if (kept == NULL)
		return KVT_ENOMEM;
	for (uint64_t i = p->add_count; i-- > 0;)
		kept[i] = nvme_replay_add(p, i, wall, &r) && mark(t, &r);
	for (uint64_t i = 0; i < p->add_count; i++) {
		if (kept[i] && nvme_replay_add(p, i, wall, &r))
			(void)insert(t, &r); /* without room for it, the chunk is left out */
	}
	free(kept);
	return KVT_OK;
}

static enum kvt_status read_log(struct nvme *t)
{
	struct nvme_replay p;
	enum kvt_status status = nvme_replay_open(&p, t->io, t->format.store_id);

	if (status == KVT_OK)
		status = apply(t, &p);
	if (status == KVT_OK && p.damaged > 0)
		kvt_note(t->s, KVT_LOG_WARN, "nvme: %llu records of the log are damaged",
			(unsigned long long)p.damaged);
	if (status == KVT_ECORRUPT)
		kvt_note(t->s, KVT_LOG_WARN, "nvme: the log is damaged: begins empty");
	if (status == KVT_MISS || status == KVT_ECORRUPT) {
		p.head.number = p.last = (uint64_t)kvt_wall(t->s);
		status = KVT_OK;
	}
	t->log.number = p.head.number;
	t->log.generation = p.last + PER_OPEN;
	t->opened_generation = t->log.generation;
	nvme_replay_close(&p);
	return status;
}

/* Returns how much memory the index may use for names of evicted chunks. The default policy judges
 * chunks by how often such names are asked for again, and works best with several times as many
 * names as chunks. */
static uint64_t ghost_bytes(const struct nvme *t)
{
	uint64_t bytes = (uint64_t)t->max_entries * GHOST_BYTES_PER_ENTRY;

	return bytes < MAX_GHOST_BYTES ? bytes : MAX_GHOST_BYTES;
}

static enum kvt_status make_index(struct nvme *t, const struct kvt_config *config)
{
	struct kvt_index_options options = {
		.max_entries = t->max_entries,
		.capacity = (uint64_t)t->space.max_files * t->format.file_bytes,
		.tenant_limit = config->tenant_nvme_bytes,
		.policy = config->nvme_policy != NULL ? config->nvme_policy : "default",
		.max_ghost_bytes = ghost_bytes(t),
		.gone = nvme_gone,
		.self = t,
	};

	t->side = calloc(t->max_entries, sizeof(t->side[0]));
	if (t->side == NULL)
		return KVT_ENOMEM;
	return kvt_index_create(&options, t->s, &t->index);
}

/* Begins a new log, so that no generation of the old one is given out twice. */
static void first_log(struct nvme *t)
{
	nvme_snap_begin(t);
	while (t->commit.phase != NVME_IDLE) {
		nvme_submit_batch(t);
		(void)nvme_reap(t, 100000000);
		(void)nvme_commit_step(t, kvt_now(t->s));
	}
}

enum kvt_status nvme_recover(
	struct nvme *t, const struct kvt_config *config, const char *folder, char *why)
{
	int64_t begun = kvt_now(t->s);
	struct kvt_index_stats stats;
	enum kvt_status status = read_format(t, config, folder, why);

	if (status == KVT_OK)
		status = nvme_space_open(t);
	if (status == KVT_OK)
		status = nvme_seal_recover(t);
	if (status == KVT_OK)
		status = make_index(t, config);
	if (status == KVT_OK)
		status = read_log(t);
	if (status != KVT_OK) {
		if (why[0] == '\0')
			(void)snprintf(why, KVT_REASON_BYTES, "%s: %.100s", kvt_status_text(status),
				t->io->ops->why(t->io));
		return status;
	}
	first_log(t);
	kvt_index_stats(t->index, &stats);
	kvt_note(t->s, KVT_LOG_INFO, "nvme: %llu chunks of %llu bytes found in %lld ms",
		(unsigned long long)stats.entries, (unsigned long long)stats.payload,
		(long long)((kvt_now(t->s) - begun) / 1000000));
	return KVT_OK;
}
