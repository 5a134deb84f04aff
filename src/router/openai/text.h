/*
 * text.h - cuts the text of JSON strings into chunks and hashes them in place.
 *
 * Canonical form of a string: its shortest JSON spelling. `"` and `\` are written `\"` and `\\`,
 * control characters `\b \f \n \r \t` or `\u00xx` in lower case, everything else as UTF-8. Clients
 * nearly always send this form, escapes included, so that a chunk is hashed without a copy; `\/`
 * and needless `\u` are decoded into a buffer first.
 *
 * A chunk is 256 bytes of canonical text, or 64 token ids as little-endian 32-bit numbers. A string
 * begins a new chunk, and its short tail is a chunk of its own.
 *
 * Bytes from 0x80 on are hashed as they are. The worker checks that they are valid UTF-8: equal
 * bytes hash equally in any case, and a refused prompt fills no cache.
 *
 * The inner loops exist once per instruction set (text_kernel.h) and are chosen at run time.
 */
#ifndef KVW_TEXT_H
#define KVW_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "openai/chain.h"

#define KVW_TEXT_CHUNK ((size_t)256) /* bytes */

/* A piece of prompt before the chain is folded. units 0: the piece changes later hashes but is not
 * a chunk of its own. */
struct kvw_piece {
	uint64_t hash;
	uint32_t units; /* bytes of canonical text, or token ids */
	uint32_t spare;
};

/* The use of a string's text. */
enum kvw_text_mode {
	KVW_TEXT_NOTHING, /* checked only */
	KVW_TEXT_VALUE,   /* folded into `value` */
	KVW_TEXT_PIECES   /* each chunk is appended to `pieces` */
};

struct kvw_text {
	/* Canonical text that cannot be hashed in place: fewer than 256 bytes between two calls,
	 * plus room for the decoder's wide stores. */
	_Alignas(32) unsigned char buffer[KVW_TEXT_CHUNK + 64];
	uint32_t fill;
	enum kvw_text_mode mode;
	bool fields_only;         /* prompt text is checked, not hashed */
	uint32_t units;           /* KVW_TEXT_VALUE: bytes folded so far */
	uint64_t value;           /* KVW_TEXT_VALUE: hash so far */
	bool too_many;            /* pieces were lost, because they exceeded piece_limit */
	bool no_memory;           /* pieces were lost, because memory was out */
	struct kvw_piece *pieces; /* owned */
	size_t piece_count, piece_capacity;
	size_t piece_limit; /* limit of pieces; the owner raises it as the body grows */
};

/* The inner loops for one instruction set. */
struct kvw_text_ops {
	/*
	 * Takes text inside a string. Returns the first byte not taken: the closing quote, a
	 * control character, a backslash whose escape is malformed or not complete before `end`, or
	 * `end`. At a closing quote the last chunk is hashed, too. Pieces end nowhere else.
	 */
	const char *(*run)(struct kvw_text *text, const char *p, const char *end);
	/*
	 * Takes token ids from p on, each followed by a comma and at most one space. Returns where
	 * the next value begins; p if not even one id could be taken.
	 */
	const char *(*ids)(struct kvw_text *text, const char *p, const char *end);
	const char *name;
};

extern const struct kvw_text_ops kvw_text_base;
#ifdef KVW_HAVE_AVX2
extern const struct kvw_text_ops kvw_text_avx2;
#endif
#ifdef KVW_HAVE_AVX512
extern const struct kvw_text_ops kvw_text_avx512;
#endif

/* Returns the fastest loops that this processor can run. */
const struct kvw_text_ops *kvw_text_ops(void);

/* Lists all loops that this processor can run, the fastest first, with NULL at the end. */
#define KVW_TEXT_OPS_MOST 4
void kvw_text_all_ops(const struct kvw_text_ops *all[KVW_TEXT_OPS_MOST]);

/* Begins a string, or a list of token ids. */
static inline void kvw_text_begin(struct kvw_text *text, enum kvw_text_mode mode)
{
	text->mode = mode == KVW_TEXT_PIECES && text->fields_only ? KVW_TEXT_NOTHING : mode;
	text->fill = 0;
	text->units = 0;
	text->value = KVW_TAG_STRING;
}

/* Appends to `pieces`, and enlarges it; sets too_many or no_memory if it cannot. */
void kvw_text_push_slow(struct kvw_text *text, uint64_t hash, uint32_t units);

static inline void kvw_text_push(struct kvw_text *text, uint64_t hash, uint32_t units)
{
	if (__builtin_expect(text->piece_count == text->piece_capacity, 0)) {
		kvw_text_push_slow(text, hash, units);
		return;
	}
	text->pieces[text->piece_count++] = (struct kvw_piece){.hash = hash, .units = units};
}

/* Takes the hash of a chunk. */
static inline void kvw_text_emit(struct kvw_text *text, uint64_t hash, uint32_t units)
{
	if (text->mode == KVW_TEXT_PIECES) {
		kvw_text_push(text, hash, units);
	} else {
		text->value = kvw_mix(text->value, hash);
		text->units += units;
	}
}

/* Appends canonical bytes that are not in the body as such. len <= 8. */
void kvw_text_put(struct kvw_text *text, const unsigned char *bytes, size_t len);

/* Appends a token id. */
void kvw_text_put_id(struct kvw_text *text, uint32_t id);

/* Hashes the tail of a string. For KVW_TEXT_VALUE returns the hash of the whole string. */
uint64_t kvw_text_end(struct kvw_text *text);

/* Ends a piece inside a string. Only for KVW_TEXT_PIECES. */
void kvw_text_cut(struct kvw_text *text);

/* Hashes the tail of a list of token ids. */
void kvw_text_end_ids(struct kvw_text *text);

/* Writes a code point as UTF-8; surrogates, too, as three bytes each. Returns 1 to 4. */
size_t kvw_text_utf8(unsigned char out[4], uint32_t code);

/* Writes the canonical spelling of a code point. Returns 1 to 6. */
size_t kvw_text_spell(unsigned char out[6], uint32_t code);

/* Returns the value of the four hex digits at p; UINT32_MAX: they are not hex digits. */
uint32_t kvw_text_hex4(const char *p);

#endif
