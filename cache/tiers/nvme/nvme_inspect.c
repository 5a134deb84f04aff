/*
 * nvme_inspect.c - reads a store's log and chunks.
 *
 * The owner records that a chunk has gone some time after it gave the chunk's room to another one.
 * So a chunk with a wrong checksum is looked up again in a fresh copy of the log, and if it is
 * still there, once more after the caller's patience; only then it counts as damaged.
 */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "io/machine.h"
#include "tiers/nvme/nvme.h"
#include "tiers/nvme/nvme_inspect.h"
#include "tiers/nvme/nvme_replay.h"

#define DEPTH 4

struct kvt_inspect {
	const struct kvt_surroundings *s;
	struct kvt_io *io;
	struct kvt_sealer *sealer; /* NULL: without keys */
	struct nvme_format format;
	struct nvme_replay replay;
	uint64_t *chunks; /* numbers of those ADD records whose chunks are there */
	size_t count;
	struct kvt_file **files; /* entries are NULL for files that are not opened, or missing */
	uint32_t file_count;
};

static void count_file(void *self, const char *name)
{
	struct kvt_inspect *x = self;
	unsigned n;
	char again[16];

	if (sscanf(name, "data-%5u", &n) != 1)
		return;
	nvme_data_name(n, again);
	if (strcmp(again, name) == 0 && n < NVME_MAX_FILES && n + 1 > x->file_count)
		x->file_count = n + 1;
}

static enum kvt_status read_format(struct kvt_inspect *x, const char *folder, char *why)
{
	uint8_t *bytes = NULL;
	size_t len = 0;
	enum kvt_status status = nvme_file_read(x->io, "format", 1 << 20, &bytes, &len);

	if (status == KVT_OK)
		status = nvme_format_decode(bytes, len, &x->format);
	free(bytes);
	if (status == KVT_MISS)
		(void)snprintf(why, KVT_REASON_BYTES, "no store in %.120s", folder);
	else if (status == KVT_EFORMAT)
		(void)snprintf(why, KVT_REASON_BYTES,
			"another format; to remove it: rm -r -- '%.100s'", folder);
	else if (status == KVT_ECORRUPT)
		(void)snprintf(why, KVT_REASON_BYTES, "the format file is damaged");
	return status;
}

/* Goes through the records from the newest on, so that a chunk whose room has another owner by now
 * is left out. */
static enum kvt_status list_chunks(struct kvt_inspect *x)
{
	uint64_t units = (uint64_t)x->file_count * (x->format.file_bytes / NVME_UNIT);
	int64_t wall = kvt_wall(x->s);
	struct kvt_extents *space = NULL;
	struct nvme_record r;
	enum kvt_status status;

	x->chunks = calloc(x->replay.add_count + 1, sizeof(x->chunks[0]));
	if (x->chunks == NULL || units > UINT32_MAX)
		return KVT_ENOMEM;
	status = kvt_extents_create((uint32_t)units, &space);
	for (uint64_t i = x->replay.add_count; status == KVT_OK && i-- > 0;) {
		bool free_still = nvme_replay_add(&x->replay, i, wall, &r);

		for (uint32_t k = 0; free_still && k < r.run_count; k++) {
			free_still = kvt_extents_mark(space, r.runs[k]) == KVT_OK;
			if (!free_still)
				kvt_extents_give(space, r.runs, k);
		}
		if (free_still)
			x->chunks[x->count++] = i;
	}
	kvt_extents_destroy(space);
	for (size_t i = 0; i < x->count / 2; i++) {
		uint64_t swap = x->chunks[i];

		x->chunks[i] = x->chunks[x->count - 1 - i];
		x->chunks[x->count - 1 - i] = swap;
	}
	return status;
}

enum kvt_status kvt_inspect_open(const char *folder, const struct kvt_io_layer *layer,
	const struct kvt_surroundings *s, char *why, struct kvt_inspect **out)
{
	struct kvt_io_options options = {.mode = "auto", .depth = DEPTH, .direct = true};
	struct kvt_io_layer machine = kvt_io_machine();
	struct kvt_inspect *x;
	struct stat st;
	enum kvt_status status;

	why[0] = '\0';
	/* The machine's own I/O layer would create the folder. */
	if (layer == NULL && (stat(folder, &st) != 0 || !S_ISDIR(st.st_mode))) {
		(void)snprintf(why, KVT_REASON_BYTES, "no such folder: %.120s", folder);
		return KVT_MISS;
	}
	if (layer == NULL)
		layer = &machine;
	x = calloc(1, sizeof(*x));
	if (x == NULL)
		return KVT_ENOMEM;
	x->s = s;
	status = layer->create(layer->self, folder, &options, &x->io);
	if (status == KVT_OK)
		status = read_format(x, folder, why);
	if (status == KVT_OK)
		status = x->io->ops->list(x->io, count_file, x);
	if (status == KVT_OK)
		status = nvme_replay_open(&x->replay, x->io, x->format.store_id);
	if (status == KVT_MISS && why[0] == '\0') {
		(void)snprintf(why, KVT_REASON_BYTES, "the store has no log");
		status = KVT_ECORRUPT;
	}
	x->files = calloc(x->file_count + 1, sizeof(x->files[0]));
	if (status == KVT_OK)
		status = x->files == NULL ? KVT_ENOMEM : list_chunks(x);
	if (status != KVT_OK) {
		if (why[0] == '\0')
			(void)snprintf(why, KVT_REASON_BYTES, "%s", kvt_status_text(status));
		kvt_inspect_close(x);
		return status;
	}
	*out = x;
	return KVT_OK;
}

void kvt_inspect_close(struct kvt_inspect *x)
{
	if (x == NULL)
		return;
	for (uint32_t i = 0; x->files != NULL && i < x->file_count; i++) {
		if (x->files[i] != NULL)
			x->io->ops->close(x->io, x->files[i]);
	}
	nvme_replay_close(&x->replay);
	kvt_sealer_destroy(x->sealer);
	free(x->files);
	free(x->chunks);
	if (x->io != NULL)
		x->io->ops->destroy(x->io);
	free(x);
}

enum kvt_status kvt_inspect_keys(struct kvt_inspect *x, const char *keys_path, char *why)
{
	char *report = NULL;
	enum kvt_status status = kvt_sealer_create(keys_path, x->s, &x->sealer, &report);

	if (status != KVT_OK)
		(void)snprintf(why, KVT_REASON_BYTES, "%.150s",
			report != NULL ? report : kvt_status_text(status));
	free(report);
	if (status == KVT_OK)
		status = nvme_seal_take_all(x->io, x->sealer);
	return status == KVT_MISS ? KVT_OK : status;
}

static void record_of(const struct kvt_inspect *x, size_t i, struct nvme_record *out)
{
	*out = (struct nvme_record){0};
	(void)nvme_replay_add(&x->replay, x->chunks[i], INT64_MIN, out);
}

static int by_tenant(const void *a, const void *b)
{
	return memcmp(a, b, sizeof(struct kvt_tenant));
}

static uint64_t count_tenants(const struct kvt_inspect *x)
{
	struct kvt_tenant *all = calloc(x->count + 1, sizeof(*all));
	struct nvme_record r;
	uint64_t n = 0;

	if (all == NULL)
		return 0;
	for (size_t i = 0; i < x->count; i++) {
		record_of(x, i, &r);
		all[i] = r.tenant;
	}
	qsort(all, x->count, sizeof(*all), by_tenant);
	for (size_t i = 0; i < x->count; i++)
		n += i == 0 || by_tenant(&all[i], &all[i - 1]) != 0;
	free(all);
	return n;
}

static uint64_t units_of(const struct nvme_record *r)
{
	uint64_t units = 0;

	for (uint32_t i = 0; i < r->run_count; i++)
		units += r->runs[i].count;
	return units;
}

void kvt_inspect_store(const struct kvt_inspect *x, struct kvt_inspect_store *out)
{
	struct nvme_record r;

	*out = (struct kvt_inspect_store){
		.major = x->format.major,
		.minor = x->format.minor,
		.fingerprint = x->format.fingerprint,
		.rank = x->format.rank,
		.file_bytes = x->format.file_bytes,
		.data_files = x->file_count,
		.data_bytes = x->file_count * x->format.file_bytes,
		.log_bytes = NVME_PAGE + x->replay.valid * NVME_RECORD,
		.log_records = x->replay.valid,
		.log_damaged = x->replay.damaged,
		.chunks = x->count,
		.tenants = count_tenants(x),
		.piece_bytes = NVME_PIECE_BYTES,
	};
	memcpy(out->store_id, x->format.store_id, sizeof(out->store_id));
	for (size_t i = 0; i < x->count; i++) {
		record_of(x, i, &r);
		out->payload_bytes += r.bytes;
		out->disk_bytes += units_of(&r) * NVME_UNIT;
	}
}

size_t kvt_inspect_count(const struct kvt_inspect *x)
{
	return x->count;
}

void kvt_inspect_chunk(const struct kvt_inspect *x, size_t i, struct kvt_inspect_chunk *out)
{
	struct nvme_record r;

	record_of(x, i, &r);
	*out = (struct kvt_inspect_chunk){
		.key = r.keys[0],
		.parent = r.parent,
		.has_parent = (r.flags & NVME_HAS_PARENT) != 0,
		.tenant = r.tenant,
		.generation = r.generation,
		.bytes = r.bytes,
		.disk_bytes = units_of(&r) * NVME_UNIT,
		.tokens = r.tokens,
		.extents = r.run_count,
		.expires_wall_ns = r.expires_wall_ns,
		.ttl_ns = r.ttl_ns,
		.has_pieces = (r.flags & NVME_HAS_PIECES) != 0,
	};
}

/* --- checking
 * ---------------------------------------------------------------------------------- */

/* Reads `bytes` bytes, whole pages, of one file. */
static enum kvt_status read_piece(
	struct kvt_inspect *x, uint32_t file, uint64_t offset, uint8_t *to, uint64_t bytes)
{
	struct kvt_io_op op = {.kind = KVT_IO_READ, .piece_count = 1};
	char name[16];
	enum kvt_status status;

	if (file >= x->file_count)
		return KVT_ECORRUPT;
	nvme_data_name(file, name);
	if (x->files[file] == NULL) {
		status = x->io->ops->open(x->io, name, KVT_OPEN_READ, true, &x->files[file]);
		if (status != KVT_OK)
			return status == KVT_MISS ? KVT_ECORRUPT : status;
	}
	op.file = x->files[file];
	for (uint64_t at = 0; at < bytes;) {
		uint64_t n = bytes - at < NVME_OP_BYTES ? bytes - at : NVME_OP_BYTES;

		op.offset = offset + at;
		op.pieces[0] = (struct iovec){to + at, n};
		if (nvme_io_now(x->io, &op) != (int64_t)n)
			return KVT_EIO;
		at += n;
	}
	return KVT_OK;
}

/* Reads a chunk's header and payload, one after the other. */
static enum kvt_status read_chunk(
	struct kvt_inspect *x, const struct nvme_record *r, uint8_t *to, uint64_t bytes)
{
	uint64_t per_file = x->format.file_bytes / NVME_UNIT;
	enum kvt_status status = KVT_OK;
	uint64_t at = 0;

	for (uint32_t i = 0; i < r->run_count && status == KVT_OK; i++) {
		uint64_t unit = r->runs[i].first;
		uint64_t end = unit + r->runs[i].count;

		while (unit < end && at < bytes && status == KVT_OK) {
			uint64_t next = (unit / per_file + 1) * per_file;
			uint64_t n;

			if (next > end)
				next = end;
			n = (next - unit) * NVME_UNIT;
			if (n > bytes - at)
				n = bytes - at;
			status = read_piece(x, (uint32_t)(unit / per_file),
				unit % per_file * NVME_UNIT, to + at, n);
			at += n;
			unit = next;
		}
	}
	return status;
}

/* A tenant may have got its key after the file of keys was read, so the file is read again. */
static enum kvt_status check_sealed(
	struct kvt_inspect *x, const struct nvme_chunk *chunk, uint8_t *payload)
{
	enum kvt_status status;

	if (x->sealer == NULL)
		return KVT_ENOTSUP;
	status = nvme_seal_prove(x->sealer, x->format.store_id, chunk, payload);
	if (status == KVT_MISS && nvme_seal_take_all(x->io, x->sealer) == KVT_OK)
		status = nvme_seal_prove(x->sealer, x->format.store_id, chunk, payload);
	return status == KVT_MISS ? KVT_ENOTSUP : status;
}

/* Checks a plain payload by its pieces, and as a whole: only the latter shows pieces that the
 * writer stored in the wrong order. */
static enum kvt_status check_plain(
	const struct nvme_chunk *chunk, uint8_t *payload, struct kvt_inspect_damage *damage)
{
	const struct kvt_segment whole = {.base = payload, .bytes = chunk->bytes};
	struct kvt_checksum sum;

	damage->pieces = chunk->piece_count > 0 ? chunk->piece_count : 1;
	for (uint32_t i = 0; i < chunk->piece_count; i++) {
		uint64_t from = (uint64_t)i * NVME_PIECE_BYTES, rest = chunk->bytes - from;
		const struct kvt_segment piece = {.base = payload + from,
			.bytes = rest < NVME_PIECE_BYTES ? rest : NVME_PIECE_BYTES};
		struct kvt_checksum right = nvme_piece_get(chunk, i);

		kvt_checksum_segments(&piece, 1, piece.bytes, &sum);
		if (!kvt_checksum_equal(&sum, &right) && damage->bad++ == 0)
			damage->first = i;
	}
	if (damage->bad > 0)
		return KVT_ECORRUPT;
	if (kvt_checksum_holds(&whole, 1, chunk->bytes, &chunk->checksum))
		return KVT_OK;
	/* the payload is a single piece, and that piece is damaged */
	damage->bad = chunk->piece_count == 0;
	return KVT_ECORRUPT;
}

static bool is_of(
	const struct kvt_inspect *x, const struct nvme_record *r, const struct nvme_chunk *chunk)
{
	return chunk->header_bytes == r->header_pages * NVME_PAGE && chunk->bytes == r->bytes &&
	       chunk->generation == r->generation &&
	       memcmp(&chunk->key, &r->keys[0], sizeof(chunk->key)) == 0 &&
	       memcmp(&chunk->fingerprint, &x->format.fingerprint, sizeof(chunk->fingerprint)) == 0;
}

static enum kvt_status check(
	struct kvt_inspect *x, const struct nvme_record *r, struct kvt_inspect_damage *damage)
{
	uint32_t head = r->header_pages * NVME_PAGE;
	uint64_t total = head + (r->bytes + NVME_PAGE - 1) / NVME_PAGE * NVME_PAGE;
	struct nvme_chunk chunk;
	enum kvt_status status;
	void *p = NULL;

	*damage = (struct kvt_inspect_damage){0};
	if (posix_memalign(&p, NVME_PAGE, total) != 0)
		return KVT_ENOMEM;
	status = read_chunk(x, r, p, total);
	if (status == KVT_OK && (nvme_chunk_decode(p, head, x->format.store_id, &chunk) != KVT_OK ||
					!is_of(x, r, &chunk))) {
		damage->header = true;
		status = KVT_ECORRUPT;
	} else if (status == KVT_OK && (chunk.flags & NVME_CHUNK_SEALED) != 0) {
		status = check_sealed(x, &chunk, (uint8_t *)p + head);
		damage->pieces = damage->bad = 1;
	} else if (status == KVT_OK) {
		status = check_plain(&chunk, (uint8_t *)p + head, damage);
	}
	free(p);
	return status;
}

/* Reads the log again, and returns whether the chunk of this generation is still listed there. */
static bool still_there(struct kvt_inspect *x, uint64_t generation)
{
	struct nvme_replay now;
	bool there = nvme_replay_open(&now, x->io, x->format.store_id) == KVT_OK &&
		     nvme_replay_has(&now, generation, kvt_wall(x->s));

	nvme_replay_close(&now);
	return there;
}

enum kvt_status kvt_inspect_verify(struct kvt_inspect *x, size_t i, uint64_t patience_ns,
	struct kvt_inspect_damage *damage)
{
	struct kvt_inspect_damage unwanted;
	struct timespec pause = {
		.tv_sec = (time_t)(patience_ns / 1000000000),
		.tv_nsec = (long)(patience_ns % 1000000000),
	};
	struct nvme_record r;
	enum kvt_status status;

	record_of(x, i, &r);
	status = check(x, &r, damage != NULL ? damage : &unwanted);
	if (status != KVT_ECORRUPT)
		return status;
	if (!still_there(x, r.generation))
		return KVT_MISS;
	if (patience_ns > 0) {
		(void)nanosleep(&pause, NULL);
		if (!still_there(x, r.generation))
			return KVT_MISS;
	}
	return KVT_ECORRUPT;
}

/* --- list of stores --------------------------------------------------------------------------- */

static bool is_hex(const char *name, size_t len)
{
	return strlen(name) == len && strspn(name, "0123456789abcdef") == len;
}

static void each_rank(const char *folder, void (*each)(void *self, const char *folder), void *self)
{
	DIR *d = opendir(folder);
	struct dirent *e;
	char path[4096];

	while (d != NULL && (e = readdir(d)) != NULL) {
		size_t len = strlen(e->d_name);

		if (len == 0 || len > 10 || strspn(e->d_name, "0123456789") != len)
			continue;
		if ((size_t)snprintf(path, sizeof(path), "%s/%s", folder, e->d_name) < sizeof(path))
			each(self, path);
	}
	if (d != NULL)
		(void)closedir(d);
}

enum kvt_status kvt_inspect_stores(
	const char *nvme_path, void (*each)(void *self, const char *folder), void *self)
{
	DIR *d = opendir(nvme_path);
	struct dirent *e;
	char path[4096];

	if (d == NULL)
		return errno == ENOENT ? KVT_MISS : KVT_EIO;
	while ((e = readdir(d)) != NULL) {
		if (!is_hex(e->d_name, 2 * sizeof(struct kvt_fingerprint)))
			continue;
		if ((size_t)snprintf(path, sizeof(path), "%s/%s", nvme_path, e->d_name) <
			sizeof(path))
			each_rank(path, each, self);
	}
	(void)closedir(d);
	return KVT_OK;
}
