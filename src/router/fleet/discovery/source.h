/*
 * source.h - the interface of a discovery source, which lists workers.
 *
 * A source watches one origin (a file, names of the DNS) and reports its whole list at each change.
 * A source decides nothing: its caller joins the lists of all sources and `workers`, and finds new
 * and removed workers. A source is one file with one `struct kvw_source_ops` and one line in
 * sources.def.
 *
 * Threads: everything here belongs to the thread of the base. A source never blocks on the network;
 * it may read a local file.
 */
#ifndef KVW_SOURCE_H
#define KVW_SOURCE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/config.h"
#include "kvway/err.h"

struct event_base;
struct kvw_source_ops;

/* Base of every source: an implementation embeds it as its first member. */
struct kvw_source {
	const struct kvw_source_ops *ops; /* static, never NULL */
};

/*
 * Called with a source's list. why NULL: the whole list, for the first time or because it changed;
 * `workers` are complete (defaults filled, each URL canonical and listed once) and borrowed during
 * the call. count 0: the list is empty. partial: a part of the source cannot be read now; its
 * former workers stay in the list. why set: the list cannot be read now; workers is NULL and count
 * 0, and the former list stays in force. Called once for each series of failures of one cause; the
 * source has logged it and tries again by itself. The text is for a metric or a page, in one line.
 * Must not stop the source.
 */
typedef void kvw_source_found_fn(void *arg, const struct kvw_source_ops *source,
	const struct kvw_worker_config *workers, size_t count, bool partial, const char *why);

#define KVW_SOURCE_ERRORS 16

/* A part of a source that has its own requests, for metrics. Any thread may read it. Times are of
 * kvw_clock_ns. */
struct kvw_source_part {
	char name[128];                              /* fixed */
	_Atomic int64_t event_ns;                    /* time of the last event, or of the start */
	/* Time of the source's last complete list, or of the start. */
	_Atomic int64_t list_ns;
	_Atomic int64_t failing_since_ns; /* time since which it cannot be read; 0: it can */
	/* number of errors by kind; error_name has the kinds */
	_Atomic uint64_t errors[KVW_SOURCE_ERRORS];
};

struct kvw_source_ops {
	const char *name; /* "file", "dns": for logs and metrics */

	/* Returns whether the configuration uses this source. */
	bool (*configured)(const struct kvw_config *config);

	/*
	 * Starts the source; called only if it is configured. `config` is borrowed during the call.
	 * `found` may be called before this returns, and later from the loop. A source that finds
	 * nothing yet does not fail. KVW_ENOMEM, or KVW_EIO with the cause in the log.
	 */
	enum kvw_err (*start)(struct event_base *base, const struct kvw_config *config,
		kvw_source_found_fn *found, void *arg, struct kvw_source **out) KVW_MUST_CHECK;

	/* Stops a source; `found` is not called any more. Must not be called from `found`. NULL is
	 * allowed. */
	void (*stop)(struct kvw_source *source);

	/* Returns the source's parts, and the names of their errors by kind, with NULL at the end.
	 * The parts live as long as the source. Both members NULL: the source has no parts. Any
	 * thread. */
	size_t (*parts)(const struct kvw_source *source, const struct kvw_source_part **out);
	const char *(*error_name)(size_t kind);
};

/* All sources of sources.def, NULL at the end. */
extern const struct kvw_source_ops *const kvw_sources[];

#define KVW_SOURCE(name) extern const struct kvw_source_ops kvw_source_##name;
#include "fleet/discovery/sources.def"

#endif
