/*
 * objects_names.c - an object's name, its key in libkvtier, and where libkvtier has it.
 *
 *	D   = SHA-256(domain | bucket | key)
 *	key = SHA-256(D | the table's id | number of the bucket's slot | number of the object's slot)
 *
 * An object that is replaced by other bytes, or erased, gets another number, and with it another
 * key: no request asks any more for what tiers have, or receive late, under the former key. The
 * numbers are in the table of generations (chunk/slots.h): kvtierd's own, or the shared tier's,
 * which other daemons use, too. An object's slot is D's first two bytes; other objects with the
 * same slot become misses with it. A bucket's slot is that of its tenant, so that an erase of the
 * bucket is one change, too.
 *
 * The id is included only with kvtierd's own table, since names in lower tiers already contain that
 * of a shared one.
 */
#include <string.h>

#define OPENSSL_SUPPRESS_DEPRECATED /* for SHA256_*(), which allocate nothing and cannot fail */
#include <openssl/sha.h>

#include "chunk/slots.h"
#include "core/generations.h"
#include "core/lower.h"
#include "daemon/objects_parts.h"

static bool text_valid(struct kvw_slice text, size_t most)
{
	return text.data != NULL && text.len > 0 && text.len <= most &&
	       memchr(text.data, '\0', text.len) == NULL;
}

bool kvt_object_name_valid(const struct kvt_object_name *name)
{
	return text_valid(name->bucket, KVT_BUCKET_MOST) &&
	       text_valid(name->key, KVT_OBJECT_KEY_MOST);
}

struct kvt_object_name kvt_object_name_copy(const struct kvt_object_name *name, char *to)
{
	memcpy(to, name->bucket.data, name->bucket.len);
	memcpy(to + name->bucket.len, name->key.data, name->key.len);
	return (struct kvt_object_name){
		{to, name->bucket.len}, {to + name->bucket.len, name->key.len}};
}

/* Hashes a field after its length, so that no two lists of fields give the same input. */
static void put_field(SHA256_CTX *sha, const void *bytes, size_t len)
{
	uint8_t length[8];

	for (size_t i = 0; i < sizeof(length); i++)
		length[i] = (uint8_t)((uint64_t)len >> (8 * i));
	(void)SHA256_Update(sha, length, sizeof(length));
	(void)SHA256_Update(sha, bytes, len);
}

static void digest_of(const struct kvt_object_name *name, uint8_t out[SHA256_DIGEST_LENGTH])
{
	static const char domain[] = "kvtierd object 2";
	SHA256_CTX sha;

	(void)SHA256_Init(&sha);
	put_field(&sha, domain, sizeof(domain) - 1);
	put_field(&sha, name->bucket.data, name->bucket.len);
	put_field(&sha, name->key.data, name->key.len);
	(void)SHA256_Final(out, &sha);
}

static uint32_t slot_of(const uint8_t digest[SHA256_DIGEST_LENGTH])
{
	return KVT_OBJECTS_AT + ((uint32_t)digest[0] | (uint32_t)digest[1] << 8);
}

uint32_t kvt_object_slot(const struct kvt_object_name *name)
{
	uint8_t digest[SHA256_DIGEST_LENGTH];

	digest_of(name, digest);
	return slot_of(digest);
}

void kvt_object_key(struct kvt_objects *o, const struct kvt_object_name *name, struct kvt_key *out)
{
	struct {
		uint8_t digest[SHA256_DIGEST_LENGTH], id[KVT_TABLE_ID_BYTES];
		uint64_t numbers[2]; /* in the machine's byte order, as in core/names.c */
	} in = {.numbers = {0}};
	struct kvt_tenant bucket;
	uint32_t slots[2];

	digest_of(name, in.digest);
	kvt_tenant_of(name->bucket.data, name->bucket.len, &bucket);
	slots[0] = kvt_tenant_slot(&bucket);
	slots[1] = slot_of(in.digest);
	if (o->shared)
		kvt_table_numbers(o->cache, slots, 2, in.numbers);
	else
		kvt_generation_table_numbers(o->generations, slots, 2, in.numbers, in.id);
	(void)SHA256((const uint8_t *)&in, sizeof(in), out->bytes);
	/* With the bucket's slot in the key, an erase of the bucket also reaches the object in
	 * shared tiers. */
	kvt_key_take_slot(out, &bucket);
}

uint8_t kvt_object_tier(struct kvt_objects *o, const struct kvt_key *key)
{
	struct kvt_lookup found;
	uint8_t tier = KVT_TIER_NONE;

	if (kvt_lookup(o->cache, key, 1, KVT_ALL_TIERS, &tier, &found) != KVT_OK)
		return KVT_TIER_NONE;
	return tier;
}

bool kvt_object_is_nowhere(struct kvt_objects *o, const struct kvt_key *key)
{
	return kvt_object_tier(o, key) == KVT_TIER_NONE && !kvt_lower_may_have(o->cache, key);
}

bool kvt_object_is_known(struct kvt_objects *o, const struct kvt_key *key)
{
	return kvt_object_tier(o, key) != KVT_TIER_NONE || kvt_lower_is_known(o->cache, key);
}

static bool no_tier_is(struct kvt_objects *o, uint32_t state)
{
	struct kvt_stats stats = {.size = sizeof(stats)};

	return kvt_stats(o->cache, &stats) == KVT_OK && stats.tiers[KVT_TIER_NVME].state != state &&
	       stats.tiers[KVT_TIER_L2].state != state;
}

bool kvt_object_tiers_work(struct kvt_objects *o)
{
	return no_tier_is(o, KVT_TIER_PAUSED) && no_tier_is(o, KVT_TIER_BROKEN);
}
