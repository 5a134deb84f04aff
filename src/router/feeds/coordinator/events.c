/*
 * events.c - see events.h.
 *
 * A recursive descent over the bytes, without recursion where a sender chooses the depth: unknown
 * values are skipped by a counter of brackets. The inner loop is the list of token ids, which is
 * nearly all of a body: one comparison and one multiplication for each digit.
 */
#include "feeds/coordinator/events.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEPTH_MOST 32 /* of a value that is skipped */

static const char *const type_names[KVW_CE_TYPES] = {"store", "delete", "access", "config"};
static const char *const tier_names[KVW_CE_TIERS] = {"l1", "l2"};

const char *kvw_ce_type_name(enum kvw_ce_type type)
{
	return type_names[type];
}

const char *kvw_ce_tier_name(enum kvw_ce_tier tier)
{
	return tier_names[tier];
}

/* Keeps the first error. */
static bool fail(struct kvw_ce_reader *r, const char *expected)
{
	char batch[40] = "", entry[40] = "";

	if (r->error[0] != '\0')
		return false;
	if (r->in_batch)
		(void)snprintf(batch, sizeof(batch), "batches[%zu].", r->batch_no);
	if (r->in_entry)
		(void)snprintf(entry, sizeof(entry), "entries[%zu].", r->entry_no);
	(void)snprintf(r->error, sizeof(r->error), "%s%s%s: %s", batch, entry,
		r->member == NULL ? "" : r->member, expected);
	return false;
}

/* --- the grammar ------------------------------------------------------------------------------ */

static void skip_blanks(struct kvw_ce_reader *r)
{
	while (r->at < r->end &&
		(*r->at == ' ' || *r->at == '\n' || *r->at == '\t' || *r->at == '\r'))
		r->at++;
}

/* Takes the character if it is the next one that is not blank. */
static bool take(struct kvw_ce_reader *r, char c)
{
	skip_blanks(r);
	if (r->at == r->end || *r->at != c)
		return false;
	r->at++;
	return true;
}

static bool hex_digit(char c, uint32_t *value)
{
	if (c >= '0' && c <= '9')
		*value = (uint32_t)(c - '0');
	else if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f')
		*value = (uint32_t)((c | 0x20) - 'a' + 10);
	else
		return false;
	return true;
}

/* The four digits of \uXXXX. */
static bool read_unit(struct kvw_ce_reader *r, uint32_t *unit)
{
	uint32_t digit;

	*unit = 0;
	for (int i = 0; i < 4; i++, r->at++) {
		if (r->at == r->end || !hex_digit(*r->at, &digit))
			return fail(r, "an escape that cannot be read");
		*unit = *unit << 4 | digit;
	}
	return true;
}

static size_t put_utf8(char out[4], uint32_t code)
{
	if (code < 0x80) {
		out[0] = (char)code;
		return 1;
	}
	if (code < 0x800) {
		out[0] = (char)(0xc0 | code >> 6);
		out[1] = (char)(0x80 | (code & 0x3f));
		return 2;
	}
	if (code < 0x10000) {
		out[0] = (char)(0xe0 | code >> 12);
		out[1] = (char)(0x80 | (code >> 6 & 0x3f));
		out[2] = (char)(0x80 | (code & 0x3f));
		return 3;
	}
	out[0] = (char)(0xf0 | code >> 18);
	out[1] = (char)(0x80 | (code >> 12 & 0x3f));
	out[2] = (char)(0x80 | (code >> 6 & 0x3f));
	out[3] = (char)(0x80 | (code & 0x3f));
	return 4;
}

/* Reads the characters behind a backslash. */
static bool read_escape(struct kvw_ce_reader *r, char out[4], size_t *len)
{
	static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
	char c = r->at < r->end ? *r->at++ : '\0';
	const char *plain = c == '\0' ? NULL : strchr(from, c);
	uint32_t code, low;

	*len = 1;
	if (plain != NULL) {
		out[0] = to[plain - from];
		return true;
	}
	if (c != 'u' || !read_unit(r, &code))
		return fail(r, "an escape that cannot be read");
	if (code >= 0xd800 && code < 0xdc00 && r->end - r->at >= 2 && r->at[0] == '\\' &&
		r->at[1] == 'u') {
		r->at += 2;
		if (!read_unit(r, &low))
			return false;
		if (low < 0xdc00 || low >= 0xe000)
			return fail(r, "half of a character");
		code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
	} else if (code >= 0xd800 && code < 0xe000) {
		return fail(r, "half of a character");
	}
	*len = put_utf8(out, code);
	return true;
}

/* Reads a string into out, whose room is most + 1. */
static bool read_text(struct kvw_ce_reader *r, char *out, size_t most, size_t *len)
{
	*len = 0;
	if (!take(r, '"'))
		return fail(r, "expected a string");
	while (r->at < r->end && *r->at != '"') {
		char piece[4] = {*r->at++};
		size_t piece_len = 1;

		if ((unsigned char)piece[0] < 0x20)
			return fail(r, "a control character in a string");
		if (piece[0] == '\\' && !read_escape(r, piece, &piece_len))
			return false;
		if (*len + piece_len > most)
			return fail(r, "the string is too long");
		memcpy(out + *len, piece, piece_len);
		*len += piece_len;
	}
	out[*len] = '\0';
	return take(r, '"') || fail(r, "the string does not end");
}

/* An integer within [least, most]. */
static bool read_integer(struct kvw_ce_reader *r, int64_t least, int64_t most, int64_t *value)
{
	uint64_t sum = 0;
	const char *begin;
	bool negative = take(r, '-');

	for (begin = r->at; r->at < r->end && *r->at >= '0' && *r->at <= '9'; r->at++) {
		if (sum > (uint64_t)INT64_MAX / 10 - 1)
			return fail(r, "the number is too large");
		sum = sum * 10 + (uint64_t)(*r->at - '0');
	}
	if (r->at == begin || (*begin == '0' && r->at > begin + 1) ||
		(r->at < r->end && (*r->at == '.' || (*r->at | 0x20) == 'e')))
		return fail(r, "expected an integer");
	*value = negative ? -(int64_t)sum : (int64_t)sum;
	return (*value >= least && *value <= most) || fail(r, "the number is outside its limits");
}

static bool read_unsigned(struct kvw_ce_reader *r, uint64_t least, uint64_t *value)
{
	int64_t number;

	if (!read_integer(r, (int64_t)least, INT64_MAX, &number))
		return false;
	*value = (uint64_t)number;
	return true;
}

/* Seconds: a number of at most 40 characters, not negative, whose nanoseconds fit 63 bits. */
static bool read_seconds(struct kvw_ce_reader *r, double *value)
{
	char text[41];
	size_t len = 0;
	char *stop;

	skip_blanks(r);
	while (r->at < r->end && len < sizeof(text) - 1 && *r->at != '\0' &&
		strchr("0123456789+-.eE", *r->at) != NULL)
		text[len++] = *r->at++;
	text[len] = '\0';
	*value = strtod(text, &stop);
	if (len == 0 || *stop != '\0' || !(*value >= 0) || *value > 9e9)
		return fail(r, "expected seconds, from 0 to 9e9");
	return true;
}

static bool read_word(struct kvw_ce_reader *r, const char *word)
{
	size_t len = strlen(word);

	skip_blanks(r);
	if ((size_t)(r->end - r->at) < len || memcmp(r->at, word, len) != 0)
		return false;
	r->at += len;
	return true;
}

static bool read_bool(struct kvw_ce_reader *r, bool *value)
{
	*value = read_word(r, "true");
	return *value || read_word(r, "false") || fail(r, "expected true or false");
}

static bool skip_text(struct kvw_ce_reader *r)
{
	for (r->at++; r->at < r->end && *r->at != '"'; r->at++)
		if (*r->at == '\\' && ++r->at == r->end)
			break;
	if (r->at == r->end)
		return fail(r, "the string does not end");
	r->at++;
	return true;
}

/* Skips a value; only its brackets and strings are looked at. */
static bool skip_value(struct kvw_ce_reader *r)
{
	unsigned depth = 0;

	do {
		char c;

		skip_blanks(r);
		c = r->at < r->end ? *r->at : '\0';
		if (c == '"') {
			if (!skip_text(r))
				return false;
		} else if (c == '{' || c == '[') {
			if (++depth > DEPTH_MOST)
				return fail(r, "values are nested too deeply");
			r->at++;
		} else if ((c == '}' || c == ']') && depth > 0) {
			depth--;
			r->at++;
		} else if ((c == ',' || c == ':') && depth > 0) {
			r->at++;
		} else {
			const char *begin = r->at;

			while (r->at < r->end &&
				((*r->at >= '0' && *r->at <= '9') || *r->at == '-' ||
					*r->at == '+' || *r->at == '.' ||
					((*r->at | 0x20) >= 'a' && (*r->at | 0x20) <= 'z')))
				r->at++;
			if (r->at == begin)
				return fail(r, "this is no JSON");
		}
	} while (depth > 0);
	return true;
}

/* The name of an object's next member. False: the object has ended, or an error. */
static bool next_member(struct kvw_ce_reader *r, bool *first, char *name, size_t room)
{
	size_t len;

	if (take(r, '}'))
		return false;
	if (!*first && !take(r, ','))
		return fail(r, "expected a comma or the end of the object");
	*first = false;
	r->member = NULL;
	return read_text(r, name, room - 1, &len) && (take(r, ':') || fail(r, "expected a colon"));
}

static bool begin_list(struct kvw_ce_reader *r)
{
	return take(r, '[') || fail(r, "expected a list");
}

/* Is there another item? False: the list has ended, or an error. */
static bool next_item(struct kvw_ce_reader *r, bool *first)
{
	if (take(r, ']'))
		return false;
	if (!*first && !take(r, ','))
		return fail(r, "expected a comma or the end of the list");
	*first = false;
	return true;
}

/* --- entries ---------------------------------------------------------------------------------- */

static bool read_hash(struct kvw_ce_reader *r, struct kvw_slice *hash)
{
	size_t len;

	if (!read_text(r, r->digits, sizeof(r->digits) - 1, &len))
		return false;
	for (size_t i = 0; i + 1 < len; i += 2) {
		uint32_t high, low;

		if (!hex_digit(r->digits[i], &high) || !hex_digit(r->digits[i + 1], &low))
			return fail(r, "expected hexadecimal digits");
		r->hash[i / 2] = (char)(high << 4 | low);
	}
	*hash = (struct kvw_slice){r->hash, len / 2};
	return len % 2 == 0 || fail(r, "expected an even number of hexadecimal digits");
}

bool kvw_ce_is_salt(struct kvw_slice salt)
{
	size_t characters = 0;

	for (size_t i = 0; i < salt.len; i++) {
		if (memchr("@/\\", salt.data[i], 4) != NULL) /* with its NUL */
			return false;
		characters += ((unsigned char)salt.data[i] & 0xc0) != 0x80;
	}
	return characters <= 128;
}

static bool check_salt(struct kvw_ce_reader *r, struct kvw_slice salt)
{
	return kvw_ce_is_salt(salt) ||
	       fail(r, "must have at most 128 characters, none of @, /, \\ and NUL");
}

static bool read_number32(struct kvw_ce_reader *r, uint32_t *value)
{
	int64_t number;

	if (!read_integer(r, 0, UINT32_MAX, &number))
		return false;
	*value = (uint32_t)number;
	return true;
}

static bool read_key(struct kvw_ce_reader *r, struct kvw_ce_key *key)
{
	bool first = true, hash = false, model = false, rank = false;
	char name[64];

	*key = (struct kvw_ce_key){.salt = {r->salt, 0}};
	if (!take(r, '{'))
		return fail(r, "expected an object");
	while (next_member(r, &first, name, sizeof(name))) {
		bool read;

		if (strcmp(name, "chunk_hash_hex") == 0) {
			r->member = "key.chunk_hash_hex";
			read = hash = read_hash(r, &key->hash);
		} else if (strcmp(name, "model_name") == 0) {
			r->member = "key.model_name";
			key->model.data = r->model;
			read = model = read_text(r, r->model, KVW_CE_MODEL_MOST, &key->model.len);
			if (read && memchr(r->model, '@', key->model.len) != NULL)
				return fail(r, "must not contain @");
		} else if (strcmp(name, "kv_rank") == 0) {
			r->member = "key.kv_rank";
			read = rank = read_number32(r, &key->rank);
		} else if (strcmp(name, "object_group_id") == 0) {
			r->member = "key.object_group_id";
			read = read_number32(r, &key->group);
		} else if (strcmp(name, "cache_salt") == 0) {
			r->member = "key.cache_salt";
			read = read_text(r, r->salt, KVW_CE_SALT_MOST, &key->salt.len) &&
			       check_salt(r, key->salt);
		} else {
			read = skip_value(r);
		}
		if (!read)
			return false;
	}
	if (r->error[0] != '\0')
		return false;
	r->member = !hash ? "key.chunk_hash_hex" : !model ? "key.model_name" : "key.kv_rank";
	return (hash && model && rank) || fail(r, "field required");
}

/* Short numbers without blanks are read here, all others by read_number32. */
static bool read_token(struct kvw_ce_reader *r, uint32_t *token)
{
	const char *at = r->at;
	uint64_t sum = 0;

	while (at < r->end && at - r->at < 10 && *at >= '0' && *at <= '9')
		sum = sum * 10 + (uint64_t)(*at++ - '0');
	if (at == r->at || at == r->end || (*at != ',' && *at != ']') || sum > UINT32_MAX ||
		(*r->at == '0' && at > r->at + 1))
		return read_number32(r, token);
	r->at = at;
	*token = (uint32_t)sum;
	return true;
}

static bool read_tokens(struct kvw_ce_reader *r, size_t *count)
{
	bool first = true;

	*count = 0;
	if (!begin_list(r))
		return false;
	while (next_item(r, &first)) {
		if (*count == KVW_CE_TOKENS_MOST)
			return fail(r, "at most 8192 token ids");
		if (!read_token(r, &r->tokens[(*count)++]))
			return false;
	}
	return r->error[0] == '\0';
}

static bool read_entry(struct kvw_ce_reader *r, struct kvw_ce_entry *entry)
{
	bool first = true, key = false;
	char name[64];

	*entry = (struct kvw_ce_entry){.tokens = r->tokens, .offset = -1};
	r->member = NULL;
	if (!take(r, '{'))
		return fail(r, "expected an object");
	while (next_member(r, &first, name, sizeof(name))) {
		bool read;

		if (strcmp(name, "key") == 0) {
			r->member = "key";
			read = key = read_key(r, &entry->key);
		} else if (strcmp(name, "size_bytes") == 0) {
			r->member = "size_bytes";
			read = read_unsigned(r, 0, &entry->size_bytes);
		} else if (strcmp(name, "token_ids") == 0) {
			r->member = "token_ids";
			read = read_tokens(r, &entry->token_count);
		} else if (strcmp(name, "token_offset") == 0) {
			r->member = "token_offset";
			read = read_integer(r, -1, INT64_MAX, &entry->offset);
		} else {
			read = skip_value(r);
		}
		if (!read)
			return false;
	}
	r->member = "key";
	return r->error[0] == '\0' && (key || fail(r, "field required"));
}

/* Reads the list of entries at r->at. */
static bool read_entries(
	struct kvw_ce_reader *r, const struct kvw_ce_batch *batch, const struct kvw_ce_sink *sink)
{
	struct kvw_ce_entry entry;
	bool first = true, read = true;

	r->member = "entries";
	if (!begin_list(r))
		return false;
	for (r->entry_no = 0; read && next_item(r, &first); r->entry_no++) {
		r->in_entry = true;
		read = read_entry(r, &entry);
		if (read && batch->type == KVW_CE_CONFIG)
			return fail(r, "a config batch has no entries");
		if (read && sink != NULL)
			sink->entry(sink->ctx, batch, &entry);
	}
	r->in_entry = r->error[0] != '\0' && r->in_entry;
	return read && r->error[0] == '\0';
}

/* --- batches ---------------------------------------------------------------------------------- */

/* Reads one of the words; the index of it. */
static bool read_choice(struct kvw_ce_reader *r, const char *const *words, int count,
	const char *expected, int *index)
{
	char text[16];
	size_t len;

	if (!read_text(r, text, sizeof(text) - 1, &len))
		return false;
	for (*index = 0; *index < count; (*index)++)
		if (strcmp(text, words[*index]) == 0)
			return true;
	return fail(r, expected);
}

enum {
	MET_INSTANCE = 1,
	MET_INCARNATION = 2,
	MET_SEQ = 4,
	MET_TYPE = 8,
	MET_TIER = 16,
	MET_BACKEND = 32,
	MET_ALL = 63
};

static bool read_member(struct kvw_ce_reader *r, const char *name, struct kvw_ce_batch *batch,
	unsigned *met, const char **entries)
{
	int choice;

	if (strcmp(name, "instance_id") == 0) {
		r->member = "instance_id";
		*met |= MET_INSTANCE;
		return read_text(r, r->instance, KVW_CE_INSTANCE_MOST, &batch->instance.len) &&
		       (batch->instance.len > 0 || fail(r, "must not be empty"));
	}
	if (strcmp(name, "backend") == 0) {
		r->member = "backend";
		*met |= MET_BACKEND;
		return read_text(r, r->backend, KVW_CE_BACKEND_MOST, &batch->backend.len);
	}
	if (strcmp(name, "incarnation") == 0) {
		r->member = "incarnation";
		*met |= MET_INCARNATION;
		return read_unsigned(r, 0, &batch->incarnation);
	}
	if (strcmp(name, "seq") == 0) {
		r->member = "seq";
		*met |= MET_SEQ;
		return read_unsigned(r, 1, &batch->seq);
	}
	if (strcmp(name, "event_type") == 0) {
		r->member = "event_type";
		*met |= MET_TYPE;
		if (!read_choice(r, type_names, KVW_CE_TYPES,
			    "expected store, delete, access or config", &choice))
			return false;
		batch->type = (enum kvw_ce_type)choice;
		return true;
	}
	if (strcmp(name, "tier") == 0) {
		r->member = "tier";
		*met |= MET_TIER;
		if (!read_choice(r, tier_names, KVW_CE_TIERS, "expected l1 or l2", &choice))
			return false;
		batch->tier = (enum kvw_ce_tier)choice;
		return true;
	}
	if (strcmp(name, "entries") == 0) {
		skip_blanks(r);
		*entries = r->at;
	}
	r->member = "shared";
	if (strcmp(name, r->member) == 0)
		return read_bool(r, &batch->shared);
	r->member = "ts";
	if (strcmp(name, r->member) == 0)
		return read_seconds(r, &batch->ts);
	r->member = "capacity_bytes";
	if (strcmp(name, r->member) == 0)
		return read_unsigned(r, 0, &batch->capacity_bytes);
	r->member = "capacity_revision";
	if (strcmp(name, r->member) == 0)
		return read_unsigned(r, 0, &batch->capacity_revision);
	r->member = NULL;
	return skip_value(r);
}

static bool check_batch(struct kvw_ce_reader *r, const struct kvw_ce_batch *batch, unsigned met)
{
	static const char *const names[] = {
		"instance_id", "incarnation", "seq", "event_type", "tier", "backend"};

	for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		r->member = names[i];
		if ((met & 1u << i) == 0)
			return fail(r, "field required");
	}
	return batch->backend.len > 0 || batch->type == KVW_CE_ACCESS ||
	       fail(r, "must not be empty");
}

static bool read_batch(struct kvw_ce_reader *r, const struct kvw_ce_sink *sink)
{
	struct kvw_ce_batch batch = {.instance = {r->instance, 0}, .backend = {r->backend, 0}};
	const char *entries = NULL, *after;
	bool first = true, wanted = true;
	unsigned met = 0;
	char name[64];

	r->member = NULL;
	if (!take(r, '{'))
		return fail(r, "expected an object");
	while (next_member(r, &first, name, sizeof(name)))
		if (!read_member(r, name, &batch, &met, &entries))
			return false;
	if (r->error[0] != '\0' || !check_batch(r, &batch, met))
		return false;
	if (sink != NULL)
		wanted = sink->batch(sink->ctx, &batch);
	if (entries == NULL || !wanted)
		return true;
	after = r->at;
	r->at = entries;
	if (!read_entries(r, &batch, sink))
		return false;
	r->at = after;
	return true;
}

static bool read_batches(struct kvw_ce_reader *r, const struct kvw_ce_sink *sink)
{
	bool first = true;

	r->member = "batches";
	if (!begin_list(r))
		return false;
	for (r->batch_no = 0; next_item(r, &first); r->batch_no++) {
		r->in_batch = true;
		if (!read_batch(r, sink))
			return false;
	}
	r->in_batch = r->error[0] != '\0' && r->in_batch;
	return r->error[0] == '\0';
}

enum kvw_err kvw_ce_read(
	struct kvw_ce_reader *r, struct kvw_slice body, const struct kvw_ce_sink *sink)
{
	bool first = true, met = false, read = true;
	char name[64];

	r->error[0] = '\0';
	r->at = body.data;
	r->end = body.data + body.len;
	r->in_batch = r->in_entry = false;
	r->member = NULL;
	if (!take(r, '{'))
		read = fail(r, "the body is not a JSON object");
	while (read && next_member(r, &first, name, sizeof(name))) {
		if (strcmp(name, "batches") != 0) {
			read = skip_value(r);
			continue;
		}
		read = !met || fail(r, "`batches` stands there twice");
		met = true;
		read = read && read_batches(r, sink);
	}
	skip_blanks(r);
	if (r->error[0] == '\0' && r->at != r->end)
		(void)fail(r, "something follows the JSON object");
	return r->error[0] == '\0' ? KVW_OK : KVW_EINVAL;
}
