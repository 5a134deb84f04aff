/*
 * successor.h - a running kvway starts the program that is installed now, which takes over from it.
 *
 * Threads: the main thread.
 */
#ifndef KVW_TAKEOVER_SUCCESSOR_H
#define KVW_TAKEOVER_SUCCESSOR_H

#include <limits.h>
#include <sys/types.h>

#include "kvway/err.h"

/* How this process was started. Borrowed texts. */
struct kvw_successor {
	char program[PATH_MAX]; /* its file; "": not known */
	char *const *argv;      /* ends with NULL */
};

/* At the start, before the file is replaced. */
void kvw_successor_init(struct kvw_successor *successor, char *const *argv);

/* Starts the program of that file with the same arguments and `--takeover fd:N`. *channel is the
 * other end of N, the caller's; *pid is to be waited for. KVW_EIO, KVW_ENOMEM: it does not start,
 * which is logged. */
enum kvw_err kvw_successor_start(
	const struct kvw_successor *successor, pid_t *pid, int *channel) KVW_MUST_CHECK;

#endif
