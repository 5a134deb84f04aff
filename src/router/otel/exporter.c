/*
 * exporter.c - see exporter.h.
 *
 *	outboxes of loops -> open batch -> waiting batches, oldest first -> one message at a time
 *
 * Twenty times a second, and more often while many requests end, the thread empties the outboxes
 * and encodes the spans into the open batch. A batch is closed when it is large or as old as
 * tracing.interval. The oldest one is sent; if the collector cannot take it, it is sent again after
 * a pause that doubles, up to TRIES times, and the others wait behind it: a collector that is in
 * trouble gets no second message meanwhile. All batches together have tracing.buffer bytes; what
 * comes beyond that is dropped, so that a dead collector costs this memory and nothing else.
 */
#include "otel/exporter.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/random.h"
#include "base/thread.h"
#include "fleet/fleet.h"
#include "otel/delivery.h"

#define LOOK_MS       50           /* between two looks at the outboxes, at most */
#define LOOK_LEAST_MS 5            /* and at least */
#define BATCH_BYTES   (512u << 10) /* a batch of so many is closed */
#define TURN_MOST     4096         /* most requests encoded before the next look at libcurl */
#define TRIES         6
#define PAUSE_NS      KVW_NS_PER_S /* before the second try; doubles each time */
#define STOP_NS       (2 * KVW_NS_PER_S)
#define COMPLAIN_NS   (60 * KVW_NS_PER_S)

/* Spans that are sent together. */
struct batch {
	TAILQ_ENTRY(batch) entry;
	struct kvw_page spans;
	uint64_t requests, span_count;
	int64_t begun_ns;
};

TAILQ_HEAD(batch_list, batch);

struct kvw_otel {
	struct kvw_otel_deps deps;
	struct kvw_otel_state state;
	pthread_t thread;
	bool started;
	_Atomic bool stop;

	/* --- the thread's --- */
	struct kvw_delivery *delivery;
	struct kvw_span_facts facts;
	struct kvw_spans *spans;  /* of the request that is encoded */
	struct batch *open;       /* NULL: none */
	struct batch_list closed; /* oldest first; the first may be under way */
	size_t bytes;             /* of all batches */
	unsigned tries;           /* of the first closed batch */
	int64_t next_ns;          /* when it may be sent */
	int64_t looked_ns;        /* when the outboxes were emptied */
	int64_t next_look_ns;     /* when the outboxes are to be emptied next */
	int64_t complained_ns;
	uint64_t random;
};

static void count(_Atomic uint64_t *counter, uint64_t n)
{
	atomic_fetch_add_explicit(counter, n, memory_order_relaxed);
}

/* --- from outboxes to batches --- */

/* Copies the URL of a worker while it is held, since only the control thread may read others. */
static size_t copy_worker_url(void *arg, uint32_t number, char *out, size_t room)
{
	const struct kvw_otel *otel = arg;
	const struct kvw_fleet *fleet = otel->deps.fleet;
	uint32_t slot = kvw_trace_worker_slot(number);
	struct kvw_worker *worker = slot < fleet->count ? kvw_fleet_worker(fleet, slot) : NULL;
	size_t len = 0;

	if (worker == NULL || !kvw_worker_hold(worker))
		return 0;
	if (kvw_trace_worker(slot, atomic_load_explicit(&worker->use, memory_order_relaxed)) ==
		number) {
		len = strlen(worker->url);
		len = len < room ? len : room;
		memcpy(out, worker->url, len);
	}
	kvw_worker_let_go(worker);
	return len;
}

static void set_bytes(struct kvw_otel *otel, size_t bytes)
{
	otel->bytes = bytes;
	atomic_store_explicit(&otel->state.waiting, bytes, memory_order_relaxed);
}

static void release_batch(struct kvw_otel *otel, struct batch *batch)
{
	set_bytes(otel, otel->bytes - batch->spans.len);
	free(batch->spans.data);
	free(batch);
}

static void close_batch(struct kvw_otel *otel)
{
	if (otel->open != NULL)
		TAILQ_INSERT_TAIL(&otel->closed, otel->open, entry);
	otel->open = NULL;
}

/* Adds the spans of a request to the open batch. False: there is no memory for them. */
static bool add_request(struct kvw_otel *otel, const struct kvw_trace_story *story, int64_t now_ns)
{
	struct batch *batch = otel->open;
	size_t before;

	if (otel->bytes >= otel->deps.settings->buffer)
		return false;
	if (batch == NULL) {
		batch = calloc(1, sizeof(*batch));
		if (batch == NULL)
			return false;
		batch->begun_ns = now_ns;
		otel->open = batch;
	}
	before = batch->spans.len;
	kvw_spans_make(otel->spans, &otel->facts, story);
	kvw_delivery_format(otel->delivery)->spans(&batch->spans, otel->spans);
	if (batch->spans.failed) {
		batch->spans.len = before;
		batch->spans.failed = false;
		return false;
	}
	batch->requests++;
	batch->span_count += otel->spans->count;
	set_bytes(otel, otel->bytes + batch->spans.len - before);
	if (otel->deps.made != NULL)
		otel->deps.made(otel->deps.arg, story);
	if (batch->spans.len >= BATCH_BYTES)
		close_batch(otel);
	return true;
}

/* Returns the number of requests that the fullest outbox had. */
static size_t empty_outboxes(struct kvw_otel *otel, int64_t now_ns)
{
	const struct kvw_trace *trace = otel->deps.trace;
	struct kvw_trace_story story;
	int64_t oldest_ns = now_ns - otel->deps.settings->interval_ms * KVW_NS_PER_MS;
	size_t turn = 0, fullest = 0;

	for (size_t loop = 0; loop < kvw_trace_loops(trace); loop++) {
		size_t before = turn;

		for (; turn < TURN_MOST && kvw_trace_take(trace, loop, &story); turn++)
			if (!add_request(otel, &story, now_ns))
				count(&otel->state.dropped[KVW_OTEL_DROP_BUFFER], 1);
		fullest = turn - before > fullest ? turn - before : fullest;
	}
	if (otel->open != NULL && otel->open->begun_ns <= oldest_ns)
		close_batch(otel);
	return fullest;
}

/*
 * Returns the milliseconds until the next look, by the number of requests that the fullest outbox
 * had. A quarter of its room may fill up in that time, at the rate since the last look; an outbox
 * that may have been full says too little of the rate, so the next look comes soon. Few requests in
 * a short time say little, too: the time at most doubles from look to look.
 */
static int pause_until_look(struct kvw_otel *otel, size_t fullest, int64_t now_ns)
{
	int64_t since_ms = (now_ns - otel->looked_ns) / KVW_NS_PER_MS;
	int64_t most = 2 * (otel->next_look_ns - otel->looked_ns) / KVW_NS_PER_MS;
	size_t room = kvw_trace_outbox_room(otel->deps.trace);
	int64_t pause = LOOK_MS;

	otel->looked_ns = now_ns;
	if (fullest > room / 2)
		pause = LOOK_LEAST_MS;
	else if (fullest > 0)
		pause = since_ms * (int64_t)(room / 4) / (int64_t)fullest;
	most = most < LOOK_MS ? most : LOOK_MS;
	pause = pause < most ? pause : most;
	return (int)(pause < LOOK_LEAST_MS ? LOOK_LEAST_MS : pause);
}

/* --- from batches to the collector --- */

/* Returns the length of the endpoint without its query, which may have a token. */
static int shown_len(const char *endpoint)
{
	return (int)strcspn(endpoint, "?");
}

static void complain(struct kvw_otel *otel, int64_t now_ns, const char *what, const char *why)
{
	if (otel->complained_ns != 0 && now_ns - otel->complained_ns < COMPLAIN_NS)
		return;
	otel->complained_ns = now_ns;
	kvw_warn("otel", "%s endpoint=%.*s why=\"%s\"", what,
		shown_len(otel->deps.settings->endpoint), otel->deps.settings->endpoint, why);
}

/* Ends the first batch. */
static void finish_first(struct kvw_otel *otel)
{
	struct batch *first = TAILQ_FIRST(&otel->closed);

	TAILQ_REMOVE(&otel->closed, first, entry);
	release_batch(otel, first);
	otel->tries = 0;
	otel->next_ns = 0;
}

static void drop_first(struct kvw_otel *otel, enum kvw_otel_drop why)
{
	count(&otel->state.dropped[why], TAILQ_FIRST(&otel->closed)->requests);
	finish_first(otel);
}

static void send_first(struct kvw_otel *otel, int64_t now_ns)
{
	struct batch *first = TAILQ_FIRST(&otel->closed);

	if (first == NULL || kvw_delivery_runs(otel->delivery) || now_ns < otel->next_ns)
		return;
	if (kvw_delivery_start(otel->delivery, &first->spans) != KVW_OK) {
		complain(otel, now_ns, "spans dropped", "out of memory");
		drop_first(otel, KVW_OTEL_DROP_BUFFER);
		return;
	}
	count(&otel->state.sent, 1);
	count(&otel->state.repeated, otel->tries > 0);
	otel->tries++;
}

/* Returns the pause before the next try, longer or shorter by up to a quarter, so that replicas do
 * not return together. */
static int64_t pause_of(struct kvw_otel *otel, const struct kvw_delivery_result *result)
{
	int64_t pause_ns = PAUSE_NS << (otel->tries - 1);

	pause_ns = (int64_t)((double)pause_ns * (0.75 + kvw_random_fraction(&otel->random) / 2));
	return pause_ns > result->retry_after_ns ? pause_ns : result->retry_after_ns;
}

static void take_result(struct kvw_otel *otel, enum kvw_delivered how,
	const struct kvw_delivery_result *result, int64_t now_ns)
{
	const struct batch *first = TAILQ_FIRST(&otel->closed);

	switch (how) {
	case KVW_DELIVERY_NOTHING:
		break;
	case KVW_DELIVERY_OK:
		if (result->rejected > 0)
			complain(otel, now_ns, "the collector has not taken some spans",
				"partial success");
		count(&otel->state.rejected, result->rejected < first->span_count
						     ? result->rejected
						     : first->span_count);
		count(&otel->state.exported, first->requests);
		finish_first(otel);
		break;
	case KVW_DELIVERY_REFUSED:
		complain(otel, now_ns, "spans dropped: the collector refuses them", result->why);
		drop_first(otel, KVW_OTEL_DROP_REFUSED);
		break;
	case KVW_DELIVERY_AGAIN:
		complain(otel, now_ns, "the collector does not take spans, trying again",
			result->why);
		if (atomic_load_explicit(&otel->stop, memory_order_acquire))
			drop_first(otel, KVW_OTEL_DROP_STOPPED); /* no time for a pause */
		else if (otel->tries >= TRIES)
			drop_first(otel, KVW_OTEL_DROP_FAILED);
		else
			otel->next_ns = now_ns + pause_of(otel, result);
		break;
	}
}

/* --- the thread --- */

static bool has_spans(const struct kvw_otel *otel)
{
	return otel->open != NULL || !TAILQ_EMPTY(&otel->closed);
}

/* Empties the outboxes, at once or if it is time. Returns the milliseconds until the next look. */
static int look(struct kvw_otel *otel, int64_t now_ns, bool at_once)
{
	int pause;

	if (!at_once && now_ns < otel->next_look_ns)
		return (int)((otel->next_look_ns - now_ns + KVW_NS_PER_MS - 1) / KVW_NS_PER_MS);
	pause = pause_until_look(otel, empty_outboxes(otel, now_ns), now_ns);
	otel->next_look_ns = now_ns + pause * KVW_NS_PER_MS;
	return pause;
}

/* One turn; returns after LOOK_MS at the latest, and before the next look when the collector has
 * taken or sent something. */
static void take_turn(struct kvw_otel *otel)
{
	bool stop = atomic_load_explicit(&otel->stop, memory_order_acquire);
	int pause = look(otel, kvw_clock_ns(), stop);
	struct kvw_delivery_result result;
	enum kvw_delivered how;

	if (stop)
		close_batch(otel);
	send_first(otel, kvw_clock_ns());
	how = kvw_delivery_wait(otel->delivery, pause, &result);
	take_result(otel, how, &result, kvw_clock_ns());
}

static void *exporter_main(void *arg)
{
	struct kvw_otel *otel = arg;
	int64_t until_ns;

	(void)pthread_setname_np(pthread_self(), "kvway-otel");
	while (!atomic_load_explicit(&otel->stop, memory_order_acquire))
		take_turn(otel);
	until_ns = kvw_clock_ns() + STOP_NS;
	otel->next_ns = 0; /* the last try, and those behind it have their first one */
	do
		take_turn(otel);
	while (has_spans(otel) && kvw_clock_ns() < until_ns);
	while (!TAILQ_EMPTY(&otel->closed))
		drop_first(otel, KVW_OTEL_DROP_STOPPED);
	return NULL;
}

enum kvw_err kvw_otel_start(const struct kvw_otel_deps *deps, struct kvw_otel **out)
{
	struct kvw_otel *otel = calloc(1, sizeof(*otel));
	const struct kvw_fleet *fleet = deps->fleet;

	if (otel == NULL)
		return KVW_ENOMEM;
	otel->deps = *deps;
	otel->state.trace = deps->trace;
	otel->random = (uint64_t)kvw_clock_ns();
	otel->facts = (struct kvw_span_facts){
		.trace = deps->trace,
		.https = fleet->config->tls_certificate[0] != '\0',
		.worker = copy_worker_url,
		.arg = otel,
	};
	TAILQ_INIT(&otel->closed);
	otel->spans = malloc(sizeof(*otel->spans));
	otel->started = otel->spans != NULL &&
			kvw_delivery_create(deps->settings, &otel->delivery) == KVW_OK &&
			kvw_thread_start(&otel->thread, exporter_main, otel) == 0;
	if (!otel->started) {
		kvw_otel_stop(otel);
		return KVW_ENOMEM;
	}
	kvw_info("otel", "spans go to endpoint=%.*s", shown_len(deps->settings->endpoint),
		deps->settings->endpoint);
	*out = otel;
	return KVW_OK;
}

void kvw_otel_stop(struct kvw_otel *otel)
{
	if (otel == NULL)
		return;
	if (otel->started) {
		atomic_store_explicit(&otel->stop, true, memory_order_release);
		kvw_delivery_wake(otel->delivery);
		pthread_join(otel->thread, NULL);
	}
	kvw_delivery_destroy(otel->delivery);
	free(otel->spans);
	free(otel);
}

const struct kvw_otel_state *kvw_otel_state(const struct kvw_otel *otel)
{
	return &otel->state;
}
