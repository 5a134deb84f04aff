/*
 * target.c - see target.h.
 */
#include "http/target.h"

#include <string.h>

#include "http/chars.h"

struct kvw_slice kvw_target_path(const struct kvw_head *head)
{
	const char *mark = memchr(head->target.data, '?', head->target.len);

	return (struct kvw_slice){head->target.data,
		mark == NULL ? head->target.len : (size_t)(mark - head->target.data)};
}

bool kvw_target_decode(struct kvw_slice coded, bool plus, char *text, size_t room, size_t *len)
{
	*len = 0;
	for (size_t i = 0; i < coded.len; i++) {
		char c = coded.data[i];

		if (*len + 1 >= room)
			return false;
		if (c == '%') {
			if (coded.len - i < 3 || !kvw_char_is(coded.data[i + 1], KVW_CHAR_HEX) ||
				!kvw_char_is(coded.data[i + 2], KVW_CHAR_HEX))
				return false;
			c = (char)(kvw_char_hex(coded.data[i + 1]) << 4 |
				   kvw_char_hex(coded.data[i + 2]));
			i += 2;
			if (c == '\0')
				return false;
		} else if (plus && c == '+') {
			c = ' ';
		}
		text[(*len)++] = c;
	}
	text[*len] = '\0';
	return true;
}

bool kvw_target_query(const struct kvw_head *head, const char *name, struct kvw_slice *coded)
{
	struct kvw_slice path = kvw_target_path(head), wanted = kvw_slice_of(name);
	const char *at = path.data + path.len + 1, *end = head->target.data + head->target.len;

	*coded = (struct kvw_slice){NULL, 0};
	while (at < end) {
		const char *stop = memchr(at, '&', (size_t)(end - at)), *sign;

		stop = stop == NULL ? end : stop;
		sign = memchr(at, '=', (size_t)(stop - at));
		if (sign == NULL || sign == at)
			return false;
		if (coded->data == NULL &&
			kvw_slice_equal(wanted, (struct kvw_slice){at, (size_t)(sign - at)}))
			*coded = (struct kvw_slice){sign + 1, (size_t)(stop - sign - 1)};
		at = stop + 1;
	}
	return true;
}
