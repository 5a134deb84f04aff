/*
 * rules_auth.c - rules for tokens of clients: without issuer and audience, a token for any other
 * service would be accepted.
 */
#include <string.h>

#include "config/rules.h"

static const char *text_of(const struct kvw_build *build, enum kvw_key_index key)
{
	const char *text;

	memcpy(&text, (const char *)build->config + kvw_keys[key].offset, sizeof(text));
	return text;
}

static bool is_set(const struct kvw_build *build, enum kvw_key_index key)
{
	return build->met[key].valid && text_of(build, key)[0] != '\0';
}

static void need(struct kvw_build *build, enum kvw_key_index given, enum kvw_key_index needed)
{
	kvw_report_mistake(build->walk.report, build->met[given].place, kvw_keys[given].path,
		"found no `%s`, expected it to be set too", kvw_keys[needed].path);
}

static void check_url(struct kvw_build *build)
{
	const char *url = text_of(build, KVW_KEY_auth_jwt_jwks_url);
	size_t scheme = strlen("https://");
	const char *host = strncmp(url, "https://", scheme) == 0 ? url + scheme : "";
	char quoted[KVW_REPORT_QUOTE];

	if (host[0] != '\0' && strchr("/?#", host[0]) == NULL && strpbrk(url, " @\"\\") == NULL)
		return;
	kvw_report_mistake(build->walk.report, build->met[KVW_KEY_auth_jwt_jwks_url].place,
		kvw_keys[KVW_KEY_auth_jwt_jwks_url].path,
		"found %s, expected a URL such as `https://issuer.example/.well-known/jwks.json`",
		kvw_report_quote(quoted, url, strlen(url)));
}

/* Checks that keys stay valid long enough for two fetches, so that they do not expire between two
 * good ones. */
static void check_keep(struct kvw_build *build)
{
	const struct kvw_met *keep = &build->met[KVW_KEY_auth_jwt_keep_ms], *refresh = &build->met[KVW_KEY_auth_jwt_refresh_ms];
	long long keep_ms = (long long)build->config->auth_jwt_keep_ms;
	long long refresh_ms = (long long)build->config->auth_jwt_refresh_ms;

	if (!keep->valid || !refresh->valid || keep_ms >= refresh_ms)
		return;
	kvw_report_mistake(build->walk.report, keep->given ? keep->place : refresh->place,
		kvw_keys[keep->given ? KVW_KEY_auth_jwt_keep_ms : KVW_KEY_auth_jwt_refresh_ms].path,
		"found %lld ms, expected %s than the %lld ms of `%s`: keys would end before they are fetched again",
		keep->given ? keep_ms : refresh_ms, keep->given ? "no less" : "no more", keep->given ? refresh_ms : keep_ms,
		kvw_keys[keep->given ? KVW_KEY_auth_jwt_refresh_ms : KVW_KEY_auth_jwt_keep_ms].path);
}

void kvw_rules_check_auth(struct kvw_build *build)
{
	bool url = is_set(build, KVW_KEY_auth_jwt_jwks_url), file = is_set(build, KVW_KEY_auth_jwt_jwks_file);
	enum kvw_key_index by = url ? KVW_KEY_auth_jwt_jwks_url : KVW_KEY_auth_jwt_jwks_file;

	if (url) {
		check_url(build);
		check_keep(build);
	}
	if (url && file)
		kvw_report_mistake(build->walk.report, build->met[KVW_KEY_auth_jwt_jwks_file].place,
			kvw_keys[KVW_KEY_auth_jwt_jwks_file].path, "found together with `%s`; remove one",
			kvw_keys[KVW_KEY_auth_jwt_jwks_url].path);
	if (is_set(build, KVW_KEY_auth_jwt_jwks_ca_file) && !url && build->met[KVW_KEY_auth_jwt_jwks_url].valid)
		need(build, KVW_KEY_auth_jwt_jwks_ca_file, KVW_KEY_auth_jwt_jwks_url);
	if (!url && !file) {
		if (is_set(build, KVW_KEY_auth_jwt_issuer) && build->met[KVW_KEY_auth_jwt_jwks_url].valid &&
			build->met[KVW_KEY_auth_jwt_jwks_file].valid)
			need(build, KVW_KEY_auth_jwt_issuer, KVW_KEY_auth_jwt_jwks_url);
		return;
	}
	if (build->met[KVW_KEY_auth_jwt_issuer].valid && !is_set(build, KVW_KEY_auth_jwt_issuer))
		need(build, by, KVW_KEY_auth_jwt_issuer);
	if (build->met[KVW_KEY_auth_jwt_audience].valid && build->config->auth_jwt_audience.count == 0)
		need(build, by, KVW_KEY_auth_jwt_audience);
	if (build->met[KVW_KEY_auth_jwt_name_claim].valid && !is_set(build, KVW_KEY_auth_jwt_name_claim))
		need(build, by, KVW_KEY_auth_jwt_name_claim);
}
