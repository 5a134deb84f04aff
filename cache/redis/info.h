/*
 * info.h - what a server says of itself: the reply of INFO, lines of "name:value". Pure functions.
 */
#ifndef KVT_INFO_H
#define KVT_INFO_H

#include <stdbool.h>
#include <stddef.h>

/* The value of a field, cut to room. False: there is none, and *out is untouched. */
bool kvt_info_field(const char *info, const char *name, char *out, size_t room);

/* "redis 7.0.15", "valkey 8.0.1"; "redis" if it does not say. */
void kvt_info_product(const char *info, char *out, size_t room);

#endif
