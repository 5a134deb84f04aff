/*
 * prefetch.h - prefetches a cache line that is about to be written.
 *
 * Lines that all loops write (locks, loads, views) are mostly in another processor's cache. A lock
 * stalls until such a line has arrived, so callers prefetch the line as soon as they know it. On
 * x86-64 that takes an instruction which compilers emit for __builtin_prefetch(p, 1) only if they
 * may assume that the processor has it; older processors execute it as a no-op.
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
