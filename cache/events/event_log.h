/*
 * event_log.h - changes of the tiers, under the engine's hashes: a queue for kvt_events and a
 * publisher for subscribers over ZeroMQ.
 *
 * Every change gets the next sequence number. The queue keeps config.events_queue events and loses
 * the oldest first; a reader sees the loss as a gap in the numbers, and the log has a line. The
 * publisher sends events like vLLM (EventBatch as MessagePack maps, three frames: topic, sequence,
 * payload), joins the events of a few milliseconds in a batch, and answers replay requests from a
 * ring of events_replay_bytes. Events that the publisher has lost leave a gap in the numbers of its
 * batches. Thread-safe; adding never waits. The publisher has a thread of its own (none with
 * KVT_THREADS_CALLER: then kvt_event_log_step does its work).
 */
#ifndef KVT_EVENT_LOG_H
#define KVT_EVENT_LOG_H

#include <stdbool.h>

#include "chunk/note.h"

struct kvt_event_log;

/* Creates a log; *config is read during the call only. If an address cannot be bound, that is
 * logged, and there is no publisher. */
enum kvt_status kvt_event_log_create(const struct kvt_config *config,
	const struct kvt_surroundings *s, struct kvt_event_log **out) KVT_MUST_CHECK;
void kvt_event_log_destroy(struct kvt_event_log *log); /* NULL is allowed */

/*
 * blocks: as the caller of put gave them; borrowed during the call. NULL, or without blocks: there
 * is no event. Token ids are published as given: pass them with the first tier that stores a chunk,
 * and NULL afterwards. An event that cannot be made (a wrong width, more than 4 MiB) uses a number
 * and is lost.
 */
void kvt_event_log_stored(
	struct kvt_event_log *log, uint32_t tier, const struct kvt_blocks *blocks);
void kvt_event_log_removed(
	struct kvt_event_log *log, uint32_t tier, const struct kvt_blocks *blocks);
void kvt_event_log_cleared(struct kvt_event_log *log, uint32_t tier);

/* Returns whether a further half queue of events would not make any reader lose one. In a log
 * without a publisher, the engine counts as a reader even before its first read. */
bool kvt_event_log_has_room(struct kvt_event_log *log);

/* Like kvt_events. The first event has sequence 1. One call returns at most 64 KiB of events, or
 * one larger event; 0: no more events. One thread at a time. */
size_t kvt_event_log_take(struct kvt_event_log *log, struct kvt_event *out, size_t max);

/* KVT_THREADS_CALLER: publishes all events and answers requests; returns how many actions it took.
 * Lowers *next_ns to the time of the next call, if earlier. One thread at a time. */
size_t kvt_event_log_step(struct kvt_event_log *log, int64_t *next_ns);

/* Return the bound addresses, with the real port for "*" or 0; "": none is bound. */
const char *kvt_event_log_address(const struct kvt_event_log *log);
const char *kvt_event_log_replay_address(const struct kvt_event_log *log);

struct kvt_event_log_stats {
	uint64_t events; /* events numbered so far */
	uint64_t lost;   /* number of events that kvt_events has lost; 0 until its first call */
	uint64_t published_batches, published_bytes;
	uint64_t replays;           /* number of replays that were sent to their end */
	uint64_t replay_bytes_held; /* bytes of batches that are kept for replay */
	/* most memory of the queue and its readers, without batches kept for replay */
	uint64_t memory_bytes;
	uint64_t publish_lost;  /* number of events that the publisher has lost */
	uint64_t publish_drops; /* how often a subscriber was too slow and began to lose batches */
	uint64_t replays_given_up; /* number of replays whose receiver left, or stopped reading */
	uint64_t replay_memory_bytes; /* most memory of the batches kept for replay */
};
void kvt_event_log_stats(struct kvt_event_log *log, struct kvt_event_log_stats *out);

#endif
