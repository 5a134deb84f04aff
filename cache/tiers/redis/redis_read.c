/*
 * redis_read.c - reads a chunk from Redis, in the native format.
 *
 * The read requests all parts at once. Each answer's payload goes into its place: the request's
 * segments or, sealed, one buffer from which it is opened into them. The command has room for the
 * bytes after the payload: names, tags, footer.
 *
 * At most REDIS_AT_ONCE bytes are requested at a time, enough to keep any network busy; further
 * reads wait for their turn. A server that gets requests for hundreds of megabytes at once copies
 * all of them before it sends the first byte.
 *
 * parts arrive --> footers agree --> bytes have their checksum
 *
 * The writer's setting decides the parts' size. Usually the presence table knows it from a probe,
 * or the reader has the same setting; otherwise the footer has it, and the chunk is read a second
 * time.
 *
 * A chunk with parts of two writers is being written, or was written by two at once; it is a miss,
 * and its next put corrects that. A part that is wrong in itself is unlinked.
 */
#include <stdlib.h>
#include <string.h>

#include "tiers/nvme/nvme_format.h" /* names of blocks */
#include "tiers/redis/redis_tier.h"

static void settle(struct redis_job *job);
static void prove(struct redis_job *job);

struct kvt_seal_place redis_place(
	const struct redis_tier *t, const struct redis_footer *f, uint32_t tier, uint64_t bytes)
{
	struct kvt_seal_place place = {
		.key = f->key,
		.fingerprint = f->fingerprint,
		.tenant = f->tenant,
		.tier = tier,
		.bytes = bytes,
	};

	memcpy(place.store_id, t->store_id, sizeof(place.store_id));
	return place;
}

/* --- asking
 * ------------------------------------------------------------------------------------ */

void redis_read_missing(struct redis_job *job)
{
	kvt_presence_missing(job->t->presence, job->request->keys, kvt_now(job->t->s));
	redis_job_end(job, KVT_MISS);
}

void redis_read_corrupt(struct redis_job *job)
{
	kvt_presence_missing(job->t->presence, job->request->keys, kvt_now(job->t->s));
	redis_drop(job->t, job->request->keys);
	redis_job_end(job, KVT_ECORRUPT);
}

static void free_asks(struct redis_job *job)
{
	for (uint32_t i = 0; job->asks != NULL && i < job->parts; i++)
		redis_ask_free(job->asks[i]);
	free(job->asks);
	job->asks = NULL;
	job->parts = 0;
}

static void part_came(struct redis_ask *ask)
{
	struct redis_job *job = ask->owner;

	if (--job->left == 0)
		settle(job);
}

static struct redis_ask *part_ask(struct redis_job *job, uint32_t part)
{
	struct redis_tier *t = job->t;
	struct kvt_segment into[REDIS_SEGMENTS + 1];
	char name[REDIS_KEY_ROOM];
	size_t len = redis_chunk_name(&t->fingerprint, job->request->keys, part, name);
	struct redis_word words[2] = {REDIS_WORD("GET"), {name, len}};
	uint64_t from = (uint64_t)part * job->part_bytes;
	uint32_t count = redis_job_slice(
		job, from, redis_part_length(job->request->bytes, job->part_bytes, part), into);

	into[count++] = (struct kvt_segment){
		.base = job->extra + (part == 0 ? 0 : REDIS_MAX_EXTRA + part * REDIS_FOOTER),
		.bytes = part == 0 ? REDIS_MAX_EXTRA + REDIS_FOOTER : REDIS_FOOTER,
	};
	return redis_ask_new(t, words, 2, into, count, 0);
}

/* Requests all parts of the chunk, each of job->part_bytes but the last. */
static void ask_parts(struct redis_job *job)
{
	uint32_t parts = redis_part_count(job->request->bytes, job->part_bytes);
	bool made = true;

	if (parts == 0 || parts > REDIS_MAX_PARTS) {
		redis_job_end(job, KVT_MISS);
		return;
	}
	free(job->extra);
	job->extra = malloc(REDIS_MAX_EXTRA + (size_t)parts * REDIS_FOOTER);
	job->asks = calloc(parts, sizeof(struct redis_ask *));
	job->parts = job->asks != NULL ? parts : 0;
	for (uint32_t i = 0; i < job->parts && job->extra != NULL; i++) {
		job->asks[i] = part_ask(job, i);
		made = made && job->asks[i] != NULL;
	}
	if (job->asks == NULL || job->extra == NULL || !made) {
		redis_job_end(job, KVT_ENOMEM);
		return;
	}
	job->left = parts;
	for (uint32_t i = 0; i < parts; i++)
		redis_ask_send(job->asks[i], part_came, job, job->deadline_ns);
}

static void ask_with_room(struct redis_job *job)
{
	enum kvt_status status = redis_job_turn(job, ask_with_room);

	if (status == KVT_OK && job->t->sealer != NULL)
		status = redis_job_bounce(job, job->request->bytes, ask_with_room);
	if (status == KVT_BUSY)
		return;
	if (status != KVT_OK)
		redis_job_end(job, status);
	else
		ask_parts(job);
}

void redis_read_begin(struct redis_job *job)
{
	struct redis_tier *t = job->t;
	struct kvt_tier_known known;

	job->part_bytes = t->part_bytes;
	if (kvt_presence_get(t->presence, job->request->keys, job->begun_ns, &known) ==
			KVT_PRESENCE_THERE &&
		known.extra != 0)
		job->part_bytes = known.extra;
	ask_with_room(job);
}

/* --- a chunk with parts of another size
 * -------------------------------------------------------- */

/* Takes the chunk's length and the size of its parts from the footer of the first part. */
static void go_by(struct redis_job *job, const struct redis_footer *f)
{
	if (f->bytes != job->request->bytes) {
		kvt_presence_forget(job->t->presence, job->request->keys);
		redis_job_end(job, KVT_MISS);
		return;
	}
	/* the chunk was rewritten again while it was being read */
	if (job->again || f->part_bytes == job->part_bytes) {
		redis_job_end(job, KVT_MISS);
		return;
	}
	job->again = true;
	job->part_bytes = f->part_bytes;
	free_asks(job);
	ask_parts(job);
}

static void looked(struct redis_ask *ask)
{
	struct redis_job *job = ask->owner;
	enum kvt_status status = redis_ask_status(ask);
	bool nothing = status == KVT_OK && ask->command.bulk_bytes == 0;
	struct redis_footer f;

	job->left--;
	if (status == KVT_OK && ask->command.reply == KVW_REDIS_BULK)
		status = redis_footer_decode(ask->buffer, ask->command.bulk_bytes, &f);
	else if (status == KVT_OK)
		status = KVT_ECORRUPT;
	redis_ask_free(ask);
	if (status == KVT_OK &&
		(f.part != 0 || !redis_footer_is(&f, &job->t->fingerprint, job->request->keys)))
		status = KVT_ECORRUPT;
	if (status == KVT_OK)
		go_by(job, &f);
	else if (nothing)
		redis_read_missing(job);
	else if (status == KVT_ECORRUPT || status == KVT_EFORMAT)
		redis_read_corrupt(job);
	else
		redis_job_end(job, status == KVT_FULL ? KVT_EIO : status);
}

/* Reads the last bytes of a value that was longer than its buffer, for the footer in them. */
static void look(struct redis_job *job)
{
	struct redis_ask *ask = redis_ask_footer(job->t, job->request->keys);

	if (ask == NULL) {
		redis_job_end(job, KVT_ENOMEM);
		return;
	}
	job->left++;
	redis_ask_send(ask, looked, job, job->deadline_ns);
}

/* --- proof
 * ------------------------------------------------------------------------------------- */

/* Decodes the footer of a part, and checks that it belongs to this chunk. */
static enum kvt_status footer_of(struct redis_job *job, uint32_t part, struct redis_footer *f)
{
	const struct redis_ask *ask = job->asks[part];
	uint8_t bytes[REDIS_FOOTER];
	uint64_t len = ask->command.bulk_bytes;
	enum kvt_status status;

	if (ask->command.reply == KVW_REDIS_NIL)
		return KVT_MISS;
	if (ask->command.reply != KVW_REDIS_BULK || len < REDIS_FOOTER)
		return KVT_ECORRUPT;
	redis_ask_copy(ask, len - REDIS_FOOTER, bytes, sizeof(bytes));
	status = redis_footer_decode(bytes, sizeof(bytes), f);
	if (status != KVT_OK)
		return KVT_ECORRUPT;
	if (f->part != part || !redis_footer_is(f, &job->t->fingerprint, job->request->keys) ||
		len != redis_footer_value(f))
		return KVT_ECORRUPT;
	return KVT_OK;
}

/* Checks that all parts belong together. */
static enum kvt_status check_parts(struct redis_job *job)
{
	for (uint32_t i = 1; i < job->parts; i++) {
		struct redis_footer f;
		enum kvt_status status = footer_of(job, i, &f);

		if (status != KVT_OK)
			return status;
		if (f.writer != job->footer.writer || f.bytes != job->footer.bytes ||
			f.part_bytes != job->footer.part_bytes)
			return KVT_MISS;
	}
	return KVT_OK;
}

/* Returns the worst status of the job's commands. KVT_OK: all were answered. */
static enum kvt_status worst(const struct redis_job *job)
{
	enum kvt_status worst = KVT_OK;

	for (uint32_t i = 0; i < job->parts; i++) {
		enum kvt_status status = redis_ask_status(job->asks[i]);

		if (status != KVT_OK && (worst == KVT_OK || status == KVT_EIO))
			worst = status;
	}
	return worst;
}

/* Returns the status for a refused answer: KVT_MISS if the answer was too long for its buffer, else
 * the server's refusal. */
static enum kvt_status refusal_of(const struct redis_job *job)
{
	for (uint32_t i = 0; i < job->parts; i++) {
		if (job->asks[i]->command.status == KVW_ELIMIT)
			return KVT_MISS;
	}
	return KVT_EIO;
}

static void settle(struct redis_job *job)
{
	enum kvt_status status = worst(job);

	if (status == KVT_ECORRUPT) {
		redis_read_corrupt(job);
		return;
	}
	if (status == KVT_FULL && job->asks[0]->command.status == KVW_ELIMIT && !job->again) {
		look(job);
		return;
	}
	if (status != KVT_OK) {
		redis_job_end(job, status == KVT_FULL ? refusal_of(job) : status);
		return;
	}
	status = footer_of(job, 0, &job->footer);
	if (status == KVT_OK && (job->footer.bytes != job->request->bytes ||
					job->footer.part_bytes != job->part_bytes)) {
		go_by(job, &job->footer);
		return;
	}
	if (status == KVT_OK)
		status = check_parts(job);
	if (status == KVT_OK)
		prove(job);
	else if (status == KVT_MISS)
		redis_read_missing(job);
	else
		redis_read_corrupt(job);
}

/* Checks the checksum of names and tags in job->extra. */
static bool extra_is_right(const struct redis_job *job)
{
	return redis_extra_sum(job->extra, redis_footer_extra(&job->footer)) ==
	       job->footer.extra_sum;
}

/* Points *names at the engine's names in job->extra; sealed names are opened in place. */
static void find_names(struct redis_job *job, struct kvt_blocks *names)
{
	struct redis_tier *t = job->t;
	const struct redis_footer *f = &job->footer;
	uint64_t bytes = f->names_bytes;

	if (bytes == 0)
		return;
	if (t->sealer != NULL) {
		struct kvt_seal_place place;
		struct kvt_segment to = {.base = job->extra};

		bytes -= KVT_SEAL_TAG_BYTES;
		to.bytes = bytes;
		place = redis_place(t, f, REDIS_NAMES_TIER, bytes);
		if (kvt_open_sealed(t->sealer, &place, &f->names_seal, job->extra + bytes,
			    job->extra, &to, 1) != KVT_OK)
			return;
	}
	if (nvme_names_decode(job->extra, bytes, names) == KVT_OK && names->count > 0)
		job->request->names = names;
}

/* Opens a sealed value in its buffer, and copies it into the request's segments, where other
 * processes may write (a segment mapped by clients of kvtierd): the checksum covers the copied
 * bytes, not those present there afterwards. */
static enum kvt_status open_sealed(struct redis_job *job)
{
	struct redis_tier *t = job->t;
	struct kvt_tier_request *r = job->request;
	const struct redis_footer *f = &job->footer;
	struct kvt_seal_place place = redis_place(t, f, KVT_TIER_L2, f->bytes);
	struct kvt_segment here = {.base = job->bounce, .bytes = f->bytes};
	enum kvt_status status = kvt_open_sealed(
		t->sealer, &place, &f->seal, job->extra + f->names_bytes, job->bounce, &here, 1);

	if (status == KVT_OK)
		kvt_checksum_copy(r->segments, r->segment_count, job->bounce, f->bytes, &r->checksum);
	return status;
}

/* Checks the payload; a sealed one is opened into the request's segments first. */
static enum kvt_status open_payload(struct redis_job *job)
{
	struct kvt_tier_request *r = job->request;

	if (job->t->sealer != NULL)
		return open_sealed(job);
	kvt_checksum_segments(r->segments, r->segment_count, r->bytes, &r->checksum);
	return kvt_checksum_equal(&r->checksum, &job->footer.checksum) ? KVT_OK : KVT_ECORRUPT;
}

static void end_proven(struct redis_job *job)
{
	struct kvt_blocks names;
	struct kvt_tier_known known = redis_footer_known(&job->footer);

	find_names(job, &names);
	kvt_presence_there(job->t->presence, job->request->keys, &known, kvt_now(job->t->s));
	redis_quota_read(job->t, &job->footer);
	redis_job_end(job, KVT_OK);
}

/* Continues the read when the tenant's key is known. */
static void prove(struct redis_job *job)
{
	struct redis_tier *t = job->t;
	const struct redis_footer *f = &job->footer;
	bool sealed = (f->flags & REDIS_SEALED) != 0;
	/* A sealed value can only be read by a handle with keys, a plain one only by a handle
	 * without: others miss. */
	enum kvt_status status = sealed == (t->sealer != NULL) ? KVT_OK : KVT_MISS;

	job->resume = prove;
	if (status == KVT_OK && !extra_is_right(job))
		status = KVT_ECORRUPT;
	if (status == KVT_OK && sealed) {
		status = redis_tenant_key(job, &f->tenant, false, false);
		if (status == KVT_BUSY)
			return;
	}
	if (status == KVT_OK) {
		status = open_payload(job);
		/* the value was sealed under a newer key than the one that this handle knows */
		if (status == KVT_MISS && !job->key_again) {
			job->key_again = true;
			status = redis_tenant_key(job, &f->tenant, false, true);
			if (status == KVT_BUSY)
				return;
		}
	}
	if (status == KVT_OK)
		end_proven(job);
	else if (status == KVT_ECORRUPT)
		redis_read_corrupt(job);
	else if (status == KVT_MISS || status == KVT_ENOTSUP || status == KVT_FULL)
		redis_read_missing(job);
	else
		redis_job_end(job, status);
}
