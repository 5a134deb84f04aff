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

#define KVW_VLLM_DIGESTS 256 /* number of recent batches whose payloads are recognized */

struct kvw_vllm_stream;

/* Called when the result of kvw_vllm_stream_sees_all, or `wrong`, may have changed. Must not close
 * the stream. */
typedef void kvw_vllm_changed_fn(struct kvw_vllm_stream *stream, void *ctx);

/* Values that a stream gets from its owner. All members are borrowed, and must outlive it. */
struct kvw_vllm_stream_deps {
	struct kvw_feed *feed;
	struct kvw_vllm_applier *applier;
	struct kvw_vllm_map *map; /* map of the worker */
	const char *url;          /* the worker's URL, for the log */
	const char *topic;        /* prefix of accepted topics */
	kvw_vllm_changed_fn *changed;
	void *ctx;
};

enum kvw_vllm_asking {
	KVW_VLLM_NOT_ASKING,
	KVW_VLLM_FROM_START, /* for everything */
	KVW_VLLM_GOING_ON,   /* a replay from the last applied batch on, which must be unchanged */
};

struct kvw_vllm_stream {
	struct kvw_vllm_stream_deps deps;
	struct kvw_vllm_endpoint endpoint; /* owned */
	void *sub; /* NULL: the owner passes messages to kvw_vllm_stream_live */
	void *dealer;                      /* the replay socket; NULL: none is open */

	uint64_t next;                      /* number expected */
	/* digests of the payloads of batches below `next`, at their number modulo the size */
	uint64_t digests[KVW_VLLM_DIGESTS];
	bool whole;                         /* the view has every block of the rank's cache */
	bool unanswered; /* the replay socket did not answer the last request */
	/* ... or cannot help, since the missing batches are gone or unreadable. */
	bool beyond;
	/* the index was purged, and the engine has not announced an emptied cache yet */
	bool emptied;
	char wrong[200]; /* why the view is not whole, or the replay socket unanswered; "" */
	int64_t restarted_ns; /* when this stream last saw a restart of the engine; 0: never */

	enum kvw_vllm_asking asking;
	bool answered;        /* a batch of the answer has come since the request */
	/* the remaining batches of the replay are useless, since one in the middle was lost */
	bool torn;
	uint64_t asked_next;  /* value of `next` when the replay was requested */
	uint32_t barren;      /* requests in a row that brought no missing batch */
	uint64_t replayed;    /* batches applied since the request */
	int64_t deadline_ns;  /* deadline of the answer's next message */
	int64_t ask_again_ns; /* when missed batches are next asked for; INT64_MAX: never */
	int64_t pause_ns;     /* pause between failed attempts; grows */
	struct kvw_vllm_held held;
	bool logged_whole; /* completeness was logged */
};

/* Opens the sockets; takes the endpoint. listen: false for an engine whose messages come through
 * kvw_vllm_stream_live. KVW_ENOMEM, KVW_EIO (logged); afterwards *stream is as if closed. */
enum kvw_err kvw_vllm_stream_open(struct kvw_vllm_stream *stream,
	const struct kvw_vllm_stream_deps *deps, struct kvw_vllm_endpoint *take_endpoint,
	bool listen) KVW_MUST_CHECK;
/* also removes the rank's blocks from the index */
void kvw_vllm_stream_close(struct kvw_vllm_stream *stream);

/* Returns whether the index has every block of this rank's cache. */
bool kvw_vllm_stream_sees_all(const struct kvw_vllm_stream *stream);

/* Handles a published message; takes the payload's content. */
void kvw_vllm_stream_live(struct kvw_vllm_stream *stream, uint64_t sequence, zmq_msg_t *payload);

/* Called after the index was purged of the worker, whose cache may be lost. */
void kvw_vllm_stream_purged(struct kvw_vllm_stream *stream);

/* Checks deadlines. Called about ten times a second. */
void kvw_vllm_stream_tick(struct kvw_vllm_stream *stream);

#endif
