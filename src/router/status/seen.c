/* seen.c - reads the traces of requests that have ended. */
#include "status/seen.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "admin/trace_page.h"
#include "base/clock.h"

void kvw_seen_finish(struct kvw_seen *seen)
{
	free(seen->read);
	seen->read = NULL;
}

/* --- prefixes --- */

/* Returns whether `a` should make room before `b`: it was hit less, or longer ago. */
static bool is_colder(const struct kvw_seen_prefix *a, const struct kvw_seen_prefix *b)
{
	return a->hits != b->hits ? a->hits < b->hits : a->used_ns < b->used_ns;
}

static struct kvw_seen_prefix *prefix_of(struct kvw_seen *seen, uint64_t hash, int64_t now_ns)
{
	struct kvw_seen_prefix *coldest = &seen->prefixes[0];

	for (size_t i = 0; i < seen->prefix_count; i++) {
		struct kvw_seen_prefix *prefix = &seen->prefixes[i];

		if (prefix->hash == hash)
			return prefix;
		if (now_ns - prefix->used_ns > KVW_SEEN_PREFIX_NS)
			prefix->hits = 0; /* what was hot once makes room */
		if (is_colder(prefix, coldest))
			coldest = prefix;
	}
	if (seen->prefix_count < KVW_SEEN_PREFIXES)
		coldest = &seen->prefixes[seen->prefix_count++];
	*coldest = (struct kvw_seen_prefix){.hash = hash};
	return coldest;
}

static void add_holder(struct kvw_seen_prefix *prefix, uint32_t worker)
{
	for (size_t i = 0; i < prefix->holder_count; i++)
		if (prefix->holders[i] == worker)
			return;
	if (prefix->holder_count < KVW_SEEN_HOLDERS)
		prefix->holders[prefix->holder_count++] = worker;
}

static void take_prefix(
	struct kvw_seen *seen, uint64_t hash, const struct kvw_trace_note *note, int64_t now_ns)
{
	struct kvw_seen_prefix *prefix = prefix_of(seen, hash, now_ns);

	prefix->hits++;
	prefix->tokens = note->number;
	prefix->used_ns = now_ns;
	add_holder(prefix, note->more);
}

/* --- models --- */

static void take_model(struct kvw_seen *seen, struct kvw_slice name, int64_t now_ns)
{
	struct kvw_seen_model *model = &seen->models[0];

	for (size_t i = 0; i < seen->model_count; i++) {
		struct kvw_seen_model *each = &seen->models[i];

		if (kvw_slice_equal(name, (struct kvw_slice){each->name, each->len})) {
			each->asked++;
			each->asked_ns = now_ns;
			return;
		}
		if (each->asked_ns < model->asked_ns)
			model = each;
	}
	if (seen->model_count < KVW_SEEN_MODELS)
		model = &seen->models[seen->model_count++];
	*model = (struct kvw_seen_model){.len = name.len, .asked = 1, .asked_ns = now_ns};
	memcpy(model->name, name.data, name.len);
}

/* --- traces --- */

static void take_story(struct kvw_seen *seen, const struct kvw_trace_story *story, int64_t now_ns)
{
	static const char unknown[] = "The model `"; /* does not exist: proxy/lacking.c */
	bool attempted = false;

	for (size_t i = 0; i < story->note_count; i++) {
		const struct kvw_trace_note *note = &story->notes[i];
		uint64_t prefix = kvw_trace_prefix(story, note);
		struct kvw_slice text =
			kvw_trace_story_text(story, note->text_word, note->text_len);

		if (prefix != 0 && !attempted)
			take_prefix(seen, prefix, note, now_ns);
		attempted |= note->kind == KVW_TRACE_ATTEMPT;
		if (note->kind == KVW_TRACE_ANSWER && note->number == 404 && story->model_len > 0 &&
			text.len > strlen(unknown) &&
			memcmp(text.data, unknown, strlen(unknown)) == 0)
			take_model(seen,
				kvw_trace_story_text(story, story->model_word, story->model_len),
				now_ns);
	}
}

static void read_loop(
	struct kvw_seen *seen, const struct kvw_trace *trace, size_t loop, int64_t now_ns)
{
	uint64_t newest = kvw_trace_ended(trace, loop), before = seen->read[loop];
	struct kvw_trace_story story;

	for (size_t i = 0; newest != before && i < kvw_trace_records(trace); i++) {
		uint64_t ended = kvw_trace_record_ended(trace, loop, i);

		if (ended <= before || ended > newest || !kvw_trace_read(trace, loop, i, &story) ||
			story.ended != ended)
			continue;
		seen->seen++;
		take_story(seen, &story, now_ns);
	}
	seen->ended += newest - before;
	seen->read[loop] = newest;
}

void kvw_seen_tick(struct kvw_seen *seen, const struct kvw_trace *trace, int64_t now_ns)
{
	if (trace == NULL)
		return;
	if (seen->read == NULL)
		seen->read = calloc(kvw_trace_loops(trace), sizeof(seen->read[0]));
	for (size_t i = 0; seen->read != NULL && i < kvw_trace_loops(trace); i++)
		read_loop(seen, trace, i, now_ns);
}

/* --- JSON --- */

static json_t *holders_json(const struct kvw_seen_prefix *prefix, const struct kvw_fleet *fleet)
{
	json_t *list = json_array();

	for (size_t i = 0; i < prefix->holder_count; i++) {
		const char *url = kvw_trace_worker_url(fleet, prefix->holders[i]);

		if (url != NULL)
			json_array_append_new(list, json_string(url));
	}
	return list;
}

json_t *kvw_seen_prefixes_json(
	const struct kvw_seen *seen, const struct kvw_fleet *fleet, int64_t now_ns)
{
	bool shown[KVW_SEEN_PREFIXES] = {false};
	json_t *items = json_array();

	for (size_t n = 0; n < KVW_SEEN_SHOWN; n++) {
		const struct kvw_seen_prefix *hottest = NULL;
		char hash[17];

		for (size_t i = 0; i < seen->prefix_count; i++) {
			const struct kvw_seen_prefix *prefix = &seen->prefixes[i];

			if (!shown[i] && now_ns - prefix->used_ns <= KVW_SEEN_PREFIX_NS &&
				(hottest == NULL || is_colder(hottest, prefix)))
				hottest = prefix;
		}
		if (hottest == NULL)
			break;
		shown[hottest - seen->prefixes] = true;
		(void)snprintf(hash, sizeof(hash), "%016" PRIx64, hottest->hash);
		json_array_append_new(items,
			json_pack("{s:s, s:I, s:I, s:o}", "prefix", hash, "tokens",
				(json_int_t)hottest->tokens, "hits", (json_int_t)hottest->hits,
				"workers", holders_json(hottest, fleet)));
	}
	return json_pack("{s:I, s:I, s:o}", "seen", (json_int_t)seen->seen, "ended",
		(json_int_t)seen->ended, "items", items);
}
