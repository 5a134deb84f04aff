/* mask.c - takes secrets out of texts. */
#include "bundle/mask.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/page.h"
#include "config/schema.h"

#define SECRET_LEAST 4 /* characters of a text that is looked for */

static enum kvw_err add_text(struct kvw_mask *mask, const char *secret)
{
	char **grown;

	grown = realloc(mask->secrets, (mask->count + 1) * sizeof(grown[0]));
	if (grown == NULL)
		return KVW_ENOMEM;
	mask->secrets = grown;
	grown[mask->count] = strdup(secret);
	if (grown[mask->count] == NULL)
		return KVW_ENOMEM;
	mask->count++;
	return KVW_OK;
}

enum kvw_err kvw_mask_add(struct kvw_mask *mask, const char *secret)
{
	size_t room = secret == NULL ? 0 : 6 * strlen(secret) + 1;
	enum kvw_err err = KVW_ENOMEM;
	char *escaped;

	if (secret == NULL || strlen(secret) < SECRET_LEAST)
		return KVW_OK;
	escaped = calloc(1, room);
	if (escaped == NULL)
		return KVW_ENOMEM;
	(void)kvw_json_escape(escaped, room - 1, kvw_slice_of(secret));
	err = add_text(mask, secret);
	/* JSON shows it so. */
	if (err == KVW_OK && strcmp(escaped, secret) != 0)
		err = add_text(mask, escaped);
	free(escaped);
	return err;
}

/* Adds the members that are secret. */
static enum kvw_err add_keys(
	struct kvw_mask *mask, const struct kvw_key *keys, size_t count, const void *values)
{
	enum kvw_err err = KVW_OK;

	for (size_t i = 0; i < count && err == KVW_OK; i++) {
		char *text;

		if (!keys[i].type->secret)
			continue;
		memcpy(&text, (const char *)values + keys[i].offset, sizeof(text));
		err = kvw_mask_add(mask, text);
	}
	return err;
}

enum kvw_err kvw_mask_add_config(struct kvw_mask *mask, const struct kvw_config *config)
{
	enum kvw_err err = add_keys(mask, kvw_keys, KVW_KEY_COUNT, config);

	for (size_t i = 0; i < config->worker_count && err == KVW_OK; i++)
		err = add_keys(mask, kvw_worker_keys, KVW_WORKER_KEY_COUNT, &config->workers[i]);
	for (size_t i = 0; i < config->pool_count && err == KVW_OK; i++)
		err = add_keys(mask, kvw_pool_keys, KVW_POOL_KEY_COUNT, &config->pools[i]);
	return err;
}

void kvw_mask_finish(struct kvw_mask *mask)
{
	for (size_t i = 0; i < mask->count; i++)
		free(mask->secrets[i]);
	free(mask->secrets);
	*mask = (struct kvw_mask){0};
}

/* A text while it is read. */
struct scan {
	const struct kvw_mask *mask;
	const char *at, *end;
	struct kvw_page out;
};

static bool begins(const struct scan *scan, const char *word)
{
	size_t len = strlen(word);

	return (size_t)(scan->end - scan->at) >= len && memcmp(scan->at, word, len) == 0;
}

/* Ends a URL, or a token, in a line of any format. */
static bool is_end(char c)
{
	return isspace((unsigned char)c) || iscntrl((unsigned char)c) ||
	       strchr("\"'`<>{}|\\^", c) != NULL;
}

static void take(struct scan *scan, size_t len)
{
	kvw_page_put(&scan->out, scan->at, len);
	scan->at += len;
}

/* Masks the longest known secret that stands here. */
static bool mask_known(struct scan *scan)
{
	size_t longest = 0;

	for (size_t i = 0; i < scan->mask->count; i++)
		if (begins(scan, scan->mask->secrets[i]) &&
			strlen(scan->mask->secrets[i]) > longest)
			longest = strlen(scan->mask->secrets[i]);
	if (longest > 0)
		kvw_page_string(&scan->out, KVW_MASKED);
	scan->at += longest;
	return longest > 0;
}

/* Masks user and password of the URL that goes on behind `://`. A password may contain '/'. */
static void mask_user(struct scan *scan)
{
	const char *user_end = NULL;

	for (const char *c = scan->at; c < scan->end && !is_end(*c) && *c != '?'; c++)
		if (*c == '@')
			user_end = c;
	if (user_end == NULL)
		return;
	kvw_page_string(&scan->out, KVW_MASKED);
	scan->at = user_end;
}

/* Masks a query (`?name=...`, `?flag&name=...`) that stands here, of a URL or of a request's
 * target. */
static bool mask_query(struct scan *scan)
{
	const char *c = scan->at + 1;

	if (*scan->at != '?')
		return false;
	while (c < scan->end && *c != '=' && *c != '?' && !is_end(*c))
		c++;
	if (c >= scan->end || *c != '=')
		return false;
	while (c < scan->end && !is_end(*c))
		c++;
	kvw_page_string(&scan->out, "?" KVW_MASKED);
	scan->at = c;
	return true;
}

/* Masks what follows the word of an Authorization field. */
static bool mask_bearer(struct scan *scan)
{
	static const char *const words[] = {"Bearer ", "bearer ", "Basic ", "basic "};

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		if (!begins(scan, words[i]))
			continue;
		take(scan, strlen(words[i]));
		kvw_page_string(&scan->out, KVW_MASKED);
		while (scan->at < scan->end && !is_end(*scan->at))
			scan->at++;
		return true;
	}
	return false;
}

enum kvw_err kvw_mask_text(const struct kvw_mask *mask, const char *text, size_t len, char **out,
	size_t *out_len)
{
	struct scan scan = {.mask = mask, .at = text, .end = len > 0 ? text + len : text};

	while (scan.at < scan.end) {
		if (mask_known(&scan) || mask_query(&scan) || mask_bearer(&scan))
			continue;
		if (begins(&scan, "://")) {
			take(&scan, 3);
			mask_user(&scan);
			continue;
		}
		take(&scan, 1);
	}
	if (scan.out.failed) {
		free(scan.out.data);
		return KVW_ENOMEM;
	}
	*out = scan.out.data;
	*out_len = scan.out.len;
	return KVW_OK;
}
