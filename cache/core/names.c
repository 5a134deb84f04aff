/*
 * names.c - the names of chunks in lower tiers, made of key and present generation; generations.c
 * says why.
 */
#define OPENSSL_SUPPRESS_DEPRECATED /* for SHA256(), which allocates nothing and cannot fail */
#include <openssl/sha.h>

#include "core/names.h"

static void make_mask(const struct kvt_generations *g, uint32_t slot, uint32_t version, struct kvt_name_mask *out)
{
	struct {
		char domain[16];
		uint8_t id[KVT_TABLE_ID_BYTES];
		/* in the machine's byte order: names are never compared across byte orders */
		uint64_t generation, of_version;
		uint32_t slot, version;
	} in = {.domain = "kvtier name 1"};
	uint8_t digest[SHA256_DIGEST_LENGTH];

	memcpy(in.id, g->id, sizeof(in.id));
	in.generation = g->at[slot];
	in.of_version = g->at[version];
	in.slot = slot;
	in.version = version;
	(void)SHA256((const uint8_t *)&in, sizeof(in), digest);
	memcpy(out->bytes, digest, sizeof(out->bytes));
	out->slot = slot;
	out->set = true;
}

/* Both ways. */
static bool rename_key(struct kvt *k, const struct kvt_key *from, struct kvt_key *to)
{
	struct kvt_generations *g = &k->generations;
	uint32_t slot = kvt_key_slot(from);
	struct kvt_name_mask *mask;
	bool known;

	*to = *from;
	if (g->home == NULL)
		return true;
	pthread_mutex_lock(&g->lock);
	known = g->known;
	mask = &g->masks[slot % KVT_NAME_MASKS];
	if (known && (!mask->set || mask->slot != slot))
		make_mask(g, slot, kvt_version_slot(&k->config.fingerprint), mask);
	for (size_t i = 0; known && i < sizeof(mask->bytes); i++)
		to->bytes[i] ^= mask->bytes[i];
	pthread_mutex_unlock(&g->lock);
	return known;
}

bool kvt_name_below(struct kvt *k, const struct kvt_key *key, struct kvt_key *name)
{
	return rename_key(k, key, name);
}

void kvt_name_above(struct kvt *k, const struct kvt_key *name, struct kvt_key *key)
{
	(void)rename_key(k, name, key);
}

bool kvt_names_known(struct kvt *k)
{
	struct kvt_generations *g = &k->generations;
	bool known;

	if (g->home == NULL)
		return true;
	pthread_mutex_lock(&g->lock);
	known = g->known;
	pthread_mutex_unlock(&g->lock);
	return known;
}

/* --- freshness
 * ---------------------------------------------------------------------------------- */

bool kvt_names_fresh(struct kvt *k)
{
	struct kvt_generations *g = &k->generations;
	int64_t now_ns;

	if (g->home == NULL || g->home->tier == NULL)
		return true;
	now_ns = kvt_clock(k);
	return now_ns < atomic_load(&g->fresh_until_ns) || now_ns < atomic_load(&g->tried_until_ns);
}

bool kvt_names_show(struct kvt *k, const struct kvt_lower *b)
{
	struct kvt_generations *g = &k->generations;
	int64_t now_ns;

	if (g->home == NULL)
		return true;
	now_ns = kvt_clock(k);
	if (now_ns < atomic_load(&g->fresh_until_ns))
		return true;
	return b != g->home && !atomic_load(&g->refused) &&
	       now_ns < atomic_load(&g->tried_until_ns);
}
