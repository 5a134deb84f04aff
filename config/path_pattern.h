/*
 * path_pattern.h - patterns for paths of requests in the configuration: `/v1/models`, or
 * `/v1/responses/` and a star for every path below that.
 *
 * A pattern is compared with a request's path as a careless server might read it
 * (src/router/openai/api_path.h). That reading is limited in the number of segments and their
 * length, so patterns are limited in the same way.
 */
#ifndef KVW_CONFIG_PATH_PATTERN_H
#define KVW_CONFIG_PATH_PATTERN_H

#include <stdbool.h>

#define KVW_PATTERN_SEGMENT  32 /* bytes of one */
#define KVW_PATTERN_SEGMENTS 6

#define KVW_PATTERN_EXPECTED                                                                       \
	"a path of at most 6 segments of at most 32 bytes each, such as `/v1/chat/completions`, or "  \
	"`/v1/responses/*` for all below one"

bool kvw_path_pattern_good(const char *text);

#endif
