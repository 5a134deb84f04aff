/*
 * memo.c - reads and writes the lines of calibrations, and their file.
 */
#include "gpu/memo.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define HEAD "kvtier-gpu 1 "

/* A line without its end, and the begin of the next one. */
struct line {
	const char *at;
	size_t len;
};

static bool next_line(const char **text, size_t *left, struct line *out)
{
	const char *end;

	if (*left == 0)
		return false;
	end = memchr(*text, '\n', *left);
	out->at = *text;
	out->len = end != NULL ? (size_t)(end - *text) : *left;
	*left -= end != NULL ? out->len + 1 : out->len;
	*text += end != NULL ? out->len + 1 : out->len;
	return true;
}

/* Returns whether this is a line of the memo's format. *key_len: length of its key, which follows
 * the first words. */
static bool proper(const struct line *line, size_t *key_len)
{
	size_t head = strlen(HEAD);
	const char *digits;

	if (line->len < head + 2 + KVT_GPU_MEMO_DIGITS || memcmp(line->at, HEAD, head) != 0)
		return false;
	digits = line->at + line->len - KVT_GPU_MEMO_DIGITS;
	for (size_t i = 0; i < KVT_GPU_MEMO_DIGITS; i++)
		if (digits[i] < '1' || digits[i] > '3')
			return false;
	*key_len = line->len - head - 1 - KVT_GPU_MEMO_DIGITS;
	if (digits[-1] != ' ' || memchr(line->at + head, ' ', *key_len) != NULL)
		return false;
	return memchr(line->at, '\0', line->len) == NULL;
}

static bool has_key(const struct line *line, size_t key_len, const char *key)
{
	return strlen(key) == key_len && memcmp(line->at + strlen(HEAD), key, key_len) == 0;
}

bool kvt_gpu_memo_find(
	const char *text, size_t len, const char *key, char digits[KVT_GPU_MEMO_DIGITS])
{
	struct line line;
	size_t key_len;
	bool found = false;

	while (next_line(&text, &len, &line)) {
		if (!proper(&line, &key_len) || !has_key(&line, key_len, key))
			continue;
		memcpy(digits, line.at + line.len - KVT_GPU_MEMO_DIGITS, KVT_GPU_MEMO_DIGITS);
		found = true;
	}
	return found;
}

size_t kvt_gpu_memo_update(const char *text, size_t len, const char *key,
	const char digits[KVT_GPU_MEMO_DIGITS], char *out)
{
	size_t own = strlen(HEAD) + strlen(key) + 1 + KVT_GPU_MEMO_DIGITS + 1, used = 0, key_len;
	size_t room = own < KVT_GPU_MEMO_BYTES ? KVT_GPU_MEMO_BYTES - own : 0, kept = 0;
	struct line line;

	/* bytes of the lines that stay; the oldest, which come first, are dropped until the rest
	 * fits */
	for (const char *at = text, *end = text + len; at < end;) {
		size_t left = (size_t)(end - at);

		(void)next_line(&at, &left, &line);
		if (proper(&line, &key_len) && !has_key(&line, key_len, key))
			kept += line.len + 1;
	}
	while (next_line(&text, &len, &line)) {
		if (!proper(&line, &key_len) || has_key(&line, key_len, key))
			continue;
		if (kept <= room) {
			memcpy(out + used, line.at, line.len);
			out[used + line.len] = '\n';
			used += line.len + 1;
		} else {
			kept -= line.len + 1;
		}
	}
	if (room == 0)
		return used;
	used += (size_t)sprintf(out + used, "%s%s %.*s", HEAD, key, KVT_GPU_MEMO_DIGITS, digits);
	/* the line end replaces snprintf's '\0', because the text is no string */
	out[used++] = '\n';
	return used;
}

/* Finds the path of the memo. Returns false if there is none. */
static bool find_path(const char *given, char *path, size_t size)
{
	const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
	int n;

	if (given != NULL)
		n = given[0] == '\0' ? -1 : snprintf(path, size, "%s", given);
	else if (cache != NULL && cache[0] == '/')
		n = snprintf(path, size, "%s/kvtier/gpu", cache);
	else if (home != NULL && home[0] == '/')
		n = snprintf(path, size, "%s/.cache/kvtier/gpu", home);
	else
		n = -1;
	return n > 0 && (size_t)n < size;
}

/* Reads the text of the memo; returns 0 without a file. A file that is too long is no memo. */
static size_t read_text(const char *path, char *text)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	size_t len = 0;
	ssize_t n = 1;

	if (fd < 0)
		return 0;
	while (n > 0 && len < KVT_GPU_MEMO_BYTES) {
		n = read(fd, text + len, KVT_GPU_MEMO_BYTES - len);
		if (n > 0)
			len += (size_t)n;
	}
	close(fd);
	return n == 0 ? len : 0;
}

bool kvt_gpu_memo_load(const char *given, const char *key, char digits[KVT_GPU_MEMO_DIGITS])
{
	char path[PATH_MAX], *text = malloc(KVT_GPU_MEMO_BYTES);
	bool found = false;

	if (text != NULL && find_path(given, path, sizeof(path)))
		found = kvt_gpu_memo_find(text, read_text(path, text), key, digits);
	free(text);
	return found;
}

/* Creates the folders in a path. A failure is noticed when the file is opened. */
static void make_folders(char *path)
{
	for (char *at = path + 1; *at != '\0'; at++) {
		if (*at != '/')
			continue;
		*at = '\0';
		(void)mkdir(path, 0700);
		*at = '/';
	}
}

static bool write_text(const char *path, const char *text, size_t len)
{
	char own[PATH_MAX];
	int n = snprintf(own, sizeof(own), "%s.XXXXXX", path), fd;
	bool fine;

	if (n < 0 || (size_t)n >= sizeof(own))
		return false;
	fd = mkostemp(own, O_CLOEXEC);
	if (fd < 0)
		return false;
	fine = write(fd, text, len) == (ssize_t)len;
	close(fd);
	fine = fine && rename(own, path) == 0;
	if (!fine)
		(void)unlink(own);
	return fine;
}

bool kvt_gpu_memo_save(const char *given, const char *key, const char digits[KVT_GPU_MEMO_DIGITS])
{
	char path[PATH_MAX], *old = malloc(KVT_GPU_MEMO_BYTES), *text = malloc(KVT_GPU_MEMO_BYTES);
	bool fine = false;

	if (old != NULL && text != NULL && find_path(given, path, sizeof(path))) {
		make_folders(path);
		fine = write_text(path, text,
			kvt_gpu_memo_update(old, read_text(path, old), key, digits, text));
	}
	free(old);
	free(text);
	return fine;
}
