/*
 * location.c - rewrites the URLs in a worker's answer.
 *
 * A worker builds an absolute Location from its Host field, which has the worker's address and not
 * the one that the client knows: for example when FastAPI redirects POST /v1/chat/completions/. The
 * client could not reach that address, or would bypass kvway's keys and limits. So kvway replaces a
 * worker's authority by the client's own Host, with the scheme that the client used, and removes
 * the path prefix of the worker's URL. URLs that name other servers, and paths without a host, pass
 * unchanged (less the prefix).
 *
 * Cost: none for answers of status 200; for others a pass over the fields, and over the fleet for a
 * field with such a URL.
 */
#include "proxy/location.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "proxy/request.h"

/* A URL reference, split into parts. */
struct reference {
	bool https;                 /* the URL's scheme; without one, the client's */
	struct kvw_slice authority; /* len 0: the reference is a path */
	struct kvw_slice path;      /* with query and fragment; begins with '/', or is empty */
};

static bool has_prefix(struct kvw_slice text, const char *prefix)
{
	size_t len = strlen(prefix);

	return text.len >= len && strncasecmp(text.data, prefix, len) == 0;
}

static struct kvw_slice without_first(struct kvw_slice text, size_t n)
{
	return (struct kvw_slice){text.data + n, text.len - n};
}

/* Splits a reference. False: the value is neither a URL of HTTP nor a path from the root. */
static bool take_apart(struct kvw_slice value, struct reference *out)
{
	struct kvw_slice rest;
	size_t end = 0;

	*out = (struct reference){.path = value};
	if (has_prefix(value, "http://"))
		rest = without_first(value, 7);
	else if (has_prefix(value, "https://"))
		rest = without_first(value, 8);
	else if (has_prefix(value, "//"))
		rest = without_first(value, 2);
	else
		return has_prefix(value, "/");
	out->https = has_prefix(value, "https:");
	while (end < rest.len && strchr("/?#", rest.data[end]) == NULL)
		end++;
	out->authority = (struct kvw_slice){rest.data, end};
	out->path = without_first(rest, end);
	for (size_t i = 0; i < end; i++)
		/* a user name before the @ does not belong to the server */
		if (rest.data[i] == '@')
			out->authority = (struct kvw_slice){rest.data + i + 1, end - i - 1};
	return out->authority.len > 0;
}

/* Splits host[:port], the host without brackets. False: the port is invalid. */
static bool split_authority(const struct reference *to, char host[256], uint16_t *port)
{
	struct kvw_slice all = to->authority;
	const char *colon = memrchr(all.data, ':', all.len),
		   *bracket = memrchr(all.data, ']', all.len);
	size_t len = all.len;
	char digits[8] = "";
	unsigned long number = to->https ? 443 : 80;
	char *end = digits;

	if (colon != NULL && (bracket == NULL || colon > bracket)) {
		len = (size_t)(colon - all.data);
		if (all.len - len - 1 >= sizeof(digits))
			return false;
		memcpy(digits, colon + 1, all.len - len - 1);
		if (digits[0] != '\0')
			number = strtoul(digits, &end, 10);
	}
	if (len >= 2 && all.data[0] == '[') {
		all.data++;
		len -= 2;
	}
	if (*end != '\0' || number > UINT16_MAX || len >= 256)
		return false;
	memcpy(host, all.data, len);
	host[len] = '\0';
	*port = (uint16_t)number;
	return true;
}

/* Returns whether the host is a worker's name, or one of its addresses. */
static bool is_host_of(struct kvw_worker *worker, const char *host)
{
	struct sockaddr_storage address;
	char text[INET6_ADDRSTRLEN];

	if (strcasecmp(worker->host, host) == 0)
		return true;
	for (size_t i = 0; i < KVW_ADDRESSES_MAX && kvw_worker_address(worker, i, &address); i++) {
		const void *bytes =
			address.ss_family == AF_INET6
				? (const void *)&(
					  (const struct sockaddr_in6 *)(const void *)&address)
					  ->sin6_addr
				: (const void *)&(
					  (const struct sockaddr_in *)(const void *)&address)
					  ->sin_addr;

		if (inet_ntop(address.ss_family, bytes, text, sizeof(text)) != NULL &&
			strcasecmp(text, host) == 0)
			return true;
	}
	return false;
}

/* Returns the worker with this authority, checking first the worker that answered. NULL: none has
 * it. */
static struct kvw_worker *worker_of_authority(
	const struct kvw_exchange *x, const struct reference *to)
{
	const struct kvw_fleet *fleet = x->loop->fleet;
	char host[256];
	uint16_t port;

	if (!split_authority(to, host, &port))
		return NULL;
	if (x->attempt.worker->port == port && is_host_of(x->attempt.worker, host))
		return x->attempt.worker;
	for (size_t i = 0; i < fleet->count; i++) {
		struct kvw_worker *worker = kvw_fleet_worker(fleet, i);

		if (worker != NULL && worker->port == port && is_host_of(worker, host))
			return worker;
	}
	return NULL;
}

static struct kvw_slice without_prefix(const struct kvw_worker *worker, struct kvw_slice path)
{
	size_t len = strlen(worker->path_prefix);

	if (len == 0 || path.len < len || memcmp(path.data, worker->path_prefix, len) != 0 ||
		(path.len > len && strchr("/?#", path.data[len]) == NULL))
		return path;
	return without_first(path, len);
}

/* Returns whether the client uses HTTPS: to kvway itself, or to a proxy in front whose fields say
 * so. */
static bool client_has_https(const struct kvw_exchange *x, const struct kvw_head *request)
{
	const struct kvw_field *proto = kvw_head_field(request, KVW_FIELD_X_FORWARDED_PROTO);

	return x->client->https || (proto != NULL && has_prefix(proto->value, "https"));
}

/* Writes the origin under which the client finds kvway. Without a Host only the path follows. */
static void write_own_origin(struct kvw_exchange *x, struct kvw_writer *w)
{
	const struct kvw_head *request = &x->loop->request_head;

	if (!kvw_request_own_head(x) || request->authority.len == 0)
		return;
	kvw_write(w, client_has_https(x, request) ? KVW_SLICE("https://") : KVW_SLICE("http://"));
	kvw_write(w, request->authority);
}

/* Removes a field and writes the client's version in its place. A version that does not fit is left
 * out: no address is better than a wrong one. */
static void replace_field(struct kvw_exchange *x, struct kvw_field *field, struct kvw_writer *w)
{
	struct kvw_worker *worker = x->attempt.worker;
	struct kvw_writer before = *w;
	struct reference to;
	struct kvw_slice path;

	if (!take_apart(field->value, &to))
		return;
	if (to.authority.len > 0)
		worker = worker_of_authority(x, &to);
	if (worker == NULL)
		return;
	path = without_prefix(worker, to.path);
	if (to.authority.len == 0 && path.len == to.path.len)
		return;
	field->hop_by_hop = true;
	kvw_write(w, field->name);
	kvw_write_literal(w, ": ");
	if (to.authority.len > 0)
		write_own_origin(x, w);
	if (path.len == 0 || path.data[0] != '/')
		kvw_write_literal(w, "/");
	kvw_write(w, path);
	kvw_write_literal(w, "\r\n");
	if (w->overflow)
		*w = before;
}

size_t kvw_location_fields(struct kvw_exchange *x, struct kvw_head *head, char *buf)
{
	struct kvw_writer w = KVW_WRITER(buf, KVW_LOCATION_ROOM);

	if (head->status == 200)
		return 0;
	for (size_t i = 0; i < head->field_count; i++) {
		struct kvw_field *field = &head->fields[i];

		if (!field->hop_by_hop &&
			(kvw_slice_equal_nocase(field->name, KVW_SLICE("location")) ||
				kvw_slice_equal_nocase(field->name, KVW_SLICE("content-location"))))
			replace_field(x, field, &w);
	}
	return w.len;
}
