/*
 * tokens.c - reads JSON tokens from a body that arrives in pieces.
 *
 * This is a state machine of JSON's grammar, which knows no meanings. A token that lies within one
 * piece is passed on in place; a token that is cut (a key, a number, an escape) is collected first.
 * Strings of prompt text go to text.c in whole spans.
 *
 * Accepted are an object by RFC 8259 with only white space around it, and the extensions of
 * Python's json, the parser of vLLM and SGLang: NaN, Infinity, -Infinity, and a leading byte order
 * mark of UTF-8. UTF-16 and -32, which that parser also accepts, are refused here. UTF-8 is not
 * checked (see text.h). The innermost SCAN_DEPTH containers are a fixed array, so depth costs no
 * memory and no recursion.
 */
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "openai/scan_state.h"

#define SHORT_NAME 16 /* length of names such as "assistant" and "function_call" */

/* Ends the scan of the body as malformed. */
static const char *fail_scan(struct kvw_scan *scan, const char *end)
{
	scan->state = STATE_FAILED;
	return end;
}

/* Returns the offset of p in the body. */
static inline uint64_t place_of(const struct kvw_scan *scan, const char *p, const char *end)
{
	return scan->fed_bytes - (uint64_t)(end - p);
}

/* Returns whether a byte in a string stands for itself. */
static inline bool is_plain(char c)
{
	return (unsigned char)c >= 0x20 && c != '"' && c != '\\';
}

static inline bool is_space(char c)
{
	return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

/*
 * Matches the next character of a string that may begin with SCAN_BILLING. After a full match the
 * rest is ignored; after a mismatch the held-back characters count as text. Returns whether the
 * character was taken.
 */
static bool match_billing(struct kvw_scan *scan, uint32_t code)
{
	static const char billing[] = SCAN_BILLING;

	if (code != (unsigned char)billing[scan->matched]) {
		scan->matching = false;
		scan->ops->run(&scan->text, billing, billing + scan->matched);
		return false;
	}
	if (++scan->matched == sizeof(billing) - 1) {
		scan->matching = false;
		scan->part_dropped = true;
		scan->text.mode = KVW_TEXT_NOTHING;
	}
	return true;
}

/* Takes one decoded character of a string. */
static bool put_code(struct kvw_scan *scan, uint32_t code)
{
	unsigned char bytes[8];
	size_t len;

	if (scan->sink == SINK_TEXT) {
		if (scan->matching && match_billing(scan, code))
			return true;
		len = kvw_text_spell(bytes, code);
		kvw_text_put(&scan->text, bytes, len);
		return true;
	}
	len = kvw_text_utf8(bytes, code);
	return buffer_append(scan, scan->sink == SINK_KEY ? &scan->scratch : &scan->held,
		(const char *)bytes, len);
}

/* Takes a code unit of \uXXXX. A high surrogate waits for the next one. */
static bool put_unit(struct kvw_scan *scan, uint32_t unit)
{
	uint32_t high = scan->high;

	scan->high = 0;
	if (high != 0) {
		if ((unit & 0xfc00) == 0xdc00)
			return put_code(scan, 0x10000 + ((high & 0x3ff) << 10) + (unit & 0x3ff));
		if (!put_code(scan, high))
			return false;
	}
	if ((unit & 0xfc00) == 0xd800) {
		scan->high = unit;
		return true;
	}
	return put_code(scan, unit);
}

/* Returns the character that a letter after a backslash stands for; UINT32_MAX: none. */
static uint32_t short_escape(char letter)
{
	switch (letter) {
	case '"':
	case '\\':
	case '/':
		return (uint32_t)letter;
	case 'b':
		return '\b';
	case 'f':
		return '\f';
	case 'n':
		return '\n';
	case 'r':
		return '\r';
	case 't':
		return '\t';
	default:
		return UINT32_MAX;
	}
}

/*
 * Continues an escape byte by byte; a waiting high surrogate that is not followed by a second
 * escape stands for itself.
 */
static const char *take_escape(struct kvw_scan *scan, const char *p, const char *end)
{
	uint32_t code;

	if (scan->escape_len == 0 && *p != '\\') {
		code = scan->high;
		scan->high = 0;
		return put_code(scan, code) ? p : fail_scan(scan, end);
	}
	while (p < end) {
		scan->escape[scan->escape_len++] = *p++;
		if (scan->escape_len == 2 && scan->escape[1] != 'u')
			code = short_escape(scan->escape[1]);
		else if (scan->escape_len == 6)
			code = kvw_text_hex4(scan->escape + 2);
		else
			continue;
		scan->escape_len = 0;
		if (code == UINT32_MAX || !put_unit(scan, code))
			return fail_scan(scan, end);
		return p;
	}
	return p;
}

static const char *end_string(struct kvw_scan *scan, const char *p, const char *end)
{
	if (scan->sink == SINK_KEY) {
		keys_value_of(scan, scan->scratch.data, scan->scratch.len);
		scan->state = STATE_COLON;
		return p;
	}
	if (scan->sink == SINK_SLOT)
		places_end(scan, scan_top(scan)->argument, place_of(scan, p, end));
	if (!schema_string_end(scan))
		return fail_scan(scan, end);
	scan->state = STATE_AFTER;
	return p;
}

/* Continues inside a string. */
static const char *take_string(struct kvw_scan *scan, const char *p, const char *end)
{
	while (p < end) {
		const char *from = p;

		if (scan->escape_len > 0 || scan->high != 0) {
			p = take_escape(scan, p, end);
			continue;
		}
		if (scan->matching && *p != '\\') {
			p += match_billing(scan, (unsigned char)*p);
			continue;
		}
		if (scan->sink == SINK_TEXT) {
			if (!scan->matching)
				p = scan->ops->run(&scan->text, p, end);
		} else {
			while (p < end && is_plain(*p))
				p++;
			if (!buffer_append(scan,
				    scan->sink == SINK_KEY ? &scan->scratch : &scan->held, from,
				    (size_t)(p - from)))
				return fail_scan(scan, end);
		}
		if (p == end)
			break;
		if (*p == '"')
			return end_string(scan, p + 1, end);
		if (*p != '\\')
			return fail_scan(scan, end);
		p = take_escape(scan, p, end);
	}
	return p;
}

static const char *take_value(struct kvw_scan *scan, const char *p, const char *end);

/*
 * Takes the usual bytes after a key at once: a colon, at most one space and a value. Each return to
 * take_token() would cost an unpredictable jump.
 */
static const char *after_key(struct kvw_scan *scan, const char *p, const char *end)
{
	scan->state = STATE_COLON;
	if (end - p < 3 || *p != ':')
		return p;
	scan->state = STATE_VALUE;
	p++;
	p += *p == ' ';
	return is_space(*p) ? p : take_value(scan, p, end);
}

/* Begins a key; p is after its opening quote. */
static const char *begin_key(struct kvw_scan *scan, const char *p, const char *end)
{
	const char *q = p;

	while (q < end && is_plain(*q))
		q++;
	if (q < end && *q == '"') {
		keys_value_of(scan, p, (size_t)(q - p));
		return after_key(scan, q + 1, end);
	}
	scan->scratch.len = 0;
	if (!buffer_append(scan, &scan->scratch, p, (size_t)(q - p)))
		return fail_scan(scan, end);
	scan->sink = SINK_KEY;
	scan->state = STATE_STRING;
	return q;
}

/* Checks the form of RFC 8259: -? (0 | [1-9] digits) (. digits)? ([eE] [+-]? digits)? */
static bool is_number(const char *p, size_t len)
{
	const char *end = p + len, *from;

	if (p < end && *p == '-')
		p++;
	from = p;
	while (p < end && *p >= '0' && *p <= '9')
		p++;
	if (p == from || (*from == '0' && p > from + 1))
		return false;
	if (p < end && *p == '.') {
		from = ++p;
		while (p < end && *p >= '0' && *p <= '9')
			p++;
		if (p == from)
			return false;
	}
	if (p < end && (*p | 0x20) == 'e') {
		p++;
		if (p < end && (*p == '+' || *p == '-'))
			p++;
		from = p;
		while (p < end && *p >= '0' && *p <= '9')
			p++;
		if (p == from)
			return false;
	}
	return p == end;
}

/* Records where a null is, since it may stand in place of a salt. */
static void note_null(struct kvw_scan *scan, uint64_t at)
{
	const struct frame *frame = scan_top(scan);

	if (frame->member != NODE_SLOT || scan->number != NULL || scan->literal_first != 'n')
		return;
	places_begin(scan, frame->argument, at - 4);
	places_end(scan, frame->argument, at);
}

static const char *take_literal(struct kvw_scan *scan, const char *p, const char *end)
{
	while (p < end && *scan->literal != '\0') {
		if (*p++ != *scan->literal++)
			return fail_scan(scan, end);
	}
	if (*scan->literal == '\0') {
		note_null(scan, place_of(scan, p, end));
		if (scan->number != NULL ? !schema_number(scan, scan->number, strlen(scan->number))
					 : !schema_literal(scan, scan->literal_first))
			return fail_scan(scan, end);
		scan->state = STATE_AFTER;
	}
	return p;
}

/* Begins a literal; p is at its second byte. number: the spelling of a number such as NaN; NULL:
 * true, false or null. */
static const char *begin_literal(struct kvw_scan *scan, const char *literal, const char *number,
	const char *p, const char *end)
{
	scan->literal = literal;
	scan->number = number;
	scan->state = STATE_LITERAL;
	return take_literal(scan, p, end);
}

/* Continues or begins a number. It ends at the first byte that cannot belong to it. */
static const char *take_number(struct kvw_scan *scan, const char *p, const char *end)
{
	const char *q = p, *text = p;
	size_t len;

	while (q < end && ((*q >= '0' && *q <= '9') || *q == '-' || *q == '+' || *q == '.' ||
				  *q == 'e' || *q == 'E'))
		q++;
	len = (size_t)(q - p);
	if (q == end || scan->scratch.len > 0) {
		if (!buffer_append(scan, &scan->scratch, p, len))
			return fail_scan(scan, end);
		scan->state = STATE_NUMBER;
		if (q == end)
			return q;
		text = scan->scratch.data;
		len = scan->scratch.len;
	}
	if (*q == 'I' && len == 1 && *text == '-')
		return begin_literal(scan, "Infinity", "-Infinity", q, end);
	if (!is_number(text, len) || !schema_number(scan, text, len))
		return fail_scan(scan, end);
	scan->state = STATE_AFTER;
	return q;
}

/* Begins a string value; p is after its opening quote. Hashes short names at once. */
static const char *begin_string(struct kvw_scan *scan, const char *p, const char *end)
{
	const char *q = p;

	if (!schema_string_begin(scan))
		return fail_scan(scan, end);
	if (scan->sink == SINK_SLOT)
		places_begin(scan, scan_top(scan)->argument, place_of(scan, p, end) - 1);
	scan->state = STATE_STRING;
	if (scan->sink != SINK_TEXT || scan->text.mode != KVW_TEXT_VALUE || end - p <= SHORT_NAME)
		return take_string(scan, p, end);
	while (q - p < SHORT_NAME && is_plain(*q))
		q++;
	if (*q != '"' || q == p)
		return take_string(scan, p, end);
	scan->text.value = kvw_mix(scan->text.value, XXH3_64bits(p, (size_t)(q - p)));
	scan->text.units = (uint32_t)(q - p);
	return end_string(scan, q + 1, end);
}

/* Begins a value; p is at its first byte. */
static const char *begin_value(struct kvw_scan *scan, const char *p, const char *end)
{
	if (scan->depth > 0 && scan_top(scan)->field != 0)
		places_begin(scan, scan_top(scan)->field - 1u, place_of(scan, p, end));
	switch (*p) {
	case '"':
		return begin_string(scan, p + 1, end);
	case '{':
	case '[':
		if (scan->depth == SCAN_DEPTH || !schema_open(scan, *p == '['))
			return fail_scan(scan, end);
		scan->state = *p == '[' ? STATE_VALUE_OR_CLOSE : STATE_KEY_OR_CLOSE;
		if (scan->depth == 1)
			scan->places.open = place_of(scan, p + 1, end);
		return p + 1;
	case 't':
	case 'f':
	case 'n':
		scan->literal_first = *p;
		return begin_literal(
			scan, *p == 't' ? "rue" : *p == 'f' ? "alse" : "ull", NULL, p + 1, end);
	case 'N':
		return begin_literal(scan, "NaN", "NaN", p, end);
	case 'I':
		return begin_literal(scan, "Infinity", "Infinity", p, end);
	default:
		scan->scratch.len = 0;
		return take_number(scan, p, end);
	}
}

static const char *close_container(struct kvw_scan *scan, const char *p, const char *end)
{
	if (scan_top(scan)->list != (*p == ']') || !schema_close(scan))
		return fail_scan(scan, end);
	scan->state = scan->depth == 0 ? STATE_END : STATE_AFTER;
	return p + 1;
}

/* Takes a value, or the end of an empty list. Takes a run of token ids at once. */
static const char *take_value(struct kvw_scan *scan, const char *p, const char *end)
{
	if (scan->depth > 0 && scan_top(scan)->member == NODE_ID) {
		const char *q = scan->ops->ids(&scan->text, p, end);

		if (q != p) {
			if (scan->keep_ids && !schema_keep_ids(scan, p, q))
				return fail_scan(scan, end);
			scan->state = STATE_VALUE;
			return q;
		}
	}
	if (*p == ']' && scan->state == STATE_VALUE_OR_CLOSE)
		return close_container(scan, p, end);
	return begin_value(scan, p, end);
}

/* Continues after a value, with the next key if that follows directly (see after_key()). */
static const char *after_value(struct kvw_scan *scan, const char *p, const char *end)
{
	if (scan_top(scan)->field != 0) {
		places_end(scan, scan_top(scan)->field - 1u, place_of(scan, p, end));
		scan_top(scan)->field = 0;
	}
	if (*p != ',')
		return *p == '}' || *p == ']' ? close_container(scan, p, end)
					      : fail_scan(scan, end);
	p++;
	if (scan_top(scan)->list) {
		scan->state = STATE_VALUE;
		return p;
	}
	scan->state = STATE_KEY;
	if (end - p < 2)
		return p;
	p += *p == ' ';
	return *p == '"' ? begin_key(scan, p + 1, end) : p;
}

/* Takes the next token, or a part of it. p < end. */
static const char *take_token(struct kvw_scan *scan, const char *p, const char *end)
{
	if (scan->state == STATE_STRING)
		return take_string(scan, p, end);
	if (scan->state == STATE_NUMBER)
		return take_number(scan, p, end);
	if (scan->state == STATE_LITERAL)
		return take_literal(scan, p, end);
	while (is_space(*p)) {
		if (++p == end)
			return p;
	}
	switch (scan->state) {
	case STATE_ROOT:
		return *p == '{' ? begin_value(scan, p, end) : fail_scan(scan, end);
	case STATE_KEY_OR_CLOSE:
		if (*p == '}')
			return close_container(scan, p, end);
		__attribute__((fallthrough));
	case STATE_KEY:
		return *p == '"' ? begin_key(scan, p + 1, end) : fail_scan(scan, end);
	case STATE_COLON:
		if (*p != ':')
			return fail_scan(scan, end);
		scan->state = STATE_VALUE;
		return p + 1;
	case STATE_VALUE:
	case STATE_VALUE_OR_CLOSE:
		return take_value(scan, p, end);
	case STATE_AFTER:
		return after_value(scan, p, end);
	default: /* STATE_END: no byte but white space may follow */
		return fail_scan(scan, end);
	}
}

/* Takes a byte order mark at the body's first byte. */
static const char *take_mark(struct kvw_scan *scan, const char *p, const char *end)
{
	static const char mark[] = "\xef\xbb\xbf";

	if (place_of(scan, p, end) != scan->marked)
		return p; /* there is none */
	while (p < end && scan->marked < 3 && *p == mark[scan->marked]) {
		scan->marked++;
		p++;
	}
	return p < end && scan->marked > 0 && scan->marked < 3 ? fail_scan(scan, end) : p;
}

static void feed(struct kvw_scan *scan, const char *data, size_t len)
{
	const char *p = data, *end = data + len;

	scan->fed_bytes += len;
	scan->text.piece_limit = scan->fed_bytes / SCAN_BYTES_PER_PIECE;
	if (scan->text.piece_limit < SCAN_MIN_PIECES)
		scan->text.piece_limit = SCAN_MIN_PIECES;
	if (scan->api == KVW_API_AUDIO && scan->fed_bytes == len && len > 0 && *p == '-')
		form_begin(scan);
	if (scan->form.state != FORM_NONE) {
		form_feed(scan, p, end);
		return;
	}
	if (scan->fed_bytes - len < 3 && scan->state == STATE_ROOT)
		p = take_mark(scan, p, end);
	while (p < end && scan->state != STATE_FAILED)
		p = take_token(scan, p, end);
}

void kvw_scan_feed(struct kvw_scan *scan, const char *data, size_t len)
{
	while (scan->cutting && len > 0) {
		size_t taken = cuts_next(scan, data, len);

		if (taken > len)
			break;
		feed(scan, data, taken);
		cuts_make(scan);
		data += taken;
		len -= taken;
	}
	if (len > 0)
		feed(scan, data, len);
}
