/*
 * reference_compare.c - the scan against the reference, and where the two may differ.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reference.h"

/*
 * Why the scan may accept what jansson refuses. Each is read from jansson's own message.
 *
 *	invalid UTF-8      hashed as it is, see text.h
 *	lone surrogates    three bytes each; Python's parser takes them too
 *	too large numbers  nothing overflows here
 *	NUL in a key       it is a byte like others
 */
static bool is_listed(const char *message)
{
	static const char *const reasons[] = {
		"unable to decode", "invalid Unicode", "too big", "overflow", "NUL byte"};

	for (size_t i = 0; i < sizeof(reasons) / sizeof(reasons[0]); i++) {
		if (strstr(message, reasons[i]) != NULL)
			return true;
	}
	return false;
}

/* How deep containers lie in one another; strings are skipped. */
static unsigned depth_of(const char *body, size_t len)
{
	unsigned depth = 0, most = 0;
	bool in_string = false;

	for (size_t i = 0; i < len; i++) {
		if (in_string) {
			if (body[i] == '\\')
				i++;
			else
				in_string = body[i] != '"';
		} else if (body[i] == '"') {
			in_string = true;
		} else if (body[i] == '{' || body[i] == '[') {
			most = ++depth > most ? depth : most;
		} else if (body[i] == '}' || body[i] == ']') {
			depth -= depth > 0;
		}
	}
	return most;
}

/* A number whose value the tree does not keep as it was spelt: more than 512 bytes. */
static bool has_long_number(const char *body, size_t len)
{
	size_t run = 0;

	for (size_t i = 0; i < len; i++) {
		run = memchr("0123456789+-.eE", body[i], 15) != NULL ? run + 1 : 0;
		if (run > 512)
			return true;
	}
	return false;
}

static bool has_duplicates(const char *body, size_t len)
{
	json_error_t error;
	json_t *root = json_loadb(body, len, JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, &error);

	json_decref(root);
	return root == NULL;
}

/* May it hold what Python's json reads and jansson does not? */
static bool is_pythons(const char *body, size_t len)
{
	return memmem(body, len, "NaN", 3) != NULL || memmem(body, len, "Infinity", 8) != NULL ||
	       (len > 3 && memcmp(body, "\xef\xbb\xbf", 3) == 0);
}

/*
 * Why the scan may refuse what the reference accepts:
 *
 *	depth       more than 128 containers inside one another
 *	duplicates  a wrong type in a value that is replaced later ends the scan at once
 *	NUL         jansson overlooks a NUL byte behind a number
 */
static const char *check_refusal(enum verdict verdict, const char *body, size_t len)
{
	if (verdict != VERDICT_OK || depth_of(body, len) > 128 || has_duplicates(body, len) ||
		memchr(body, '\0', len) != NULL)
		return NULL;
	return "the scan refuses what the reference accepts";
}

const char *reference_compare(enum kvw_api api, const char *body, size_t len, size_t piece)
{
	struct seen *ours = see(api, body, len, piece), *expected = NULL;
	enum verdict verdict = reference_see(api, body, len, &expected);
	const char *problem = NULL;
	json_error_t error = {.text = ""};

	if (ours->err != KVW_OK) {
		problem = check_refusal(verdict, body, len);
	} else if (api == KVW_API_AUDIO && len > 0 && body[0] == '-') {
		problem = NULL; /* a form */
	} else if (verdict == VERDICT_NOT_JSON) {
		json_decref(json_loadb(body, len, JSON_ALLOW_NUL, &error));
		if (!is_listed(error.text) && !is_pythons(body, len))
			problem = "the scan accepts what jansson refuses";
	} else if (verdict == VERDICT_WRONG) {
		problem = has_duplicates(body, len) ? NULL : "the scan overlooks a wrong type";
	} else if (!seen_equal(ours, expected) && !has_long_number(body, len)) {
		problem = "the scan and the reference understand different things";
	}
	seen_free(ours);
	seen_free(expected);
	return problem;
}
