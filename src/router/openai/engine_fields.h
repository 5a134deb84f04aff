/*
 * engine_fields.h - members of a body by which a client directs the engine itself: its queue, whose
 * KV it takes and from where, which code it runs.
 */
#ifndef KVW_ENGINE_FIELDS_H
#define KVW_ENGINE_FIELDS_H

#include <stdint.h>

#include "kvway/slice.h"

/* All of them, as bits. */
#define KVW_ENGINE_FIELDS_ALL UINT32_MAX

/* Which one has that name; UINT32_MAX: none. */
uint32_t kvw_engine_field(const char *name, size_t len);

/* The value that says nothing, as JSON: the engine does what it does without the member. */
struct kvw_slice kvw_engine_field_default(uint32_t field);

#endif
