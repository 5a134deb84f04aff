/*
 * kvtierd_read.c - reads a chunk: lease, footer, copy, check, release.
 *
 *	kept lease ----------------+
 *	POST .../leases --> held --+--> look --> copy --> checks --> done, then release
 *
 * The copy runs on the tier's thread, one chunk in each step, straight into the caller's segments.
 * If a check fails, the read does, and the caller discards the bytes.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tiers/nvme/nvme_format.h"
#include "tiers/kvtierd/kvtierd.h"

/* --- the footer ------------------------------------------------------------------------------- */

void kvtierd_is_corrupt(struct kvtierd *t, const struct kvt_key *key, const char *what)
{
	kvtierd_count(t, &t->counts.corrupt, 1);
	kvt_note(t->s, KVT_LOG_WARN, "kvtierd: %02x%02x%02x%02x is left aside: %s", key->bytes[0],
		key->bytes[1], key->bytes[2], key->bytes[3], what);
}

/* Attaches the present segment; logs once when the segment goes, and once when it comes back. */
static enum kvt_status look_at_segment(struct kvtierd *t)
{
	enum kvt_status status = kvtierd_segment_refresh(&t->segment);

	if (status == KVT_OK) {
		if (t->said_segment)
			kvt_note(t->s, KVT_LOG_INFO, "kvtierd: %s is there", t->segment.path);
		t->said_segment = false;
		return status;
	}
	kvtierd_say(t, t->segment.why);
	if (!t->said_segment)
		kvt_note(t->s, KVT_LOG_ERROR, "kvtierd: %s", t->segment.why);
	t->said_segment = true;
	return status;
}

/* Returns whether a value is older than its own TTL, or than the configured one. */
static bool outlived(struct kvtierd *t, const struct redis_footer *f)
{
	uint64_t ttl_ns = f->ttl_ns;
	int64_t age_ns = kvt_steady_wall(t->s) - f->written_wall_ns;

	if (t->ttl_ns != 0 && (ttl_ns == 0 || t->ttl_ns < ttl_ns))
		ttl_ns = t->ttl_ns;
	return ttl_ns != 0 && age_ns > 0 && (uint64_t)age_ns >= ttl_ns;
}

static enum kvt_status check_footer(struct kvtierd *t, const struct kvt_key *key,
	const struct kvtierd_held *held, const struct redis_footer *f)
{
	if (!redis_footer_is(f, &t->fingerprint, key) || f->parts != 1 ||
		redis_footer_value(f) != held->lease.bytes)
		return KVT_ECORRUPT;
	if ((f->flags & REDIS_SEALED) != 0 || outlived(t, f))
		return KVT_MISS; /* the value is sealed, and this handle lacks the key */
	return KVT_OK;
}

enum kvt_status kvtierd_look(struct kvtierd *t, const struct kvt_key *key,
	const struct kvtierd_held *held, struct redis_footer *out)
{
	const struct kvtierd_lease *lease = &held->lease;
	uint8_t bytes[REDIS_FOOTER];
	struct kvt_segment to = {.base = bytes, .bytes = sizeof(bytes)};
	struct kvt_checksum unused;
	enum kvt_status status = look_at_segment(t);

	if (status != KVT_OK)
		return status;
	if (lease->bytes == KVTIERD_MARK)
		return KVT_MISS; /* the chunk was erased: a mark is shorter than any value */
	if (lease->bytes < REDIS_FOOTER)
		return KVT_ECORRUPT;
	status = kvtierd_segment_take(
		&t->segment, lease, lease->bytes - REDIS_FOOTER, REDIS_FOOTER, &to, 1, &unused);
	if (status == KVT_OK)
		status = redis_footer_decode(bytes, sizeof(bytes), out);
	if (status == KVT_EFORMAT)
		status = KVT_ECORRUPT;
	return status == KVT_OK ? check_footer(t, key, held, out) : status;
}

/* --- the end ---------------------------------------------------------------------------------- */

static void end(struct kvtierd_job *job, enum kvt_status status)
{
	struct kvtierd *t = job->t;
	struct kvt_tier_request *r = job->request;

	if (status == KVT_OK) {
		pthread_mutex_lock(&t->lock);
		t->counts.hits++;
		t->counts.loads++;
		t->counts.load_bytes += r->bytes;
		pthread_mutex_unlock(&t->lock);
		kvtierd_works(t);
	} else if (status == KVT_MISS || status == KVT_ECORRUPT) {
		kvtierd_count(t, &t->counts.misses, 1);
	}
	kvtierd_release(t, &job->held);
	kvtierd_job_done(job, status);
}

/* Ends a read of a chunk that is missing or is another one, and notes in the presence table that it
 * is missing. */
static void end_missing(struct kvtierd_job *job, enum kvt_status status)
{
	kvt_presence_missing(job->t->presence, &job->request->keys[0], kvt_now(job->t->s));
	end(job, status);
}

static void look(struct kvtierd_job *job)
{
	struct kvtierd *t = job->t;
	const struct kvt_key *key = &job->request->keys[0];
	enum kvt_status status = kvtierd_look(t, key, &job->held, &job->footer);

	if (status == KVT_ECORRUPT)
		kvtierd_is_corrupt(t, key, "its footer is wrong");
	if (status == KVT_OK && job->footer.bytes != job->request->bytes)
		/* another chunk was stored under this key since the caller asked for its length */
		status = KVT_MISS;
	if (status == KVT_MISS || status == KVT_ECORRUPT) {
		end_missing(job, status);
		return;
	}
	if (status != KVT_OK) {
		end(job, status);
		return;
	}
	job->next_copy = NULL;
	*t->copies_end = job;
	t->copies_end = &job->next_copy;
}

static void leased(struct kvtierd_exchange *x)
{
	struct kvtierd_job *job = x->user;
	bool sure;
	enum kvt_status status = kvtierd_lease_answer(job->t, x, &job->held, &sure);

	if (status == KVT_OK)
		look(job);
	else if (status == KVT_MISS && sure)
		end_missing(job, status);
	else
		end(job, status);
}

static bool request_is_good(const struct kvt_tier_request *r)
{
	uint64_t sum = 0;

	if (r->key_count != 1 || r->segment_count == 0 || r->segment_count > KVTIERD_MAX_SEGMENTS)
		return false;
	for (uint32_t i = 0; i < r->segment_count; i++)
		sum += r->segments[i].bytes;
	return sum == r->bytes && r->bytes > 0;
}

void kvtierd_read_begin(struct kvtierd_job *job)
{
	struct kvtierd *t = job->t;
	struct kvt_tier_request *r = job->request;
	char name[KVTIERD_NAME_ROOM];
	int64_t left_ns = job->deadline_ns - kvt_now(t->s);

	r->names = NULL;
	if (!request_is_good(r)) {
		kvtierd_job_done(job, KVT_EINVAL);
		return;
	}
	if (kvtierd_kept_take(t, &r->keys[0], &job->held)) {
		look(job);
		return;
	}
	kvtierd_chunk_name(&t->fingerprint, &r->keys[0], name);
	/* The daemon may have to fetch the chunk from a lower tier first: it may use three quarters
	 * of the remaining time. */
	kvtierd_ask_lease(
		&t->place, name, left_ns > 0 ? (uint64_t)left_ns / 4 * 3 : 0, t->lease_ns, &job->x);
	job->x.deadline_ns = job->deadline_ns;
	job->x.done = leased;
	job->x.user = job;
	kvtierd_http_submit(t->http, &job->x);
}

/* --- the copy --------------------------------------------------------------------------------- */

/* Reads the engine's names of the chunk, if they are complete; without names there are no events
 * about it. */
static bool take_names(struct kvtierd_job *job, struct kvt_blocks *names)
{
	const struct redis_footer *f = &job->footer;
	struct kvt_segment to = {.bytes = redis_footer_extra(f)};
	struct kvt_checksum unused;

	if (to.bytes == 0)
		return false;
	free(job->tail);
	job->tail = malloc(to.bytes);
	to.base = job->tail;
	return job->tail != NULL &&
	       kvtierd_segment_take(&job->t->segment, &job->held.lease, f->bytes, to.bytes, &to, 1,
		       &unused) == KVT_OK &&
	       redis_extra_sum(job->tail, to.bytes) == f->extra_sum &&
	       nvme_names_decode(job->tail, f->names_bytes, names) == KVT_OK &&
	       names->count > 0;
}

/* Repeats all checks on the copied bytes. */
static enum kvt_status check_copy(struct kvtierd_job *job, uint64_t generation)
{
	struct kvtierd *t = job->t;
	const struct kvt_tier_request *r = job->request;
	bool right = kvt_checksum_equal(&r->checksum, &job->footer.checksum);

	if (!kvtierd_held_lasts(t, &job->held))
		return KVT_MISS;
	if (look_at_segment(t) != KVT_OK || t->segment.generation != generation)
		return KVT_MISS;
	if (!right) {
		kvtierd_is_corrupt(t, &r->keys[0], "its checksum is wrong");
		return KVT_ECORRUPT;
	}
	return KVT_OK;
}

static enum kvt_status copy(struct kvtierd_job *job)
{
	struct kvtierd *t = job->t;
	struct kvt_tier_request *r = job->request;
	enum kvt_status status = look_at_segment(t);
	uint64_t generation = t->segment.generation;

	if (status == KVT_OK && !kvtierd_held_lasts(t, &job->held))
		status = KVT_MISS;
	if (status == KVT_OK)
		status = kvtierd_segment_take(&t->segment, &job->held.lease, 0, r->bytes,
			r->segments, r->segment_count, &r->checksum);
	return status == KVT_OK ? check_copy(job, generation) : status;
}

size_t kvtierd_read_copy(struct kvtierd *t)
{
	struct kvtierd_job *job = t->copies;
	struct kvt_tier_known known;
	struct kvt_blocks names;
	enum kvt_status status;

	if (job == NULL)
		return 0;
	t->copies = job->next_copy;
	if (t->copies == NULL)
		t->copies_end = &t->copies;
	status = copy(job);
	if (status == KVT_OK) {
		known = redis_footer_known(&job->footer);
		kvt_presence_there(t->presence, &job->request->keys[0], &known, kvt_now(t->s));
		if (take_names(job, &names))
			job->request->names = &names;
		end(job, status);
	} else if (status == KVT_MISS || status == KVT_ECORRUPT) {
		kvt_presence_forget(t->presence, &job->request->keys[0]);
		end(job, status);
	} else {
		end(job, status);
	}
	return 1;
}
