/*
 * lmcache_value.c - has the tables of lmcache.def, and reads values by the types of their keys.
 *
 * PyYAML and LMCache's own converters decide the meaning of a user's file, so kvtier accepts their
 * spellings: `True` and `yes`, `256.0` for a whole number, a number in quotes, "1" for true in a
 * variable. A value that LMCache would silently misread (a variable `yes`, which it reads as false)
 * is a mistake here. Numbers are in fixed units; kvtier refuses a number with a unit and names the
 * number that was probably meant.
 */
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "lmcache/lmcache.h"

const struct kvt_lmcache_key kvt_lmcache_keys[KVT_LMC_COUNT] = {
#define KVT_LMCACHE_KEY(name, type, def, min, max, unit, fate, becomes, text)                      \
	{#name, KVT_LMCACHE_##type, def, min, max, unit, KVT_LMCACHE_##fate, becomes, text, false},
#define KVT_LMCACHE_EXTRA(name, type, min, max, unit, fate, becomes, text)                         \
	{#name, KVT_LMCACHE_##type, "", min, max, unit, KVT_LMCACHE_##fate, becomes, text, true},
#include "lmcache/lmcache.def"
};

const struct kvt_lmcache_other kvt_lmcache_others[] = {
#define KVT_LMCACHE_OTHER(extra, fate, names, text) {extra, KVT_LMCACHE_##fate, names, text},
#include "lmcache/lmcache.def"
	{false, KVT_LMCACHE_IGNORED, NULL, NULL},
};

const struct kvt_lmcache_alias kvt_lmcache_aliases[] = {
#define KVT_LMCACHE_ALIAS(old, name) {#old, #name},
#include "lmcache/lmcache.def"
	{NULL, NULL},
};

/* --- reports about a key ---------------------------------------------------------------------- */

static void say(
	struct kvw_report *report, const struct kvt_lmcache_value *value, size_t key, char *text)
{
	char path[KVT_LMCACHE_LABEL];

	snprintf(path, sizeof(path), "%s%s", kvt_lmcache_keys[key].extra ? "extra_config." : "",
		kvt_lmcache_keys[key].name);
	kvw_report_mistake(report, value->place, path, "%s", text);
}

void kvt_lmcache_mistake(struct kvt_lmcache_reading *r, size_t key, const char *format, ...)
{
	char text[640];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	say(&r->mistakes.report, &r->values[key], key, text);
}

void kvt_lmcache_note(struct kvt_lmcache_reading *r, size_t key, const char *format, ...)
{
	char text[640];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	say(&r->notes.report, &r->values[key], key, text);
}

/* Returns whether a key's value must not be in a log. */
static bool is_secret(size_t key)
{
	return key == KVT_LMC_EXTRA_password || key == KVT_LMC_EXTRA_valkey_password;
}

const char *kvt_lmcache_show(
	const struct kvt_lmcache_value *value, size_t key, char out[KVT_LMCACHE_SHOW])
{
	char quoted[KVW_REPORT_QUOTE];
	bool url = value->text != NULL && strstr(value->text, "://") != NULL;
	/* may have a password */
	const char *query = url ? memchr(value->text, '?', value->len) : NULL;
	const char *at = url ? memrchr(value->text, '@', value->len) : NULL;
	size_t len = query != NULL ? (size_t)(query - value->text) : value->len;

	if (value->node != NULL && value->node->kind != KVW_NODE_SCALAR)
		snprintf(out, KVT_LMCACHE_SHOW, "%s", kvw_node_kind_name(value->node));
	else if (is_secret(key))
		snprintf(out, KVT_LMCACHE_SHOW, "a password");
	/* both characters may be a part of the password */
	else if (at != NULL && query != NULL && query < at)
		snprintf(out, KVT_LMCACHE_SHOW, "a URL with a login");
	else if (at != NULL)
		snprintf(out, KVT_LMCACHE_SHOW, "`***%.100s",
			kvw_report_quote(quoted, at, (size_t)(value->text + len - at)) + 1);
	else if (value->len == 0)
		snprintf(out, KVT_LMCACHE_SHOW, "an empty text");
	else
		snprintf(out, KVT_LMCACHE_SHOW, "%s", kvw_report_quote(quoted, value->text, len));
	return out;
}

/* Writes what is expected, such as "a number of GiB from 0 to 65536". */
static void expected(const struct kvt_lmcache_key *key, char *out, size_t room)
{
	static const char *const words[] = {
		[KVT_LMCACHE_FLAG] = "true or false",
		[KVT_LMCACHE_COUNT] = "a whole number",
		[KVT_LMCACHE_NUMBER] = "a number",
		[KVT_LMCACHE_TEXT] = "text",
		[KVT_LMCACHE_COUNTS] = "a list of whole numbers",
		[KVT_LMCACHE_NUMBERS] = "a list of numbers",
		[KVT_LMCACHE_TEXTS] = "a list of texts",
		[KVT_LMCACHE_MAP] = "a mapping of keys",
	};

	snprintf(out, room, "%s%s%s%s%s%s%s", words[key->type], key->unit[0] != '\0' ? " of " : "",
		key->unit, key->min[0] != '\0' ? " from " : "", key->min,
		key->max[0] != '\0' ? " to " : "", key->max);
}

/* Guesses which number was meant: for `5GB` in a key in GiB, 5. Returns false if the text is of
 * another form. */
static bool meant(const struct kvt_lmcache_key *key, const struct kvt_lmcache_value *value,
	char *out, size_t room)
{
	static const char letters[] = "KMGT";
	char *end = NULL;
	double number = strtod(value->text, &end);
	const char *letter;

	if (key->type != KVT_LMCACHE_NUMBER || strcmp(key->unit, "GiB") != 0 ||
		end == value->text || !isfinite(number) || number <= 0)
		return false;
	end += strspn(end, " ");
	letter = *end != '\0' ? strchr(letters, *end & ~0x20) : NULL;
	if (letter == NULL)
		return false;
	snprintf(out, room, "%.10g", number * pow(1024, (double)(letter - letters) - 2));
	return true;
}

static void refuse_value(struct kvt_lmcache_reading *r, size_t i)
{
	const struct kvt_lmcache_key *key = &kvt_lmcache_keys[i];
	struct kvt_lmcache_value *value = &r->values[i];
	char shown[KVT_LMCACHE_SHOW], right[128], number[32];

	expected(key, right, sizeof(right));
	kvt_lmcache_show(value, i, shown);
	if (value->text != NULL && meant(key, value, number, sizeof(number)))
		kvt_lmcache_mistake(r, i,
			"found %s, expected %s without a unit; did you mean `%s`? Its default "
			"applies",
			shown, right, number);
	else
		kvt_lmcache_mistake(
			r, i, "found %s, expected %s; its default applies", shown, right);
}

/* --- types ------------------------------------------------------------------------------------ */

static bool is_word(const struct kvt_lmcache_value *value, const char *const *words)
{
	for (; *words != NULL; words++)
		if (strcasecmp(value->text, *words) == 0)
			return true;
	return false;
}

static bool read_flag(struct kvt_lmcache_value *value)
{
	static const char *const yes[] = {"true", "1", NULL}, *const no[] = {"false", "0", NULL};
	static const char *const plain_yes[] = {"yes", "on", NULL}, *const plain_no[] = {
									    "no", "off", NULL};

	value->flag = is_word(value, yes) || (!value->quoted && is_word(value, plain_yes));
	return value->flag || is_word(value, no) || (!value->quoted && is_word(value, plain_no));
}

static bool read_number(const struct kvt_lmcache_value *value, double *out)
{
	struct kvw_slice text = {value->text, value->len};
	struct kvw_fault fault = {0};
	union kvw_value number;

	if (kvw_type_RATIO.parse(&kvw_type_RATIO, text, NULL, &number, &fault) != KVW_OK)
		return false;
	*out = number.ratio;
	return true;
}

static bool read_count(struct kvt_lmcache_value *value)
{
	struct kvw_slice text = {value->text, value->len};
	struct kvw_fault fault = {0};
	union kvw_value number;

	if (kvw_type_INT.parse(&kvw_type_INT, text, NULL, &number, &fault) == KVW_OK) {
		value->count = number.integer;
		return true;
	}
	if (!read_number(value, &value->number) || value->number != floor(value->number) ||
		fabs(value->number) > 1e15)
		return false;
	value->count = (int64_t)value->number;
	return true;
}

/* Returns whether a number is within the limits in lmcache.def, which are decimal texts. */
static bool in_range(const struct kvt_lmcache_key *key, const struct kvt_lmcache_value *value)
{
	double number = key->type == KVT_LMCACHE_COUNT ? (double)value->count : value->number;

	return (key->min[0] == '\0' || number >= strtod(key->min, NULL)) &&
	       (key->max[0] == '\0' || number <= strtod(key->max, NULL));
}

static bool is_scalar(const struct kvt_lmcache_value *value)
{
	return value->node == NULL || value->node->kind == KVW_NODE_SCALAR;
}

static bool read_value(const struct kvt_lmcache_key *key, struct kvt_lmcache_value *value)
{
	bool scalar = is_scalar(value);
	bool whole = scalar && strlen(value->text) == value->len; /* no NUL inside */

	switch (key->type) {
	case KVT_LMCACHE_FLAG:
		return whole && read_flag(value);
	case KVT_LMCACHE_COUNT:
		return whole && read_count(value) && in_range(key, value);
	case KVT_LMCACHE_NUMBER:
		return whole && read_number(value, &value->number) && in_range(key, value);
	case KVT_LMCACHE_TEXT:
		return whole;
	case KVT_LMCACHE_MAP:
		return !scalar && value->node->kind == KVW_NODE_MAP;
	case KVT_LMCACHE_COUNTS:
	case KVT_LMCACHE_NUMBERS:
	case KVT_LMCACHE_TEXTS:
		break;
	}
	return scalar ? whole : value->node->kind == KVW_NODE_LIST;
}

/* Returns whether LMCache uses this value without the key. */
static bool is_usual(const struct kvt_lmcache_key *key, const struct kvt_lmcache_value *value)
{
	struct kvt_lmcache_value usual = {.text = key->def, .len = strlen(key->def)};

	if (key->type == KVT_LMCACHE_TEXT)
		return strcmp(key->def, value->text) == 0;
	if (!is_scalar(value) && key->type != KVT_LMCACHE_MAP)
		return value->node->count == 0;
	if (key->def[0] == '\0' && key->type == KVT_LMCACHE_FLAG)
		return !value->flag;
	if (key->def[0] == '\0' || !read_value(key, &usual))
		return false;
	return usual.flag == value->flag && usual.count == value->count &&
	       (key->type != KVT_LMCACHE_NUMBER || usual.number == value->number);
}

/* Returns whether the value is `key:`, `~`, `null`, or a variable that is empty or `none`. */
static bool is_nothing(const struct kvt_lmcache_value *value)
{
	static const char *const words[] = {"", "~", "null", "none", NULL};

	if (!is_scalar(value) || strlen(value->text) != value->len)
		return false;
	return (!value->quoted || value->node == NULL) && is_word(value, words);
}

static void report_fate(struct kvt_lmcache_reading *r, size_t i)
{
	const struct kvt_lmcache_key *key = &kvt_lmcache_keys[i];
	char shown[KVT_LMCACHE_SHOW];

	if (key->fate == KVT_LMCACHE_IGNORED && !r->values[i].usual)
		kvt_lmcache_note(r, i, "ignored: %s", key->text);
	else if (key->fate == KVT_LMCACHE_REFUSED && !r->values[i].usual)
		kvt_lmcache_mistake(r, i, "found %s, which cannot be had: %s",
			kvt_lmcache_show(&r->values[i], i, shown), key->text);
}

void kvt_lmcache_evaluate(struct kvt_lmcache_reading *r)
{
	for (size_t i = 0; i < KVT_LMC_COUNT; i++) {
		struct kvt_lmcache_value *value = &r->values[i];

		if (!value->given)
			continue;
		if ((value->node != NULL && value->node->kind == KVW_NODE_BAD) ||
			is_nothing(value)) {
			/* reported as a mistake, or it means the same as a missing key */
			value->given = false;
			continue;
		}
		value->valid = read_value(&kvt_lmcache_keys[i], value);
		if (!value->valid) {
			refuse_value(r, i);
			continue;
		}
		value->usual = is_usual(&kvt_lmcache_keys[i], value);
		report_fate(r, i);
	}
}
