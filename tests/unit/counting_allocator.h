/*
 * counting_allocator.h - malloc and calloc that fail from one call on, and a count of what is not
 * freed.
 *
 * The linker sends the program's calls here: it must wrap malloc, calloc and free (-Wl,--wrap). A
 * test program includes this in one file. Its other wrappers ask may_allocate, too, and count in
 * `live` what is freed like a block.
 */
#ifndef TESTS_UNIT_COUNTING_ALLOCATOR_H
#define TESTS_UNIT_COUNTING_ALLOCATOR_H

#include <stdbool.h>
#include <stddef.h>

static long allowed = -1; /* allocations until failure; below 0: no limit */
static long live;         /* blocks in use that were allocated while `counting` */
static bool counting;

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void __real_free(void *block);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void __wrap_free(void *block);

static bool may_allocate(void)
{
	if (!counting || allowed < 0)
		return true;
	return allowed-- > 0;
}

void *__wrap_malloc(size_t size)
{
	void *block = may_allocate() ? __real_malloc(size) : NULL;

	live += counting && block != NULL;
	return block;
}

void *__wrap_calloc(size_t count, size_t size)
{
	void *block = may_allocate() ? __real_calloc(count, size) : NULL;

	live += counting && block != NULL;
	return block;
}

void __wrap_free(void *block)
{
	live -= counting && block != NULL;
	__real_free(block);
}

/* --- libyaml; where yaml.h is included before --- */

#ifdef YAML_H
int __real_yaml_parser_initialize(yaml_parser_t *parser);
int __real_yaml_parser_parse(yaml_parser_t *parser, yaml_event_t *event);
int __wrap_yaml_parser_initialize(yaml_parser_t *parser);
int __wrap_yaml_parser_parse(yaml_parser_t *parser, yaml_event_t *event);

int __wrap_yaml_parser_initialize(yaml_parser_t *parser)
{
	return may_allocate() ? __real_yaml_parser_initialize(parser) : 0;
}

int __wrap_yaml_parser_parse(yaml_parser_t *parser, yaml_event_t *event)
{
	if (may_allocate())
		return __real_yaml_parser_parse(parser, event);
	parser->error = YAML_MEMORY_ERROR;
	return 0;
}
#endif

#endif
