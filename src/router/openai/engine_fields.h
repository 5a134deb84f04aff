/*
 * engine_fields.h - members of a body by which a client controls the engine itself: its queue, the
 * source of its KV, the code it runs.
 */
#ifndef KVW_ENGINE_FIELDS_H
#define KVW_ENGINE_FIELDS_H

#include <stdint.h>

#include "kvway/slice.h"

/* All fields, as bits. */
#define KVW_ENGINE_FIELDS_ALL UINT32_MAX

/* Returns the index of the field of that name; UINT32_MAX: there is none. */
uint32_t kvw_engine_field(const char *name, size_t len);

/* Returns the neutral value as JSON, with which the engine behaves as without the member. */
struct kvw_slice kvw_engine_field_default(uint32_t field);

#endif
