/*
 * plan_lmcache.c - decides by LMCache's version in which mode it runs.
 *
 * An old LMCache runs in vLLM's processes, reads a file of settings, and reports to a controller.
 * In a new one that mode is deprecated: it is a server in a process of its own, gets arguments, and
 * reports to a coordinator. A manifest says the version in the image's name, if at all. A name such
 * as `vllm-lmcache:0.32.0` does not: that may be vLLM's version.
 */
#include "render/plan_lmcache.h"

#include <ctype.h>
#include <string.h>

#define NAME   "lmcache"
#define REDIS  "^redis://[A-Za-z0-9.-]+(:[0-9]{1,5})?/?$"
#define TIERED "^sagemaker-hyperpod://[A-Za-z0-9.-]+(:[0-9]{1,5})?/?$"

/* Returns the version at the begin of a text as a number that grows with it; 0: there is none. */
static long read_version(const char *text)
{
	unsigned major, minor, patch = 0;

	text += *text == 'v';
	if (!isdigit((unsigned char)*text) ||
		sscanf(text, "%3u.%3u.%3u", &major, &minor, &patch) < 2)
		return 0;
	return (long)major * 1000000 + minor * 1000 + patch;
}

/* Returns whether the image is in a folder of LMCache's name, as its own images are. */
static bool is_own(const char *name, const char *base)
{
	size_t len = base == NULL ? 0 : (size_t)(base - name);

	return len >= strlen(NAME) && strncmp(base - strlen(NAME), NAME, strlen(NAME)) == 0 &&
	       (len == strlen(NAME) || base[-(int)strlen(NAME) - 1] == '/');
}

static long version_of_image(const char *image)
{
	char name[640];
	char *base, *tag, *at;

	snprintf(name, sizeof(name), "%.*s", (int)strcspn(image, "@"), image);
	base = strrchr(name, '/');
	tag = strchr(base != NULL ? base : name, ':');
	if (tag == NULL)
		return 0;
	at = strstr(++tag, NAME);
	if (at != NULL)
		return read_version(at + strlen(NAME) + strspn(at + strlen(NAME), "-_."));
	return is_own(name, base) ? read_version(tag) : 0;
}

/* Checks that the URL can be one of the server's arguments, which are no secret. */
static void check_l2(const struct kvw_manifest *manifest, struct kvw_report *mistakes,
	const struct kvw_plan *plan)
{
	if (!plan->l2 || manifest->nodes[KVW_F_l2Url] == NULL || plan->own_redis ||
		plan->own_kvtierd || kvw_manifest_fits(plan->l2_url, REDIS) ||
		kvw_manifest_fits(plan->l2_url, TIERED))
		return;
	kvw_report_mistake(mistakes, manifest->nodes[KVW_F_l2Url]->place,
		kvw_fields[KVW_F_l2Url].path,
		"found more than a host and a port, expected redis://HOST:PORT or "
		"sagemaker-hyperpod://HOST:PORT with LMCache from " KVW_LMCACHE_SERVER " on, whose "
		"server gets it as an argument; an older `--lmcache` reads it from a file");
}

void kvw_plan_lmcache(
	const struct kvw_manifest *manifest, struct kvw_report *mistakes, struct kvw_plan *plan)
{
	const char *said = plan->options->lmcache;
	long version = said != NULL ? read_version(said) : version_of_image(plan->image);

	plan->settings = plan->l1 || plan->l2;
	if (!plan->settings || plan->options->kvtier)
		return;
	plan->version_unknown = version == 0;
	/* The server starts with the engine, by the connector that kvway gives to it. */
	plan->server = version >= read_version(KVW_LMCACHE_SERVER) &&
		       plan->engine_flags != KVW_BY_NONE &&
		       !kvw_plan_flag(plan, "kv-transfer-config", NULL) &&
		       kvw_plan_env(plan, "OPTION_KV_TRANSFER_CONFIG") == NULL;
	plan->settings = !plan->server;
	if (plan->server)
		check_l2(manifest, mistakes, plan);
}
