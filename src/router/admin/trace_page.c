/* trace_page.c - writes a request's trace. */
#include "admin/trace_page.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "openai/api_path.h"

const char *kvw_trace_worker_url(const struct kvw_fleet *fleet, uint32_t worker)
{
	uint32_t slot = kvw_trace_worker_slot(worker);
	const struct kvw_worker *found = slot < fleet->count ? fleet->workers[slot] : NULL;
	uint32_t use = found == NULL ? 0 : atomic_load_explicit(&found->use, memory_order_relaxed);

	if (found == NULL || kvw_trace_worker(slot, use) != worker ||
		kvw_worker_life(found) == KVW_WORKER_FREE)
		return NULL;
	return found->url;
}

static void put_text(struct kvw_page *out, const char *key, struct kvw_slice value)
{
	kvw_page_member(out, key);
	kvw_page_json(out, value);
}

static void put_name(struct kvw_page *out, const char *key, const char *value)
{
	put_text(out, key, kvw_slice_of(value));
}

static void put_number(struct kvw_page *out, const char *key, uint64_t value)
{
	kvw_page_member(out, key);
	kvw_page_u64(out, value);
}

/* Writes milliseconds with three decimals. */
static void put_ms(struct kvw_page *out, uint64_t us)
{
	char text[32];

	(void)snprintf(text, sizeof(text), "%llu.%03u", (unsigned long long)(us / 1000),
		(unsigned)(us % 1000));
	kvw_page_string(out, text);
}

static void put_time(struct kvw_page *out, int64_t wall_ns)
{
	time_t second = (time_t)(wall_ns / KVW_NS_PER_S);
	char text[40], day[24];
	struct tm utc;

	gmtime_r(&second, &utc);
	strftime(day, sizeof(day), "%Y-%m-%dT%H:%M:%S", &utc);
	(void)snprintf(
		text, sizeof(text), "%s.%03dZ", day, (int)(wall_ns % KVW_NS_PER_S / KVW_NS_PER_MS));
	kvw_page_json(out, kvw_slice_of(text));
}

static void put_attempt(struct kvw_page *out, const struct kvw_fleet *fleet,
	const struct kvw_trace_story *story, const struct kvw_trace_note *note)
{
	const char *url = kvw_trace_worker_url(fleet, note->more);
	struct kvw_slice known = kvw_trace_knowledge(story, note);
	uint64_t prefix = kvw_trace_prefix(story, note);
	char text[17];

	if (url != NULL)
		put_name(out, "worker", url);
	else
		kvw_page_string(out, ",\"worker\":null");
	if (note->kind == KVW_TRACE_ATTEMPT)
		put_name(out, "reason", kvw_reason_name((enum kvw_reason)note->code));
	put_number(out, "predicted_cached_tokens", note->number);
	if (prefix != 0) {
		(void)snprintf(text, sizeof(text), "%016" PRIx64, prefix);
		put_name(out, "prefix", text);
	}
	if (known.len > 0)
		put_text(out, "knowledge", known);
}

/* Returns the key for the name of a note's code. */
static const char *code_key(enum kvw_trace_kind kind)
{
	if (kind == KVW_TRACE_STEP)
		return "verdict";
	return kind == KVW_TRACE_FAILED ? "then" : "name";
}

/* Returns the key for a note's text. */
static const char *text_key(enum kvw_trace_kind kind)
{
	if (kind == KVW_TRACE_STEP || kind == KVW_TRACE_WAIT)
		return "name";
	return kind == KVW_TRACE_ANSWER ? "message" : "why";
}

static void put_note(struct kvw_page *out, const struct kvw_trace *trace,
	const struct kvw_fleet *fleet, const struct kvw_trace_story *story,
	const struct kvw_trace_note *note)
{
	enum kvw_trace_kind kind = (enum kvw_trace_kind)note->kind;
	const char *name = kind == KVW_TRACE_END ? kvw_end_name((enum kvw_end)note->code)
						 : kvw_trace_code_name(trace, kind, note->code);
	struct kvw_slice text = kvw_trace_story_text(story, note->text_word, note->text_len);

	kvw_page_string(out, "{\"ms\":");
	put_ms(out, note->at_us);
	put_name(out, "what", kvw_trace_kind_name(kind));
	if (text.len > 0 && kind != KVW_TRACE_ATTEMPT)
		put_text(out, text_key(kind), text);
	if (kind == KVW_TRACE_ATTEMPT || kind == KVW_TRACE_LEG)
		put_attempt(out, fleet, story, note);
	else if (name != NULL)
		put_name(out, code_key(kind), name);
	if (kind == KVW_TRACE_ANSWER)
		put_number(out, "status", note->number);
	else if (kind == KVW_TRACE_PREFILLED && note->number > 0)
		put_number(out, "prompt_tokens", note->number);
	else if (kind == KVW_TRACE_WAIT && note->number > 0)
		put_number(out, "at_most_ms", note->number);
	kvw_page_string(out, "}");
}

/* Writes the request's place in a distributed trace, and why it was exported, if it was. */
static void put_trace(struct kvw_page *out, const struct kvw_trace_story *story)
{
	static const char *const why[] = {[KVW_TRACE_EXPORT_SAMPLED] = "sampled",
		[KVW_TRACE_EXPORT_SLOW] = "slow",
		[KVW_TRACE_EXPORT_FAILED] = "failed"};
	char id[KVW_TRACE_ID_LEN];

	kvw_trace_id(id, &story->context);
	put_text(out, "trace_id", (struct kvw_slice){id, sizeof(id)});
	if (story->export != KVW_TRACE_EXPORT_NOT)
		put_name(out, "exported", why[story->export]);
}

void kvw_trace_page(const struct kvw_trace *trace, const struct kvw_fleet *fleet,
	const struct kvw_trace_story *story, int64_t now_ns, struct kvw_page *out)
{
	int64_t total_ns = story->ended != 0 ? story->total_ns : now_ns - story->start_ns;

	kvw_page_string(out, "{\"ts\":");
	put_time(out, story->wall_ns);
	put_text(out, "request_id", kvw_trace_story_text(story, story->id_word, story->id_len));
	if (story->context.span != 0)
		put_trace(out, story);
	put_name(out, "route", kvw_api_name(story->api));
	if (story->model_len > 0)
		put_text(out, "model",
			kvw_trace_story_text(story, story->model_word, story->model_len));
	if (story->ended != 0) {
		put_number(out, "status", (uint64_t)story->status);
		put_name(out, "end", kvw_end_name(story->end));
	}
	kvw_page_string(out, ",\"total_ms\":");
	put_ms(out, total_ns < 0 ? 0 : (uint64_t)total_ns / 1000);
	if (story->skipped > 0)
		put_number(out, "notes_skipped", story->skipped);
	kvw_page_string(out, ",\"way\":[");
	for (size_t i = 0; i < story->note_count; i++) {
		if (i > 0)
			kvw_page_string(out, ",");
		put_note(out, trace, fleet, story, &story->notes[i]);
	}
	kvw_page_string(out, "]}\n");
}
