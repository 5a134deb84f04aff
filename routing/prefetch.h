/*
 * prefetch.h - asking for a cache line that is about to be written.
 *
 * Of lines that all loops write (locks, loads, views) another processor mostly has the newest copy.
 * A lock waits for such a line and lets nothing else go on meanwhile, so it is asked for as soon as
 * it is known which one it will be. On x86-64 that takes an instruction which compilers give for
 * __builtin_prefetch(p, 1) only if they may assume that the processor has it; older processors
 * execute it as a no-op.
 */
#ifndef KVW_PREFETCH_H
#define KVW_PREFETCH_H

static inline void kvw_prefetch_write(const void *p)
{
#if defined(__x86_64__)
	__asm__ __volatile__("prefetchw %0" : : "m"(*(const char *)p));
#else
	__builtin_prefetch(p, 1);
#endif
}

#endif
