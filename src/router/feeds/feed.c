/*
 * feed.c - runs the feed's thread: sockets, posts and timers of all modules.
 *
 *   other threads --post--> ring --eventfd--.
 *   workers --tcp--> ZeroMQ's I/O thread --> sockets --> zmq_poll --> modules --> exact index
 *
 * A turn: wait until a socket, a post or a timer is due; run the posts; let each readable socket
 * have its burst; run the timers. zmq_poll reports sockets again as long as they have messages, so
 * the next turn takes what a burst leaves.
 *
 * Watches may be added and ended while sockets are being read. An ended watch stays in the array,
 * marked, until the turn is over, so that no entry moves during the loop over them; a socket may be
 * closed as soon as it is unwatched, because the list for zmq_poll is rebuilt before its next use.
 */
#include "feeds/feed.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>
#include <zmq.h>

#include "base/clock.h"
#include "feeds/lag.h"
#include "base/log.h"
#include "base/thread.h"
#include "routing/exact.h"
#include "state/memory.h"

#define TICK_NS      (100 * KVW_NS_PER_MS)
#define PURGE_CHUNK  64    /* purged workers that are passed to a module in one call */
#define SOCKETS_MAX  65000 /* limit of sockets, below what ZeroMQ allows; 64 workers need 128 */
#define SOCKETS_FREE 64    /* sockets in addition to two for each rank of each worker */
/* time per turn for reading records of the former process */
#define RECALL_NS    (2 * KVW_NS_PER_MS)

struct watch {
	void *socket; /* NULL: ended */
	/* descriptor of an event loop, named by `socket`; -1: `socket` is a ZeroMQ socket */
	int fd;
	kvw_feed_read_fn *fn;
	void *ctx;
};

struct timer {
	int64_t interval_ns, due_ns;
	kvw_feed_fn *fn;
	void *ctx;
};

struct post {
	kvw_feed_fn *fn;
	void *arg;
};

struct kvw_feed {
	struct kvw_feed_deps deps;
	void *states[KVW_FEED_MODULES]; /* one per deps.modules; unchanged after start */
	void *context;
	int wake; /* eventfd */
	pthread_t thread;
	bool running; /* the thread exists */
	_Atomic bool stopping;

	/* feed thread */
	struct watch *watches;  /* [watch_count] */
	zmq_pollitem_t *polled; /* [watch_room + 1]: first the wake descriptor, then the watches */
	size_t watch_count, watch_room;
	bool watches_ended; /* some are marked */
	struct timer *timers;
	size_t timer_count;
	int64_t now_ns;
	struct kvw_lag lag;
	_Atomic uint64_t counts[KVW_FEED_COUNTERS]; /* POSTS_REFUSED is counted by any thread */
	_Atomic uint32_t sockets;
	/* When listening in the former process's place began; 0: it did not, or an engine was heard
	 * since. */
	int64_t listens_ns;
	_Atomic int64_t handover_ns; /* see struct kvw_feed_stats */
	_Atomic bool settled;
	/* set before hand_over and then unchanged: the next process reads the records */
	bool reads;
	_Atomic int kept; /* memory file with the records; -1: none, or passed to the caller */
	_Atomic bool handed_over;
	/* The former process's memory file, unchanged after listen_now; -1: none. */
	int handed;
	/* reader of the handed-over records; NULL: none are being read */
	struct kvw_state_reader *recalls;
	uint64_t recalled;                 /* records */
	int64_t recall_begun_ns;

	pthread_mutex_t post_lock; /* guards the members below */
	struct post posts[KVW_FEED_POSTS];
	size_t post_first, post_count;
	bool closed; /* no more posts */

	pthread_mutex_t status_lock;    /* guards the members below */
	struct kvw_feed_status *status; /* [KVW_MAX_WORKERS][KVW_REPORTER_COUNT] */
};

/* --- small things --- */

const struct kvw_feed_deps *kvw_feed_deps(const struct kvw_feed *feed)
{
	return &feed->deps;
}

void *kvw_feed_context(struct kvw_feed *feed)
{
	return feed->context;
}

int64_t kvw_feed_now(const struct kvw_feed *feed)
{
	return feed->now_ns;
}

bool kvw_feed_stopped(const struct kvw_feed *feed)
{
	return atomic_load(&feed->stopping);
}

void *kvw_feed_module_state(const struct kvw_feed *feed, const struct kvw_feed_module *module)
{
	for (size_t i = 0; feed->deps.modules[i] != NULL; i++)
		if (feed->deps.modules[i] == module)
			return feed->states[i];
	return NULL;
}

static void wake(struct kvw_feed *feed)
{
	uint64_t one = 1;
	ssize_t written;

	do {
		written = write(feed->wake, &one, sizeof(one));
	} while (written < 0 && errno == EINTR); /* EAGAIN: enough wake-ups are pending already */
}

/* --- counters and status --- */

const char *kvw_feed_counter_name(enum kvw_feed_counter counter)
{
	static const char *const names[KVW_FEED_COUNTERS] = {"messages", "bytes", "batches",
		"events", "refused", "gaps", "replays", "replayed_batches", "lost_batches",
		"dropped_events", "restarts", "posts_refused"};

	return names[counter];
}

void kvw_feed_count(struct kvw_feed *feed, enum kvw_feed_counter counter, uint64_t n)
{
	atomic_fetch_add_explicit(&feed->counts[counter], n, memory_order_relaxed);
}

static struct kvw_feed_status *status_of(
	struct kvw_feed *feed, uint32_t worker, enum kvw_reporter reporter)
{
	return &feed->status[(size_t)worker * KVW_REPORTER_COUNT + reporter];
}

void kvw_feed_heard(struct kvw_feed *feed, uint32_t worker, enum kvw_reporter reporter,
	uint64_t sequence, int64_t sent_ns)
{
	struct kvw_feed_status *status = status_of(feed, worker, reporter);
	int64_t lag_ns = sent_ns == 0 ? -1 : kvw_clock_wall_ns() - sent_ns;

	if (sent_ns != 0 && lag_ns < 0)
		lag_ns = 0;
	if (lag_ns >= 0)
		kvw_lag_add(&feed->lag, lag_ns);
	pthread_mutex_lock(&feed->status_lock);
	status->sequence = sequence;
	status->lag_ns = lag_ns;
	status->heard_ns = feed->now_ns;
	pthread_mutex_unlock(&feed->status_lock);
}

void kvw_feed_set_coverage(struct kvw_feed *feed, uint32_t worker, enum kvw_reporter reporter,
	enum kvw_coverage coverage, uint32_t sources, const char *wrong)
{
	struct kvw_feed_status *status = status_of(feed, worker, reporter);

	pthread_mutex_lock(&feed->status_lock);
	/* under the lock, as it is read with its text */
	kvw_exact_set_coverage(feed->deps.exact, worker, reporter, coverage);
	status->coverage = coverage;
	status->sources = sources;
	snprintf(status->wrong, sizeof(status->wrong), "%s", wrong);
	pthread_mutex_unlock(&feed->status_lock);
}

enum kvw_err kvw_feed_worker_status(struct kvw_feed *feed, uint32_t worker,
	enum kvw_reporter reporter, struct kvw_feed_status *out)
{
	if (worker >= feed->deps.fleet->count)
		return KVW_ENOTFOUND;
	pthread_mutex_lock(&feed->status_lock);
	*out = *status_of(feed, worker, reporter);
	out->coverage = kvw_exact_coverage(feed->deps.exact, worker, reporter);
	pthread_mutex_unlock(&feed->status_lock);
	return KVW_OK;
}

enum kvw_knowledge kvw_feed_knowledge(const struct kvw_feed *feed, uint32_t worker)
{
	return kvw_exact_knowledge(feed->deps.exact, worker);
}

void kvw_feed_stats(struct kvw_feed *feed, struct kvw_feed_stats *out)
{
	struct timespec cpu = {0};
	clockid_t clock;

	*out = (struct kvw_feed_stats){.sockets = atomic_load(&feed->sockets)};
	for (int i = 0; i < KVW_FEED_COUNTERS; i++)
		out->counts[i] = atomic_load_explicit(&feed->counts[i], memory_order_relaxed);
	out->handover_ns = atomic_load(&feed->handover_ns);
	kvw_lag_read(&feed->lag, out);
	if (pthread_getcpuclockid(feed->thread, &clock) == 0 && clock_gettime(clock, &cpu) == 0)
		out->cpu_ns = (int64_t)cpu.tv_sec * KVW_NS_PER_S + cpu.tv_nsec;
	for (uint32_t worker = 0; worker < feed->deps.fleet->count; worker++)
		for (int reporter = 0; reporter < KVW_REPORTER_COUNT &&
			kvw_fleet_worker(feed->deps.fleet, worker) != NULL; reporter++)
			out->coverages[reporter][kvw_exact_coverage(
				feed->deps.exact, worker, (enum kvw_reporter)reporter)]++;
}

/* --- sockets --- */

enum kvw_err kvw_feed_watch(struct kvw_feed *feed, void *socket, kvw_feed_read_fn *fn, void *ctx)
{
	return kvw_feed_watch_fd(feed, -1, socket, fn, ctx);
}

enum kvw_err kvw_feed_watch_fd(
	struct kvw_feed *feed, int fd, void *handle, kvw_feed_read_fn *fn, void *ctx)
{
	size_t room = feed->watch_room == 0 ? 16 : 2 * feed->watch_room;
	struct watch *watches;
	zmq_pollitem_t *polled;

	if (feed->watch_count == feed->watch_room) {
		watches = realloc(feed->watches, room * sizeof(*watches));
		if (watches == NULL)
			return KVW_ENOMEM;
		feed->watches = watches;
		polled = realloc(feed->polled, (room + 1) * sizeof(*polled));
		if (polled == NULL)
			return KVW_ENOMEM;
		feed->polled = polled;
		feed->watch_room = room;
	}
	feed->watches[feed->watch_count++] = (struct watch){handle, fd, fn, ctx};
	atomic_fetch_add(&feed->sockets, 1);
	return KVW_OK;
}

void kvw_feed_unwatch(struct kvw_feed *feed, void *socket)
{
	for (size_t i = 0; i < feed->watch_count; i++) {
		if (feed->watches[i].socket != socket)
			continue;
		feed->watches[i].socket = NULL;
		feed->watches_ended = true;
		atomic_fetch_sub(&feed->sockets, 1);
		return;
	}
}

static void drop_ended(struct kvw_feed *feed)
{
	size_t kept = 0;

	if (!feed->watches_ended)
		return;
	for (size_t i = 0; i < feed->watch_count; i++)
		if (feed->watches[i].socket != NULL)
			feed->watches[kept++] = feed->watches[i];
	feed->watch_count = kept;
	feed->watches_ended = false;
}

/* Waits, and returns the number of polled watches. The list is rebuilt each time, which costs less
 * than zmq_poll itself. */
static size_t wait_for_something(struct kvw_feed *feed, int64_t timeout_ns)
{
	long timeout_ms = (long)((timeout_ns + KVW_NS_PER_MS - 1) / KVW_NS_PER_MS);

	drop_ended(feed);
	feed->polled[0] = (zmq_pollitem_t){.fd = feed->wake, .events = ZMQ_POLLIN};
	for (size_t i = 0; i < feed->watch_count; i++)
		feed->polled[i + 1] = feed->watches[i].fd < 0
					      ? (zmq_pollitem_t){.socket = feed->watches[i].socket,
							.events = ZMQ_POLLIN}
					      : (zmq_pollitem_t){.fd = feed->watches[i].fd,
							.events = ZMQ_POLLIN};
	if (zmq_poll(feed->polled, (int)feed->watch_count + 1, timeout_ms < 0 ? 0 : timeout_ms) < 0)
		for (size_t i = 0; i <= feed->watch_count; i++)
			feed->polled[i].revents = 0; /* a signal */
	return feed->watch_count;
}

static void report_purged(struct kvw_feed *feed, const uint32_t *purged, size_t count)
{
	for (size_t i = 0; count > 0 && feed->deps.modules[i] != NULL; i++)
		if (feed->states[i] != NULL && feed->deps.modules[i]->purged != NULL)
			feed->deps.modules[i]->purged(feed->states[i], purged, count);
}

/* Carries out purges that other threads have requested. */
static void purge(struct kvw_feed *feed)
{
	uint32_t purged[PURGE_CHUNK];
	size_t count;

	do {
		count = kvw_exact_purges(feed->deps.exact, purged, PURGE_CHUNK);
		report_purged(feed, purged, count);
	} while (count == PURGE_CHUNK);
}

/* Reads messages, after the purges: later events of a purged worker describe its new cache. */
static void read_sockets(struct kvw_feed *feed, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		struct watch watch = feed->watches[i];

		if ((feed->polled[i + 1].revents & ZMQ_POLLIN) == 0)
			continue;
		/* The entry is read again each time, since the call may end this watch, and grow
		 * the array. */
		for (int n = 0; n < KVW_FEED_BURST; n++) {
			purge(feed);
			if (feed->watches[i].socket != watch.socket ||
				!watch.fn(watch.socket, watch.ctx))
				break;
		}
	}
}

/* --- posts --- */

enum kvw_err kvw_feed_post(struct kvw_feed *feed, kvw_feed_fn *fn, void *arg)
{
	enum kvw_err err = KVW_OK;

	pthread_mutex_lock(&feed->post_lock);
	if (feed->closed)
		err = KVW_ECLOSED;
	else if (feed->post_count == KVW_FEED_POSTS)
		err = KVW_ELIMIT;
	else
		feed->posts[(feed->post_first + feed->post_count++) % KVW_FEED_POSTS] =
			(struct post){fn, arg};
	pthread_mutex_unlock(&feed->post_lock);
	if (err == KVW_OK)
		wake(feed);
	else
		kvw_feed_count(feed, KVW_FEED_POSTS_REFUSED, 1);
	return err;
}

static bool take_post(struct kvw_feed *feed, struct post *post)
{
	bool taken = false;

	pthread_mutex_lock(&feed->post_lock);
	if (feed->post_count > 0) {
		*post = feed->posts[feed->post_first];
		feed->post_first = (feed->post_first + 1) % KVW_FEED_POSTS;
		feed->post_count--;
		taken = true;
	}
	pthread_mutex_unlock(&feed->post_lock);
	return taken;
}

/* Runs only the posts that wait now, so that posts that add posts do not starve the sockets. */
static void run_posts(struct kvw_feed *feed)
{
	struct post post;
	uint64_t times;

	if ((feed->polled[0].revents & ZMQ_POLLIN) == 0)
		return;
	if (read(feed->wake, &times, sizeof(times)) < 0 && errno != EAGAIN)
		kvw_warn("feed", "cannot read from its own descriptor error=\"%s\"",
			strerror(errno));
	pthread_mutex_lock(&feed->post_lock);
	times = feed->post_count;
	pthread_mutex_unlock(&feed->post_lock);
	while (times-- > 0 && take_post(feed, &post))
		post.fn(feed, post.arg);
}

/* --- upgrades --- */

static void listen_there(struct kvw_feed *feed)
{
	feed->listens_ns = feed->now_ns;
	for (size_t i = 0; feed->deps.modules[i] != NULL; i++)
		if (feed->states[i] != NULL && feed->deps.modules[i]->listen != NULL)
			feed->deps.modules[i]->listen(feed->states[i]);
}

static void recall_one(
	struct kvw_feed *feed, enum kvw_keep_kind kind, const uint8_t *record, size_t len)
{
	for (size_t i = 0; feed->deps.modules[i] != NULL; i++)
		if (feed->states[i] != NULL && feed->deps.modules[i]->recall != NULL)
			feed->deps.modules[i]->recall(feed->states[i], kind, record, len);
}

static void end_recall(struct kvw_feed *feed, bool all_came)
{
	kvw_info("feed",
		"what workers reported to the process before us is taken over records=%llu "
		"bytes=%llu ms=%lld",
		(unsigned long long)feed->recalled,
		(unsigned long long)feed->recalls->summary.bytes,
		(long long)((kvw_clock_ns() - feed->recall_begun_ns) / KVW_NS_PER_MS));
	kvw_state_memory_close(feed->recalls);
	feed->recalls = NULL;
	for (size_t i = 0; feed->deps.modules[i] != NULL; i++)
		if (feed->states[i] != NULL && feed->deps.modules[i]->recalled != NULL)
			feed->deps.modules[i]->recalled(feed->states[i], all_came);
}

/* Reads some of the handed-over records in each turn, so that engines' events need not wait for
 * long. No engine may connect before all records are read, since its messages would seem to be
 * older than the records. */
static void recall_some(struct kvw_feed *feed, void *arg)
{
	int64_t until_ns = kvw_clock_ns() + RECALL_NS;
	enum kvw_keep_kind kind;
	const uint8_t *record;
	enum kvw_err err;
	size_t len;

	(void)arg;
	if (kvw_feed_stopped(feed) || feed->recalls == NULL)
		return;
	while ((err = kvw_state_read(feed->recalls, &kind, &record, &len)) == KVW_OK) {
		recall_one(feed, kind, record, len);
		feed->recalled++;
		if (kvw_clock_ns() >= until_ns && kvw_feed_post(feed, recall_some, NULL) == KVW_OK)
			return;
	}
	end_recall(feed, err == KVW_ECLOSED);
	listen_there(feed);
}

static void listen_now(struct kvw_feed *feed, void *arg)
{
	char why[KVW_STATE_WHY];

	(void)arg;
	if (kvw_feed_stopped(feed))
		return;
	if (feed->handed >= 0) {
		int fd = feed->handed;

		feed->handed = -1;
		feed->recall_begun_ns = kvw_clock_ns();
		if (kvw_state_memory_read_take(fd, feed->deps.config->state_max_bytes,
			    &feed->recalls, why) == KVW_OK) {
			recall_some(feed, NULL);
			return;
		}
		kvw_warn("feed",
			"what workers reported to the process before us is not used, they are "
			"asked again why=\"%s\"",
			why);
	}
	listen_there(feed);
}

void kvw_feed_listen(struct kvw_feed *feed, int handed)
{
	feed->handed = handed;
	if (kvw_feed_post(feed, listen_now, NULL) != KVW_OK)
		kvw_error("feed", "engines cannot connect: too many calls wait");
}

static enum kvw_err keep_all(void *arg, const struct kvw_keep_out *out)
{
	struct kvw_feed *feed = arg;
	enum kvw_err err = KVW_OK;

	for (size_t i = 0; err == KVW_OK && feed->deps.modules[i] != NULL; i++)
		if (feed->states[i] != NULL && feed->deps.modules[i]->keep != NULL)
			err = feed->deps.modules[i]->keep(feed->states[i], out);
	return err;
}

static void write_kept(struct kvw_feed *feed)
{
	int64_t begun_ns = kvw_clock_ns();
	char why[KVW_STATE_WHY];
	int fd;

	if (kvw_state_memory_write("kvway-caches", keep_all, feed,
		    feed->deps.config->state_max_bytes, &fd, why) != KVW_OK) {
		kvw_warn("feed",
			"what workers have reported is not handed over, they will be asked again "
			"why=\"%s\"",
			why);
		return;
	}
	kvw_info("feed",
		"what workers have reported is written for the process that takes over ms=%lld",
		(long long)((kvw_clock_ns() - begun_ns) / KVW_NS_PER_MS));
	atomic_store(&feed->kept, fd);
}

/* Passes the former process's records on to the next process. No engine has connected to this
 * process, so that they are still complete. */
static void pass_on(struct kvw_feed *feed)
{
	if (feed->reads) {
		atomic_store(&feed->kept, feed->recalls->fd);
		feed->recalls->fd = -1;
	}
	kvw_state_memory_close(feed->recalls);
	feed->recalls = NULL;
}

static void hand_over_modules(struct kvw_feed *feed, void *arg)
{
	(void)arg;
	for (size_t i = 0; !kvw_feed_stopped(feed) && feed->deps.modules[i] != NULL; i++)
		if (feed->states[i] != NULL && feed->deps.modules[i]->hand_over != NULL)
			feed->deps.modules[i]->hand_over(feed->states[i]);
	if (feed->recalls != NULL)
		pass_on(feed);
	else if (feed->reads && !kvw_feed_stopped(feed))
		write_kept(feed);
	atomic_store(&feed->handed_over, true);
}

int kvw_feed_hand_over(struct kvw_feed *feed, int64_t wait_ns, bool reads)
{
	const struct timespec pause = {.tv_nsec = KVW_NS_PER_MS};
	int64_t until_ns = kvw_clock_ns() + wait_ns;

	feed->reads = reads;
	atomic_store(&feed->handed_over, false);
	if (kvw_feed_post(feed, hand_over_modules, NULL) != KVW_OK)
		return -1;
	while (!atomic_load(&feed->handed_over) && kvw_clock_ns() < until_ns)
		(void)nanosleep(&pause, NULL);
	return atomic_exchange(&feed->kept, -1);
}

bool kvw_feed_settled(const struct kvw_feed *feed)
{
	return atomic_load(&feed->settled);
}

void kvw_feed_heard_there(struct kvw_feed *feed)
{
	if (feed->listens_ns == 0)
		return;
	atomic_store(&feed->handover_ns, feed->now_ns - feed->listens_ns + 1);
	kvw_info("feed", "engines have come over ms=%lld",
		(long long)((feed->now_ns - feed->listens_ns) / KVW_NS_PER_MS));
	feed->listens_ns = 0;
}

static bool all_settled(const struct kvw_feed *feed)
{
	for (size_t i = 0; feed->deps.modules[i] != NULL; i++)
		if (feed->states[i] != NULL && feed->deps.modules[i]->settled != NULL &&
			!feed->deps.modules[i]->settled(feed->states[i]))
			return false;
	return true;
}

/* --- timers --- */

enum kvw_err kvw_feed_every(struct kvw_feed *feed, int64_t interval_ns, kvw_feed_fn *fn, void *ctx)
{
	struct timer *timers = realloc(feed->timers, (feed->timer_count + 1) * sizeof(*timers));

	if (timers == NULL)
		return KVW_ENOMEM;
	feed->timers = timers;
	feed->timers[feed->timer_count++] =
		(struct timer){interval_ns, feed->now_ns + interval_ns, fn, ctx};
	return KVW_OK;
}

/* Returns the nanoseconds until the next timer; there is always one. */
static int64_t until_timer(const struct kvw_feed *feed)
{
	int64_t due_ns = INT64_MAX;

	for (size_t i = 0; i < feed->timer_count; i++)
		if (feed->timers[i].due_ns < due_ns)
			due_ns = feed->timers[i].due_ns;
	return due_ns > feed->now_ns ? due_ns - feed->now_ns : 0;
}

static void run_timers(struct kvw_feed *feed)
{
	for (size_t i = 0; i < feed->timer_count; i++) {
		struct timer *timer = &feed->timers[i];

		if (timer->due_ns > feed->now_ns)
			continue;
		timer->due_ns = feed->now_ns + timer->interval_ns;
		timer->fn(feed, timer->ctx); /* the call may move the array */
	}
}

/* Timer: the index's housekeeping. */
static void tick_feed(struct kvw_feed *feed, void *ctx)
{
	uint32_t purged[PURGE_CHUNK];
	size_t count;

	(void)ctx;
	kvw_lag_tick(&feed->lag, feed->now_ns);
	count = kvw_exact_tick(feed->deps.exact, feed->now_ns, purged, PURGE_CHUNK);
	report_purged(feed, purged, count);
	atomic_store(&feed->settled, all_settled(feed));
}

/* --- the thread --- */

static void *run_feed(void *arg)
{
	struct kvw_feed *feed = arg;
	size_t polled;

	while (!atomic_load(&feed->stopping)) {
		polled = wait_for_something(feed, until_timer(feed));
		feed->now_ns = kvw_clock_ns();
		run_posts(feed);
		read_sockets(feed, polled);
		run_timers(feed);
	}
	return NULL;
}

static enum kvw_err start_thread(struct kvw_feed *feed, FILE *errors)
{
	int rc = kvw_thread_start(&feed->thread, run_feed, feed);

	if (rc != 0) {
		fprintf(errors, "cannot start the thread of cache events: %s\n", strerror(rc));
		return KVW_EIO;
	}
	feed->running = true;
	(void)pthread_setname_np(feed->thread, "kvway-feed");
	return KVW_OK;
}

static enum kvw_err make_context(struct kvw_feed *feed, FILE *errors)
{
	size_t sockets = (size_t)KVW_MAX_WORKERS * KVW_EXACT_ENGINE_SOURCES * 2 + SOCKETS_FREE;

	feed->wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	feed->context = zmq_ctx_new();
	if (feed->wake < 0 || feed->context == NULL) {
		fprintf(errors, "cannot prepare for cache events: %s\n", strerror(errno));
		return KVW_EIO;
	}
	if (zmq_ctx_set(feed->context, ZMQ_MAX_SOCKETS,
		    sockets < SOCKETS_MAX ? (int)sockets : SOCKETS_MAX) != 0 ||
		zmq_ctx_set(feed->context, ZMQ_IPV6, 1) != 0) {
		fprintf(errors, "cannot prepare for cache events: %s\n", zmq_strerror(zmq_errno()));
		return KVW_EIO;
	}
	return KVW_OK;
}

static enum kvw_err start_modules(struct kvw_feed *feed, FILE *errors)
{
	enum kvw_err err = KVW_OK;

	for (size_t i = 0; feed->deps.modules[i] != NULL && err == KVW_OK; i++)
		err = feed->deps.modules[i]->start(feed, errors, &feed->states[i]);
	return err;
}

enum kvw_err kvw_feed_start(const struct kvw_feed_deps *deps, FILE *errors, struct kvw_feed **out)
{
	struct kvw_feed *feed = calloc(1, sizeof(*feed));
	enum kvw_err err = KVW_ENOMEM;

	if (feed == NULL)
		return KVW_ENOMEM;
	feed->deps = *deps;
	feed->wake = -1;
	feed->kept = feed->handed = -1;
	feed->now_ns = kvw_clock_ns();
	pthread_mutex_init(&feed->post_lock, NULL);
	pthread_mutex_init(&feed->status_lock, NULL);
	kvw_lag_init(&feed->lag, feed->now_ns);
	feed->polled = calloc(1, sizeof(*feed->polled));
	feed->status = calloc((size_t)KVW_MAX_WORKERS * KVW_REPORTER_COUNT, sizeof(*feed->status));
	if (feed->polled != NULL && feed->status != NULL)
		err = make_context(feed, errors);
	if (err == KVW_OK)
		err = kvw_feed_every(feed, TICK_NS, tick_feed, NULL);
	if (err == KVW_OK)
		err = start_modules(feed, errors);
	if (err == KVW_OK)
		err = start_thread(feed, errors);
	if (err != KVW_OK) {
		kvw_feed_stop(feed);
		return err;
	}
	*out = feed;
	return KVW_OK;
}

void kvw_feed_stop(struct kvw_feed *feed)
{
	struct post post;

	if (feed == NULL)
		return;
	atomic_store(&feed->stopping, true);
	pthread_mutex_lock(&feed->post_lock);
	feed->closed = true;
	pthread_mutex_unlock(&feed->post_lock);
	if (feed->running) {
		wake(feed);
		pthread_join(feed->thread, NULL);
	}
	while (take_post(feed, &post))
		post.fn(feed, post.arg);
	kvw_state_memory_close(feed->recalls);
	if (feed->handed >= 0)
		close(feed->handed);
	if (feed->kept >= 0)
		close(feed->kept);
	for (size_t i = KVW_FEED_MODULES; i-- > 0;)
		if (feed->states[i] != NULL)
			feed->deps.modules[i]->stop(feed->states[i]);
	if (feed->context != NULL)
		zmq_ctx_term(feed->context); /* waits until modules have closed their sockets */
	if (feed->wake >= 0)
		close(feed->wake);
	pthread_mutex_destroy(&feed->status_lock);
	pthread_mutex_destroy(&feed->post_lock);
	free(feed->status);
	free(feed->timers);
	free(feed->polled);
	free(feed->watches);
	free(feed);
}
