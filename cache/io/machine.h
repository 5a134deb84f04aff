/*
 * machine.h - the machine's own files, as an I/O layer of kvtier_io.h.
 *
 * A folder of flat files: created with mode 0700 if missing, files with 0600, symbolic links are
 * never followed. One more file, KVT_IO_LOCK_NAME, carries the lock and its owner's pid; list leaves
 * it out.
 *
 * Modes. "uring": io_uring with the caller's memory registered, which is done where all of it is
 * present (locked, say) and RLIMIT_MEMLOCK allows it. "uring-plain": io_uring without.
 * "threads": pread and pwrite in up to 32 threads. "auto" takes the first that can be had, asking
 * for "uring" fails with KVT_ENOTSUP where io_uring cannot be had, anything else is KVT_EINVAL. What
 * became of it, and why, is in mode().
 *
 * O_DIRECT. That an open with O_DIRECT succeeds proves nothing: overlayfs and tmpfs accept it and
 * mean nothing by it. A file counts as direct if the kernel names its alignment (STATX_DIOALIGN), or
 * is too old to do so and the file system is one that is known to mean it.
 *
 * What is durable. A SYNC makes a file's data and length durable; sync_folder does so for names and
 * for lengths that were changed by reserve and truncate since.
 *
 * Operations: a transfer that the kernel cut short goes on by itself until it is whole, fails, or
 * meets the end of the file; only the last gives a short result.
 */
#ifndef KVT_MACHINE_H
#define KVT_MACHINE_H

#include "kvtier/kvtier_io.h"

#define KVT_IO_LOCK_NAME "lock"

/* Stateless; the folder is the layer's only argument. Any thread. */
struct kvt_io_layer kvt_io_machine(void);

#endif
