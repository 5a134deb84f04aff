/*
 * vllm_stream.c - keeps one stream of KV events complete.
 *
 *   live number == next        applied
 *   live number <  next        known again by its digest: a duplicate, passed over;
 *                              else the engine has restarted: all is forgotten
 *   live number >  next        held, and the missing ones are asked for
 *
 * There are two kinds of replays. A replay from the start is requested after connecting and after a
 * restart of the engine: if the answer begins with batch 0, or is empty, the view is complete when
 * it ends. A replay that goes on is requested after a gap or a silence: it includes the last
 * applied batch, whose payload must be the same as before; otherwise the engine has restarted and
 * already passed the expected number. A payload contains its time of sending, so that no other
 * batch is equal to it.
 *
 * A silence causes a request because a lost message shows only when the next one arrives, which may
 * be late. Messages are lost when the subscription was not active yet while the answer was written,
 * when a queue overflowed, or when an engine died.
 *
 * If batches cannot be recovered (the engine keeps a limited number, or has no replay socket) the
 * stream becomes blind: it forgets the rank, applies further batches, and is complete again when
 * the engine reports an emptied cache, or restarts.
 *
 * The index is purged from outside: after a request that empties the cache, or for a new process.
 * The engine announces an emptied cache in its next batch. If that batch does not announce it, the
 * cache was not emptied, or was emptied long before: then the stream requests a replay from the
 * start.
 */
#include "feeds/vllm_stream.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "base/clock.h"
#include "base/log.h"
#include "feeds/vllm_socket.h"

#define ANSWER_NS     (5 * KVW_NS_PER_S) /* time limit of each message of a replay */
#define SILENCE_NS    KVW_NS_PER_S /* a stream that is silent for this long requests a replay */
#define LOOK_NS       (5 * KVW_NS_PER_S) /* between further requests */
#define PAUSE_NS      KVW_NS_PER_S
#define PAUSE_MOST_NS (30 * KVW_NS_PER_S)
#define BARREN_MOST   3
/* longer than it takes until metrics show a new start time */
#define JUST_BEGUN_NS (60 * KVW_NS_PER_S)

static int64_t now_of(const struct kvw_vllm_stream *stream)
{
	return kvw_feed_now(stream->deps.feed);
}

static void count_event(struct kvw_vllm_stream *stream, enum kvw_feed_counter counter, uint64_t n)
{
	kvw_feed_count(stream->deps.feed, counter, n);
}

static bool has_replay(const struct kvw_vllm_stream *stream)
{
	return stream->endpoint.replay[0] != '\0';
}

static void changed(struct kvw_vllm_stream *stream)
{
	stream->deps.changed(stream, stream->deps.ctx);
}

/* --- state of the view --- */

static void forget(struct kvw_vllm_stream *stream)
{
	kvw_vllm_map_clear(stream->deps.applier, stream->deps.map, stream->endpoint.rank);
}

/* Marks the view as incomplete, with a reason. */
__attribute__((format(printf, 2, 3))) static void lose(
	struct kvw_vllm_stream *stream, const char *format, ...)
{
	char why[sizeof(stream->wrong)];
	va_list args;

	va_start(args, format);
	vsnprintf(why, sizeof(why), format, args);
	va_end(args);
	forget(stream);
	if (stream->whole || strcmp(stream->wrong, why) != 0)
		kvw_warn("feed", "cache events: blind url=%s rank=%u why=\"%s\"", stream->deps.url,
			stream->endpoint.rank, why);
	memcpy(stream->wrong, why, sizeof(why));
	stream->whole = stream->logged_whole = stream->emptied = false;
	changed(stream);
}

bool kvw_vllm_stream_sees_all(const struct kvw_vllm_stream *stream)
{
	return stream->whole && stream->logged_whole && !stream->unanswered;
}

static void become_whole(struct kvw_vllm_stream *stream)
{
	stream->whole = true;
	stream->beyond = stream->emptied = false;
	stream->pause_ns = PAUSE_NS;
	stream->wrong[0] = '\0';
}

/* Logs that the stream is complete, once no request is under way. */
static void log_whole(struct kvw_vllm_stream *stream, const char *how)
{
	if (stream->whole && !stream->logged_whole)
		kvw_info("feed",
			"cache events: all known url=%s rank=%u endpoint=%s next=%" PRIu64
			" how=\"%s\"",
			stream->deps.url, stream->endpoint.rank, stream->endpoint.events,
			stream->next, how);
	stream->logged_whole = stream->whole;
	changed(stream);
}

/* --- applying --- */

static uint64_t digest_of(struct kvw_slice payload)
{
	return XXH3_64bits(payload.data, payload.len);
}

/* Returns whether the payload with this number, which is below next, is that of the batch that was
 * applied. */
static bool is_known(
	const struct kvw_vllm_stream *stream, uint64_t sequence, struct kvw_slice payload)
{
	return stream->next - sequence <= KVW_VLLM_DIGESTS &&
	       stream->digests[sequence % KVW_VLLM_DIGESTS] == digest_of(payload);
}

/* Drops claims for prompts that were sent to the engine before it lost its cache. */
static void forget_claims(struct kvw_vllm_stream *stream)
{
	kvw_exact_emptied(kvw_feed_deps(stream->deps.feed)->exact, stream->deps.map->worker);
}

/* Applies the batch that has the expected number. */
static void apply(struct kvw_vllm_stream *stream, struct kvw_slice payload, bool replayed)
{
	struct kvw_vllm_applied result;
	uint64_t sequence = stream->next++;
	int64_t sent_ns;

	stream->digests[sequence % KVW_VLLM_DIGESTS] = digest_of(payload);
	kvw_vllm_apply(stream->deps.applier, stream->deps.map, stream->endpoint.rank, payload,
		now_of(stream), &result);
	count_event(stream, KVW_FEED_BATCHES, 1);
	count_event(stream, KVW_FEED_EVENTS, result.events);
	sent_ns = replayed || !(result.time_s > 0 && result.time_s < 1e10)
			  ? 0
			  : (int64_t)(result.time_s * 1e9);
	kvw_feed_heard(stream->deps.feed, stream->deps.map->worker, KVW_REPORTER_ENGINE, sequence,
		sent_ns);
	if (replayed) {
		count_event(stream, KVW_FEED_REPLAYED_BATCHES, 1);
		stream->replayed++;
	}
	if (result.cleared && result.hole == NULL && !stream->whole) {
		become_whole(stream);
		if (stream->asking == KVW_VLLM_NOT_ASKING)
			log_whole(stream, "the engine has emptied its cache");
	}
	if (result.cleared) {
		stream->emptied = false;
		forget_claims(stream);
	}
	if (result.hole == NULL)
		return;
	count_event(stream, KVW_FEED_DROPPED_EVENTS, result.dropped);
	stream->beyond = true;
	lose(stream, "an event cannot be used: %s", result.hole);
}

/* Gives up the batches up to `until`, which cannot be recovered. */
static void skip_to(struct kvw_vllm_stream *stream, uint64_t until, const char *why)
{
	uint64_t lost = until - stream->next;

	count_event(stream, KVW_FEED_LOST_BATCHES, lost);
	count_event(stream, KVW_FEED_DROPPED_EVENTS, lost);
	lose(stream, "%" PRIu64 " batches from %" PRIu64 " on are lost: %s", lost, stream->next,
		why);
	stream->next = until;
}

/* --- requests --- */

static void close_dealer(struct kvw_vllm_stream *stream)
{
	if (stream->dealer == NULL)
		return;
	kvw_feed_unwatch(stream->deps.feed, stream->dealer);
	zmq_close(stream->dealer);
	stream->dealer = NULL;
}

static bool read_reply(void *socket, void *ctx);

static bool open_dealer(struct kvw_vllm_stream *stream)
{
	if (stream->dealer != NULL)
		return true;
	stream->dealer =
		kvw_vllm_dealer(kvw_feed_context(stream->deps.feed), stream->endpoint.replay);
	if (stream->dealer == NULL) {
		kvw_warn("feed",
			"cannot connect to a replay socket url=%s endpoint=%s error=\"%s\"",
			stream->deps.url, stream->endpoint.replay, zmq_strerror(zmq_errno()));
		return false;
	}
	if (kvw_feed_watch(stream->deps.feed, stream->dealer, read_reply, stream) == KVW_OK)
		return true;
	zmq_close(stream->dealer);
	stream->dealer = NULL;
	return false;
}

/* Requests a replay, if there is a replay socket. Drops an answer that is under way. */
static void ask_for_replay(struct kvw_vllm_stream *stream, enum kvw_vllm_asking what)
{
	uint64_t first = what == KVW_VLLM_GOING_ON ? stream->next - 1 : 0;

	if (stream->asking != KVW_VLLM_NOT_ASKING)
		close_dealer(stream);
	stream->asking = what;
	stream->answered = stream->torn = false;
	stream->asked_next = stream->next;
	stream->replayed = 0;
	stream->deadline_ns = now_of(stream) + ANSWER_NS;
	count_event(stream, KVW_FEED_REPLAYS, 1);
	if (open_dealer(stream) && !kvw_vllm_ask(stream->dealer, first))
		close_dealer(stream); /* the deadline will report the failure */
}

/* Requests the batches after the last applied one, or all if there was none. */
static void ask_on(struct kvw_vllm_stream *stream)
{
	ask_for_replay(stream, stream->next > 0 ? KVW_VLLM_GOING_ON : KVW_VLLM_FROM_START);
}

/* Starts over: the engine is another process, or has restarted its numbers. */
static void begin_again(struct kvw_vllm_stream *stream, const char *how)
{
	kvw_info("feed",
		"cache events: the engine has restarted url=%s rank=%u after=%" PRIu64
		" how=\"%s\"",
		stream->deps.url, stream->endpoint.rank, stream->next, how);
	count_event(stream, KVW_FEED_RESTARTS, 1);
	forget(stream);
	forget_claims(stream);
	stream->next = 0;
	stream->barren = 0;
	stream->whole = stream->logged_whole = stream->beyond = stream->emptied = false;
	stream->restarted_ns = now_of(stream);
	snprintf(stream->wrong, sizeof(stream->wrong), "the engine has restarted");
	changed(stream);
}

/* --- live messages --- */

static const char no_replay[] = "the engine offers no replay: start it with replay_endpoint in "
				"--kv-events-config, or set kvaware.events.replay";

/* Handles a batch beyond the expected one while no replay is running. */
static void gap(struct kvw_vllm_stream *stream, uint64_t sequence, zmq_msg_t *payload)
{
	struct kvw_slice slice = {zmq_msg_data(payload), zmq_msg_size(payload)};

	count_event(stream, KVW_FEED_GAPS, 1);
	if (!has_replay(stream)) {
		skip_to(stream, sequence, no_replay);
		apply(stream, slice, false);
		return;
	}
	kvw_info("feed", "cache events: a gap url=%s rank=%u from=%" PRIu64 " to=%" PRIu64,
		stream->deps.url, stream->endpoint.rank, stream->next, sequence);
	if (!kvw_vllm_held_push(&stream->held, sequence, payload))
		return; /* the next batch will be beyond the expected one, too */
	stream->barren = 0;
	ask_on(stream);
}

/* Takes a batch that need not wait for a replay. */
static void take_live(struct kvw_vllm_stream *stream, uint64_t sequence, zmq_msg_t *payload)
{
	struct kvw_slice slice = {zmq_msg_data(payload), zmq_msg_size(payload)};
	bool emptied = stream->emptied;

	if (sequence < stream->next) {
		if (is_known(stream, sequence, slice))
			return;
		begin_again(stream, "its numbers went back");
	}
	if (sequence > stream->next) {
		gap(stream, sequence, payload);
		return;
	}
	if (sequence == 0)
		become_whole(stream);
	apply(stream, slice, false);
	if (sequence == 0)
		log_whole(stream, "from its first batch on");
	stream->ask_again_ns = has_replay(stream) ? now_of(stream) + SILENCE_NS : INT64_MAX;
	if (!emptied || !stream->emptied)
		return;
	/* After a purge the engine did not announce an emptied cache. Only streams with a replay
	 * socket look for that. */
	stream->emptied = stream->logged_whole = false;
	ask_for_replay(stream, KVW_VLLM_FROM_START);
	changed(stream);
}

void kvw_vllm_stream_live(struct kvw_vllm_stream *stream, uint64_t sequence, zmq_msg_t *payload)
{
	/* An engine may delay its replay by a tenth of a second: a batch that is next in sequence
	 * does not wait for an answer that will bring nothing new. */
	bool in_turn = stream->asking == KVW_VLLM_GOING_ON && sequence == stream->next &&
		       stream->held.count == 0;

	if (stream->asking == KVW_VLLM_NOT_ASKING || in_turn)
		take_live(stream, sequence, payload);
	else
		(void)kvw_vllm_held_push(&stream->held, sequence, payload);
}

static bool read_live(void *socket, void *ctx)
{
	struct kvw_vllm_stream *stream = ctx;
	struct kvw_vllm_frames frames;
	struct kvw_vllm_message message;

	if (!kvw_vllm_receive(socket, &frames))
		return false;
	count_event(stream, KVW_FEED_MESSAGES, 1);
	count_event(stream, KVW_FEED_BYTES, frames.bytes);
	if (kvw_vllm_published(frames.slices, frames.count, &message) == KVW_OK)
		kvw_vllm_stream_live(stream, message.sequence, &frames.frames[2]);
	else
		count_event(stream, KVW_FEED_REFUSED, 1);
	kvw_vllm_message_finish(&frames);
	return true;
}

/* --- answers --- */

/* Applies held batches that are next in sequence. False: a gap remains. */
static bool take_held(struct kvw_vllm_stream *stream)
{
	struct kvw_vllm_held_batch *first;

	while ((first = kvw_vllm_held_first(&stream->held)) != NULL) {
		struct kvw_slice payload = {
			zmq_msg_data(&first->payload), zmq_msg_size(&first->payload)};

		if (first->sequence > stream->next)
			return false;
		if (first->sequence == stream->next) {
			if (stream->next == 0)
				become_whole(stream);
			apply(stream, payload, false);
		} else if (!is_known(stream, first->sequence, payload)) {
			begin_again(stream, "its numbers went back");
			continue;
		}
		kvw_vllm_held_drop_first(&stream->held);
	}
	return true;
}

/* Ends a request. */
static void rest(struct kvw_vllm_stream *stream, int64_t pause_ns)
{
	stream->asking = KVW_VLLM_NOT_ASKING;
	stream->ask_again_ns = now_of(stream) + pause_ns;
	changed(stream);
}

/* Handles the end of an answer: applies held batches, or requests another replay. */
static void end_of_answer(struct kvw_vllm_stream *stream)
{
	bool from_start = stream->asking == KVW_VLLM_FROM_START;
	bool progress = stream->next != stream->asked_next || from_start;

	stream->asking = KVW_VLLM_NOT_ASKING;
	stream->barren = progress ? 0 : stream->barren + 1;
	while (!take_held(stream)) {
		if (stream->barren < BARREN_MOST) {
			ask_on(stream);
			return;
		}
		skip_to(stream, kvw_vllm_held_first(&stream->held)->sequence,
			"the replay does not bring them");
		stream->barren = 0;
	}
	if (stream->torn && stream->barren < BARREN_MOST) {
		ask_on(stream);
		return;
	}
	if (stream->replayed > 0)
		kvw_info("feed",
			"cache events: replayed url=%s rank=%u batches=%" PRIu64 " from=%" PRIu64
			" next=%" PRIu64,
			stream->deps.url, stream->endpoint.rank, stream->replayed,
			from_start ? 0 : stream->asked_next, stream->next);
	rest(stream, from_start ? SILENCE_NS : LOOK_NS);
	log_whole(stream, "replayed");
}

/* Takes the first batch of a replay from the start. */
static void first_from_start(struct kvw_vllm_stream *stream, uint64_t sequence)
{
	forget(stream);
	stream->next = sequence;
	stream->emptied = false;
	if (sequence == 0) {
		become_whole(stream);
		return;
	}
	stream->beyond = true;
	lose(stream,
		"the first %" PRIu64
		" batches are lost, the engine keeps only its last ones: all is "
		"known again when its cache was emptied once (POST /reset_prefix_cache); a larger "
		"buffer_steps helps",
		sequence);
}

/* Takes the first batch of a replay that goes on. False: the answer is useless. */
static bool first_going_on(
	struct kvw_vllm_stream *stream, uint64_t sequence, struct kvw_slice payload)
{
	if (sequence >= stream->next) {
		skip_to(stream, sequence,
			"the engine does not keep them; a larger buffer_steps "
			"helps");
		stream->beyond = true;
		return true;
	}
	if (is_known(stream, sequence, payload))
		return true;
	begin_again(stream, "its last batch is another one");
	ask_for_replay(stream, KVW_VLLM_FROM_START);
	return false;
}

static void take_reply(struct kvw_vllm_stream *stream, uint64_t sequence, struct kvw_slice payload)
{
	bool first = !stream->answered;

	stream->answered = true;
	stream->deadline_ns = now_of(stream) + ANSWER_NS;
	if (first && stream->asking == KVW_VLLM_FROM_START)
		first_from_start(stream, sequence);
	else if (first && !first_going_on(stream, sequence, payload))
		return;
	if (sequence > stream->next)
		stream->torn = true;
	if (sequence == stream->next && !stream->torn)
		apply(stream, payload, true);
}

static void take_end(struct kvw_vllm_stream *stream)
{
	if (stream->unanswered)
		kvw_info("feed", "cache events: answers again url=%s rank=%u replay=%s",
			stream->deps.url, stream->endpoint.rank, stream->endpoint.replay);
	if (stream->unanswered && stream->whole)
		stream->wrong[0] = '\0';
	stream->unanswered = false;
	stream->pause_ns = PAUSE_NS;
	if (!stream->answered && stream->asking == KVW_VLLM_FROM_START) {
		/* The engine has never published a batch: its cache is empty. */
		forget(stream);
		stream->next = 0;
		become_whole(stream);
	} else if (!stream->answered) {
		begin_again(stream, "it has published less than that");
		stream->asking = KVW_VLLM_NOT_ASKING; /* the answer was complete */
		ask_for_replay(stream, KVW_VLLM_FROM_START);
		return;
	}
	end_of_answer(stream);
}

static bool read_reply(void *socket, void *ctx)
{
	struct kvw_vllm_stream *stream = ctx;
	struct kvw_vllm_frames frames;
	struct kvw_vllm_message message;
	enum kvw_err err;

	if (!kvw_vllm_receive(socket, &frames))
		return false;
	count_event(stream, KVW_FEED_MESSAGES, 1);
	count_event(stream, KVW_FEED_BYTES, frames.bytes);
	err = kvw_vllm_replayed(frames.slices, frames.count, &message);
	if (err == KVW_EPROTO)
		count_event(stream, KVW_FEED_REFUSED, 1);
	else if (stream->asking == KVW_VLLM_NOT_ASKING)
		err = KVW_OK; /* a message although no replay was requested */
	else if (err == KVW_ENOTFOUND)
		take_end(stream);
	else
		take_reply(stream, message.sequence, message.payload);
	kvw_vllm_message_finish(&frames);
	return true;
}

/* --- deadlines --- */

/* Handles a replay socket that did not answer in time. */
static void no_answer(struct kvw_vllm_stream *stream)
{
	struct kvw_vllm_held_batch *held;
	bool some = stream->answered && stream->next != stream->asked_next;

	close_dealer(stream);
	stream->asking = KVW_VLLM_NOT_ASKING;
	if (some && ++stream->barren < BARREN_MOST) {
		ask_on(stream);
		return;
	}
	stream->unanswered = true;
	stream->barren = 0;
	while (!take_held(stream)) {
		held = kvw_vllm_held_first(&stream->held);
		skip_to(stream, held->sequence, "the replay socket does not answer");
	}
	if (!stream->beyond)
		snprintf(stream->wrong, sizeof(stream->wrong),
			"no answer from the replay socket %s", stream->endpoint.replay);
	if (stream->pause_ns == PAUSE_NS)
		kvw_warn("feed", "cache events: no answer url=%s rank=%u replay=%s",
			stream->deps.url, stream->endpoint.rank, stream->endpoint.replay);
	rest(stream, stream->pause_ns);
	stream->pause_ns =
		stream->pause_ns * 2 < PAUSE_MOST_NS ? stream->pause_ns * 2 : PAUSE_MOST_NS;
}

void kvw_vllm_stream_tick(struct kvw_vllm_stream *stream)
{
	int64_t now_ns = now_of(stream);

	if (stream->asking != KVW_VLLM_NOT_ASKING) {
		if (now_ns >= stream->deadline_ns)
			no_answer(stream);
		return;
	}
	if (!has_replay(stream) || now_ns < stream->ask_again_ns)
		return;
	/* If batches are lost, no replay is requested: the answer would begin at the same batch. */
	if (stream->whole || stream->beyond)
		ask_on(stream);
	else
		ask_for_replay(stream, KVW_VLLM_FROM_START);
}

void kvw_vllm_stream_purged(struct kvw_vllm_stream *stream)
{
	bool just_begun =
		stream->restarted_ns != 0 && now_of(stream) - stream->restarted_ns < JUST_BEGUN_NS;

	if (!has_replay(stream)) {
		lose(stream, "its cache was lost; all is known again when the engine says so");
		return;
	}
	stream->logged_whole = false;
	/* The purge for a new process came after some of its batches had been applied. */
	changed(stream);
	if (just_begun || stream->asking != KVW_VLLM_NOT_ASKING || !stream->whole) {
		stream->restarted_ns = 0;
		ask_for_replay(stream, KVW_VLLM_FROM_START);
		return;
	}
	stream->emptied = true;
	ask_on(stream);
}

/* --- life --- */

enum kvw_err kvw_vllm_stream_open(struct kvw_vllm_stream *stream,
	const struct kvw_vllm_stream_deps *deps, struct kvw_vllm_endpoint *take_endpoint,
	bool listen)
{
	*stream = (struct kvw_vllm_stream){.deps = *deps,
		.endpoint = *take_endpoint,
		.ask_again_ns = INT64_MAX,
		.pause_ns = PAUSE_NS};
	*take_endpoint = (struct kvw_vllm_endpoint){.rank = 0};
	snprintf(stream->wrong, sizeof(stream->wrong), "%s",
		has_replay(stream) ? "nothing was heard yet" : no_replay);
	if (listen) {
		stream->sub = kvw_vllm_sub(
			kvw_feed_context(deps->feed), stream->endpoint.events, deps->topic);
		if (stream->sub == NULL) {
			kvw_warn("feed", "cannot subscribe url=%s endpoint=%s error=\"%s\"",
				deps->url, stream->endpoint.events, zmq_strerror(zmq_errno()));
			kvw_vllm_stream_close(stream);
			return KVW_EIO;
		}
		if (kvw_feed_watch(deps->feed, stream->sub, read_live, stream) != KVW_OK) {
			kvw_vllm_stream_close(stream);
			return KVW_ENOMEM;
		}
	}
	kvw_info("feed", "cache events: listening url=%s rank=%u endpoint=%s replay=%s", deps->url,
		stream->endpoint.rank, stream->endpoint.events,
		has_replay(stream) ? stream->endpoint.replay : "none");
	if (has_replay(stream))
		ask_for_replay(stream, KVW_VLLM_FROM_START);
	return KVW_OK;
}

void kvw_vllm_stream_close(struct kvw_vllm_stream *stream)
{
	close_dealer(stream);
	if (stream->sub != NULL) {
		kvw_feed_unwatch(stream->deps.feed, stream->sub);
		zmq_close(stream->sub);
	}
	if (stream->deps.applier != NULL)
		forget(stream);
	kvw_vllm_held_finish(&stream->held);
	free(stream->endpoint.events);
	free(stream->endpoint.replay);
	free(stream->endpoint.topic);
	*stream = (struct kvw_vllm_stream){.sub = NULL};
}
