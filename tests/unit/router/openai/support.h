/*
 * support.h - bodies in, what was understood out, for the tests of the scan.
 */
#ifndef KVW_TEST_OPENAI_SUPPORT_H
#define KVW_TEST_OPENAI_SUPPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "openai/scan.h"
#include "openai/text.h"

#define MAX_CHUNKS 40000
#define MAX_CHAINS 4000

/* What a scan said, kept after it. */
struct seen {
	enum kvw_err err;
	struct kvw_route_request request; /* its pointers point into this struct */
	char model[512], session[512], previous[512];
	struct kvw_chunk *chunks; /* owned */
	uint32_t chain_ends[MAX_CHAINS];
};

/* Session fields that every scan here looks for, in this order. */
extern const struct kvw_scan_options test_options;

/* Set: scans use these inner loops, not the best that the processor has. */
extern const struct kvw_text_ops *test_kernel;

/* The inner loops number `i`, counted around, of those that the processor has. */
const struct kvw_text_ops *test_kernel_at(unsigned i);

/* Feeds the body in pieces of `piece` bytes (0: at once), each in a buffer of exactly its size. */
struct seen *see(enum kvw_api api, const char *body, size_t len, size_t piece);
/* Feeds [0, split) and [split, len). */
struct seen *see_split(enum kvw_api api, const char *body, size_t len, size_t split);
/* A text, at once. */
struct seen *see_text(enum kvw_api api, const char *body);
void seen_free(struct seen *seen);

/* Equal in all fields. */
bool seen_equal(const struct seen *a, const struct seen *b);
/* Equal in seed and chains. */
bool seen_same_prompt(const struct seen *a, const struct seen *b);
/* How many chunks of the first chain are equal from the start. */
uint32_t seen_common(const struct seen *a, const struct seen *b);
/* Units up to the end of the last chunk of the first chain. */
uint32_t seen_units(const struct seen *seen);

/* Cheap, seeded, good enough for tests. */
uint64_t test_random(uint64_t *state);

/* A whole file; caller frees. *len without the terminator that follows. Aborts on failure. */
char *test_file(const char *path, size_t *len);
/* The body of a recorded answer, transfer coding removed. */
char *test_answer(const char *name, size_t *len);

#endif
