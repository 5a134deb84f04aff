/*
 * rules_admin.c - rules for the admin address, and for proxies in front of kvway.
 *
 * Requests to the admin address change workers and show what they do. So other hosts may use it
 * only with a key or a certificate, or only those of its paths that the configuration opens to them
 * by name.
 */
#include <netinet/in.h>
#include <string.h>

#include "base/network.h"
#include "config/rules.h"
#include "settings/address.h"

/* Returns whether the host is this machine by its form alone; a name such as `127.example` may be
 * any host's. */
static bool is_of_this_host(struct kvw_slice host)
{
	char text[INET6_ADDRSTRLEN];
	struct kvw_network named, loopback, loopback_v6;

	if (kvw_slice_equal_nocase(host, KVW_SLICE("localhost")))
		return true;
	if (host.len >= sizeof(text))
		return false;
	memcpy(text, host.data, host.len);
	text[host.len] = '\0';
	if (!kvw_network_parse(text, &named) || !kvw_network_parse("127.0.0.0/8", &loopback) ||
		!kvw_network_parse("::1", &loopback_v6))
		return false;
	return memcmp(named.bytes, loopback.bytes, 13) == 0 ||
	       memcmp(named.bytes, loopback_v6.bytes, sizeof(named.bytes)) == 0;
}

/* Refuses a pattern that opens all paths, present and future: then workers could be changed without
 * a key. */
static void check_open(struct kvw_build *build)
{
	const struct kvw_met *open = &build->met[KVW_KEY_admin_open];
	const struct kvw_strings *paths = &build->config->admin_open;

	for (size_t i = 0; open->valid && i < paths->count; i++)
		if (strcmp(paths->items[i], "/*") == 0)
			kvw_report_mistake(build->walk.report, open->place, kvw_keys[KVW_KEY_admin_open].path,
				"found `/*`, expected paths by name, such as `[/metrics]`: it would let everyone change "
				"workers and the configuration");
}

void kvw_rules_check_admin(struct kvw_build *build)
{
	const struct kvw_config *config = build->config;
	const struct kvw_met *listen = &build->met[KVW_KEY_admin_listen];
	const struct kvw_met *keys = &build->met[KVW_KEY_admin_keys_file];
	const struct kvw_met *open = &build->met[KVW_KEY_admin_open];
	const struct kvw_met *authorities = &build->met[KVW_KEY_admin_tls_client_ca];
	struct kvw_address address;

	check_open(build);
	if (keys->valid && build->met[KVW_KEY_auth_keys_file].valid && config->admin_keys_file[0] != '\0' &&
		strcmp(config->admin_keys_file, config->auth_keys_file) == 0)
		kvw_report_mistake(build->walk.report, keys->place, kvw_keys[KVW_KEY_admin_keys_file].path,
			"found the file that `auth.keys_file` names, expected another one: clients' keys would "
			"open the admin address");
	if (!listen->valid || !keys->valid || !open->valid || !authorities->valid ||
		config->admin_keys_file[0] != '\0' || config->admin_tls_client_ca[0] != '\0' ||
		config->admin_open.count > 0 ||
		kvw_address_split(kvw_slice_of(config->admin_listen), &address) != KVW_ADDRESS_OK ||
		is_of_this_host(address.host))
		return;
	kvw_report_mistake(build->walk.report, listen->place, kvw_keys[KVW_KEY_admin_listen].path,
		"found `%s`, which other hosts reach, expected one of this host such as `127.0.0.1:%u`, or "
		"`admin.keys_file`, or `admin.tls.client_ca`, or `admin.open` with the paths that need no key, such as "
		"`[/metrics]`%s",
		config->admin_listen, address.port,
		listen->place.flag != NULL ? " (these are keys of a file, `-c FILE`)" : "");
}

void kvw_rules_check_proxies(struct kvw_build *build)
{
	const struct kvw_strings *trusted = &build->config->proxies_trusted;
	const struct kvw_met *met = &build->met[KVW_KEY_proxies_trusted];
	const struct kvw_met *protocol = &build->met[KVW_KEY_proxies_protocol];
	char quoted[KVW_REPORT_QUOTE];
	struct kvw_network network;

	for (size_t i = 0; met->valid && i < trusted->count; i++)
		if (!kvw_network_parse(trusted->items[i], &network))
			kvw_report_mistake(build->walk.report, met->place, kvw_keys[KVW_KEY_proxies_trusted].path,
				"found %s, expected an address such as `10.0.0.7`, or a network such as `10.0.0.0/8` "
				"without bits behind its prefix",
				kvw_report_quote(quoted, trusted->items[i], strlen(trusted->items[i])));
	if (protocol->valid && met->valid && build->config->proxies_protocol != KVW_PROXY_PROTOCOL_OFF &&
		trusted->count == 0)
		kvw_report_mistake(build->walk.report, protocol->place, kvw_keys[KVW_KEY_proxies_protocol].path,
			"found no `proxies.trusted`, expected it to list the proxies that may send the header");
}
