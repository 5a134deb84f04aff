/*
 * state.h - the snapshot of a running router: read before it serves, written every state.interval
 * and at its end.
 *
 * A snapshot has, in this order: workers (URL, process_start_time_seconds, id), bytes per token of
 * models, what the strategy gives away, what the proxy does. A worker without a known start is left
 * out: that it is the same process could not be proved. Reading checks the whole snapshot before it
 * uses any of it.
 *
 * A large prefix tree is recalled by a thread of its own while requests are served already, which
 * until then find what was learned since the start (kvw_strategy_ops.recall_aside). Until it is
 * there no snapshot is written: that would have less than the file.
 *
 * A thread of its own writes. The control thread gives it what only that thread may read, and a
 * reference on the settings in force, so that the strategy lives as long as it is read; all else is
 * read as loops read it.
 *
 * Whatever goes wrong costs warmth alone: it is logged, counted, and shown on /health.
 *
 * Threads: create, recall, start and stop by the one that starts kvway; tick by the control thread;
 * the status is read by any.
 */
#ifndef KVW_STATE_H
#define KVW_STATE_H

#include <stdatomic.h>

#include "fleet/fleet.h"
#include "state/format.h"

/* The writing thread pauses for this long after this many bytes. */
#define KVW_STATE_PAUSE_BYTES (UINT64_C(1) << 20)
#define KVW_STATE_PAUSE_NS    500000

/* A snapshot with more nodes of the tree than this is recalled while requests are served. */
#define KVW_STATE_AT_ONCE 100000

struct kvw_state;

enum kvw_state_recalled {
	KVW_STATE_NONE,    /* there was no snapshot */
	KVW_STATE_OK,      /* it was read */
	KVW_STATE_REFUSED, /* it was damaged, foreign or not this user's */
};

/* For metrics and /health. */
struct kvw_state_status {
	/* Fixed before another thread is there. */
	enum kvw_state_recalled recalled;
	char why[KVW_STATE_WHY]; /* REFUSED: the reason */
	int64_t written_ms;      /* OK: when it was written, since 1970 */
	uint32_t workers;        /* OK: those whose knowledge was recalled */

	_Atomic bool recalling;       /* the rest of the snapshot, while requests are served */
	/* Snapshots since start; skipped: the one before was not done. */
	_Atomic uint64_t written, failed, skipped;
	_Atomic bool last_failed;
	_Atomic uint64_t bytes;       /* of the last one written */
	_Atomic uint64_t duration_ns; /* that it took */
	_Atomic int64_t written_s;    /* when it was done, since 1970; 0: none yet */
};

/* The proxy's part of a snapshot. */
struct kvw_state_part {
	enum kvw_err (*keep)(void *arg, const struct kvw_keep_out *out);
	void (*recall)(void *arg, const struct kvw_keep_in *in);
	void *arg;
};

/* Reads and checks the snapshot that the kvway before has handed over (handed; -1: none), else the
 * file of state.file, if there is one, and prepares the fleet for the workers in it. A fault in the
 * snapshot is no error. Takes handed. Records that are not recalled at until_ns never are; 0: no
 * limit. KVW_ENOMEM. */
enum kvw_err kvw_state_create(const struct kvw_config *config, struct kvw_fleet *fleet, int handed,
	int64_t until_ns, struct kvw_state **out) KVW_MUST_CHECK;
/* Gives the strategy in force its records. Before any other thread uses the strategy. */
void kvw_state_recall(struct kvw_state *state);
/* Gives the part the remaining records and closes the file, or begins a thread that recalls large
 * records. Before the loops serve. Later snapshots include the part; borrowed until
 * kvw_state_stop. */
void kvw_state_recall_part(struct kvw_state *state, const struct kvw_state_part *part);
/* Starts the thread that writes. */
enum kvw_err kvw_state_start(struct kvw_state *state) KVW_MUST_CHECK;
/* The control thread, every second or so: begins a snapshot when it is time. */
void kvw_state_tick(struct kvw_state *state, int64_t now_ns);
/* While it rests no snapshot is begun, nor written at the end: another process has the file.
 * Any thread. */
void kvw_state_rest(struct kvw_state *state, bool rests);
/* Is there a state.file? Without one the snapshot is handed over in an upgrade, and no more. */
bool kvw_state_has_file(const struct kvw_state *state);

/* A snapshot for the process that takes over, from the next kvw_state_tick on. The main thread. */
void kvw_state_prepare(struct kvw_state *state);
/* True: it is done; *fd is the caller's, of a sealed memory file, or -1: it failed.
 * The main thread. */
bool kvw_state_prepared(struct kvw_state *state, int *fd) KVW_MUST_CHECK;

/* Ends the thread. If it was started, and does not rest, a last snapshot is written: no other
 * thread may use the fleet any more, and the part is there still. Frees all. NULL is allowed. */
void kvw_state_stop(struct kvw_state *state);

const struct kvw_state_status *kvw_state_status(const struct kvw_state *state);

#endif
