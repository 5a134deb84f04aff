/*
 * failing_allocator.h - malloc, calloc and realloc that fail when the test program says so.
 *
 * The linker sends the program's calls here: it must wrap all three (-Wl,--wrap). A test program
 * includes this in one file and defines fails(), which is asked before each allocation.
 */
#ifndef TESTS_UNIT_FAILING_ALLOCATOR_H
#define TESTS_UNIT_FAILING_ALLOCATOR_H

#include <stdbool.h>
#include <stddef.h>

static bool fails(void);

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *old, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *old, size_t size);

void *__wrap_malloc(size_t size)
{
	return fails() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
	return fails() ? NULL : __real_calloc(count, size);
}

void *__wrap_realloc(void *old, size_t size)
{
	return fails() ? NULL : __real_realloc(old, size);
}

#endif
