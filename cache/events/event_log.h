/*
 * event_log.h - what changed in the tiers, in the engine's names: a queue for kvt_events and a
 * publisher for subscribers over ZeroMQ.
 *
 * Every change gets the next sequence number. The queue keeps config.events_queue events and loses
 * the oldest first; a reader sees that by the gap, and the log says so. The publisher sends them as
 * vLLM does (EventBatch as MessagePack maps, three frames: topic, sequence, payload), batches what
 * comes within a few milliseconds, and answers replay requests from a ring of events_replay_bytes.
 * Events that it came too late for leave a gap in the numbers of its batches.
 * Thread-safe; adding never waits. The publisher has a thread of its own (none with
 * KVT_THREADS_CALLER: then kvt_event_log_step does its work).
 */
#ifndef KVT_EVENT_LOG_H
#define KVT_EVENT_LOG_H

#include <stdbool.h>

#include "chunk/note.h"

struct kvt_event_log;

/* The configuration is read during the call only. An address that cannot be bound is logged and the
 * publisher is left out. */
enum kvt_status kvt_event_log_create(const struct kvt_config *config,
	const struct kvt_surroundings *s, struct kvt_event_log **out) KVT_MUST_CHECK;
void kvt_event_log_destroy(struct kvt_event_log *log); /* NULL is allowed */

/*
 * blocks: as put gave them; borrowed during the call. NULL, or no blocks: no event. Token ids go out
 * as they are given: give them with the first tier that stores a chunk, and NULL afterwards. What
 * cannot be an event (a width that is none, more than 4 MiB) uses up a number and is lost.
 */
void kvt_event_log_stored(
	struct kvt_event_log *log, uint32_t tier, const struct kvt_blocks *blocks);
void kvt_event_log_removed(
	struct kvt_event_log *log, uint32_t tier, const struct kvt_blocks *blocks);
void kvt_event_log_cleared(struct kvt_event_log *log, uint32_t tier);

/* Has each reader read so much that half a queue of events may come before the reader loses one? A log
 * without a publisher counts the engine as a reader before its first read. */
bool kvt_event_log_has_room(struct kvt_event_log *log);

/* As kvt_events. The first event has sequence 1. One call gives at most 64 KiB of events, or one
 * larger; 0 says that there are no more. One thread at a time. */
size_t kvt_event_log_take(struct kvt_event_log *log, struct kvt_event *out, size_t max);

/* KVT_THREADS_CALLER: publishes what there is and answers requests; returns how many things it did.
 * *next_ns becomes less if this wants to be called again before it. One thread at a time. */
size_t kvt_event_log_step(struct kvt_event_log *log, int64_t *next_ns);

/* Real addresses, with the port that was got where "*" or 0 was asked for; "" where there is none. */
const char *kvt_event_log_address(const struct kvt_event_log *log);
const char *kvt_event_log_replay_address(const struct kvt_event_log *log);

struct kvt_event_log_stats {
	uint64_t events; /* numbered so far */
	uint64_t lost;   /* that kvt_events came too late for; 0 until the first call */
	uint64_t published_batches, published_bytes;
	uint64_t replays;           /* answered to their end */
	uint64_t replay_bytes_held; /* of batches kept for replay */
	uint64_t memory_bytes;  /* of the queue and its readers, as a limit; without the replay */
	uint64_t publish_lost;  /* events that the publisher came too late for */
	uint64_t publish_drops; /* times that a subscriber was too slow and began to lose batches */
	uint64_t replays_given_up;    /* the asker left or stopped reading */
	uint64_t replay_memory_bytes; /* of the batches kept for replay, as a limit */
};
void kvt_event_log_stats(struct kvt_event_log *log, struct kvt_event_log_stats *out);

#endif
