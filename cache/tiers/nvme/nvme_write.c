/*
 * nvme_write.c - writes a chunk to disk.
 *
 * The write first inserts an invisible entry, which makes room and takes the key; then follow
 * units, header, and one transfer. After a successful transfer the chunk is visible and joins the
 * group whose records are written next; its entry stays held until then, so that no other chunk
 * overwrites it before its record names its place.
 *
 * An erase may happen at any moment. Before the insert it removes the request from the queue or
 * shows in the count of erases; afterwards it makes the entry invisible, and publishing reports
 * that.
 *
 * The request brings the checksums of the payload's pieces, from the reading of memory that made
 * the whole checksum at the put. Without them one reading of the payload makes both, and a chunk
 * whose memory changed since its put is not written; a chunk that is to be sealed is compared, too.
 *
 * Bytes written for a chunk of n bytes: n rounded up to 4096, a header of 4096 (more only with
 * thousands of tokens), 256 bytes of log each for coming and going, and a fourth of 256 for the
 * rewrite of a log that has four times its needed size. No chunk is ever moved.
 */
#include <stdlib.h>
#include <string.h>

#include "tiers/nvme/nvme.h"

static void write_done(struct nvme *t, struct nvme_actor *actor, struct kvt_io_op *op);

static int64_t expires_of(const struct nvme *t, const struct kvt_item *item, uint64_t *ttl)
{
	int64_t wall = kvt_steady_wall(t->s);

	*ttl = item != NULL && item->ttl_ns != 0 ? item->ttl_ns : t->ttl_ns;
	if (*ttl == 0 || *ttl >= (uint64_t)(INT64_MAX - wall))
		return INT64_MAX;
	return wall + (int64_t)*ttl;
}

static void info_of(const struct nvme *t, const struct kvt_tier_request *r, uint32_t head_bytes,
	struct kvt_entry_info *info)
{
	uint64_t need = head_bytes + r->bytes;

	*info = (struct kvt_entry_info){
		.bytes = r->bytes,
		.charge = (need + NVME_UNIT - 1) / NVME_UNIT * NVME_UNIT,
		.tokens = r->item != NULL ? r->item->tokens : 0,
	};
	if (r->item != NULL)
		info->tenant = r->item->tenant;
	info->expires_wall_ns = expires_of(t, r->item, &info->ttl_ns);
}

/* Those parts of a header whose lengths vary. */
struct head_plan {
	uint64_t names;  /* bytes */
	uint64_t pieces; /* checksums */
	/* length of the whole header; 0: the chunk has more names than a header can hold */
	uint32_t bytes;
};

static struct head_plan head_of(const struct nvme *t, const struct kvt_tier_request *r)
{
	bool sealed = t->sealer != NULL;
	struct head_plan head = {.pieces = sealed ? 0 : nvme_piece_count(r->bytes)};
	uint64_t bytes;

	if (r->item != NULL)
		head.names = nvme_names_bytes(r->item->blocks);
	bytes = nvme_chunk_header_bytes(head.names, r->bytes, sealed, head.pieces);
	if (bytes > NVME_MAX_HEADER && head.pieces > 0) {
		head.pieces = 0;
		bytes = nvme_chunk_header_bytes(head.names, r->bytes, sealed, 0);
	}
	head.bytes = bytes > NVME_MAX_HEADER ? 0 : (uint32_t)bytes;
	return head;
}

static bool request_is_good(const struct kvt_tier_request *r)
{
	uint64_t sum = 0;

	if (r->key_count != 1 || r->bytes == 0 || r->segment_count == 0 ||
		r->segment_count > NVME_MAX_PIECES)
		return false;
	for (uint32_t i = 0; i < r->segment_count; i++)
		sum += r->segments[i].bytes;
	if (sum != r->bytes)
		return false;
	return r->item == NULL || r->item->blocks == NULL ||
	       (r->item->blocks->hash_bytes % 4 == 0 && r->item->blocks->hash_bytes <= 32 &&
		       (uint64_t)r->item->blocks->count * r->item->blocks->block_size <=
			       NVME_MAX_TOKENS);
}

/* Takes the put's checksums of the payload's pieces, or makes them here while comparing the whole
 * with the put's checksum. */
static enum kvt_status sum_pieces(
	const struct kvt_tier_request *r, const struct nvme_chunk *chunk)
{
	struct kvt_checksum *sums, whole;

	for (uint32_t i = 0; r->pieces != NULL && i < chunk->piece_count; i++)
		nvme_piece_put(chunk, i, &r->pieces[i]);
	if (chunk->piece_count == 0 || r->pieces != NULL)
		return KVT_OK;
	sums = calloc(chunk->piece_count, sizeof(*sums));
	if (sums == NULL)
		return KVT_ENOMEM;
	kvt_checksum_pieces(
		r->segments, r->segment_count, r->bytes, NVME_PIECE_BYTES, sums, &whole);
	for (uint32_t i = 0; i < chunk->piece_count; i++)
		nvme_piece_put(chunk, i, &sums[i]);
	free(sums);
	return kvt_checksum_equal(&whole, &r->checksum) ? KVT_OK : KVT_ECORRUPT;
}

/* A sealed chunk keeps no checksum of its put, and its tags prove any sealed bytes: so the put's
 * checksum is compared now, after the sealing, which read the same bytes. */
static enum kvt_status seal(struct nvme *t, struct nvme_job *job, struct nvme_chunk *chunk)
{
	const struct kvt_tier_request *r = job->request;
	enum kvt_status status = nvme_seal_chunk(t, job, chunk);

	if (status == KVT_OK &&
		!kvt_checksum_holds(r->segments, r->segment_count, r->bytes, &r->checksum))
		status = KVT_ECORRUPT;
	return status;
}

/* Makes the header, with the payload's tags if it is sealed. */
static enum kvt_status make_head(struct nvme *t, struct nvme_job *job,
	const struct kvt_entry_info *info, uint64_t generation, const struct head_plan *head)
{
	struct kvt_tier_request *r = job->request;
	struct nvme_chunk chunk = {
		.header_bytes = job->head_bytes,
		.key = r->keys[0],
		.fingerprint = t->format.fingerprint,
		.tenant = info->tenant,
		.generation = generation,
		.bytes = r->bytes,
		.tokens = info->tokens,
		.rank = t->format.rank,
		.flags = t->sealer != NULL ? NVME_CHUNK_SEALED : 0,
		.expires_wall_ns = info->expires_wall_ns,
		.ttl_ns = info->ttl_ns,
		.written_wall_ns = kvt_steady_wall(t->s),
		.names_bytes = (uint32_t)head->names,
		.piece_count = (uint32_t)head->pieces,
	};
	enum kvt_status status = KVT_OK;

	if (r->item != NULL && r->item->parent != NULL) {
		chunk.parent = *r->item->parent;
		chunk.flags |= NVME_CHUNK_PARENT;
	}
	if (head->names > 0)
		chunk.flags |= NVME_CHUNK_NAMES;
	if (t->sealer == NULL)
		chunk.checksum = r->checksum;
	nvme_chunk_layout(&chunk, job->head);
	if (head->names > 0)
		nvme_names_encode(r->item->blocks, chunk.names);
	if (t->sealer != NULL)
		status = seal(t, job, &chunk);
	else
		status = sum_pieces(r, &chunk);
	if (status == KVT_OK)
		nvme_chunk_finish(&chunk, t->format.store_id, job->head);
	return status;
}

/* Fills the data that the tier keeps for the entry. Returns the chunk's generation. */
static uint64_t fill_side(struct nvme *t, uint32_t entry, const struct head_plan *head)
{
	struct nvme_side *side = &t->side[entry];

	*side = (struct nvme_side){.header_pages = (uint16_t)(head->bytes / NVME_PAGE)};
	if (head->names > 0)
		side->flags |= NVME_HAS_NAMES;
	if (head->pieces > 0)
		side->flags |= NVME_HAS_PIECES;
	pthread_mutex_lock(&t->lock);
	side->generation = ++t->log.generation;
	pthread_mutex_unlock(&t->lock);
	return side->generation;
}

/* Inserts an entry into the index, provided that no erase began since the request left its
 * queue. */
static enum kvt_status insert(struct nvme *t, struct kvt_tier_request *r,
	const struct kvt_entry_info *info, uint64_t erases, uint32_t *entry)
{
	const struct kvt_key *parent = r->item != NULL ? r->item->parent : NULL;
	enum kvt_status status = kvt_index_insert_sparing(
		t->index, &r->keys[0], parent, info, 0, r->chained, entry);
	bool erased;

	if (status != KVT_OK)
		return status;
	t->side[*entry] = (struct nvme_side){0};
	pthread_mutex_lock(&t->lock);
	erased = t->erases != erases;
	pthread_mutex_unlock(&t->lock);
	if (!erased)
		return KVT_OK;
	kvt_index_discard(t->index, *entry);
	return KVT_ECANCELED;
}

/* Makes entry, units, header and image. If one step fails, the earlier ones are undone. */
static enum kvt_status prepare(struct nvme *t, struct nvme_job *job, uint64_t erases)
{
	struct kvt_tier_request *r = job->request;
	struct kvt_entry_info info;
	struct head_plan head = head_of(t, r);
	uint64_t place[4];
	enum kvt_status status;

	if (!request_is_good(r) || head.bytes == 0)
		return KVT_EINVAL;
	if (nvme_transfer_room(job, head.bytes) != KVT_OK)
		return KVT_ENOMEM;
	info_of(t, r, head.bytes, &info);
	if (info.charge > t->capacity)
		return KVT_FULL;
	status = insert(t, r, &info, erases, &job->entry);
	if (status != KVT_OK)
		return status;
	status =
		nvme_space_take(t, (uint32_t)(info.charge / NVME_UNIT), job->runs, &job->run_count);
	if (status != KVT_OK)
		goto out;
	nvme_place_pack(job->runs, job->run_count, place);
	kvt_index_place(t->index, job->entry, place);
	job->bytes = r->bytes;
	status = nvme_transfer_prepare(t, job, r->segments, r->segment_count, t->sealer != NULL);
	if (status == KVT_OK)
		status = make_head(
			t, job, &info, fill_side(t, job->entry, &head), &head);
out:
	if (status != KVT_OK)
		kvt_index_discard(t->index, job->entry);
	return status;
}

/* Returns whether room may appear later without further action. A tenant that is at its limit does
 * not wait for reads, which may be other tenants' and never end: it would delay all later
 * writes. */
static bool holds_room(const struct nvme *t, bool limited)
{
	return t->commit.stored != NULL || t->commit.group != NULL || t->writes_active > 0 ||
	       (t->reads_active > 0 && !limited);
}

bool nvme_write_begin(struct nvme *t, struct nvme_job *job, struct kvt_tier_request *r)
{
	enum kvt_status status = KVT_ENOMEM;
	uint64_t erases = job->erases;
	struct kvt_entry_info info = {.bytes = 0};

	job->kind = NVME_JOB_WRITE;
	job->lost_syncs = t->commit.lost_syncs;
	job->request = r;
	job->actor.done = write_done;
	job->stored = calloc(1, sizeof(*job->stored));
	if (job->stored != NULL)
		status = t->lost      ? KVT_MISS
			 : t->log.bad ? KVT_EIO
				      : prepare(t, job, erases);
	if (status == KVT_OK) {
		t->writes_active++;
		nvme_rate_begin(t, &t->write_rate);
		nvme_transfer_begin(t, job);
		return true;
	}
	if (status == KVT_FULL)
		info_of(t, r, job->head_bytes, &info);
	if (status == KVT_FULL && holds_room(t, kvt_index_is_limited(t->index, &info))) {
		/* Chunks whose records are not durable cannot be evicted. A commit makes some of
		 * them evictable; chunks that are still being written will join a later one. */
		t->commit.wanted = t->commit.wanted || t->commit.stored != NULL;
		nvme_job_give(t, job);
		pthread_mutex_lock(&t->lock);
		nvme_queue_push(&t->writes, r);
		pthread_mutex_unlock(&t->lock);
		return false;
	}
	if (status == KVT_FULL)
		(void)kvt_index_count_limited(t->index, &info);
	nvme_job_give(t, job);
	nvme_finish(r, status);
	return true;
}

/* Marks the chunk's data files as having bytes to sync. */
static void mark_dirty(struct nvme *t, const struct nvme_job *job)
{
	for (uint32_t i = 0; i < job->run_count; i++) {
		uint32_t first = job->runs[i].first / t->space.units_per_file;
		uint32_t last =
			(job->runs[i].first + job->runs[i].count - 1) / t->space.units_per_file;

		for (uint32_t f = first; f <= last; f++)
			t->space.files[f].dirty = true;
	}
}

static void write_done(struct nvme *t, struct nvme_actor *actor, struct kvt_io_op *op)
{
	struct nvme_job *job = (struct nvme_job *)actor;
	struct kvt_tier_request *r = job->request;
	struct nvme_stored *stored = job->stored;
	enum kvt_status status;

	if (!nvme_transfer_done(t, job, op))
		return;
	status = job->status;
	if (status == KVT_OK && job->lost_syncs != t->commit.lost_syncs)
		status = KVT_EIO; /* pages of this chunk may be among those that were not written */
	t->writes_active--;
	nvme_rate_end(t, &t->write_rate, job->bytes);
	mark_dirty(t, job);
	if (status != KVT_OK) {
		kvt_index_discard(t->index, job->entry);
	} else if (kvt_index_publish(t->index, job->entry) != KVT_OK) {
		kvt_index_release(t->index, job->entry);
		status = KVT_ECANCELED;
	}
	if (status == KVT_OK) {
		*stored = (struct nvme_stored){.entry = job->entry, .bytes = job->bytes};
		stored->request = r->announce ? r : NULL;
		job->stored = NULL;
		pthread_mutex_lock(&t->lock);
		t->stores++;
		t->store_bytes += job->bytes;
		pthread_mutex_unlock(&t->lock);
		nvme_commit_stored(t, stored);
	}
	nvme_job_give(t, job);
	if (status != KVT_OK || !r->announce)
		nvme_finish(r, status);
}
