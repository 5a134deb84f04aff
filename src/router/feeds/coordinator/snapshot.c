/*
 * snapshot.c - the directory in a file next to state.file, for a kvway that starts again.
 *
 * The file has the records of keep.h in the format of src/router/state. The feed's thread writes
 * them into memory, every state.interval; a thread of its own then waits for the disk. Servers go
 * on with their cursors, so a report that was made while no kvway was there is a gap. A kvway that
 * takes over reads the file only if the process before it has handed nothing over.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"
#include "feeds/coordinator/parts.h"
#include "state/file.h"
#include "state/memory.h"

#define SUFFIX ".lmcache"

/* --- writing ---------------------------------------------------------------------------------- */

static enum kvw_err keep(void *arg, const struct kvw_keep_out *out)
{
	return kvw_cd_keep(arg, out);
}

/* Copies all of a memory file. False: errno. */
static bool copy_all(int from, int to)
{
	off_t at = 0, end = lseek(from, 0, SEEK_END);

	while (at < end) {
		ssize_t count = sendfile(to, from, &at, (size_t)(end - at));

		if (count <= 0 && errno != EINTR)
			return false;
	}
	return end > 0;
}

/* Makes the memory file the snapshot. Takes its descriptor. */
static void store_take(struct kvw_coordinator_snapshot *snapshot, int fd)
{
	struct kvw_state_file file;
	char why[KVW_STATE_WHY] = "";
	enum kvw_err err = kvw_state_file_begin(snapshot->path, &file, why);

	if (err == KVW_OK && !copy_all(fd, file.fd)) {
		(void)snprintf(why, sizeof(why), "%s", strerror(errno));
		kvw_state_file_abandon(&file);
		err = KVW_EIO;
	} else if (err == KVW_OK) {
		err = kvw_state_file_commit(&file, why);
	}
	close(fd);
	atomic_fetch_add(err == KVW_OK ? &snapshot->written : &snapshot->failed, 1);
	if (err != KVW_OK)
		kvw_warn("coordinator", "the directory is not kept file=%s why=\"%s\"",
			snapshot->path, why);
}

static void *store(void *arg)
{
	struct kvw_coordinator_snapshot *snapshot = arg;

	store_take(snapshot, snapshot->fd);
	atomic_store(&snapshot->done, true);
	return NULL;
}

static void wait_for_store(struct kvw_coordinator_snapshot *snapshot)
{
	if (snapshot->storing)
		(void)pthread_join(snapshot->thread, NULL);
	snapshot->storing = false;
}

/* The records in a memory file; -1: there is none, and the log says why. */
static int write_records(struct kvw_coordinator *coordinator)
{
	struct kvw_coordinator_snapshot *snapshot = &coordinator->snapshot;
	char why[KVW_STATE_WHY];
	int fd;

	if (kvw_state_memory_write("kvway-coordinator", keep, coordinator->cd,
		    atomic_load(&snapshot->bytes_most), &fd, why) == KVW_OK)
		return fd;
	atomic_fetch_add(&snapshot->failed, 1);
	kvw_warn(
		"coordinator", "the directory is not kept file=%s why=\"%s\"", snapshot->path, why);
	return -1;
}

void kvw_coordinator_snapshot_tick(struct kvw_coordinator *coordinator, int64_t now_ns)
{
	struct kvw_coordinator_snapshot *snapshot = &coordinator->snapshot;

	if (snapshot->path == NULL || !coordinator->in_charge ||
		now_ns - snapshot->last_ns < atomic_load(&snapshot->interval_ns) ||
		(snapshot->storing && !atomic_load(&snapshot->done)))
		return;
	wait_for_store(snapshot);
	snapshot->last_ns = now_ns;
	snapshot->fd = write_records(coordinator);
	atomic_store(&snapshot->done, false);
	if (snapshot->fd < 0)
		return;
	snapshot->storing = kvw_thread_start(&snapshot->thread, store, snapshot) == 0;
	if (!snapshot->storing) {
		close(snapshot->fd);
		atomic_fetch_add(&snapshot->failed, 1);
	}
}

void kvw_coordinator_snapshot_end(struct kvw_coordinator *coordinator)
{
	struct kvw_coordinator_snapshot *snapshot = &coordinator->snapshot;
	int fd;

	wait_for_store(snapshot);
	if (snapshot->path != NULL && coordinator->in_charge && coordinator->cd != NULL &&
		(fd = write_records(coordinator)) >= 0)
		store_take(snapshot, fd);
	free(snapshot->path);
	snapshot->path = NULL;
}

/* --- reading ---------------------------------------------------------------------------------- */

/* Reads all records. Takes fd. *whole: the last one came, and all could be true. */
static enum kvw_err read_records_take(
	struct kvw_coordinator *coordinator, int fd, bool *whole, char why[KVW_STATE_WHY])
{
	struct kvw_state_reader *reader;
	enum kvw_keep_kind kind;
	const uint8_t *record;
	enum kvw_err err;
	size_t len;

	err = kvw_state_memory_read_take(
		fd, atomic_load(&coordinator->snapshot.bytes_most), &reader, why);
	if (err != KVW_OK)
		return err;
	while ((err = kvw_state_read(reader, &kind, &record, &len)) == KVW_OK)
		kvw_cd_recall(
			coordinator->cd, coordinator->recall, kind, record, len, kvw_clock_ns());
	kvw_state_memory_close(reader);
	*whole = err == KVW_ECLOSED && !coordinator->recall->failed;
	kvw_cd_recalled(coordinator->cd, coordinator->recall, *whole);
	return KVW_OK;
}

void kvw_coordinator_snapshot_read(struct kvw_coordinator *coordinator)
{
	struct kvw_coordinator_snapshot *snapshot = &coordinator->snapshot;
	char why[KVW_STATE_WHY] = "";
	bool whole = false;
	enum kvw_err err;
	int fd;

	if (snapshot->path == NULL)
		return;
	err = kvw_state_file_open(snapshot->path, atomic_load(&snapshot->bytes_most), &fd, why);
	if (err == KVW_ENOTFOUND)
		return;
	if (err == KVW_OK)
		err = read_records_take(coordinator, fd, &whole, why);
	if (err == KVW_OK)
		kvw_log(whole ? KVW_LOG_INFO : KVW_LOG_WARN, "coordinator",
			"the directory is read%s file=%s placements=%llu",
			whole ? "" : ", up to a record that is wrong", snapshot->path,
			(unsigned long long)coordinator->recall->placements);
	else
		kvw_warn("coordinator", "the directory starts empty file=%s why=\"%s\"",
			snapshot->path, why);
}

void kvw_coordinator_snapshot_reconfigure(
	struct kvw_coordinator *coordinator, const struct kvw_config *config)
{
	atomic_store(&coordinator->snapshot.interval_ns, config->state_interval_ms * KVW_NS_PER_MS);
	atomic_store(&coordinator->snapshot.bytes_most, config->state_max_bytes);
}

enum kvw_err kvw_coordinator_snapshot_open(struct kvw_coordinator *coordinator)
{
	const struct kvw_config *config = coordinator->deps->config;
	struct kvw_coordinator_snapshot *snapshot = &coordinator->snapshot;

	if (config->state_file[0] == '\0')
		return KVW_OK;
	if (asprintf(&snapshot->path, "%s" SUFFIX, config->state_file) < 0) {
		snapshot->path = NULL;
		return KVW_ENOMEM;
	}
	snapshot->last_ns = kvw_clock_ns();
	kvw_coordinator_snapshot_reconfigure(coordinator, config);
	if (!coordinator->deps->waits) /* else the process before us hands it over */
		kvw_coordinator_snapshot_read(coordinator);
	return KVW_OK;
}
