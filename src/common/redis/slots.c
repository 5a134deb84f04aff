/*
 * slots.c - computes slots of keys, and reads the map of a cluster and redirections.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "redis/slots.h"

/* --- slots of keys ---------------------------------------------------------------------------- */

/* CRC16 of the XMODEM family (polynomial 0x1021, nothing reflected, from 0), four bits at a time:
 * a key has about 60 bytes, and 32 bytes of table stay in the cache where 512 would not. */
static uint16_t crc16(const unsigned char *bytes, size_t len)
{
	static const uint16_t of_nibble[16] = {0x0000, 0x1021, 0x2042, 0x3063, 0x4084, 0x50a5,
		0x60c6, 0x70e7, 0x8108, 0x9129, 0xa14a, 0xb16b, 0xc18c, 0xd1ad, 0xe1ce, 0xf1ef};
	uint16_t crc = 0;

	for (size_t i = 0; i < len; i++) {
		crc = (uint16_t)(crc << 4) ^ of_nibble[(crc >> 12) ^ (bytes[i] >> 4)];
		crc = (uint16_t)(crc << 4) ^ of_nibble[(crc >> 12) ^ (bytes[i] & 15)];
	}
	return crc;
}

uint32_t kvw_redis_slot(const void *key, size_t len)
{
	const unsigned char *bytes = key;
	const unsigned char *open = len > 0 ? memchr(bytes, '{', len) : NULL;

	if (open != NULL) {
		size_t rest = len - (size_t)(open + 1 - bytes);
		const unsigned char *close = memchr(open + 1, '}', rest);

		if (close != NULL && close > open + 1)
			return crc16(open + 1, (size_t)(close - open - 1)) % KVW_REDIS_SLOTS;
	}
	return crc16(bytes, len) % KVW_REDIS_SLOTS;
}

/* --- servers ---------------------------------------------------------------------------------- */

bool kvw_redis_same_node(const struct kvw_redis_node *a, const struct kvw_redis_node *b)
{
	return a->port == b->port && strcmp(a->host, b->host) == 0;
}

/* Reads a host's name or address; an unknown one stands for the host that was asked. */
static bool read_host(const char *text, size_t len, const struct kvw_redis_node *asked,
	struct kvw_redis_node *out)
{
	if (len == 0 || (len == 1 && text[0] == '?')) {
		memcpy(out->host, asked->host, sizeof(out->host));
		return true;
	}
	if (len >= sizeof(out->host))
		return false;
	for (size_t i = 0; i < len; i++) {
		char c = text[i];

		if (!((c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') ||
			    c == '.' || c == '-' || c == '_' || c == ':' || c == '%'))
			return false;
	}
	memcpy(out->host, text, len);
	out->host[len] = '\0';
	return true;
}

/* --- the map ---------------------------------------------------------------------------------- */

/* Reads the reply, a flattened list: FIRST LAST (depth 2), then for the master and each replica
 * HOST PORT ID (depth 3; no ID before 4.0) and, since 7.0, a list of names and values (depth 4). */
struct reader {
	const struct kvw_redis_element *elements;
	size_t count, at;
	const struct kvw_redis_node *asked;
};

/* Reads one server's entry. present is false at the end of the range. A server with port 0 has no
 * endpoint of the requested kind. */
static bool next_node(struct reader *r, struct kvw_redis_node *out, bool *present)
{
	const struct kvw_redis_element *host = &r->elements[r->at];
	const struct kvw_redis_element *port;
	bool unknown;
	uint32_t number;

	*present = r->at < r->count && host->depth == 3;
	if (!*present)
		return true;
	port = host + 1;
	if (r->count - r->at < 2 || port->depth != 3 || port->data == NULL ||
		!kvw_redis_number(port->data, port->len, UINT16_MAX, &number))
		return false;
	unknown = host->data != NULL && host->len == 1 && host->data[0] == '?';
	if (!read_host(host->data, host->data != NULL ? host->len : 0, r->asked, out))
		return false;
	out->port = (uint16_t)number;
	r->at += 2;
	if (r->at < r->count && r->elements[r->at].depth == 3)
		r->at++; /* ID */
	for (; r->at < r->count && r->elements[r->at].depth > 3; r->at++) {
		const struct kvw_redis_element *name = &r->elements[r->at];

		/* The cluster gives host names, and this node has none, so its address is used. */
		if (unknown && name->data != NULL && strcmp(name->data, "ip") == 0 &&
			r->at + 1 < r->count && name[1].data != NULL && name[1].depth > 3 &&
			!read_host(name[1].data, name[1].len, r->asked, out))
			return false;
	}
	return true;
}

static bool next_range(struct reader *r, uint32_t *first, uint32_t *last)
{
	const struct kvw_redis_element *e = &r->elements[r->at];

	if (r->count - r->at < 2 || e[0].depth != 2 || e[1].depth != 2 || e[0].data == NULL ||
		e[1].data == NULL)
		return false;
	r->at += 2;
	return kvw_redis_number(e[0].data, e[0].len, KVW_REDIS_SLOTS - 1, first) &&
	       kvw_redis_number(e[1].data, e[1].len, KVW_REDIS_SLOTS - 1, last) && *first <= *last;
}

/* Returns the server's index in the map, and adds a new server. KVW_REDIS_NO_OWNER: there is no
 * room. */
static uint16_t node_at(struct kvw_redis_slot_map *map, const struct kvw_redis_node *node)
{
	for (uint32_t i = 0; i < map->node_count; i++)
		if (kvw_redis_same_node(&map->nodes[i], node))
			return (uint16_t)i;
	if (map->node_count == KVW_REDIS_SERVERS)
		return KVW_REDIS_NO_OWNER;
	map->nodes[map->node_count] = *node;
	return (uint16_t)map->node_count++;
}

static enum kvw_err read_ranges(struct kvw_redis_slot_map *map, struct reader *r, bool masters)
{
	while (r->at < r->count) {
		struct kvw_redis_node node;
		uint32_t first, last;
		bool present, master = true;

		if (!next_range(r, &first, &last))
			return KVW_EPROTO;
		for (;; master = false) {
			uint16_t at;

			if (!next_node(r, &node, &present))
				return KVW_EPROTO;
			if (!present)
				break;
			if (master != masters || node.port == 0)
				continue;
			at = node_at(map, &node);
			if (masters && at == KVW_REDIS_NO_OWNER)
				return KVW_ELIMIT;
			for (uint32_t s = first; masters && s <= last; s++, map->covered++) {
				if (map->owner[s] != KVW_REDIS_NO_OWNER)
					return KVW_EPROTO; /* bounds the work, too */
				map->owner[s] = at;
			}
		}
	}
	return KVW_OK;
}

enum kvw_err kvw_redis_slot_map_read(struct kvw_redis_slot_map *map,
	const struct kvw_redis_element *elements, size_t count, const struct kvw_redis_node *asked)
{
	struct reader r = {elements, count, 0, asked};
	enum kvw_err status;

	map->node_count = map->master_count = map->covered = 0;
	for (uint32_t s = 0; s < KVW_REDIS_SLOTS; s++)
		map->owner[s] = KVW_REDIS_NO_OWNER;
	status = read_ranges(map, &r, true);
	if (status != KVW_OK)
		return status;
	map->master_count = map->node_count;
	r.at = 0;
	return read_ranges(map, &r, false);
}

/* --- redirections ----------------------------------------------------------------------------- */

/* Reads "3999 HOST:PORT". The port follows the last colon, since an IPv6 address has no brackets
 * here. Some servers append more words. */
static bool read_target(
	const char *text, const struct kvw_redis_node *asked, struct kvw_redis_redirect *out)
{
	size_t digits = strspn(text, "0123456789");
	const char *host = text + digits + 1;
	const char *end, *colon = NULL;
	size_t len;
	uint32_t port;

	if (text[digits] != ' ' || !kvw_redis_number(text, digits, KVW_REDIS_SLOTS - 1, &out->slot))
		return false;
	end = host + strcspn(host, " ");
	for (const char *p = host; p < end; p++)
		if (*p == ':')
			colon = p;
	if (colon == NULL ||
		!kvw_redis_number(colon + 1, (size_t)(end - colon - 1), UINT16_MAX, &port) ||
		port == 0)
		return false;
	len = (size_t)(colon - host);
	if (len >= 2 && host[0] == '[' && host[len - 1] == ']') {
		host++;
		len -= 2;
	}
	out->node.port = (uint16_t)port;
	return read_host(host, len, asked, &out->node);
}

static bool text_begins(const char *text, const char *word)
{
	size_t len = strlen(word);

	return strncmp(text, word, len) == 0 && (text[len] == ' ' || text[len] == '\0');
}

void kvw_redis_redirect_read(
	const char *text, const struct kvw_redis_node *asked, struct kvw_redis_redirect *out)
{
	static const struct {
		const char *word;
		enum kvw_redis_redirect_kind kind;
	} words[] = {
		{"MOVED", KVW_REDIS_REDIRECT_MOVED},
		{"ASK", KVW_REDIS_REDIRECT_ASK},
		{"TRYAGAIN", KVW_REDIS_REDIRECT_LATER},
		{"LOADING", KVW_REDIS_REDIRECT_LATER},
		{"READONLY", KVW_REDIS_REDIRECT_REPLICA},
		{"MASTERDOWN", KVW_REDIS_REDIRECT_REPLICA},
		{"CLUSTERDOWN", KVW_REDIS_REDIRECT_DOWN},
	};

	out->kind = KVW_REDIS_REDIRECT_NONE;
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		bool target = words[i].kind == KVW_REDIS_REDIRECT_MOVED ||
			      words[i].kind == KVW_REDIS_REDIRECT_ASK;
		size_t len;

		if (!text_begins(text, words[i].word))
			continue;
		len = strlen(words[i].word);
		if (target && (text[len] == '\0' || !read_target(text + len + 1, asked, out)))
			return;
		out->kind = words[i].kind;
		return;
	}
}
