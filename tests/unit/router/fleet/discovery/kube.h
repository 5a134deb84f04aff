/*
 * kube.h - pools, and objects of the API of Kubernetes, as texts.
 */
#ifndef TESTS_DISCOVERY_KUBE_H
#define TESTS_DISCOVERY_KUBE_H

#include "found.h"

#include "fleet/discovery/kube_object.h"

/* A configuration with these pools, as YAML in flow style. */
static inline struct kvw_config *config_with_pools(const char *pools)
{
	struct kvw_config *config;
	char *lines = NULL;

	ck_assert_int_ge(asprintf(&lines, "  kubernetes: {pools: %s}\n", pools), 0);
	config = config_with(lines);
	free(lines);
	return config;
}

/* A pod of the selector app=vllm, ready, in a buffer that the next call overwrites. */
static inline const char *pod(const char *name, const char *uid, int version, const char *ip)
{
	static char text[1024];

	snprintf(text, sizeof(text),
		"{\"metadata\":{\"name\":\"%s\",\"uid\":\"%s\",\"resourceVersion\":\"%d\","
		"\"labels\":{\"app\":\"vllm\"}},"
		"\"spec\":{\"containers\":[{\"ports\":[{\"name\":\"http\",\"containerPort\":8000}]}]},"
		"\"status\":{\"phase\":\"Running\",\"podIP\":\"%s\","
		"\"conditions\":[{\"type\":\"Ready\",\"status\":\"True\"}]}}",
		name, uid, version, ip);
	return text;
}

static inline void read_event_text(
	const struct kvw_pool_config *pool, const char *type, const char *object, struct kvw_kube_event *out)
{
	char *text = NULL;

	ck_assert_int_ge(asprintf(&text, "{\"type\":\"%s\",\"object\":%s}", type, object), 0);
	ck_assert_int_eq(kvw_kube_event_read(pool, text, strlen(text), out), KVW_OK);
	free(text);
}

#endif
