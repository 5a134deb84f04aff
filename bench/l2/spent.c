/*
 * spent.c - clocks of a measurement, and how a program of this folder gives up.
 */
#include "bench/l2/spent.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "bench/load/proc.h"

static double process_seconds(void)
{
	return (double)kvb_read_ns(CLOCK_PROCESS_CPUTIME_ID) * 1e-9;
}

static double server_seconds(int pid)
{
	uint64_t ns = 0;

	if (pid > 0 && kvb_proc_cpu_ns(pid, &ns) != KVW_OK)
		kvb_fail("the server with pid %d is gone", pid);
	return (double)ns * 1e-9;
}

void kvb_spent_begin(struct kvb_spent *s, int server_pid)
{
	s->server_cpu = server_seconds(server_pid);
	s->cpu_seconds = process_seconds();
	s->seconds = kvb_seconds();
}

void kvb_spent_end(struct kvb_spent *s, int server_pid)
{
	s->seconds = kvb_seconds() - s->seconds;
	s->cpu_seconds = process_seconds() - s->cpu_seconds;
	s->server_cpu = server_seconds(server_pid) - s->server_cpu;
}

void kvb_fail(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	(void)vfprintf(stderr, format, args);
	va_end(args);
	(void)fputc('\n', stderr);
	exit(1);
}

void *kvb_memory(uint64_t bytes)
{
	char *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (at == MAP_FAILED)
		kvb_fail("no memory for %llu bytes", (unsigned long long)bytes);
	(void)madvise(at, bytes, MADV_HUGEPAGE);
	memset(at, 0, bytes);
	return at;
}

void kvb_pattern(void *to, uint64_t bytes, uint64_t number)
{
	uint64_t x = (number + 1) * UINT64_C(0x9e3779b97f4a7c15);

	for (uint64_t i = 0; i + 8 <= bytes; i += 8) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		memcpy((char *)to + i, &x, 8);
	}
}

struct kvt_key kvb_key(uint64_t number)
{
	struct kvt_key key;

	for (size_t i = 0; i < sizeof(key.bytes); i += 8) {
		uint64_t word = (number + i + 1) * UINT64_C(0x9e3779b97f4a7c15);

		memcpy(key.bytes + i, &word, 8);
	}
	return key;
}
