/*
 * nvme_format.c - converts the structures of nvme_format.h to bytes and back.
 *
 * No read byte is trusted: each structure must have its checksum, then every length in it is
 * bounded by the available room, so that nonsense with a right checksum (made by an enemy, or by a
 * defect) only leads to KVT_ECORRUPT.
 */
#include <string.h>
#include <xxhash.h>

#include "tiers/bytes.h"
#include "tiers/nvme/nvme_format.h"

#define RECORD_MAGIC 0x5254564bu

static uint64_t seed_of(const uint8_t store_id[16])
{
	return kvt_get64(store_id) ^ kvt_get64(store_id + 8);
}

/* --- the format file and the log's head ------------------------------------------------------- */

void nvme_format_encode(const struct nvme_format *f, uint8_t out[NVME_PAGE])
{
	memset(out, 0, NVME_PAGE);
	memcpy(out, "kvtstore", 8);
	kvt_put16(out + 8, f->major);
	kvt_put16(out + 10, f->minor);
	kvt_put32(out + 12, NVME_UNIT);
	memcpy(out + 32, f->store_id, 16);
	memcpy(out + 48, f->fingerprint.bytes, 32);
	kvt_put32(out + 80, f->rank);
	kvt_put64(out + 88, f->file_bytes);
	kvt_bytes_stamp(out, NVME_PAGE, 0);
}

enum kvt_status nvme_format_decode(const uint8_t *in, size_t len, struct nvme_format *out)
{
	struct nvme_format f = {0};

	if (len < 12 || memcmp(in, "kvtstore", 8) != 0 || kvt_get16(in + 8) != NVME_MAJOR)
		return KVT_EFORMAT;
	if (len < NVME_PAGE || !kvt_bytes_prove(in, NVME_PAGE, 0))
		return KVT_ECORRUPT;
	f.major = kvt_get16(in + 8);
	f.minor = kvt_get16(in + 10);
	memcpy(f.store_id, in + 32, 16);
	memcpy(f.fingerprint.bytes, in + 48, 32);
	f.rank = kvt_get32(in + 80);
	f.file_bytes = kvt_get64(in + 88);
	if (kvt_get32(in + 12) != NVME_UNIT || f.file_bytes < NVME_UNIT ||
		f.file_bytes % NVME_UNIT != 0 || f.file_bytes / NVME_UNIT > UINT32_MAX)
		return KVT_ECORRUPT;
	*out = f;
	return KVT_OK;
}

void nvme_log_head_encode(
	const struct nvme_log_head *h, const uint8_t store_id[16], uint8_t out[NVME_PAGE])
{
	memset(out, 0, NVME_PAGE);
	memcpy(out, "kvtxlog1", 8);
	kvt_put16(out + 8, NVME_MAJOR);
	kvt_put16(out + 10, NVME_MINOR);
	memcpy(out + 32, store_id, 16);
	kvt_put64(out + 48, h->number);
	kvt_put64(out + 56, h->generation);
	kvt_bytes_stamp(out, NVME_PAGE, seed_of(store_id));
}

enum kvt_status nvme_log_head_decode(
	const uint8_t *in, size_t len, const uint8_t store_id[16], struct nvme_log_head *out)
{
	if (len < NVME_PAGE || memcmp(in, "kvtxlog1", 8) != 0 || kvt_get16(in + 8) != NVME_MAJOR ||
		memcmp(in + 32, store_id, 16) != 0 ||
		!kvt_bytes_prove(in, NVME_PAGE, seed_of(store_id)))
		return KVT_ECORRUPT;
	out->number = kvt_get64(in + 48);
	out->generation = kvt_get64(in + 56);
	return KVT_OK;
}

/* --- records ---------------------------------------------------------------------------------- */

static uint64_t record_sum(
	const uint8_t record[NVME_RECORD], const uint8_t store_id[16], uint64_t log)
{
	uint8_t copy[NVME_RECORD];

	memcpy(copy, record, NVME_RECORD);
	memset(copy + 8, 0, 8);
	return XXH3_64bits_withSeed(
		copy, NVME_RECORD, seed_of(store_id) ^ log * 0x9e3779b97f4a7c15u);
}

static void add_encode(const struct nvme_record *r, uint8_t *out)
{
	memcpy(out + 32, r->keys[0].bytes, KVT_KEY_BYTES);
	memcpy(out + 64, r->parent.bytes, KVT_KEY_BYTES);
	memcpy(out + 96, r->tenant.bytes, sizeof(r->tenant.bytes));
	kvt_put64(out + 112, r->bytes);
	kvt_put64(out + 120, (uint64_t)r->expires_wall_ns);
	kvt_put64(out + 128, r->ttl_ns);
	kvt_put32(out + 136, r->tokens);
	kvt_put32(out + 140, r->run_count);
	kvt_put64(out + 144, r->cost_ns);
	for (uint32_t i = 0; i < r->run_count; i++) {
		kvt_put32(out + 152 + i * 8, r->runs[i].first);
		kvt_put32(out + 156 + i * 8, r->runs[i].count);
	}
}

void nvme_record_encode(const struct nvme_record *r, uint8_t out[NVME_RECORD])
{
	memset(out, 0, NVME_RECORD);
	kvt_put32(out, RECORD_MAGIC);
	out[4] = (uint8_t)r->type;
	out[5] = r->flags;
	kvt_put16(out + 6, r->header_pages);
	kvt_put64(out + 24, r->generation);
	switch (r->type) {
	case NVME_ADD:
		add_encode(r, out);
		break;
	case NVME_REMOVE:
		memcpy(out + 32, r->keys[0].bytes, KVT_KEY_BYTES);
		break;
	case NVME_ERASE:
		kvt_put32(out + 32, r->key_count);
		memcpy(out + 36, r->keys, r->key_count * sizeof(r->keys[0]));
		break;
	case NVME_TENANT:
		memcpy(out + 32, r->tenant.bytes, sizeof(r->tenant.bytes));
		break;
	case NVME_RESET:
	case NVME_NONE:
		break;
	}
}

void nvme_record_stamp(
	uint8_t record[NVME_RECORD], const uint8_t store_id[16], uint64_t log, uint64_t i)
{
	kvt_put64(record + 16, i);
	kvt_put64(record + 8, record_sum(record, store_id, log));
}

bool nvme_record_is_tombstone(const uint8_t record[NVME_RECORD])
{
	return record[4] == NVME_ERASE || record[4] == NVME_TENANT || record[4] == NVME_RESET;
}

static enum kvt_status add_decode(const uint8_t *in, struct nvme_record *r)
{
	uint64_t units = 0;
	uint64_t need;

	memcpy(r->keys[0].bytes, in + 32, KVT_KEY_BYTES);
	memcpy(r->parent.bytes, in + 64, KVT_KEY_BYTES);
	memcpy(r->tenant.bytes, in + 96, sizeof(r->tenant.bytes));
	r->bytes = kvt_get64(in + 112);
	r->expires_wall_ns = (int64_t)kvt_get64(in + 120);
	r->ttl_ns = kvt_get64(in + 128);
	r->tokens = kvt_get32(in + 136);
	r->run_count = kvt_get32(in + 140);
	r->cost_ns = kvt_get64(in + 144);
	if (r->run_count == 0 || r->run_count > NVME_MAX_RUNS || r->bytes == 0 ||
		r->bytes > NVME_MAX_BYTES || r->header_pages == 0 ||
		r->header_pages > NVME_MAX_HEADER / NVME_PAGE)
		return KVT_ECORRUPT;
	for (uint32_t i = 0; i < r->run_count; i++) {
		r->runs[i].first = kvt_get32(in + 152 + i * 8);
		r->runs[i].count = kvt_get32(in + 156 + i * 8);
		if (r->runs[i].count == 0 || r->runs[i].first > UINT32_MAX - r->runs[i].count)
			return KVT_ECORRUPT;
		units += r->runs[i].count;
	}
	need = (uint64_t)r->header_pages * NVME_PAGE + r->bytes;
	return units == (need + NVME_UNIT - 1) / NVME_UNIT ? KVT_OK : KVT_ECORRUPT;
}

enum kvt_status nvme_record_decode(const uint8_t in[NVME_RECORD], const uint8_t store_id[16],
	uint64_t log, uint64_t i, struct nvme_record *out)
{
	struct nvme_record r = {.type = in[4], .flags = in[5], .header_pages = kvt_get16(in + 6)};
	enum kvt_status status = KVT_OK;

	if (kvt_get32(in) == 0)
		return KVT_MISS;
	if (kvt_get32(in) != RECORD_MAGIC || kvt_get64(in + 16) != i ||
		kvt_get64(in + 8) != record_sum(in, store_id, log))
		return KVT_ECORRUPT;
	r.generation = kvt_get64(in + 24);
	switch (in[4]) {
	case NVME_NONE:
	case NVME_RESET:
		break;
	case NVME_ADD:
		status = add_decode(in, &r);
		break;
	case NVME_REMOVE:
		memcpy(r.keys[0].bytes, in + 32, KVT_KEY_BYTES);
		break;
	case NVME_ERASE:
		r.key_count = kvt_get32(in + 32);
		if (r.key_count > NVME_ERASE_KEYS)
			return KVT_ECORRUPT;
		memcpy(r.keys, in + 36, r.key_count * sizeof(r.keys[0]));
		break;
	case NVME_TENANT:
		memcpy(r.tenant.bytes, in + 32, sizeof(r.tenant.bytes));
		break;
	default:
		return KVT_ECORRUPT;
	}
	if (status == KVT_OK)
		*out = r;
	return status;
}

/* --- chunks ----------------------------------------------------------------------------------- */

uint64_t nvme_piece_count(uint64_t bytes)
{
	return bytes <= NVME_PIECE_BYTES ? 0 : (bytes + NVME_PIECE_BYTES - 1) / NVME_PIECE_BYTES;
}

uint64_t nvme_chunk_header_bytes(
	uint64_t names_bytes, uint64_t bytes, bool sealed, uint64_t pieces)
{
	uint64_t need = NVME_HEADER_FIXED + names_bytes + pieces * NVME_SUM_BYTES;

	if (sealed)
		need += KVT_SEAL_TAG_BYTES + (uint64_t)kvt_seal_records(bytes) * KVT_SEAL_TAG_BYTES;
	return (need + NVME_PAGE - 1) / NVME_PAGE * NVME_PAGE;
}

static void chunk_pointers(struct nvme_chunk *c, uint8_t *base)
{
	c->names = base + NVME_HEADER_FIXED;
	c->names_tag = c->names + c->names_bytes;
	c->tags = c->names_tag + KVT_SEAL_TAG_BYTES;
	c->piece_sums = c->names_tag;
	if ((c->flags & NVME_CHUNK_SEALED) != 0)
		c->piece_sums = c->tags + (size_t)c->tag_count * KVT_SEAL_TAG_BYTES;
}

void nvme_chunk_layout(struct nvme_chunk *c, uint8_t *out)
{
	memset(out, 0, c->header_bytes);
	c->tag_count = (c->flags & NVME_CHUNK_SEALED) != 0 ? kvt_seal_records(c->bytes) : 0;
	chunk_pointers(c, out);
}

void nvme_chunk_finish(const struct nvme_chunk *c, const uint8_t store_id[16], uint8_t *out)
{
	memcpy(out, "kvtchunk", 8);
	kvt_put16(out + 8, NVME_MAJOR);
	kvt_put16(out + 10, NVME_MINOR);
	kvt_put32(out + 12, c->header_bytes);
	memcpy(out + 32, store_id, 16);
	memcpy(out + 48, c->key.bytes, KVT_KEY_BYTES);
	memcpy(out + 80, c->fingerprint.bytes, sizeof(c->fingerprint.bytes));
	memcpy(out + 112, c->parent.bytes, KVT_KEY_BYTES);
	memcpy(out + 144, c->tenant.bytes, sizeof(c->tenant.bytes));
	kvt_put64(out + 160, c->generation);
	kvt_put64(out + 168, c->bytes);
	kvt_put32(out + 176, c->tokens);
	kvt_put32(out + 180, c->rank);
	kvt_put32(out + 184, c->flags);
	kvt_put32(out + 188, c->names_bytes);
	kvt_put64(out + 192, (uint64_t)c->expires_wall_ns);
	kvt_put64(out + 200, c->ttl_ns);
	kvt_put64(out + 208, (uint64_t)c->written_wall_ns);
	kvt_put64(out + 216, c->checksum.low);
	kvt_put64(out + 224, c->checksum.high);
	kvt_bytes_put_seal(out + 232, &c->seal);
	kvt_bytes_put_seal(out + 272, &c->names_seal);
	kvt_put32(out + 312, c->tag_count);
	kvt_put32(out + 316, c->piece_count > 0 ? NVME_PIECE_BYTES : 0);
	kvt_bytes_stamp(out, c->header_bytes, seed_of(store_id));
}

void nvme_piece_put(const struct nvme_chunk *c, uint32_t i, const struct kvt_checksum *sum)
{
	uint8_t *to = c->piece_sums + (size_t)i * NVME_SUM_BYTES;

	kvt_put64(to, sum->low);
	kvt_put64(to + 8, sum->high);
}

struct kvt_checksum nvme_piece_get(const struct nvme_chunk *c, uint32_t i)
{
	const uint8_t *from = c->piece_sums + (size_t)i * NVME_SUM_BYTES;

	return (struct kvt_checksum){.low = kvt_get64(from), .high = kvt_get64(from + 8)};
}

enum kvt_status nvme_chunk_decode(
	uint8_t *in, size_t len, const uint8_t store_id[16], struct nvme_chunk *out)
{
	struct nvme_chunk c = {0};
	uint64_t need = NVME_HEADER_FIXED;

	if (len < NVME_PAGE || memcmp(in, "kvtchunk", 8) != 0 || kvt_get16(in + 8) != NVME_MAJOR ||
		memcmp(in + 32, store_id, 16) != 0)
		return KVT_ECORRUPT;
	c.header_bytes = kvt_get32(in + 12);
	if (c.header_bytes < NVME_PAGE || c.header_bytes % NVME_PAGE != 0 || c.header_bytes > len ||
		c.header_bytes > NVME_MAX_HEADER ||
		!kvt_bytes_prove(in, c.header_bytes, seed_of(store_id)))
		return KVT_ECORRUPT;
	memcpy(c.key.bytes, in + 48, KVT_KEY_BYTES);
	memcpy(c.fingerprint.bytes, in + 80, sizeof(c.fingerprint.bytes));
	memcpy(c.parent.bytes, in + 112, KVT_KEY_BYTES);
	memcpy(c.tenant.bytes, in + 144, sizeof(c.tenant.bytes));
	c.generation = kvt_get64(in + 160);
	c.bytes = kvt_get64(in + 168);
	c.tokens = kvt_get32(in + 176);
	c.rank = kvt_get32(in + 180);
	c.flags = kvt_get32(in + 184);
	c.names_bytes = kvt_get32(in + 188);
	c.expires_wall_ns = (int64_t)kvt_get64(in + 192);
	c.ttl_ns = kvt_get64(in + 200);
	c.written_wall_ns = (int64_t)kvt_get64(in + 208);
	c.checksum.low = kvt_get64(in + 216);
	c.checksum.high = kvt_get64(in + 224);
	kvt_bytes_get_seal(in + 232, &c.seal);
	kvt_bytes_get_seal(in + 272, &c.names_seal);
	c.tag_count = kvt_get32(in + 312);
	need += c.names_bytes;
	if ((c.flags & NVME_CHUNK_SEALED) != 0)
		need += KVT_SEAL_TAG_BYTES + (uint64_t)c.tag_count * KVT_SEAL_TAG_BYTES;
	/* Pieces of another length are used by a later minor version: then only the checksum of the
	 * whole payload proves the chunk. */
	if (kvt_get32(in + 316) == NVME_PIECE_BYTES && c.bytes <= NVME_MAX_BYTES) {
		c.piece_count = (uint32_t)nvme_piece_count(c.bytes);
		need += (uint64_t)c.piece_count * NVME_SUM_BYTES;
	}
	if (need > c.header_bytes || c.bytes == 0 || c.bytes > NVME_MAX_BYTES ||
		c.tag_count != ((c.flags & NVME_CHUNK_SEALED) != 0 ? kvt_seal_records(c.bytes) : 0))
		return KVT_ECORRUPT;
	chunk_pointers(&c, in);
	*out = c;
	return KVT_OK;
}

/* --- names ------------------------------------------------------------------------------------ */

#define NAMES_FIXED 24u
enum {
	NAMES_PARENT = 1,
	NAMES_TOKENS = 2,
	NAMES_LORA = 4,
	NAMES_LMCACHE = 16,
};

uint64_t nvme_names_bytes(const struct kvt_blocks *blocks)
{
	uint64_t n = NAMES_FIXED;

	if (blocks == NULL)
		return 0;
	n += (uint64_t)blocks->count * blocks->hash_bytes;
	if (blocks->parent != NULL)
		n += blocks->hash_bytes;
	if (blocks->tokens != NULL)
		n += (uint64_t)blocks->count * blocks->block_size * 4;
	if (blocks->lora_name != NULL)
		n += strlen(blocks->lora_name) + 1;
	if (blocks->has_lmcache_hash)
		n += sizeof(blocks->lmcache_hash);
	return n;
}

void nvme_names_encode(const struct kvt_blocks *blocks, uint8_t *out)
{
	uint8_t *p = out + NAMES_FIXED;
	uint32_t flags = 0;

	memset(out, 0, NAMES_FIXED);
	kvt_put32(out, blocks->hash_bytes);
	kvt_put32(out + 4, blocks->count);
	kvt_put32(out + 8, blocks->block_size);
	memcpy(p, blocks->hashes, (size_t)blocks->count * blocks->hash_bytes);
	p += (size_t)blocks->count * blocks->hash_bytes;
	if (blocks->parent != NULL) {
		memcpy(p, blocks->parent, blocks->hash_bytes);
		p += blocks->hash_bytes;
		flags |= NAMES_PARENT;
	}
	if (blocks->tokens != NULL) {
		for (size_t i = 0; i < (size_t)blocks->count * blocks->block_size; i++, p += 4)
			kvt_put32(p, blocks->tokens[i]);
		flags |= NAMES_TOKENS;
	}
	if (blocks->lora_name != NULL) {
		size_t n = strlen(blocks->lora_name) + 1;

		kvt_put32(out + 16, (uint32_t)n);
		memcpy(p, blocks->lora_name, n);
		p += n;
		flags |= NAMES_LORA;
	}
	if (blocks->has_lmcache_hash) {
		kvt_put64(p, blocks->lmcache_hash);
		flags |= NAMES_LMCACHE;
	}
	kvt_put32(out + 12, flags);
}

/* Returns the text of `n` bytes and a final zero at p, or NULL if these bytes are no text. */
static const char *text_get(const uint8_t *p, uint32_t n)
{
	return n > 0 && memchr(p, 0, n) == p + n - 1 ? (const char *)p : NULL;
}

enum kvt_status nvme_names_decode(const uint8_t *in, size_t len, struct kvt_blocks *blocks)
{
	struct kvt_blocks b = {0};
	uint32_t flags, lora, skipped;
	uint64_t need, tokens;
	const uint8_t *p = in + NAMES_FIXED;

	if (len < NAMES_FIXED)
		return KVT_ECORRUPT;
	b.hash_bytes = kvt_get32(in);
	b.count = kvt_get32(in + 4);
	b.block_size = kvt_get32(in + 8);
	flags = kvt_get32(in + 12);
	lora = kvt_get32(in + 16);
	skipped = kvt_get32(in + 20);
	tokens = (flags & NAMES_TOKENS) != 0 ? (uint64_t)b.count * b.block_size : 0;
	if (b.hash_bytes > 32 || b.hash_bytes % 4 != 0 || tokens > NVME_MAX_TOKENS ||
		(b.count > 0 && b.hash_bytes == 0))
		return KVT_ECORRUPT;
	need = NAMES_FIXED + (uint64_t)b.count * b.hash_bytes + tokens * 4 + (uint64_t)lora + skipped;
	if ((flags & NAMES_PARENT) != 0)
		need += b.hash_bytes;
	if ((flags & NAMES_LMCACHE) != 0)
		need += sizeof(b.lmcache_hash);
	if (need > len)
		return KVT_ECORRUPT;
	b.hashes = p;
	p += (size_t)b.count * b.hash_bytes;
	if ((flags & NAMES_PARENT) != 0) {
		b.parent = p;
		p += b.hash_bytes;
	}
	if ((flags & NAMES_TOKENS) != 0)
		b.tokens = (const uint32_t *)(const void *)p;
	p += tokens * 4;
	b.lora_name = (flags & NAMES_LORA) != 0 ? text_get(p, lora) : NULL;
	b.has_lmcache_hash = (flags & NAMES_LMCACHE) != 0;
	b.lmcache_hash = b.has_lmcache_hash ? kvt_get64(p + lora + skipped) : 0;
	if (((flags & NAMES_LORA) != 0) != (b.lora_name != NULL))
		return KVT_ECORRUPT;
	*blocks = b;
	return KVT_OK;
}
