/*
 * nvme_commit.c - group commit: many chunks, one sync of their files, one write and one sync of the
 * log.
 *
 *   idle -> (tenants' keys) -> data sync -> log write -> log sync -> idle
 *   idle -> new log's writes -> its sync, rename -> idle
 *
 * A commit begins when nvme_sync_bytes were written, when nvme_sync_ns have passed since the oldest
 * of them, at a flush, or a tenth of that time after the write of a chunk that is to be announced;
 * so a crash loses at most the chunks that these two settings allow, and an event is late by at
 * most that tenth. A chunk that left before its commit gets no record.
 *
 * If data cannot be synced, the commit drops the chunks of its group, and all chunks written or
 * begun during the sync: pages of a failed sync may be marked clean, and a second sync would
 * succeed without them. If the log cannot be synced, it is rewritten as a whole.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tiers/nvme/nvme.h"

#define RESERVE_STEP (1u << 20)

static void commit_done(struct nvme *t, struct nvme_actor *actor, struct kvt_io_op *op);

void nvme_commit_init(struct nvme *t)
{
	t->commit.actor.done = commit_done;
	t->commit.stored_end = &t->commit.stored;
}

void nvme_commit_stored(struct nvme *t, struct nvme_stored *s)
{
	struct nvme_commit *c = &t->commit;

	if (c->stored == NULL)
		c->stored_ns = kvt_now(t->s);
	s->next = NULL;
	*c->stored_end = s;
	c->stored_end = &s->next;
	c->stored_bytes += s->bytes;
	if (s->request != NULL)
		c->announces++;
}

static size_t pending(struct nvme *t)
{
	size_t n;

	pthread_mutex_lock(&t->lock);
	n = t->log.pending.count;
	pthread_mutex_unlock(&t->lock);
	return n;
}

bool nvme_commit_quiet(struct nvme *t)
{
	struct nvme_commit *c = &t->commit;

	return c->phase == NVME_IDLE && c->stored == NULL && c->flushes == NULL &&
	       pending(t) == 0 && !nvme_seal_waiting(t);
}

int64_t nvme_commit_due(struct nvme *t, int64_t now)
{
	struct nvme_commit *c = &t->commit;
	int64_t due = INT64_MAX;

	if (t->log.bad)
		return c->flushes != NULL ? now : t->log.retry_ns;
	if (c->wanted || c->flushes != NULL || c->stored_bytes >= t->sync_bytes)
		return now;
	if (c->stored != NULL)
		due = c->stored_ns + (c->announces > 0 ? t->sync_ns / 10 : t->sync_ns);
	if (pending(t) > 0) {
		if (c->pending_ns == 0)
			c->pending_ns = now;
		if (c->pending_ns + t->sync_ns < due)
			due = c->pending_ns + t->sync_ns;
	}
	return due;
}

/* --- the end of a commit ---------------------------------------------------------------------- */

static void end_flushes(struct kvt_tier_request *list, enum kvt_status status)
{
	while (list != NULL) {
		struct kvt_tier_request *r = list;

		list = r->next;
		nvme_finish(r, status);
	}
}

static bool is_live(struct nvme *t, uint32_t entry)
{
	uint32_t other;
	bool live;

	if (kvt_index_hold(t->index, kvt_index_key(t->index, entry), false, &other) != KVT_OK)
		return false;
	live = other == entry;
	kvt_index_release(t->index, other);
	return live;
}

/* Releases chunks: their records are durable, or never will be. */
static void end_chunks(struct nvme *t, struct nvme_stored **list, enum kvt_status status)
{
	while (*list != NULL) {
		struct nvme_stored *s = *list;
		enum kvt_status mine = status;

		*list = s->next;
		if (mine != KVT_OK)
			kvt_index_drop(t->index, s->entry);
		else if (!s->add)
			mine = KVT_ECANCELED;
		if (s->request != NULL) {
			const struct kvt_item *item = s->request->item;

			if (mine == KVT_OK && item != NULL && item->blocks != NULL)
				nvme_announce_stored(t, s->entry, item->blocks);
			nvme_finish(s->request, mine);
		}
		kvt_index_release(t->index, s->entry);
		free(s);
	}
}

static void end_group(struct nvme *t, enum kvt_status status)
{
	end_chunks(t, &t->commit.group, status);
}

/* Takes the chunks of the next commit out of its list. */
static struct nvme_stored *take_stored(struct nvme_commit *c)
{
	struct nvme_stored *list = c->stored;

	c->stored = NULL;
	c->stored_end = &c->stored;
	c->stored_bytes = 0;
	c->announces = 0;
	return list;
}

static void end_commit(struct nvme *t, enum kvt_status status)
{
	struct nvme_commit *c = &t->commit;
	struct kvt_tier_request *flushing = c->flushing;

	c->flushing = NULL;
	c->phase = NVME_IDLE;
	t->log.writing.count = 0;
	end_group(t, status);
	end_flushes(flushing, c->failed || c->keys_failed ? KVT_EIO : status);
}

/* Handles a doubtful log: it is rewritten, without this group. */
static void log_failed(struct nvme *t)
{
	t->log.bad = true;
	t->log.retry_ns = kvt_now(t->s);
	end_commit(t, KVT_EIO);
}

/* --- records ---------------------------------------------------------------------------------- */

/* Writes tombstones twice, in two blocks of the disk. */
static enum kvt_status repeat_tombstones(struct nvme_records *w, size_t n)
{
	const struct nvme_record none = {.type = NVME_NONE};
	const size_t per_page = NVME_PAGE / NVME_RECORD;
	enum kvt_status status = KVT_OK;
	bool any = false;

	for (size_t i = 0; i < n && status == KVT_OK; i++) {
		if (!nvme_record_is_tombstone(w->bytes + i * NVME_RECORD))
			continue;
		for (size_t k = 0; !any && k < per_page && status == KVT_OK; k++)
			status = nvme_records_add(w, &none);
		any = true;
		if (status == KVT_OK)
			status = nvme_records_add(w, &none);
		if (status == KVT_OK)
			memcpy(w->bytes + (w->count - 1) * NVME_RECORD, w->bytes + i * NVME_RECORD,
				NVME_RECORD);
	}
	return status;
}

/* Takes the waiting records, adds those of the group, and gives each record its place. */
static enum kvt_status collect(struct nvme *t)
{
	struct nvme_records *w = &t->log.writing;
	struct nvme_records empty = *w;
	struct nvme_record record;
	enum kvt_status status;
	size_t waited;

	pthread_mutex_lock(&t->lock);
	*w = t->log.pending;
	t->log.pending = empty;
	t->log.pending.count = 0;
	status = t->log.lost ? KVT_ENOMEM : KVT_OK;
	pthread_mutex_unlock(&t->lock);
	t->commit.pending_ns = 0;
	waited = w->count;
	for (struct nvme_stored *s = t->commit.group; s != NULL && status == KVT_OK; s = s->next) {
		s->add = is_live(t, s->entry);
		if (!s->add)
			continue;
		nvme_log_fill(t, s->entry, &record);
		status = nvme_records_add(w, &record);
	}
	if (status == KVT_OK)
		status = repeat_tombstones(w, waited);
	for (struct nvme_stored *s = t->commit.group; s != NULL && status == KVT_OK; s = s->next)
		t->side[s->entry].logged = s->add;
	for (size_t i = 0; i < w->count; i++)
		nvme_record_stamp(w->bytes + i * NVME_RECORD, t->format.store_id, t->log.number,
			t->log.count + i);
	return status;
}

/* Begins the rest of the write, or the sync. */
static void log_step(struct nvme *t)
{
	struct nvme_commit *c = &t->commit;
	struct nvme_records *w = &t->log.writing;
	uint64_t bytes = (uint64_t)w->count * NVME_RECORD;
	struct kvt_io_op *op;

	if (c->under_way > 0)
		return;
	op = nvme_op_take(t, &c->actor);
	if (op == NULL)
		return;
	op->file = t->log.file;
	op->piece_count = 0;
	if (c->done_bytes < bytes) {
		op->kind = KVT_IO_WRITE;
		op->offset = NVME_PAGE + t->log.count * NVME_RECORD + c->done_bytes;
		op->pieces[0] = (struct iovec){w->bytes + c->done_bytes, bytes - c->done_bytes};
		op->piece_count = 1;
	} else {
		op->kind = KVT_IO_SYNC;
		c->phase = NVME_LOG_SYNC;
	}
	c->under_way = 1;
	nvme_op_begin(t, op);
}

static void begin_log(struct nvme *t)
{
	struct nvme_commit *c = &t->commit;
	uint64_t end;

	if (collect(t) != KVT_OK) {
		log_failed(t);
		return;
	}
	if (t->log.writing.count == 0) {
		end_commit(t, KVT_OK);
		return;
	}
	end = NVME_PAGE + (t->log.count + t->log.writing.count) * NVME_RECORD;
	if (end > t->log.reserved) {
		uint64_t want = end + t->log.reserved / 2;

		want = (want + RESERVE_STEP - 1) / RESERVE_STEP * RESERVE_STEP;
		if (t->io->ops->reserve(t->io, t->log.file, want) != KVT_OK ||
			t->io->ops->sync_folder(t->io) != KVT_OK) {
			nvme_io_failed(t, "the log's room", 0);
			log_failed(t);
			return;
		}
		t->log.reserved = want;
	}
	c->done_bytes = 0;
	c->phase = NVME_LOG_WRITE;
	log_step(t);
}

/* --- data ------------------------------------------------------------------------------------- */

/* Handles a failed sync of a data file: any page written since its last sync may be lost, of any
 * chunk. */
static void sync_lost(struct nvme *t, const struct kvt_file *file)
{
	struct nvme_commit *c = &t->commit;
	struct nvme_stored *later = take_stored(c);

	c->failed = true;
	c->lost_syncs++;
	for (uint32_t i = 0; i < t->space.file_count; i++)
		if (t->space.files[i].file == file)
			t->space.files[i].dirty = true;
	end_chunks(t, &later, KVT_EIO);
}

/* Begins the sync of each file that was written since its last sync. */
static void data_step(struct nvme *t)
{
	struct nvme_commit *c = &t->commit;

	for (; c->sync_file < t->space.file_count; c->sync_file++) {
		struct nvme_file *file = &t->space.files[c->sync_file];
		struct kvt_io_op *op;

		if (!file->dirty)
			continue;
		op = nvme_op_take(t, &c->actor);
		if (op == NULL)
			return;
		file->dirty = false;
		op->kind = KVT_IO_SYNC;
		op->file = file->file;
		op->piece_count = 0;
		c->under_way++;
		nvme_op_begin(t, op);
	}
	if (c->under_way > 0)
		return;
	if (c->folder_dirty && c->group != NULL) {
		if (t->io->ops->sync_folder(t->io) == KVT_OK)
			c->folder_dirty = false;
		else
			c->failed = true;
	}
	if (c->failed)
		end_group(t, KVT_EIO);
	begin_log(t);
}

/* Writes tenants' keys one by one, then syncs them. */
static void keys_step(struct nvme *t)
{
	struct nvme_commit *c = &t->commit;
	struct kvt_io_op *op;

	if (c->under_way > 0)
		return;
	op = nvme_op_take(t, &c->actor);
	if (op == NULL)
		return;
	if (nvme_seal_next(t, op)) {
		c->under_way = 1;
		nvme_op_begin(t, op);
		return;
	}
	nvme_op_give(t, op);
	c->phase = NVME_DATA_SYNC;
	data_step(t);
}

/* A key that is not durable makes no chunk under it durable. */
static void keys_done(struct nvme *t, const struct kvt_io_op *op, bool ok)
{
	struct nvme_commit *c = &t->commit;

	nvme_seal_ended(t, op, ok);
	if (ok) {
		keys_step(t);
		return;
	}
	c->failed = true;
	c->keys_failed = true;
	c->phase = NVME_DATA_SYNC;
	data_step(t);
}

static void begin_commit(struct nvme *t)
{
	struct nvme_commit *c = &t->commit;

	c->group = take_stored(c);
	c->wanted = false;
	c->flushing = c->flushes;
	c->flushes = NULL;
	c->failed = false;
	c->keys_failed = false;
	c->sync_file = c->group == NULL ? t->space.file_count : 0;
	c->phase = NVME_KEYS;
	keys_step(t);
}

static void commit_done(struct nvme *t, struct nvme_actor *actor, struct kvt_io_op *op)
{
	struct nvme_commit *c = &t->commit;
	bool ok = op->kind == KVT_IO_SYNC ? op->result == 0
					  : op->result == (int64_t)op->pieces[0].iov_len;

	(void)actor;
	c->under_way--;
	if (ok)
		nvme_io_worked(t);
	else
		nvme_io_failed(t, op->kind == KVT_IO_SYNC ? "sync" : "write of the log",
			op->result < 0 ? (int)-op->result : EIO);
	if (!ok && c->phase == NVME_DATA_SYNC)
		sync_lost(t, op->file);
	nvme_op_give(t, op);
	switch (c->phase) {
	case NVME_KEYS:
		keys_done(t, op, ok);
		break;
	case NVME_DATA_SYNC:
		data_step(t);
		break;
	case NVME_LOG_WRITE:
		c->done_bytes = (uint64_t)t->log.writing.count * NVME_RECORD;
		if (ok)
			log_step(t);
		else
			log_failed(t);
		break;
	case NVME_LOG_SYNC:
		if (!ok) {
			log_failed(t);
			break;
		}
		t->log.count += t->log.writing.count;
		end_commit(t, KVT_OK);
		break;
	case NVME_SNAP_WRITE:
		c->snap.offset += c->snap.filled;
		c->snap.filled = 0;
		if (ok)
			nvme_snap_step(t);
		else
			nvme_snap_end(t, false);
		break;
	case NVME_SNAP_SYNC:
		nvme_snap_end(t, ok);
		break;
	case NVME_IDLE:
		break;
	}
}

/* Fails requests that wait for durability, while the log is bad or the store is lost. */
static void give_up_waiting(struct nvme *t)
{
	struct nvme_commit *c = &t->commit;
	enum kvt_status status = t->lost ? KVT_ECANCELED : KVT_EIO;
	struct kvt_tier_request *flushes = c->flushes;

	c->flushes = NULL;
	c->wanted = false;
	c->group = take_stored(c);
	end_group(t, status);
	end_flushes(flushes, status);
}

size_t nvme_commit_step(struct nvme *t, int64_t now)
{
	struct nvme_commit *c = &t->commit;

	switch (c->phase) {
	case NVME_IDLE:
		break;
	case NVME_KEYS:
		keys_step(t);
		return 0;
	case NVME_DATA_SYNC: /* operations were scarce: go on */
		data_step(t);
		return 0;
	case NVME_LOG_WRITE:
		log_step(t);
		return 0;
	case NVME_SNAP_WRITE:
		nvme_snap_step(t);
		return 0;
	default:
		return 0;
	}
	if (t->lost || (t->log.bad && now < t->log.retry_ns)) {
		give_up_waiting(t);
		return 0;
	}
	if (nvme_log_worn(t)) {
		nvme_snap_begin(t);
		return 1;
	}
	if (nvme_commit_due(t, now) > now)
		return 0;
	begin_commit(t);
	return 1;
}
