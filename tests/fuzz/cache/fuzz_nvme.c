/*
 * fuzz_nvme.c - the bytes are pieces of a store on disk, damaged or made by an enemy.
 *
 * The first byte says which piece: format file, head of a log, a record, a chunk's header with its
 * names, names alone, or a whole log that is replayed. Checksums are put right first where the
 * second byte is odd, since a fuzzer does not find them and what lies behind them must hold too.
 * What decodes is encoded again and must decode to the same.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define XXH_STATIC_LINKING_ONLY
#include <xxhash.h>

#include "tiers/nvme/nvme_format.h"
#include "tiers/nvme/nvme_replay.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MUST(x)                                                                                    \
	do {                                                                                       \
		if (!(x)) {                                                                        \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #x);                    \
			abort();                                                                   \
		}                                                                                  \
	} while (0)

static const uint8_t store_id[16] = "the fuzzed store";

static uint64_t le64(const uint8_t *p)
{
	uint64_t v;

	memcpy(&v, p, 8);
	return v;
}

/* Puts the checksum of a block right. */
static void prove(uint8_t *block, size_t len, bool seeded)
{
	uint64_t seed = seeded ? le64(store_id) ^ le64(store_id + 8) : 0;
	XXH128_hash_t sum;

	memset(block + 16, 0, 16);
	sum = XXH3_128bits_withSeed(block, len, seed);
	memcpy(block + 16, &sum.low64, 8);
	memcpy(block + 24, &sum.high64, 8);
}

/* A zeroed copy of at least `least` bytes, aligned. */
static uint8_t *copy_of(const uint8_t *data, size_t size, size_t least, size_t *len)
{
	void *p = NULL;

	*len = size < least ? least : size;
	MUST(posix_memalign(&p, 4096, *len) == 0);
	memset(p, 0, *len);
	if (size > 0)
		memcpy(p, data, size);
	return p;
}

static void do_format(uint8_t *p, size_t len, bool right)
{
	struct nvme_format f, again;
	uint8_t block[NVME_PAGE];

	if (right) {
		memcpy(p, "kvtstore\1\0", 10);
		prove(p, NVME_PAGE, false);
	}
	if (nvme_format_decode(p, len, &f) != KVT_OK)
		return;
	nvme_format_encode(&f, block);
	MUST(nvme_format_decode(block, sizeof(block), &again) == KVT_OK);
	MUST(memcmp(&f.fingerprint, &again.fingerprint, sizeof(f.fingerprint)) == 0);
	MUST(f.file_bytes == again.file_bytes && f.rank == again.rank);
}

static void do_head(uint8_t *p, size_t len, bool right)
{
	struct nvme_log_head h;

	if (right) {
		memcpy(p, "kvtxlog1\1\0", 10);
		memcpy(p + 32, store_id, 16);
		prove(p, NVME_PAGE, true);
	}
	if (nvme_log_head_decode(p, len, store_id, &h) == KVT_OK)
		MUST(h.number == le64(p + 48) && h.generation == le64(p + 56));
}

static void check_record(const struct nvme_record *r)
{
	uint8_t bytes[NVME_RECORD];
	struct nvme_record again;
	uint64_t units = 0;

	for (uint32_t i = 0; r->type == NVME_ADD && i < r->run_count; i++)
		units += r->runs[i].count;
	if (r->type == NVME_ADD)
		MUST(r->run_count <= NVME_MAX_RUNS && units * NVME_UNIT > r->bytes);
	MUST(r->key_count <= NVME_ERASE_KEYS);
	nvme_record_encode(r, bytes);
	nvme_record_stamp(bytes, store_id, 3, 4);
	MUST(nvme_record_decode(bytes, store_id, 3, 4, &again) == KVT_OK);
	MUST(again.type == r->type && again.generation == r->generation);
}

static void do_record(uint8_t *p, bool right)
{
	struct nvme_record r;

	if (right) {
		memcpy(p, "KVTR", 4);
		nvme_record_stamp(p, store_id, 1, 2);
	}
	if (nvme_record_decode(p, store_id, 1, 2, &r) == KVT_OK)
		check_record(&r);
}

static void do_names(const uint8_t *p, size_t len)
{
	struct kvt_blocks blocks;
	uint64_t bytes, sum = 0;
	uint8_t *again;

	if (nvme_names_decode(p, len, &blocks) != KVT_OK)
		return;
	for (size_t i = 0; i < (size_t)blocks.count * blocks.hash_bytes; i++)
		sum += blocks.hashes[i];
	for (size_t i = 0; blocks.parent != NULL && i < blocks.hash_bytes; i++)
		sum += blocks.parent[i];
	for (size_t i = 0; blocks.tokens != NULL && i < (size_t)blocks.count * blocks.block_size;
		i++)
		sum += blocks.tokens[i];
	sum += blocks.lora_name != NULL ? strlen(blocks.lora_name) : 0;
	bytes = nvme_names_bytes(&blocks);
	MUST(bytes <= len);
	again = malloc(bytes);
	MUST(again != NULL || sum == UINT64_MAX);
	nvme_names_encode(&blocks, again);
	MUST(nvme_names_decode(again, bytes, &blocks) == KVT_OK);
	free(again);
}

/* A header is written again with what it has, and is the same. */
static void check_chunk(const struct nvme_chunk *c)
{
	struct nvme_chunk copy = *c, again;
	uint8_t *p;
	size_t len;

	if ((c->flags & NVME_CHUNK_SEALED) != 0 && c->piece_count > 0)
		return; /* never written so */
	p = copy_of(NULL, 0, c->header_bytes, &len);
	nvme_chunk_layout(&copy, p);
	memcpy(copy.names, c->names, c->names_bytes);
	if (c->tag_count > 0)
		memcpy(copy.tags, c->tags, (size_t)c->tag_count * KVT_SEAL_TAG_BYTES);
	for (uint32_t i = 0; i < c->piece_count; i++) {
		struct kvt_checksum piece = nvme_piece_get(c, i);

		nvme_piece_put(&copy, i, &piece);
	}
	nvme_chunk_finish(&copy, store_id, p);
	MUST(nvme_chunk_decode(p, len, store_id, &again) == KVT_OK);
	MUST(again.bytes == c->bytes && again.generation == c->generation);
	MUST(again.names_bytes == c->names_bytes && again.tag_count == c->tag_count);
	MUST(again.piece_count == c->piece_count);
	MUST(memcmp(again.names, c->names, c->names_bytes) == 0);
	for (uint32_t i = 0; i < c->piece_count; i++) {
		struct kvt_checksum a = nvme_piece_get(c, i), b = nvme_piece_get(&again, i);

		MUST(a.low == b.low && a.high == b.high);
	}
	free(p);
}

static void do_chunk(uint8_t *p, size_t len, bool right)
{
	uint32_t header = (uint32_t)(len / NVME_PAGE * NVME_PAGE);
	struct nvme_chunk c;
	uint64_t sum = 0;

	if (right) {
		memcpy(p, "kvtchunk\1\0", 10);
		memcpy(p + 12, &header, 4);
		memcpy(p + 32, store_id, 16);
		prove(p, header, true);
	}
	if (nvme_chunk_decode(p, len, store_id, &c) != KVT_OK)
		return;
	MUST(c.header_bytes <= len);
	check_chunk(&c);
	for (uint32_t i = 0; i < c.tag_count * KVT_SEAL_TAG_BYTES; i++)
		sum += c.tags[i];
	MUST(c.piece_count == 0 || c.piece_count == nvme_piece_count(c.bytes));
	for (uint32_t i = 0; i < c.piece_count; i++) {
		struct kvt_checksum piece = nvme_piece_get(&c, i);

		sum += piece.low ^ piece.high;
		nvme_piece_put(&c, i, &piece); /* as it was, within the header */
	}
	MUST(sum != UINT64_MAX || c.piece_count > 0);
	do_names(c.names, c.names_bytes);
}

/* --- a whole log ------------------------------------------------------------------------------- */

/* A layer with one file. */
struct one_file {
	struct kvt_io base;
	uint8_t *bytes;
	size_t len;
	struct kvt_io_op *op;
};

static enum kvt_status one_open(struct kvt_io *io, const char *name, enum kvt_open_how how,
	bool direct, struct kvt_file **file)
{
	(void)name;
	(void)how;
	(void)direct;
	*file = (struct kvt_file *)io;
	return KVT_OK;
}

static void one_close(struct kvt_io *io, struct kvt_file *file)
{
	(void)io;
	(void)file;
}

static enum kvt_status one_info(
	struct kvt_io *io, struct kvt_file *file, struct kvt_io_file_info *out)
{
	(void)file;
	*out = (struct kvt_io_file_info){.bytes = ((struct one_file *)io)->len, .alignment = 1};
	return KVT_OK;
}

static void one_submit(struct kvt_io *io, struct kvt_io_op *list)
{
	((struct one_file *)io)->op = list;
}

static size_t one_reap(struct kvt_io *io, struct kvt_io_op **out, size_t max, int64_t wait_ns)
{
	struct one_file *f = (struct one_file *)io;

	(void)max;
	(void)wait_ns;
	MUST(f->op->offset + f->op->pieces[0].iov_len <= f->len);
	memcpy(f->op->pieces[0].iov_base, f->bytes + f->op->offset, f->op->pieces[0].iov_len);
	f->op->result = (int64_t)f->op->pieces[0].iov_len;
	*out = f->op;
	return 1;
}

static void do_log(uint8_t *p, size_t len, bool right)
{
	static const struct kvt_io_ops ops = {
		.open = one_open,
		.close = one_close,
		.info = one_info,
		.submit = one_submit,
		.reap = one_reap,
	};
	struct one_file f = {.base.ops = &ops, .bytes = p, .len = len};
	struct nvme_replay replay;
	struct nvme_record r;

	do_head(p, len, true);
	for (size_t at = NVME_PAGE; right && at + NVME_RECORD <= len; at += NVME_RECORD) {
		memcpy(p + at, "KVTR", 4);
		nvme_record_stamp(p + at, store_id, le64(p + 48), (at - NVME_PAGE) / NVME_RECORD);
	}
	if (nvme_replay_open(&replay, &f.base, store_id) == KVT_OK) {
		for (uint64_t i = 0; i < replay.add_count; i++) {
			if (!nvme_replay_add(&replay, i, 1000, &r))
				continue;
			check_record(&r);
			MUST(r.expires_wall_ns > 1000);
			MUST(!replay.was_reset || r.generation > replay.reset);
			MUST(nvme_replay_has(&replay, r.generation, 1000));
		}
	}
	nvme_replay_close(&replay);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	bool right;
	size_t len;
	uint8_t *p;

	if (size < 2)
		return 0;
	right = (data[1] & 1) != 0;
	p = copy_of(data + 2, size - 2, NVME_PAGE, &len);
	switch (data[0] % 6) {
	case 0:
		do_format(p, len, right);
		break;
	case 1:
		do_head(p, len, right);
		break;
	case 2:
		do_record(p, right);
		break;
	case 3:
		do_chunk(p, len, right);
		break;
	case 4:
		do_names(p, len);
		break;
	default:
		do_log(p, len, right);
		break;
	}
	free(p);
	return 0;
}
