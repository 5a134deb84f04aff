/*
 * kvindex_park.c - keeps records that wait for a parent; see kvindex_park.h.
 */
#include "routing/kvindex_park.h"

#include <stdlib.h>
#include <string.h>

#include "routing/kvindex_local.h"

#define MOST_HEADS     65536
#define BYTES_PER_HEAD 256 /* bytes of the limit per list head */

enum kvw_err kvw_kvpark_init(
	struct kvw_kvpark *park, uint64_t bytes_limit, int64_t wait_ns, uint64_t seed)
{
	*park = (struct kvw_kvpark){
		.bytes_limit = bytes_limit,
		.wait_ns = wait_ns,
		.seed = seed,
	};
	if (bytes_limit == 0)
		return KVW_OK;
	park->heads = 64;
	while (park->heads < MOST_HEADS && park->heads < bytes_limit / BYTES_PER_HEAD)
		park->heads *= 2;
	park->parents = calloc(2 * (size_t)park->heads, sizeof(struct kvw_kvlink *));
	if (park->parents == NULL)
		return KVW_ENOMEM;
	park->hashes = park->parents + park->heads;
	return KVW_OK;
}

/* --- lists --- */

static void link_in(struct kvw_kvlink *link, struct kvw_kvlink **head)
{
	link->next = *head;
	link->here = head;
	if (link->next != NULL)
		link->next->here = &link->next;
	*head = link;
}

static void link_out(struct kvw_kvlink *link)
{
	if (link->here == NULL)
		return;
	*link->here = link->next;
	if (link->next != NULL)
		link->next->here = link->here;
	link->here = NULL;
}

static void list_append(struct kvw_kvrecord_list *list, struct kvw_kvrecord *record)
{
	record->newer = NULL;
	record->older = list->newest;
	if (list->newest != NULL)
		list->newest->newer = record;
	else
		list->oldest = record;
	list->newest = record;
}

static void list_remove(struct kvw_kvrecord_list *list, struct kvw_kvrecord *record)
{
	if (record->older != NULL)
		record->older->newer = record->newer;
	else
		list->oldest = record->newer;
	if (record->newer != NULL)
		record->newer->older = record->older;
	else
		list->newest = record->older;
}

static struct kvw_kvlink **head_of(
	const struct kvw_kvpark *park, struct kvw_kvlink **heads, uint32_t lane, uint64_t hash)
{
	uint64_t spread = kvw_kvspread(hash + ((uint64_t)lane << 48), park->seed);

	return &heads[(spread >> 32) & (park->heads - 1)];
}

/* --- records --- */

static void count_by(_Atomic uint64_t *counter, uint64_t by)
{
	uint64_t value = atomic_load_explicit(counter, memory_order_relaxed);

	atomic_store_explicit(counter, value + by, memory_order_relaxed);
}

void kvw_kvpark_count_dropped(struct kvw_kvpark *park)
{
	count_by(&park->dropped, 1);
}

static void drop_oldest(struct kvw_kvpark *park)
{
	struct kvw_kvrecord *record = park->waiting.oldest;

	list_remove(&park->waiting, record);
	link_out(&record->by_parent);
	kvw_kvpark_free(park, record);
	kvw_kvpark_count_dropped(park);
}

void kvw_kvpark_finish(struct kvw_kvpark *park)
{
	while (park->waiting.oldest != NULL)
		drop_oldest(park);
	free(park->parents);
}

void kvw_kvpark_free(struct kvw_kvpark *park, struct kvw_kvrecord *record)
{
	for (uint32_t i = 0; i < record->count; i++)
		link_out(&record->blocks[i].link);
	count_by(&park->bytes, (uint64_t) - (int64_t)record->bytes);
	count_by(&park->records, (uint64_t)-1);
	free(record);
}

static size_t record_bytes(uint32_t count, size_t payload_bytes)
{
	return sizeof(struct kvw_kvrecord) +
	       count * (sizeof(struct kvw_kvparked_block) + 2 * sizeof(uint64_t)) + payload_bytes;
}

/* Allocates a record with its arrays in place; NULL: out of memory. */
static struct kvw_kvrecord *make_record(uint32_t count, size_t payload_bytes)
{
	size_t bytes = record_bytes(count, payload_bytes);
	struct kvw_kvrecord *record = calloc(1, bytes);

	if (record == NULL)
		return NULL;
	record->bytes = bytes;
	record->count = count;
	record->blocks = (struct kvw_kvparked_block *)(void *)(record + 1);
	record->hashes = (uint64_t *)(void *)(record->blocks + count);
	record->keys = record->hashes + count;
	record->payload = record->keys + count;
	record->payload_bytes = payload_bytes;
	return record;
}

void kvw_kvpark_add(struct kvw_kvpark *park, struct kvw_kvindex_from from,
	const struct kvw_kvindex_blocks *blocks, uint32_t word, uint64_t parent,
	const void *payload, size_t payload_bytes, int64_t now_ns)
{
	struct kvw_kvrecord *record = NULL;
	uint64_t limit = park->bytes_limit;
	bool fits = payload_bytes <= limit && record_bytes(blocks->count, payload_bytes) <= limit;

	while (fits && park->waiting.oldest != NULL &&
		atomic_load_explicit(&park->bytes, memory_order_relaxed) +
				record_bytes(blocks->count, payload_bytes) >
			limit)
		drop_oldest(park);
	if (fits)
		record = make_record(blocks->count, payload_bytes);
	if (record == NULL) {
		kvw_kvpark_count_dropped(park);
		return;
	}
	record->from = from;
	record->lane = kvw_kvlane(from);
	record->word = word;
	record->space = blocks->space;
	record->parent = parent;
	record->parked_ns = now_ns;
	memcpy(record->hashes, blocks->hashes, blocks->count * sizeof(*record->hashes));
	if (payload_bytes > 0)
		memcpy(record->payload, payload, payload_bytes);
	for (uint32_t i = 0; i < record->count; i++) {
		record->blocks[i].link.record = record;
		link_in(&record->blocks[i].link,
			head_of(park, park->hashes, record->lane, record->hashes[i]));
	}
	record->by_parent.record = record;
	link_in(&record->by_parent, head_of(park, park->parents, record->lane, parent));
	list_append(&park->waiting, record);
	count_by(&park->records, 1);
	count_by(&park->bytes, record->bytes);
}

void kvw_kvpark_wake(struct kvw_kvpark *park, uint32_t lane, uint64_t hash)
{
	struct kvw_kvlink *link = NULL;

	if (park->waiting.oldest == NULL)
		return;
	link = *head_of(park, park->parents, lane, hash);
	while (link != NULL) {
		struct kvw_kvrecord *record = link->record;

		link = link->next;
		if (record->lane == lane && record->parent == hash) {
			link_out(&record->by_parent);
			list_remove(&park->waiting, record);
			list_append(&park->ready, record);
		}
	}
}

struct kvw_kvrecord *kvw_kvpark_ready(struct kvw_kvpark *park)
{
	struct kvw_kvrecord *record = park->ready.oldest;

	if (record != NULL)
		list_remove(&park->ready, record);
	return record;
}

bool kvw_kvpark_removed(struct kvw_kvpark *park, uint32_t word, uint64_t hash)
{
	uint32_t lane = kvw_kvword_cell(word) / KVW_TIER_COUNT;
	struct kvw_kvlink *link = NULL;

	if (park->waiting.oldest == NULL)
		return false;
	for (link = *head_of(park, park->hashes, lane, hash); link != NULL; link = link->next) {
		struct kvw_kvparked_block *block = (struct kvw_kvparked_block *)(void *)link;
		struct kvw_kvrecord *record = link->record;

		if (record->word == word && !block->gone &&
			record->hashes[block - record->blocks] == hash) {
			block->gone = true;
			/* removes each link, since the same hash may be parked many times */
			link_out(link);
			return true;
		}
	}
	return false;
}

void kvw_kvpark_expire(struct kvw_kvpark *park, int64_t now_ns)
{
	while (park->waiting.oldest != NULL &&
		now_ns - park->waiting.oldest->parked_ns >= park->wait_ns)
		drop_oldest(park);
}

void kvw_kvrecord_show(const struct kvw_kvrecord *record, struct kvw_kvindex_parked *out)
{
	*out = (struct kvw_kvindex_parked){
		.from = record->from,
		.space = record->space,
		.tier = (enum kvw_tier)(kvw_kvword_cell(record->word) % KVW_TIER_COUNT),
		.count = record->count,
		.hashes = record->hashes,
		.payload = record->payload,
		.payload_bytes = record->payload_bytes,
	};
}
