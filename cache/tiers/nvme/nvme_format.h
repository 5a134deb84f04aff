/*
 * nvme_format.h - the NVMe store's files, byte by byte. Format 1.2.
 *
 * A store is a folder, PATH/FINGERPRINT/RANK, with these files:
 *
 *   format      identity of the store: versions, id, fingerprint, geometry. Written once.
 *   log         the list of chunks. Replaced as a whole now and then (temp, sync, rename).
 *   data-NNNNN  the chunks, in files of one fixed length, in units of 64 KiB.
 *   tenants     wrapped tenant keys, only in a sealed store: a block of 4 KiB each.
 *   lock        held by the store's owner.
 *
 * Numbers are little-endian. Every structure below carries an XXH3 of itself that is seeded with the id of the store,
 * so that structures of other stores fail the check.
 *
 * Versions. A store of another major version is refused and stays untouched. A newer minor version of the same major
 * may have written into bytes that are reserved here: its files are read, and reserved bytes are ignored. The format
 * file has the minor version that created the store; each log and each chunk has the minor version that wrote it, so a
 * store created by 1.1 holds chunks of 1.1 and of 1.2. Version 1.1 reads chunks of 1.2, too: by their whole checksum.
 *
 * format (4096 bytes)
 *     0  "kvtstore"          8  u16 major, u16 minor    12 u32 unit bytes (65536)
 *    16  XXH3-128 of the block with these 16 bytes zero (not seeded)
 *    32  u8[16] store id    48  u8[32] fingerprint      80 u32 rank
 *    88  u64 bytes of a data file
 *
 * log: a block of 4096 bytes, then records of 256 bytes each. Record i lies at 4096 + 256 i and contains i and the
 * number of its log, so records of a former log do not count. A reader skips a record whose checksum fails and reads
 * the following ones: order carries no meaning.
 *     0  "kvtxlog1"          8  u16 major, u16 minor
 *    16  XXH3-128 of the block with these 16 bytes zero, seeded
 *    32  u8[16] store id    48  u64 number of this log
 *    56  u64 generation: all generations given out under this log are above it
 *
 * record (256 bytes)
 *     0  u32 0x5254564b      4  u8 type    5 u8 flags    6 u16 pages of the chunk's header
 *     8  u64 XXH3-64 of the record with these 8 bytes zero, seeded with store, log and i
 *    16  u64 i              24  u64 generation
 *    32  ADD: u8[32] key; 64 u8[32] parent; 96 u8[16] tenant; 112 u64 payload bytes;
 *        120 i64 expires (wall clock, ns; INT64_MAX: never); 128 u64 ttl; 136 u32 tokens;
 *        140 u32 runs; 144 u64 cost; 152 runs * { u32 first unit, u32 units }, at most 4
 *        REMOVE: u8[32] key
 *        ERASE: 32 u32 count; 36 keys, at most 6
 *        TENANT: u8[16] tenant
 *        RESET: nothing
 *
 * Meaning of records, in any order: a chunk is there if there is an ADD of its generation, no REMOVE of that
 * generation, and no ERASE of its key, TENANT of its tenant or RESET with the same or a later generation. If two chunks
 * claim a unit, the later generation has it. ERASE, TENANT and RESET are written twice, in two blocks of the disk: one
 * bad block brings no erased chunk back.
 *
 * chunk: header (pages of 4096 bytes), then the payload, filled up with zeros to 4096. Its units are those of its ADD,
 * one run after another.
 *     0  "kvtchunk"          8  u16 major, u16 minor    12 u32 header bytes
 *    16  XXH3-128 of the header with these 16 bytes zero, seeded
 *    32  u8[16] store id    48  u8[32] key              80 u8[32] fingerprint
 *   112  u8[32] parent     144  u8[16] tenant          160 u64 generation
 *   168  u64 payload bytes 176  u32 tokens             180 u32 rank
 *   184  u32 flags         188  u32 bytes of names     192 i64 expires   200 u64 ttl
 *   208  i64 written (wall clock)
 *   216  XXH3-128 of the payload (plain stores; low, high)
 *   232  seal of the payload: u32 format, u32 key id, u64 tenant key, u8[16] salt, u64 nonce
 *   272  seal of the names, likewise
 *   312  u32 tags of the payload
 *   316  u32 bytes of a piece: 262144, or 0: no checksums of pieces (since 1.2; 1.1 wrote 0)
 *   320  names (sealed if the payload is), then the tag of the names (16) and the
 *        payload's tags (16 each) if it is sealed, then the checksums of pieces (16 each: XXH3-128,
 *        low, high) if there are some
 *
 * Pieces. A plain payload of more than 262144 bytes has a checksum for each 262144 bytes of it, and one for the rest;
 * piece i begins at payload byte 262144 i, so at a page of the disk. Each checksum covers the piece's bytes, not its
 * place: the header, which has its own checksum, gives the place. These checksums prove the payload without the whole
 * checksum, each as soon as its piece was read, in any order. The whole checksum at 216 identifies the chunk's bytes in
 * memory and in other tiers; both are made from one reading of the payload, at its put, or at its write: a payload
 * whose whole checksum then differs from that of the put is not written. A payload of at most 262144 bytes is one
 * piece, whose checksum is the whole one. A sealed payload has no checksums of pieces: its tags prove 1 MiB each. Nor
 * has a payload whose checksums and names do not fit a header (several GiB): the whole checksum proves it.
 *
 * Damage. A header without its checksum, or of another generation: the write did not reach the disk, or the room has
 * another owner by now. A right header and a wrong piece: that piece was torn, or changed on the disk; the rest may
 * still be right. In both cases the chunk is a miss and leaves.
 *
 * names: the engine's names of the chunk's blocks
 *     0  u32 hash bytes, u32 count, u32 block size, u32 flags (1: parent, 2: tokens, 4: LoRA,
 *        16: LMCache's hash, since 1.1)
 *    16  u32 bytes of the LoRA's name, u32 bytes between it and LMCache's hash (0 but in old stores)
 *    24  hashes, parent, tokens (u32 each), LoRA (with a zero at the end), u64 LMCache's hash
 */
#ifndef KVT_NVME_FORMAT_H
#define KVT_NVME_FORMAT_H

#include <stdbool.h>

#include "kvtier/kvtier.h"
#include "memory/extents.h"
#include "protect/seal.h"

#define NVME_MAJOR 1
#define NVME_MINOR 2

#define NVME_PAGE         4096u
#define NVME_UNIT         65536u
#define NVME_RECORD       256u
#define NVME_MAX_RUNS     4
#define NVME_ERASE_KEYS   6
#define NVME_HEADER_FIXED 320u
#define NVME_MAX_HEADER   (256u * 1024)
/* most bytes of one chunk; a larger number in a file is damage */
#define NVME_MAX_BYTES    ((uint64_t)UINT32_MAX * NVME_UNIT)
#define NVME_PIECE_BYTES  (256u * 1024)
#define NVME_SUM_BYTES    16u /* bytes of the checksum of one piece */
/* most tokens of one chunk; a larger number in a file is damage */
#define NVME_MAX_TOKENS   (1u << 24)

/* The format file. */
struct nvme_format {
	uint16_t major, minor;
	uint8_t store_id[16];
	struct kvt_fingerprint fingerprint;
	uint32_t rank;
	uint64_t file_bytes; /* length of each data file: a multiple of NVME_UNIT */
};

/* The first block of a log. */
struct nvme_log_head {
	uint64_t number;
	uint64_t generation;
};

enum nvme_record_type {
	NVME_NONE = 0, /* an unused record, which fills a block up to its end */
	NVME_ADD = 1,
	NVME_REMOVE = 2,
	NVME_ERASE = 3,
	NVME_TENANT = 4,
	NVME_RESET = 5,
};

enum { /* flags of an ADD record */
	NVME_HAS_PARENT = 1,
	NVME_HAS_NAMES = 2,
	/* since format 1.2: the payload has checksums of pieces, unless the chunk's header says
	 * otherwise */
	NVME_HAS_PIECES = 4,
};

/* A record of the log, decoded. */
struct nvme_record {
	enum nvme_record_type type;
	uint8_t flags;
	uint16_t header_pages;
	uint64_t generation;
	struct kvt_key keys[NVME_ERASE_KEYS]; /* ADD and REMOVE use only the first key */
	uint32_t key_count;                   /* ERASE */
	struct kvt_key parent;
	struct kvt_tenant tenant;
	uint64_t bytes;
	int64_t expires_wall_ns;
	uint64_t ttl_ns;
	uint32_t tokens;
	uint64_t cost_ns;
	uint32_t run_count;
	struct kvt_extent runs[NVME_MAX_RUNS];
};

enum { /* flags of a chunk's header */
	NVME_CHUNK_PARENT = 1,
	NVME_CHUNK_SEALED = 2,
	NVME_CHUNK_NAMES = 4,
};

/* A chunk's header, decoded. Its pointers go into the header's bytes. */
struct nvme_chunk {
	uint32_t header_bytes;
	struct kvt_key key;
	struct kvt_fingerprint fingerprint;
	struct kvt_key parent;
	struct kvt_tenant tenant;
	uint64_t generation;
	uint64_t bytes;
	uint32_t tokens;
	uint32_t rank;
	uint32_t flags;
	int64_t expires_wall_ns;
	uint64_t ttl_ns;
	int64_t written_wall_ns;
	struct kvt_checksum checksum;
	struct kvt_seal_header seal, names_seal;
	uint32_t names_bytes;
	uint8_t *names;
	uint8_t *names_tag; /* has KVT_SEAL_TAG_BYTES bytes */
	uint32_t tag_count;
	uint8_t *tags;
	uint32_t piece_count; /* number of checksums of pieces; 0: the header has none */
	uint8_t *piece_sums;
};

/* Each encode function fills a whole block or record. Each decode function returns KVT_OK,
 * KVT_EFORMAT (the bytes belong to another program or another major version) or KVT_ECORRUPT, and
 * bounds all numbers that it reads. */
void nvme_format_encode(const struct nvme_format *f, uint8_t out[NVME_PAGE]);
enum kvt_status nvme_format_decode(
	const uint8_t *in, size_t len, struct nvme_format *out) KVT_MUST_CHECK;

void nvme_log_head_encode(
	const struct nvme_log_head *h, const uint8_t store_id[16], uint8_t out[NVME_PAGE]);
enum kvt_status nvme_log_head_decode(const uint8_t *in, size_t len, const uint8_t store_id[16],
	struct nvme_log_head *out) KVT_MUST_CHECK;

/* Encodes a record but for its number in the log, which nvme_record_stamp adds just before the
 * write. */
void nvme_record_encode(const struct nvme_record *r, uint8_t out[NVME_RECORD]);
void nvme_record_stamp(
	uint8_t record[NVME_RECORD], const uint8_t store_id[16], uint64_t log, uint64_t i);
bool nvme_record_is_tombstone(const uint8_t record[NVME_RECORD]);
/* KVT_MISS: this place in the log is unused. */
enum kvt_status nvme_record_decode(const uint8_t in[NVME_RECORD], const uint8_t store_id[16],
	uint64_t log, uint64_t i, struct nvme_record *out) KVT_MUST_CHECK;

/* Returns the number of checksums of pieces for a plain payload of that many bytes; 0: the payload
 * is a single piece. */
uint64_t nvme_piece_count(uint64_t bytes);
/* Returns the length, in whole pages, of a header for that many bytes of names and payload and
 * checksums of that many pieces. A result above NVME_MAX_HEADER: such a header is not allowed. */
uint64_t nvme_chunk_header_bytes(
	uint64_t names_bytes, uint64_t bytes, bool sealed, uint64_t pieces);
/* Zeroes `out` (header_bytes long), and points the members of *c into it by c's lengths and
 * piece_count. The caller then fills names, tags and checksums in place, and nvme_chunk_finish
 * writes the rest. */
void nvme_chunk_layout(struct nvme_chunk *c, uint8_t *out);
void nvme_chunk_finish(const struct nvme_chunk *c, const uint8_t store_id[16], uint8_t *out);
/* `in` is writable because *out gets pointers into it. If `len` is less than the header_bytes in
 * the header, the result is KVT_ECORRUPT. */
enum kvt_status nvme_chunk_decode(
	uint8_t *in, size_t len, const uint8_t store_id[16], struct nvme_chunk *out) KVT_MUST_CHECK;
/* Stores the checksum of piece i, which is below piece_count. */
void nvme_piece_put(const struct nvme_chunk *c, uint32_t i, const struct kvt_checksum *sum);
struct kvt_checksum nvme_piece_get(const struct nvme_chunk *c, uint32_t i);

/* Returns the length of the engine's names of a chunk as one run of bytes. blocks NULL: there are
 * no names, and the result is 0. */
uint64_t nvme_names_bytes(const struct kvt_blocks *blocks);
void nvme_names_encode(const struct kvt_blocks *blocks, uint8_t *out);
/* Points the members of *blocks into `in`, which must be aligned to 4. */
enum kvt_status nvme_names_decode(
	const uint8_t *in, size_t len, struct kvt_blocks *blocks) KVT_MUST_CHECK;

#endif
