/*
 * undumped.h - memory that is in no core dump, for what clients have sent and for private keys.
 *
 * malloc for OpenSSL and JSON, whose documents hold keys, tokens and prompts. A core dump then still shows what
 * debuggers need: stacks and the program's own tables.
 *
 * Blocks have one of some forty sizes and go back to the list of their size, not to the system; each thread keeps a few.
 * Larger ones are the kernel's, one by one. Under a sanitizer all of this is malloc, so that it sees each block.
 *
 * Threads: any, also for blocks of other threads.
 */
#ifndef KVW_UNDUMPED_H
#define KVW_UNDUMPED_H

#include <stdbool.h>
#include <stddef.h>

/* As malloc, realloc (to size 0: as free) and free; aligned to 16 bytes, from 2 KiB on to 64. What is freed is not overwritten. */
void *kvw_undumped_alloc(size_t size);
void *kvw_undumped_realloc(void *block, size_t size);
void kvw_undumped_free(void *block); /* NULL is allowed */

/* Pages, zeroed, in no core dump; size is a multiple of the page's. NULL: out of memory. */
void *kvw_undumped_map(size_t size);
void kvw_undumped_unmap(void *pages, size_t size);

/* Whether this is more than malloc. */
bool kvw_undumped_real(void);

#endif
