/*
 * state.h - the snapshot of a running router: it is read before kvway serves, and written every
 * state.interval and when kvway ends.
 *
 * A snapshot has, in this order: workers (URL, process_start_time_seconds, id), bytes per token of
 * models, records of the strategy, records of the proxy. A worker whose start is not known is left
 * out, because it could not be proved later that it is the same process. Reading checks the whole
 * snapshot before it uses any of it.
 *
 * A large prefix tree is read by a thread of its own while requests are already served; these use
 * only the tree that was learned since the start (kvw_strategy_ops.recall_aside). Until the tree is
 * complete no snapshot is written, since it would have less than the file.
 *
 * Snapshots are written by another thread. The control thread gives it the data that only the
 * control thread may read, and a reference to the present settings, so that the strategy exists as
 * long as it is read; all other data is read as loops read it.
 *
 * A failure only means that kvway has to learn again where prompts are cached: it is logged,
 * counted, and shown on /health.
 *
 * Threads: create, recall, start and stop are called by the main thread; tick by the control
 * thread; any thread may read the status.
 */
#ifndef KVW_STATE_H
#define KVW_STATE_H

#include <stdatomic.h>

#include "fleet/fleet.h"
#include "state/format.h"

/* After this many bytes the writing thread pauses for this long. */
#define KVW_STATE_PAUSE_BYTES (UINT64_C(1) << 20)
#define KVW_STATE_PAUSE_NS    500000

/* If a snapshot's tree has more nodes than this, it is read while requests are served. */
#define KVW_STATE_AT_ONCE 100000

struct kvw_state;

enum kvw_state_recalled {
	KVW_STATE_NONE,    /* there was no snapshot */
	KVW_STATE_OK,      /* it was read */
	KVW_STATE_REFUSED, /* the snapshot was damaged, of another kind, or not this user's */
};

/* For metrics and /health. */
struct kvw_state_status {
	/* Set before other threads exist. */
	enum kvw_state_recalled recalled;
	char why[KVW_STATE_WHY]; /* REFUSED: the reason */
	int64_t written_ms;      /* OK: when the snapshot was written, since 1970 */
	uint32_t workers;        /* OK: number of workers for which data was used */

	/* the rest of the snapshot is being read while requests are served */
	_Atomic bool recalling;
	/* Numbers of snapshots since the start; skipped: because the one before was still being
	 * written. */
	_Atomic uint64_t written, failed, skipped;
	_Atomic bool last_failed;
	_Atomic uint64_t bytes;       /* length of the last one that was written */
	_Atomic uint64_t duration_ns; /* that it took */
	_Atomic int64_t written_s;    /* when it was written, since 1970; 0: none was */
};

/* The proxy's functions for its part of a snapshot. */
struct kvw_state_part {
	enum kvw_err (*keep)(void *arg, const struct kvw_keep_out *out);
	void (*recall)(void *arg, const struct kvw_keep_in *in);
	void *arg;
};

/* Reads and checks the snapshot that a former process of kvway has handed over in the descriptor
 * `handed` (-1: none), else the file of state.file, if there is one, and prepares the fleet for the
 * workers in it. It is no error if the snapshot has a fault. Takes over `handed`. Records that are
 * not read by until_ns are not used; 0: no limit. KVW_ENOMEM. */
enum kvw_err kvw_state_create(const struct kvw_config *config, struct kvw_fleet *fleet, int handed,
	int64_t until_ns, struct kvw_state **out) KVW_MUST_CHECK;
/* Passes the strategy its records. To be called before any other thread uses the strategy. */
void kvw_state_recall(struct kvw_state *state);
/* Passes the remaining records to the part and closes the file, or starts a thread that reads a
 * large tree. To be called before the loops serve. Later snapshots include the part, which is
 * borrowed until kvw_state_stop. */
void kvw_state_recall_part(struct kvw_state *state, const struct kvw_state_part *part);
/* Starts the thread that writes snapshots. */
enum kvw_err kvw_state_start(struct kvw_state *state) KVW_MUST_CHECK;
/* To be called by the control thread about every second: begins a snapshot when it is time. */
void kvw_state_tick(struct kvw_state *state, int64_t now_ns);
/* While `rests` is set, no snapshot is begun, and none is written at the end, because another
 * process has the file. Any thread. */
void kvw_state_rest(struct kvw_state *state, bool rests);
/* Returns whether there is a state.file. Without one a snapshot is only made to be handed over in a
 * takeover. */
bool kvw_state_has_file(const struct kvw_state *state);

/* Makes the next kvw_state_tick begin a snapshot for the process that takes over. Called by the
 * main thread. */
void kvw_state_prepare(struct kvw_state *state);
/* Returns true if that snapshot is done: then *fd, which belongs to the caller, is a sealed memory
 * file, or -1 on failure. Called by the main thread. */
bool kvw_state_prepared(struct kvw_state *state, int *fd) KVW_MUST_CHECK;

/* Ends the thread and frees everything. If the thread was started, and the state does not rest, a
 * last snapshot is written; then no other thread may use the fleet any more, and the part must
 * still exist. NULL is allowed. */
void kvw_state_stop(struct kvw_state *state);

const struct kvw_state_status *kvw_state_status(const struct kvw_state *state);

#endif
