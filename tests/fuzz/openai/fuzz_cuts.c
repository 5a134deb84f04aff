/*
 * fuzz_cuts.c - bodies of any bytes, cut into segments: the same ones however the body arrives.
 *
 * The first byte chooses the API, the second how the body is fed, the third the separator.
 */
#include <stdlib.h>
#include <string.h>

#include "openai/cuts.h"
#include "openai/scan.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const separators[] = {" # # ", "aab", "\n\"", "\\", "", ",\"", "u00"};

struct found {
	enum kvw_err err;
	uint32_t count, chunks;
	uint64_t last;
	struct kvw_segment segments[KVW_SEGMENTS_MOST];
};

static void look(struct kvw_scan *scan, enum kvw_api api, const struct kvw_separator *separator,
	const char *body, size_t size, size_t piece, struct found *out)
{
	struct kvw_route_request route;

	memset(out, 0, sizeof(*out));
	kvw_scan_reset(scan, api);
	kvw_scan_cut(scan, separator);
	for (size_t at = 0; at < size; at += piece) {
		size_t len = size - at < piece ? size - at : piece;
		char *copy = malloc(len);

		memcpy(copy, body + at, len);
		kvw_scan_feed(scan, copy, len);
		free(copy);
	}
	out->err = kvw_scan_finish(scan, &route);
	out->count = route.segment_count;
	out->chunks = route.chunk_count;
	if (route.chunk_count > 0)
		out->last = route.chunks[route.chunk_count - 1].hash;
	if (route.segment_count > 0)
		memcpy(out->segments, route.segments, route.segment_count * sizeof(route.segments[0]));
	for (uint32_t i = 0; i < route.segment_count; i++)
		if (route.segments[i].from >= route.segments[i].to ||
			(i > 0 && route.segments[i].from < route.segments[i - 1].to) ||
			route.segments[i].to > route.chunks[route.chunk_count - 1].end)
			abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct kvw_separator separator;
	struct found *found;
	struct kvw_scan *scan;
	enum kvw_api api;

	if (size < 4 || kvw_scan_create(NULL, &scan) != KVW_OK)
		return 0;
	found = malloc(2 * sizeof(*found));
	api = (enum kvw_api)(data[0] % KVW_API_COUNT);
	if (found == NULL || !kvw_separator_make(separators[data[2] % 7], data[2] / 7 % 8, &separator))
		abort();
	look(scan, api, &separator, (const char *)data + 3, size - 3, size, &found[0]);
	look(scan, api, &separator, (const char *)data + 3, size - 3, 1 + data[1] % 40u, &found[1]);
	if (memcmp(&found[0], &found[1], sizeof(found[0])) != 0)
		abort();
	free(found);
	kvw_scan_destroy(scan);
	return 0;
}
