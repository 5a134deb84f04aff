/* splice_check.c - one body and its splice, held against a tree of jansson. */
#include "splice_check.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "support.h"

#define FLAGS JSON_ALLOW_NUL

static const char salt[] = "Zm9v-YmFy_";
static const char model[] = "a \"target\\ of\x01 it";

/* Each piece in memory of its own, so that a sanitizer sees what is read beyond. */
static enum kvw_err scan_pieces(struct kvw_scan *scan, enum kvw_api api, const char *body, size_t len,
	uint64_t seed, bool set, struct kvw_route_request *request)
{
	uint64_t most = test_random(&seed) % 40 + 1;
	bool all = test_random(&seed) % 4 == 0;

	kvw_scan_reset(scan, api);
	if (seed % 2 == 0)
		kvw_scan_fields_only(scan);
	for (size_t at = 0; at < len;) {
		size_t n = all ? len : test_random(&seed) % most + 1;
		char *piece;

		n = n < len - at ? n : len - at;
		piece = malloc(n);
		if (piece == NULL)
			abort();
		memcpy(piece, body + at, n);
		kvw_scan_feed(scan, piece, n);
		free(piece);
		at += n;
	}
	if (set && (!kvw_scan_set_salt(scan, kvw_slice_of(salt)) || !kvw_scan_set_model(scan, kvw_slice_of(model))))
		abort();
	return kvw_scan_finish(scan, request);
}

/* The body with both members, as jansson reads it: of duplicates the last counts. */
static bool means_the_same(const char *body, size_t len, const char *after, size_t after_len, bool *read)
{
	json_error_t error;
	json_t *before = json_loadb(body, len, FLAGS, &error), *now = NULL;
	bool same = true;

	*read = before != NULL;
	if (before != NULL) {
		now = json_loadb(after, after_len, FLAGS, &error);
		json_object_set_new(before, "cache_salt", json_string(salt));
		if (json_object_get(before, "model") != NULL)
			json_object_set_new(before, "model", json_string(model));
		same = now != NULL && json_equal(before, now) == 1;
	}
	json_decref(before);
	json_decref(now);
	return same;
}

/* What a scan of the changed body finds. */
static const char *look_again(struct kvw_scan *scan, enum kvw_api api, struct kvw_slice after, uint64_t seed,
	const struct kvw_route_request *expected)
{
	uint64_t chain = expected->seed;
	bool had_model = expected->model.len > 0, there;
	struct kvw_route_request request;
	const struct kvw_scan_places *places;

	if (scan_pieces(scan, api, after.data, after.len, seed, false, &request) != KVW_OK)
		return "the changed body is refused";
	if (!kvw_slice_equal(kvw_scan_salt(scan, &there), kvw_slice_of(salt)) || !there)
		return "another salt is found";
	if (had_model && request.model.len > 0 && !kvw_slice_equal(request.model, kvw_slice_of(model)))
		return "another model is found";
	if (request.model.len > 0 && request.seed != chain)
		return "the chain is another";
	places = kvw_scan_places(scan);
	for (uint32_t i = 0; i < places->count; i++) {
		const struct kvw_scan_place *place = &places->items[i];
		const char *at = after.data + place->begin;

		if (place->end <= place->begin || place->end > after.len)
			return "a place is none";
		if (*at != '"' || at[place->end - place->begin - 1] != '"')
			return "a value was left";
		if (place->kind == KVW_PLACE_SALT && (place->end - place->begin != sizeof(salt) + 1 ||
					   memcmp(at + 1, salt, sizeof(salt) - 1) != 0))
			return "a salt was left";
	}
	return NULL;
}

const char *splice_check(enum kvw_api api, const char *body, size_t len, uint64_t seed, bool *changed)
{
	const char *problem = NULL;
	struct kvw_splice splice;
	struct kvw_scan *scan;
	struct kvw_route_request request;
	char *after = NULL;
	size_t after_len;

	*changed = false;
	if (kvw_scan_create(&test_options, &scan) != KVW_OK)
		abort();
	if (scan_pieces(scan, api, body, len, seed, true, &request) != KVW_OK ||
		kvw_splice_plan(scan, kvw_slice_of(salt), kvw_slice_of(model), &splice) != KVW_OK)
		goto out;
	if (splice.count == 0) {
		problem = "nothing changes";
		goto out;
	}
	after = malloc((size_t)((int64_t)len + splice.growth));
	if (after == NULL)
		abort();
	after_len = kvw_splice_write(&splice, (struct kvw_slice){body, len}, after);
	if (after_len != (size_t)((int64_t)len + splice.growth))
		problem = "the length is another";
	else if (!means_the_same(body, len, after, after_len, changed))
		problem = "the changed body means something else";
	else
		problem = look_again(scan, api, (struct kvw_slice){after, after_len}, seed * 7 + 1, &request);
out:
	free(after);
	kvw_scan_destroy(scan);
	return problem;
}
