/*
 * head.c - creates and destroys a head, finds its end, and looks up fields and cookies.
 *
 * The end is an empty line: LF, then LF or CR LF. Searching that pair of bytes 16 positions at a
 * time is cheaper than stepping from line to line, and a search resumes where the last one stopped,
 * so that a head that trickles in byte by byte costs linear time in all.
 */
#include <stdlib.h>

#include "http/chars.h"
#include "http/head_internal.h"

enum kvw_err kvw_head_init(struct kvw_head *head, size_t field_limit)
{
	struct kvw_passed *passed;
	struct kvw_field *fields;

	if (field_limit == 0 || field_limit > KVW_HEAD_MAX_FIELDS)
		return KVW_EINVAL;
	fields = calloc(field_limit, sizeof(*fields));
	passed = kvw_passed_create();
	if (fields == NULL || passed == NULL) {
		free(fields);
		free(passed);
		return KVW_ENOMEM;
	}
	*head = (struct kvw_head){
		.fields = fields, .field_limit = field_limit, .passed = passed};
	memset(head->first, 0xff, sizeof(head->first));
	return KVW_OK;
}

void kvw_head_finish(struct kvw_head *head)
{
	free(head->fields);
	kvw_passed_destroy(head->passed);
	*head = (struct kvw_head){0};
}

size_t kvw_head_find_end(const char *data, size_t len, size_t *from)
{
	const char *end = data + len, *lf = data + *from;

	while ((lf = kvw_scan_line_pair(lf, end)) < end) {
		if (end - lf >= 2 && lf[1] == '\n')
			return (size_t)(lf - data) + 2;
		if (end - lf >= 3 && lf[2] == '\n') /* lf[1] is CR */
			return (size_t)(lf - data) + 3;
		if (end - lf < 3)
			break; /* the next bytes decide */
		lf++;
	}
	*from = (size_t)(lf - data);
	return 0;
}

size_t kvw_head_skip_blank(const char *data, size_t len)
{
	size_t i = 0;

	while (len - i >= 2 && data[i] == '\r' && data[i + 1] == '\n')
		i += 2;
	return i;
}

void kvw_head_too_large(const char *data, size_t len, struct kvw_head_error *error)
{
	bool in_target = memchr(data, '\n', len) == NULL;

	error->status = in_target ? 414 : 431;
	error->message = in_target ? "request target is too long" : "message head is too large";
}

const struct kvw_field *kvw_head_search(const struct kvw_head *head, struct kvw_slice name)
{
	for (size_t i = 0; i < head->field_count; i++) {
		if (kvw_slice_equal_nocase(head->fields[i].name, name))
			return &head->fields[i];
	}
	return NULL;
}

/* Returns the value of one cookie in a Cookie field ("a=1; b=2"); its data is NULL if there is no
 * such cookie. */
static struct kvw_slice cookie_in(struct kvw_slice field, struct kvw_slice name)
{
	const char *p = field.data, *end = field.data + field.len;

	while (p < end) {
		const char *stop = memchr(p, ';', (size_t)(end - p));

		if (stop == NULL)
			stop = end;
		while (p < stop && (*p == ' ' || *p == '\t'))
			p++;
		if ((size_t)(stop - p) > name.len && memcmp(p, name.data, name.len) == 0 &&
			p[name.len] == '=') {
			p += name.len + 1;
			while (stop > p && (stop[-1] == ' ' || stop[-1] == '\t'))
				stop--;
			return (struct kvw_slice){p, (size_t)(stop - p)};
		}
		p = stop < end ? stop + 1 : end;
	}
	return (struct kvw_slice){NULL, 0};
}

struct kvw_slice kvw_head_cookie(const struct kvw_head *head, struct kvw_slice name)
{
	struct kvw_slice value = {NULL, 0};
	int first = head->first[KVW_FIELD_COOKIE];

	if (first < 0 || name.len == 0)
		return value;
	for (size_t i = (size_t)first; i < head->field_count && value.data == NULL; i++) {
		if (head->fields[i].id == KVW_FIELD_COOKIE)
			value = cookie_in(head->fields[i].value, name);
	}
	return value;
}

void kvw_head_remember_none(struct kvw_head *head)
{
	kvw_passed_destroy(head->passed);
	head->passed = NULL;
}
