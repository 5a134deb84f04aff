/*
 * event.h - what an event of an answer's stream says by its first bytes or its last ones: an error,
 * or the end.
 *
 * Engines send an event in one piece, so that pieces are looked at and no event is put together.
 * All functions are pure.
 */
#ifndef KVW_OPENAI_EVENT_H
#define KVW_OPENAI_EVENT_H

#include <stdbool.h>
#include <stddef.h>

/* Unknown: so far it could still be an error. */
enum kvw_beginning { KVW_BEGINS_WELL, KVW_BEGINS_WITH_ERROR, KVW_BEGINNING_UNKNOWN };

/* Whether data, the first bytes of an event, begin one that says that the engine failed. */
enum kvw_beginning kvw_event_beginning(const char *data, size_t len);

/* An error of the 400s is the client's fault. */
bool kvw_event_blames_client(const char *data, size_t len);

/* The event after which a client may close without waiting for the last chunk,
 * as OpenAI's SDK does. */
bool kvw_event_is_last(const char *data, size_t len);

#endif
