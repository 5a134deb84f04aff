/*
 * preamble.c - recognizes the part of a stream that comes before its engine has computed anything.
 */
#include "openai/preamble.h"

#include <string.h>

#include "kvway/slice.h"

enum {
	AT_LINE,    /* in the first line of an event, of which text[0..len) has come */
	IN_COMMENT, /* in a comment, until its line ends */
	IN_EVENT,   /* in an event, until an empty line; the present line has bytes */
	AT_EVENT_LINE,
	OVER,
};

/* First lines of events of the preamble, without the space that may follow the colon. */
static const struct kvw_slice openings[] = {
	KVW_SLICE("event:response.created"),
	KVW_SLICE("event:response.queued"),
	KVW_SLICE("event:response.in_progress"),
	KVW_SLICE("event:message_start"),
	KVW_SLICE("event:ping"),
};

enum match { MATCH_NONE, MATCH_PART, MATCH_WHOLE };

/* Compares an event's first line with the known ones. line: its bytes so far; ended: they are the
 * whole line. */
static enum match match(const char *line, size_t len, bool ended)
{
	static const size_t colon = sizeof("event:") - 1;
	char name[KVW_PREAMBLE_ROOM];

	if (len > colon && line[colon] == ' ') {
		memcpy(name, line, colon);
		memcpy(name + colon, line + colon + 1, len - colon - 1);
		line = name;
		len--;
	}
	for (size_t i = 0; i < sizeof(openings) / sizeof(openings[0]); i++) {
		if (len > openings[i].len || memcmp(line, openings[i].data, len) != 0)
			continue;
		if (!ended)
			return MATCH_PART;
		if (len == openings[i].len)
			return MATCH_WHOLE;
	}
	return MATCH_NONE;
}

/* Takes the next byte of an event's first line. False: the event is not of the preamble. */
static bool first_line(struct kvw_preamble *p, char c)
{
	if (c == '\r')
		return true;
	if (c == '\n') {
		if (p->len > 0 && match(p->text, p->len, true) != MATCH_WHOLE)
			return false;
		p->opened = p->opened || p->len > 0;
		p->state = p->len > 0 ? AT_EVENT_LINE : AT_LINE;
		p->len = 0;
		return true;
	}
	if (p->len == 0 && c == ':') {
		p->state = IN_COMMENT;
		p->commented = true;
		return true;
	}
	if (p->len == sizeof(p->text))
		return false;
	p->text[p->len] = c;
	if (match(p->text, p->len + 1u, false) == MATCH_NONE)
		return false;
	p->len++;
	return true;
}

size_t kvw_preamble_skip(struct kvw_preamble *p, const char *data, size_t len)
{
	size_t line = 0;         /* where in this piece the present first line begins ... */
	size_t before = p->len; /* ... and how many of its bytes came in earlier pieces */

	if (p->state == OVER)
		return 0;
	for (size_t i = 0; i < len; i++) {
		const char *end;

		switch (p->state) {
		case AT_LINE:
			if (p->len == 0) {
				line = i;
				before = 0;
			}
			if (first_line(p, data[i]))
				break;
			p->state = OVER;
			p->len = (uint8_t)before;
			return before > 0 ? 0 : line;
		case AT_EVENT_LINE:
			if (data[i] == '\n')
				p->state = AT_LINE;
			else if (data[i] != '\r')
				p->state = IN_EVENT;
			break;
		default:
			end = memchr(data + i, '\n', len - i);
			if (end == NULL)
				return len;
			i = (size_t)(end - data);
			p->state = p->state == IN_COMMENT ? AT_LINE : AT_EVENT_LINE;
		}
	}
	return len;
}

bool kvw_preamble_only(const char *data, size_t len)
{
	struct kvw_preamble preamble = {0};

	return kvw_preamble_skip(&preamble, data, len) == len && preamble.state == AT_LINE &&
	       preamble.len == 0;
}
