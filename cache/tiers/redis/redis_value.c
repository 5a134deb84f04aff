/*
 * redis_value.c - encodes and decodes footers and names of values in Redis; redis_value.h describes
 * every byte.
 */
#include "tiers/redis/redis_value.h"

#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "tiers/bytes.h"

static const char magic[8] = "kvtvalue";

/* --- footer
 * ------------------------------------------------------------------------------------ */

void redis_footer_encode(const struct redis_footer *f, uint8_t out[REDIS_FOOTER])
{
	memset(out, 0, REDIS_FOOTER);
	memcpy(out, magic, sizeof(magic));
	kvt_put16(out + 8, REDIS_MAJOR);
	kvt_put16(out + 10, REDIS_MINOR);
	kvt_put32(out + 12, REDIS_FOOTER);
	memcpy(out + 32, f->key.bytes, 32);
	memcpy(out + 64, f->fingerprint.bytes, 32);
	memcpy(out + 96, f->parent.bytes, 32);
	memcpy(out + 128, f->tenant.bytes, 16);
	kvt_put64(out + 144, f->bytes);
	kvt_put64(out + 152, f->part_payload);
	kvt_put32(out + 160, f->part_bytes);
	kvt_put32(out + 164, f->parts);
	kvt_put32(out + 168, f->part);
	kvt_put32(out + 172, f->tokens);
	kvt_put64(out + 176, f->writer);
	kvt_put64(out + 184, f->epoch);
	kvt_put64(out + 192, f->tenant_epoch);
	kvt_put64(out + 200, f->ttl_ns);
	kvt_put64(out + 208, (uint64_t)f->written_wall_ns);
	kvt_put64(out + 216, f->checksum.low);
	kvt_put64(out + 224, f->checksum.high);
	kvt_bytes_put_seal(out + 232, &f->seal);
	kvt_bytes_put_seal(out + 272, &f->names_seal);
	kvt_put32(out + 312, f->names_bytes);
	kvt_put32(out + 316, f->tag_count);
	kvt_put32(out + 320, f->flags);
	kvt_put64(out + 328, f->extra_sum);
	kvt_bytes_stamp(out, REDIS_FOOTER, 0);
}

/* Returns whether the footer's numbers are consistent. */
static bool agrees(const struct redis_footer *f)
{
	bool sealed = (f->flags & REDIS_SEALED) != 0;

	if (f->bytes == 0 || f->part_bytes == 0 || f->parts > REDIS_MAX_PARTS ||
		f->tokens > REDIS_MAX_TOKENS)
		return false;
	if (f->parts != redis_part_count(f->bytes, f->part_bytes) || f->part >= f->parts ||
		f->part_payload != redis_part_length(f->bytes, f->part_bytes, f->part))
		return false;
	if (f->names_bytes > REDIS_MAX_EXTRA || f->names_bytes % 4 != 0 ||
		f->tag_count > REDIS_MAX_EXTRA / KVT_SEAL_TAG_BYTES ||
		(uint64_t)f->names_bytes + (uint64_t)f->tag_count * KVT_SEAL_TAG_BYTES >
			REDIS_MAX_EXTRA)
		return false;
	return f->tag_count == (sealed ? kvt_seal_records(f->bytes) : 0) &&
	       (!sealed || f->names_bytes == 0 || f->names_bytes > KVT_SEAL_TAG_BYTES);
}

enum kvt_status redis_footer_decode(const uint8_t *in, size_t len, struct redis_footer *out)
{
	struct redis_footer f;

	if (len < REDIS_FOOTER || memcmp(in, magic, sizeof(magic)) != 0)
		return KVT_EFORMAT;
	if (!kvt_bytes_prove(in, REDIS_FOOTER, 0))
		return KVT_ECORRUPT;
	if (kvt_get16(in + 8) != REDIS_MAJOR)
		return KVT_EFORMAT;
	memcpy(f.key.bytes, in + 32, 32);
	memcpy(f.fingerprint.bytes, in + 64, 32);
	memcpy(f.parent.bytes, in + 96, 32);
	memcpy(f.tenant.bytes, in + 128, 16);
	f.bytes = kvt_get64(in + 144);
	f.part_payload = kvt_get64(in + 152);
	f.part_bytes = kvt_get32(in + 160);
	f.parts = kvt_get32(in + 164);
	f.part = kvt_get32(in + 168);
	f.tokens = kvt_get32(in + 172);
	f.writer = kvt_get64(in + 176);
	f.epoch = kvt_get64(in + 184);
	f.tenant_epoch = kvt_get64(in + 192);
	f.ttl_ns = kvt_get64(in + 200);
	f.written_wall_ns = (int64_t)kvt_get64(in + 208);
	f.checksum.low = kvt_get64(in + 216);
	f.checksum.high = kvt_get64(in + 224);
	kvt_bytes_get_seal(in + 232, &f.seal);
	kvt_bytes_get_seal(in + 272, &f.names_seal);
	f.names_bytes = kvt_get32(in + 312);
	f.tag_count = kvt_get32(in + 316);
	f.flags = kvt_get32(in + 320);
	f.extra_sum = kvt_get64(in + 328);
	if (kvt_get32(in + 12) != REDIS_FOOTER || !agrees(&f))
		return KVT_ECORRUPT;
	*out = f;
	return KVT_OK;
}

bool redis_footer_is(const struct redis_footer *f, const struct kvt_fingerprint *fingerprint,
	const struct kvt_key *key)
{
	return memcmp(&f->key, key, sizeof(*key)) == 0 &&
	       memcmp(&f->fingerprint, fingerprint, sizeof(*fingerprint)) == 0;
}

struct kvt_tier_known redis_footer_known(const struct redis_footer *f)
{
	return (struct kvt_tier_known){
		.bytes = f->bytes,
		.checksum = f->checksum,
		.tokens = f->tokens,
		.extra = f->part_bytes,
		.tenant = f->tenant,
		.has_parent = (f->flags & REDIS_PARENT) != 0,
		.parent = f->parent,
		.ttl_ns = f->ttl_ns,
	};
}

uint64_t redis_extra_sum(const void *extra, uint64_t bytes)
{
	return bytes == 0 ? 0 : XXH3_64bits(extra, bytes);
}

/* --- parts
 * ------------------------------------------------------------------------------------- */

uint32_t redis_part_count(uint64_t bytes, uint32_t part_bytes)
{
	uint64_t parts;

	if (bytes == 0 || part_bytes == 0)
		return 0;
	parts = bytes / part_bytes + (bytes % part_bytes != 0);
	return parts > UINT32_MAX ? UINT32_MAX : (uint32_t)parts;
}

uint64_t redis_part_length(uint64_t bytes, uint32_t part_bytes, uint32_t part)
{
	uint64_t from = (uint64_t)part * part_bytes;

	if (from >= bytes)
		return 0;
	return bytes - from < part_bytes ? bytes - from : part_bytes;
}

/* --- names
 * ------------------------------------------------------------------------------------- */

/* "kvt1:FINGERPRINT:" */
static char *put_prefix(char *to, const struct kvt_fingerprint *f)
{
	memcpy(to, "kvt1:", 5);
	to = kvt_bytes_put_hex(to + 5, f->bytes, 16);
	*to++ = ':';
	return to;
}

size_t redis_chunk_name(const struct kvt_fingerprint *f, const struct kvt_key *key, uint32_t part,
	char out[REDIS_KEY_ROOM])
{
	char *at = put_prefix(out, f);

	*at++ = '{';
	at = kvt_bytes_put_hex(at, key->bytes, sizeof(key->bytes));
	*at++ = '}';
	*at = '\0';
	if (part > 0)
		at += snprintf(at, (size_t)(out + REDIS_KEY_ROOM - at), ":%u", part);
	return (size_t)(at - out);
}

static size_t tenant_name(const struct kvt_fingerprint *f, const char *what,
	const struct kvt_tenant *tenant, char out[REDIS_KEY_ROOM])
{
	char *at = stpcpy(put_prefix(out, f), what);

	at = kvt_bytes_put_hex(at, tenant->bytes, sizeof(tenant->bytes));
	return (size_t)(at - out);
}

size_t redis_tenant_key_name(
	const struct kvt_fingerprint *f, const struct kvt_tenant *tenant, char out[REDIS_KEY_ROOM])
{
	return tenant_name(f, "tenantkey:", tenant, out);
}

size_t redis_account_name(
	const struct kvt_fingerprint *f, const struct kvt_tenant *tenant, char out[REDIS_KEY_ROOM])
{
	return tenant_name(f, "account:", tenant, out);
}
