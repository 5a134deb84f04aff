/*
 * reference.h - what a body means, computed the plain way: from jansson's tree of it.
 *
 * The oracle of the differential tests. Shares with the scan only the tags and the mixing function
 * of chain.h, and XXH3.
 */
#ifndef KVW_TEST_OPENAI_REFERENCE_H
#define KVW_TEST_OPENAI_REFERENCE_H

#include "support.h"

enum verdict {
	VERDICT_NOT_JSON, /* jansson refuses it, or it is not an object */
	VERDICT_WRONG,    /* JSON, but not what the path promises */
	VERDICT_OK
};

/* *out is set for VERDICT_OK only; caller frees. */
enum verdict reference_see(enum kvw_api api, const char *body, size_t len, struct seen **out);

/*
 * Compares the scan, fed in pieces of `piece` bytes, with the reference. Returns NULL, or what was
 * wrong. Where only one of them accepts, the reason must be one of those listed in the source.
 */
const char *reference_compare(enum kvw_api api, const char *body, size_t len, size_t piece);

#endif
