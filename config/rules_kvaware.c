/*
 * rules_kvaware.c - rules for kvaware.*: values that work with LMCache and vLLM.
 *
 * A wrong value would otherwise only show as a socket on which nothing ever arrives: ZeroMQ
 * connects to addresses without a server and reports nothing, and LMCache takes each hash name that
 * it does not know for `builtin`.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "settings/address.h"
#include "config/rules.h"
#include "settings/suggest.h"

#define HOST_MARK "{host}"

static const char *text_of(const struct kvw_build *build, enum kvw_key_index key)
{
	const char *text;

	memcpy(&text, (const char *)build->config + kvw_keys[key].offset, sizeof(text));
	return text;
}

/* Given and not empty. */
static bool is_set(const struct kvw_build *build, enum kvw_key_index key)
{
	return build->met[key].given && build->met[key].valid && text_of(build, key)[0] != '\0';
}

static void report(struct kvw_build *build, enum kvw_key_index key, const char *expected)
{
	const char *text = text_of(build, key);
	char quoted[KVW_REPORT_QUOTE];

	kvw_report_mistake(build->walk.report, build->met[key].place, kvw_keys[key].path,
		"found %s, expected %s", kvw_report_quote(quoted, text, strlen(text)), expected);
}

/* --- addresses --- */

/* Returns whether the address has a port, and the `more` ports after it exist. */
static bool has_ports(struct kvw_slice address, int64_t more)
{
	struct kvw_address split;

	return kvw_address_split(address, &split) == KVW_ADDRESS_OK && split.port > 0 &&
	       split.port + more <= UINT16_MAX;
}

/* Returns whether ZeroMQ would accept the text: tcp://HOST:PORT, where the host may be a
 * placeholder, or a socket of this machine. */
static bool is_endpoint(const char *text, bool marks, int64_t more_ports)
{
	char address[KVW_ADDRESS_MAX_HOST + 16];
	const char *mark = marks ? strstr(text, HOST_MARK) : NULL;
	int len;

	if (strncmp(text, "ipc://", 6) == 0)
		return text[6] != '\0' && more_ports == 0;
	if (strncmp(text, "tcp://", 6) != 0)
		return false;
	text += 6;
	if (mark != NULL && mark != text)
		return false;
	len = mark == NULL ? snprintf(address, sizeof(address), "%s", text)
			   : snprintf(address, sizeof(address), "h%s", text + strlen(HOST_MARK));
	if (len >= (int)sizeof(address))
		return false;
	if (strncmp(address, "*:", 2) == 0)
		/* `*` means every address of this machine; `h` is a placeholder with which the text
		 * can be parsed */
		address[0] = 'h';
	return has_ports(kvw_slice_of(address), more_ports);
}

static void check_endpoint(struct kvw_build *build, enum kvw_key_index key)
{
	int64_t more = build->met[KVW_KEY_kvaware_events_ranks].valid
			       ? build->config->kvaware_events_ranks - 1
			       : 0;

	if (is_set(build, key) && !is_endpoint(text_of(build, key), true, more))
		report(build, key,
			more > 0 ? "`tcp://HOST:PORT` with room for the ports of all ranks; "
				   "`{host}` "
				   "stands for the worker's"
				 : "`tcp://HOST:PORT`; `{host}` stands for the worker's");
}

void kvw_rules_check_worker_events(struct kvw_report *report_to,
	const struct kvw_worker_config *worker, size_t index, struct kvw_place place)
{
	const struct {
		const char *name, *text;
	} keys[] = {{"events_endpoint", worker->events_endpoint},
		{"events_replay", worker->events_replay}};
	char shown[48], quoted[KVW_REPORT_QUOTE];

	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
		const char *text = keys[i].text;

		if (text == NULL || text[0] == '\0' || is_endpoint(text, true, 0))
			continue;
		snprintf(shown, sizeof(shown), "workers[%zu].%s", index, keys[i].name);
		kvw_report_mistake(report_to, place, shown, "found %s, expected `tcp://HOST:PORT`",
			kvw_report_quote(quoted, text, strlen(text)));
	}
}

/* Checks the addresses to which LMCache's workers connect: two sockets cannot share one. */
static void check_lmcache_addresses(struct kvw_build *build)
{
	static const enum kvw_key_index keys[] = {KVW_KEY_kvaware_lmcache_pull,
		KVW_KEY_kvaware_lmcache_reply, KVW_KEY_kvaware_lmcache_heartbeat,
		KVW_KEY_kvaware_lmcache_coordinator, KVW_KEY_kvaware_lmcache_advertise};
	/* the first four of the keys are addresses on which kvway listens */
	const size_t bound = 4;

	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
		if (!is_set(build, keys[i]))
			continue;
		if (!has_ports(kvw_slice_of(text_of(build, keys[i])), 0)) {
			report(build, keys[i], "HOST:PORT, without a scheme");
			continue;
		}
		for (size_t other = 0; other < i && i < bound; other++)
			if (is_set(build, keys[other]) &&
				strcmp(text_of(build, keys[i]), text_of(build, keys[other])) == 0)
				report(build, keys[i],
					"an address of its own for each of pull, reply, "
					"heartbeat and coordinator");
	}
	if (is_set(build, KVW_KEY_kvaware_lmcache_advertise) &&
		build->met[KVW_KEY_kvaware_lmcache_heartbeat].valid &&
		!is_set(build, KVW_KEY_kvaware_lmcache_heartbeat))
		report(build, KVW_KEY_kvaware_lmcache_advertise,
			"`kvaware.lmcache.heartbeat` to be set too: there is no socket to "
			"advertise");
}

/* --- how LMCache hashes --- */

static void check_hash(struct kvw_build *build)
{
	static const char *const names[] = {
		"builtin", "sha256_cbor", "sha256_cbor_64bit", "sha256", "xxhash", "xxhash_cbor"};
	enum kvw_key_index key = KVW_KEY_kvaware_lmcache_hash;
	struct kvw_suggest near;
	char expected[256];

	if (!is_set(build, key))
		return;
	kvw_suggest_start(&near, text_of(build, key));
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (strcmp(text_of(build, key), names[i]) == 0)
			return;
		kvw_suggest_offer(&near, names[i], names[i]);
	}
	snprintf(expected, sizeof(expected),
		"one of builtin, sha256_cbor, sha256, xxhash, xxhash_cbor (LMCache itself takes "
		"any "
		"other name for builtin)%s%s%s",
		near.best == NULL ? "" : "; did you mean `", near.best == NULL ? "" : near.best,
		near.best == NULL ? "" : "`?");
	report(build, key, expected);
}

/* Returns whether the text may be a PYTHONHASHSEED: a number of 32 bits. With "random", kvway could
 * not compute the hashes. */
static bool is_seed(const char *text)
{
	unsigned long long seed;
	char *end;

	if (strcmp(text, "unset") == 0)
		return true;
	if (text[0] < '0' || text[0] > '9')
		return false;
	errno = 0;
	seed = strtoull(text, &end, 10);
	return errno == 0 && *end == '\0' && seed <= UINT32_MAX;
}

/* Returns whether the text is a number of 64 bits, signed or not, as Python prints it. */
static bool is_number(const char *text)
{
	bool minus = text[0] == '-';
	char *end;

	if (text[minus] < '0' || text[minus] > '9')
		return false;
	errno = 0;
	if (minus)
		(void)strtoll(text, &end, 0);
	else
		(void)strtoull(text, &end, 0);
	return errno == 0 && *end == '\0';
}

/* Returns whether all bytes of the text have only one form in a JSON string. */
static bool is_separator(const char *text)
{
	size_t len = strlen(text);

	for (size_t i = 0; i < len; i++)
		if ((unsigned char)text[i] >= 0x80)
			return false;
	return len <= 64;
}

void kvw_rules_check_kvaware(struct kvw_build *build)
{
	enum kvw_key_index separator = KVW_KEY_kvaware_fragments_separator;
	enum kvw_key_index seed = KVW_KEY_kvaware_lmcache_seed;
	enum kvw_key_index none = KVW_KEY_kvaware_lmcache_none_hash;
	enum kvw_key_index bind = KVW_KEY_kvaware_events_bind;

	check_endpoint(build, KVW_KEY_kvaware_events_endpoint);
	check_endpoint(build, KVW_KEY_kvaware_events_replay);
	if (is_set(build, separator) && !is_separator(text_of(build, separator)))
		report(build, separator, "ASCII text of at most 64 bytes");
	if (is_set(build, bind) && !is_endpoint(text_of(build, bind), false, 0))
		report(build, bind, "`tcp://ADDRESS:PORT` of this machine");
	check_lmcache_addresses(build);
	check_hash(build);
	if (is_set(build, seed) && !is_seed(text_of(build, seed)))
		report(build, seed,
			"a number from 0 to 4294967295, or `unset` (with PYTHONHASHSEED=random "
			"only "
			"the workers themselves can compute their hashes)");
	if (is_set(build, none) && !is_number(text_of(build, none)))
		report(build, none, "a number of 64 bits, as workers log it after NONE_HASH");
}
