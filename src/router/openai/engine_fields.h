/*
 * engine_fields.h - members of a body by which a client controls the engine itself: its queue, the
 * source of its KV, the code it runs.
 */
#ifndef KVW_ENGINE_FIELDS_H
#define KVW_ENGINE_FIELDS_H

#include <stdint.h>

#include "kvway/slice.h"

/* All of them, as bits. */
#define KVW_ENGINE_FIELDS_ALL UINT32_MAX

/* Index of the field of that name; UINT32_MAX: none. */
uint32_t kvw_engine_field(const char *name, size_t len);

/* The neutral value, as JSON: the engine behaves as without the member. */
struct kvw_slice kvw_engine_field_default(uint32_t field);

#endif
