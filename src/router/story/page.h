/*
 * page.h - prints the trace of one request as text.
 */
#ifndef KVW_STORY_PAGE_H
#define KVW_STORY_PAGE_H

#include <jansson.h>
#include <stdio.h>

/* request is a line of GET /trace. */
void kvw_story_print(const json_t *request, FILE *out);

#endif
