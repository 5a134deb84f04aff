/*
 * check_l2.c - checks the shared tier's settings against each other and against files of this
 * machine. The check does not connect to the server, which the checking machine may not reach.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <openssl/crypto.h>

#include "options/check_l2.h"
#include "chunk/l2_url.h"

static bool is_set(const char *text)
{
	return text != NULL && text[0] != '\0';
}

/* Prints a warning. in: the text before the key, "" or "cache.". */
static size_t warn(const char *in, const char *key, const char *text)
{
	fprintf(stderr, "%s%s: %s\n", in, key, text);
	return 1;
}

static size_t check_file(const char *in, const char *key, const char *path)
{
	char text[320];

	if (!is_set(path) || access(path, R_OK) == 0)
		return 0;
	snprintf(text, sizeof(text), "%.200s cannot be read: %s", path, strerror(errno));
	return warn(in, key, text);
}

static size_t check_tls(
	const char *in, const struct kvt_config *config, const struct kvt_l2_url *url)
{
	bool wanted = is_set(config->l2_tls_ca) || is_set(config->l2_tls_certificate);
	size_t count = check_file(in, "l2.tls_ca", config->l2_tls_ca);

	count += check_file(in, "l2.tls_certificate", config->l2_tls_certificate);
	count += check_file(in, "l2.tls_key", config->l2_tls_key);
	if (is_set(config->l2_tls_certificate) != is_set(config->l2_tls_key))
		count += warn(in, "l2.tls_certificate", "expected together with l2.tls_key");
	if (wanted && !url->at.tls)
		count += warn(in, "l2.url", "without TLS, but l2.tls_* is set: expected rediss://");
	return count;
}

static size_t check_segment(const char *in, const char *key, const char *segment)
{
	char path[300], text[400];

	snprintf(path, sizeof(path), "/dev/shm/%.250s", segment);
	if (access(path, R_OK) == 0)
		return 0;
	snprintf(text, sizeof(text), "%s: %s; is the daemon running on this machine?", path,
		strerror(errno));
	return warn(in, key, text);
}

/* Checks the settings for the node's daemon; with `auto` there may be no daemon. */
static size_t check_node(const char *in, const struct kvt_config *config)
{
	size_t count = 0;

	if (strcmp(config->node_share, "never") == 0)
		return 0;
	if (strcmp(config->node_share, "always") == 0)
		count += check_segment(in, "node.segment", config->node_segment);
	if (is_set(config->protect_keys))
		count += warn(in, "node.share", "not used with protect.keys: kvtierd holds chunks in plain");
	if (strcmp(config->node_share, "always") == 0 && is_set(config->l2_url))
		count += warn(in, "l2.url", "not used with node.share: always; expected in kvtierd's own "
					    "configuration, as cache.l2.url");
	return count;
}

size_t kvt_check_l2(const struct kvt_config *config, const char *in)
{
	struct kvt_l2_url url;
	size_t count = check_node(in, config);

	if (!is_set(config->l2_url) || kvt_l2_url_parse(config->l2_url, &url) != NULL)
		return count;
	count += check_file(in, "l2.password_file", config->l2_password_file);
	count += check_tls(in, config, &url);
	if (url.kind == KVT_L2_TIER_kvtierd)
		count += check_segment(in, "l2.segment", config->l2_segment);
	OPENSSL_cleanse(&url, sizeof(url));
	return count;
}

void kvt_print_l2(const struct kvt_config *config)
{
	struct kvt_l2_url url;
	char text[400];

	if (!is_set(config->l2_url) || kvt_l2_url_parse(config->l2_url, &url) != NULL) {
		puts("# l2: none, l2.url is empty");
		return;
	}
	kvt_l2_url_print(&url, text, sizeof(text));
	printf("# l2: %s%s\n", text,
		is_set(url.at.username) || is_set(url.at.password) ? ", with a login" : "");
	OPENSSL_cleanse(&url, sizeof(url));
}
