/*
 * info.h - reads a server's reply to INFO, lines of "name:value". Pure functions.
 */
#ifndef KVW_REDIS_INFO_H
#define KVW_REDIS_INFO_H

#include <stdbool.h>
#include <stddef.h>

/* The value of a field, cut to room. False: there is none, and *out is untouched. */
bool kvw_redis_info_field(const char *info, const char *name, char *out, size_t room);

/* "redis 7.0.15", "valkey 8.0.1"; "redis" if the reply does not name it. */
void kvw_redis_info_product(const char *info, char *out, size_t room);

#endif
