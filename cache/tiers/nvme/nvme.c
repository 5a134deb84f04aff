/*
 * nvme.c - chunks in local files: the tier's functions and its step.
 *
 *     submit --> queues --> jobs --> operations --> I/O layer
 *                  |          |                        |
 *               erases     visible <-- reap -----------+
 *                  |          |
 *                  +------> group commit --> done of those that wait for it
 *
 * Reads begin before writes, and writes leave a quarter of the jobs to reads, so that a load never waits behind a queue
 * of stores. The depth bounds jobs, operations, and so the memory for headers. The caller bounds the queues.
 *
 * Failing I/O degrades the tier: reads are misses, writes are refused while the log cannot be written, and the state
 * has the cause. No failure ends the process.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "io/machine.h"
#include "tiers/nvme/nvme.h"
#include "memory/sizing.h"
#include "tiers/tiers.h"

#define EXPIRE_NS       1000000000 /* interval of searches for expired chunks */
#define EXPIRE_AT_ONCE  256
/* the tier counts as failed after this many refused operations in a row */
#define BROKEN_AFTER    8
#define SHARE_NS        2000000000 /* interval at which an automatic size is computed again */
#define LOCK_AGAIN_NS   50000000
/* bytes per chunk, to derive the number of chunks from the capacity */
#define BYTES_PER_ENTRY (512u * 1024)
#define MIN_ENTRIES     4096u
#define MAX_ENTRIES     (8u << 20)
#define MIN_CAPACITY    (1ull << 20)
#define COMMIT_OPS      4u /* additional operations, for commits */
/* a step sums or seals at most this many bytes of writes before it turns to reads again */
#define BEGUN_AT_ONCE   NVME_OP_BYTES

static struct nvme *nvme_of(struct kvt_tier *base)
{
	return (struct nvme *)base;
}

/* --- state
 * ------------------------------------------------------------------------------------- */

static void set_state(struct nvme *t)
{
	uint32_t state = KVT_TIER_WORKS;

	if (t->failures >= BROKEN_AFTER || t->lost)
		state = KVT_TIER_BROKEN;
	else if (t->log.bad)
		state = KVT_TIER_PAUSED;
	if (state == t->state)
		return;
	kvt_note(t->s, state == KVT_TIER_WORKS ? KVT_LOG_INFO : KVT_LOG_ERROR, "nvme: %s%s%s",
		state == KVT_TIER_WORKS    ? "works"
		: state == KVT_TIER_PAUSED ? "paused: stores nothing: "
					   : "broken: ",
		state == KVT_TIER_WORKS ? "" : t->reason, "");
	pthread_mutex_lock(&t->lock);
	t->state = state;
	pthread_mutex_unlock(&t->lock);
}

/* --- from any thread
 * --------------------------------------------------------------------------- */

static size_t nvme_match(struct kvt_tier *base, const struct kvt_key *keys, size_t n)
{
	return kvt_index_match(nvme_of(base)->index, keys, n);
}

static enum kvt_status nvme_known(
	struct kvt_tier *base, const struct kvt_key *key, struct kvt_tier_known *out)
{
	struct nvme *t = nvme_of(base);
	struct kvt_entry_info info;
	uint32_t entry;
	enum kvt_status status = kvt_index_hold(t->index, key, false, &entry);

	if (status != KVT_OK)
		return status;
	kvt_index_info(t->index, entry, &info);
	*out = (struct kvt_tier_known){
		.bytes = info.bytes,
		.tokens = info.tokens,
		.tenant = info.tenant,
		.ttl_ns = info.ttl_ns,
	};
	out->has_parent = kvt_index_parent(t->index, entry, &out->parent);
	kvt_index_release(t->index, entry);
	return KVT_OK;
}

static void nvme_wake(struct kvt_tier *base)
{
	struct nvme *t = nvme_of(base);

	t->io->ops->wake(t->io);
}

static void nvme_submit(struct kvt_tier *base, struct kvt_tier_request *request)
{
	struct nvme *t = nvme_of(base);
	struct nvme_queue *queue = &t->others;

	if (request->verb == KVT_TIER_READ)
		queue = &t->reads;
	else if (request->verb == KVT_TIER_WRITE)
		queue = &t->writes;
	pthread_mutex_lock(&t->lock);
	nvme_queue_add(queue, request);
	pthread_mutex_unlock(&t->lock);
	if (atomic_load(&t->asleep))
		t->io->ops->wake(t->io);
}

static size_t nvme_pin(struct kvt_tier *base, const struct kvt_key *keys, size_t n, bool pin)
{
	return kvt_index_pin(nvme_of(base)->index, keys, n, pin);
}

static void nvme_stats(struct kvt_tier *base, struct kvt_tier_stats *out)
{
	struct nvme *t = nvme_of(base);
	const struct kvt_io_mode *mode = t->io->ops->mode(t->io);
	struct kvt_index_stats x;

	kvt_index_stats(t->index, &x);
	out->capacity = x.capacity;
	out->used = x.used;
	out->payload = x.payload;
	out->chunks = x.entries;
	out->metadata_bytes = x.metadata_bytes + x.entries * sizeof(struct nvme_side);
	out->ghost_bytes = x.ghost_bytes;
	out->evictions = x.evictions;
	out->expired = x.expired;
	out->erased = x.erased;
	out->pinned = x.pinned;
	(void)snprintf(out->mode, sizeof(out->mode), "%s", mode->name);
	pthread_mutex_lock(&t->lock);
	if (t->space.allowed < t->space.max_files)
		out->capacity = (uint64_t)t->space.allowed * t->format.file_bytes;
	out->state = t->state;
	(void)snprintf(out->reason, sizeof(out->reason), "%s",
		t->state == KVT_TIER_WORKS ? mode->reason : t->reason);
	out->metadata_bytes += kvt_extents_bytes(t->space.extents);
	out->name_bytes += t->name_bytes;
	out->hits += t->hits;
	out->misses += t->misses;
	out->loads += t->loads;
	out->load_bytes += t->load_bytes;
	out->stores += t->stores;
	out->store_bytes += t->store_bytes;
	out->corrupt += t->corrupt;
	out->io_errors += t->io_errors;
	out->read_bytes_per_second = t->read_rate.per_second;
	out->write_bytes_per_second = t->write_rate.per_second;
	out->queued_read_bytes += t->reads.bytes;
	out->queued_write_bytes += t->writes.bytes;
	pthread_mutex_unlock(&t->lock);
}

/* --- step
 * -------------------------------------------------------------------------------------- */

static struct kvt_tier_request *take_from(struct nvme *t, struct nvme_queue *queue)
{
	struct kvt_tier_request *r;

	pthread_mutex_lock(&t->lock);
	r = nvme_queue_take(queue);
	pthread_mutex_unlock(&t->lock);
	return r;
}

/* Handles erases, flushes, and the requests that an erase took from the queue. */
static size_t do_others(struct nvme *t)
{
	struct kvt_tier_request *r;
	size_t n = 0;

	for (; (r = take_from(t, &t->cancelled)) != NULL; n++)
		nvme_finish(r, KVT_ECANCELED);
	for (; (r = take_from(t, &t->others)) != NULL; n++) {
		if (r->verb == KVT_TIER_ERASE) {
			(void)nvme_erase_keys(t, r->keys, r->key_count);
			nvme_finish(r, KVT_OK);
		} else if (r->verb == KVT_TIER_FLUSH) {
			r->next = t->commit.flushes;
			t->commit.flushes = r;
		} else {
			nvme_finish(r, KVT_EINVAL);
		}
	}
	return n;
}

static size_t begin_reads(struct nvme *t)
{
	size_t n = 0;

	for (; t->free_jobs != NULL; n++) {
		struct kvt_tier_request *r = take_from(t, &t->reads);

		if (r == NULL)
			break;
		nvme_read_begin(t, nvme_job_take(t), r);
	}
	return n;
}

static size_t begin_writes(struct nvme *t)
{
	uint32_t most = t->depth - t->depth / 4;
	uint64_t bytes = 0;
	size_t n = 0;

	for (; t->free_jobs != NULL && t->writes_active < most && bytes < BEGUN_AT_ONCE; n++) {
		struct kvt_tier_request *r;
		struct nvme_job *job;
		uint64_t erases;

		pthread_mutex_lock(&t->lock);
		r = nvme_queue_take(&t->writes);
		erases = t->erases;
		pthread_mutex_unlock(&t->lock);
		if (r == NULL)
			break;
		job = nvme_job_take(t);
		job->erases = erases;
		bytes += r->bytes;
		if (!nvme_write_begin(t, job, r))
			break;
	}
	return n;
}

static size_t expire(struct nvme *t, int64_t now)
{
	size_t n;

	if (now < t->expire_ns)
		return 0;
	n = kvt_index_expire(t->index, EXPIRE_AT_ONCE);
	if (n < EXPIRE_AT_ONCE)
		t->expire_ns = now + EXPIRE_NS;
	return n;
}

/* Computes this store's part of the disk again, since other engines come and go. */
static void look_at_share(struct nvme *t, int64_t now)
{
	uint32_t before = t->share.stores;
	char why[KVT_REASON_BYTES] = "";
	struct kvt_machine machine;

	if (before == 0 || now < t->share_ns || t->lost)
		return;
	t->share_ns = now + SHARE_NS;
	kvt_machine_read("", t->path, &machine);
	kvt_nvme_share(&machine, t->path, t->folder, t->engine_ranks, &t->share, why);
	nvme_space_allow(t);
	if (t->share.stores != before)
		kvt_note(t->s, KVT_LOG_INFO, "nvme: %llu MiB from now on: %s",
			(unsigned long long)(t->share.part >> 20), why);
}

static bool has_requests(struct nvme *t)
{
	bool has;

	pthread_mutex_lock(&t->lock);
	has = t->reads.first != NULL || t->writes.first != NULL || t->others.first != NULL ||
	      t->cancelled.first != NULL;
	pthread_mutex_unlock(&t->lock);
	return has;
}

/* Waits for an operation, a wake or the next due time. */
static size_t sleep_until(struct nvme *t, int64_t wait_ns, int64_t due)
{
	int64_t now = kvt_now(t->s);
	size_t n = 0;

	if (due <= now)
		return 0;
	if (due - now < wait_ns)
		wait_ns = due - now;
	atomic_store(&t->asleep, true);
	if (!nvme_sums_due(t) && (t->ops_under_way > 0 || !has_requests(t)))
		n = nvme_reap(t, wait_ns);
	atomic_store(&t->asleep, false);
	return n;
}

static size_t one_round(struct nvme *t)
{
	size_t n = nvme_reap(t, 0);

	n += do_others(t);
	n += nvme_announce_tell(t);
	n += begin_reads(t);
	n += begin_writes(t);
	n += expire(t, kvt_now(t->s));
	look_at_share(t, kvt_now(t->s));
	nvme_lost_look(t, kvt_now(t->s));
	n += nvme_commit_step(t, kvt_now(t->s));
	n += nvme_announce_step(t);
	n += nvme_transfer_issue(t);
	nvme_submit_batch(t);
	n += nvme_sums_step(t); /* sums while operations are under way */
	set_state(t);
	return n;
}

static size_t nvme_step(struct kvt_tier *base, int64_t wait_ns, int64_t *next_ns)
{
	struct nvme *t = nvme_of(base);
	size_t n = one_round(t);
	int64_t due = INT64_MAX;

	if (t->commit.phase == NVME_IDLE)
		due = nvme_commit_due(t, kvt_now(t->s));
	if (due > t->expire_ns)
		/* a chunk that expires must not delay the next computation of the share */
		due = t->expire_ns;
	if (n == 0 && wait_ns > 0)
		n = sleep_until(t, wait_ns, due);
	*next_ns = t->ops_under_way > 0 || t->reads_active > 0 || has_requests(t) ? kvt_now(t->s)
										 : due;
	return n;
}

/* --- life
 * -------------------------------------------------------------------------------------- */

/* Lets the operations under way end, and makes written chunks durable. If the log could not be
 * written, its rewrite is tried once more, at the time when it is due: without it, erased chunks
 * would come back. */
static void wind_up(struct nvme *t)
{
	bool tried = false;

	for (;;) {
		bool bad = t->log.bad || t->lost;
		bool retry = bad && !t->lost && !tried && t->commit.phase == NVME_IDLE;

		t->commit.wanted = t->commit.stored != NULL;
		if (bad)
			t->log.retry_ns = retry ? INT64_MIN : INT64_MAX;
		(void)nvme_reap(t, t->ops_under_way > 0 && !nvme_sums_due(t) ? 100000000 : 0);
		(void)nvme_sums_step(t);
		(void)do_others(t);
		if (retry || (!nvme_commit_quiet(t) &&
				     !(bad && t->commit.phase == NVME_IDLE && t->commit.stored == NULL &&
					     t->commit.flushes == NULL))) {
			tried = tried || retry;
			if (t->commit.phase == NVME_IDLE)
				t->commit.wanted = true;
			(void)nvme_commit_step(t, kvt_now(t->s));
		} else if (t->ops_under_way == 0 && t->issuing == NULL && t->reads_active == 0) {
			break;
		}
		(void)nvme_transfer_issue(t);
		nvme_submit_batch(t);
	}
	(void)nvme_announce_tell(t);
}

static void free_parts(struct nvme *t)
{
	if (t->index != NULL) {
		t->closing = true;
		kvt_index_destroy(t->index);
	}
	nvme_sums_close(t);
	nvme_announce_close(t);
	if (t->log.file != NULL)
		t->io->ops->close(t->io, t->log.file);
	if (t->space.files != NULL)
		nvme_space_close(t);
	for (uint32_t i = 0; t->jobs != NULL && i < t->depth; i++) {
		free(t->jobs[i].head);
		free(t->jobs[i].tail);
		free(t->jobs[i].bounce);
		nvme_sum_free(t->jobs[i].sum);
	}
	free(t->jobs);
	free(t->ops);
	free(t->op_at);
	free(t->side);
	free(t->log.pending.bytes);
	free(t->log.writing.bytes);
	nvme_seal_close(t);
	free(t->path);
	free(t->folder);
	if (t->io != NULL)
		t->io->ops->destroy(t->io);
	(void)pthread_mutex_destroy(&t->lock);
	free(t);
}

static void nvme_destroy(struct kvt_tier *base)
{
	struct nvme *t = nvme_of(base);
	struct kvt_tier_request *r;

	if (t == NULL)
		return;
	while ((r = take_from(t, &t->reads)) != NULL || (r = take_from(t, &t->writes)) != NULL)
		nvme_finish(r, KVT_ECANCELED);
	wind_up(t);
	free_parts(t);
}

static enum kvt_status make_parts(struct nvme *t)
{
	uint32_t ops = t->depth + COMMIT_OPS;

	t->jobs = calloc(t->depth, sizeof(t->jobs[0]));
	t->ops = calloc(ops, sizeof(t->ops[0]));
	t->op_at = calloc(ops, sizeof(t->op_at[0]));
	if (t->jobs == NULL || t->ops == NULL || t->op_at == NULL)
		return KVT_ENOMEM;
	for (uint32_t i = 0; i < t->depth; i++)
		nvme_job_give(t, &t->jobs[i]);
	for (uint32_t i = 0; i < ops; i++)
		nvme_op_give(t, &t->ops[i]);
	return nvme_sums_open(t);
}

/* The capacity of the store's structures does not depend on which other stores are present now, but
 * its part of the disk does. */
static void set_automatic(struct nvme *t, bool again)
{
	char why[KVT_REASON_BYTES] = "";
	struct kvt_machine machine;

	kvt_machine_read("", t->path, &machine);
	kvt_nvme_share(&machine, t->path, t->folder, t->engine_ranks, &t->share, why);
	t->capacity = t->share.whole / t->engine_ranks;
	t->share_ns = kvt_now(t->s) + SHARE_NS;
	if (!again)
		kvt_note(t->s, KVT_LOG_INFO, "nvme: %llu MiB: %s",
			(unsigned long long)(t->share.part >> 20), why);
}

static void set_limits(struct nvme *t, const struct kvt_config *config, bool again)
{
	uint64_t entries, most;

	t->capacity = config->nvme_capacity;
	if (t->capacity == 0)
		set_automatic(t, again);
	if (t->capacity < MIN_CAPACITY)
		t->capacity = MIN_CAPACITY;
	entries = config->nvme_max_chunks;
	if (entries == 0) {
		entries = t->capacity / BYTES_PER_ENTRY;
		entries = entries < MIN_ENTRIES ? MIN_ENTRIES : entries;
	}
	t->max_entries = entries > MAX_ENTRIES ? MAX_ENTRIES : (uint32_t)entries;
	t->ttl_ns = config->ttl_ns;
	/* Chunks whose records are not durable cannot be evicted, so a commit must begin while
	 * there is room for other chunks. */
	t->sync_bytes = config->nvme_sync_bytes;
	most = t->share.stores > 1 ? t->share.part : t->capacity;
	if (t->sync_bytes > most / 8)
		t->sync_bytes = most / 8;
	t->sync_ns = config->nvme_sync_ns > INT64_MAX / 4 ? INT64_MAX / 4
							  : (int64_t)config->nvme_sync_ns;
	t->depth = config->nvme_depth < 4      ? 4
		   : config->nvme_depth > 1024 ? 1024
					       : config->nvme_depth;
	t->caller_threads = config->threads == KVT_THREADS_CALLER;
}

/* PATH/FINGERPRINT/RANK. */
static bool folder_of(const struct kvt_config *config, char *out, size_t size)
{
	int n = snprintf(out, size, "%s/", config->nvme_path);

	for (size_t i = 0; n > 0 && (size_t)n < size && i < sizeof(config->fingerprint.bytes); i++)
		n += snprintf(out + n, size - (size_t)n, "%02x", config->fingerprint.bytes[i]);
	if (n > 0 && (size_t)n < size)
		n += snprintf(out + n, size - (size_t)n, "/%u", config->rank);
	return n > 0 && (size_t)n < size;
}

static enum kvt_status open_folder(
	struct nvme *t, const struct kvt_tier_options *options, const char *folder, char *why)
{
	const struct kvt_config *config = options->config;
	struct kvt_io_layer machine = kvt_io_machine();
	const struct kvt_io_layer *layer = config->io != NULL ? config->io : &machine;
	struct kvt_io_options io_options = {
		.mode = config->nvme_io != NULL ? config->nvme_io : "auto",
		.depth = t->depth,
		.direct = config->nvme_direct != 0,
		.arena = options->arena,
		.arena_bytes = options->arena_bytes,
	};
	enum kvt_status status = layer->create(layer->self, folder, &io_options, &t->io);
	int64_t until = kvt_now(t->s) + (int64_t)config->nvme_lock_wait_ns;
	int64_t owner = 0;

	if (status != KVT_OK) {
		(void)snprintf(
			why, KVT_REASON_BYTES, "%.120s: %s", folder, kvt_status_text(status));
		return status;
	}
	while ((status = t->io->ops->lock(t->io, &owner)) == KVT_ELOCKED) {
		struct timespec pause = {.tv_nsec = LOCK_AGAIN_NS};

		if (t->caller_threads || options->again || kvt_now(t->s) >= until)
			break;
		(void)nanosleep(&pause, NULL);
	}
	if (status == KVT_ELOCKED)
		(void)snprintf(why, KVT_REASON_BYTES, "process %lld owns %.100s", (long long)owner,
			folder);
	else if (status != KVT_OK)
		(void)snprintf(why, KVT_REASON_BYTES, "%s", t->io->ops->why(t->io));
	return status;
}

static enum kvt_status nvme_create(
	const struct kvt_tier_options *options, char *why, struct kvt_tier **out)
{
	const struct kvt_config *config = options->config;
	enum kvt_status status;
	char folder[4096];
	struct nvme *t;

	why[0] = '\0';
	if (config->nvme_path == NULL || config->nvme_path[0] == '\0')
		return KVT_MISS;
	if (!folder_of(config, folder, sizeof(folder))) {
		(void)snprintf(why, KVT_REASON_BYTES, "nvme_path is too long");
		return KVT_EINVAL;
	}
	t = calloc(1, sizeof(*t));
	if (t == NULL || pthread_mutex_init(&t->lock, NULL) != 0) {
		free(t);
		return KVT_ENOMEM;
	}
	t->base.ops = &kvt_nvme_ops;
	t->s = options->surroundings;
	t->watch = options->watch;
	t->events = options->watch.stored != NULL || options->watch.removed != NULL;
	t->state = KVT_TIER_WORKS;
	t->batch_end = &t->batch;
	t->issuing_end = &t->issuing;
	t->removed_end = &t->removed;
	nvme_commit_init(t);
	t->path = strdup(config->nvme_path);
	t->folder = strdup(folder);
	t->engine_ranks = config->node_ranks > 0 ? config->node_ranks : 1;
	if (t->path == NULL || t->folder == NULL) {
		free_parts(t);
		return KVT_ENOMEM;
	}
	set_limits(t, config, options->again);
	status = make_parts(t);
	if (status == KVT_OK)
		status = nvme_seal_open(t, config, why);
	if (status == KVT_OK)
		status = open_folder(t, options, folder, why);
	if (status == KVT_OK)
		status = nvme_recover(t, config, folder, why);
	if (status != KVT_OK) {
		if (why[0] == '\0')
			(void)snprintf(why, KVT_REASON_BYTES, "%s", kvt_status_text(status));
		free_parts(t);
		return status;
	}
	t->base.piece_bytes = t->sealer == NULL ? NVME_PIECE_BYTES : 0;
	set_state(t);
	*out = &t->base;
	return KVT_OK;
}

static void nvme_tally(
	struct kvt_tier *base, const struct kvt_tenant *tenant, uint64_t *chunks, uint64_t *bytes)
{
	kvt_index_tally(nvme_of(base)->index, tenant, chunks, bytes);
}

static void nvme_tenants(struct kvt_tier *base, size_t most, struct kvt_tenant_list *out)
{
	kvt_index_tenants(nvme_of(base)->index, most, out);
}

static void nvme_limited(struct kvt_tier *base, uint64_t *evictions, uint64_t *refusals)
{
	struct nvme *t = nvme_of(base);
	struct kvt_index_stats x;

	kvt_index_stats(t->index, &x);
	*evictions = x.limited;
	*refusals = x.refused;
}

static enum kvt_status nvme_limit_tenant(
	struct kvt_tier *base, const struct kvt_tenant *tenant, uint64_t bytes)
{
	return kvt_index_limit_tenant(((struct nvme *)base)->index, tenant, bytes);
}

const struct kvt_tier_ops kvt_nvme_ops = {
	.name = "nvme",
	.id = KVT_TIER_NVME,
	.create = nvme_create,
	.match = nvme_match,
	.known = nvme_known,
	.submit = nvme_submit,
	.pin = nvme_pin,
	.erase_tenant = nvme_erase_tenant,
	.erase_all = nvme_erase_all,
	.drop_slots = nvme_drop_slots,
	.tally = nvme_tally,
	.tenants = nvme_tenants,
	.limit_tenant = nvme_limit_tenant,
	.limited = nvme_limited,
	.stats = nvme_stats,
	.wake = nvme_wake,
	.step = nvme_step,
	.lost = nvme_lost,
	.destroy = nvme_destroy,
};
