/*
 * text_kernel.h - the inner loops over prompt text, written once for every instruction set.
 *
 * Included by text_avx2.c and text_base.c after they have defined, for 64 bytes at p,
 *
 *	struct block load(const char *p)
 *	uint64_t backslashes(const struct block *)   one bit per byte
 *	uint64_t stops(const struct block *)         `"` and control characters
 *	uint64_t short_escapes(const struct block *) `" \ b f n r t`: after a backslash, canonical
 *	void id_masks(const struct block *, uint64_t *digits, *commas, *spaces)
 *	bool has_special(const struct block *)       any of these
 *
 * and KERNEL_UNESCAPE(text, p, end), which decodes a run of \uXXXX or returns p; with KERNEL_HASHES
 * also struct chunk_hash and chunk_hash_begin, _add, _keep (chunk_hash.h), so that a block is read
 * once for both its end and its hash.
 *
 * One subtraction for 64 bytes computes which bytes are escaped (an odd run of backslashes carries
 * into the byte after it), without a branch per backslash: source code has an escape every twenty
 * bytes, at unpredictable places.
 */
#include <endian.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

/* Bytes of text that are scanned before they are hashed, so that they are still in the L1 cache. */
#define KERNEL_STRIDE 4096

/* Hashes whole chunks of [p, q), first completing a chunk that the buffer has begun. Returns where
 * the rest begins, which stays in place. */
static inline const char *kernel_chunks(struct kvw_text *text, const char *p, const char *q)
{
	if (text->fill > 0) {
		size_t want = KVW_TEXT_CHUNK - text->fill;
		size_t take = (size_t)(q - p) < want ? (size_t)(q - p) : want;

		memcpy(text->buffer + text->fill, p, take);
		text->fill += (uint32_t)take;
		p += take;
		if (text->fill < KVW_TEXT_CHUNK)
			return p;
		kvw_text_emit(text, XXH3_64bits(text->buffer, KVW_TEXT_CHUNK), KVW_TEXT_CHUNK);
		text->fill = 0;
	}
	while (q - p >= (ptrdiff_t)KVW_TEXT_CHUNK) {
		kvw_text_emit(text, XXH3_64bits(p, KVW_TEXT_CHUNK), KVW_TEXT_CHUNK);
		p += KVW_TEXT_CHUNK;
	}
	return p;
}

/* Hashes the scanned span [p, q); unless the string is over, its tail is kept in the buffer. */
static inline void kernel_feed(struct kvw_text *text, const char *p, const char *q, bool over)
{
	size_t tail;

	if (text->mode == KVW_TEXT_NOTHING)
		return;
	p = kernel_chunks(text, p, q);
	tail = (size_t)(q - p);
	if (tail == 0) {
		if (over && text->fill > 0) {
			kvw_text_emit(text, XXH3_64bits(text->buffer, text->fill), text->fill);
			text->fill = 0;
		}
	} else if (over) {
		kvw_text_emit(text, XXH3_64bits(p, tail), (uint32_t)tail);
	} else {
		memcpy(text->buffer, p, tail);
		text->fill = (uint32_t)tail;
	}
}

/* Returns the bytes that follow an unescaped backslash. *carry: the next block's first byte is one
 * of them. */
static inline uint64_t kernel_escaped(uint64_t backslash, uint64_t *carry)
{
	const uint64_t odd = UINT64_C(0xaaaaaaaaaaaaaaaa);
	uint64_t begins = backslash & ~*carry;
	uint64_t codes = (((begins << 1) | odd) - begins) ^ odd;
	uint64_t escaped = codes ^ (backslash | *carry);

	*carry = (codes & backslash) >> 63;
	return escaped;
}

/* Returns where canonical text ends in this block: bit 0 to 63, or 64. */
static inline unsigned kernel_block_end(const struct block *block, uint64_t *carry, bool *bad)
{
	uint64_t backslash = backslashes(block), stop = stops(block);

	*bad = false;
	if ((backslash | *carry) != 0) {
		uint64_t escaped = kernel_escaped(backslash, carry);
		uint64_t wrong = escaped & ~short_escapes(block);

		stop = (stop & ~escaped) | wrong;
		if (stop == 0)
			return 64;
		*bad = (wrong & stop & -stop) != 0;
	}
	return stop == 0 ? 64 : (unsigned)__builtin_ctzll(stop);
}

/* Returns whether the bytes before p, in a span that begins at `first`, escape the byte at p. */
static inline uint64_t kernel_carry(const char *first, const char *p)
{
	const char *q = p;

	while (q > first && q[-1] == '\\')
		q--;
	return (uint64_t)(p - q) & 1;
}

/* Returns where canonical text ends in `count` blocks at p; a result beyond them: it does not end
 * there. special: the blocks to examine. *carry: in: the first byte is escaped; out: the byte after
 * the blocks is. */
static inline size_t kernel_find_end(
	const char *p, unsigned count, uint64_t special, uint64_t *carry)
{
	uint64_t after = *carry;
	bool bad = false;

	*carry = 0;
	special |= after;
	while (special != 0) {
		unsigned i = (unsigned)__builtin_ctzll(special);
		struct block block = load(p + 64 * (size_t)i);
		unsigned at = kernel_block_end(&block, &after, &bad);

		if (at < 64)
			return 64 * (size_t)i + at;
		special &= special - 1;
		/* A branch instead of arithmetic, so that the next block does not wait for this
		 * one's result. */
		if (__builtin_expect(after != 0, 0)) {
			if (i + 1 == count)
				*carry = 1;
			else
				special |= UINT64_C(2) << i;
		}
	}
	return 64 * (size_t)count;
}

/*
 * Skips canonical text that is not hashed. Returns the block at which to go on; *carry: of that
 * block.
 *
 * Prose has an escape in a few blocks, at unpredictable places: so groups of blocks, doubling in
 * number, are first only tested for special bytes, and examined where there are some. Source code
 * has special bytes in most blocks, and is examined block by block.
 */
static inline const char *kernel_pass(const char *p, const char *end, uint64_t *carry)
{
	const char *first = p;
	unsigned ahead = 4;
	bool dense = false;

	while (!dense && end - p >= 256) {
		unsigned count =
			end - p < 64 * (ptrdiff_t)ahead ? (unsigned)((end - p) / 64) : ahead;
		uint64_t special = 0;
		size_t at;

		for (unsigned i = 0; i < count; i++) {
			struct block block = load(p + 64 * (size_t)i);

			special |= (uint64_t)has_special(&block) << i;
		}
		at = kernel_find_end(p, count, special, carry);
		p += at / 64 * 64;
		if (at < 64 * (size_t)count) {
			*carry = kernel_carry(first, p);
			return p;
		}
		dense = (unsigned)__builtin_popcountll(special) > count / 2;
		ahead = ahead < 64 ? 2 * ahead : 64;
	}
	return p;
}

#ifdef KERNEL_HASHES
/* Returns whether a backslash and this byte are a canonical escape. */
static inline bool kernel_escapes(char c)
{
	return c == '"' || c == '\\' || c == 'b' || c == 'f' || c == 'n' || c == 'r' || c == 't';
}

/* Number of chunks whose lanes are kept before they are merged. */
#define KERNEL_KEPT 4

static inline void kernel_merge(struct kvw_text *text, uint64_t (*kept)[8], unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		kvw_text_emit(text, chunk_hash_merge(kept[i]), KVW_TEXT_CHUNK);
}

/* Takes whole chunks of canonical text. Returns the first chunk that may not be canonical, which
 * kernel_span then handles. *carry: as for kernel_find_end. */
static inline const char *kernel_take_chunks(
	struct kvw_text *text, const char *p, const char *end, uint64_t *carry)
{
	_Alignas(64) uint64_t kept[KERNEL_KEPT][8];
	uint64_t at_start = *carry;
	unsigned count = 0;

	while (end - p >= (ptrdiff_t)KVW_TEXT_CHUNK) {
		struct chunk_hash hash = chunk_hash_begin();
		uint64_t after = at_start;
		bool bad = false;

#pragma GCC unroll 4
		for (unsigned i = 0; i < CHUNK_BLOCKS; i++) {
			struct block block = load(p + 64 * i);

			if (kernel_block_end(&block, &after, &bad) < 64)
				goto out;
			chunk_hash_add(&hash, &block, chunk_secret + chunk_secret_at[i]);
		}
		/* A backslash at the chunk's end is text only if the bytes after it make it an
		 * escape. */
		if (after != 0 && (end - p == (ptrdiff_t)KVW_TEXT_CHUNK ||
					  !kernel_escapes(p[KVW_TEXT_CHUNK])))
			break;
		chunk_hash_keep(&hash, kept[count++]);
		if (count == KERNEL_KEPT) {
			kernel_merge(text, kept, count);
			count = 0;
		}
		p += KVW_TEXT_CHUNK;
		at_start = after;
	}
out:
	kernel_merge(text, kept, count);
	*carry = at_start;
	return p;
}
#endif

/* Returns how many bytes are scanned before they are hashed. */
static inline ptrdiff_t kernel_stride(const struct kvw_text *text, bool first)
{
	if (text->mode == KVW_TEXT_NOTHING)
		return PTRDIFF_MAX;
#ifdef KERNEL_HASHES
	if (first)
		return text->fill > 0 ? (ptrdiff_t)(KVW_TEXT_CHUNK - text->fill) : 0;
#else
	(void)first;
#endif
	return KERNEL_STRIDE;
}

/* Takes canonical text in place. Returns the first byte that is not canonical, as kvw_text_ops.run
 * does. */
static inline const char *kernel_span(struct kvw_text *text, const char *p, const char *end)
{
	const char *first = p, *base = p, *q;
	ptrdiff_t stride = kernel_stride(text, true);
	uint64_t carry = 0;
	struct block block;
	char tail[64];
	unsigned at;
	bool bad;

	if (text->mode == KVW_TEXT_NOTHING)
		p = base = kernel_pass(p, end, &carry);
	for (; end - p >= 64; p += 64) {
		if (p - base >= stride) {
			base = kernel_chunks(text, base, p - carry);
			stride = kernel_stride(text, false);
#ifdef KERNEL_HASHES
			if (text->fill == 0 && end - base >= (ptrdiff_t)KVW_TEXT_CHUNK) {
				carry = kernel_carry(first, base);
				p = base = kernel_take_chunks(text, base, end, &carry);
				if (end - p < 64)
					break;
			}
#else
			(void)first;
#endif
		}
		block = load(p);
		at = kernel_block_end(&block, &carry, &bad);
		if (at < 64) {
			q = p + at - bad;
			kernel_feed(text, base, q, *q == '"' && !bad);
			return q;
		}
	}
	memset(tail, '"', sizeof(tail));
	memcpy(tail, p, (size_t)(end - p));
	block = load(tail);
	at = kernel_block_end(&block, &carry, &bad);
	/* This lies beyond the end only if a backslash is the last byte, since the quote after it
	 * would count as escaped. */
	q = p + at > end ? end - 1 : p + at - bad;
	kernel_feed(text, base, q, q < end && *q == '"' && !bad);
	return q;
}

/* Decodes escapes that are not canonical, one after another. p is at a backslash. */
static inline const char *kernel_unescape(struct kvw_text *text, const char *p, const char *end)
{
	unsigned char spelt[8];

	for (;;) {
		uint32_t code, low;
		size_t used = 6;

		p = KERNEL_UNESCAPE(text, p, end);
		if (end - p < 2 || p[0] != '\\')
			return p;
		if (p[1] == '/') {
			kvw_text_put(text, (const unsigned char *)"/", 1);
			p += 2;
			continue;
		}
		if (p[1] != 'u' || end - p < 6)
			return p;
		code = kvw_text_hex4(p + 2);
		if (code == UINT32_MAX)
			return p;
		if ((code & 0xfc00) == 0xd800) {
			if (end - p < 12)
				return p;
			if (p[6] == '\\' && p[7] == 'u') {
				low = kvw_text_hex4(p + 8);
				if ((low & ~UINT32_C(0x3ff)) == 0xdc00) {
					code = 0x10000 + ((code & 0x3ff) << 10) + (low & 0x3ff);
					used = 12;
				}
			}
		}
		kvw_text_put(text, spelt, kvw_text_spell(spelt, code));
		p += used;
	}
}

static const char *kernel_run(struct kvw_text *text, const char *p, const char *end)
{
	for (;;) {
		const char *q = kernel_span(text, p, end);

		if (q == end || *q != '\\')
			return q;
		p = kernel_unescape(text, q, end);
		if (p == q)
			return q;
	}
}

/* Converts up to eight digits into a number; they are in the low bytes, the first digit lowest, and
 * the other bytes are 0. */
static inline uint32_t kernel_decimal(uint64_t digits)
{
	digits = (digits & UINT64_C(0x0f0f0f0f0f0f0f0f)) * 2561 >> 8;
	digits = (digits & UINT64_C(0x00ff00ff00ff00ff)) * 6553601 >> 16;
	return (uint32_t)((digits & UINT64_C(0x0000ffff0000ffff)) * UINT64_C(42949672960001) >> 32);
}

/*
 * The masks of commas and of starts of numbers cover 64 bytes, so that the start of the next id
 * does not depend on the length of the last one.
 */
static const char *kernel_ids(struct kvw_text *text, const char *p, const char *end)
{
	while (end - p >= 64 + 8) {
		struct block block = load(p);
		uint64_t digits, commas, spaces, starts, wrong;

		id_masks(&block, &digits, &commas, &spaces);
		wrong = ~(digits | commas | spaces) | (commas & ~(digits << 1)) |
			(spaces & ~(commas << 1));
		if (wrong != 0)
			commas &= (wrong & -wrong) - 1;
		if (commas == 0)
			return p;
		starts = digits & ~(digits << 1);
		for (;;) {
			unsigned from = (unsigned)__builtin_ctzll(starts);
			unsigned comma = (unsigned)__builtin_ctzll(commas);
			unsigned count = comma - from;
			uint64_t word;
			uint32_t id;

			memcpy(&word, p + from, sizeof(word));
			word = le64toh(word);
			if (count > 8 || (count > 1 && (word & 0xff) == '0'))
				return p + from;
			id = htole32(kernel_decimal(word << (64 - 8 * count)));
			memcpy(text->buffer + text->fill, &id, sizeof(id));
			text->fill += (uint32_t)sizeof(id);
			if (text->fill == KVW_TEXT_CHUNK) {
				kvw_text_emit(text, XXH3_64bits(text->buffer, KVW_TEXT_CHUNK),
					KVW_TEXT_CHUNK / sizeof(id));
				text->fill = 0;
			}
			starts &= starts - 1;
			commas &= commas - 1;
			if (commas == 0) {
				p += comma + 1;
				break;
			}
		}
		p += *p == ' ';
	}
	return p;
}
