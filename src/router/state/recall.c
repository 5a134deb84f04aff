/*
 * recall.c - reads a snapshot before kvway serves, and a large prefix tree while it does.
 *
 * The whole snapshot is checked first. The strategy's records are between the first ones (workers,
 * models) and the rest. So if a large tree is left for later, reading skips its records and returns
 * to them afterwards; the descriptor is a file's, which can seek.
 */
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "fleet/expected.h"
#include "state/file.h"
#include "state/state_internal.h"

#define NICE          5 /* nice value of the thread that reads the tree, so that loops come first */
#define LOOK_EACH     1024                 /* number of records after which the clock is read */

static void refuse_snapshot(struct kvw_state *state, const char *why)
{
	state->status.recalled = KVW_STATE_REFUSED;
	if (why != state->status.why)
		(void)snprintf(state->status.why, sizeof(state->status.why), "%s", why);
	kvw_warn("state", "the snapshot is not used, kvway starts cold file=%s why=\"%s\"",
		state->from, state->status.why);
}

void kvw_state_close_reader(struct kvw_state *state)
{
	if (state->reader != NULL)
		close(state->reader->fd);
	free(state->reader);
	state->reader = NULL;
	state->held = false;
}

static void expect_worker(struct kvw_state *state, const uint8_t *bytes, size_t len)
{
	struct worker_record record;
	uint32_t slot, generation;
	char *url;

	if (len <= sizeof(record))
		return;
	memcpy(&record, bytes, sizeof(record));
	if (record.id >= KVW_MAX_WORKERS || state->workers[record.id] != KVW_KEPT_GONE ||
		!isfinite(record.started_s) || record.started_s <= 0)
		return;
	url = strndup((const char *)bytes + sizeof(record), len - sizeof(record));
	if (url == NULL || kvw_fleet_expect(state->fleet, url, record.started_s, &slot,
				   &generation) != KVW_OK) {
		free(url);
		return;
	}
	free(url);
	state->workers[record.id] = slot;
	state->generations[slot] = generation;
	state->status.workers++;
}

static void remember_model(struct kvw_state *state, const uint8_t *bytes, size_t len)
{
	struct model_record record;

	if (len <= sizeof(record))
		return;
	memcpy(&record, bytes, sizeof(record));
	kvw_fleet_remember_model(state->fleet,
		(struct kvw_slice){(const char *)bytes + sizeof(record), len - sizeof(record)},
		record.units_per_token_q16);
}

/* Reads the next record of a kind from `first` to `last`. */
static bool next_of(struct kvw_state *state, enum kvw_keep_kind first, enum kvw_keep_kind last,
	enum kvw_keep_kind *kind, const uint8_t **record, size_t *len)
{
	if (state->reader == NULL)
		return false;
	if (atomic_load(&state->read_no_more))
		return false;
	if (state->until_ns != 0 && ++state->recalled % LOOK_EACH == 0 &&
		kvw_clock_ns() > state->until_ns) {
		kvw_warn("state",
			"the rest of the snapshot is left out: recalling it takes too long "
			"records=%u",
			state->recalled);
		kvw_state_close_reader(state);
		return false;
	}
	if (!state->held &&
		(state->over || kvw_state_read(state->reader, &state->held_kind,
					&state->held_record, &state->held_len) != KVW_OK)) {
		state->over = true;
		if (!state->aside)
			kvw_state_close_reader(state);
		return false;
	}
	state->held = true;
	if (state->held_kind < first || state->held_kind > last)
		return false;
	state->held = false;
	*kind = state->held_kind;
	*record = state->held_record;
	*len = state->held_len;
	return true;
}

/* Reads workers and models, which are the first records. */
static void read_front(struct kvw_state *state, uint64_t bytes)
{
	enum kvw_keep_kind kind;
	const uint8_t *record;
	size_t len;

	while (next_of(state, KVW_KEPT_WORKER, KVW_KEPT_MODEL, &kind, &record, &len))
		if (kind == KVW_KEPT_WORKER)
			expect_worker(state, record, len);
		else
			remember_model(state, record, len);
	kvw_info("state", "snapshot read file=%s bytes=%llu age_s=%lld workers=%u", state->from,
		(unsigned long long)bytes,
		(long long)(kvw_clock_wall_ns() / KVW_NS_PER_S - state->status.written_ms / 1000),
		state->status.workers);
}

static bool is_of_strategy(enum kvw_keep_kind kind)
{
	return kind >= KVW_KEPT_FIRST_OF_STRATEGY && kind <= KVW_KEPT_LAST_OF_STRATEGY;
}

/* Like kvw_state_read_all, but also notes where the strategy's records begin and end. */
static enum kvw_err check_all(struct kvw_state *state, int fd, uint64_t most)
{
	struct kvw_state_reader *reader = state->reader;
	enum kvw_err err = kvw_state_read_begin(reader, fd, most);
	enum kvw_keep_kind kind = KVW_KEPT_END;
	const uint8_t *record;
	size_t len;

	while (err == KVW_OK) {
		err = kvw_state_read(reader, &kind, &record, &len);
		if (err != KVW_OK)
			break;
		if (is_of_strategy(kind) && state->of_strategy.bytes == 0)
			state->of_strategy = reader->place;
		else if (!is_of_strategy(kind) && state->of_strategy.bytes > 0 &&
			 state->of_rest.bytes == 0)
			state->of_rest = reader->place;
	}
	state->nodes = reader->summary.sections[KVW_KEPT_NODE].records;
	return err == KVW_ECLOSED ? KVW_OK : err;
}

/* Checks the whole snapshot; then reading starts again from its begin. */
static void open_whole(struct kvw_state *state, int fd, uint64_t most)
{
	enum kvw_err err = check_all(state, fd, most);
	uint64_t bytes = state->reader->summary.bytes;

	/* If the file is not a snapshot, it is never replaced by one. */
	state->barred =
		err == KVW_EPROTO && !state->reader->ours && state->reader->summary.bytes > 0;
	if (err == KVW_OK && lseek(fd, 0, SEEK_SET) == 0)
		err = kvw_state_read_begin(state->reader, fd, most);
	if (err != KVW_OK) {
		refuse_snapshot(state, state->reader->why);
		kvw_state_close_reader(state);
		return;
	}
	state->status.recalled = KVW_STATE_OK;
	state->status.written_ms = state->reader->summary.written_ms;
	read_front(state, bytes);
}

/* Opens the memory file that the former process has handed over. It cannot change any more, and the
 * former process has checked it by the same function. */
static enum kvw_err open_handed(struct kvw_state *state, const struct kvw_config *config, int fd)
{
	state->from = "handed-over";
	state->reader = malloc(sizeof(*state->reader));
	if (state->reader == NULL || lseek(fd, 0, SEEK_SET) != 0) {
		close(fd);
		free(state->reader);
		state->reader = NULL;
		return KVW_ENOMEM;
	}
	state->reader->fd = fd;
	open_whole(state, fd, config->state_max_bytes);
	state->barred = false;
	return KVW_OK;
}

enum kvw_err kvw_state_open(struct kvw_state *state, const struct kvw_config *config, int handed)
{
	enum kvw_err err;
	int fd;

	if (handed >= 0) {
		err = open_handed(state, config, handed);
		if (err != KVW_OK || state->reader != NULL)
			return err;
	}
	state->from = state->path;
	if (state->path[0] == '\0')
		return KVW_OK;
	err = kvw_state_file_open(state->path, config->state_max_bytes, &fd, state->status.why);
	if (err == KVW_ENOTFOUND) {
		kvw_info("state", "no snapshot yet, kvway starts cold file=%s", state->path);
		return KVW_OK;
	}
	if (err != KVW_OK) {
		state->barred = err == KVW_EINVAL;
		refuse_snapshot(state, state->status.why);
		return KVW_OK;
	}
	state->reader = malloc(sizeof(*state->reader));
	if (state->reader == NULL) {
		close(fd);
		return KVW_ENOMEM;
	}
	state->reader->fd = fd;
	open_whole(state, fd, config->state_max_bytes);
	return KVW_OK;
}

static bool next_of_strategy(
	void *arg, enum kvw_keep_kind *kind, const uint8_t **record, size_t *len)
{
	return next_of(
		arg, KVW_KEPT_FIRST_OF_STRATEGY, KVW_KEPT_LAST_OF_STRATEGY, kind, record, len);
}

static bool next_of_rest(void *arg, enum kvw_keep_kind *kind, const uint8_t **record, size_t *len)
{
	return next_of(arg, KVW_KEPT_WORKER, KVW_KEPT_KINDS, kind, record, len);
}

static struct kvw_keep_in keep_in(struct kvw_state *state)
{
	int64_t passed_ns = kvw_clock_wall_ns() - state->status.written_ms * KVW_NS_PER_MS;

	return (struct kvw_keep_in){.arg = state,
		.workers = state->workers,
		.generations = state->generations,
		.now_ns = kvw_clock_ns(),
		.passed_ns = passed_ns > 0 ? passed_ns : 0};
}

void kvw_state_recall(struct kvw_state *state)
{
	struct kvw_strategy *strategy = state->fleet->strategy;
	const struct kvw_strategy_ops *ops = strategy->ops;
	struct kvw_keep_in in = keep_in(state);
	enum kvw_keep_kind kind;
	const uint8_t *record;
	size_t len;

	/* In a takeover this process has time until until_ns, because the former one serves in the
	 * meantime. */
	state->aside = state->nodes > KVW_STATE_AT_ONCE && state->until_ns == 0 &&
		       state->reader != NULL && ops->recall_aside != NULL &&
		       ops->recall_aside(strategy) == KVW_OK;
	if (state->aside) {
		state->read_for = state->fleet->settings;
		kvw_settings_ref(state->read_for);
		return;
	}
	in.next = next_of_strategy;
	if (ops->recall != NULL)
		ops->recall(strategy, &in);
	/* Skips records that the strategy did not read. */
	while (next_of_strategy(state, &kind, &record, &len))
		;
}

/* Reads the strategy's next record, with pauses in between. */
static bool next_aside(void *arg, enum kvw_keep_kind *kind, const uint8_t **record, size_t *len)
{
	const struct timespec pause = {.tv_nsec = KVW_STATE_PAUSE_NS};
	struct kvw_state *state = arg;

	if (state->reader != NULL &&
		state->reader->summary.bytes - state->read_paused_at >= KVW_STATE_PAUSE_BYTES) {
		state->read_paused_at = state->reader->summary.bytes;
		(void)nanosleep(&pause, NULL);
	}
	return next_of_strategy(state, kind, record, len);
}

static void *recall_aside(void *arg)
{
	struct kvw_state *state = arg;
	struct kvw_strategy *strategy = state->read_for->strategy;
	struct kvw_keep_in in = keep_in(state);
	int64_t begun_ns = kvw_clock_ns();

	(void)setpriority(PRIO_PROCESS, (id_t)gettid(), NICE);
	in.next = next_aside;
	strategy->ops->recall(strategy, &in);
	kvw_state_close_reader(state);
	kvw_settings_unref(state->read_for);
	state->read_for = NULL;
	if (!atomic_load(&state->read_no_more))
		kvw_info("state", "recalled while requests were served nodes=%llu ms=%lld",
			(unsigned long long)state->nodes,
			(long long)((kvw_clock_ns() - begun_ns) / KVW_NS_PER_MS));
	atomic_store(&state->status.recalling, false);
	return NULL;
}

static bool go_to(struct kvw_state *state, const struct kvw_state_place *place)
{
	state->held = false;
	state->over = place->bytes == 0 || kvw_state_read_at(state->reader, place) != KVW_OK;
	return !state->over;
}

/* If the records cannot be read, the strategy is called at once, and gets none. */
static void begin_aside(struct kvw_state *state)
{
	(void)go_to(state, &state->of_strategy);
	state->read_paused_at = state->of_strategy.bytes;
	atomic_store(&state->status.recalling, true);
	state->reads_started = kvw_state_start_thread(&state->reads, recall_aside, state);
	if (!state->reads_started)
		(void)recall_aside(state);
}

/* Drops data about workers whose slot has another worker since kvw_state_create, or that were
 * restarted and so lost their caches. */
static void drop_others(struct kvw_state *state)
{
	for (size_t i = 0; i < KVW_MAX_WORKERS; i++) {
		uint32_t slot = state->workers[i];

		if (slot < KVW_MAX_WORKERS &&
			atomic_load(&state->fleet->workers[slot]->generation) !=
				state->generations[slot])
			state->workers[i] = KVW_KEPT_GONE;
	}
}

void kvw_state_recall_part(struct kvw_state *state, const struct kvw_state_part *part)
{
	struct kvw_keep_in in = keep_in(state);

	drop_others(state);
	in.next = next_of_rest;
	state->part = *part;
	if (!state->aside || go_to(state, &state->of_rest)) /* past the strategy's records */
		part->recall(part->arg, &in);
	if (state->aside)
		begin_aside(state);
	else
		kvw_state_close_reader(state);
}

void kvw_state_recall_no_more(struct kvw_state *state)
{
	atomic_store(&state->read_no_more, true);
	if (state->reads_started)
		(void)pthread_join(state->reads, NULL);
	if (state->read_for != NULL) /* it was never begun */
		kvw_settings_unref(state->read_for);
}
