/*
 * rules_discovery.c - rules for discovery.*.
 */
#include <string.h>

#include "config/discovery_url.h"
#include "config/rules.h"
#include "settings/address.h"

static void check_names(struct kvw_build *build)
{
	const struct kvw_strings *names = &build->config->discovery_dns;
	const char *path = kvw_keys[KVW_KEY_discovery_dns].path;
	struct kvw_place place = build->met[KVW_KEY_discovery_dns].place;
	char shown[48], quoted[KVW_REPORT_QUOTE];
	struct kvw_discovery_url url;

	for (size_t i = 0; i < names->count; i++) {
		const char *text = names->items[i];

		snprintf(shown, sizeof(shown), "%s[%zu]", path, i);
		if (!kvw_discovery_url_split(kvw_slice_of(text), &url))
			kvw_report_mistake(build->walk.report, place, shown,
				"found %s, expected `http://NAME:PORT`, `https://NAME:PORT`, "
				"`srv://_http._tcp.NAME` or `srv+https://_http._tcp.NAME`",
				kvw_report_quote(quoted, text, strlen(text)));
		for (size_t k = 0; k < i; k++)
			if (strcmp(names->items[k], text) == 0) {
				kvw_report_mistake(build->walk.report, place, shown,
					"found %s again, expected each name once",
					kvw_report_quote(quoted, text, strlen(text)));
				break;
			}
	}
}

/* Checks the webhook's path, which may be followed by a query. */
static void check_webhook(struct kvw_build *build)
{
	const char *text = build->config->discovery_wake_webhook;
	char quoted[KVW_REPORT_QUOTE];
	struct kvw_url url;

	if (text[0] == '\0' ||
		(text[strcspn(text, " #\\")] == '\0' &&
			kvw_url_split((struct kvw_slice){text, strcspn(text, "?")}, &url) == KVW_ADDRESS_OK))
		return;
	kvw_report_mistake(build->walk.report, build->met[KVW_KEY_discovery_wake_webhook].place,
		"discovery.wake.webhook", "found %s, expected a URL such as `http://scaler:8080/wake`",
		kvw_report_quote(quoted, text, strlen(text)));
}

void kvw_rules_check_discovery(struct kvw_build *build)
{
	const struct kvw_config *config = build->config;
	const struct kvw_met *least = &build->met[KVW_KEY_discovery_dns_least_ms];
	const struct kvw_met *most = &build->met[KVW_KEY_discovery_dns_most_ms];

	if (build->met[KVW_KEY_discovery_dns].valid)
		check_names(build);
	if (build->met[KVW_KEY_discovery_wake_webhook].valid)
		check_webhook(build);
	if (!least->valid || !most->valid ||
		config->discovery_dns_least_ms <= config->discovery_dns_most_ms)
		return;
	kvw_report_mistake(build->walk.report, least->given ? least->place : most->place,
		least->given ? "discovery.dns_least" : "discovery.dns_most",
		"found %s, expected `discovery.dns_least` to be at most `discovery.dns_most`",
		least->given ? "more than `discovery.dns_most`"
			     : "less than `discovery.dns_least`");
}
