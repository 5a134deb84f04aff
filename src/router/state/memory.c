/*
 * memory.c - hands records to another process: as a snapshot in a sealed memory file, which no
 * process can change.
 */
#include "state/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/clock.h"

int kvw_state_memory_open(const char *name)
{
	return memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
}

bool kvw_state_memory_seal(int fd)
{
	return fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) ==
	       0;
}

static void explain_failure(char why[KVW_STATE_WHY], enum kvw_err err, int error)
{
	(void)snprintf(why, KVW_STATE_WHY, "%s",
		err == KVW_ELIMIT ? "it would have more than state.max_bytes"
		: error != 0	  ? strerror(error)
				  : "out of memory");
}

enum kvw_err kvw_state_memory_write(const char *name, kvw_state_keep_fn *keep, void *arg,
	uint64_t most, int *fd, char why[KVW_STATE_WHY])
{
	struct kvw_state_writer *writer = malloc(sizeof(*writer));
	const struct kvw_keep_out out = {
		.put = kvw_state_write, .arg = writer, .now_ns = kvw_clock_ns()};
	int made = writer == NULL ? -1 : kvw_state_memory_open(name);
	int error = made < 0 ? errno : 0;
	enum kvw_err err = writer == NULL ? KVW_ENOMEM : made < 0 ? KVW_EIO : KVW_OK;
	uint64_t id = 0;

	if (getrandom(&id, sizeof(id), 0) != sizeof(id))
		id = (uint64_t)kvw_clock_wall_ns();
	if (err == KVW_OK) {
		err = kvw_state_write_begin(
			writer, made, most, kvw_clock_wall_ns() / KVW_NS_PER_MS, id);
		if (err == KVW_OK)
			err = keep(arg, &out);
		if (err == KVW_OK)
			err = kvw_state_write_end(writer);
		error = writer->error;
	}
	if (err == KVW_OK && !kvw_state_memory_seal(made)) {
		error = errno;
		err = KVW_EIO;
	}
	if (err == KVW_OK) {
		*fd = made;
	} else {
		explain_failure(why, err, error);
		if (made >= 0)
			close(made);
	}
	free(writer);
	return err;
}

enum kvw_err kvw_state_memory_read_take(
	int fd, uint64_t most, struct kvw_state_reader **out, char why[KVW_STATE_WHY])
{
	struct kvw_state_reader *reader = malloc(sizeof(*reader));
	enum kvw_err err = KVW_ENOMEM;

	(void)snprintf(why, KVW_STATE_WHY, "out of memory");
	if (reader == NULL) {
		close(fd);
		return err;
	}
	err = lseek(fd, 0, SEEK_SET) != 0 ? KVW_EIO : kvw_state_read_all(reader, fd, most);
	if (err == KVW_OK)
		err = lseek(fd, 0, SEEK_SET) != 0 ? KVW_EIO
						  : kvw_state_read_begin(reader, fd, most);
	else if (err != KVW_EIO)
		(void)snprintf(why, KVW_STATE_WHY, "%s", reader->why);
	if (err == KVW_OK) {
		*out = reader;
		return KVW_OK;
	}
	if (err == KVW_EIO)
		(void)snprintf(why, KVW_STATE_WHY, "it cannot be read");
	close(fd);
	free(reader);
	return err;
}

void kvw_state_memory_close(struct kvw_state_reader *reader)
{
	if (reader != NULL && reader->fd >= 0)
		close(reader->fd);
	free(reader);
}
