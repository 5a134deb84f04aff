/*
 * multipart.c - reads the model's name from a form with an audio file (RFC 7578).
 *
 * The boundary is the body's own first line; parts are separated by `\r\n--boundary`, whose first
 * byte occurs in it only once, so that a failed search continues at the byte where it failed.
 * Values of wanted fields are kept; other bytes (mainly the file) are only searched for carriage
 * returns.
 *
 * A form that violates these rules counts as a malformed body; its worker decides about it.
 */
#include <string.h>

#include "openai/scan_state.h"

#define HEAD_LIMIT  4096 /* longest head of a part, in bytes */
#define FIELD_LIMIT 1024 /* longest value of a field that is kept, in bytes */

static void fail_scan(struct kvw_scan *scan)
{
	scan->form.state = FORM_FAILED;
}

/* Returns the parameter `name` of a Content-Disposition line; len 0: there is none. */
static struct kvw_slice field_name(struct kvw_slice line)
{
	const char *p = line.data, *end = line.data + line.len;

	while ((p = memmem(p, (size_t)(end - p), "name=", 5)) != NULL) {
		bool whole = p > line.data && (p[-1] == ' ' || p[-1] == ';' || p[-1] == '\t');
		const char *from = p + 5, *to;

		p = from;
		if (!whole) /* filename= */
			continue;
		if (from < end && *from == '"') {
			from++;
			to = memchr(from, '"', (size_t)(end - from));
			if (to == NULL)
				break;
		} else {
			for (to = from; to < end && *to != ';' && *to != ' '; to++)
				continue;
		}
		return (struct kvw_slice){from, (size_t)(to - from)};
	}
	return (struct kvw_slice){NULL, 0};
}

/* Returns the slot for the part whose head is in scratch, or SLOT_COUNT. Sets form.field. */
static unsigned slot_of_head(struct kvw_scan *scan)
{
	static const char disposition[] = "content-disposition:";
	const char *line = scan->scratch.data, *end = line + scan->scratch.len;

	while (line < end) {
		const char *next = memmem(line, (size_t)(end - line), "\r\n", 2);
		struct kvw_slice text = {line, (size_t)((next == NULL ? end : next) - line)}, name;

		line = next == NULL ? end : next + 2;
		if (text.len < sizeof(disposition) - 1 ||
			strncasecmp(text.data, disposition, sizeof(disposition) - 1) != 0)
			continue;
		name = field_name(text);
		scan->form.field = places_field(scan, name.data, name.len);
		if (kvw_slice_equal(name, KVW_SLICE("model")))
			return SLOT_MODEL;
		if (kvw_slice_equal(name, KVW_SLICE("stream")))
			return SLOT_STREAM;
		for (uint32_t i = 0; i < scan->session_count; i++) {
			if (kvw_slice_equal(name, scan->session_names[i]))
				return SLOT_SESSION + i;
		}
	}
	return SLOT_COUNT;
}

/* Takes bytes of the value of the part that is being read. */
static void take_value(struct kvw_scan *scan, const char *data, size_t len)
{
	struct form *form = &scan->form;

	if (form->slot == SLOT_COUNT || len == 0)
		return;
	if (scan->held.len - scan->slots[form->slot].first + len > FIELD_LIMIT ||
		!buffer_append(scan, &scan->held, data, len))
		fail_scan(scan);
}

static void end_value(struct kvw_scan *scan)
{
	struct range *slot;

	if (scan->form.slot == SLOT_COUNT)
		return;
	slot = &scan->slots[scan->form.slot];
	slot->count = (uint32_t)scan->held.len - slot->first;
	if (scan->form.slot == SLOT_STREAM)
		scan->stream = kvw_slice_equal_nocase(
			(struct kvw_slice){scan->held.data + slot->first, slot->count},
			KVW_SLICE("true"));
}

/* Takes the first line, which is the delimiter without the line end before it. */
static const char *take_first_line(struct kvw_scan *scan, const char *p, const char *end)
{
	struct form *form = &scan->form;

	while (p < end) {
		char c = *p++;

		if (c == '\n' && form->len > 4 && form->delimiter[form->len - 1] == '\r') {
			form->len--;
			scan->scratch.len = 0;
			form->state = FORM_HEAD;
			return p;
		}
		if (form->len == sizeof(form->delimiter) || c == '\n' ||
			(form->len < 4 && c != '-') ||
			(form->len > 4 && form->delimiter[form->len - 1] == '\r')) {
			fail_scan(scan);
			return end;
		}
		form->delimiter[form->len++] = c;
	}
	return p;
}

static const char *take_head(struct kvw_scan *scan, const char *p, const char *end)
{
	struct form *form = &scan->form;
	struct buffer *head = &scan->scratch;

	while (p < end) {
		if (head->len == HEAD_LIMIT || !buffer_append(scan, head, p, 1)) {
			fail_scan(scan);
			return end;
		}
		p++;
		if (head->data[head->len - 1] != '\n')
			continue;
		/* An empty line ends the head, even if it is the head's first line. */
		if ((head->len >= 4 && memcmp(head->data + head->len - 4, "\r\n\r\n", 4) == 0) ||
			(head->len == 2 && head->data[0] == '\r')) {
			form->field = 0;
			form->slot = slot_of_head(scan);
			if (form->field != 0)
				places_begin(scan, form->field - 1u,
					scan->fed_bytes - (uint64_t)(end - p));
			if (form->slot != SLOT_COUNT)
				scan->slots[form->slot] =
					(struct range){(uint32_t)scan->held.len, 0};
			if (form->slot != SLOT_COUNT)
				places_begin(
					scan, form->slot, scan->fed_bytes - (uint64_t)(end - p));
			form->matched = 0;
			form->state = FORM_VALUE;
			return p;
		}
	}
	return p;
}

/* Takes bytes up to the next delimiter. */
static const char *take_part(struct kvw_scan *scan, const char *p, const char *end)
{
	struct form *form = &scan->form;

	while (p < end && form->state == FORM_VALUE) {
		const char *from = p;

		if (form->matched == 0) {
			p = memchr(p, '\r', (size_t)(end - p));
			p = p == NULL ? end : p;
			take_value(scan, from, (size_t)(p - from));
			if (p == end)
				return p;
		}
		if (*p == form->delimiter[form->matched]) {
			p++;
			if (++form->matched == form->len) {
				places_end(scan, form->field != 0 ? form->field - 1u : form->slot,
					scan->fed_bytes - (uint64_t)(end - p) - form->len);
				end_value(scan);
				form->matched = 0;
				form->state = FORM_AFTER;
			}
		} else {
			take_value(scan, form->delimiter, form->matched);
			form->matched = 0;
		}
	}
	return p;
}

/* Takes the bytes after a delimiter: a line end, or the two hyphens that end the form. */
static const char *take_after(struct kvw_scan *scan, const char *p)
{
	struct form *form = &scan->form;
	char wanted = form->matched == 0 ? *p : form->last == '-' ? '-' : '\n';

	if (*p != wanted || (form->matched == 0 && *p != '-' && *p != '\r')) {
		fail_scan(scan);
	} else if (form->matched == 0) {
		form->last = *p;
		form->matched = 1;
	} else {
		scan->scratch.len = 0;
		form->state = form->last == '-' ? FORM_END : FORM_HEAD;
	}
	return p + 1;
}

void form_begin(struct kvw_scan *scan)
{
	scan->form.state = FORM_FIRST_LINE;
	scan->places.form = true;
	scan->form.matched = 0;
	memcpy(scan->form.delimiter, "\r\n", 2);
	scan->form.len = 2;
}

void form_feed(struct kvw_scan *scan, const char *p, const char *end)
{
	while (p < end) {
		switch (scan->form.state) {
		case FORM_FIRST_LINE:
			p = take_first_line(scan, p, end);
			break;
		case FORM_HEAD:
			p = take_head(scan, p, end);
			break;
		case FORM_VALUE:
			p = take_part(scan, p, end);
			break;
		case FORM_AFTER:
			p = take_after(scan, p);
			break;
		default: /* bytes after the form's end are ignored */
			return;
		}
	}
}
