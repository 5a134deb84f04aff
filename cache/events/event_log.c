/*
 * event_log.c - keeps events in a ring, and passes them to two readers.
 *
 *   stored/removed/cleared -> ring of records -> reader of kvt_event_log_take
 *                                             -> reader of the publisher -> batches -> ZeroMQ
 *
 * Both readers read the same ring, and each has its own number of the next record; a reader behind
 * the oldest record has lost the records between. A thread that adds copies a record under a lock
 * held only for that copy; readers copy out under the same lock, at most READ_BYTES at a time, and
 * work on their copies. All memory is bounded from the start: the ring, a buffer per reader (which
 * grows for a single larger record, to KVT_EVENT_RECORD_MAX at most), and one encoded batch.
 *
 * Once the publisher's thread has read all events, it sleeps until another thread adds one, waits BATCH_NS for further
 * events, and then sends all. The eventfd is written once for each such sleep, so adding costs no system call while the
 * publisher is at work.
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/thread.h"
#include "events/event_batch.h"
#include "events/event_log.h"
#include "events/event_record.h"
#include "events/publisher.h"
#include "events/record_ring.h"

#define QUEUE_MAX      (1u << 20) /* most events kept */
/* memory for each event: enough for a chunk of 256 tokens with its token ids */
#define EVENT_BYTES    2048u
#define QUEUE_BYTES    (64u << 20) /* most memory for all events */
/* number of events kept for the publisher, if the configured queue is smaller */
#define PUBLISH_QUEUE  4096u
/* a reader copies at most this many bytes at a time, or one record */
#define READ_BYTES     (64u << 10)
#define BATCH_EVENTS   512u        /* events of one batch */
#define BATCH_NS       (2 * 1000 * 1000)
#define TURN_BATCHES   64 /* number of batches sent between two reads of the replay socket */
/* least time between two log lines about lost events */
#define SAY_NS         (60 * INT64_C(1000000000))
#define WAITING_MS     2  /* an answer whose receiver is not ready is tried again after this time */
/* KVT_THREADS_CALLER: interval at which the replay socket is read */
#define REPLAY_LOOK_NS (100 * INT64_C(1000000))

/* A reader of the ring. */
struct reader {
	uint64_t next;       /* number of the next record; under the log's lock, like `lost` */
	uint64_t lost;       /* number of records that were lost because the reader was too slow */
	bool reads;          /* the reader has begun */
	/* number of lost records that was logged; used by the reader only, like say_ns */
	uint64_t said;
	int64_t say_ns;      /* not before */
	uint8_t *buffer;     /* owned: the reader's copies of records; used by the reader only */
	_Atomic size_t size; /* size of the buffer; written by the reader only, relaxed */
};

struct kvt_event_log {
	const struct kvt_surroundings *s; /* borrowed */

	pthread_mutex_t lock;        /* guards the ring and the readers' numbers */
	struct kvt_record_ring ring; /* records are numbered from 1, because 0 means no number */
	bool keeps;                  /* false: there can be no reader, so events are only counted */
	struct reader taker;         /* kvt_event_log_take */

	/* NULL without an address. One thread at a time uses these members: the publisher's, or the
	 * one that steps. */
	struct kvt_publisher *publisher;
	struct reader feeder;
	struct kvt_packed batch;
	struct kvt_event events[BATCH_EVENTS];

	bool threaded;
	pthread_t thread;
	int wake;           /* eventfd; -1 without a thread */
	_Atomic bool awake; /* the thread was woken for the events added so far */
	_Atomic bool stop;
};

/* --- adding ----------------------------------------------------------------------------------- */

static void wake(struct kvt_event_log *log)
{
	if (log->threaded && !atomic_exchange(&log->awake, true))
		(void)!eventfd_write(log->wake, 1);
}

static void add(struct kvt_event_log *log, enum kvt_event_kind kind, uint32_t tier,
	const struct kvt_blocks *blocks)
{
	size_t size = kvt_event_record_size(kind, blocks);
	void *room;

	if (blocks != NULL && blocks->count == 0)
		return;
	pthread_mutex_lock(&log->lock);
	room = kvt_record_ring_add(&log->ring, log->keeps ? size : 0);
	if (room != NULL)
		kvt_event_record_write(room, kind, tier, blocks);
	pthread_mutex_unlock(&log->lock);
	wake(log);
}

void kvt_event_log_stored(struct kvt_event_log *log, uint32_t tier, const struct kvt_blocks *blocks)
{
	if (blocks != NULL)
		add(log, KVT_EVENT_STORED, tier, blocks);
}

void kvt_event_log_removed(
	struct kvt_event_log *log, uint32_t tier, const struct kvt_blocks *blocks)
{
	if (blocks != NULL)
		add(log, KVT_EVENT_REMOVED, tier, blocks);
}

void kvt_event_log_cleared(struct kvt_event_log *log, uint32_t tier)
{
	add(log, KVT_EVENT_CLEARED, tier, NULL);
}

/* --- reading ---------------------------------------------------------------------------------- */

/* Makes the buffer at least `len` bytes long. The lock must not be held. */
static bool make_room(struct reader *reader, size_t len)
{
	size_t size = atomic_load_explicit(&reader->size, memory_order_relaxed);
	uint8_t *grown;

	if (size >= len)
		return true;
	grown = malloc(len);
	if (grown == NULL)
		return false;
	free(reader->buffer);
	reader->buffer = grown;
	atomic_store_explicit(&reader->size, len, memory_order_relaxed);
	return true;
}

static void skip(struct reader *reader, uint64_t to)
{
	reader->lost += to - reader->next;
	reader->next = to;
}

/* Returns whether at least half of the ring's records are free for new events before this reader
 * loses one. */
static bool is_ahead(const struct kvt_record_ring *ring, const struct reader *reader)
{
	bool half_empty = ring->next - ring->oldest <= ring->most / 2 && ring->held <= ring->size / 2;

	return half_empty || (reader->next >= ring->oldest &&
				     reader->next - ring->oldest >= (ring->next - ring->oldest) / 2);
}

bool kvt_event_log_has_room(struct kvt_event_log *log)
{
	bool room = true;

	pthread_mutex_lock(&log->lock);
	if (log->publisher != NULL)
		room = is_ahead(&log->ring, &log->feeder);
	if (log->keeps && (log->publisher == NULL || log->taker.reads))
		room = room && is_ahead(&log->ring, &log->taker);
	pthread_mutex_unlock(&log->lock);
	return room;
}

/* Copies as many records as fit. *need: length of the first record if it alone is longer than the
 * buffer, else 0. */
static size_t copy_out(struct kvt_event_log *log, struct reader *reader, struct kvt_event *out,
	size_t max, size_t *need)
{
	size_t size = atomic_load_explicit(&reader->size, memory_order_relaxed);
	size_t n = 0, used = 0, len;
	const void *record;

	*need = 0;
	pthread_mutex_lock(&log->lock);
	reader->reads = true;
	if (reader->next < log->ring.oldest)
		skip(reader, log->ring.oldest);
	while (n < max && reader->next < log->ring.next) {
		record = kvt_record_ring_at(&log->ring, reader->next, &len);
		if (len == 0) { /* the record was longer than the ring allows */
			skip(reader, reader->next + 1);
			continue;
		}
		if (size - used < len) {
			*need = n == 0 ? len : 0;
			break;
		}
		memcpy(reader->buffer + used, record, len);
		kvt_event_record_read(reader->buffer + used, reader->next, &out[n]);
		n++;
		reader->next++;
		used += (len + 7) / 8 * 8 < size - used ? (len + 7) / 8 * 8 : size - used;
	}
	pthread_mutex_unlock(&log->lock);
	return n;
}

/* Reads up to `max` events in order. Pointers in them are valid until this reader reads again. */
static size_t read_events(
	struct kvt_event_log *log, struct reader *reader, struct kvt_event *out, size_t max)
{
	size_t need = READ_BYTES, n;

	if (max == 0)
		return 0;
	for (;;) {
		if (!make_room(reader, need))
			return 0; /* no event is lost yet: the next try may get the memory */
		n = copy_out(log, reader, out, max, &need);
		if (n > 0 || need == 0)
			return n;
	}
}

/* Logs, at most once a minute, that a reader has lost events. */
static void say_lost(struct kvt_event_log *log, struct reader *reader, const char *who)
{
	int64_t now_ns = kvt_now(log->s);

	if (reader->lost == reader->said || now_ns < reader->say_ns)
		return;
	kvt_note(log->s, KVT_LOG_WARN,
		"events: %llu were lost, since %s too slowly: routers may take chunks for stored that are gone",
		(unsigned long long)(reader->lost - reader->said), who);
	reader->said = reader->lost;
	reader->say_ns = now_ns + SAY_NS;
}

size_t kvt_event_log_take(struct kvt_event_log *log, struct kvt_event *out, size_t max)
{
	size_t n = read_events(log, &log->taker, out, max);

	say_lost(log, &log->taker, "the engine took them");
	return n;
}

/* --- publishing ------------------------------------------------------------------------------- */

/* Sends up to TURN_BATCHES batches; returns their number. */
static size_t publish(struct kvt_event_log *log)
{
	size_t sent = 0, n;

	while (sent < TURN_BATCHES) {
		uint64_t lost = log->feeder.lost;

		n = read_events(log, &log->feeder, log->events, BATCH_EVENTS);
		if (log->feeder.lost != lost) {
			kvt_publisher_skip(log->publisher);
			say_lost(log, &log->feeder, "the publisher's thread ran");
		}
		if (n == 0)
			break;
		if (kvt_event_batch_pack(&log->batch, kvt_wall(log->s), log->events, n) == KVT_OK)
			kvt_publisher_send(log->publisher, log->batch.data, log->batch.len);
		else
			kvt_publisher_skip(log->publisher);
		sent++;
	}
	return sent;
}

static void *run(void *arg)
{
	struct kvt_event_log *log = arg;
	const struct timespec pause = {.tv_nsec = BATCH_NS};
	bool waits = false, busy = false;
	eventfd_t count;

	while (!atomic_load(&log->stop)) {
		kvt_publisher_wait(log->publisher, log->wake, busy ? 0 : waits ? WAITING_MS : -1);
		(void)!eventfd_read(log->wake, &count);
		if (!busy && atomic_load(&log->awake) && !atomic_load(&log->stop))
			nanosleep(&pause, NULL);
		/* set before events are read, so that later ones wake the thread again */
		atomic_store(&log->awake, false);
		busy = publish(log) == TURN_BATCHES;
		busy |= kvt_publisher_serve(log->publisher, &waits) > 0;
	}
	while (publish(log) > 0)
		continue;
	return NULL;
}

size_t kvt_event_log_step(struct kvt_event_log *log, int64_t *next_ns)
{
	bool waits = false;
	size_t done = 0;
	int64_t look_ns;

	if (log->publisher == NULL || log->threaded)
		return 0;
	done = publish(log);
	done += kvt_publisher_serve(log->publisher, &waits);
	if (kvt_publisher_has_replay(log->publisher)) {
		look_ns = kvt_now(log->s) + (waits ? WAITING_MS * INT64_C(1000000) : REPLAY_LOOK_NS);
		*next_ns = look_ns < *next_ns ? look_ns : *next_ns;
	}
	return done;
}

/* --- life ------------------------------------------------------------------------------------- */

/* Starts the thread with signals blocked, since the caller's threads handle them, and lets it run
 * on all cores. */
static bool start_thread(struct kvt_event_log *log)
{
	cpu_set_t everywhere;
	int error;

	log->wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (log->wake < 0)
		return false;
	log->threaded = true; /* set here because the thread reads it */
	error = kvw_thread_start(&log->thread, run, log);
	log->threaded = error == 0;
	if (error != 0)
		return false;
	memset(&everywhere, 0xff, sizeof(everywhere));
	pthread_setaffinity_np(log->thread, sizeof(everywhere), &everywhere);
	pthread_setname_np(log->thread, "kvt-events");
	return true;
}

static enum kvt_status create_queue(struct kvt_event_log *log, const struct kvt_config *config)
{
	uint64_t events = config->events_queue, bytes;

	if (log->publisher != NULL && events < PUBLISH_QUEUE)
		events = PUBLISH_QUEUE;
	if (events > QUEUE_MAX) {
		kvt_note(log->s, KVT_LOG_INFO, "events.queue: at most %u events are kept", QUEUE_MAX);
		events = QUEUE_MAX;
	}
	log->keeps = events > 0;
	bytes = events * EVENT_BYTES < QUEUE_BYTES ? events * EVENT_BYTES : QUEUE_BYTES;
	if (log->keeps && bytes < KVT_EVENT_RECORD_MAX)
		/* enough for any record; pages that are not used cost nothing */
		bytes = KVT_EVENT_RECORD_MAX;
	return kvt_record_ring_init(&log->ring, bytes, events, 1);
}

enum kvt_status kvt_event_log_create(const struct kvt_config *config,
	const struct kvt_surroundings *s, struct kvt_event_log **out)
{
	struct kvt_event_log *log = calloc(1, sizeof(*log));
	enum kvt_status status;

	if (log == NULL)
		return KVT_ENOMEM;
	log->s = s;
	log->wake = -1;
	log->taker.next = log->feeder.next = 1;
	pthread_mutex_init(&log->lock, NULL);
	status = kvt_publisher_create(config, s, &log->publisher);
	if (status == KVT_ENOMEM)
		goto fail;
	status = create_queue(log, config);
	if (status != KVT_OK)
		goto fail;
	if (log->publisher != NULL && config->threads != KVT_THREADS_CALLER && !start_thread(log)) {
		kvt_note(s, KVT_LOG_WARN,
			"events: no thread for the publisher; nothing is published");
		kvt_publisher_destroy(log->publisher);
		log->publisher = NULL;
	}
	*out = log;
	return KVT_OK;
fail:
	kvt_event_log_destroy(log);
	return KVT_ENOMEM;
}

void kvt_event_log_destroy(struct kvt_event_log *log)
{
	if (log == NULL)
		return;
	if (log->threaded) {
		atomic_store(&log->stop, true);
		(void)!eventfd_write(log->wake, 1);
		pthread_join(log->thread, NULL);
	} else if (log->publisher != NULL && log->ring.data != NULL) {
		while (publish(log) > 0)
			continue;
	}
	if (log->wake >= 0)
		close(log->wake);
	kvt_publisher_destroy(log->publisher);
	kvt_packed_finish(&log->batch);
	free(log->feeder.buffer);
	free(log->taker.buffer);
	kvt_record_ring_finish(&log->ring);
	pthread_mutex_destroy(&log->lock);
	free(log);
}

/* --- observation ------------------------------------------------------------------------------ */

const char *kvt_event_log_address(const struct kvt_event_log *log)
{
	return log->publisher == NULL ? "" : kvt_publisher_address(log->publisher);
}

const char *kvt_event_log_replay_address(const struct kvt_event_log *log)
{
	return log->publisher == NULL ? "" : kvt_publisher_replay_address(log->publisher);
}

/* Returns the number of records that a reader has lost, with those that it will miss at its next
 * read. The lock must be held. */
static uint64_t lost_of(const struct kvt_event_log *log, const struct reader *reader)
{
	uint64_t behind = reader->reads && reader->next < log->ring.oldest
				  ? log->ring.oldest - reader->next
				  : 0;

	return reader->lost + behind;
}

void kvt_event_log_stats(struct kvt_event_log *log, struct kvt_event_log_stats *out)
{
	struct kvt_publisher_stats published = {0};
	struct kvt_event_log_stats stats = {0};

	pthread_mutex_lock(&log->lock);
	stats.events = log->ring.next - 1;
	stats.lost = lost_of(log, &log->taker);
	stats.publish_lost = lost_of(log, &log->feeder);
	stats.memory_bytes = sizeof(*log) + kvt_record_ring_bytes(&log->ring);
	pthread_mutex_unlock(&log->lock);
	stats.memory_bytes += atomic_load_explicit(&log->taker.size, memory_order_relaxed) +
			      atomic_load_explicit(&log->feeder.size, memory_order_relaxed);
	if (log->publisher != NULL)
		kvt_publisher_stats(log->publisher, &published);
	stats.published_batches = published.batches;
	stats.published_bytes = published.bytes;
	stats.publish_drops = published.drops;
	stats.replays = published.replays;
	stats.replays_given_up = published.replays_given_up;
	stats.replay_bytes_held = published.replay_bytes_held;
	stats.replay_memory_bytes = published.memory_bytes;
	*out = stats;
}
