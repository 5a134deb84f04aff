/* accept.c - see accept.h. */
#include "http/accept.h"

#include <stdlib.h>

/* Returns the part of the text up to `mark`, without blanks around it, and moves the text behind
 * the mark. */
static struct kvw_slice take_part(struct kvw_slice *text, char mark)
{
	const char *end = text->len == 0 ? NULL : memchr(text->data, mark, text->len);
	struct kvw_slice part = {text->data, end == NULL ? text->len : (size_t)(end - text->data)};
	size_t used = part.len + (end != NULL);

	text->data += used;
	text->len -= used;
	while (part.len > 0 && (*part.data == ' ' || *part.data == '\t')) {
		part.data++;
		part.len--;
	}
	while (part.len > 0 && (part.data[part.len - 1] == ' ' || part.data[part.len - 1] == '\t'))
		part.len--;
	return part;
}

/* Returns a weight such as 0.5 in thousandths; 0 for what is none. */
static unsigned read_weight(struct kvw_slice value)
{
	unsigned weight = 0, digit = 1000;

	if (value.len == 0 || value.len > 5 || value.data[0] < '0' || value.data[0] > '1' ||
		(value.len > 1 && value.data[1] != '.'))
		return 0;
	weight = value.data[0] == '1' ? 1000 : 0;
	for (size_t i = 2; i < value.len; i++) {
		if (value.data[i] < '0' || value.data[i] > '9')
			return 0;
		weight += (unsigned)(value.data[i] - '0') * (digit /= 10);
	}
	return weight > 1000 ? 0 : weight;
}

/* Returns the weight of an element such as "text/plain;version=0.0.4;q=0.2". */
static unsigned weight_of(struct kvw_slice element, struct kvw_slice type, struct kvw_slice version)
{
	unsigned weight = 1000;

	if (!kvw_slice_equal_nocase(take_part(&element, ';'), type))
		return 0;
	while (element.len > 0) {
		struct kvw_slice value = take_part(&element, ';');
		struct kvw_slice name = take_part(&value, '=');

		if (kvw_slice_equal_nocase(name, KVW_SLICE("q")))
			weight = read_weight(take_part(&value, ';'));
		else if (kvw_slice_equal_nocase(name, KVW_SLICE("version")) &&
			 !kvw_slice_equal(take_part(&value, ';'), version))
			return 0;
	}
	return weight;
}

unsigned kvw_accept_weight(struct kvw_slice value, struct kvw_slice type, struct kvw_slice version)
{
	unsigned most = 0;

	while (value.len > 0) {
		unsigned weight = weight_of(take_part(&value, ','), type, version);

		most = weight > most ? weight : most;
	}
	return most;
}
