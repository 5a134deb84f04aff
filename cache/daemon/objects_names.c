/*
 * objects_names.c - an object's name, its key in libkvtier, and where libkvtier has it.
 */
#include <string.h>

#define OPENSSL_SUPPRESS_DEPRECATED /* SHA256_*() allocate nothing and cannot fail */
#include <openssl/sha.h>

#include "chunk/slots.h"
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

/* A field with its length, so that no two lists of fields give the same input. */
static void put_field(SHA256_CTX *sha, const void *bytes, size_t len)
{
	uint8_t length[8];

	for (size_t i = 0; i < sizeof(length); i++)
		length[i] = (uint8_t)((uint64_t)len >> (8 * i));
	(void)SHA256_Update(sha, length, sizeof(length));
	(void)SHA256_Update(sha, bytes, len);
}

void kvt_object_key(const struct kvt_object_name *name, struct kvt_key *out)
{
	static const char domain[] = "kvtierd object 1";
	struct kvt_tenant bucket;
	SHA256_CTX sha;

	(void)SHA256_Init(&sha);
	put_field(&sha, domain, sizeof(domain) - 1);
	put_field(&sha, name->bucket.data, name->bucket.len);
	put_field(&sha, name->key.data, name->key.len);
	(void)SHA256_Final(out->bytes, &sha);
	/* An erase of the bucket reaches the object in shared tiers, too, whose tenant it may be of. */
	kvt_tenant_of(name->bucket.data, name->bucket.len, &bucket);
	kvt_key_take_slot(out, &bucket);
}

struct kvt_stripe *kvt_object_stripe(struct kvt_objects *o, const struct kvt_key *key)
{
	return &o->stripes[key->bytes[0] % KVT_STRIPES];
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

bool kvt_object_no_tier_is(struct kvt_objects *o, uint32_t state)
{
	struct kvt_stats stats = {.size = sizeof(stats)};

	return kvt_stats(o->cache, &stats) == KVT_OK && stats.tiers[KVT_TIER_NVME].state != state &&
	       stats.tiers[KVT_TIER_L2].state != state;
}

bool kvt_object_tiers_work(struct kvt_objects *o)
{
	return kvt_object_no_tier_is(o, KVT_TIER_PAUSED) && kvt_object_no_tier_is(o, KVT_TIER_BROKEN);
}
