/*
 * state_internal.h - what recall.c, which reads a snapshot, and state.c, which writes it, share.
 */
#ifndef KVW_STATE_INTERNAL_H
#define KVW_STATE_INTERNAL_H

#include <pthread.h>

#include "state/state.h"

/* A worker; its URL follows. */
struct worker_record {
	double started_s;
	uint32_t id;
	uint32_t unused;
};

/* A model; its name follows. */
struct model_record {
	uint32_t units_per_token_q16;
};

/* Records that the control thread passes to the writing thread, each after its kind and length. */
struct gathered {
	struct kvw_settings *settings; /* a reference; NULL: there is none */
	uint8_t *bytes;
	size_t len, room;
	bool failed; /* out of memory */
};

struct gathered_head {
	uint32_t kind, len;
};

/* How far the snapshot for the process that takes over has come. */
enum heir { HEIR_NONE, HEIR_ASKED, HEIR_WRITTEN, HEIR_READY };

struct kvw_state {
	struct kvw_fleet *fleet;
	const char *path; /* from the configuration at the start; "": there is no file */
	const char *from; /* for messages, the source of the snapshot: the path, or a word */
	struct kvw_state_part part;
	struct kvw_state_status status;
	/* Used by the control thread. last_ns: when a snapshot was begun last, or kvway started. */
	int64_t begun_ns, last_ns;
	bool expecting;            /* likewise */
	bool barred;               /* the file is no snapshot of kvway, so it is never replaced */

	/* Set while a snapshot is being read; NULL: there is none. */
	struct kvw_state_reader *reader;
	uint32_t workers[KVW_MAX_WORKERS], generations[KVW_MAX_WORKERS];
	bool held; /* a record was read that the part that asked for it does not want */
	enum kvw_keep_kind held_kind;
	const uint8_t *held_record;
	size_t held_len;
	int64_t until_ns; /* after this time nothing more is read; 0: no limit */
	uint32_t recalled; /* records */
	struct kvw_state_place of_strategy, of_rest; /* where these records begin */
	uint64_t nodes;                              /* of the prefix tree */

	/* The members below are about the strategy's records while requests are served. */
	bool aside; /* the strategy's records are to be read while requests are served */
	bool over;                      /* there is nothing more to read */
	pthread_t reads;
	bool reads_started;
	/* a reference, so that the strategy exists until its records are read */
	struct kvw_settings *read_for;
	_Atomic bool read_no_more;
	uint64_t read_paused_at;        /* number of bytes read before the last pause */

	pthread_t thread;
	_Atomic bool started;
	pthread_mutex_t lock; /* guards the next five */
	pthread_cond_t changed;
	bool ending;
	bool wanted; /* a snapshot is to be written, or is being written ... */
	bool for_heir; /* ... for the process that takes over */
	struct gathered gathered;

	struct kvw_state_writer *writer; /* owned; used by the writing thread only */
	uint64_t paused_at;              /* number of bytes written before the last pause */
	_Atomic bool hurries;            /* set when kvway ends: the thread writes without pauses */
	_Atomic bool rests;              /* the file is another process's */

	_Atomic int heir; /* enum heir */
	int heir_fd;      /* HEIR_READY: of its snapshot, or -1 */
};

/* Reads and checks a snapshot: the one that was handed over (taken; -1: none), else the file.
 * KVW_ENOMEM. */
enum kvw_err kvw_state_open(
	struct kvw_state *state, const struct kvw_config *config, int handed) KVW_MUST_CHECK;
void kvw_state_close_reader(struct kvw_state *state);
/* Ends a thread that recalls. */
void kvw_state_recall_no_more(struct kvw_state *state);
/* Starts a thread in which signals, which the main thread handles, are blocked. */
bool kvw_state_start_thread(
	pthread_t *thread, void *(*run)(void *), struct kvw_state *state) KVW_MUST_CHECK;

#endif
