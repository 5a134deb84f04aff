/*
 * cuts.h - a prompt cut into segments, for workers that reuse cached text which is not a prefix.
 *
 * Segments are the texts of messages and of their parts, or a prompt; a separator, if given,
 * divides them further and ends the segment before it. The scan's own pieces give their hashes: at
 * a separator the open piece ends, so that later pieces do not depend on earlier text. So a body
 * with separators has other chunks, and another chain, than without cuts.
 *
 * Off unless a scan is given a separator: the scan then pays one branch for each feed.
 */
#ifndef KVW_CUTS_H
#define KVW_CUTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kvway/route_request.h"

struct kvw_scan;

#define KVW_SEPARATOR_MOST 64u   /* bytes, as a configuration has it */
#define KVW_CUTS_MOST      4096u /* separators of one body at which it is cut */
#define KVW_SEGMENTS_MOST  256u  /* of one body; further ones are ignored */

/* A separator in its JSON spelling. Made once, read by any thread. */
struct kvw_separator {
	uint8_t len;                         /* 0: messages alone are cut */
	char text[6 * KVW_SEPARATOR_MOST];   /* escaped */
	uint8_t back[6 * KVW_SEPARATOR_MOST]; /* longest proper border of the first i + 1 bytes */
	uint32_t min_units;                  /* shorter segments are left out */
};

/* text: ASCII, at most KVW_SEPARATOR_MOST bytes; else the result is false. */
bool kvw_separator_make(const char *text, uint32_t min_units, struct kvw_separator *out);

/* After reset. Borrowed until the next reset. Without memory nothing is cut. */
void kvw_scan_cut(struct kvw_scan *scan, const struct kvw_separator *separator);

#endif
