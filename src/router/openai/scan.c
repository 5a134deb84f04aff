/*
 * scan.c - creates a scan, resets it for each body, and returns its results.
 *
 * Memory is kept for the next body, up to SCAN_KEEP_BYTES.
 */
#include <stdlib.h>
#include <string.h>

#include "openai/engine_fields.h"
#include "openai/scan_state.h"

enum kvw_err kvw_scan_create(const struct kvw_scan_options *options, struct kvw_scan **out)
{
	static const char *const text_types[] = {
		"text", "input_text", "output_text", "summary_text"};
	struct kvw_scan *scan;

	if (options != NULL && options->session_field_count > KVW_SCAN_MAX_SESSION_FIELDS)
		return KVW_EINVAL;
	scan = aligned_alloc(64, (sizeof(*scan) + 63) / 64 * 64);
	if (scan == NULL)
		return KVW_ENOMEM;
	memset(scan, 0, sizeof(*scan));
	scan->ops = kvw_text_ops();
	for (size_t i = 0; options != NULL && i < options->session_field_count; i++)
		scan->session_names[i] = kvw_slice_of(options->session_fields[i]);
	scan->session_count = options == NULL ? 0 : (uint32_t)options->session_field_count;
	for (size_t i = 0; i < sizeof(text_types) / sizeof(text_types[0]); i++)
		scan->hash_text[i] = value_of_word(text_types[i]);
	scan->hash_message = value_of_word("message");
	scan->hash_user = value_of_word("user");
	scan->hash_system = value_of_word("system");
	keys_index(scan);
	kvw_scan_reset(scan, KVW_API_OTHER);
	*out = scan;
	return KVW_OK;
}

/* Frees the memory that grows with the body. */
static void release_memory(struct kvw_scan *scan)
{
	free(scan->scratch.data);
	free(scan->held.data);
	free(scan->ids.data);
	free(scan->messages);
	free(scan->chain_ends);
	free(scan->members);
	free(scan->chunks);
	free(scan->text.pieces);
	free(scan->cuts);
	scan->cuts = NULL;
	scan->scratch = scan->held = scan->ids = (struct buffer){NULL, 0, 0};
	scan->messages = NULL;
	scan->chain_ends = NULL;
	scan->members = NULL;
	scan->chunks = NULL;
	scan->text.pieces = NULL;
	scan->message_capacity = scan->chain_capacity = scan->member_capacity = 0;
	scan->chunk_capacity = 0;
	scan->text.piece_capacity = 0;
}

void kvw_scan_destroy(struct kvw_scan *scan)
{
	if (scan == NULL)
		return;
	release_memory(scan);
	free(scan);
}

size_t kvw_scan_memory(const struct kvw_scan *scan)
{
	return sizeof(*scan) + scan->scratch.capacity + scan->held.capacity +
	       scan->ids.capacity + scan->message_capacity * sizeof(*scan->messages) +
	       scan->chain_capacity * sizeof(*scan->chain_ends) +
	       scan->member_capacity * sizeof(*scan->members) +
	       scan->chunk_capacity * sizeof(*scan->chunks) +
	       scan->text.piece_capacity * sizeof(*scan->text.pieces) +
	       (scan->cuts == NULL ? 0 : sizeof(*scan->cuts));
}

void kvw_scan_reset(struct kvw_scan *scan, enum kvw_api api)
{
	if (kvw_scan_memory(scan) > SCAN_KEEP_BYTES)
		release_memory(scan);
	scan->state = STATE_ROOT;
	scan->api = api;
	scan->depth = 0;
	scan->escape_len = scan->marked = 0;
	scan->high = 0;
	scan->scratch.len = scan->held.len = scan->ids.len = 0;
	scan->form.state = FORM_NONE;
	scan->no_memory = scan->stream = scan->include_usage = false;
	scan->exact_only = scan->cutting = scan->batch = false;
	scan->unknown = 0;
	scan->choices = scan->greedy = scan->most = scan->most_old = 0;
	scan->has_messages = scan->has_system = scan->prompt_ids = false;
	scan->prompts = 0;
	scan->keep_ids = scan->other_parts = false;
	scan->prompt_kind = PROMPT_NONE;
	for (int i = 0; i < SLOT_COUNT; i++)
		scan->slots[i] = (struct range){UINT32_MAX, 0};
	memset(scan->settings, 0, sizeof(scan->settings));
	scan->tools = scan->functions = (struct range){0, 0};
	scan->message = NULL;
	scan->message_count = scan->chain_count = scan->member_count = 0;
	scan->prompt_first = 0;
	scan->fed_bytes = 0;
	scan->places.form = scan->places.too_many = scan->places.fields = false;
	scan->places.ranked = false;
	scan->watched = 0;
	scan->places.empty = true;
	scan->places.count = 0;
	scan->text.piece_count = 0;
	scan->text.too_many = scan->text.no_memory = false;
	scan->text.fill = 0;
	scan->text.fields_only = false;
}

void kvw_scan_fields_only(struct kvw_scan *scan)
{
	scan->text.fields_only = true;
}

void kvw_scan_keep_ids(struct kvw_scan *scan)
{
	scan->keep_ids = true;
}

bool buffer_append(struct kvw_scan *scan, struct buffer *buffer, const char *data, size_t len)
{
	if (buffer->capacity - buffer->len < len) {
		size_t capacity = (buffer->len + len) * 2 + 64;
		char *grown = realloc(buffer->data, capacity);

		if (grown == NULL) {
			scan->no_memory = true;
			return false;
		}
		buffer->data = grown;
		buffer->capacity = capacity;
	}
	if (len > 0)
		memcpy(buffer->data + buffer->len, data, len);
	buffer->len += len;
	return true;
}

/* Returns the text of a slot; len 0: absent. */
static struct kvw_slice slot_text(const struct kvw_scan *scan, unsigned slot)
{
	struct range range = scan->slots[slot];

	if (range.first == UINT32_MAX || range.count == 0)
		return (struct kvw_slice){NULL, 0};
	return (struct kvw_slice){scan->held.data + range.first, range.count};
}

/* Returns the first session field that the body has, in the order of the options. */
static struct kvw_slice session_text(const struct kvw_scan *scan)
{
	struct kvw_slice found = {NULL, 0};

	for (uint32_t i = 0; i < scan->session_count && found.len == 0; i++) {
		unsigned slot = SLOT_SESSION + i;

		/* A field that has a meaning of its own is kept only in its own slot. */
		if (kvw_slice_equal(scan->session_names[i], KVW_SLICE("model")))
			slot = SLOT_MODEL;
		else if (kvw_slice_equal(scan->session_names[i], KVW_SLICE("cache_salt")))
			slot = SLOT_SALT;
		else if (kvw_slice_equal(scan->session_names[i], KVW_SLICE("previous_response_id")))
			slot = SLOT_PREVIOUS;
		found = slot_text(scan, slot);
	}
	return found;
}

enum kvw_err kvw_scan_finish(struct kvw_scan *scan, struct kvw_route_request *out)
{
	bool no_memory = scan->no_memory || scan->text.no_memory;
	enum kvw_err err = no_memory ? KVW_ENOMEM : KVW_EPROTO;

	memset(out, 0, sizeof(*out));
	out->api = scan->api;
	if (no_memory || scan->text.too_many)
		return err;
	if (scan->form.state == FORM_NONE ? scan->state != STATE_END : scan->form.state != FORM_END)
		return err;
	keys_settle(scan);
	out->api = scan->api;
	err = fold_chain(scan, out);
	if (err != KVW_OK)
		return err;
	out->model = slot_text(scan, SLOT_MODEL);
	out->previous_id = slot_text(scan, SLOT_PREVIOUS);
	out->session = session_text(scan);
	out->stream = scan->stream;
	out->include_usage = scan->include_usage;
	out->choices = scan->choices;
	out->answer_most = scan->most > 0 ? scan->most : scan->most_old;
	return KVW_OK;
}

bool kvw_scan_greedy(const struct kvw_scan *scan)
{
	return scan->greedy != 0;
}

struct kvw_slice kvw_scan_model(const struct kvw_scan *scan)
{
	return slot_text(scan, SLOT_MODEL);
}

bool kvw_scan_goes_on(const struct kvw_scan *scan)
{
	if (scan->no_memory || scan->text.no_memory || scan->text.too_many)
		return false;
	if (scan->form.state != FORM_NONE)
		return scan->form.state != FORM_END && scan->form.state != FORM_FAILED;
	return scan->state != STATE_END && scan->state != STATE_FAILED;
}

/* --- changing a body --- */

_Static_assert(SLOT_MODEL == (int)KVW_PLACE_MODEL && SLOT_SALT == (int)KVW_PLACE_SALT &&
		       SLOT_COUNT <= (int)KVW_PLACE_FIELD,
	"slots and places share numbers");

static bool is_place(unsigned kind)
{
	return kind == SLOT_MODEL || kind == SLOT_SALT || kind >= KVW_PLACE_FIELD;
}

void places_begin(struct kvw_scan *scan, unsigned kind, uint64_t at)
{
	struct kvw_scan_places *places = &scan->places;

	if (!is_place(kind))
		return;
	if (places->count == KVW_SCAN_PLACES) {
		places->too_many = true;
		return;
	}
	places->fields = places->fields || kind >= KVW_PLACE_FIELD;
	places->items[places->count++] = (struct kvw_scan_place){at, at, (uint8_t)kind};
}

void places_end(struct kvw_scan *scan, unsigned kind, uint64_t at)
{
	if (is_place(kind) && !scan->places.too_many)
		scan->places.items[scan->places.count - 1].end = at;
}

uint8_t places_field(const struct kvw_scan *scan, const char *name, size_t len)
{
	uint32_t field = scan->watched == 0 ? UINT32_MAX : kvw_engine_field(name, len);

	return field == UINT32_MAX || (scan->watched >> field & 1) == 0
		       ? 0
		       : (uint8_t)(1 + KVW_PLACE_FIELD + field);
}

void kvw_scan_watch_fields(struct kvw_scan *scan, uint32_t fields)
{
	scan->watched = fields;
}

bool kvw_scan_exact_only(const struct kvw_scan *scan)
{
	return scan->exact_only;
}

const struct kvw_scan_places *kvw_scan_places(const struct kvw_scan *scan)
{
	return &scan->places;
}

struct kvw_slice kvw_scan_salt(const struct kvw_scan *scan, bool *there)
{
	*there = scan->slots[SLOT_SALT].first != UINT32_MAX;
	return slot_text(scan, SLOT_SALT);
}

static bool set_slot(struct kvw_scan *scan, unsigned slot, struct kvw_slice text)
{
	size_t first = scan->held.len;

	if (!buffer_append(scan, &scan->held, text.data, text.len))
		return false;
	scan->slots[slot] = (struct range){(uint32_t)first, (uint32_t)text.len};
	return true;
}

bool kvw_scan_set_salt(struct kvw_scan *scan, struct kvw_slice salt)
{
	return set_slot(scan, SLOT_SALT, salt);
}

bool kvw_scan_set_model(struct kvw_scan *scan, struct kvw_slice model)
{
	return set_slot(scan, SLOT_MODEL, model);
}

static bool has_setting(const struct kvw_scan *scan, enum setting setting)
{
	return scan->settings[setting] != 0;
}

static enum kvw_prompt_form prompt_form(const struct kvw_scan *scan)
{
	if (scan->chain_count != 1 || has_setting(scan, SETTING_SUFFIX) ||
		scan->prompts != 1u << PROMPT_OWN)
		return KVW_FORM_NONE;
	if (scan->prompt_ids)
		return scan->keep_ids ? KVW_FORM_IDS : KVW_FORM_NONE;
	return scan->prompt_kind == PROMPT_STRINGS ? KVW_FORM_CONVERT : KVW_FORM_PLAIN;
}

static enum kvw_prompt_form talk_form(const struct kvw_scan *scan)
{
	if (scan->other_parts || has_setting(scan, SETTING_MM_PROCESSOR_KWARGS))
		return KVW_FORM_NONE;
	if (scan->api == KVW_API_CHAT)
		return has_setting(scan, SETTING_DOCUMENTS) ||
				       has_setting(scan, SETTING_REASONING_EFFORT)
			       ? KVW_FORM_CONVERT
			       : KVW_FORM_PLAIN;
	return scan->tools.count > 0 || has_setting(scan, SETTING_PROMPT_TEMPLATE)
		       ? KVW_FORM_NONE
		       : KVW_FORM_CONVERT;
}

void kvw_scan_exact(const struct kvw_scan *scan, struct kvw_scan_exact *out)
{
	bool generates = scan->api == KVW_API_COMPLETIONS || scan->api == KVW_API_CHAT ||
			 scan->api == KVW_API_RESPONSES || scan->api == KVW_API_MESSAGES;

	*out = (struct kvw_scan_exact){.cache_salt = slot_text(scan, SLOT_SALT)};
	/* These are cases in which /tokenize would give other tokens; for example, it would not
	 * shorten the prompt. */
	if (!generates || scan->batch || (scan->prompts != 0) == scan->has_messages ||
		scan->unknown != 0 || scan->slots[SLOT_PREVIOUS].first != UINT32_MAX ||
		has_setting(scan, SETTING_TRUNCATE_PROMPT_TOKENS))
		return;
	out->form = scan->prompts != 0 ? prompt_form(scan) : talk_form(scan);
	if (out->form != KVW_FORM_IDS)
		return;
	out->ids = (const uint32_t *)(const void *)scan->ids.data;
	out->id_count = scan->ids.len / sizeof(uint32_t);
}
