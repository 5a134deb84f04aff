/*
 * cuts.c - finds separators while a body is fed, and makes the segments at its end.
 *
 * The body is searched in its raw form, by memmem within a feed and byte by byte (Knuth, Morris,
 * Pratt) across feeds, so that the division into feeds does not matter. A separator that is not
 * spelt with the shortest escapes is not found, and one outside a prompt's text is skipped: the
 * only effect is a missed prediction.
 *
 * Segments are made in the order of the fold (fold.c), and measured in its units.
 */
#include "openai/cuts.h"

#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "openai/scan_state.h"

#define TAG_SEGMENT UINT64_C(0x5be0cd19137e2179)

bool kvw_separator_make(const char *text, uint32_t min_units, struct kvw_separator *out)
{
	size_t len = strlen(text);

	*out = (struct kvw_separator){.min_units = min_units};
	if (len > KVW_SEPARATOR_MOST)
		return false;
	for (size_t i = 0; i < len; i++) {
		if ((unsigned char)text[i] >= 0x80)
			return false;
		out->len += (uint8_t)kvw_text_spell(
			(unsigned char *)out->text + out->len, (unsigned char)text[i]);
	}
	for (uint8_t i = 1, at = 0; i < out->len; i++) {
		while (at > 0 && out->text[i] != out->text[at])
			at = out->back[at - 1];
		at += out->text[i] == out->text[at];
		out->back[i] = at;
	}
	return true;
}

void kvw_scan_cut(struct kvw_scan *scan, const struct kvw_separator *separator)
{
	if (scan->cuts == NULL)
		scan->cuts = malloc(sizeof(*scan->cuts));
	if (scan->cuts == NULL)
		return;
	scan->cuts->separator = separator;
	scan->cuts->matched = 0;
	scan->cuts->count = 0;
	scan->cutting = true;
}

/* Matches one more byte of the body; true: a separator ends with it. */
static bool matches(struct cuts *cuts, char byte)
{
	const struct kvw_separator *s = cuts->separator;

	while (cuts->matched > 0 && s->text[cuts->matched] != byte)
		cuts->matched = s->back[cuts->matched - 1];
	cuts->matched += s->text[cuts->matched] == byte;
	if (cuts->matched < s->len)
		return false;
	cuts->matched = 0;
	return true;
}

size_t cuts_next(struct kvw_scan *scan, const char *data, size_t len)
{
	struct cuts *cuts = scan->cuts;
	size_t size = cuts->separator->len, at = 0;
	const char *found = NULL;

	if (size == 0)
		return len + 1;
	for (; at < len && (at == 0 || cuts->matched > 0); at++) {
		if (cuts->matched == 0)
			break;
		if (matches(cuts, data[at]))
			return at + 1;
	}
	if (at < len)
		found = memmem(data + at, len - at, cuts->separator->text, size);
	if (found != NULL)
		return (size_t)(found - data) + size;
	at = len - at >= size ? len - size + 1 : at;
	for (; at < len; at++)
		(void)matches(cuts, data[at]);
	return len + 1;
}

void cuts_make(struct kvw_scan *scan)
{
	struct cuts *cuts = scan->cuts;
	uint32_t pieces;

	if (scan->state != STATE_STRING || scan->sink != SINK_TEXT ||
		scan->text.mode != KVW_TEXT_PIECES || scan->escape_len > 0 || scan->high != 0 ||
		cuts->count == KVW_CUTS_MOST)
		return;
	kvw_text_cut(&scan->text);
	pieces = (uint32_t)scan->text.piece_count;
	while (cuts->count > 0 && cuts->at[cuts->count - 1] >= pieces)
		cuts->count--; /* the cut belongs to an earlier text, which no longer counts */
	cuts->at[cuts->count++] = pieces;
}

/* --- segments --- */

/* How far the walk over the texts has come. */
struct walk {
	uint64_t seed;
	uint32_t units, from;
	uint64_t hash;
	uint32_t cut; /* index of the next entry of cuts->at */
};

static void end_segment(struct kvw_scan *scan, struct walk *walk)
{
	struct cuts *cuts = scan->cuts;

	if (walk->units - walk->from >= cuts->separator->min_units && walk->units > walk->from &&
		cuts->segment_count < KVW_SEGMENTS_MOST)
		cuts->segments[cuts->segment_count++] =
			(struct kvw_segment){walk->hash, walk->from, walk->units};
	walk->from = walk->units;
	walk->hash = walk->seed;
}

/* Walks over the text of one message, or of a prompt. */
static void walk_range(struct kvw_scan *scan, struct walk *walk, struct range range)
{
	const struct cuts *cuts = scan->cuts;
	uint32_t end = range.first + range.count;

	walk->cut = 0;
	while (walk->cut < cuts->count && cuts->at[walk->cut] <= range.first)
		walk->cut++;
	walk->from = walk->units;
	walk->hash = walk->seed;
	for (uint32_t i = range.first; i < end; i++) {
		const struct kvw_piece *piece = &scan->text.pieces[i];

		if (walk->cut < cuts->count && cuts->at[walk->cut] == i) {
			end_segment(scan, walk);
			while (walk->cut < cuts->count && cuts->at[walk->cut] <= i)
				walk->cut++;
		}
		if (piece->units == 0) { /* a part begins */
			end_segment(scan, walk);
			continue;
		}
		walk->hash = kvw_mix(walk->hash, piece->hash);
		walk->units += piece->units;
	}
	end_segment(scan, walk);
}

static void walk_message(struct kvw_scan *scan, struct walk *walk, const struct message *message)
{
	walk->units += KVW_MESSAGE_UNITS + message->extra.units;
	walk_range(scan, walk, message->content);
	walk->units += message->calls[0].units + message->calls[1].units;
}

static uint32_t units_of(const struct kvw_scan *scan, struct range range)
{
	uint32_t units = 0;

	for (uint32_t i = 0; i < range.count; i++)
		units += scan->text.pieces[range.first + i].units;
	return units;
}

static void walk_talk(struct kvw_scan *scan, struct walk *walk)
{
	walk->units = units_of(scan, scan->tools) + units_of(scan, scan->functions);
	if (scan->has_system)
		walk_message(scan, walk, &scan->system);
	for (uint32_t i = 0; i < scan->message_count; i++)
		walk_message(scan, walk, &scan->messages[i]);
}

void cuts_segments(struct kvw_scan *scan, uint64_t seed, struct kvw_route_request *out)
{
	struct walk walk = {.seed = kvw_mix(TAG_SEGMENT, seed)};

	scan->cuts->segment_count = 0;
	if (out->token_ids || out->chain_count != 1)
		return;
	if (scan->has_messages)
		walk_talk(scan, &walk);
	else
		walk_range(scan, &walk, (struct range){scan->prompt_first, scan->chain_ends[0]});
	out->segments = scan->cuts->segments;
	out->segment_count = scan->exact_only ? 0 : scan->cuts->segment_count;
}
