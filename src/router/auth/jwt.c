/*
 * jwt.c - a client's token (JSON Web Token, RFC 7519, signed in compact form): verifies it and
 * converts it into an entry like those of the keys file.
 */
#include "auth/jwt.h"

#include <jansson.h>
#include <openssl/bn.h>
#include <openssl/crypto.h>
#include <openssl/ecdsa.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "auth/keys_file.h"
#include "base/base64.h"
#include "config/path_pattern.h"
#include "config/schema.h"

#define HEADER_MOST     2048 /* bytes, decoded */
/* most brackets in a token's head, since jansson recurses once for each */
#define BRACKETS_MOST   16
#define SIGNATURE_MOST  (KVW_JWKS_RSA_MOST / 8)
#define HALF            32 /* half the bytes of an ES256 signature */
#define LIST_MOST       1024 /* most models in a list, as in the keys file */
#define LATEST_S        253402300799.0 /* the end of 9999 */
#define PREFIX          "jwt:" /* prefix of tokens' names: names in the keys file have no colon */

/* The parts of a token. */
struct parts {
	struct kvw_slice header, payload, signature;
	/* the first two parts of the token, with the dot between them */
	struct kvw_slice is_signed;
};

const char *kvw_jwt_verdict_name(enum kvw_jwt_verdict verdict)
{
	static const char *const names[KVW_JWT_VERDICTS] = {"", "malformed", "algorithm", "key",
		"signature", "expired", "not_yet_valid", "issuer", "audience", "claims", "no_keys",
		"no_memory"};

	return names[verdict];
}

const char *kvw_jwt_verdict_text(enum kvw_jwt_verdict verdict)
{
	static const char *const texts[KVW_JWT_VERDICTS] = {"", "the token is malformed",
		"the token's algorithm is not accepted", "the token is signed by an unknown key",
		"the token's signature is wrong", "the token has expired",
		"the token is not valid yet", "the token is of another issuer",
		"the token is for another audience", "the token's claims cannot be used",
		"the keys that verify tokens are not there yet; try again",
		"out of memory; try again"};

	return texts[verdict];
}

/* --- its form --- */

static bool split(struct kvw_slice text, struct parts *out)
{
	const char *first = text.len == 0 ? NULL : memchr(text.data, '.', text.len), *second, *end;

	if (first == NULL)
		return false;
	end = text.data + text.len;
	second = memchr(first + 1, '.', (size_t)(end - first - 1));
	if (second == NULL || memchr(second + 1, '.', (size_t)(end - second - 1)) != NULL)
		return false;
	out->header = (struct kvw_slice){text.data, (size_t)(first - text.data)};
	out->payload = (struct kvw_slice){first + 1, (size_t)(second - first - 1)};
	out->signature = (struct kvw_slice){second + 1, (size_t)(end - second - 1)};
	out->is_signed = (struct kvw_slice){text.data, (size_t)(second - text.data)};
	return true;
}

bool kvw_jwt_looks(struct kvw_slice text)
{
	struct parts parts;

	return split(text, &parts);
}

/* --- the header --- */

static bool is_flat(const char *text, size_t len)
{
	size_t brackets = 0;

	for (size_t i = 0; i < len; i++)
		brackets += text[i] == '[' || text[i] == '{';
	return brackets <= BRACKETS_MOST;
}

/* Returns whether the token's type is acceptable: by RFC 8725, tokens of other kinds, such as for
 * logout, are no access tokens. */
static bool good_type(const json_t *header)
{
	const json_t *type = json_object_get(header, "typ");
	const char *text = json_string_value(type);

	if (type == NULL)
		return true;
	if (text != NULL && strncasecmp(text, "application/", 12) == 0)
		text += 12;
	return text != NULL && (strcasecmp(text, "JWT") == 0 || strcasecmp(text, "at+jwt") == 0);
}

static bool alg_of(const json_t *header, enum kvw_jwt_alg *out)
{
	static const char *const names[] = {
		[KVW_JWT_RS256] = "RS256", [KVW_JWT_ES256] = "ES256", [KVW_JWT_EDDSA] = "EdDSA"};
	const char *name = json_string_value(json_object_get(header, "alg"));

	for (size_t i = 0; name != NULL && i < sizeof(names) / sizeof(names[0]); i++)
		if (strcmp(name, names[i]) == 0) {
			*out = (enum kvw_jwt_alg)i;
			return true;
		}
	return false;
}

/* Finds the key that the head names. *pkey is borrowed from the set. */
static enum kvw_jwt_verdict read_header(
	const struct kvw_jwks *jwks, struct kvw_slice part, enum kvw_jwt_alg *alg, EVP_PKEY **pkey)
{
	unsigned char text[HEADER_MOST];
	size_t len;
	json_t *header;
	const json_t *kid;
	enum kvw_jwt_verdict verdict = KVW_JWT_MALFORMED;
	bool known;

	if (!kvw_base64_read(part, KVW_BASE64_URL, text, sizeof(text), &len) ||
		!is_flat((const char *)text, len))
		return KVW_JWT_MALFORMED;
	header = json_loadb((const char *)text, len, JSON_REJECT_DUPLICATES, NULL);
	kid = json_object_get(header, "kid");
	if (json_is_object(header) && json_object_get(header, "crit") == NULL &&
		good_type(header) &&
		(kid == NULL ||
			(json_is_string(kid) && json_string_length(kid) <= KVW_JWKS_KID_MOST))) {
		struct kvw_slice name = {json_string_value(kid), json_string_length(kid)};

		verdict = alg_of(header, alg) ? KVW_JWT_GOOD : KVW_JWT_ALGORITHM;
		*pkey = verdict != KVW_JWT_GOOD ? NULL : kvw_jwks_find(jwks, name, *alg, &known);
		if (verdict == KVW_JWT_GOOD && *pkey == NULL)
			verdict = known && kid != NULL ? KVW_JWT_ALGORITHM : KVW_JWT_KEY;
	}
	json_decref(header);
	return verdict;
}

/* --- the signature --- */

/* Converts r and s from the form in JOSE to OpenSSL's. Returns the length; 0: memory is short. */
static size_t der_of(const unsigned char *raw, unsigned char *out, size_t room)
{
	ECDSA_SIG *pair = ECDSA_SIG_new();
	BIGNUM *r = BN_bin2bn(raw, HALF, NULL), *s = BN_bin2bn(raw + HALF, HALF, NULL);
	unsigned char *at = out;
	int len = 0;

	if (pair != NULL && r != NULL && s != NULL && ECDSA_SIG_set0(pair, r, s) == 1) {
		r = s = NULL; /* the pair's */
		len = i2d_ECDSA_SIG(pair, NULL);
		len = len > 0 && (size_t)len <= room ? i2d_ECDSA_SIG(pair, &at) : 0;
	}
	BN_free(r);
	BN_free(s);
	ECDSA_SIG_free(pair);
	return len > 0 ? (size_t)len : 0;
}

static bool verifies(EVP_PKEY *pkey, enum kvw_jwt_alg alg, const unsigned char *signature,
	size_t len, struct kvw_slice text)
{
	const EVP_MD *hash = alg == KVW_JWT_EDDSA ? NULL : EVP_sha256();
	EVP_MD_CTX *ctx = EVP_MD_CTX_new();
	bool good;

	/* An RSA key without parameters uses PKCS #1 v1.5, which is RS256. */
	good = ctx != NULL && EVP_DigestVerifyInit(ctx, NULL, hash, NULL, pkey) == 1 &&
	       EVP_DigestVerify(ctx, signature, len, (const unsigned char *)text.data, text.len) ==
		       1;
	EVP_MD_CTX_free(ctx);
	ERR_clear_error();
	return good;
}

static enum kvw_jwt_verdict check_signature(
	EVP_PKEY *pkey, enum kvw_jwt_alg alg, const struct parts *parts)
{
	unsigned char raw[SIGNATURE_MOST], der[2 * HALF + 16];
	size_t len, expected = alg == KVW_JWT_RS256 ? (size_t)EVP_PKEY_get_size(pkey)
						    : (size_t)2 * HALF;
	bool good = false;

	if (!kvw_base64_read(parts->signature, KVW_BASE64_URL, raw, sizeof(raw), &len)) {
		OPENSSL_cleanse(raw, sizeof(raw));
		return KVW_JWT_MALFORMED;
	}
	if (len == expected && alg == KVW_JWT_ES256)
		good = (len = der_of(raw, der, sizeof(der))) > 0 &&
		       verifies(pkey, alg, der, len, parts->is_signed);
	else if (len == expected)
		good = verifies(pkey, alg, raw, len, parts->is_signed);
	OPENSSL_cleanse(raw, sizeof(raw));
	OPENSSL_cleanse(der, sizeof(der));
	return good ? KVW_JWT_GOOD : KVW_JWT_SIGNATURE;
}

/* --- the claims --- */

/* Reads a claim with a date, in seconds since 1970. */
static bool time_of(const json_t *value, double *out)
{
	if (!json_is_number(value))
		return false;
	*out = json_number_value(value);
	return *out >= 0 && *out <= LATEST_S;
}

static enum kvw_jwt_verdict check_times(const struct kvw_config *config, const json_t *claims,
	int64_t now_s, struct kvw_client_key *key)
{
	const json_t *early = json_object_get(claims, "nbf");
	int64_t leeway_s = config->auth_jwt_leeway_ms / 1000;
	double end, begin;

	if (!time_of(json_object_get(claims, "exp"), &end) || now_s >= (int64_t)end + leeway_s)
		return KVW_JWT_EXPIRED;
	if (early != NULL && !time_of(early, &begin))
		return KVW_JWT_CLAIMS;
	if (early != NULL && now_s + leeway_s < (int64_t)begin)
		return KVW_JWT_EARLY;
	key->expires = (int64_t)end + leeway_s;
	return KVW_JWT_GOOD;
}

static bool is_audience(const struct kvw_config *config, const json_t *value)
{
	const char *text = json_string_value(value);

	for (size_t i = 0; text != NULL && i < config->auth_jwt_audience.count; i++)
		if (strcmp(text, config->auth_jwt_audience.items[i]) == 0)
			return true;
	return false;
}

static bool has_audience(const struct kvw_config *config, const json_t *value)
{
	for (size_t i = 0; i < json_array_size(value); i++)
		if (is_audience(config, json_array_get(value, i)))
			return true;
	return is_audience(config, value);
}

/* Returns the claim with this name; NULL: it is missing, or no name is configured. */
static const json_t *claim_of(const json_t *claims, const char *name)
{
	return name[0] == '\0' ? NULL : json_object_get(claims, name);
}

/* Sets the name that is used in logs, and by which limits and usage are counted. */
static bool set_name(struct kvw_client_key *key, const json_t *value)
{
	const char *text = json_string_value(value);
	size_t len = json_string_length(value);

	if (text == NULL || len == 0 || len > KVW_JWT_NAME_MOST)
		return false;
	for (size_t i = 0; i < len; i++)
		if (text[i] <= ' ' || text[i] > '~' || text[i] == '"' || text[i] == '\\')
			return false;
	if (asprintf(&key->name, PREFIX "%s", text) >= 0)
		return true;
	key->name = NULL; /* the key no longer owns the name */
	return false;
}

/* Sets a name, for which the rules are those of the keys file. A missing claim is accepted. */
static bool set_word(char **out, const json_t *value)
{
	if (value == NULL)
		return true;
	if (!json_is_string(value) || !kvw_keys_file_name_good(json_string_value(value)))
		return false;
	*out = strdup(json_string_value(value));
	return *out != NULL;
}

static bool add_item(struct kvw_strings *out, const char *text, size_t len)
{
	if (out->count == LIST_MOST || len == 0)
		return false;
	for (size_t i = 0; i < len; i++)
		if ((unsigned char)text[i] < ' ' || text[i] == 0x7f)
			return false;
	out->items[out->count] = strndup(text, len);
	return out->items[out->count] != NULL && ++out->count > 0;
}

static bool add_words(struct kvw_strings *out, const char *text)
{
	while (*text != '\0') {
		size_t len = strcspn(text, " ");

		if (len > 0 && !add_item(out, text, len))
			return false;
		text += len + (text[len] == ' ');
	}
	return true;
}

/* Frees unused memory, because thousands of tokens are cached. */
static bool shrink(struct kvw_strings *list)
{
	char **items = realloc(list->items, list->count * sizeof(items[0]));

	if (items != NULL)
		list->items = items;
	return items != NULL;
}

/* Sets a list, from an array or from the words of a text, as in `scope`. A missing claim is
 * accepted. An empty list is refused: it would mean "all", which the issuer hardly meant. */
static bool set_list(struct kvw_strings *out, const json_t *value)
{
	if (value == NULL)
		return true;
	out->items = calloc(LIST_MOST, sizeof(out->items[0]));
	if (out->items == NULL || (!json_is_array(value) && !json_is_string(value)))
		return false;
	if (json_is_string(value) && !add_words(out, json_string_value(value)))
		return false;
	for (size_t i = 0; i < json_array_size(value); i++) {
		const json_t *item = json_array_get(value, i);

		if (!json_is_string(item) ||
			!add_item(out, json_string_value(item), json_string_length(item)))
			return false;
	}
	return out->count > 0 && shrink(out);
}

static bool good_lists(const struct kvw_client_key *key)
{
	for (size_t i = 0; i < key->models.count; i++) {
		const char *star = strchr(key->models.items[i], '*');

		if (star != NULL && star[1] != '\0')
			return false;
	}
	for (size_t i = 0; i < key->paths.count; i++)
		if (!kvw_path_pattern_good(key->paths.items[i]))
			return false;
	return true;
}

/* --- its limits --- */

static const enum kvw_client_key_index limit_keys[] = {
	KVW_CLIENT_KEY_requests_per_minute,
	KVW_CLIENT_KEY_tokens_per_minute,
	KVW_CLIENT_KEY_tokens_per_day,
	KVW_CLIENT_KEY_concurrent,
	KVW_CLIENT_KEY_burst_ms,
	KVW_CLIENT_KEY_max_body,
	KVW_CLIENT_KEY_timeout_ms,
};

/* Sets one of the limits that the token may have, in the form of the keys file. An unknown name is
 * refused, since it may be meant as a limit. */
static bool set_limit(struct kvw_client_key *key, const char *name, const json_t *value)
{
	char number[24];
	const char *text = json_is_string(value) ? json_string_value(value) : number;
	struct kvw_fault fault;
	union kvw_value read;

	if (!json_is_string(value) && !json_is_integer(value))
		return false;
	(void)snprintf(number, sizeof(number), "%lld", (long long)json_integer_value(value));
	for (size_t i = 0; i < sizeof(limit_keys) / sizeof(limit_keys[0]); i++) {
		const struct kvw_key *limit = &kvw_client_keys[limit_keys[i]];

		if (strcmp(limit->path, name) != 0)
			continue;
		if (kvw_key_parse(&kvw_client_key_schema, limit, kvw_slice_of(text), &read,
			    &fault) != KVW_OK)
			return false;
		/* Sizes are copied in the same way, because they have as many bytes. */
		memcpy((char *)key + limit->offset, &read.integer, sizeof(read.integer));
		return true;
	}
	return false;
}

static bool set_limits(
	const struct kvw_config *config, const json_t *limits, struct kvw_client_key *key)
{
	const char *name;
	json_t *value;

	key->requests_per_minute = config->auth_jwt_requests_per_minute;
	key->tokens_per_minute = config->auth_jwt_tokens_per_minute;
	key->tokens_per_day = config->auth_jwt_tokens_per_day;
	key->concurrent = config->auth_jwt_concurrent;
	key->burst_ms = config->auth_jwt_burst_ms;
	key->max_body = config->auth_jwt_max_body;
	key->timeout_ms = config->auth_jwt_timeout_ms;
	if (limits != NULL && !json_is_object(limits))
		return false;
	json_object_foreach ((json_t *)limits, name, value)
		if (!set_limit(key, name, value))
			return false;
	return true;
}

/* --- all of them --- */

static bool set_claims(
	const struct kvw_config *config, const json_t *claims, struct kvw_client_key *key)
{
	return set_name(key, claim_of(claims, config->auth_jwt_name_claim)) &&
	       set_word(&key->tenant, claim_of(claims, config->auth_jwt_tenant_claim)) &&
	       set_word(&key->class, claim_of(claims, config->auth_jwt_class_claim)) &&
	       set_list(&key->models, claim_of(claims, config->auth_jwt_models_claim)) &&
	       set_list(&key->paths, claim_of(claims, config->auth_jwt_paths_claim)) &&
	       good_lists(key) &&
	       set_limits(config, claim_of(claims, config->auth_jwt_limits_claim), key);
}

static enum kvw_jwt_verdict read_claims(const struct kvw_config *config, const json_t *claims,
	int64_t now_s, struct kvw_client_key *key)
{
	const json_t *issuer = json_object_get(claims, "iss");
	enum kvw_jwt_verdict verdict;

	if (!json_is_object(claims))
		return KVW_JWT_MALFORMED;
	if (!json_is_string(issuer) ||
		strcmp(json_string_value(issuer), config->auth_jwt_issuer) != 0)
		return KVW_JWT_ISSUER;
	if (!has_audience(config, json_object_get(claims, "aud")))
		return KVW_JWT_AUDIENCE;
	verdict = check_times(config, claims, now_s, key);
	if (verdict == KVW_JWT_GOOD && !set_claims(config, claims, key))
		verdict = KVW_JWT_CLAIMS;
	return verdict;
}

/* --- the token --- */

static enum kvw_jwt_verdict read_payload(const struct kvw_config *config, struct kvw_slice part,
	int64_t now_s, struct kvw_client_key **out)
{
	size_t room = part.len / 4 * 3 + 3, len;
	unsigned char *text = malloc(room);
	struct kvw_client_key *key = calloc(1, sizeof(*key));
	enum kvw_jwt_verdict verdict =
		text == NULL || key == NULL ? KVW_JWT_NO_MEMORY : KVW_JWT_MALFORMED;

	if (verdict != KVW_JWT_NO_MEMORY &&
		kvw_base64_read(part, KVW_BASE64_URL, text, room, &len)) {
		json_t *claims = json_loadb((const char *)text, len, JSON_REJECT_DUPLICATES, NULL);

		verdict = read_claims(config, claims, now_s, key);
		json_decref(claims);
		OPENSSL_cleanse(text, room);
	}
	free(text);
	if (verdict == KVW_JWT_GOOD)
		*out = key;
	else if (key != NULL)
		kvw_client_keys_free(key, 1);
	return verdict;
}

enum kvw_jwt_verdict kvw_jwt_verify(const struct kvw_config *config, const struct kvw_jwks *jwks,
	struct kvw_slice token, int64_t now_s, struct kvw_client_key **out)
{
	enum kvw_jwt_verdict verdict;
	enum kvw_jwt_alg alg;
	struct parts parts;
	EVP_PKEY *pkey;

	if (token.len > KVW_JWT_MOST || !split(token, &parts))
		return KVW_JWT_MALFORMED;
	verdict = read_header(jwks, parts.header, &alg, &pkey);
	if (verdict == KVW_JWT_GOOD)
		verdict = check_signature(pkey, alg, &parts);
	return verdict == KVW_JWT_GOOD ? read_payload(config, parts.payload, now_s, out) : verdict;
}
