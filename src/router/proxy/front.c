/*
 * front.c - reads which client a trusted proxy speaks for.
 *
 * kvway peeks at a header of the PROXY protocol in the kernel's buffer, and takes the header once
 * it is complete: a connection that waits for a header holds no buffer, and the usual readers read
 * the bytes that follow, TLS or HTTP.
 */
#include "proxy/front.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/log.h"
#include "proxy/client.h"
#include "proxy/shared.h"
#include "wire/proxy_protocol.h"

enum kvw_err kvw_front_init(struct kvw_front *front, const struct kvw_config *config)
{
	const struct kvw_strings *texts = &config->proxies_trusted;

	*front = (struct kvw_front){0};
	if (texts->count == 0)
		return KVW_OK;
	front->trusted = calloc(texts->count, sizeof(front->trusted[0]));
	if (front->trusted == NULL)
		return KVW_ENOMEM;
	for (size_t i = 0; i < texts->count; i++)
		/* checked when loaded */
		if (kvw_network_parse(texts->items[i], &front->trusted[front->count]))
			front->count++;
	return KVW_OK;
}

void kvw_front_finish(struct kvw_front *front)
{
	free(front->trusted);
	*front = (struct kvw_front){0};
}

void kvw_front_format(char *text, const struct sockaddr *address)
{
	const void *raw = address->sa_family == AF_INET6
		? (const void *)&((const struct sockaddr_in6 *)(const void *)address)->sin6_addr
		: (const void *)&((const struct sockaddr_in *)(const void *)address)->sin_addr;

	if (inet_ntop(address->sa_family, raw, text, KVW_CLIENT_ADDRESS) == NULL)
		(void)snprintf(text, KVW_CLIENT_ADDRESS, "unknown");
	if (strncmp(text, "::ffff:", 7) == 0 && strchr(text, '.') != NULL)
		memmove(text, text + 7, strlen(text + 7) + 1);
}

/* --- the PROXY protocol --- */

static enum kvw_fronted refuse_header(const struct kvw_client *client, const char *why)
{
	kvw_metrics_add(client->loop->metrics, KVW_COUNT_PROXY_PROTOCOL_REFUSED, 1);
	kvw_debug("proxy", "the PROXY protocol's header is refused peer=%s why=\"%s\"",
		client->address, why);
	return KVW_FRONTED_BAD;
}

static enum kvw_fronted take_header(
	struct kvw_client *client, const struct kvw_proxy_header *header)
{
	const struct kvw_front *front = &client->loop->shared->front;
	const struct sockaddr *named = (const struct sockaddr *)&header->client;

	if (recv(client->io.fd, client->loop->scratch, header->len, 0) != (ssize_t)header->len)
		return KVW_FRONTED_BAD;
	if (!header->known) /* the proxy speaks for itself, as in a health check of kvway */
		return KVW_FRONTED_OVER;
	kvw_front_format(client->address, named);
	client->trusted = kvw_networks_hold(front->trusted, front->count, named);
	return KVW_FRONTED_OVER;
}

enum kvw_fronted kvw_front_read(struct kvw_client *client)
{
	char *data = client->loop->scratch;
	struct kvw_proxy_header header;
	const char *why = NULL;
	ssize_t n = recv(client->io.fd, data, KVW_PROXY_HEADER_MOST, MSG_PEEK);

	if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
		client->io.readable = false;
		return KVW_FRONTED_MORE;
	}
	if (n <= 0)
		return KVW_FRONTED_BAD;
	switch (kvw_proxy_header_read(data, (size_t)n, &header, &why)) {
	case KVW_PROXY_WHOLE:
		return take_header(client, &header);
	case KVW_PROXY_NONE:
		return client->loop->shared->config->proxies_protocol == KVW_PROXY_PROTOCOL_ACCEPT
			       ? KVW_FRONTED_OVER
			       : refuse_header(client,
					 "there is none, and `proxies.protocol` is `require`");
	case KVW_PROXY_BAD:
		return refuse_header(client, why);
	case KVW_PROXY_MORE:
		break;
	}
	client->io.readable = false; /* the bytes that follow raise another edge */
	return client->io.peer_closed || client->io.broken ? KVW_FRONTED_BAD : KVW_FRONTED_MORE;
}

/* --- fields about clients --- */

/* Reads an address of X-Forwarded-For; it may have a port, and an IPv6 address may have brackets.
 * False: the text is not an address. */
static bool read_forwarded_address(struct kvw_slice text, struct sockaddr_storage *out)
{
	struct sockaddr_in *v4 = (struct sockaddr_in *)out;
	struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)out;
	const char *colon, *end;
	char copy[INET6_ADDRSTRLEN];

	if (text.len > 2 && text.data[0] == '[') {
		end = memchr(text.data, ']', text.len);
		if (end == NULL)
			return false;
		text = (struct kvw_slice){text.data + 1, (size_t)(end - text.data - 1)};
	} else {
		colon = text.len == 0 ? NULL : memchr(text.data, ':', text.len);
		if (colon != NULL && memchr(text.data, '.', (size_t)(colon - text.data)) != NULL)
			text.len = (size_t)(colon - text.data);
	}
	if (text.len == 0 || text.len >= sizeof(copy))
		return false;
	memcpy(copy, text.data, text.len);
	copy[text.len] = '\0';
	*out = (struct sockaddr_storage){.ss_family = AF_INET};
	if (inet_pton(AF_INET, copy, &v4->sin_addr) == 1)
		return true;
	*out = (struct sockaddr_storage){.ss_family = AF_INET6};
	return inet_pton(AF_INET6, copy, &v6->sin6_addr) == 1;
}

/* Takes the last element off a list and returns it without blanks. */
static struct kvw_slice pop_element(struct kvw_slice *list)
{
	size_t from = list->len, end = list->len;
	struct kvw_slice last;

	while (from > 0 && list->data[from - 1] != ',')
		from--;
	last = (struct kvw_slice){list->data + from, end - from};
	list->len = from > 0 ? from - 1 : 0;
	while (last.len > 0 && (*last.data == ' ' || *last.data == '\t')) {
		last.data++;
		last.len--;
	}
	while (last.len > 0 && (last.data[last.len - 1] == ' ' || last.data[last.len - 1] == '\t'))
		last.len--;
	return last;
}

void kvw_front_client(const struct kvw_front *front, const struct kvw_head *head, char *text)
{
	struct sockaddr_storage address;

	text[0] = '\0';
	for (size_t i = head->field_count; i-- > 0;) {
		struct kvw_slice list = head->fields[i].value;

		if (head->fields[i].id != KVW_FIELD_X_FORWARDED_FOR)
			continue;
		while (list.len > 0) {
			if (!read_forwarded_address(pop_element(&list), &address))
				/* the elements before this one were not written by a trusted
				 * proxy */
				return;
			kvw_front_format(text, (const struct sockaddr *)&address);
			if (!kvw_networks_hold(front->trusted, front->count,
				    (const struct sockaddr *)&address))
				return;
		}
	}
}

static bool is_field_in(struct kvw_slice name, const char *const *names, bool beginnings)
{
	for (size_t i = 0; names[i] != NULL; i++) {
		size_t len = strlen(names[i]);

		if ((beginnings ? name.len >= len : name.len == len) &&
			kvw_slice_equal_nocase((struct kvw_slice){name.data, len},
				(struct kvw_slice){names[i], len}))
			return true;
	}
	return false;
}

/* Returns whether the field is one in which proxies usually pass on the client's address or
 * certificate. */
static bool speaks_of_client(struct kvw_slice name)
{
	static const char *const whole[] = {"forwarded", "x-real-ip", "x-client-ip",
		"true-client-ip", "client-cert", "client-cert-chain", NULL};
	static const char *const beginnings[] = {"x-forwarded-", "x-client-cert", "x-ssl-client-",
		"ssl-client-", "x-amzn-mtls-", NULL};

	return is_field_in(name, whole, false) || is_field_in(name, beginnings, true);
}

void kvw_front_hide(struct kvw_head *head)
{
	for (size_t i = 0; i < head->field_count; i++)
		if (speaks_of_client(head->fields[i].name))
			head->fields[i].hop_by_hop = true;
	/* The fields count as absent, and kvway writes its own. */
	head->first[KVW_FIELD_FORWARDED] = head->first[KVW_FIELD_X_FORWARDED_FOR] = -1;
	head->first[KVW_FIELD_X_FORWARDED_PROTO] = head->first[KVW_FIELD_X_FORWARDED_HOST] = -1;
}
