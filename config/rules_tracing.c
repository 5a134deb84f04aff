/*
 * rules_tracing.c - rules for the export of spans.
 */
#include <string.h>

#include "config/rules.h"

/* Returns what follows "http://" or "https://"; NULL: the URL begins with neither. */
static const char *after_scheme(const char *url)
{
	static const char *const schemes[] = {"http://", "https://"};

	for (size_t i = 0; i < 2; i++)
		if (strncmp(url, schemes[i], strlen(schemes[i])) == 0)
			return url + strlen(schemes[i]);
	return NULL;
}

bool kvw_config_is_collector(const char *url)
{
	const char *host = after_scheme(url);

	return host != NULL && host[0] != '\0' && strchr("/?#:", host[0]) == NULL &&
	       strpbrk(host, " @\"\\#") == NULL;
}

void kvw_rules_check_tracing(struct kvw_build *build)
{
	const struct kvw_config *config = build->config;
	const struct kvw_met *endpoint = &build->met[KVW_KEY_tracing_endpoint];
	const struct kvw_met *requests = &build->met[KVW_KEY_trace_requests];

	if (!endpoint->valid || config->tracing_endpoint[0] == '\0')
		return;
	if (!kvw_config_is_collector(config->tracing_endpoint))
		kvw_report_mistake(build->walk.report, endpoint->place,
			kvw_keys[KVW_KEY_tracing_endpoint].path,
			"found a value that is not printed here, expected a URL such as "
			"`http://otel-collector:4318`, without user and password");
	if (requests->valid && config->trace_requests == 0)
		kvw_report_mistake(build->walk.report, requests->place,
			kvw_keys[KVW_KEY_trace_requests].path,
			"found 0 together with `tracing.endpoint`, expected 1 or more: spans are "
			"made from the requests that are remembered");
}
