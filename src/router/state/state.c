/*
 * state.c - writes snapshots.
 *
 * The thread pauses after each MiB, so that it never keeps a core for long that loops need, and
 * only this thread waits for the disk. It takes no lock but that of the table of sessions, for 64
 * of them at a time.
 */
#include "state/state.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"
#include "fleet/expected.h"
#include "state/file.h"
#include "state/memory.h"
#include "state/state_internal.h"

/* A worker in the snapshot that has not appeared after this time is forgotten. */
#define EXPECT_FOR_NS (600 * KVW_NS_PER_S)

enum kvw_err kvw_state_create(const struct kvw_config *config, struct kvw_fleet *fleet, int handed,
	int64_t until_ns, struct kvw_state **out)
{
	struct kvw_state *state = calloc(1, sizeof(*state));
	char why[KVW_STATE_WHY];

	if (state == NULL || (state->writer = malloc(sizeof(*state->writer))) == NULL) {
		if (handed >= 0)
			close(handed);
		free(state);
		return KVW_ENOMEM;
	}
	state->fleet = fleet;
	state->until_ns = until_ns;
	state->heir_fd = -1;
	state->path = config->state_file;
	state->begun_ns = state->last_ns = kvw_clock_ns();
	for (size_t i = 0; i < KVW_MAX_WORKERS; i++)
		state->workers[i] = KVW_KEPT_GONE;
	pthread_mutex_init(&state->lock, NULL);
	pthread_cond_init(&state->changed, NULL);
	if (kvw_state_open(state, config, handed) != KVW_OK) {
		kvw_state_stop(state);
		return KVW_ENOMEM;
	}
	state->expecting = state->status.workers > 0;
	if (state->barred)
		kvw_error("state",
			"what lies there is not kvway's, so no snapshot is written; remove it, or "
			"change state.file file=%s",
			state->path);
	else if (state->path[0] != '\0' && !kvw_state_file_may_write(state->path, why)) {
		atomic_store(&state->status.last_failed, true);
		kvw_error("state",
			"no snapshot can be written there, kvway would start cold file=%s "
			"why=\"%s\"",
			state->path, why);
	}
	*out = state;
	return KVW_OK;
}

/* --- writing --- */

static void gather(struct gathered *all, enum kvw_keep_kind kind, const void *head, size_t head_len,
	const char *text)
{
	size_t text_len = strlen(text), len = head_len + text_len;
	const struct gathered_head before = {kind, (uint32_t)len};

	if (len > KVW_KEPT_MOST)
		return;
	if (all->room - all->len < sizeof(before) + len) {
		size_t room = all->room * 2 + sizeof(before) + len;
		uint8_t *grown = realloc(all->bytes, room);

		if (grown == NULL) {
			all->failed = true;
			return;
		}
		all->bytes = grown;
		all->room = room;
	}
	memcpy(all->bytes + all->len, &before, sizeof(before));
	memcpy(all->bytes + all->len + sizeof(before), head, head_len);
	memcpy(all->bytes + all->len + sizeof(before) + head_len, text, text_len);
	all->len += sizeof(before) + len;
}

/* Collects data that only the control thread may read. */
static void gather_all(struct kvw_state *state, struct gathered *all)
{
	struct kvw_fleet *fleet = state->fleet;

	all->len = 0;
	all->failed = false;
	for (size_t i = 0; i < fleet->count; i++) {
		struct kvw_worker *worker = kvw_fleet_worker(fleet, i);
		struct worker_record record = {.id = (uint32_t)i};

		if (worker == NULL || (record.started_s = atomic_load(&worker->started_s)) <= 0)
			continue;
		gather(all, KVW_KEPT_WORKER, &record, sizeof(record), worker->url);
	}
	for (size_t i = 0; i < fleet->model_total; i++) {
		const struct kvw_model *model = fleet->models[i];
		const struct model_record record = {
			model == NULL ? 0 : atomic_load(&model->units_per_token_q16)};

		if (record.units_per_token_q16 > 0)
			gather(all, KVW_KEPT_MODEL, &record, sizeof(record), model->name);
	}
	all->settings = fleet->settings;
	if (all->settings != NULL)
		kvw_settings_ref(all->settings);
}

/* Like kvw_state_write, with pauses in between. */
static enum kvw_err put_record(void *arg, enum kvw_keep_kind kind, const void *record, size_t len)
{
	struct kvw_state *state = arg;
	const struct timespec pause = {.tv_nsec = KVW_STATE_PAUSE_NS};

	if (!state->hurries &&
		state->writer->summary.bytes - state->paused_at >= KVW_STATE_PAUSE_BYTES) {
		state->paused_at = state->writer->summary.bytes;
		(void)nanosleep(&pause, NULL);
	}
	return kvw_state_write(state->writer, kind, record, len);
}

static enum kvw_err put_gathered(struct kvw_state *state, const struct gathered *all)
{
	enum kvw_err err = all->failed ? KVW_ENOMEM : KVW_OK;

	for (size_t at = 0; at < all->len && err == KVW_OK;) {
		struct gathered_head head;

		memcpy(&head, all->bytes + at, sizeof(head));
		err = put_record(state, (enum kvw_keep_kind)head.kind,
			all->bytes + at + sizeof(head), head.len);
		at += sizeof(head) + head.len;
	}
	return err;
}

static enum kvw_err write_to(
	struct kvw_state *state, const struct gathered *all, int fd, bool heir)
{
	const struct kvw_config *config = all->settings->config;
	struct kvw_strategy *strategy = all->settings->strategy;
	const struct kvw_keep_out out = {
		.put = put_record, .arg = state, .now_ns = kvw_clock_ns(), .heir = heir};
	uint64_t id = 0;
	enum kvw_err err;

	if (getrandom(&id, sizeof(id), 0) != sizeof(id))
		id = (uint64_t)kvw_clock_wall_ns();
	state->paused_at = 0;
	err = kvw_state_write_begin(state->writer, fd, config->state_max_bytes,
		kvw_clock_wall_ns() / KVW_NS_PER_MS, id);
	if (err == KVW_OK)
		err = put_gathered(state, all);
	if (err == KVW_OK && strategy->ops->keep != NULL)
		err = strategy->ops->keep(strategy, &out);
	if (err == KVW_OK)
		err = state->part.keep(state->part.arg, &out);
	return err == KVW_OK ? kvw_state_write_end(state->writer) : err;
}

static const char *why_of(const struct kvw_state_writer *writer, enum kvw_err err)
{
	if (err == KVW_EIO)
		return strerror(writer->error);
	return err == KVW_ELIMIT ? "it would have more than state.max_bytes" : "out of memory";
}

/* Writes one snapshot, and frees the data that was collected for it. */
static void write_snapshot(struct kvw_state *state, struct gathered *all)
{
	int64_t begun_ns = kvw_clock_ns();
	struct kvw_state_status *status = &state->status;
	struct kvw_state_file file;
	char why[KVW_STATE_WHY] = "";
	enum kvw_err err = KVW_EINVAL;

	if (!state->barred && all->settings != NULL)
		err = kvw_state_file_begin(state->path, &file, why);
	if (err == KVW_OK) {
		err = write_to(state, all, file.fd, false);
		if (err == KVW_OK) {
			err = kvw_state_file_commit(&file, why);
		} else {
			(void)snprintf(why, sizeof(why), "%s", why_of(state->writer, err));
			kvw_state_file_abandon(&file);
		}
	}
	if (all->settings != NULL)
		kvw_settings_unref(all->settings);
	all->settings = NULL;
	if (err == KVW_OK) {
		atomic_store(&status->bytes, state->writer->summary.bytes);
		atomic_store(&status->duration_ns, (uint64_t)(kvw_clock_ns() - begun_ns));
		atomic_store(&status->written_s, kvw_clock_wall_ns() / KVW_NS_PER_S);
		atomic_fetch_add(&status->written, 1);
	} else {
		atomic_fetch_add(&status->failed, 1);
	}
	if (err != KVW_OK && !state->barred)
		kvw_error("state", "snapshot not written file=%s why=\"%s\"", state->path, why);
	atomic_store(&status->last_failed, err != KVW_OK);
}

/* Writes a snapshot into memory for the process that takes over, which may read it at any time
 * later. */
static void write_for_heir(struct kvw_state *state, struct gathered *all)
{
	int fd = kvw_state_memory_open("kvway-state");
	int64_t begun_ns = kvw_clock_ns();
	enum kvw_err err = KVW_EIO;

	if (fd >= 0 && all->settings != NULL)
		err = write_to(state, all, fd, true);
	if (all->settings != NULL)
		kvw_settings_unref(all->settings);
	all->settings = NULL;
	if (err == KVW_OK && !kvw_state_memory_seal(fd))
		err = KVW_EIO;
	if (err == KVW_OK) {
		kvw_info("state", "snapshot for the process that takes over bytes=%llu ms=%lld",
			(unsigned long long)state->writer->summary.bytes,
			(long long)((kvw_clock_ns() - begun_ns) / KVW_NS_PER_MS));
	} else {
		kvw_warn("state", "no snapshot for the process that takes over: %s",
			fd < 0 ? strerror(errno) : why_of(state->writer, err));
		if (fd >= 0)
			close(fd);
		fd = -1;
	}
	state->heir_fd = fd;
	atomic_store(&state->heir, HEIR_READY);
}

static void *write_all(void *arg)
{
	struct kvw_state *state = arg;

	pthread_mutex_lock(&state->lock);
	while (!state->ending) {
		if (!state->wanted) {
			pthread_cond_wait(&state->changed, &state->lock);
			continue;
		}
		pthread_mutex_unlock(&state->lock);
		/* While `wanted` is set, `gathered` belongs to this thread. */
		if (state->for_heir)
			write_for_heir(state, &state->gathered);
		else
			write_snapshot(state, &state->gathered);
		pthread_mutex_lock(&state->lock);
		state->wanted = false;
	}
	pthread_mutex_unlock(&state->lock);
	return NULL;
}

bool kvw_state_start_thread(pthread_t *thread, void *(*run)(void *), struct kvw_state *state)
{
	int failed = kvw_thread_start(thread, run, state);

	if (failed == 0)
		(void)pthread_setname_np(*thread, "kvway-state");
	return failed == 0;
}

enum kvw_err kvw_state_start(struct kvw_state *state)
{
	if (!kvw_state_start_thread(&state->thread, write_all, state))
		return KVW_ENOMEM;
	state->started = true;
	return KVW_OK;
}

/* Begins a snapshot. Returns false if one is being written. */
static bool begin_snapshot(struct kvw_state *state, bool for_heir)
{
	bool begun;

	pthread_mutex_lock(&state->lock);
	begun = !state->wanted;
	if (begun) {
		gather_all(state, &state->gathered);
		state->wanted = true;
		state->for_heir = for_heir;
		pthread_cond_signal(&state->changed);
	}
	pthread_mutex_unlock(&state->lock);
	return begun;
}

void kvw_state_tick(struct kvw_state *state, int64_t now_ns)
{
	int asked = HEIR_ASKED, written = HEIR_WRITTEN;

	/* While the tree is being read, there is less data in memory than in the file, so the file
	 * is not replaced. */
	if (atomic_load(&state->status.recalling)) {
		if (atomic_compare_exchange_strong(&state->heir, &asked, HEIR_WRITTEN))
			atomic_store(&state->heir, HEIR_READY);
		return;
	}
	if (state->started && atomic_compare_exchange_strong(&state->heir, &asked, HEIR_WRITTEN) &&
		!begin_snapshot(state, true))
		/* At the next tick. */
		(void)atomic_compare_exchange_strong(&state->heir, &written, HEIR_ASKED);
	if (state->expecting && now_ns - state->begun_ns > EXPECT_FOR_NS) {
		(void)kvw_fleet_expect_no_more(state->fleet);
		state->expecting = false;
	}
	if (now_ns - state->last_ns < state->fleet->config->state_interval_ms * KVW_NS_PER_MS ||
		!state->started || state->rests || state->path[0] == '\0')
		return;
	state->last_ns = now_ns;
	if (!begin_snapshot(state, false))
		atomic_fetch_add(&state->status.skipped, 1);
}

bool kvw_state_has_file(const struct kvw_state *state)
{
	return state->path[0] != '\0';
}

void kvw_state_prepare(struct kvw_state *state)
{
	int none = HEIR_NONE;

	/* If a snapshot is still being written for a process that has failed meanwhile, that one is
	 * used. */
	(void)atomic_compare_exchange_strong(&state->heir, &none, HEIR_ASKED);
}

bool kvw_state_prepared(struct kvw_state *state, int *fd)
{
	if (atomic_load(&state->heir) != HEIR_READY)
		return false;
	*fd = state->heir_fd;
	state->heir_fd = -1;
	atomic_store(&state->heir, HEIR_NONE);
	return true;
}

void kvw_state_rest(struct kvw_state *state, bool rests)
{
	state->rests = rests;
}

static void write_last(struct kvw_state *state)
{
	if (state->gathered.settings == NULL)
		gather_all(state, &state->gathered);
	write_snapshot(state, &state->gathered);
	kvw_info("state", "last snapshot file=%s result=%s bytes=%llu", state->path,
		atomic_load(&state->status.last_failed) ? "failed" : "ok",
		(unsigned long long)atomic_load(&state->status.bytes));
}

void kvw_state_stop(struct kvw_state *state)
{
	bool unread;

	if (state == NULL)
		return;
	/* then the file has more data than this process */
	unread = atomic_load(&state->status.recalling);
	kvw_state_recall_no_more(state);
	if (state->started) {
		pthread_mutex_lock(&state->lock);
		state->ending = true;
		pthread_cond_signal(&state->changed);
		pthread_mutex_unlock(&state->lock);
		state->hurries = true;
		pthread_join(state->thread, NULL);
		if (!state->rests && !unread && state->path[0] != '\0')
			write_last(state);
		else if (state->gathered.settings != NULL)
			kvw_settings_unref(state->gathered.settings);
	}
	if (state->heir_fd >= 0)
		close(state->heir_fd);
	kvw_state_close_reader(state);
	pthread_mutex_destroy(&state->lock);
	pthread_cond_destroy(&state->changed);
	free(state->gathered.bytes);
	free(state->writer);
	free(state);
}

const struct kvw_state_status *kvw_state_status(const struct kvw_state *state)
{
	return &state->status;
}
