/*
 * machine.h - the machine's own files, as an I/O layer of kvtier_io.h.
 *
 * A folder of flat files: created with mode 0700 if missing, files with 0600, symbolic links are never followed.
 * Another file, KVT_IO_LOCK_NAME, carries the lock and its owner's pid; list leaves this file out.
 *
 * Modes. "uring": io_uring with the caller's memory registered, provided that all of it is present (locked, say) and
 * RLIMIT_MEMLOCK allows it. "uring-plain": io_uring without registered memory. "threads": pread and pwrite in up to 32
 * threads. "auto" takes the first available mode, "uring" fails with KVT_ENOTSUP without io_uring, any other text is
 * KVT_EINVAL. mode() has the mode taken, and why.
 *
 * O_DIRECT. A successful open with O_DIRECT proves nothing: overlayfs and tmpfs accept the flag without an effect. A
 * file counts as direct if the kernel names its alignment (STATX_DIOALIGN), or if the kernel is too old to do so and
 * the file system is known to honour O_DIRECT.
 *
 * Durability. A SYNC makes a file's data and length durable; sync_folder does so for names and for lengths that reserve
 * and truncate have changed since.
 *
 * Operations: a transfer that the kernel cut short continues until it is complete, fails, or meets the end of the file;
 * only the last gives a short result.
 */
#ifndef KVT_MACHINE_H
#define KVT_MACHINE_H

#include "kvtier/kvtier_io.h"

#define KVT_IO_LOCK_NAME "lock"

/* Stateless; the folder is the layer's only argument. Any thread. */
struct kvt_io_layer kvt_io_machine(void);

#endif
