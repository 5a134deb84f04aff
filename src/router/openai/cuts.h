/*
 * cuts.h - cuts a prompt into segments, for workers that reuse cached text which is not a prefix.
 *
 * Segments are the texts of messages and of their parts, or a prompt; a separator, if given,
 * divides them further and ends the segment before it. The scan's own pieces give their hashes: at
 * a separator the open piece ends, so that later pieces do not depend on earlier text. So a body
 * with separators has other chunks, and another chain, than without cuts.
 *
 * Nothing is cut unless a scan is given a separator: without one it pays a branch for each feed.
 */
#ifndef KVW_CUTS_H
#define KVW_CUTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kvway/route_request.h"

struct kvw_scan;

#define KVW_SEPARATOR_MOST 64u   /* longest separator in bytes, as written in the configuration */
#define KVW_CUTS_MOST      4096u /* most separators at which one body is cut */
#define KVW_SEGMENTS_MOST  256u  /* most segments of one body; further ones are ignored */

/* A separator in its JSON spelling. Made once, and read by any thread. */
struct kvw_separator {
	uint8_t len;                         /* length of `text`; 0: only messages are cut */
	char text[6 * KVW_SEPARATOR_MOST];   /* escaped */
	/* for the search: length of the longest proper border of the first i + 1 bytes */
	uint8_t back[6 * KVW_SEPARATOR_MOST];
	uint32_t min_units;                  /* shorter segments are left out */
};

/* Makes a separator. text: ASCII, at most KVW_SEPARATOR_MOST bytes; otherwise returns false. */
bool kvw_separator_make(const char *text, uint32_t min_units, struct kvw_separator *out);

/* Makes the scan cut its next body; called after kvw_scan_reset. separator: borrowed until the next
 * reset. If memory is out nothing is cut. */
void kvw_scan_cut(struct kvw_scan *scan, const struct kvw_separator *separator);

#endif
