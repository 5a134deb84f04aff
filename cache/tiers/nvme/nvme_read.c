/*
 * nvme_read.c - reads a chunk from disk and checks it.
 *
 * Header and payload are read together, the payload straight into the caller's memory. The header
 * must have its checksum and name the key, the generation and the sizes of the index; then each
 * piece of the payload must have the header's checksum, or the whole must open under its key. The
 * checksums are made while the rest of the payload is being read (nvme_sums.c). In any other case
 * the tier drops and counts the chunk, and the caller gets KVT_ECORRUPT; earlier chunks of the
 * prompt are useful nevertheless.
 *
 * The tier also drops a chunk whose read the system refused twice in a row, so that a bad block
 * does not cost every later prompt a failed read.
 */
#include <string.h>

#include "tiers/nvme/nvme.h"

static void read_done(struct nvme *t, struct nvme_actor *actor, struct kvt_io_op *op);
static void settle(struct nvme *t, struct nvme_job *job);

static bool same_key(const struct kvt_key *a, const struct kvt_key *b)
{
	return memcmp(a->bytes, b->bytes, KVT_KEY_BYTES) == 0;
}

enum kvt_status nvme_check_head(struct nvme *t, struct nvme_job *job, struct nvme_chunk *chunk)
{
	const struct nvme_side *side = &t->side[job->entry];

	if (nvme_chunk_decode(job->head, job->head_bytes, t->format.store_id, chunk) != KVT_OK ||
		chunk->header_bytes != job->head_bytes || chunk->bytes != job->bytes ||
		chunk->generation != side->generation || chunk->rank != t->format.rank ||
		!same_key(&chunk->key, kvt_index_key(t->index, job->entry)) ||
		memcmp(chunk->fingerprint.bytes, t->format.fingerprint.bytes,
			sizeof(chunk->fingerprint.bytes)) != 0)
		return KVT_ECORRUPT;
	return KVT_OK;
}

/* Checks that the request's segments add up to its bytes. */
static bool request_is_good(const struct kvt_tier_request *r)
{
	uint64_t sum = 0;

	if (r->key_count != 1 || r->segment_count == 0 || r->segment_count > NVME_MAX_PIECES)
		return false;
	for (uint32_t i = 0; i < r->segment_count; i++)
		sum += r->segments[i].bytes;
	return sum == r->bytes;
}

static enum kvt_status prepare(struct nvme *t, struct nvme_job *job)
{
	struct kvt_tier_request *r = job->request;
	struct kvt_entry_info info;
	enum kvt_status status;

	if (!request_is_good(r))
		return KVT_EINVAL;
	status = kvt_index_hold(t->index, &r->keys[0], true, &job->entry);
	pthread_mutex_lock(&t->lock);
	if (status == KVT_OK)
		t->hits++;
	else
		t->misses++;
	pthread_mutex_unlock(&t->lock);
	if (status != KVT_OK)
		return status;
	kvt_index_info(t->index, job->entry, &info);
	job->bytes = info.bytes;
	job->run_count = nvme_place_unpack(info.place, job->runs);
	/* A length that differs now means that another chunk was stored under this key since the
	 * caller asked for it. */
	status = info.bytes == r->bytes ? KVT_OK : KVT_MISS;
	if (status == KVT_OK)
		status = nvme_transfer_room(job, t->side[job->entry].header_pages * NVME_PAGE);
	if (status == KVT_OK)
		status = nvme_transfer_prepare(
			t, job, r->segments, r->segment_count, t->sealer != NULL);
	if (status == KVT_OK)
		status = nvme_sum_begin(t, job);
	if (status != KVT_OK)
		kvt_index_release(t->index, job->entry);
	return status;
}

void nvme_read_begin(struct nvme *t, struct nvme_job *job, struct kvt_tier_request *r)
{
	enum kvt_status status;

	job->kind = NVME_JOB_READ;
	job->request = r;
	job->actor.done = read_done;
	job->summed = settle;
	r->names = NULL;
	status = prepare(t, job);
	if (status != KVT_OK) {
		nvme_job_give(t, job);
		nvme_finish(r, status);
		return;
	}
	t->reads_active++;
	nvme_rate_begin(t, &t->read_rate);
	nvme_transfer_begin(t, job);
}

/* Logs the piece of a plain payload that is damaged. */
static void report_piece(struct nvme *t, const struct nvme_chunk *chunk, uint32_t bad, uint32_t of)
{
	const uint8_t *key = chunk->key.bytes;

	if (of > 1)
		kvt_note(t->s, KVT_LOG_WARN,
			"nvme: %02x%02x%02x%02x: piece %u of %u (%u KiB each) is wrong", key[0],
			key[1], key[2], key[3], bad + 1, of, NVME_PIECE_BYTES / 1024);
}

/* Checks a plain payload by the checksums of its pieces; by the checksum of the whole if its header
 * and the log disagree on whether it has pieces. */
static enum kvt_status prove(struct nvme *t, struct nvme_job *job, const struct nvme_chunk *chunk)
{
	struct kvt_tier_request *r = job->request;
	uint32_t bad, of = 0;
	enum kvt_status status = nvme_sum_judge(job, chunk, &bad, &of);

	/* the log of a version without pieces does not say that the chunk has some */
	if (chunk->piece_count > 0)
		t->side[job->entry].flags |= NVME_HAS_PIECES;
	else
		t->side[job->entry].flags &= (uint8_t)~NVME_HAS_PIECES;
	r->checksum = chunk->checksum;
	if (status == KVT_MISS) {
		kvt_checksum_segments(r->segments, r->segment_count, job->bytes, &r->checksum);
		status = kvt_checksum_equal(&r->checksum, &chunk->checksum) ? KVT_OK : KVT_ECORRUPT;
	}
	if (status == KVT_ECORRUPT)
		report_piece(t, chunk, bad, of);
	return status;
}

/* Checks the payload in the request's segments against the chunk's header. */
static enum kvt_status check_payload(
	struct nvme *t, struct nvme_job *job, const struct nvme_chunk *chunk)
{
	struct kvt_tier_request *r = job->request;
	const struct kvt_segment *last = &r->segments[r->segment_count - 1];
	uint64_t rest = job->bytes % NVME_PAGE;

	if (((chunk->flags & NVME_CHUNK_SEALED) != 0) != (t->sealer != NULL))
		return KVT_ECORRUPT;
	if (t->sealer != NULL)
		return nvme_open_chunk(t, job, chunk);
	if (job->bounce != NULL)
		nvme_copy_out(job->bounce, r->segments, r->segment_count, job->bytes);
	else if (rest > 0)
		memcpy((uint8_t *)last->base + last->bytes - rest, job->tail, rest);
	return prove(t, job, chunk);
}

/* Drops a chunk whose bytes on disk are not those that the index describes. */
static void drop(struct nvme *t, struct nvme_job *job, enum kvt_status status)
{
	const uint8_t *key = kvt_index_key(t->index, job->entry)->bytes;

	if (status == KVT_ECORRUPT) {
		pthread_mutex_lock(&t->lock);
		t->corrupt++;
		pthread_mutex_unlock(&t->lock);
	}
	kvt_note(t->s, KVT_LOG_WARN, "nvme: dropped %02x%02x%02x%02x: %s", key[0], key[1], key[2],
		key[3], kvt_status_text(status));
	kvt_index_drop(t->index, job->entry);
}

static enum kvt_status judge(struct nvme *t, struct nvme_job *job, struct kvt_blocks *names)
{
	struct nvme_side *side = &t->side[job->entry];
	enum kvt_status status = job->status;
	struct nvme_chunk chunk;
	bool refused = status != KVT_OK;

	if (refused) {
		status = KVT_EIO;
	} else {
		status = nvme_check_head(t, job, &chunk);
		if (status == KVT_OK)
			status = check_payload(t, job, &chunk);
	}
	if (status == KVT_ECORRUPT || status == KVT_MISS || (refused && side->read_failed))
		drop(t, job, status);
	side->read_failed = refused;
	if (status == KVT_OK && (chunk.flags & NVME_CHUNK_NAMES) != 0 &&
		nvme_open_names(t, &chunk) == KVT_OK &&
		nvme_names_decode(chunk.names, chunk.names_bytes, names) == KVT_OK &&
		names->count > 0)
		job->request->names = names;
	return status;
}

static void read_done(struct nvme *t, struct nvme_actor *actor, struct kvt_io_op *op)
{
	struct nvme_job *job = (struct nvme_job *)actor;
	uint64_t at, bytes = nvme_transfer_moved(t, op, &at);

	nvme_sum_came(t, job, at, bytes);
	if (nvme_transfer_done(t, job, op) && nvme_sum_ended(t, job))
		settle(t, job);
}

/* Called when all operations of the read have ended, and its pieces are summed or never will be:
 * checks the chunk, ends the request and frees the job. */
static void settle(struct nvme *t, struct nvme_job *job)
{
	struct kvt_tier_request *r = job->request;
	struct kvt_blocks names;
	enum kvt_status status;

	t->reads_active--;
	status = judge(t, job, &names);
	nvme_rate_end(t, &t->read_rate, job->bytes);
	if (status == KVT_OK) {
		pthread_mutex_lock(&t->lock);
		t->loads++;
		t->load_bytes += job->bytes;
		pthread_mutex_unlock(&t->lock);
	}
	kvt_index_release(t->index, job->entry);
	/* the request's names point into the job's header, so the request ends before the job is
	 * freed */
	nvme_finish(r, status);
	nvme_job_give(t, job);
}
