/* archive.c - writes files that are in memory as a .tar.gz. */
#include "bundle/archive.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#define BLOCK 512

/* The header of a file; all numbers are octal texts. */
struct header {
	char name[100], mode[8], uid[8], gid[8], size[12], mtime[12], checksum[8], type, link[100];
	char magic[6], version[2], owner[32], group[32], major[8], minor[8], prefix[155], rest[12];
};

static const char zeroes[BLOCK];

enum kvw_err kvw_archive_take(struct kvw_archive *archive, int fd, time_t now)
{
	*archive = (struct kvw_archive){gzdopen(fd, "wb"), now};
	if (archive->gz != NULL)
		return KVW_OK;
	close(fd);
	return KVW_ENOMEM;
}

void kvw_archive_add(struct kvw_archive *archive, const char *name, const char *data, size_t len)
{
	struct header h = {.mode = "0000600", .uid = "0000000", .gid = "0000000", .type = '0',
		.magic = "ustar", .version = {'0', '0'}};
	unsigned sum = 0;

	static_assert(sizeof(h) == BLOCK, "a header is a block");
	assert(strlen(name) < sizeof(h.name));
	memcpy(h.name, name, strlen(name));
	(void)snprintf(h.size, sizeof(h.size), "%011zo", len);
	(void)snprintf(h.mtime, sizeof(h.mtime), "%011llo", (unsigned long long)archive->now);
	/* The sum counts its own field as spaces. */
	memset(h.checksum, ' ', sizeof(h.checksum));
	for (size_t i = 0; i < sizeof(h); i++)
		sum += ((const unsigned char *)&h)[i];
	(void)snprintf(h.checksum, sizeof(h.checksum), "%06o", sum);
	(void)gzfwrite(&h, sizeof(h), 1, archive->gz);
	if (len > 0)
		(void)gzfwrite(data, len, 1, archive->gz);
	if (len % BLOCK != 0)
		(void)gzfwrite(zeroes, BLOCK - len % BLOCK, 1, archive->gz);
}

enum kvw_err kvw_archive_end(struct kvw_archive *archive)
{
	int bad = 0;

	(void)gzfwrite(zeroes, BLOCK, 1, archive->gz);
	(void)gzfwrite(zeroes, BLOCK, 1, archive->gz);
	(void)gzerror(archive->gz, &bad);
	return gzclose(archive->gz) == Z_OK && bad == Z_OK ? KVW_OK : KVW_EIO;
}
