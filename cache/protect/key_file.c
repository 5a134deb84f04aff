/*
 * key_file.c - reads the file of master keys.
 *
 * The text is read into memory that is wiped and not dumped, and keys go from there to their slots
 * without a copy on the heap. The check takes the permissions of the open file, so that the file
 * that is read is always the one that was checked.
 */
#include "protect/key_file.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base64.h"

#define FILE_MOST (128u * 1024) /* bytes */

/* State of reading a file. */
struct reading {
	const char *path;
	const struct kvt_surroundings *surroundings;
	struct kvt_secrets *secrets;
	struct kvt_masters masters;
	FILE *report;
	size_t line;
	size_t mistakes;
};

static void mistake(struct reading *r, const char *text)
{
	r->mistakes++;
	if (r->line > 0)
		fprintf(r->report, "%s:%zu: %s\n", r->path, r->line, text);
	else
		fprintf(r->report, "%s: %s\n", r->path, text);
}

/* --- one line --------------------------------------------------------------------------------- */

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static bool read_hex(const char *text, size_t len, uint8_t key[KVT_SECRET_BYTES])
{
	if (len != 2 * KVT_SECRET_BYTES)
		return false;
	for (size_t i = 0; i < KVT_SECRET_BYTES; i++) {
		int high = hex_digit(text[2 * i]), low = hex_digit(text[2 * i + 1]);

		if (high < 0 || low < 0)
			return false;
		key[i] = (uint8_t)(high * 16 + low);
	}
	return true;
}

/* Reads 43 digits and one '=', which are 32 bytes. */
static bool read_base64(const char *text, size_t len, uint8_t key[KVT_SECRET_BYTES])
{
	size_t used;

	return len == 44 && text[43] == '=' &&
	       kvw_base64_read((struct kvw_slice){text, 43}, KVW_BASE64, key, KVT_SECRET_BYTES, &used) &&
	       used == KVT_SECRET_BYTES;
}

static bool is_one_byte_repeated(const uint8_t key[KVT_SECRET_BYTES])
{
	for (size_t i = 1; i < KVT_SECRET_BYTES; i++)
		if (key[i] != key[0])
			return false;
	return true;
}

/* Inserts a key, in the order of ids; takes over the key. Returns false if memory is short. */
static bool add_master(struct reading *r, uint32_t id, uint8_t *key)
{
	struct kvt_masters *m = &r->masters;
	size_t at = m->count;

	if (m->items == NULL)
		m->items = calloc(KVT_KEY_FILE_MOST, sizeof(*m->items));
	if (m->items == NULL)
		return false;
	while (at > 0 && m->items[at - 1].id > id) {
		m->items[at] = m->items[at - 1];
		at--;
	}
	m->items[at] = (struct kvt_master){id, key};
	m->count++;
	return true;
}

/* Returns the reason for which a key that could be read is refused, or NULL. */
static const char *refuse_key(const struct reading *r, uint32_t id, const uint8_t *key)
{
	for (size_t i = 0; i < r->masters.count; i++) {
		if (r->masters.items[i].id == id)
			return "found an id a second time, expected each once";
		if (CRYPTO_memcmp(r->masters.items[i].key, key, KVT_SECRET_BYTES) == 0)
			return "found a key under a second id, expected a key of its own";
	}
	if (is_one_byte_repeated(key))
		return "found a key of one byte repeated, expected random bytes";
	if (r->masters.count == KVT_KEY_FILE_MOST)
		return "found more than 1024 keys, expected fewer: remove those that no store uses";
	return NULL;
}

static enum kvt_status read_key(struct reading *r, uint32_t id, const char *text, size_t len)
{
	uint8_t *key = kvt_secret_take(r->secrets);
	const char *wrong = NULL;

	if (key == NULL)
		return KVT_ENOMEM;
	if (!read_hex(text, len, key) && !read_base64(text, len, key))
		wrong = "found no key after the id, expected 32 bytes as 64 hex digits or 44 "
			"characters of base64";
	else
		wrong = refuse_key(r, id, key);
	if (wrong == NULL) {
		if (add_master(r, id, key))
			return KVT_OK;
		kvt_secret_give(r->secrets, key);
		return KVT_ENOMEM;
	}
	mistake(r, wrong);
	kvt_secret_give(r->secrets, key);
	return KVT_OK;
}

static bool is_blank(char c)
{
	return c == ' ' || c == '\t' || c == '\r';
}

static enum kvt_status read_line(struct reading *r, const char *text, size_t len)
{
	const char *hash = memchr(text, '#', len);
	uint64_t id = 0;
	size_t at = 0;

	len = hash != NULL ? (size_t)(hash - text) : len;
	while (len > 0 && is_blank(text[len - 1]))
		len--;
	while (at < len && is_blank(text[at]))
		at++;
	if (at == len)
		return KVT_OK;
	for (; at < len && text[at] >= '0' && text[at] <= '9' && id <= UINT32_MAX; at++)
		id = id * 10 + (uint64_t)(text[at] - '0');
	if (id == 0 || id > UINT32_MAX || at == len || text[at] != ':') {
		mistake(r,
			"found something else, expected `ID: KEY` with an id from 1 to 4294967295");
		return KVT_OK;
	}
	for (at++; at < len && is_blank(text[at]);)
		at++;
	return read_key(r, (uint32_t)id, text + at, len - at);
}

/* --- the file --------------------------------------------------------------------------------- */

static void check_owner(struct reading *r, const struct stat *info)
{
	if (!S_ISREG(info->st_mode))
		mistake(r, "found no regular file, expected one");
	if (info->st_uid != 0 && info->st_uid != geteuid())
		mistake(r, "found another user's file, expected this user's or root's");
	if ((info->st_mode & (S_IRWXO | S_IWGRP)) != 0)
		mistake(r, "found a file that others may read or write, expected mode 600; "
			   "`chmod 600` it, and consider its keys known");
	else if ((info->st_mode & S_IRGRP) != 0)
		kvt_note(r->surroundings, KVT_LOG_WARN,
			"protect: keys: %s can be read by its group", r->path);
}

/* Reads up to `room` bytes. Returns -1 on failure, with errno. */
static ssize_t read_whole(int fd, char *buffer, size_t room)
{
	size_t used = 0;

	while (used < room) {
		ssize_t n = read(fd, buffer + used, room - used);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -1;
		if (n == 0)
			break;
		used += (size_t)n;
	}
	return (ssize_t)used;
}

static enum kvt_status read_lines(struct reading *r, const char *text, size_t len)
{
	enum kvt_status status = KVT_OK;

	while (len > 0 && status == KVT_OK) {
		const char *end = memchr(text, '\n', len);
		size_t line = end != NULL ? (size_t)(end - text) : len;

		r->line++;
		status = read_line(r, text, line);
		line += end != NULL;
		text += line;
		len -= line;
	}
	r->line = 0;
	if (status == KVT_OK && r->masters.count == 0 && r->mistakes == 0)
		mistake(r, "found no key, expected a line `ID: KEY`");
	return status;
}

static enum kvt_status read_open(struct reading *r, int fd)
{
	enum kvt_status status;
	struct stat info;
	char *text = NULL;
	ssize_t len;

	if (fstat(fd, &info) != 0)
		return KVT_EIO;
	check_owner(r, &info);
	if (r->mistakes > 0) /* a folder cannot be read, and reading a pipe may never end */
		return KVT_OK;
	text = kvt_secret_map(FILE_MOST + 1);
	if (text == NULL)
		return KVT_ENOMEM;
	len = read_whole(fd, text, FILE_MOST + 1);
	if (len < 0) {
		status = KVT_EIO;
	} else if ((size_t)len > FILE_MOST) {
		mistake(r, "found more than 128 KiB, expected a file of keys");
		status = KVT_OK;
	} else {
		status = read_lines(r, text, (size_t)len);
	}
	kvt_secret_unmap(text, FILE_MOST + 1);
	return status;
}

enum kvt_status kvt_key_file_read(const char *path, const struct kvt_surroundings *s,
	struct kvt_secrets *secrets, struct kvt_masters *out, char **report)
{
	struct reading r = {.path = path, .surroundings = s, .secrets = secrets};
	enum kvt_status status = KVT_EIO;
	char *said = NULL;
	size_t said_bytes = 0;
	int fd, cause;

	r.report = open_memstream(&said, &said_bytes);
	if (r.report == NULL)
		return KVT_ENOMEM;
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd >= 0)
		status = read_open(&r, fd);
	cause = errno;
	if (status == KVT_EIO)
		fprintf(r.report, "%s: cannot be %s: %s\n", path, fd < 0 ? "opened" : "read",
			strerror(cause));
	if (status == KVT_OK && r.mistakes > 0)
		status = KVT_EINVAL;
	if (fd >= 0)
		close(fd);
	if (fclose(r.report) != 0 && status == KVT_OK)
		status = KVT_ENOMEM;
	if (status == KVT_OK)
		*out = r.masters;
	else
		kvt_masters_finish(&r.masters, secrets);
	if (report != NULL && (status == KVT_EINVAL || status == KVT_EIO)) {
		*report = said;
		said = NULL;
	}
	free(said);
	return status;
}

void kvt_masters_finish(struct kvt_masters *m, struct kvt_secrets *secrets)
{
	for (size_t i = 0; i < m->count; i++)
		kvt_secret_give(secrets, m->items[i].key);
	free(m->items);
	*m = (struct kvt_masters){0};
}

const uint8_t *kvt_masters_find(const struct kvt_masters *m, uint32_t id)
{
	size_t low = 0, high = m->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (m->items[middle].id == id)
			return m->items[middle].key;
		if (m->items[middle].id < id)
			low = middle + 1;
		else
			high = middle;
	}
	return NULL;
}
