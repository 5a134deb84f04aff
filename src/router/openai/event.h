/*
 * event.h - recognizes error and end events of an answer's stream by their first or last bytes.
 *
 * Engines send an event in one piece, so these functions examine pieces and assemble no event. All
 * functions are pure.
 */
#ifndef KVW_OPENAI_EVENT_H
#define KVW_OPENAI_EVENT_H

#include <stdbool.h>
#include <stddef.h>

/* KVW_BEGINNING_UNKNOWN: the bytes so far may still become those of an error. */
enum kvw_beginning { KVW_BEGINS_WELL, KVW_BEGINS_WITH_ERROR, KVW_BEGINNING_UNKNOWN };

/* Returns whether data, the first bytes of an event, begin an engine's error event. */
enum kvw_beginning kvw_event_beginning(const char *data, size_t len);

/* Returns whether the error's code is a 4xx, so that the client is at fault. */
bool kvw_event_blames_client(const char *data, size_t len);

/* Returns whether this is the stream's last event, after which a client such as OpenAI's SDK may
 * close without waiting for the last chunk. */
bool kvw_event_is_last(const char *data, size_t len);

#endif
