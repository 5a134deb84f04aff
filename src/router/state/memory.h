/*
 * memory.h - hands records to another process: as a snapshot in a sealed memory file, which no
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

/* Creates a memory file, which can be written and sealed. -1: errno has the reason. */
int kvw_state_memory_open(const char *name);
/* Seals the file against changes. Returns false on failure, with errno. */
bool kvw_state_memory_seal(int fd) KVW_MUST_CHECK;

/* Passes records to `out`, as each part of kvway does whose data is kept. */
typedef enum kvw_err kvw_state_keep_fn(void *arg, const struct kvw_keep_out *out);

/* Writes all records that `keep` passes, at most `most` bytes. *fd belongs to the caller. After an
 * error there is no file, and `why` has the reason. */
enum kvw_err kvw_state_memory_write(const char *name, kvw_state_keep_fn *keep, void *arg,
	uint64_t most, int *fd, char why[KVW_STATE_WHY]) KVW_MUST_CHECK;

/* Reads and checks all of fd, then begins again at its first record. Takes over fd. The reader must
 * be passed to kvw_state_memory_close. KVW_ENOMEM, or errors of kvw_state_read; `why` has the
 * reason. */
enum kvw_err kvw_state_memory_read_take(int fd, uint64_t most, struct kvw_state_reader **out,
	char why[KVW_STATE_WHY]) KVW_MUST_CHECK;
void kvw_state_memory_close(struct kvw_state_reader *reader); /* NULL is allowed */

#endif
