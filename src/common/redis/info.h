/*
 * info.h - reads a server's reply to INFO, lines of "name:value". Pure functions.
 */
#ifndef KVW_REDIS_INFO_H
#define KVW_REDIS_INFO_H

#include <stdbool.h>
#include <stddef.h>

/* Copies the value of a field, cut to `room`. Returns false if there is no such field; then *out is
 * not changed. */
bool kvw_redis_info_field(const char *info, const char *name, char *out, size_t room);

/* Writes the server's product and version, such as "redis 7.0.15" or "valkey 8.0.1"; only "redis"
 * if the reply does not have them. */
void kvw_redis_info_product(const char *info, char *out, size_t room);

#endif
