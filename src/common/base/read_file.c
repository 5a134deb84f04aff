/*
 * read_file.c - reads a whole file as text.
 */
#include "base/read_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

char *kvt_read_file(const char *path, size_t most, size_t *len, char why[KVT_READ_FILE_WHY])
{
	FILE *file = strcmp(path, "-") == 0 ? stdin : fopen(path, "re");
	char *text = NULL;

	errno = file != NULL ? 0 : errno;
	if (file != NULL)
		text = malloc(most + 2);
	if (text == NULL) {
		snprintf(why, KVT_READ_FILE_WHY, "cannot be opened: %s", strerror(errno));
		goto out;
	}
	*len = fread(text, 1, most + 1, file);
	text[*len] = '\0';
	if (!ferror(file) && *len <= most)
		goto out;
	if (ferror(file))
		snprintf(why, KVT_READ_FILE_WHY, "cannot be read: %s", strerror(errno));
	else
		snprintf(why, KVT_READ_FILE_WHY, "is longer than %zu bytes", most);
	free(text);
	text = NULL;
out:
	if (file != NULL && file != stdin)
		fclose(file);
	return text;
}

enum kvw_err kvw_read_all(int fd, char *buffer, size_t room, size_t *len)
{
	*len = 0;
	while (*len < room) {
		ssize_t n = read(fd, buffer + *len, room - *len);

		if (n == 0)
			break;
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return KVW_EIO;
		*len += (size_t)n;
	}
	return KVW_OK;
}
