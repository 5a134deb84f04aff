/*
 * resp.c - reads replies in Redis' protocol, in whatever pieces they arrive.
 *
 * A state machine over bytes, so that no input is ever kept for later: the caller's buffer is free
 * again after each call, however a reply was cut. Only the beginning of a line is kept; that is
 * enough for numbers and texts for people.
 *
 * Invariants: found[0 .. element_count) are complete but for the last one's data while its body
 * arrives; the kept elements of an array and their table never exceed element_limit; once `full` is
 * set the rest of this reply is discarded.
 */
#include "redis/resp.h"

#include <stdlib.h>
#include <string.h>

#define NUMBER_LEN_MAX 20 /* longest number: "-9223372036854775808" */

static enum kvw_redis_resp_state broken(struct kvw_redis_resp *p, const char *why)
{
	struct kvw_redis_command *c = p->command;

	p->why = why;
	kvw_redis_resp_abandon(p);
	c->status = KVW_EPROTO;
	return KVW_REDIS_RESP_BROKEN;
}

void kvw_redis_elements_free(struct kvw_redis_element *elements, size_t count)
{
	for (size_t i = 0; i < count; i++)
		free(elements[i].data);
	free(elements);
}

static void drop_elements(struct kvw_redis_resp *p)
{
	struct kvw_redis_command *c = p->command;

	kvw_redis_elements_free(c->found, c->element_count);
	c->found = NULL;
	c->element_count = 0;
	p->element_room = 0;
}

static void clear_results(struct kvw_redis_command *c)
{
	c->status = KVW_OK;
	c->reply = KVW_REDIS_NONE;
	c->integer = 0;
	c->bulk_bytes = 0;
	c->lead_bytes = 0;
	c->found = NULL;
	c->element_count = 0;
	c->text[0] = '\0';
}

void kvw_redis_resp_begin(struct kvw_redis_resp *p, struct kvw_redis_command *command)
{
	memset(p, 0, sizeof(*p));
	p->command = command;
	clear_results(command);
}

void kvw_redis_resp_abandon(struct kvw_redis_resp *p)
{
	if (p->command == NULL)
		return;
	drop_elements(p);
	clear_results(p->command);
	p->command = NULL;
}

/* --- where a bulk string's bytes go ----------------------------------------------------------- */

static uint64_t room_of(const struct kvw_redis_command *c)
{
	uint64_t room = c->lead_room;

	for (uint32_t i = 0; i < c->into_count; i++)
		room += c->into[i].iov_len;
	return room;
}

/* Returns the memory of a segment; segment 0 is `lead`. */
static struct iovec piece_of(const struct kvw_redis_command *c, uint32_t segment)
{
	if (segment == 0)
		return (struct iovec){.iov_base = c->lead, .iov_len = c->lead_room};
	return c->into[segment - 1];
}

size_t kvw_redis_resp_room(const struct kvw_redis_resp *p, struct iovec *pieces, size_t max)
{
	uint64_t left = p->body_left, at = p->segment_at;
	size_t n = 0;

	if (p->part != KVW_REDIS_RESP_BODY || p->depth > 0 || p->full)
		return 0;
	for (uint32_t segment = p->segment; left > 0 && n < max; segment++, at = 0) {
		struct iovec piece = piece_of(p->command, segment);

		if (piece.iov_len == at)
			continue;
		piece.iov_base = (char *)piece.iov_base + at;
		piece.iov_len -= at;
		if (piece.iov_len > left)
			piece.iov_len = left;
		left -= piece.iov_len;
		pieces[n++] = piece;
	}
	return n;
}

void kvw_redis_resp_arrived(struct kvw_redis_resp *p, uint64_t bytes)
{
	struct kvw_redis_command *c = p->command;

	p->body_left -= bytes;
	p->body_at += bytes;
	c->lead_bytes = p->body_at < c->lead_room ? (uint32_t)p->body_at : c->lead_room;
	if (p->body_left == 0)
		p->part = KVW_REDIS_RESP_BODY_CR;
	while (bytes > 0) {
		uint64_t here = piece_of(c, p->segment).iov_len - p->segment_at;

		if (bytes < here) {
			p->segment_at += bytes;
			break;
		}
		bytes -= here;
		p->segment++;
		p->segment_at = 0;
	}
}

/* Copies bytes to the place where later bytes will be received directly. */
static void copy_body(struct kvw_redis_resp *p, const char *data, size_t len)
{
	while (len > 0) {
		struct iovec piece;
		size_t n;

		if (kvw_redis_resp_room(p, &piece, 1) == 0)
			return;
		n = piece.iov_len < len ? piece.iov_len : len;
		memcpy(piece.iov_base, data, n);
		kvw_redis_resp_arrived(p, n);
		data += n;
		len -= n;
	}
}

/* --- elements --------------------------------------------------------------------------------- */

/* Appends an element whose buffer has len bytes and a NUL. NULL: there is no room, and the rest of
 * the reply is discarded. */
static struct kvw_redis_element *add_element(struct kvw_redis_resp *p, size_t len, bool nil)
{
	struct kvw_redis_command *c = p->command;
	struct kvw_redis_element *e;

	if (p->full)
		return NULL;
	p->element_bytes += sizeof(*e) + (nil ? 0 : len + 1);
	if (p->element_bytes > c->element_limit)
		goto full;
	if (c->element_count == p->element_room) {
		size_t room = p->element_room == 0 ? 8 : 2 * p->element_room;
		struct kvw_redis_element *more = realloc(c->found, room * sizeof(*more));

		if (more == NULL)
			goto full;
		c->found = more;
		p->element_room = room;
	}
	e = &c->found[c->element_count];
	*e = (struct kvw_redis_element){
		.len = len, .depth = p->depth, .index = p->index[p->depth - 1]};
	if (!nil) {
		e->data = malloc(len + 1);
		if (e->data == NULL)
			goto full;
		e->data[len] = '\0';
	}
	c->element_count++;
	return e;
full:
	p->full = true;
	drop_elements(p);
	return NULL;
}

static void add_text(struct kvw_redis_resp *p)
{
	size_t len = p->line_len < sizeof(p->line) ? p->line_len : sizeof(p->line);
	struct kvw_redis_element *e = add_element(p, len, false);

	if (e != NULL)
		memcpy(e->data, p->line, len);
}

/* Called at the end of a value: also ends each array of which it was the last element. */
static enum kvw_redis_resp_state value_ends(struct kvw_redis_resp *p)
{
	p->part = KVW_REDIS_RESP_TYPE;
	while (p->depth > 0) {
		p->index[p->depth - 1]++;
		if (--p->left[p->depth - 1] > 0)
			return KVW_REDIS_RESP_MORE;
		p->depth--;
	}
	p->command->status = p->full ? KVW_ELIMIT : KVW_OK;
	p->command = NULL;
	return KVW_REDIS_RESP_DONE;
}

/* --- lines ------------------------------------------------------------------------------------ */

/* Reads the line as an int64_t: digits, perhaps after a minus. */
static bool line_number(const struct kvw_redis_resp *p, int64_t *out)
{
	bool minus = p->line_len > 0 && p->line[0] == '-';
	uint64_t value = 0, most = (uint64_t)INT64_MAX + (minus ? 1 : 0);
	uint32_t i = minus ? 1 : 0;

	if (i == p->line_len || p->line_len > NUMBER_LEN_MAX)
		return false;
	for (; i < p->line_len; i++) {
		uint64_t digit = (uint64_t)(unsigned char)p->line[i] - '0';

		if (digit > 9 || value > (most - digit) / 10)
			return false;
		value = value * 10 + digit;
	}
	*out = (int64_t)(minus ? 0 - value : value);
	return true;
}

/* Copies the line to the command's text, for people: cut, and without control characters. */
static void take_text(struct kvw_redis_resp *p)
{
	char *text = p->command->text;
	size_t len = p->line_len < KVW_REDIS_TEXT ? p->line_len : KVW_REDIS_TEXT - 1;

	for (size_t i = 0; i < len; i++) {
		unsigned char c = (unsigned char)p->line[i];

		text[i] = (char)(c < ' ' || c == 0x7f ? '?' : c);
	}
	text[len] = '\0';
}

static enum kvw_redis_resp_state bulk_begins(struct kvw_redis_resp *p, int64_t len)
{
	struct kvw_redis_command *c = p->command;

	if (len < -1 || len > (int64_t)KVW_REDIS_RESP_BULK_MAX)
		return broken(p, "a bulk string of an impossible length");
	if (p->depth == 0)
		c->reply = len < 0 ? KVW_REDIS_NIL : KVW_REDIS_BULK;
	else
		(void)add_element(p, len < 0 ? 0 : (size_t)len, len < 0);
	if (len < 0)
		return value_ends(p);
	p->body_left = (uint64_t)len;
	p->body_at = 0;
	if (p->depth == 0) {
		c->bulk_bytes = (uint64_t)len;
		p->full = (uint64_t)len > room_of(c);
	}
	p->part = len == 0 ? KVW_REDIS_RESP_BODY_CR : KVW_REDIS_RESP_BODY;
	return KVW_REDIS_RESP_MORE;
}

static enum kvw_redis_resp_state array_begins(struct kvw_redis_resp *p, int64_t count)
{
	struct kvw_redis_command *c = p->command;

	if (count < -1 || count > KVW_REDIS_RESP_ARRAY_MAX)
		return broken(p, "an array of an impossible length");
	if (p->depth == 0) {
		c->reply = count < 0 ? KVW_REDIS_NIL : KVW_REDIS_ARRAY;
		p->full = count > 0 && !c->elements;
	} else if (count < 0) {
		(void)add_element(p, 0, true);
	}
	if (count <= 0)
		return value_ends(p);
	if (p->depth == KVW_REDIS_RESP_DEPTH)
		return broken(p, "arrays nested too deep");
	p->left[p->depth] = (uint32_t)count;
	p->index[p->depth] = 0;
	p->depth++;
	p->part = KVW_REDIS_RESP_TYPE;
	return KVW_REDIS_RESP_MORE;
}

static enum kvw_redis_resp_state line_ends(struct kvw_redis_resp *p)
{
	struct kvw_redis_command *c = p->command;
	int64_t number = 0;

	if (p->type != '+' && p->type != '-' && !line_number(p, &number))
		return broken(p, "something else where a number belongs");
	if (p->type == '$')
		return bulk_begins(p, number);
	if (p->type == '*')
		return array_begins(p, number);
	if (p->depth > 0) {
		add_text(p);
	} else {
		take_text(p);
		c->integer = number;
		c->reply = p->type == ':'   ? KVW_REDIS_INTEGER
			   : p->type == '-' ? KVW_REDIS_ERROR
					    : KVW_REDIS_STATUS;
	}
	return value_ends(p);
}

/* Reads bytes of a line, up to its CR. */
static enum kvw_redis_resp_state line_goes_on(
	struct kvw_redis_resp *p, const char *data, size_t len, size_t *used)
{
	const char *cr = memchr(data, '\r', len);
	size_t n = cr != NULL ? (size_t)(cr - data) : len;
	size_t most = p->type == '+' || p->type == '-' ? KVW_REDIS_RESP_LINE_MAX : NUMBER_LEN_MAX;

	if (n > most - p->line_len)
		return broken(p, "a line that is too long");
	if (memchr(data, '\n', n) != NULL)
		return broken(p, "a line that does not end in CR LF");
	if (p->line_len < sizeof(p->line)) {
		size_t room = sizeof(p->line) - p->line_len;

		memcpy(p->line + p->line_len, data, n < room ? n : room);
	}
	p->line_len += (uint32_t)n;
	if (cr != NULL)
		p->part = KVW_REDIS_RESP_LINE_END;
	*used = n + (cr != NULL ? 1 : 0);
	return KVW_REDIS_RESP_MORE;
}

/* --- the machine ------------------------------------------------------------------------------ */

static size_t body_goes_on(struct kvw_redis_resp *p, const char *data, size_t len)
{
	struct kvw_redis_command *c = p->command;
	size_t n = len < p->body_left ? len : (size_t)p->body_left;

	if (p->depth == 0 && !p->full) {
		copy_body(p, data, n);
		return n;
	}
	if (p->depth > 0 && !p->full)
		memcpy(c->found[c->element_count - 1].data + p->body_at, data, n);
	p->body_at += n;
	p->body_left -= n;
	if (p->body_left == 0)
		p->part = KVW_REDIS_RESP_BODY_CR;
	return n;
}

static enum kvw_redis_resp_state type_begins(struct kvw_redis_resp *p, char type)
{
	if (type != '+' && type != '-' && type != ':' && type != '$' && type != '*')
		return broken(p, "a reply of an unknown type");
	p->type = type;
	p->line_len = 0;
	p->part = KVW_REDIS_RESP_LINE;
	return KVW_REDIS_RESP_MORE;
}

enum kvw_redis_resp_state kvw_redis_resp_feed(
	struct kvw_redis_resp *p, const char *data, size_t len, size_t *used)
{
	enum kvw_redis_resp_state state = KVW_REDIS_RESP_MORE;
	size_t at = 0, n;

	while (at < len && state == KVW_REDIS_RESP_MORE) {
		n = 1;
		switch (p->part) {
		case KVW_REDIS_RESP_TYPE:
			state = type_begins(p, data[at]);
			break;
		case KVW_REDIS_RESP_LINE:
			state = line_goes_on(p, data + at, len - at, &n);
			break;
		case KVW_REDIS_RESP_LINE_END:
			state = data[at] == '\n' ? line_ends(p)
						 : broken(p, "a line that does not end in CR LF");
			break;
		case KVW_REDIS_RESP_BODY:
			n = body_goes_on(p, data + at, len - at);
			break;
		case KVW_REDIS_RESP_BODY_CR:
			p->part = KVW_REDIS_RESP_BODY_LF;
			if (data[at] != '\r')
				state = broken(p, "a bulk string that does not end where it said");
			break;
		case KVW_REDIS_RESP_BODY_LF:
			state = data[at] == '\n'
					? value_ends(p)
					: broken(p,
						  "a bulk string that does not end where it said");
			break;
		}
		at += n;
	}
	*used = at;
	return state;
}
