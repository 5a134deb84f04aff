/*
 * nvme_announce.c - reports stored and removed chunks under the engine's names.
 *
 * `stored` is reported for chunks whose request asks for it, once their record is durable, and for
 * chunks that were found when the store was opened: the tier reads their headers in the background,
 * a few at a time, only when the disk is otherwise idle, and only as fast as readers of the events
 * follow, so that the queue loses no event of a large store. The block hashes of a reported chunk
 * stay in memory so that its removal can be reported without a read; token ids are never kept.
 *
 * No report is made from inside the index: removals wait in a list for the next step, and always
 * precede a `stored` of the same chunk.
 */
#include <stdlib.h>
#include <string.h>

#include "tiers/nvme/nvme.h"

#define AT_ONCE 4 /* headers being read */

static void names_done(struct nvme *t, struct nvme_actor *actor, struct kvt_io_op *op);

void nvme_announce_stored(struct nvme *t, uint32_t entry, const struct kvt_blocks *names)
{
	struct nvme_side *side = &t->side[entry];
	uint64_t bytes = (uint64_t)names->count * names->hash_bytes;
	struct nvme_names *kept;

	if (!t->events || names->count == 0 || side->names != NULL)
		return;
	kept = malloc(sizeof(*kept) + bytes);
	if (kept == NULL)
		return; /* a chunk that could not be reported as removed is not reported at all */
	*kept = (struct nvme_names){.hash_bytes = names->hash_bytes, .count = names->count};
	memcpy(kept->hashes, names->hashes, bytes);
	side->names = kept;
	pthread_mutex_lock(&t->lock);
	t->name_bytes += sizeof(*kept) + bytes;
	pthread_mutex_unlock(&t->lock);
	(void)nvme_announce_tell(t);
	if (t->watch.stored != NULL)
		t->watch.stored(
			t->watch.self, KVT_TIER_NVME, kvt_index_key(t->index, entry), names);
}

size_t nvme_announce_tell(struct nvme *t)
{
	struct nvme_names *list;
	size_t n = 0;

	pthread_mutex_lock(&t->lock);
	list = t->removed;
	t->removed = NULL;
	t->removed_end = &t->removed;
	pthread_mutex_unlock(&t->lock);
	for (; list != NULL; n++) {
		struct nvme_names *names = list;
		struct kvt_blocks blocks = {
			.hashes = names->hashes,
			.hash_bytes = names->hash_bytes,
			.count = names->count,
		};

		list = names->next;
		if (t->watch.removed != NULL)
			t->watch.removed(t->watch.self, KVT_TIER_NVME, &names->key, &blocks);
		free(names);
	}
	return n;
}

/* Reads the header of a held entry. False: not now. */
static bool begin(struct nvme *t, uint32_t entry)
{
	struct nvme_job *job = nvme_job_take(t);
	struct kvt_entry_info info;

	if (job == NULL)
		return false;
	job->kind = NVME_JOB_NAMES;
	job->actor.done = names_done;
	job->entry = entry;
	kvt_index_info(t->index, entry, &info);
	job->run_count = nvme_place_unpack(info.place, job->runs);
	if (nvme_transfer_room(job, t->side[entry].header_pages * NVME_PAGE) != KVT_OK) {
		nvme_job_give(t, job);
		return false;
	}
	job->bytes = info.bytes;
	job->total = job->head_bytes;
	job->image[0] = (struct iovec){job->head, job->head_bytes};
	job->image_count = 1;
	t->announcing++;
	nvme_transfer_begin(t, job);
	return true;
}

static void names_done(struct nvme *t, struct nvme_actor *actor, struct kvt_io_op *op)
{
	struct nvme_job *job = (struct nvme_job *)actor;
	struct nvme_chunk chunk;
	struct kvt_blocks names;

	if (!nvme_transfer_done(t, job, op))
		return;
	t->announcing--;
	if (job->status == KVT_OK && nvme_check_head(t, job, &chunk) == KVT_OK &&
		nvme_open_names(t, &chunk) == KVT_OK &&
		nvme_names_decode(chunk.names, chunk.names_bytes, &names) == KVT_OK)
		nvme_announce_stored(t, job->entry, &names);
	kvt_index_release(t->index, job->entry);
	nvme_job_give(t, job);
}

size_t nvme_announce_step(struct nvme *t)
{
	size_t n = 0;

	if (t->announce_done || !t->events)
		return 0;
	if (t->watch.has_room != NULL && !t->watch.has_room(t->watch.self))
		return 0;
	while (t->announcing < AT_ONCE && t->reads_active == 0 && t->writes_active == 0) {
		const struct nvme_side *side;
		uint32_t entry;
		bool wanted;

		if (!kvt_index_next(t->index, &t->announce_cursor, &entry)) {
			t->announce_done = true;
			break;
		}
		n++;
		side = &t->side[entry];
		wanted = side->generation <= t->opened_generation &&
			 (side->flags & NVME_HAS_NAMES) != 0 && side->names == NULL;
		if (!wanted || !begin(t, entry))
			kvt_index_release(t->index, entry);
		if (t->announce_cursor == 0) {
			t->announce_done = true;
			break;
		}
	}
	return n;
}

void nvme_announce_close(struct nvme *t)
{
	while (t->removed != NULL) {
		struct nvme_names *names = t->removed;

		t->removed = names->next;
		free(names);
	}
}
