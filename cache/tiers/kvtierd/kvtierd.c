/*
 * kvtierd.c - chunks in a node's storage daemon: the tier's functions, its queues and its step.
 *
 * 	submit --> inbox --> jobs --> exchanges with the daemon --> done
 * 	             |         |
 * 	          bounded    READ: copied out of the shared memory, one chunk per step
 * 	          by bytes
 *
 * Submitted requests become jobs (any thread) and begin on the tier's thread: reads before writes, as long as the bytes
 * under way stay within l2.inflight. The tier ends a request at its deadline, or after twice l2.deadline: with KVT_EIO
 * if the daemon leaves requests unanswered, so that the caller's breaker counts the failure, else with KVT_MISS. Every
 * wait is bounded.
 *
 * An absent daemon is no failure of create: connections are made when they are needed.
 */
#include "tiers/kvtierd/kvtierd.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chunk/l2_url.h"
#include "tiers/tiers.h"

#define PRESENCE_ENTRIES 65536u
/* longest time spent on releasing leases when the tier is destroyed */
#define GOODBYE_NS       500000000
#define GOODBYE_STEPS    8192u
#define FULL_TOLD_NS     60000000000

static struct kvtierd *kvtierd_of(struct kvt_tier *base)
{
	return (struct kvtierd *)base;
}

void kvtierd_count(struct kvtierd *t, uint64_t *counter, uint64_t n)
{
	pthread_mutex_lock(&t->lock);
	*counter += n;
	pthread_mutex_unlock(&t->lock);
}

void kvtierd_say(struct kvtierd *t, const char *what)
{
	pthread_mutex_lock(&t->lock);
	(void)snprintf(t->reason, sizeof(t->reason), "%s", what);
	t->faulty = true;
	pthread_mutex_unlock(&t->lock);
}

void kvtierd_works(struct kvtierd *t)
{
	pthread_mutex_lock(&t->lock);
	t->reason[0] = '\0';
	t->faulty = false;
	pthread_mutex_unlock(&t->lock);
}

/* Sets the reason in the statistics when the daemon is full or busy: neither counts as a failure of
 * the daemon, and neither replaces the reason of one. */
static void say_unwilling(struct kvtierd *t, const char *what)
{
	pthread_mutex_lock(&t->lock);
	if (!t->faulty)
		(void)snprintf(t->reason, sizeof(t->reason), "%s", what);
	pthread_mutex_unlock(&t->lock);
}

/* Logs that the daemon is full, but only once in a while, since a full daemon refuses every
 * chunk. */
static void tell_full(struct kvtierd *t, int status)
{
	int64_t now_ns = kvt_now(t->s);

	t->full_refused++;
	if (t->full_told_ns != 0 && now_ns - t->full_told_ns < FULL_TOLD_NS)
		return;
	t->full_told_ns = now_ns;
	kvt_note(t->s, KVT_LOG_WARN,
		"kvtierd: %llu chunks found no room in the daemon so far (status %d)",
		(unsigned long long)t->full_refused, status);
}

/* --- ends of requests ------------------------------------------------------------------------- */

enum kvt_status kvtierd_failed(struct kvtierd *t, const struct kvtierd_exchange *x)
{
	if (x->status == KVT_MISS || x->status == KVT_ECANCELED)
		return x->status;
	kvtierd_count(t, &t->counts.io_errors, 1);
	/* answers that are not HTTP end here, too: this client cannot talk to such a server */
	return KVT_EIO;
}

enum kvt_status kvtierd_refused(struct kvtierd *t, const struct kvtierd_exchange *x)
{
	int status = x->answer->status;
	char text[64];

	(void)snprintf(text, sizeof(text), "the daemon answered with status %d", status);
	if (status == 507 && x->answer->quota)
		return KVT_FULL; /* a tenant's limit: other tenants' chunks are still accepted */
	switch (status) {
	case 507:
	case 413:
		say_unwilling(t, text);
		tell_full(t, status);
		return KVT_FULL;
	case 408:
	case 429:
	case 503: /* the daemon answers, but has no time for this request now */
		say_unwilling(t, text);
		return KVT_BUSY;
	default:
		break;
	}
	kvtierd_say(t, text);
	if (status < 500)
		return KVT_MISS;
	kvtierd_count(t, &t->counts.io_errors, 1);
	return KVT_EIO;
}

enum kvt_status kvtierd_put_answer(struct kvtierd *t, const struct kvtierd_exchange *x)
{
	if (x->status != KVT_OK)
		return kvtierd_failed(t, x);
	switch (x->answer->status) {
	case 200:
	case 201:
	case 204:
	case 409:
		return KVT_OK;
	default:
		return kvtierd_refused(t, x);
	}
}

static void finish(struct kvt_tier_request *r, enum kvt_status status)
{
	r->next = NULL;
	r->status = status;
	r->done(r);
}

void kvtierd_job_done(struct kvtierd_job *job, enum kvt_status status)
{
	struct kvtierd *t = job->t;

	TAILQ_REMOVE(&t->active, job, entry);
	if (job->counted)
		t->under_way -= job->request->bytes;
	/* the request's names may point into the job, so the request ends before the job is
	 * freed */
	finish(job->request, status);
	free(job->tail);
	free(job->parts);
	free(job);
}

/* --- from any thread -------------------------------------------------------------------------- */

static size_t kvtierd_match(struct kvt_tier *base, const struct kvt_key *keys, size_t n)
{
	struct kvtierd *t = kvtierd_of(base);

	return kvt_presence_match(t->presence, keys, n, kvt_now(t->s));
}

static enum kvt_status kvtierd_known(
	struct kvt_tier *base, const struct kvt_key *key, struct kvt_tier_known *out)
{
	struct kvtierd *t = kvtierd_of(base);

	return kvt_presence_get(t->presence, key, kvt_now(t->s), out) == KVT_PRESENCE_THERE
		       ? KVT_OK
		       : KVT_MISS;
}

static bool kvtierd_unsure(struct kvt_tier *base, const struct kvt_key *key)
{
	struct kvtierd *t = kvtierd_of(base);
	struct kvt_tier_known known;

	return kvt_presence_get(t->presence, key, kvt_now(t->s), &known) == KVT_PRESENCE_UNKNOWN;
}

static void kvtierd_wake(struct kvt_tier *base)
{
	kvtierd_http_wake(kvtierd_of(base)->http);
}

static uint64_t *queued_bytes(struct kvtierd *t, const struct kvt_tier_request *r)
{
	return r->verb == KVT_TIER_READ ? &t->counts.queued_read_bytes
					: &t->counts.queued_write_bytes;
}

static struct kvtierd_list *inbox_of(struct kvtierd *t, const struct kvt_tier_request *r)
{
	if (r->verb == KVT_TIER_READ)
		return &t->inbox_reads;
	return r->verb == KVT_TIER_WRITE ? &t->inbox_writes : &t->inbox_others;
}

static int64_t deadline_of(const struct kvtierd *t, const struct kvt_tier_request *r)
{
	int64_t own_ns = kvt_now(t->s) + 2 * (int64_t)t->deadline_ns;

	/* A deadline of 0 means that the caller set none. */
	return r->deadline_ns != 0 && r->deadline_ns < own_ns ? r->deadline_ns : own_ns;
}

static void kvtierd_submit(struct kvt_tier *base, struct kvt_tier_request *request)
{
	struct kvtierd *t = kvtierd_of(base);
	struct kvtierd_job *job = calloc(1, sizeof(*job));

	pthread_mutex_lock(&t->lock);
	if (job == NULL) {
		request->next = t->refused;
		t->refused = request;
	} else {
		job->t = t;
		job->request = request;
		job->number = ++t->numbers;
		job->deadline_ns = deadline_of(t, request);
		TAILQ_INSERT_TAIL(inbox_of(t, request), job, entry);
		if (request->verb == KVT_TIER_READ || request->verb == KVT_TIER_WRITE)
			*queued_bytes(t, request) += request->bytes;
	}
	pthread_mutex_unlock(&t->lock);
	if (atomic_load(&t->asleep))
		kvtierd_http_wake(t->http);
}

static void kvtierd_stats(struct kvt_tier *base, struct kvt_tier_stats *out)
{
	struct kvtierd *t = kvtierd_of(base);
	struct kvtierd_http_stats http;
	uint64_t entries, bytes;

	kvtierd_http_stats(t->http, &http);
	kvt_presence_stats(t->presence, &entries, &bytes);
	(void)snprintf(out->mode, sizeof(out->mode), "tiered storage");
	out->chunks = entries;
	out->metadata_bytes = bytes;
	pthread_mutex_lock(&t->lock);
	(void)snprintf(
		out->reason, sizeof(out->reason), "%s", http.why[0] != '\0' ? http.why : t->reason);
	out->state = http.why[0] != '\0' || t->faulty ? KVT_TIER_BROKEN : KVT_TIER_WORKS;
	out->hits += t->counts.hits;
	out->misses += t->counts.misses;
	out->loads += t->counts.loads;
	out->load_bytes += t->counts.load_bytes;
	out->stores += t->counts.stores;
	out->store_bytes += t->counts.store_bytes;
	out->erased += t->counts.erased;
	out->corrupt += t->counts.corrupt;
	out->io_errors += t->counts.io_errors;
	out->queued_read_bytes += t->counts.queued_read_bytes;
	out->queued_write_bytes += t->counts.queued_write_bytes;
	pthread_mutex_unlock(&t->lock);
}

/* The daemon enforces the limits, and its evictions for them are not visible here. */
static void kvtierd_limited(struct kvt_tier *base, uint64_t *evictions, uint64_t *refusals)
{
	struct kvtierd *t = kvtierd_of(base);

	*evictions = 0;
	pthread_mutex_lock(&t->lock);
	*refusals = t->counts.quota_refused;
	pthread_mutex_unlock(&t->lock);
}

/* --- step ------------------------------------------------------------------------------------- */

static struct kvtierd_job *take_from(struct kvtierd *t, struct kvtierd_list *inbox)
{
	struct kvtierd_job *job;

	pthread_mutex_lock(&t->lock);
	job = TAILQ_FIRST(inbox);
	if (job != NULL) {
		TAILQ_REMOVE(inbox, job, entry);
		if (inbox != &t->inbox_others)
			*queued_bytes(t, job->request) -= job->request->bytes;
	}
	pthread_mutex_unlock(&t->lock);
	if (job != NULL)
		TAILQ_INSERT_TAIL(&t->active, job, entry);
	return job;
}

static size_t end_refused(struct kvtierd *t)
{
	struct kvt_tier_request *r;
	size_t n = 0;

	for (;; n++) {
		pthread_mutex_lock(&t->lock);
		r = t->refused;
		if (r != NULL)
			t->refused = r->next;
		pthread_mutex_unlock(&t->lock);
		if (r == NULL)
			return n;
		finish(r, KVT_ENOMEM);
	}
}

static size_t begin_others(struct kvtierd *t)
{
	struct kvtierd_job *job;
	size_t n = 0;

	for (; (job = take_from(t, &t->inbox_others)) != NULL; n++) {
		switch (job->request->verb) {
		case KVT_TIER_ERASE:
			kvtierd_erase_begin(job);
			break;
		case KVT_TIER_PROBE:
			kvtierd_probe_begin(job);
			break;
		case KVT_TIER_TABLE:
			kvtierd_table_begin(job);
			break;
		case KVT_TIER_FLUSH:
			break; /* end_flushes ends FLUSH jobs once no older change is under way */
		default:
			kvtierd_job_done(job, KVT_EINVAL);
			break;
		}
	}
	return n;
}

/* Returns whether the first waiting job of this inbox may begin: its bytes fit under l2.inflight,
 * or nothing is under way. */
static bool has_room(struct kvtierd *t, struct kvtierd_list *inbox)
{
	const struct kvtierd_job *first;
	bool has;

	pthread_mutex_lock(&t->lock);
	first = TAILQ_FIRST(inbox);
	has = first != NULL &&
	      (t->under_way == 0 || t->under_way + first->request->bytes <= t->inflight);
	pthread_mutex_unlock(&t->lock);
	return has;
}

static size_t begin_transfers(struct kvtierd *t, struct kvtierd_list *inbox)
{
	size_t n = 0;

	for (; has_room(t, inbox); n++) {
		struct kvtierd_job *job = take_from(t, inbox);

		job->counted = true;
		t->under_way += job->request->bytes;
		if (job->request->verb == KVT_TIER_READ)
			kvtierd_read_begin(job);
		else
			kvtierd_write_begin(job);
	}
	return n;
}

/* Ends jobs that are past their deadline and never began. *next_ns becomes the deadline of the next
 * job. */
static size_t end_late(
	struct kvtierd *t, struct kvtierd_list *inbox, int64_t now_ns, int64_t *next_ns)
{
	struct kvtierd_list late = TAILQ_HEAD_INITIALIZER(late);
	struct kvtierd_job *job, *next;
	size_t n = 0;

	pthread_mutex_lock(&t->lock);
	for (job = TAILQ_FIRST(inbox); job != NULL; job = next) {
		next = TAILQ_NEXT(job, entry);
		if (job->deadline_ns > now_ns) {
			*next_ns = job->deadline_ns < *next_ns ? job->deadline_ns : *next_ns;
			continue;
		}
		TAILQ_REMOVE(inbox, job, entry);
		*queued_bytes(t, job->request) -= job->request->bytes;
		TAILQ_INSERT_TAIL(&late, job, entry);
	}
	pthread_mutex_unlock(&t->lock);
	for (; (job = TAILQ_FIRST(&late)) != NULL; n++) {
		enum kvt_status status = job->request->verb == KVT_TIER_READ ? KVT_MISS : KVT_BUSY;

		TAILQ_REMOVE(&late, job, entry);
		TAILQ_INSERT_TAIL(&t->active, job, entry);
		kvtierd_job_done(job, kvtierd_http_stalled(t->http) ? KVT_EIO : status);
	}
	return n;
}

static bool changes(const struct kvtierd_job *job)
{
	return job->request->verb == KVT_TIER_WRITE || job->request->verb == KVT_TIER_ERASE;
}

/* Returns whether a job older than the FLUSH with this number is under way. */
static bool waits_for_older(struct kvtierd *t, uint64_t number)
{
	const struct kvtierd_job *job;
	bool waits;

	pthread_mutex_lock(&t->lock);
	job = TAILQ_FIRST(&t->inbox_writes);
	waits = job != NULL && job->number < number;
	TAILQ_FOREACH(job, &t->inbox_others, entry)
		waits = waits || (changes(job) && job->number < number);
	pthread_mutex_unlock(&t->lock);
	TAILQ_FOREACH(job, &t->active, entry)
		waits = waits || (changes(job) && job->number < number);
	return waits;
}

static size_t end_flushes(struct kvtierd *t, int64_t now_ns)
{
	struct kvtierd_job *job, *next;
	bool waits;
	size_t n = 0;

	for (job = TAILQ_FIRST(&t->active); job != NULL; job = next) {
		next = TAILQ_NEXT(job, entry);
		if (job->request->verb != KVT_TIER_FLUSH)
			continue;
		waits = waits_for_older(t, job->number);
		if (waits && now_ns < job->request->begun_ns + INT64_C(60000000000))
			continue;
		kvtierd_job_done(job, waits ? KVT_EIO : KVT_OK);
		n++;
	}
	return n;
}

static bool has_requests(struct kvtierd *t)
{
	bool has;

	pthread_mutex_lock(&t->lock);
	has = !TAILQ_EMPTY(&t->inbox_others) || t->refused != NULL;
	pthread_mutex_unlock(&t->lock);
	return has || has_room(t, &t->inbox_reads) || has_room(t, &t->inbox_writes);
}

static size_t one_round(struct kvtierd *t, int64_t *due_ns)
{
	int64_t now_ns = kvt_now(t->s);
	size_t n = end_refused(t);

	n += begin_others(t);
	n += begin_transfers(t, &t->inbox_reads);
	n += begin_transfers(t, &t->inbox_writes);
	n += end_late(t, &t->inbox_reads, now_ns, due_ns);
	n += end_late(t, &t->inbox_writes, now_ns, due_ns);
	n += kvtierd_leases_step(t, now_ns, due_ns);
	return n;
}

static int64_t least(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

/*
 * Takes one round of the tier's work. Exchanges are stepped first without waiting; the step waits
 * only if nothing was done. A wake that comes between the look at the inbox and the wait is not
 * lost, because it leaves the bell set.
 */
static size_t kvtierd_step(struct kvt_tier *base, int64_t wait_ns, int64_t *next_ns)
{
	struct kvtierd *t = kvtierd_of(base);
	int64_t due_ns = INT64_MAX, now_ns;
	size_t n = one_round(t, &due_ns);

	n += kvtierd_http_step(t->http, 0, &due_ns);
	n += kvtierd_read_copy(t);
	n += end_flushes(t, kvt_now(t->s));
	if (n == 0 && wait_ns > 0) {
		now_ns = kvt_now(t->s);
		atomic_store(&t->asleep, true);
		if (due_ns != INT64_MAX)
			wait_ns = least(wait_ns, due_ns - now_ns > 0 ? due_ns - now_ns : 0);
		if (has_requests(t))
			wait_ns = 0;
		n = kvtierd_http_step(t->http, wait_ns, &due_ns);
		atomic_store(&t->asleep, false);
	}
	*next_ns = n > 0 || !TAILQ_EMPTY(&t->active) ? kvt_now(t->s) : due_ns;
	return n;
}

/* --- life ------------------------------------------------------------------------------------- */

static void cancel(struct kvtierd *t)
{
	struct kvtierd_list *inboxes[] = {&t->inbox_reads, &t->inbox_writes, &t->inbox_others};
	struct kvtierd_job *job;

	(void)end_refused(t);
	for (size_t i = 0; i < sizeof(inboxes) / sizeof(inboxes[0]); i++)
		while ((job = take_from(t, inboxes[i])) != NULL)
			kvtierd_job_done(job, KVT_ECANCELED);
}

/* Ends the remaining jobs, which have no exchange under way. */
static void cancel_rest(struct kvtierd *t)
{
	struct kvtierd_job *job;

	while ((job = TAILQ_FIRST(&t->active)) != NULL) {
		kvtierd_lease_finish(&job->held.lease);
		kvtierd_job_done(job, KVT_ECANCELED);
	}
}

/* Releases the leases for which the daemon answers soon. The number of steps is bounded, since a
 * simulated clock may stand still. */
static void say_goodbye(struct kvtierd *t)
{
	int64_t end_ns = kvt_now(t->s) + GOODBYE_NS, next_ns = 0, now_ns;

	t->ending = true;
	kvtierd_leases_let_go(t);
	for (uint32_t i = 0; i < GOODBYE_STEPS && !kvtierd_leases_quiet(t); i++) {
		now_ns = kvt_now(t->s);
		if (now_ns >= end_ns || kvtierd_http_stalled(t->http))
			break;
		(void)kvtierd_leases_step(t, now_ns, &next_ns);
		(void)kvtierd_http_step(t->http, end_ns - now_ns, &next_ns);
	}
}

static void kvtierd_destroy(struct kvt_tier *base)
{
	struct kvtierd *t = kvtierd_of(base);

	if (t == NULL)
		return;
	cancel(t);
	if (t->http != NULL)
		say_goodbye(t);
	/* destroying the client ends the jobs that wait for the daemon */
	kvtierd_http_destroy(t->http);
	cancel_rest(t);
	kvtierd_leases_close(t);
	kvtierd_segment_finish(&t->segment);
	kvtierd_resolver_destroy(t->resolver);
	kvt_presence_destroy(t->presence);
	(void)pthread_mutex_destroy(&t->lock);
	free(t);
}

/* Reads the configured URL. KVT_MISS: the URL belongs to another tier. */
static enum kvt_status check(const struct kvt_config *c, char *why, struct kvt_l2_url *url)
{
	const char *text = c->l2_url, *expected;

	if (text == NULL || text[0] == '\0')
		return KVT_MISS;
	expected = kvt_l2_url_parse(text, url);
	if (expected != NULL || url->kind != KVT_L2_TIER_kvtierd)
		return KVT_MISS; /* the Redis tier, which also reads l2.url, reports a wrong one */
	if (c->protect_keys != NULL && c->protect_keys[0] != '\0') {
		(void)snprintf(why, KVT_REASON_BYTES,
			"tiered storage holds chunks in plain: not used with protect.keys");
		return KVT_ENOTSUP;
	}
	if (url->at.tls || url->at.node_count != 1) {
		(void)snprintf(why, KVT_REASON_BYTES, "tiered storage is one host, without TLS");
		return KVT_ENOTSUP;
	}
	return KVT_OK;
}

static void take_settings(struct kvtierd *t, const struct kvt_tier_options *options)
{
	const struct kvt_config *c = options->config;

	t->s = options->surroundings;
	t->watch = options->watch;
	t->fingerprint = c->fingerprint;
	t->connections = c->l2_connections == 0 ? 1 : c->l2_connections;
	t->inflight = c->l2_inflight;
	t->deadline_ns = c->l2_deadline_ns;
	t->lease_ns = c->l2_lease_ns;
	t->ttl_ns = c->l2_ttl_ns;
	TAILQ_INIT(&t->inbox_reads);
	TAILQ_INIT(&t->inbox_writes);
	TAILQ_INIT(&t->inbox_others);
	TAILQ_INIT(&t->active);
	t->copies_end = &t->copies;
	t->kept_look_ns = t->release_look_ns = INT64_MAX;
}

static enum kvt_status make_parts(
	struct kvtierd *t, const struct kvt_config *c, const struct kvt_l2_url *url, char *why)
{
	const struct kvw_redis_node *node = &url->at.nodes[0];
	struct kvtierd_http_options http = {
		.surroundings = t->s,
		.connections = t->connections,
		.connect_ns = c->l2_connect_ns,
		.answer_ns = c->l2_deadline_ns,
		.late = kvtierd_late_lease,
		.self = t,
	};
	enum kvt_status status = kvtierd_place_init(&t->place, c->l2_bucket, node->host, node->port);

	if (status == KVT_OK)
		status = kvtierd_segment_init(&t->segment, c->l2_segment);
	if (status != KVT_OK) {
		(void)snprintf(why, KVT_REASON_BYTES, "l2.bucket or l2.segment is no such name");
		return status;
	}
	status = kvt_presence_create(
		PRESENCE_ENTRIES, c->l2_seen_ns, c->l2_missing_ns, &t->presence);
	if (status == KVT_OK)
		status = kvtierd_resolver_create(
			node->host, node->port, c->threads == KVT_THREADS_OWN, t->s, &t->resolver);
	http.resolver = t->resolver;
	if (status == KVT_OK)
		status = kvtierd_http_create(&http, &t->http);
	if (status == KVT_EIO)
		(void)snprintf(why, KVT_REASON_BYTES, "no descriptors for connections");
	return status;
}

static enum kvt_status kvtierd_create(
	const struct kvt_tier_options *options, char *why, struct kvt_tier **out)
{
	struct kvt_l2_url url;
	enum kvt_status status = check(options->config, why, &url);
	struct kvtierd *t;

	if (status != KVT_OK)
		return status;
	t = calloc(1, sizeof(*t));
	if (t == NULL)
		return KVT_ENOMEM;
	t->base.ops = &kvt_kvtierd_ops;
	t->segment.fd = -1;
	(void)pthread_mutex_init(&t->lock, NULL);
	take_settings(t, options);
	status = make_parts(t, options->config, &url, why);
	if (status != KVT_OK) {
		kvtierd_destroy(&t->base);
		return status;
	}
	*out = &t->base;
	return KVT_OK;
}

const struct kvt_tier_ops kvt_kvtierd_ops = {
	.name = "l2",
	.id = KVT_TIER_L2,
	.create = kvtierd_create,
	.match = kvtierd_match,
	.known = kvtierd_known,
	.submit = kvtierd_submit,
	.unsure = kvtierd_unsure,
	.pin = kvt_tier_pin_nothing,
	.has_table = true,
	.limited = kvtierd_limited,
	.stats = kvtierd_stats,
	.wake = kvtierd_wake,
	.step = kvtierd_step,
	.destroy = kvtierd_destroy,
};
