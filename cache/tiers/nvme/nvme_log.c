/*
 * nvme_log.c - records that wait for their commit, and the rewrite of the log.
 *
 * The log grows by two records for every chunk that came and went. When it has four times as many
 * records as chunks (and some), it is rewritten: an ADD for every chunk whose record is durable,
 * into a new file that takes the old one's name. The same happens when a store is opened, so that
 * generations given out by a crashed process are never given out again, and when the old log could
 * not be written or synced: after a failed sync the disk's contents are unknown.
 *
 * The walk is not a snapshot of one moment, and need not be: a chunk that comes or goes meanwhile
 * has a waiting record, which is written to the new log afterwards, and the order of records has no
 * meaning. An erased entry is not live and so not part of the walk; if it is erased right after the
 * walk passed it, its tombstone waits. Records that waited before the walk began are superfluous
 * and dropped, so that records do not pile up while a log cannot be written.
 */
#include <stdlib.h>
#include <string.h>

#include "tiers/nvme/nvme.h"

#define SNAP_BUFFER   (1u << 20)
/* the log is rewritten when it has this many records beyond four times its chunks */
#define LOG_SLACK     16384u
#define RESERVE_BYTES (1u << 20)
#define RETRY_NS      1000000000
#define RETRY_MAX_NS  30000000000

enum kvt_status nvme_records_add(struct nvme_records *r, const struct nvme_record *record)
{
	if (r->count == r->room) {
		size_t room = r->room == 0 ? 64 : r->room * 2;
		uint8_t *bytes = realloc(r->bytes, room * NVME_RECORD);

		if (bytes == NULL)
			return KVT_ENOMEM;
		r->bytes = bytes;
		r->room = room;
	}
	nvme_record_encode(record, r->bytes + r->count++ * NVME_RECORD);
	return KVT_OK;
}

enum kvt_status nvme_log_add(struct nvme *t, const struct nvme_record *record)
{
	return nvme_records_add(&t->log.pending, record);
}

void nvme_log_fill(struct nvme *t, uint32_t entry, struct nvme_record *out)
{
	const struct nvme_side *side = &t->side[entry];
	struct kvt_entry_info info;

	kvt_index_info(t->index, entry, &info);
	*out = (struct nvme_record){
		.type = NVME_ADD,
		.flags = side->flags,
		.header_pages = side->header_pages,
		.generation = side->generation,
		.tenant = info.tenant,
		.bytes = info.bytes,
		.expires_wall_ns = info.expires_wall_ns,
		.ttl_ns = info.ttl_ns,
		.tokens = info.tokens,
		.cost_ns = info.cost_ns,
	};
	if (kvt_index_parent(t->index, entry, &out->parent))
		out->flags |= NVME_HAS_PARENT;
	out->keys[0] = *kvt_index_key(t->index, entry);
	out->run_count = nvme_place_unpack(info.place, out->runs);
}

static uint64_t slack(const struct nvme *t)
{
	return t->max_entries < LOG_SLACK / 2 ? 2 * t->max_entries : LOG_SLACK;
}

bool nvme_log_worn(struct nvme *t)
{
	struct kvt_index_stats stats;

	if (t->log.bad)
		return true;
	if (t->log.count < slack(t))
		return false;
	kvt_index_stats(t->index, &stats);
	return t->log.count > 4 * stats.entries + slack(t);
}

/* --- a new log -------------------------------------------------------------------------------- */

/* Fills the buffer with ADD records of the next entries of the index. */
static void walk(struct nvme *t)
{
	struct nvme_commit *c = &t->commit;
	struct nvme_record record;
	uint32_t entry;

	while (!c->snap.walked && c->snap.filled + NVME_RECORD <= SNAP_BUFFER) {
		if (!kvt_index_next(t->index, &c->snap.cursor, &entry)) {
			c->snap.walked = true;
			break;
		}
		if (t->side[entry].logged) {
			uint8_t *to = c->snap.buffer + c->snap.filled;

			nvme_log_fill(t, entry, &record);
			nvme_record_encode(&record, to);
			nvme_record_stamp(
				to, t->format.store_id, t->log.number + 1, c->snap.count++);
			c->snap.filled += NVME_RECORD;
		}
		kvt_index_release(t->index, entry);
		if (c->snap.cursor == 0)
			c->snap.walked = true;
	}
}

static enum kvt_status open_snap(struct nvme *t)
{
	const struct kvt_io_ops *io = t->io->ops;
	struct nvme_commit *c = &t->commit;
	struct kvt_index_stats stats;
	enum kvt_status status;

	kvt_index_stats(t->index, &stats);
	c->snap.reserved =
		(NVME_PAGE + (stats.entries + slack(t)) * NVME_RECORD + RESERVE_BYTES - 1) /
		RESERVE_BYTES * RESERVE_BYTES;
	status = io->remove(t->io, "log.tmp");
	if (status != KVT_OK && status != KVT_MISS)
		return status;
	status = io->open(t->io, "log.tmp", KVT_OPEN_CREATE, false, &c->snap.file);
	if (status != KVT_OK)
		return status;
	return io->reserve(t->io, c->snap.file, c->snap.reserved);
}

void nvme_snap_begin(struct nvme *t)
{
	struct nvme_commit *c = &t->commit;
	struct nvme_log_head head = {.number = t->log.number + 1};

	memset(&c->snap, 0, sizeof(c->snap));
	c->phase = NVME_SNAP_WRITE;
	c->snap.buffer = malloc(SNAP_BUFFER);
	if (c->snap.buffer == NULL || open_snap(t) != KVT_OK) {
		nvme_snap_end(t, false);
		return;
	}
	pthread_mutex_lock(&t->lock);
	head.generation = t->log.generation;
	/* The walk itself leaves out entries erased or removed until now, so their waiting records
	 * are not needed. */
	t->log.pending.count = 0;
	t->log.lost = false;
	pthread_mutex_unlock(&t->lock);
	nvme_log_head_encode(&head, t->format.store_id, c->snap.buffer);
	c->snap.filled = NVME_PAGE;
	walk(t);
	nvme_snap_step(t);
}

/* Begins the next operation of the rewrite: the write of a buffer, or the sync after the last
 * one. */
void nvme_snap_step(struct nvme *t)
{
	struct nvme_commit *c = &t->commit;
	struct kvt_io_op *op;

	if (c->under_way > 0)
		return;
	op = nvme_op_take(t, &c->actor);
	if (op == NULL)
		return;
	if (c->snap.filled == 0)
		walk(t);
	op->file = c->snap.file;
	if (c->snap.filled > 0) {
		op->kind = KVT_IO_WRITE;
		op->offset = c->snap.offset;
		op->pieces[0] = (struct iovec){c->snap.buffer, c->snap.filled};
		op->piece_count = 1;
	} else {
		op->kind = KVT_IO_SYNC;
		op->piece_count = 0;
		c->phase = NVME_SNAP_SYNC;
	}
	c->under_way = 1;
	nvme_op_begin(t, op);
}

/* Renames the new log to the old one's name. */
static bool take_over(struct nvme *t)
{
	const struct kvt_io_ops *io = t->io->ops;
	struct nvme_commit *c = &t->commit;

	if (io->rename(t->io, "log.tmp", "log") != KVT_OK)
		return false;
	if (t->log.file != NULL)
		io->close(t->io, t->log.file);
	t->log.file = c->snap.file;
	t->log.number++;
	t->log.count = c->snap.count;
	t->log.reserved = c->snap.reserved;
	c->snap.file = NULL;
	/* If the folder's sync fails, a crash may leave either log, so the rewrite has failed. */
	return io->sync_folder(t->io) == KVT_OK;
}

void nvme_snap_end(struct nvme *t, bool ok)
{
	struct nvme_commit *c = &t->commit;

	if (ok)
		ok = take_over(t);
	if (c->snap.file != NULL)
		t->io->ops->close(t->io, c->snap.file);
	free(c->snap.buffer);
	memset(&c->snap, 0, sizeof(c->snap));
	c->phase = NVME_IDLE;
	if (ok) {
		if (t->log.bad)
			kvt_note(t->s, KVT_LOG_INFO, "nvme: the log is good again");
		t->log.bad = false;
		c->attempts = 0;
		return;
	}
	if (!t->log.bad || c->attempts == 0)
		kvt_note(t->s, KVT_LOG_ERROR,
			"nvme: no new log (%s): nothing is stored until there is one",
			t->io->ops->why(t->io));
	t->log.bad = true;
	t->log.retry_ns =
		kvt_now(t->s) + (c->attempts < 5 ? (int64_t)RETRY_NS << c->attempts : RETRY_MAX_NS);
	c->attempts++;
}
