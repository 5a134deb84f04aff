/*
 * webhook.c - one POST of a small JSON body; only the status of its answer counts.
 */
#include "fleet/wake/webhook.h"

#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#include "fleet/discovery/kube_call.h"

#define RETRY_MOST_S 3600

struct kvw_webhook {
	struct kvw_curl_loop *loop;
	kvw_wake_ended_fn *ended;
	void *arg;
	CURL *easy; /* NULL: ended */
	struct curl_slist *headers;
	char error[CURL_ERROR_SIZE];
};

static size_t ignore(char *data, size_t one, size_t len, void *arg)
{
	(void)data;
	(void)arg;
	return one * len;
}

static bool add_header(struct kvw_webhook *hook, const char *line)
{
	struct curl_slist *list = curl_slist_append(hook->headers, line);

	if (list != NULL)
		hook->headers = list;
	return list != NULL;
}

static enum kvw_err add_token(
	struct kvw_webhook *hook, const char *path, char *why, size_t room)
{
	char *token, *line;
	enum kvw_err err;

	if (path[0] == '\0')
		return KVW_OK;
	err = kvw_kube_read_word(path, &token, why, room);
	if (err != KVW_OK)
		return err;
	if (asprintf(&line, "Authorization: Bearer %s", token) < 0)
		line = NULL;
	err = line != NULL && add_header(hook, line) ? KVW_OK : KVW_ENOMEM;
	free(line);
	free(token);
	return err;
}

static enum kvw_err set_authorities(
	struct kvw_webhook *hook, const struct kvw_config *config, char *why, size_t room)
{
	const char *path = config->discovery_wake_ca_file;

	if (path[0] == '\0' || strncasecmp(config->discovery_wake_webhook, "https:", 6) != 0)
		return KVW_OK;
	return kvw_kube_trust(hook->easy, path, why, room);
}

static bool set_options(struct kvw_webhook *hook, const struct kvw_config *config, const char *body)
{
	long timeout_ms = (long)config->discovery_wake_timeout_ms;
	CURL *easy = hook->easy;

	return curl_easy_setopt(easy, CURLOPT_URL, config->discovery_wake_webhook) == CURLE_OK &&
	       curl_easy_setopt(easy, CURLOPT_PRIVATE, hook) == CURLE_OK &&
	       curl_easy_setopt(easy, CURLOPT_HTTPHEADER, hook->headers) == CURLE_OK &&
	       curl_easy_setopt(easy, CURLOPT_COPYPOSTFIELDS, body) == CURLE_OK &&
	       curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https") == CURLE_OK &&
	       curl_easy_setopt(easy, CURLOPT_PROXY, "") == CURLE_OK &&
	       curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L) == CURLE_OK &&
	       kvw_curl_leave_dns_behind(easy) &&
	       curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 0L) == CURLE_OK &&
	       curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1) ==
		       CURLE_OK &&
	       curl_easy_setopt(easy, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2) ==
		       CURLE_OK &&
	       curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, timeout_ms) == CURLE_OK &&
	       curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, ignore) == CURLE_OK &&
	       curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, hook->error) == CURLE_OK;
}

void kvw_webhook_done(void *user, CURLcode code)
{
	struct kvw_webhook *hook = user;
	curl_off_t seconds = 0;
	char why[CURL_ERROR_SIZE];
	long status = 0;

	curl_easy_getinfo(hook->easy, CURLINFO_RESPONSE_CODE, &status);
	curl_easy_getinfo(hook->easy, CURLINFO_RETRY_AFTER, &seconds);
	curl_easy_cleanup(hook->easy);
	hook->easy = NULL;
	if (code == CURLE_OK && status >= 200 && status <= 299) {
		hook->ended(hook->arg, NULL, 0);
		return;
	}
	if (code == CURLE_OK)
		snprintf(why, sizeof(why), "status %ld", status);
	else
		snprintf(why, sizeof(why), "%s",
			hook->error[0] != '\0' ? hook->error : curl_easy_strerror(code));
	if (seconds < 0 || seconds > RETRY_MOST_S)
		seconds = seconds < 0 ? 0 : RETRY_MOST_S;
	hook->ended(hook->arg, why, (int64_t)seconds * 1000);
}

enum kvw_err kvw_webhook_start(struct kvw_curl_loop *loop, const struct kvw_config *config,
	const char *body, kvw_wake_ended_fn *ended, void *arg, char *why, size_t room,
	struct kvw_webhook **out)
{
	struct kvw_webhook *hook = calloc(1, sizeof(*hook));
	enum kvw_err err = KVW_ENOMEM;

	snprintf(why, room, "out of memory");
	if (hook == NULL)
		return KVW_ENOMEM;
	hook->loop = loop;
	hook->ended = ended;
	hook->arg = arg;
	hook->easy = curl_easy_init();
	if (hook->easy != NULL && add_header(hook, "Content-Type: application/json") &&
		add_header(hook, "User-Agent: kvway/" KVW_VERSION))
		err = add_token(hook, config->discovery_wake_token_file, why, room);
	if (err == KVW_OK)
		err = set_authorities(hook, config, why, room);
	if (err == KVW_OK && !set_options(hook, config, body))
		err = KVW_ENOMEM;
	if (err == KVW_OK)
		err = kvw_curl_loop_start(loop, hook->easy);
	if (err == KVW_OK) {
		*out = hook;
		return KVW_OK;
	}
	if (hook->easy != NULL)
		curl_easy_cleanup(hook->easy);
	curl_slist_free_all(hook->headers);
	free(hook);
	return err;
}

void kvw_webhook_destroy(struct kvw_webhook *hook)
{
	if (hook == NULL)
		return;
	if (hook->easy != NULL) {
		kvw_curl_loop_abort(hook->loop, hook->easy);
		curl_easy_cleanup(hook->easy);
	}
	curl_slist_free_all(hook->headers);
	free(hook);
}
