/*
 * value.c - computes one hash for any JSON value: tools, tool calls, images, settings, unknown
 * parts.
 *
 * Equal values hash equally in any spelling:
 *
 *	string   its canonical text in chunks, then its length (text.h)
 *	number   an integer by its digits (-0 is 0), anything else as the nearest double; so 1e2 and
 *	         100.0 are equal, 1 and 1.0 are not
 *	list     its elements in order
 *	object   its members sorted by the hash of their keys; of equal keys the last counts
 *
 * The members of open objects lie on one stack, so an object costs 24 bytes a member while it is
 * open, and none afterwards.
 */
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "openai/scan_state.h"

#define INSERTION_LIMIT 24  /* up to this many members insertion sort is faster than qsort */
/* longest number that is parsed, in bytes; longer ones are hashed as they are spelt */
#define NUMBER_LIMIT    512
#define NUMBER_UNITS    4   /* for any spelling */

bool value_member(struct kvw_scan *scan, struct frame *frame, struct value value)
{
	uint32_t units = frame->media ? KVW_MEDIA_UNITS : value.units;

	if (scan->member_count == scan->member_capacity) {
		uint32_t capacity = scan->member_capacity == 0 ? 64 : scan->member_capacity * 2;
		struct member *members;

		if (scan->member_count >= SCAN_MAX_MEMBERS)
			return false;
		members = realloc(scan->members, capacity * sizeof(*members));
		if (members == NULL) {
			scan->no_memory = true;
			return false;
		}
		scan->members = members;
		scan->member_capacity = capacity;
	}
	scan->members[scan->member_count] = (struct member){.key = frame->key,
		.value = value.hash,
		.units = value.hash == 0 ? 0 : units + frame->key_len,
		.order = scan->member_count};
	scan->member_count++;
	return true;
}

static bool comes_before(const struct member *a, const struct member *b)
{
	return a->key != b->key ? a->key < b->key : a->order < b->order;
}

static int compare_members(const void *a, const void *b)
{
	return comes_before(a, b) ? -1 : 1;
}

static void sort_members(struct member *members, uint32_t count)
{
	if (count > INSERTION_LIMIT) {
		qsort(members, count, sizeof(*members), compare_members);
		return;
	}
	for (uint32_t i = 1; i < count; i++) {
		struct member moved = members[i];
		uint32_t at = i;

		for (; at > 0 && comes_before(&moved, &members[at - 1]); at--)
			members[at] = members[at - 1];
		members[at] = moved;
	}
}

struct value value_take_members(struct kvw_scan *scan, const struct frame *frame)
{
	struct member *members;
	uint32_t count = scan->member_count - frame->first;
	struct value sum = {KVW_TAG_OBJECT, 0};
	bool any = false;

	if (count == 0)
		return (struct value){0, 0};
	members = scan->members + frame->first;
	sort_members(members, count);
	for (uint32_t i = 0; i < count; i++) {
		if (i + 1 < count && members[i + 1].key == members[i].key)
			continue;
		if (members[i].value == 0)
			continue;
		any = true;
		sum.hash = kvw_mix(kvw_mix(sum.hash, members[i].key), members[i].value);
		sum.units += members[i].units;
	}
	scan->member_count = frame->first;
	return any ? sum : (struct value){0, 0};
}

struct value value_number(const char *text, size_t len)
{
	struct value value = {0, NUMBER_UNITS};
	char copy[NUMBER_LIMIT + 1];
	double real;

	if (len == 2 && memcmp(text, "-0", 2) == 0) {
		text++;
		len = 1;
	}
	if (len <= NUMBER_LIMIT &&
		(memchr(text, '.', len) != NULL || memchr(text, 'e', len) != NULL ||
			memchr(text, 'E', len) != NULL)) {
		memcpy(copy, text, len);
		copy[len] = '\0';
		real = strtod(copy, NULL);
		value.hash = kvw_mix(KVW_TAG_NUMBER, XXH3_64bits(&real, sizeof(real)));
	} else {
		value.hash = kvw_mix(KVW_TAG_NUMBER, ~XXH3_64bits(text, len));
	}
	return value;
}

uint64_t value_of_word(const char *word)
{
	size_t len = strlen(word);

	return kvw_mix(kvw_mix(KVW_TAG_STRING, XXH3_64bits(word, len)), len);
}

bool value_is_media(const char *key, size_t len)
{
	static const struct kvw_slice names[] = {{"url", 3}, {"data", 4}, {"file", 4}, {"audio", 5},
		{"image", 5}, {"video", 5}, {"source", 6}, {"file_url", 8}, {"audio_url", 9},
		{"image_url", 9}, {"video_url", 9}, {"file_data", 9}, {"input_audio", 11},
		{"image_embeds", 12}, {"audio_embeds", 12}, {"encrypted_content", 17}};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (names[i].len == len && memcmp(names[i].data, key, len) == 0)
			return true;
	}
	return false;
}
