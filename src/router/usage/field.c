/* field.c - a user and what it has used as a field of a hash in Redis. */
#include "usage/field.h"

#include <string.h>

#include "base/page.h"

#define OTHER      '\1'
#define COUNT_MOST (UINT64_C(1) << 53) /* Redis' scripts add in floating point */

size_t kvw_usage_field(const struct kvw_user *user, char out[KVW_USAGE_FIELD_ROOM])
{
	size_t len = 0;

	if (user == NULL) {
		out[0] = OTHER;
		return 1;
	}
	for (size_t i = 0; i < 3; i++) {
		struct kvw_slice name = i == 0 ? user->key : i == 1 ? user->tenant : user->model;

		if (i > 0)
			out[len++] = '\0';
		if (name.len > 0)
			memcpy(out + len, name.data, name.len);
		len += name.len;
	}
	return len;
}

size_t kvw_usage_counts(const struct kvw_used *used, char out[KVW_USAGE_COUNTS_ROOM])
{
	size_t len = 0;

	for (size_t i = 0; i < KVW_USED_KINDS; i++) {
		if (i > 0)
			out[len++] = ' ';
		len += kvw_decimal(out + len, used->n[i]);
	}
	return len;
}

/* Takes the next name off the front. */
static struct kvw_slice next_name(struct kvw_slice *rest)
{
	const char *mark = rest->len == 0 ? NULL : memchr(rest->data, '\0', rest->len);
	struct kvw_slice name = {
		rest->data, mark == NULL ? rest->len : (size_t)(mark - rest->data)};
	size_t used = name.len + (mark != NULL);

	*rest = (struct kvw_slice){used == 0 ? rest->data : rest->data + used, rest->len - used};
	return name;
}

static struct kvw_used read_counts(struct kvw_slice text)
{
	struct kvw_used used = {0};
	size_t kind = 0;

	for (size_t i = 0; i < text.len && kind < KVW_USED_KINDS; i++) {
		uint64_t *n = &used.n[kind];

		if (text.data[i] == ' ')
			kind++;
		else if (text.data[i] < '0' || text.data[i] > '9')
			break;
		else if (*n < COUNT_MOST)
			*n = *n * 10 + (uint64_t)(text.data[i] - '0');
	}
	return used;
}

void kvw_usage_field_add(
	struct kvw_usage_table *table, struct kvw_slice field, struct kvw_slice value)
{
	struct kvw_used used = read_counts(value);
	struct kvw_user user;

	if (field.len == 1 && field.data[0] == OTHER) {
		kvw_used_add(&table->other, &used);
		table->others = 1;
		return;
	}
	user.key = next_name(&field);
	user.tenant = next_name(&field);
	user.model = next_name(&field);
	(void)kvw_usage_table_add(table, &user, &used);
}
