/*
 * versions.c - stores of other fingerprints under the same path.
 *
 * A store lies in PATH/FINGERPRINT/RANK. Its removal takes its owner's lock first, so that a store
 * in use is left alone, and removes the files through the I/O layer one by one, the lock's own file
 * last with the layer. The store's chunks are unreachable once the first file that describes it is
 * gone; a crash in between leaves a store that its format check refuses or that is empty.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kvtier/kvtier_io.h"
#include "io/machine.h"
#include "core/versions.h"

#define MOST_NAME 256

/* Names of a store's files. */
struct names {
	char (*at)[MOST_NAME];
	size_t count, room;
	bool failed;
};

static void add_name(void *self, const char *name)
{
	struct names *names = self;

	if (names->count == names->room) {
		size_t room = names->room == 0 ? 64 : names->room * 2;
		void *larger = reallocarray(names->at, room, sizeof(*names->at));

		if (larger == NULL) {
			names->failed = true;
			return;
		}
		names->at = larger;
		names->room = room;
	}
	if (snprintf(names->at[names->count], MOST_NAME, "%s", name) >= MOST_NAME)
		names->failed = true;
	else
		names->count++;
}

static enum kvt_status remove_files(struct kvt_io *io)
{
	struct names names = {.count = 0};
	enum kvt_status status = io->ops->list(io, add_name, &names);

	if (status == KVT_OK && names.failed)
		status = KVT_ENOMEM;
	for (size_t i = 0; status == KVT_OK && i < names.count; i++) {
		status = io->ops->remove(io, names.at[i]);
		if (status == KVT_MISS)
			status = KVT_OK;
	}
	if (status == KVT_OK)
		status = io->ops->sync_folder(io);
	free(names.at);
	return status;
}

bool kvt_version_folder(
	struct kvt *k, const struct kvt_fingerprint *fingerprint, char *out, size_t room)
{
	int n = snprintf(out, room, "%s/", k->nvme_path);

	for (size_t i = 0; i < sizeof(fingerprint->bytes) && n > 0 && (size_t)n < room; i++)
		n += snprintf(out + n, room - (size_t)n, "%02x", fingerprint->bytes[i]);
	if (n > 0 && (size_t)n < room)
		n += snprintf(out + n, room - (size_t)n, "/%u", k->config.rank);
	return n > 0 && (size_t)n < room;
}

/* Returns whether the folder exists. Only the machine's own I/O layer can look for a folder without
 * making it. */
static bool is_there(struct kvt *k, const char *folder)
{
	struct stat info;

	return k->config.io != NULL || stat(folder, &info) == 0;
}

enum kvt_status kvt_version_remove(
	struct kvt *k, const struct kvt_fingerprint *fingerprint, size_t *removed)
{
	struct kvt_io_layer machine = kvt_io_machine();
	const struct kvt_io_layer *layer = k->config.io != NULL ? k->config.io : &machine;
	struct kvt_io_options options = {.mode = "threads", .depth = 1};
	struct kvt_io *io = NULL;
	enum kvt_status status;
	char folder[4096];
	int64_t owner;

	if (k->nvme_path == NULL)
		return KVT_MISS;
	if (!kvt_version_folder(k, fingerprint, folder, sizeof(folder)))
		return KVT_EINVAL;
	if (!is_there(k, folder))
		return KVT_MISS;
	status = layer->create(layer->self, folder, &options, &io);
	if (status != KVT_OK)
		return status;
	status = io->ops->lock(io, &owner);
	if (status == KVT_OK)
		status = remove_files(io);
	io->ops->destroy(io);
	if (status == KVT_OK && k->config.io == NULL)
		rmdir(folder); /* fails while the lock's file is there, which the next owner uses */
	if (status == KVT_OK && removed != NULL)
		*removed = 0;
	return status;
}
