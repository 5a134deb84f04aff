/* credential.c - reads the key of a request: `Authorization: Bearer KEY` or `x-api-key: KEY`. */
#include "auth/credential.h"

#include <openssl/crypto.h>
#include <string.h>

#include "auth/keyring.h"
#include "base/hex.h"

static bool is_authorization(const struct kvw_field *field)
{
	return kvw_slice_equal_nocase(field->name, KVW_SLICE("authorization"));
}

static bool is_api_key(const struct kvw_field *field)
{
	return kvw_slice_equal_nocase(field->name, KVW_SLICE("x-api-key"));
}

/* --- the query --- */

/* Returns whether clients of other services send keys in a parameter with this name.
 * Percent-escapes are decoded, and case is ignored. */
static bool names_key(const char *text, size_t len)
{
	static const char *const names[] = {"key", "api_key", "api-key", "apikey", "x-api-key",
		"access_token", "authorization"};
	char name[16];
	size_t n = 0;

	for (size_t i = 0; i < len; i++) {
		if (n == sizeof(name))
			return false;
		(void)kvw_percent_byte(text, len, &i, &name[n++]);
	}
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (kvw_slice_equal_nocase((struct kvw_slice){name, n}, kvw_slice_of(names[i])))
			return true;
	return false;
}

/* Returns the query of a target; its len is 0 if there is none. */
static struct kvw_slice query_of(struct kvw_slice target)
{
	const char *mark = target.len == 0 ? NULL : memchr(target.data, '?', target.len);

	if (mark == NULL)
		return (struct kvw_slice){NULL, 0};
	return (struct kvw_slice){mark + 1, target.len - (size_t)(mark + 1 - target.data)};
}

static bool query_has_key(struct kvw_slice query)
{
	const char *at = query.data, *end;

	if (query.len == 0)
		return false;
	end = at + query.len;
	while (at < end) {
		size_t len = 0, name;

		while (at + len < end && at[len] != '&' && at[len] != ';')
			len++;
		name = len;
		for (size_t i = 0; i < len && name == len; i++)
			if (at[i] == '=')
				name = i;
		if (names_key(at, name))
			return true;
		at += len + 1;
	}
	return false;
}

/* --- the fields --- */

/* Finds the text after `Bearer`. Returns false if the scheme is another one. */
static bool bearer_of(struct kvw_slice value, struct kvw_slice *out)
{
	static const char scheme[] = "bearer";
	size_t len = sizeof(scheme) - 1;

	if (value.len < len ||
		!kvw_slice_equal_nocase((struct kvw_slice){value.data, len}, KVW_SLICE("bearer")))
		return false;
	if (value.len > len && value.data[len] != ' ' && value.data[len] != '\t')
		return false;
	while (len < value.len && (value.data[len] == ' ' || value.data[len] == '\t'))
		len++;
	*out = (struct kvw_slice){value.data + len, value.len - len};
	return true;
}

/* Overwrites a text in a way that a compiler cannot remove, as it might a memset. */
static void wipe(struct kvw_slice text)
{
	volatile char *at = (volatile char *)(uintptr_t)text.data;

	for (size_t i = 0; i < text.len; i++)
		at[i] = '*';
}

static enum kvw_credential find_credential(const struct kvw_head *head, struct kvw_slice *out)
{
	const struct kvw_field *authorization = NULL, *api_key = NULL;
	struct kvw_slice bearer = {NULL, 0}, key = {NULL, 0};

	for (size_t i = 0; i < head->field_count; i++) {
		const struct kvw_field *field = &head->fields[i];
		const struct kvw_field **seen = is_authorization(field) ? &authorization
						: is_api_key(field)     ? &api_key
									: NULL;

		if (seen != NULL && *seen != NULL)
			return KVW_CREDENTIAL_TWICE;
		if (seen != NULL)
			*seen = field;
	}
	if (authorization != NULL && authorization->value.len > 0 &&
		!bearer_of(authorization->value, &bearer))
		return KVW_CREDENTIAL_SCHEME;
	if (api_key != NULL)
		key = api_key->value;
	if (bearer.len > 0 && key.len > 0 &&
		(bearer.len != key.len || CRYPTO_memcmp(bearer.data, key.data, key.len) != 0))
		return KVW_CREDENTIAL_TWICE;
	*out = bearer.len > 0 ? bearer : key;
	return out->len > 0 ? KVW_CREDENTIAL_FOUND : KVW_CREDENTIAL_MISSING;
}

enum kvw_credential kvw_credential_take_seen(
	const struct kvw_head *head, struct kvw_digest *out, kvw_credential_look *look, void *arg)
{
	struct kvw_slice query = query_of(head->target), shown;
	enum kvw_credential found = find_credential(head, &shown);

	if (found == KVW_CREDENTIAL_FOUND && query_has_key(query))
		found = KVW_CREDENTIAL_QUERY;
	if (found == KVW_CREDENTIAL_FOUND) {
		kvw_key_digest(shown, out);
		if (look != NULL)
			look(arg, shown, out);
	}
	for (size_t i = 0; i < head->field_count; i++)
		if (is_authorization(&head->fields[i]) || is_api_key(&head->fields[i]))
			wipe(head->fields[i].value);
	if (!query_has_key(query))
		return found;
	wipe(query);
	return KVW_CREDENTIAL_QUERY;
}

enum kvw_credential kvw_credential_take(const struct kvw_head *head, struct kvw_digest *out)
{
	return kvw_credential_take_seen(head, out, NULL, NULL);
}

bool kvw_credential_field(const struct kvw_field *field)
{
	return is_authorization(field) || is_api_key(field);
}

void kvw_credential_hide(struct kvw_head *head)
{
	for (size_t i = 0; i < head->field_count; i++)
		if (is_authorization(&head->fields[i]) || is_api_key(&head->fields[i]))
			head->fields[i].hop_by_hop = true;
}
