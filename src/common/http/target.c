/*
 * target.c - see target.h.
 */
#include "http/target.h"

#include <string.h>

#include "http/chars.h"

struct kvw_slice kvw_target_path(struct kvw_slice target)
{
	const char *mark = target.len == 0 ? NULL : memchr(target.data, '?', target.len);

	if (mark != NULL)
		target.len = (size_t)(mark - target.data);
	return target;
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

bool kvw_target_query(struct kvw_slice target, const char *name, struct kvw_slice *coded)
{
	struct kvw_slice path = kvw_target_path(target), wanted = kvw_slice_of(name);
	const char *at = path.data + path.len, *end = at + (target.len - path.len);
	bool good = true;

	*coded = (struct kvw_slice){NULL, 0};
	while (at < end && ++at < end) { /* behind the mark, or an ampersand */
		const char *stop = memchr(at, '&', (size_t)(end - at)), *sign;

		stop = stop == NULL ? end : stop;
		sign = memchr(at, '=', (size_t)(stop - at));
		good = good && sign != NULL && sign > at;
		if (sign != NULL && coded->data == NULL &&
			kvw_slice_equal(wanted, (struct kvw_slice){at, (size_t)(sign - at)}))
			*coded = (struct kvw_slice){sign + 1, (size_t)(stop - sign - 1)};
		at = stop;
	}
	return good;
}
