/*
 * nvme_erase.c - ends of entries, and tombstones that keep erased chunks from coming back.
 *
 * An erase does three things in this order: it removes waiting writes from the queue, makes entries invisible, and
 * keeps a tombstone that names the last generation given out by then. A chunk that the erase covers has at most that
 * generation, so the tombstone kills its ADD anywhere in the log; a chunk that is put afterwards has a later
 * generation. The tombstone is written even if no chunk was there: the log may still have a chunk whose removal has not
 * been written yet.
 *
 * A later flush makes the tombstone durable.
 */
#include <string.h>

#include "tiers/nvme/nvme.h"

/* --- ends of entries -------------------------------------------------------------------------- */

void nvme_gone(
	void *self, uint32_t entry, const struct kvt_key *key, const struct kvt_entry_info *info)
{
	struct nvme *t = self;
	struct nvme_side *side = &t->side[entry];
	struct nvme_names *names = side->names;
	struct kvt_extent runs[NVME_MAX_RUNS];
	uint32_t count = nvme_place_unpack(info->place, runs);

	pthread_mutex_lock(&t->lock);
	nvme_space_give(t, runs, count);
	if (side->logged && !t->closing) {
		struct nvme_record record = {.type = NVME_REMOVE, .generation = side->generation};

		record.keys[0] = *key;
		(void)nvme_log_add(t, &record); /* without a record, a read finds out */
	}
	if (names != NULL) {
		t->name_bytes -= sizeof(*names) + (uint64_t)names->count * names->hash_bytes;
		names->key = *key;
		names->next = NULL;
		*t->removed_end = names;
		t->removed_end = &names->next;
	}
	pthread_mutex_unlock(&t->lock);
	*side = (struct nvme_side){0};
}

/* --- erasing ----------------------------------------------------------------------------------- */

/* The conditions to compare with a queued request. */
struct doomed {
	const struct kvt_key *keys; /* NULL: any key */
	size_t count;
	const struct kvt_tenant *tenant; /* NULL: any tenant */
};

static bool is_doomed(const struct kvt_tier_request *r, const struct doomed *d)
{
	static const struct kvt_tenant none;
	const struct kvt_tenant *tenant = r->item != NULL ? &r->item->tenant : &none;

	if (d->tenant != NULL)
		return memcmp(tenant, d->tenant, sizeof(*tenant)) == 0;
	for (size_t i = 0; i < d->count; i++) {
		if (r->key_count == 1 &&
			memcmp(r->keys[0].bytes, d->keys[i].bytes, KVT_KEY_BYTES) == 0)
			return true;
	}
	return d->keys == NULL;
}

/* Ensures that no write submitted before can become visible from here on. */
static void begin_erase(struct nvme *t, const struct doomed *d)
{
	struct nvme_queue keep = {0};
	struct kvt_tier_request *r;

	pthread_mutex_lock(&t->lock);
	t->erases++;
	while ((r = nvme_queue_take(&t->writes)) != NULL)
		nvme_queue_add(is_doomed(r, d) ? &t->cancelled : &keep, r);
	t->writes = keep;
	pthread_mutex_unlock(&t->lock);
}

/* Keeps tombstones up to now. */
static enum kvt_status keep(struct nvme *t, struct nvme_record *record, const struct doomed *d)
{
	enum kvt_status status = KVT_OK;
	size_t keys;

	pthread_mutex_lock(&t->lock);
	record->generation = t->log.generation;
	if (record->type != NVME_ERASE && !t->closing)
		status = nvme_log_add(t, record);
	keys = record->type == NVME_ERASE && !t->closing ? d->count : 0;
	for (size_t i = 0; i < keys; i += NVME_ERASE_KEYS) {
		size_t n = d->count - i < NVME_ERASE_KEYS ? d->count - i : NVME_ERASE_KEYS;

		memcpy(record->keys, d->keys + i, n * sizeof(d->keys[0]));
		record->key_count = (uint32_t)n;
		if (status == KVT_OK)
			status = nvme_log_add(t, record);
	}
	if (status != KVT_OK)
		t->log.lost = true; /* the next commit writes a log without the erased chunks */
	pthread_mutex_unlock(&t->lock);
	return status;
}

size_t nvme_erase_keys(struct nvme *t, const struct kvt_key *keys, size_t n)
{
	struct doomed d = {.keys = keys, .count = n};
	struct nvme_record record = {.type = NVME_ERASE};
	size_t erased;

	begin_erase(t, &d);
	erased = kvt_index_erase(t->index, keys, n);
	(void)keep(t, &record, &d); /* if it is lost, the log is rewritten before a flush ends */
	return erased;
}

enum kvt_status nvme_erase_tenant(
	struct kvt_tier *base, const struct kvt_tenant *tenant, size_t *erased)
{
	struct nvme *t = (struct nvme *)base;
	struct doomed d = {.tenant = tenant};
	struct nvme_record record = {.type = NVME_TENANT, .tenant = *tenant};

	begin_erase(t, &d);
	*erased = kvt_index_erase_tenant(t->index, tenant);
	nvme_seal_forget(t, tenant, NULL);
	return keep(t, &record, &d);
}

enum kvt_status nvme_erase_all(struct kvt_tier *base, size_t *erased)
{
	struct nvme *t = (struct nvme *)base;
	struct doomed d = {0};
	struct nvme_record record = {.type = NVME_RESET};

	begin_erase(t, &d);
	*erased = kvt_index_erase_all(t->index);
	nvme_seal_forget(t, NULL, NULL);
	return keep(t, &record, &d);
}

size_t nvme_drop_slots(struct kvt_tier *base, const struct kvt_slot_set *slots)
{
	struct nvme *t = (struct nvme *)base;

	nvme_seal_forget(t, NULL, slots);
	return kvt_index_erase_slots(t->index, slots);
}
