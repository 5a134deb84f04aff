/*
 * redis_tier.c - chunks in Redis or Valkey: the tier's functions, its step, and the begin and end of requests.
 *
 *     submit --> queue --> jobs --> asks --> client (redis.h)
 *                           | ^
 *                         parked, for a key of a tenant, or room
 *
 * The tier trusts no answer of Redis: it returns a chunk only if the footer proves key, fingerprint and length, and the
 * bytes have their checksum (or open under their key). A wrong value is unlinked and is a miss.
 *
 * Bounds: the client bounds bytes and commands under way; l2_inflight bounds sealed copies; tables bound presence,
 * tenants and erased keys; the caller bounds requests.
 */
#include "tiers/redis/redis_tier.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "tiers/tiers.h"

#define PRESENCE_ENTRIES 65536u
#define PART_BYTES       (4u << 20)
#define DEADLINE_NS      1000000000
#define DEADLINE_MOST    3600000000001u
#define PASSWORD_ROOM    1024

static const uint8_t store_id[16] = "kvtier redis 1";

static struct redis_tier *tier_of(struct kvt_tier *base)
{
	return (struct redis_tier *)base;
}

/* --- begin of requests
 * -------------------------------------------------------------------------- */

static void begin_flush(struct redis_job *job)
{
	TAILQ_REMOVE(&job->t->active, job, entry);
	job->changes = job->t->changes;
	TAILQ_INSERT_TAIL(&job->t->flushes, job, entry);
}

static void begin(struct redis_job *job)
{
	switch (job->request->verb) {
	case KVT_TIER_READ:
		redis_read_begin(job);
		break;
	case KVT_TIER_WRITE:
		redis_write_begin(job);
		break;
	case KVT_TIER_PROBE:
		redis_probe_begin(job);
		break;
	case KVT_TIER_ERASE:
		redis_erase_begin(job);
		break;
	case KVT_TIER_FLUSH:
		begin_flush(job);
		break;
	case KVT_TIER_TABLE:
		redis_table_begin(job);
		break;
	default:
		redis_job_end(job, KVT_EINVAL);
	}
}

static bool is_right(const struct kvt_tier_request *r)
{
	if (r->verb == KVT_TIER_FLUSH)
		return true;
	if (r->verb == KVT_TIER_TABLE)
		return r->table != NULL;
	if (r->keys == NULL && r->key_count > 0)
		return false;
	if (r->verb != KVT_TIER_READ && r->verb != KVT_TIER_WRITE)
		return true;
	return r->key_count == 1 && r->bytes > 0 && r->segment_count > 0 &&
	       r->segment_count <= REDIS_SEGMENTS;
}

static void take(struct redis_tier *t, struct kvt_tier_request *request)
{
	int64_t now = kvt_now(t->s);
	struct redis_job *job = is_right(request) ? calloc(1, sizeof(*job)) : NULL;
	bool moves = request->verb == KVT_TIER_READ || request->verb == KVT_TIER_WRITE;

	request->names = NULL;
	request->found = 0;
	if (job == NULL) {
		request->status = is_right(request) ? KVT_ENOMEM : KVT_EINVAL;
		request->done(request);
		return;
	}
	job->t = t;
	job->request = request;
	job->number = ++t->next_number;
	job->begun_ns = now;
	job->deadline_ns = now + (int64_t)t->deadline_ns * (moves ? REDIS_PATIENCE : 1);
	if (request->deadline_ns > 0 && request->deadline_ns < job->deadline_ns)
		job->deadline_ns = request->deadline_ns;
	t->changes += redis_is_change(job);
	TAILQ_INSERT_TAIL(&t->active, job, entry);
	begin(job);
}

static size_t take_requests(struct redis_tier *t)
{
	size_t n = 0;

	for (;; n++) {
		struct kvt_tier_request *request;

		pthread_mutex_lock(&t->lock);
		request = t->queue;
		if (request != NULL) {
			t->queue = request->next;
			if (t->queue == NULL)
				t->queue_end = &t->queue;
		}
		pthread_mutex_unlock(&t->lock);
		if (request == NULL)
			return n;
		request->next = NULL;
		if (t->closing) {
			request->status = KVT_ECANCELED;
			request->done(request);
		} else {
			take(t, request);
		}
	}
}

static bool has_requests(struct redis_tier *t)
{
	bool has;

	pthread_mutex_lock(&t->lock);
	has = t->queue != NULL;
	pthread_mutex_unlock(&t->lock);
	return has;
}

/* --- step
 * -------------------------------------------------------------------------------------- */

static enum kvt_status late_status(const struct redis_job *job)
{
	if (job->t->heard_ns < job->begun_ns && job->parked != &job->t->bounce_used)
		return KVT_EIO; /* no server answers */
	return job->request->verb == KVT_TIER_PROBE ? KVT_OK : KVT_MISS;
}

/* Ends parked jobs that are past their deadline. */
static size_t end_late(struct redis_tier *t, int64_t now, int64_t *next_ns)
{
	struct redis_job *job = TAILQ_FIRST(&t->parked);
	size_t n = 0;

	while (job != NULL) {
		if (now < job->deadline_ns) {
			if (job->deadline_ns < *next_ns)
				*next_ns = job->deadline_ns;
			job = TAILQ_NEXT(job, entry);
			continue;
		}
		redis_job_end(job, late_status(job));
		n++;
		/* ending this job may have ended others, so the walk starts again */
		job = TAILQ_FIRST(&t->parked);
	}
	return n;
}

static size_t end_flushes(struct redis_tier *t)
{
	struct redis_job *job = TAILQ_FIRST(&t->flushes), *next;
	size_t n = 0;

	for (; job != NULL; job = next) {
		next = TAILQ_NEXT(job, entry);
		if (job->changes > 0)
			continue;
		redis_job_end(job, KVT_OK);
		n++;
	}
	return n;
}

static size_t one_round(struct redis_tier *t, int64_t *due)
{
	int64_t now = kvt_now(t->s);
	size_t n = take_requests(t);

	n += kvw_redis_step(t->redis, 0, due);
	n += end_late(t, now, due);
	n += end_flushes(t);
	return n;
}

static size_t sleep_until(struct redis_tier *t, int64_t wait_ns, int64_t due, int64_t *next_ns)
{
	int64_t now = kvt_now(t->s);
	size_t n = 0;

	if (due <= now)
		return 0;
	if (due - now < wait_ns)
		wait_ns = due - now;
	atomic_store(&t->asleep, true);
	if (!has_requests(t))
		n = kvw_redis_step(t->redis, wait_ns, next_ns);
	atomic_store(&t->asleep, false);
	return n;
}

static size_t redis_step(struct kvt_tier *base, int64_t wait_ns, int64_t *next_ns)
{
	struct redis_tier *t = tier_of(base);
	int64_t due = INT64_MAX;
	size_t n = one_round(t, &due);

	if (n == 0 && wait_ns > 0)
		n = sleep_until(t, wait_ns, due, &due);
	*next_ns = !TAILQ_EMPTY(&t->active) || has_requests(t) ? kvt_now(t->s) : due;
	return n;
}

/* --- from any thread
 * --------------------------------------------------------------------------- */

static enum kvt_status redis_known(
	struct kvt_tier *base, const struct kvt_key *key, struct kvt_tier_known *out)
{
	struct redis_tier *t = tier_of(base);

	return kvt_presence_get(t->presence, key, kvt_now(t->s), out) == KVT_PRESENCE_THERE
		       ? KVT_OK
		       : KVT_MISS;
}

static size_t redis_match(struct kvt_tier *base, const struct kvt_key *keys, size_t n)
{
	struct redis_tier *t = tier_of(base);

	return kvt_presence_match(t->presence, keys, n, kvt_now(t->s));
}

static bool redis_unsure(struct kvt_tier *base, const struct kvt_key *key)
{
	struct redis_tier *t = tier_of(base);
	struct kvt_tier_known known;

	return kvt_presence_get(t->presence, key, kvt_now(t->s), &known) == KVT_PRESENCE_UNKNOWN;
}

static void redis_submit(struct kvt_tier *base, struct kvt_tier_request *request)
{
	struct redis_tier *t = tier_of(base);

	if (request->verb == KVT_TIER_ERASE) {
		for (size_t i = 0; i < request->key_count; i++)
			kvt_presence_forget(t->presence, &request->keys[i]);
	}
	request->next = NULL;
	pthread_mutex_lock(&t->lock);
	*t->queue_end = request;
	t->queue_end = &request->next;
	pthread_mutex_unlock(&t->lock);
	if (atomic_load(&t->asleep))
		kvw_redis_wake(t->redis);
}

/* The values that other handles wrote for these tenants stay in Redis until their TTL or eviction;
 * only this handle's keys and answers are dropped, since the tenants' keys may have been
 * destroyed. */
static size_t redis_drop_slots(struct kvt_tier *base, const struct kvt_slot_set *slots)
{
	(void)slots;
	atomic_fetch_add(&tier_of(base)->key_round, 1);
	return 0;
}

static void redis_wake(struct kvt_tier *base)
{
	kvw_redis_wake(tier_of(base)->redis);
}

static void redis_stats(struct kvt_tier *base, struct kvt_tier_stats *out)
{
	struct redis_tier *t = tier_of(base);
	struct kvw_redis_stats wire;
	struct redis_counters c;
	uint64_t entries, bytes;

	kvw_redis_stats(t->redis, &wire);
	kvt_presence_stats(t->presence, &entries, &bytes);
	pthread_mutex_lock(&t->lock);
	c = t->counters;
	pthread_mutex_unlock(&t->lock);
	out->state = KVT_TIER_WORKS;
	(void)snprintf(out->mode, sizeof(out->mode), "%s", wire.mode);
	(void)snprintf(out->reason, sizeof(out->reason), "%s", wire.reason);
	out->chunks = entries;
	out->metadata_bytes = bytes;
	out->hits += c.hits;
	out->misses += c.misses;
	out->loads += c.loads;
	out->load_bytes += c.load_bytes;
	out->stores += c.stores;
	out->store_bytes += c.store_bytes;
	out->corrupt += c.corrupt;
	out->io_errors += c.io_errors;
	out->erased += c.erased;
	out->evictions += c.quota_evicted;
}

static void redis_limited(struct kvt_tier *base, uint64_t *evictions, uint64_t *refusals)
{
	struct redis_tier *t = tier_of(base);

	pthread_mutex_lock(&t->lock);
	*evictions = t->counters.quota_evicted;
	*refusals = t->counters.quota_refused;
	pthread_mutex_unlock(&t->lock);
}

static void redis_tenants(struct kvt_tier *base, size_t most, struct kvt_tenant_list *out)
{
	redis_shares_list(tier_of(base), most, out);
}

/* --- life
 * -------------------------------------------------------------------------------------- */

static void free_parts(struct redis_tier *t)
{
	redis_keys_finish(t);
	redis_quota_finish(t);
	kvt_presence_destroy(t->presence);
	kvt_sealer_destroy(t->sealer);
	(void)pthread_mutex_destroy(&t->lock);
	free(t);
}

static void redis_destroy(struct kvt_tier *base)
{
	struct redis_tier *t = tier_of(base);

	if (t == NULL)
		return;
	t->closing = true;
	(void)take_requests(t);
	kvw_redis_destroy(t->redis);
	while (!TAILQ_EMPTY(&t->parked))
		redis_job_end(TAILQ_FIRST(&t->parked), KVT_ECANCELED);
	while (!TAILQ_EMPTY(&t->flushes))
		redis_job_end(TAILQ_FIRST(&t->flushes), KVT_ECANCELED);
	free_parts(t);
}

/* Reads the first line of a file, without its end. */
static enum kvt_status read_password(const char *path, char out[PASSWORD_ROOM], char *why)
{
	FILE *f = fopen(path, "re");
	enum kvt_status status = KVT_OK;

	if (f == NULL) {
		(void)snprintf(why, KVT_REASON_BYTES, "l2.password_file: %.80s: %m", path);
		return KVT_EIO;
	}
	/* unbuffered, so that no copy of the password stays in a buffer */
	(void)setvbuf(f, NULL, _IONBF, 0);
	if (fgets(out, PASSWORD_ROOM, f) == NULL)
		out[0] = '\0';
	out[strcspn(out, "\r\n")] = '\0';
	if (out[0] == '\0' || strlen(out) == PASSWORD_ROOM - 1) {
		(void)snprintf(why, KVT_REASON_BYTES,
			"l2.password_file: %.80s: no password in its first line", path);
		status = KVT_EINVAL;
	}
	(void)fclose(f);
	return status;
}

_Static_assert(KVW_REDIS_REASON <= KVT_REASON_BYTES, "the client's reason fits into ours");

static const char *or_null(const char *text)
{
	return text != NULL && text[0] != '\0' ? text : NULL;
}

static enum kvt_status connect_client(struct redis_tier *t, const struct kvt_config *config,
	const struct kvw_redis_url *url, char *why)
{
	char password[PASSWORD_ROOM] = "";
	struct kvw_redis_options options = {
		.url = url,
		.username = or_null(config->l2_username),
		.service = or_null(config->l2_service),
		.tls_ca = or_null(config->l2_tls_ca),
		.tls_certificate = or_null(config->l2_tls_certificate),
		.tls_key = or_null(config->l2_tls_key),
		.connections = config->l2_connections,
		.inflight_bytes = config->l2_inflight,
		.connect_ns = config->l2_connect_ns,
		.env = {t->s->clock.now_ns, t->s->clock.self, t->s->log, t->s->log_self},
	};
	enum kvt_status status = KVT_OK;

	if (or_null(config->l2_password_file) != NULL) {
		status = read_password(config->l2_password_file, password, why);
		options.password = password;
	}
	if (status == KVT_OK)
		status = redis_status(kvw_redis_create(&options, why, &t->redis));
	explicit_bzero(password, sizeof(password));
	return status;
}

static enum kvt_status make_sealer(struct redis_tier *t, const struct kvt_config *config, char *why)
{
	char *report = NULL;
	enum kvt_status status;

	if (or_null(config->protect_keys) == NULL)
		return KVT_OK;
	status = kvt_sealer_create(config->protect_keys, t->s, &t->sealer, &report);
	if (status != KVT_OK)
		(void)snprintf(why, KVT_REASON_BYTES, "protect.keys: %.140s",
			report != NULL ? report : kvt_status_text(status));
	free(report);
	return status;
}

static void set_limits(struct redis_tier *t, const struct kvt_config *config)
{
	/* the caller may have filled the configuration without kvt_config_read, so the number is
	 * checked here */
	t->part_bytes = PART_BYTES;
	if (config->l2_part_bytes > 0 && config->l2_part_bytes <= UINT32_MAX)
		t->part_bytes = (uint32_t)config->l2_part_bytes;
	t->tokens_per_chunk = config->tokens_per_chunk;
	t->deadline_ns = config->l2_deadline_ns > 0 && config->l2_deadline_ns < DEADLINE_MOST
				 ? config->l2_deadline_ns
				 : DEADLINE_NS;
	t->ttl_ns = config->l2_ttl_ns;
	t->chunk_ttl_ns = config->ttl_ns;
	t->bounce_limit = config->l2_inflight;
	t->fingerprint = config->fingerprint;
	memcpy(t->store_id, store_id, sizeof(t->store_id));
	t->queue_end = &t->queue;
	TAILQ_INIT(&t->active);
	TAILQ_INIT(&t->parked);
	TAILQ_INIT(&t->flushes);
	if (getrandom(&t->seed, sizeof(t->seed), 0) != sizeof(t->seed))
		t->seed = (uint64_t)(uintptr_t)t ^ (uint64_t)kvt_wall(t->s);
	t->hash_seed = kvw_random(&t->seed);
}

static enum kvt_status redis_create(
	const struct kvt_tier_options *options, char *why, struct kvt_tier **out)
{
	const struct kvt_config *config = options->config;
	struct kvt_l2_url url;
	struct redis_tier *t;
	enum kvt_status status;
	const char *expected;

	if (or_null(config->l2_url) == NULL)
		return KVT_MISS;
	expected = kvt_l2_url_parse(config->l2_url, &url);
	if (expected == NULL && url.kind != KVT_L2_REDIS)
		return KVT_MISS;
	if (expected != NULL) {
		(void)snprintf(why, KVT_REASON_BYTES, "l2.url: expected %.130s", expected);
		return KVT_EINVAL;
	}
	t = calloc(1, sizeof(*t));
	if (t == NULL)
		return KVT_ENOMEM;
	t->base.ops = &kvt_redis_ops;
	t->s = options->surroundings;
	t->cluster = url.at.kind == KVW_REDIS_CLUSTER;
	(void)pthread_mutex_init(&t->lock, NULL);
	set_limits(t, config);
	status = redis_quota_init(t, config->tenant_l2_bytes);
	if (status == KVT_OK)
		status = make_sealer(t, config, why);
	if (status == KVT_OK)
		status = kvt_presence_create(
			PRESENCE_ENTRIES, config->l2_seen_ns, config->l2_missing_ns, &t->presence);
	if (status == KVT_OK)
		status = connect_client(t, config, &url.at, why);
	explicit_bzero(&url, sizeof(url));
	if (status != KVT_OK)
		free_parts(t);
	else
		*out = &t->base;
	return status;
}

const struct kvt_tier_ops kvt_redis_ops = {
	.name = "redis",
	.id = KVT_TIER_L2,
	.create = redis_create,
	.match = redis_match,
	.known = redis_known,
	.submit = redis_submit,
	.unsure = redis_unsure,
	.pin = kvt_tier_pin_nothing,
	.has_table = true,
	.drop_slots = redis_drop_slots,
	.tenants = redis_tenants,
	.limited = redis_limited,
	.stats = redis_stats,
	.wake = redis_wake,
	.step = redis_step,
	.destroy = redis_destroy,
};
