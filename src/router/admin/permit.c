/*
 * permit.c - decides which requests the admin address serves.
 *
 * Paths are compared as the clients' address compares them (openai/api_path.h), so that a path that
 * can be read in two ways matches no pattern.
 *
 * A request with a verified client certificate counts like one of this host: a certificate stands
 * for a host, a key for a user.
 *
 * A request is this host's if it comes from a loopback address, or from the very address that it
 * was sent to: the kernel lets no packet in from outside that claims to be from here.
 */
#include "admin/permit.h"

#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "admin/http.h"
#include "admin/origin.h"
#include "auth/credential.h"
#include "base/log.h"
#include "openai/api_path.h"
#include "tls/tls.h"
#include "http/target.h"

/* --- addresses --- */

static bool is_loopback(const struct sockaddr_storage *address)
{
	const struct in6_addr *v6 = &((const struct sockaddr_in6 *)address)->sin6_addr;

	if (address->ss_family == AF_INET)
		return ntohl(((const struct sockaddr_in *)address)->sin_addr.s_addr) >> 24 ==
		       IN_LOOPBACKNET;
	if (address->ss_family != AF_INET6)
		return false;
	return IN6_IS_ADDR_LOOPBACK(v6) ||
	       (IN6_IS_ADDR_V4MAPPED(v6) && v6->s6_addr[12] == IN_LOOPBACKNET);
}

static bool same_host(const struct sockaddr_storage *a, const struct sockaddr_storage *b)
{
	if (a->ss_family != b->ss_family)
		return false;
	if (a->ss_family == AF_INET)
		return ((const struct sockaddr_in *)a)->sin_addr.s_addr ==
		       ((const struct sockaddr_in *)b)->sin_addr.s_addr;
	return a->ss_family == AF_INET6 &&
	       memcmp(&((const struct sockaddr_in6 *)a)->sin6_addr,
		       &((const struct sockaddr_in6 *)b)->sin6_addr, sizeof(struct in6_addr)) == 0;
}

bool kvw_admin_bound_to_host(int listen_fd)
{
	struct sockaddr_storage bound;
	socklen_t len = sizeof(bound);

	return getsockname(listen_fd, (struct sockaddr *)&bound, &len) == 0 && is_loopback(&bound);
}

static bool from_this_host(int fd)
{
	struct sockaddr_storage peer, own;
	socklen_t peer_len = sizeof(peer), own_len = sizeof(own);

	return getpeername(fd, (struct sockaddr *)&peer, &peer_len) == 0 &&
	       getsockname(fd, (struct sockaddr *)&own, &own_len) == 0 &&
	       (is_loopback(&peer) || same_host(&peer, &own));
}

/* --- paths --- */

/* A worker's ID may be its whole URL, whose slashes are encoded (worker_id.h). Only this server
 * reads these paths, and the ID is one segment: it is replaced by '*' for the comparison, which
 * patterns only have at their end. */
static bool worker_listed(struct kvw_slice target, const char *const *patterns, size_t count)
{
	const struct kvw_slice before = KVW_SLICE("/workers/");
	char text[64];
	size_t id = before.len, end;
	bool coded = false; /* a slash is */

	if (target.len <= id || memcmp(target.data, before.data, id) != 0)
		return false;
	for (; id < target.len && target.data[id] != '/' && target.data[id] != '?'; id++)
		coded |= target.len - id >= 3 &&
			 kvw_slice_equal_nocase(
				 (struct kvw_slice){target.data + id, 3}, KVW_SLICE("%2f"));
	end = target.len - id;
	if (!coded || before.len + 1 + end > sizeof(text))
		return false;
	memcpy(text, before.data, before.len);
	text[before.len] = '*';
	memcpy(text + before.len + 1, target.data + id, end);
	return kvw_path_listed((struct kvw_slice){text, before.len + 1 + end}, patterns, count);
}

static bool listed(struct kvw_slice target, const char *const *patterns, size_t count)
{
	return kvw_path_listed(target, patterns, count) || worker_listed(target, patterns, count);
}

/* --- what is open --- */

/* Returns whether the path is open to all. With keys that includes `/ui`, a page without any
 * figure: a browser that opens it cannot show a key, so that the page asks its user for one. */
static bool is_probe(struct kvw_slice target, bool keys)
{
	static const char *const probes[] = {"/health", "/ready", "/ui"};

	return kvw_path_listed(target, probes, keys ? 3 : 2);
}

static bool is_open(const struct kvw_config *config, struct kvw_slice target)
{
	const struct kvw_strings *open = &config->admin_open;

	return listed(target, (const char *const *)open->items, open->count);
}

/* Patterns for all paths, and those with dots, cannot occur (config/path_pattern.h,
 * config/rules_admin.c). */
static bool is_or_is_below(const char *pattern, const char *path)
{
	size_t len = strlen(path);

	return strncmp(pattern, path, len) == 0 && (pattern[len] == '\0' || pattern[len] == '/');
}

void kvw_admin_permit_follow(struct kvw_admin_permit *permit, const struct kvw_config *config)
{
	static const char *const paths[] = {
		"/workers", "/reload", "/groups", "/broadcast", "/explain", "/trace", "/status"};
	const struct kvw_strings *open = &config->admin_open;

	if (permit->followed == config || (permit->auth == NULL && !permit->off_host))
		return; /* warned of before, or open to this host anyway */
	permit->followed = config;
	for (size_t i = 0; i < open->count; i++)
		for (size_t k = 0; k < sizeof(paths) / sizeof(paths[0]); k++)
			if (is_or_is_below(open->items[i], paths[k]))
				kvw_warn("admin",
					"`admin.open` opens this path to all that reach the "
					"address path=%s address=%s",
					open->items[i], config->admin_listen);
}

/* --- keys --- */

/* Returns what is wrong with a request's key, for the client. NULL: nothing, and *name is the key's
 * name, borrowed from the keyring. */
static const char *fault_of(struct kvw_admin_permit *permit, enum kvw_credential shown,
	const struct kvw_digest *digest, struct kvw_slice target, int *status, const char **name)
{
	const struct kvw_client_key *key;

	*status = 401;
	if (shown == KVW_CREDENTIAL_MISSING || shown == KVW_CREDENTIAL_SCHEME)
		return "this address needs a key: send it as `Authorization: Bearer KEY` or "
		       "`x-api-key: KEY`";
	if (shown != KVW_CREDENTIAL_FOUND) {
		*status = 400;
		return shown == KVW_CREDENTIAL_TWICE
			       ? "more than one key: send one, in one header field"
			       : "a key in the URL, where it gets into logs: replace that key, and "
				 "send it as `Authorization: Bearer KEY`";
	}
	if (permit->ring == NULL || kvw_auth_version(permit->auth) != permit->version) {
		kvw_keyring_unref(permit->ring);
		permit->ring = kvw_auth_take(permit->auth, &permit->version);
	}
	key = kvw_keyring_find(permit->ring, digest);
	if (key == NULL)
		return "this key is not known";
	if (!kvw_client_key_lives(key, kvw_clock_wall_ns() / KVW_NS_PER_S))
		return "this key has expired";
	*status = 403;
	if (key->paths.count > 0 &&
		!listed(target, (const char *const *)key->paths.items, key->paths.count))
		return "this key may not use this path";
	*name = key->name;
	return NULL;
}

/* Limits the lines about refusals, so that a client that tries keys cannot fill the log. */
static void log_refusal(struct kvw_admin_permit *permit, const char *why)
{
	int64_t now_ns = kvw_clock_ns();

	if (permit->logged_ns != 0 && now_ns - permit->logged_ns < 10 * KVW_NS_PER_S)
		return;
	permit->logged_ns = now_ns;
	kvw_warn("admin", "a request was refused (at most one such line in 10 s) why=\"%s\"", why);
}

/* Logs requests that change workers or their caches, with the name of the key and the subject of
 * the certificate. key NULL: there is none. */
static void log_change(const struct kvw_conn *conn, const char *key)
{
	static const char *const paths[] = {
		"/workers", "/workers/*", "/reload", "/groups", "/broadcast/*"};
	const struct kvw_head *head = &conn->clients->head;
	char *subject;

	if (head->get_method || head->head_method ||
		!listed(head->target, paths, sizeof(paths) / sizeof(paths[0])))
		return;
	subject = kvw_tls_peer_subject(&conn->io);
	if (key != NULL || subject != NULL)
		kvw_info("admin",
			"a change is asked for method=%.*s path=\"%.*s\" key=\"%s\" "
			"certificate=\"%s\"",
			(int)head->method.len, head->method.data,
			(int)kvw_target_path(head->target).len, head->target.data,
			key != NULL ? key : "", subject != NULL ? subject : "");
	free(subject);
}

bool kvw_admin_permit(
	struct kvw_admin_permit *permit, const struct kvw_config *config, struct kvw_conn *conn)
{
	const struct kvw_head *head = &conn->clients->head;
	enum kvw_credential shown = KVW_CREDENTIAL_MISSING;
	struct kvw_digest digest;
	const char *fault = NULL, *name = NULL;
	bool open = is_open(config, head->target), https = config->admin_tls_certificate[0] != '\0';
	int status = 403;

	if (permit->auth != NULL) {
		kvw_head_remember_none(&conn->clients->head);
		shown = kvw_credential_take(head, &digest);
	}
	if (is_probe(head->target, permit->auth != NULL))
		return true;
	if (permit->auth != NULL && !open)
		fault = fault_of(permit, shown, &digest, head->target, &status, &name);
	else if (permit->off_host && !open)
		fault = from_this_host(conn->io.fd) || kvw_tls_peer_verified(&conn->io)
				? NULL
				: "other hosts may use /health, /ready and what `admin.open` "
				  "lists; ask from this host, or set `admin.keys_file` or "
				  "`admin.tls.client_ca`";
	/* With a valid key the origin is not checked, since no web page knows a key. */
	if (fault == NULL && shown != KVW_CREDENTIAL_FOUND)
		fault = kvw_admin_origin_fault(
			head, config->admin_listen, !open && !https, &status);
	if (fault == NULL) {
		if (!open)
			log_change(conn, name);
		return true;
	}
	log_refusal(permit, fault);
	kvw_admin_http_error(
		conn, status, status == 401 ? "WWW-Authenticate: Bearer\r\n" : "", fault);
	return false;
}

void kvw_admin_permit_finish(struct kvw_admin_permit *permit)
{
	kvw_keyring_unref(permit->ring);
	permit->ring = NULL;
}
