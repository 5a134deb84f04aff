/*
 * nvme_seal.c - chunks at rest under keys of their tenants.
 *
 * With a file of master keys every payload is sealed, and so are the engine's names of its blocks, since token ids are
 * the prompt. Readable on disk are only: keys (hashes), tenants (hashes), sizes, times.
 *
 * Tenants' wrapped keys lie in the file `tenants`, a block of 4096 bytes each, so that one key can
 * be overwritten without touching another. A commit writes and syncs a new key before any record of
 * a chunk under it; a key that was wrapped again gets a new block, and its old block is overwritten
 * after the new one was synced. The commit that a flush waits for overwrites an erased tenant's
 * block with zeros. From then on the tenant's chunks cannot be opened at all, as far as the device
 * really overwrites.
 *
 *     0  "kvttenan"   8 u16 major, u16 minor   16 XXH3-64 of all bytes after it   24 u8[16] tenant
 *    40  wrapped key
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "protect/little_endian.h"
#include "tiers/nvme/nvme.h"
#include "tiers/nvme/nvme_replay.h"

#define TENANTS_MOST 16384u
#define WRAPPED_AT   40u
#define SUMMED_AT    24u
/* Names are sealed for another kind of tier than a payload, so that neither opens as the other. */
#define NAMES_TIER (KVT_TIER_NVME | 0x100u)

/* LOCKED: the slot's key cannot be opened because the present file of keys lacks its master key. A
 * later file may have that master key again, so the slot is kept. */
enum slot_state { SLOT_FREE, SLOT_WRITE, SLOT_USED, SLOT_LOCKED, SLOT_WIPE };

struct slot {
	enum slot_state state;
	struct kvt_tenant tenant;
	uint8_t wrapped[KVT_SEAL_WRAPPED_BYTES]; /* SLOT_WRITE only */
};

/* All members are under the tier's lock, except `file` and `block`, which only the tier's thread
 * uses. */
struct nvme_tenants {
	struct kvt_file *file;
	struct slot *slots;
	uint32_t count, room;
	uint32_t waiting; /* number of slots to be written or wiped */
	uint32_t writing; /* the slot whose block is being written */
	bool unsynced_keys, unsynced_wipes;
	enum slot_state was; /* the state that that slot had when its write began */
	uint8_t *block;
};

enum kvt_status nvme_seal_open(struct nvme *t, const struct kvt_config *config, char *why)
{
	char *report = NULL;
	enum kvt_status status;

	if (config->protect_keys == NULL || config->protect_keys[0] == '\0')
		return KVT_OK;
	status = kvt_sealer_create(config->protect_keys, t->s, &t->sealer, &report);
	if (status != KVT_OK) {
		(void)snprintf(why, KVT_REASON_BYTES, "protect.keys: %.140s",
			report != NULL ? report : kvt_status_text(status));
		free(report);
		return status;
	}
	free(report);
	t->tenants = calloc(1, sizeof(*t->tenants));
	if (t->tenants == NULL || (t->tenants->block = malloc(NVME_PAGE)) == NULL)
		return KVT_ENOMEM;
	return KVT_OK;
}

void nvme_seal_close(struct nvme *t)
{
	if (t->tenants != NULL) {
		if (t->tenants->file != NULL)
			t->io->ops->close(t->io, t->tenants->file);
		for (uint32_t i = 0; i < t->tenants->count; i++)
			explicit_bzero(t->tenants->slots[i].wrapped, KVT_SEAL_WRAPPED_BYTES);
		free(t->tenants->slots);
		free(t->tenants->block);
		free(t->tenants);
	}
	kvt_sealer_destroy(t->sealer);
}

/* --- blocks of the file ----------------------------------------------------------------------- */

static void block_encode(const struct slot *slot, uint8_t *block)
{
	memset(block, 0, NVME_PAGE);
	if (slot->state != SLOT_WRITE)
		return;
	memcpy(block, "kvttenan", 8);
	block[8] = NVME_MAJOR;
	memcpy(block + SUMMED_AT, slot->tenant.bytes, sizeof(slot->tenant.bytes));
	memcpy(block + WRAPPED_AT, slot->wrapped, KVT_SEAL_WRAPPED_BYTES);
	kvt_put64(block + 16, XXH3_64bits(block + SUMMED_AT, NVME_PAGE - SUMMED_AT));
}

static bool block_decode(const uint8_t *block, struct kvt_tenant *tenant)
{
	if (memcmp(block, "kvttenan", 8) != 0 || block[8] != NVME_MAJOR ||
		kvt_get64(block + 16) != XXH3_64bits(block + SUMMED_AT, NVME_PAGE - SUMMED_AT))
		return false;
	memcpy(tenant->bytes, block + SUMMED_AT, sizeof(tenant->bytes));
	return true;
}

/* Takes a free slot, or a new one at the end. NULL: no memory, or too many tenants. */
static struct slot *slot_new(struct nvme_tenants *n)
{
	for (uint32_t i = 0; i < n->count; i++) {
		if (n->slots[i].state == SLOT_FREE)
			return &n->slots[i];
	}
	if (n->count == TENANTS_MOST)
		return NULL;
	if (n->count == n->room) {
		uint32_t room = n->room == 0 ? 16 : n->room * 2;
		struct slot *slots = realloc(n->slots, room * sizeof(*slots));

		if (slots == NULL)
			return NULL;
		n->slots = slots;
		n->room = room;
	}
	n->slots[n->count] = (struct slot){0};
	return &n->slots[n->count++];
}

enum kvt_status nvme_seal_recover(struct nvme *t)
{
	struct nvme_tenants *n = t->tenants;
	uint8_t *bytes = NULL;
	size_t len = 0;
	enum kvt_status status;

	if (t->sealer == NULL)
		return KVT_OK;
	status = nvme_file_read(t->io, "tenants", (uint64_t)TENANTS_MOST * NVME_PAGE, &bytes, &len);
	if (status == KVT_MISS)
		status = KVT_OK;
	for (size_t at = 0; status == KVT_OK && at + NVME_PAGE <= len; at += NVME_PAGE) {
		struct kvt_tenant tenant;
		struct slot *slot;

		/* The block's number in the file is the slot's number, so an unusable block also
		 * gets a slot, as a free one. */
		if (n->count * (size_t)NVME_PAGE > at || (slot = slot_new(n)) == NULL) {
			status = KVT_ENOMEM;
			break;
		}
		/* while the blocks are read, slot_new must not take this slot */
		slot->state = SLOT_WIPE;
		if (block_decode(bytes + at, &tenant)) {
			slot->tenant = tenant;
			slot->state = SLOT_USED;
			if (kvt_seal_take_tenant_key(t->sealer, bytes + at + WRAPPED_AT) !=
				KVT_OK) {
				slot->state = SLOT_LOCKED;
				kvt_note(t->s, KVT_LOG_WARN,
					"nvme: a tenant's key does not open: its chunks cannot be "
					"read");
			}
		}
	}
	for (uint32_t i = 0; i < n->count; i++) {
		if (n->slots[i].state == SLOT_WIPE)
			n->slots[i].state = SLOT_FREE;
	}
	if (bytes != NULL)
		explicit_bzero(bytes, len);
	free(bytes);
	if (status == KVT_OK)
		status = t->io->ops->open(t->io, "tenants", KVT_OPEN_CREATE, false, &n->file);
	if (status == KVT_OK)
		t->commit.folder_dirty = true;
	return status;
}

/* --- for inspection --------------------------------------------------------------------------- */

enum kvt_status nvme_seal_take_all(struct kvt_io *io, struct kvt_sealer *sealer)
{
	struct kvt_tenant tenant;
	uint8_t *bytes = NULL;
	size_t len = 0;
	enum kvt_status status =
		nvme_file_read(io, "tenants", (uint64_t)TENANTS_MOST * NVME_PAGE, &bytes, &len);

	for (size_t at = 0; status == KVT_OK && at + NVME_PAGE <= len; at += NVME_PAGE) {
		/* A tenant's key that cannot be opened is reported by reads and writes of the
		 * chunks that need it. */
		if (block_decode(bytes + at, &tenant) &&
			kvt_seal_take_tenant_key(sealer, bytes + at + WRAPPED_AT) == KVT_ENOMEM)
			status = KVT_ENOMEM;
	}
	if (bytes != NULL)
		explicit_bzero(bytes, len);
	free(bytes);
	return status;
}

enum kvt_status nvme_seal_prove(struct kvt_sealer *sealer, const uint8_t store_id[16],
	const struct nvme_chunk *chunk, uint8_t *payload)
{
	struct kvt_segment whole = {.base = payload, .bytes = chunk->bytes};
	struct kvt_seal_place place = {
		.key = chunk->key,
		.fingerprint = chunk->fingerprint,
		.tenant = chunk->tenant,
		.tier = KVT_TIER_NVME,
		.bytes = chunk->bytes,
	};

	memcpy(place.store_id, store_id, sizeof(place.store_id));
	return kvt_open_sealed(sealer, &place, &chunk->seal, chunk->tags, payload, &whole, 1);
}

/* --- the commit's part ------------------------------------------------------------------------ */

bool nvme_seal_waiting(struct nvme *t)
{
	bool waiting;

	if (t->tenants == NULL)
		return false;
	pthread_mutex_lock(&t->lock);
	waiting = t->tenants->waiting > 0;
	pthread_mutex_unlock(&t->lock);
	return waiting;
}

/* Finds a slot in this state, and encodes its block for the write. */
static bool find_slot(struct nvme *t, enum slot_state state)
{
	struct nvme_tenants *n = t->tenants;
	bool found = false;

	pthread_mutex_lock(&t->lock);
	for (uint32_t i = 0; n->waiting > 0 && i < n->count && !found; i++) {
		if (n->slots[i].state != state)
			continue;
		found = true;
		n->writing = i;
		n->was = state;
		block_encode(&n->slots[i], n->block);
	}
	pthread_mutex_unlock(&t->lock);
	return found;
}

/* The order is: write new keys, sync them, wipe old blocks, sync those. */
bool nvme_seal_next(struct nvme *t, struct kvt_io_op *op)
{
	struct nvme_tenants *n = t->tenants;

	if (n == NULL)
		return false;
	op->file = n->file;
	if (find_slot(t, SLOT_WRITE)) {
		n->unsynced_keys = true;
	} else if (n->unsynced_keys) {
		op->kind = KVT_IO_SYNC;
		op->piece_count = 0;
		return true;
	} else if (find_slot(t, SLOT_WIPE)) {
		n->unsynced_wipes = true;
	} else {
		op->kind = KVT_IO_SYNC;
		op->piece_count = 0;
		return n->unsynced_wipes;
	}
	op->kind = KVT_IO_WRITE;
	op->offset = (uint64_t)n->writing * NVME_PAGE;
	op->pieces[0] = (struct iovec){n->block, NVME_PAGE};
	op->piece_count = 1;
	return true;
}

void nvme_seal_ended(struct nvme *t, const struct kvt_io_op *op, bool ok)
{
	struct nvme_tenants *n = t->tenants;
	struct slot *slot;

	explicit_bzero(n->block, NVME_PAGE);
	if (!ok)
		return;
	if (op->kind == KVT_IO_SYNC) {
		n->unsynced_keys = n->unsynced_wipes = false;
		return;
	}
	pthread_mutex_lock(&t->lock);
	slot = &n->slots[n->writing];
	/* otherwise the key was erased during the write, and the slot waits to be wiped */
	if (slot->state == n->was) {
		n->waiting--;
		slot->state = n->was == SLOT_WRITE ? SLOT_USED : SLOT_FREE;
		explicit_bzero(slot->wrapped, sizeof(slot->wrapped));
	}
	pthread_mutex_unlock(&t->lock);
}

/* Under lock. */
static void wipe_later(struct nvme_tenants *n, struct slot *slot)
{
	if (slot->state != SLOT_WRITE) /* otherwise the slot waits to be written already */
		n->waiting++;
	slot->state = SLOT_WIPE;
}

static bool is_meant(
	const struct slot *slot, const struct kvt_tenant *tenant, const struct kvt_slot_set *slots)
{
	if (slots != NULL)
		return kvt_slot_set_has(slots, kvt_tenant_slot(&slot->tenant));
	return tenant == NULL || memcmp(&slot->tenant, tenant, sizeof(*tenant)) == 0;
}

void nvme_seal_forget(struct nvme *t, const struct kvt_tenant *tenant, const struct kvt_slot_set *slots)
{
	struct nvme_tenants *n = t->tenants;

	if (n == NULL)
		return;
	pthread_mutex_lock(&t->lock);
	for (uint32_t i = 0; i < n->count; i++) {
		struct slot *slot = &n->slots[i];

		if (slot->state == SLOT_FREE || slot->state == SLOT_WIPE || !is_meant(slot, tenant, slots))
			continue;
		wipe_later(n, slot);
		kvt_seal_forget_tenant(t->sealer, &slot->tenant);
	}
	pthread_mutex_unlock(&t->lock);
}

/* --- chunks ----------------------------------------------------------------------------------- */

static struct kvt_seal_place place_of(
	const struct nvme *t, const struct nvme_chunk *chunk, uint32_t tier, uint64_t bytes)
{
	struct kvt_seal_place place = {
		.key = chunk->key,
		.fingerprint = chunk->fingerprint,
		.tenant = chunk->tenant,
		.tier = tier,
		.bytes = bytes,
	};

	memcpy(place.store_id, t->format.store_id, sizeof(place.store_id));
	return place;
}

/* Marks the blocks with former wrappings of this tenant's key for wiping. The caller holds the
 * tier's lock. */
static void wipe_older(struct nvme_tenants *n, const struct kvt_tenant *tenant)
{
	for (uint32_t i = 0; i < n->count; i++) {
		struct slot *slot = &n->slots[i];

		if ((slot->state == SLOT_USED || slot->state == SLOT_WRITE) &&
			memcmp(&slot->tenant, tenant, sizeof(*tenant)) == 0)
			wipe_later(n, slot);
	}
}

/* Ensures that the sealer has the tenant's key; makes the key, and a slot for it, if there is
 * none. */
static enum kvt_status tenant_key(struct nvme *t, const struct kvt_tenant *tenant)
{
	uint8_t wrapped[KVT_SEAL_WRAPPED_BYTES];
	bool fresh = false;
	enum kvt_status status = kvt_seal_tenant_key(t->sealer, tenant, wrapped, &fresh);

	if (status == KVT_OK && fresh) {
		struct slot *slot;

		pthread_mutex_lock(&t->lock);
		slot = slot_new(t->tenants);
		if (slot != NULL) {
			wipe_older(t->tenants, tenant);
			slot->state = SLOT_WRITE;
			slot->tenant = *tenant;
			memcpy(slot->wrapped, wrapped, sizeof(wrapped));
			t->tenants->waiting++;
		}
		pthread_mutex_unlock(&t->lock);
		if (slot == NULL) {
			kvt_seal_forget_tenant(t->sealer, tenant);
			status = KVT_FULL;
		}
	}
	explicit_bzero(wrapped, sizeof(wrapped));
	return status;
}

static enum kvt_status seal_names(struct nvme *t, struct nvme_chunk *chunk)
{
	struct kvt_seal_place place = place_of(t, chunk, NAMES_TIER, chunk->names_bytes);
	struct kvt_segment plain = {.bytes = chunk->names_bytes};
	enum kvt_status status;

	if (chunk->names_bytes == 0)
		return KVT_OK;
	plain.base = malloc(chunk->names_bytes);
	if (plain.base == NULL)
		return KVT_ENOMEM;
	memcpy(plain.base, chunk->names, chunk->names_bytes);
	status = kvt_seal(
		t->sealer, &place, &plain, 1, chunk->names, &chunk->names_seal, chunk->names_tag);
	explicit_bzero(plain.base, chunk->names_bytes);
	free(plain.base);
	return status;
}

enum kvt_status nvme_seal_chunk(struct nvme *t, struct nvme_job *job, struct nvme_chunk *chunk)
{
	struct kvt_seal_place place = place_of(t, chunk, KVT_TIER_NVME, chunk->bytes);
	enum kvt_status status = tenant_key(t, &chunk->tenant);

	if (status == KVT_OK)
		status = kvt_seal(t->sealer, &place, job->request->segments,
			job->request->segment_count, job->bounce, &chunk->seal, chunk->tags);
	return status == KVT_OK ? seal_names(t, chunk) : status;
}

/* Other processes may write into the target (a segment mapped by clients of kvtierd). So the chunk
 * is opened here, and its checksum is made of the bytes copied there, not of those present there
 * afterwards. */
enum kvt_status nvme_open_chunk(
	struct nvme *t, struct nvme_job *job, const struct nvme_chunk *chunk)
{
	struct kvt_seal_place place = place_of(t, chunk, KVT_TIER_NVME, chunk->bytes);
	struct kvt_segment here = {.base = job->bounce, .bytes = chunk->bytes};
	struct kvt_tier_request *r = job->request;
	enum kvt_status status =
		kvt_open_sealed(t->sealer, &place, &chunk->seal, chunk->tags, job->bounce, &here, 1);

	if (status == KVT_OK)
		kvt_checksum_copy(r->segments, r->segment_count, job->bounce, chunk->bytes, &r->checksum);
	return status;
}

enum kvt_status nvme_open_names(struct nvme *t, struct nvme_chunk *chunk)
{
	struct kvt_seal_place place = place_of(t, chunk, NAMES_TIER, chunk->names_bytes);
	struct kvt_segment to = {.base = chunk->names, .bytes = chunk->names_bytes};

	if ((chunk->flags & NVME_CHUNK_SEALED) == 0)
		return t->sealer == NULL ? KVT_OK : KVT_ECORRUPT;
	if (t->sealer == NULL || chunk->names_bytes == 0)
		return KVT_ECORRUPT;
	return kvt_open_sealed(
		t->sealer, &place, &chunk->names_seal, chunk->names_tag, chunk->names, &to, 1);
}
