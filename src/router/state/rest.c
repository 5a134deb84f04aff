/* rest.c - what a process has counted after its successor was given a snapshot. */
#include "state/rest.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "state/file.h"

/* The caller frees the path. NULL: out of memory. */
static char *rest_path(const char *path, int64_t pid)
{
	char *text = NULL;

	return asprintf(&text, "%s.rest-%lld", path, (long long)pid) < 0 ? NULL : text;
}

static enum kvw_err write_records(int fd, uint64_t most,
	enum kvw_err (*keep)(void *arg, const struct kvw_keep_out *out), void *arg)
{
	struct kvw_state_writer *writer = malloc(sizeof(*writer));
	const struct kvw_keep_out out = {
		.put = kvw_state_write, .arg = writer, .now_ns = kvw_clock_ns()};
	uint64_t id = 0;
	enum kvw_err err = KVW_ENOMEM;

	if (writer == NULL)
		return KVW_ENOMEM;
	if (getrandom(&id, sizeof(id), 0) != sizeof(id))
		id = (uint64_t)kvw_clock_wall_ns();
	err = kvw_state_write_begin(
		writer, fd, most, kvw_clock_wall_ns() / KVW_NS_PER_MS, id);
	if (err == KVW_OK)
		err = keep(arg, &out);
	if (err == KVW_OK)
		err = kvw_state_write_end(writer);
	free(writer);
	return err;
}

void kvw_state_rest_write(const char *path, int64_t pid, uint64_t most,
	enum kvw_err (*keep)(void *arg, const struct kvw_keep_out *out), void *arg)
{
	char *own = rest_path(path, pid), why[KVW_STATE_WHY] = "";
	struct kvw_state_file file;
	enum kvw_err err = own == NULL ? KVW_ENOMEM : kvw_state_file_begin(own, &file, why);

	if (err == KVW_OK) {
		err = write_records(file.fd, most, keep, arg);
		if (err == KVW_OK)
			err = kvw_state_file_commit(&file, why);
		else
			kvw_state_file_abandon(&file);
	}
	if (err != KVW_OK)
		kvw_error("state",
			"usage since the takeover is not written and lost file=%s why=\"%s\"",
			own == NULL ? path : own, why[0] != '\0' ? why : "it cannot be written");
	free(own);
}

/* Reads all records twice: the file is used only if it is undamaged. */
static bool read_records(int fd, uint64_t most,
	void (*take)(void *arg, enum kvw_keep_kind kind, const uint8_t *record, size_t len),
	void *arg, struct kvw_state_reader *reader)
{
	enum kvw_err err = kvw_state_read_all(reader, fd, most);
	enum kvw_keep_kind kind;
	const uint8_t *record;
	size_t len;

	if (err != KVW_OK || lseek(fd, 0, SEEK_SET) != 0)
		return false;
	err = kvw_state_read_begin(reader, fd, most);
	while (err == KVW_OK &&
		(err = kvw_state_read(reader, &kind, &record, &len)) == KVW_OK)
		take(arg, kind, record, len);
	return err == KVW_ECLOSED;
}

bool kvw_state_rest_read(const char *path, int64_t pid, uint64_t most,
	void (*take)(void *arg, enum kvw_keep_kind kind, const uint8_t *record, size_t len),
	void *arg)
{
	/* Asked first: a process that ends writes its file before. */
	bool gone = kill((pid_t)pid, 0) != 0 && errno == ESRCH;
	char *its = rest_path(path, pid), why[KVW_STATE_WHY] = "";
	struct kvw_state_reader *reader = malloc(sizeof(*reader));
	enum kvw_err err = KVW_ENOMEM;
	int fd;

	if (its != NULL && reader != NULL)
		err = kvw_state_file_open(its, most, &fd, why);
	if (err == KVW_OK) {
		if (read_records(fd, most, take, arg, reader))
			kvw_info("state", "counts of the process before are added file=%s", its);
		else
			kvw_error("state", "not added: %s file=%s", reader->why, its);
		close(fd);
		(void)unlink(its);
	} else if (err != KVW_ENOTFOUND && err != KVW_ENOMEM) {
		kvw_error("state", "not added: %s file=%s", why, its);
	}
	free(reader);
	free(its);
	return err == KVW_ENOTFOUND ? gone : err != KVW_ENOMEM;
}
