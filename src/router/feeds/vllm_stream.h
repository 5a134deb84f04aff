/*
 * vllm_stream.h - the events of one data-parallel rank of one engine, in order and without holes.
 *
 * Batches are numbered from 0. The number of each batch is compared with the expected one; missing
 * batches are requested from the engine's replay socket, and live batches wait for them. The stream
 * knows whether it has seen every event that describes the engine's cache now: since number 0, or
 * since the engine reported that it emptied its cache.
 *
 * Threads: the feed's.
 */
#ifndef KVW_VLLM_STREAM_H
#define KVW_VLLM_STREAM_H

#include "feeds/feed.h"
#include "feeds/vllm_apply.h"
#include "feeds/vllm_endpoints.h"
#include "feeds/vllm_held.h"

#define KVW_VLLM_DIGESTS 256 /* recent batches that are known again */

struct kvw_vllm_stream;

/* The result of kvw_vllm_stream_sees_all, or `wrong`, may have changed. Must not close the
 * stream. */
typedef void kvw_vllm_changed_fn(struct kvw_vllm_stream *stream, void *ctx);

/* Surroundings of a stream. All borrowed, and outlive it. */
struct kvw_vllm_stream_deps {
	struct kvw_feed *feed;
	struct kvw_vllm_applier *applier;
	struct kvw_vllm_map *map; /* of the worker */
	const char *url;          /* of the worker, for the log */
	const char *topic;        /* prefix of accepted topics */
	kvw_vllm_changed_fn *changed;
	void *ctx;
};

enum kvw_vllm_asking {
	KVW_VLLM_NOT_ASKING,
	KVW_VLLM_FROM_START, /* for everything */
	KVW_VLLM_GOING_ON,   /* from the last applied batch on, which must be unchanged */
};

struct kvw_vllm_stream {
	struct kvw_vllm_stream_deps deps;
	struct kvw_vllm_endpoint endpoint; /* owned */
	void *sub;                         /* NULL: messages come by kvw_vllm_stream_live */
	void *dealer;                      /* NULL: none is open */

	uint64_t next;                      /* number expected */
	uint64_t digests[KVW_VLLM_DIGESTS]; /* of payloads, by number modulo; below next */
	bool whole;                         /* the view has the whole cache */
	bool unanswered; /* the replay socket did not answer the last request */
	/* ... or cannot help: the missing batches are gone or unreadable. */
	bool beyond;
	bool emptied;    /* purged, but not yet announced by this stream */
	char wrong[200]; /* why not whole, or unanswered; "" */
	int64_t restarted_ns; /* time of the engine's last restart seen here; 0: never */

	enum kvw_vllm_asking asking;
	bool answered;        /* a batch came since the request */
	bool torn;            /* replayed batches are useless: one in the middle was lost */
	uint64_t asked_next;  /* `next` at the request */
	uint32_t barren;      /* requests in a row without a missing batch */
	uint64_t replayed;    /* batches applied since the request */
	int64_t deadline_ns;  /* deadline of the next message of the answer */
	int64_t ask_again_ns; /* time of the next check for missed batches; INT64_MAX: never */
	int64_t pause_ns;     /* between failed attempts; grows */
	struct kvw_vllm_held held;
	bool logged_whole; /* completeness was logged */
};

/* Opens the sockets; takes the endpoint. listen: false for an engine whose messages come by
 * kvw_vllm_stream_live. KVW_ENOMEM, KVW_EIO (logged); *stream is then as after close. */
enum kvw_err kvw_vllm_stream_open(struct kvw_vllm_stream *stream,
	const struct kvw_vllm_stream_deps *deps, struct kvw_vllm_endpoint *take_endpoint,
	bool listen) KVW_MUST_CHECK;
void kvw_vllm_stream_close(struct kvw_vllm_stream *stream); /* forgets the rank's blocks */

/* Whether the index has every block of this rank's cache. */
bool kvw_vllm_stream_sees_all(const struct kvw_vllm_stream *stream);

/* Takes a published message; takes the payload's content. */
void kvw_vllm_stream_live(struct kvw_vllm_stream *stream, uint64_t sequence, zmq_msg_t *payload);

/* To be called after the index was purged of the worker, whose cache may be lost. */
void kvw_vllm_stream_purged(struct kvw_vllm_stream *stream);

/* Checks deadlines. Called about ten times a second. */
void kvw_vllm_stream_tick(struct kvw_vllm_stream *stream);

#endif
