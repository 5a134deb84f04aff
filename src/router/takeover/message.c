/*
 * message.c - parses and writes the messages of a takeover.
 *
 * The peer is a process of the same user, but perhaps another version of kvway or another program:
 * every byte is checked, and nothing is kept beyond the packet.
 */
#include "takeover/message.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define PROTOCOL "kvway-takeover "
#define VERSION  "1"

static const char *const kind_names[KVW_TAKEOVER_KINDS] = {
	[KVW_TAKEOVER_HELLO] = "hello",
	[KVW_TAKEOVER_WELCOME] = "welcome",
	[KVW_TAKEOVER_SOCKET] = "socket",
	[KVW_TAKEOVER_END] = "end",
	[KVW_TAKEOVER_SNAPSHOT] = "snapshot",
	[KVW_TAKEOVER_TICKETS] = "tickets",
	[KVW_TAKEOVER_READY] = "ready",
	[KVW_TAKEOVER_CACHES] = "caches",
	[KVW_TAKEOVER_GOODBYE] = "goodbye",
	[KVW_TAKEOVER_REFUSED] = "refused",
};

/* Fields of a message. */
enum field {
	FIELD_USE,
	FIELD_COUNT,
	FIELD_PID,
	FIELD_VERSION,
	FIELD_ADDRESS,
	FIELD_WHY,
	FIELD_SNAPSHOT,
	FIELD_TICKETS,
	FIELD_CACHES,
	FIELD_KEYS,
	FIELDS
};

static const char *const field_names[FIELDS] = {
	[FIELD_USE] = "use",
	[FIELD_COUNT] = "count",
	[FIELD_PID] = "pid",
	[FIELD_VERSION] = "version",
	[FIELD_ADDRESS] = "address",
	[FIELD_WHY] = "why",
	[FIELD_SNAPSHOT] = "snapshot",
	[FIELD_TICKETS] = "tickets",
	[FIELD_CACHES] = "caches",
	[FIELD_KEYS] = "keys",
};

const char *kvw_takeover_kind_name(enum kvw_takeover_kind kind)
{
	return kind_names[kind];
}

/* A line of the text, without its end. */
struct line {
	const char *data;
	size_t len;
};

/* Reads the next line, and moves *at behind it. False: there is none, or it has no end or an
 * unprintable byte. */
static bool next_line(const char **at, const char *end, struct line *out)
{
	const char *stop = *at == end ? NULL : memchr(*at, '\n', (size_t)(end - *at));

	if (stop == NULL)
		return false;
	for (const char *c = *at; c < stop; c++)
		if (*c < ' ' || *c > '~')
			return false;
	*out = (struct line){*at, (size_t)(stop - *at)};
	*at = stop + 1;
	return true;
}

static bool copy(const char *data, size_t len, char *to, size_t room)
{
	if (len >= room)
		return false;
	memcpy(to, data, len);
	to[len] = '\0';
	return true;
}

static bool number(const char *data, size_t len, uint32_t *out)
{
	uint64_t value = 0;

	if (len == 0 || len > 10)
		return false;
	for (size_t i = 0; i < len; i++) {
		if (data[i] < '0' || data[i] > '9')
			return false;
		value = value * 10 + (uint64_t)(data[i] - '0');
	}
	*out = (uint32_t)value;
	return value <= INT32_MAX;
}

static int hex_value(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Reads keys as two lower-case hex digits for each byte. */
static bool take_keys(struct kvw_takeover_message *message, const char *data, size_t len)
{
	if (len % 2 != 0 || len / 2 > sizeof(message->keys))
		return false;
	for (size_t i = 0; i < len; i += 2) {
		int high = hex_value(data[i]), low = hex_value(data[i + 1]);

		if (high < 0 || low < 0)
			return false;
		message->keys[i / 2] = (unsigned char)(high << 4 | low);
	}
	message->keys_len = len / 2;
	return true;
}

static bool take_value(
	struct kvw_takeover_message *message, enum field field, const char *data, size_t len)
{
	char word[16];
	uint32_t pid;

	switch (field) {
	case FIELD_USE:
		message->use = copy(data, len, word, sizeof(word)) ? kvw_socket_use_of(word)
								   : KVW_SOCKET_USES;
		return true;
	case FIELD_COUNT:
		return number(data, len, &message->count);
	case FIELD_PID:
		if (!number(data, len, &pid))
			return false;
		message->pid = pid;
		return true;
	case FIELD_VERSION:
		return copy(data, len, message->version, sizeof(message->version));
	case FIELD_ADDRESS:
		return copy(data, len, message->address, sizeof(message->address));
	case FIELD_WHY:
		return copy(data, len, message->why, sizeof(message->why));
	case FIELD_SNAPSHOT:
		return number(data, len, &message->snapshot);
	case FIELD_TICKETS:
		return number(data, len, &message->tickets);
	case FIELD_CACHES:
		return number(data, len, &message->caches);
	case FIELD_KEYS:
		return take_keys(message, data, len);
	case FIELDS:
		break;
	}
	return true; /* a name of a later version, which is ignored */
}

/* Reads one line after the first. seen: bits of the fields that were read before. */
static bool take_field(struct kvw_takeover_message *message, struct line line, unsigned *seen)
{
	const char *space = memchr(line.data, ' ', line.len);
	size_t name_len = space == NULL ? 0 : (size_t)(space - line.data);
	int field = 0;

	if (name_len == 0 || name_len + 1 == line.len)
		return false; /* the line has no name, or no value */
	while (field < FIELDS && !(strlen(field_names[field]) == name_len &&
					 memcmp(field_names[field], line.data, name_len) == 0))
		field++;
	if (field < FIELDS && (*seen & 1U << field) != 0)
		return false;
	*seen |= 1U << field;
	return take_value(message, (enum field)field, space + 1, line.len - name_len - 1);
}

/* "kvway-takeover 1 hello" */
static enum kvw_err take_first(struct line line, enum kvw_takeover_kind *kind)
{
	const char *version = line.data + strlen(PROTOCOL), *end = line.data + line.len, *space;

	if (line.len <= strlen(PROTOCOL) || memcmp(line.data, PROTOCOL, strlen(PROTOCOL)) != 0)
		return KVW_EPROTO;
	space = memchr(version, ' ', (size_t)(end - version));
	if (space == NULL)
		return KVW_EPROTO;
	if ((size_t)(space - version) != strlen(VERSION) ||
		memcmp(version, VERSION, strlen(VERSION)) != 0)
		return KVW_EINVAL;
	for (int i = 0; i < KVW_TAKEOVER_KINDS; i++) {
		if (strlen(kind_names[i]) == (size_t)(end - space - 1) &&
			memcmp(kind_names[i], space + 1, strlen(kind_names[i])) == 0) {
			*kind = (enum kvw_takeover_kind)i;
			return KVW_OK;
		}
	}
	return KVW_EPROTO;
}

/* Returns whether a message has all fields that its kind needs. */
static bool is_whole(const struct kvw_takeover_message *message, unsigned seen)
{
	unsigned needs = message->kind == KVW_TAKEOVER_END ? 1U << FIELD_COUNT : 0;

	if (message->keys_len > 0)
		needs = 1U << FIELD_USE | 1U << FIELD_COUNT;
	if (message->kind == KVW_TAKEOVER_SOCKET)
		needs = 1U << FIELD_USE | 1U << FIELD_COUNT | 1U << FIELD_ADDRESS;
	if ((seen & needs) != needs)
		return false;
	return message->kind != KVW_TAKEOVER_SOCKET ||
	       (message->count >= 1 && message->count <= KVW_TAKEOVER_FDS);
}

enum kvw_err kvw_takeover_parse(const char *text, size_t len, struct kvw_takeover_message *out)
{
	struct kvw_takeover_message message = {.use = KVW_SOCKET_USES};
	const char *at = text, *end = text + len;
	struct line line;
	unsigned seen = 0;
	enum kvw_err err;

	if (len > KVW_TAKEOVER_BYTES || !next_line(&at, end, &line))
		return KVW_EPROTO;
	err = take_first(line, &message.kind);
	if (err != KVW_OK)
		return err;
	while (err == KVW_OK && at < end)
		if (!next_line(&at, end, &line) || !take_field(&message, line, &seen))
			err = KVW_EPROTO;
	if (err == KVW_OK && !is_whole(&message, seen))
		err = KVW_EPROTO;
	if (err == KVW_OK)
		*out = message;
	explicit_bzero(message.keys, sizeof(message.keys));
	return err;
}

static size_t put_field(char *text, size_t used, const char *name, const char *value)
{
	size_t begin = used;

	if (value[0] == '\0')
		return used;
	used += (size_t)snprintf(text + used, KVW_TAKEOVER_BYTES - used, "%s %s", name, value);
	for (size_t i = begin; i < used; i++)
		if (text[i] < ' ' || text[i] > '~')
			text[i] = '?';
	text[used++] = '\n';
	return used;
}

/* Writes the digits in place, so that no other memory contains the keys. */
static size_t put_keys(char *text, size_t used, const struct kvw_takeover_message *message)
{
	static const char hex[] = "0123456789abcdef";

	if (message->keys_len == 0)
		return used;
	memcpy(text + used, "keys ", 5);
	used += 5;
	for (size_t i = 0; i < message->keys_len; i++) {
		text[used++] = hex[message->keys[i] >> 4];
		text[used++] = hex[message->keys[i] & 15];
	}
	text[used++] = '\n';
	return used;
}

size_t kvw_takeover_format(
	const struct kvw_takeover_message *message, char text[KVW_TAKEOVER_BYTES])
{
	size_t used = (size_t)snprintf(
		text, KVW_TAKEOVER_BYTES, PROTOCOL VERSION " %s\n", kind_names[message->kind]);
	char count[16];

	if (message->kind == KVW_TAKEOVER_SOCKET || message->keys_len > 0)
		used = put_field(text, used, "use", kvw_socket_use_name(message->use));
	(void)snprintf(count, sizeof(count), "%u", message->count);
	used = put_field(text, used, "count", count);
	(void)snprintf(count, sizeof(count), "%lld", (long long)message->pid);
	if (message->pid > 0)
		used = put_field(text, used, "pid", count);
	if (message->snapshot > 0)
		used = put_field(text, used, "snapshot", "1");
	if (message->tickets > 0)
		used = put_field(text, used, "tickets", "1");
	if (message->caches > 0)
		used = put_field(text, used, "caches", "1");
	used = put_keys(text, used, message);
	used = put_field(text, used, "version", message->version);
	used = put_field(text, used, "address", message->address);
	return put_field(text, used, "why", message->why);
}
