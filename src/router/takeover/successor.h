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
	char program[PATH_MAX]; /* path of its program; "": not known */
	char *const *argv;      /* ends with NULL */
};

/* Notes how this process was started. Called at the start, before the file is replaced. */
void kvw_successor_init(struct kvw_successor *successor, char *const *argv);

/* Starts the program with the same arguments and `--takeover fd:N`. The caller owns *channel, the
 * other end of N, and waits for *pid. KVW_EIO, KVW_ENOMEM: the program does not start, and the
 * cause is logged. */
enum kvw_err kvw_successor_start(
	const struct kvw_successor *successor, pid_t *pid, int *channel) KVW_MUST_CHECK;

#endif
