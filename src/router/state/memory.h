/*
 * memory.h - records in memory for another process: a snapshot in a sealed memory file, which no
 * process can change.
 *
 * The format is that of state.file (format.h), so damage is found in the same way, and a snapshot
 * is refused as a whole.
 *
 * Threads: any; no state is shared.
 */
#ifndef KVW_STATE_MEMORY_H
#define KVW_STATE_MEMORY_H

#include "state/format.h"

/* A memory file that can be written, and sealed. -1: errno says why. */
int kvw_state_memory_open(const char *name);
/* Seals the file against changes. False: errno. */
bool kvw_state_memory_seal(int fd) KVW_MUST_CHECK;

/* Gives records away, as a part of kvway does that is kept. */
typedef enum kvw_err kvw_state_keep_fn(void *arg, const struct kvw_keep_out *out);

/* Writes all records that keep gives away, at most `most` bytes. *fd is the caller's. Any error:
 * there is no file, and why says the reason. */
enum kvw_err kvw_state_memory_write(const char *name, kvw_state_keep_fn *keep, void *arg,
	uint64_t most, int *fd, char why[KVW_STATE_WHY]) KVW_MUST_CHECK;

/* Reads and checks all of fd, then begins at its first record again. Takes fd. The reader is for
 * kvw_state_memory_close. KVW_ENOMEM, else as kvw_state_read: why says the reason. */
enum kvw_err kvw_state_memory_read_take(int fd, uint64_t most, struct kvw_state_reader **out,
	char why[KVW_STATE_WHY]) KVW_MUST_CHECK;
void kvw_state_memory_close(struct kvw_state_reader *reader); /* NULL is allowed */

#endif
