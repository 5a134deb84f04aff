/*
 * redis_write.c - writes a chunk to Redis, in the native format.
 *
 * A sealed store first needs the tenant's key and a sealed copy. The further parts are set before
 * the first one, all at once: probes read only the first part.
 *
 * At most REDIS_AT_ONCE bytes are written at a time, enough to keep any network busy; further
 * writes wait for their turn here, before their deadline begins. In the client's queue they would
 * time out behind each other, as if the server failed.
 *
 * Bytes go from the request's segments straight to the socket; the value's checksum is the one that
 * the caller passed. A sealed value has no checksum, so the bytes that were sealed are compared
 * with the caller's checksum.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tiers/nvme/nvme_format.h" /* names of blocks */
#include "tiers/redis/redis_tier.h"

static void go_on(struct redis_job *job);

uint64_t redis_ttl_ms(const struct redis_tier *t, const struct kvt_item *item)
{
	uint64_t own = item != NULL && item->ttl_ns != 0 ? item->ttl_ns : t->chunk_ttl_ns;
	uint64_t ttl = own != 0 && (t->ttl_ns == 0 || own < t->ttl_ns) ? own : t->ttl_ns;

	if (ttl == 0)
		return 0;
	return ttl / 1000000 + (ttl % 1000000 != 0);
}

/* --- names, tags, footer
 * ------------------------------------------------------------------------ */

static void fill_footer(struct redis_job *job)
{
	struct redis_tier *t = job->t;
	const struct kvt_tier_request *r = job->request;
	const struct kvt_item *item = r->item;
	struct redis_footer *f = &job->footer;

	*f = (struct redis_footer){
		.key = r->keys[0],
		.fingerprint = t->fingerprint,
		.bytes = r->bytes,
		.part_bytes = t->part_bytes,
		.parts = redis_part_count(r->bytes, t->part_bytes),
		.tokens = t->tokens_per_chunk,
		.writer = kvw_random(&t->seed),
		.written_wall_ns = kvt_steady_wall(t->s),
	};
	if (t->sealer == NULL)
		f->checksum = r->checksum;
	else
		f->flags |= REDIS_SEALED;
	if (item == NULL)
		return;
	f->tenant = item->tenant;
	f->ttl_ns = item->ttl_ns;
	if (item->tokens != 0)
		f->tokens = item->tokens;
	if (item->parent != NULL) {
		f->parent = *item->parent;
		f->flags |= REDIS_PARENT;
	}
}

static uint64_t padded(uint64_t bytes)
{
	return (bytes + 3) / 4 * 4;
}

/* Copies the engine's names into job->extra, sealed if the store is. */
static enum kvt_status put_names(struct redis_job *job, uint64_t bytes)
{
	struct redis_tier *t = job->t;
	struct redis_footer *f = &job->footer;
	const struct kvt_item *item = job->request->item;
	struct kvt_seal_place place;
	struct kvt_segment plain;
	enum kvt_status status;
	uint8_t *copy;

	if (bytes == 0)
		return KVT_OK;
	nvme_names_encode(item->blocks, job->extra);
	if (t->sealer == NULL)
		return KVT_OK;
	copy = malloc(padded(bytes));
	if (copy == NULL)
		return KVT_ENOMEM;
	memcpy(copy, job->extra, padded(bytes));
	plain = (struct kvt_segment){.base = copy, .bytes = padded(bytes)};
	place = redis_place(t, f, REDIS_NAMES_TIER, padded(bytes));
	status = kvt_seal(t->sealer, &place, &plain, 1, job->extra, &f->names_seal,
		job->extra + padded(bytes));
	explicit_bzero(copy, padded(bytes));
	free(copy);
	return status;
}

/* Makes names and tags, and the sealed copy of the payload. */
static enum kvt_status make_extra(struct redis_job *job)
{
	struct redis_tier *t = job->t;
	const struct kvt_tier_request *r = job->request;
	struct redis_footer *f = &job->footer;
	const struct kvt_item *item = r->item;
	uint64_t tag = t->sealer != NULL ? KVT_SEAL_TAG_BYTES : 0;
	uint64_t names = item != NULL ? nvme_names_bytes(item->blocks) : 0;
	struct kvt_seal_place place;
	enum kvt_status status;

	f->tag_count = tag != 0 ? kvt_seal_records(r->bytes) : 0;
	if (names > 0 && padded(names) + tag + f->tag_count * tag > REDIS_MAX_EXTRA)
		/* names that do not fit are left out: a chunk without them is better than none */
		names = 0;
	f->names_bytes = names > 0 ? (uint32_t)(padded(names) + tag) : 0;
	if (redis_footer_extra(f) == 0)
		return KVT_OK;
	free(job->extra);
	job->extra = calloc(1, redis_footer_extra(f));
	if (job->extra == NULL)
		return KVT_ENOMEM;
	status = put_names(job, names);
	if (status == KVT_OK && tag != 0) {
		place = redis_place(t, f, KVT_TIER_L2, r->bytes);
		status = kvt_seal(t->sealer, &place, r->segments, r->segment_count, job->bounce,
			&f->seal, job->extra + f->names_bytes);
		/* The tags prove whichever bytes were sealed, also bytes that changed in memory
		 * since their put. So the bytes are compared with the put's checksum. */
		if (status == KVT_OK &&
			!kvt_checksum_holds(
				r->segments, r->segment_count, r->bytes, &r->checksum))
			status = KVT_ECORRUPT;
	}
	f->extra_sum = redis_extra_sum(job->extra, redis_footer_extra(f));
	return status;
}

/* --- parts
 * ------------------------------------------------------------------------------------- */

static struct redis_ask *part_ask(struct redis_job *job, uint32_t part)
{
	struct redis_tier *t = job->t;
	struct redis_footer f = job->footer;
	struct kvt_segment pieces[REDIS_SEGMENTS + 2];
	uint8_t footer[REDIS_FOOTER];
	char name[REDIS_KEY_ROOM], ttl[24];
	uint64_t ms = redis_ttl_ms(t, job->request->item);
	uint64_t extra;
	uint32_t count;
	struct redis_word words[5] = {REDIS_WORD("SET")};
	struct redis_ask *ask;

	f.part = part;
	f.part_payload = redis_part_length(f.bytes, f.part_bytes, part);
	extra = redis_footer_extra(&f);
	count = redis_job_slice(job, (uint64_t)part * f.part_bytes, f.part_payload, pieces);
	if (extra > 0)
		pieces[count++] = (struct kvt_segment){.base = job->extra, .bytes = extra};
	redis_footer_encode(&f, footer);
	pieces[count++] = (struct kvt_segment){.base = footer, .bytes = sizeof(footer)};
	words[1] = (struct redis_word){name, redis_chunk_name(&t->fingerprint, &f.key, part, name)};
	words[2] = (struct redis_word){NULL, redis_footer_value(&f)};
	words[3] = REDIS_WORD("PX");
	words[4] = (struct redis_word){
		ttl, (size_t)snprintf(ttl, sizeof(ttl), "%llu", (unsigned long long)ms)};
	ask = redis_ask_new(t, words, ms > 0 ? 5 : 3, pieces, count, sizeof(footer));
	if (ask == NULL)
		return NULL;
	/* The footer must stay until the command has ended, so it is copied to the ask's buffer,
	 * which no answer overwrites. */
	memcpy(ask->buffer, footer, sizeof(footer));
	((struct iovec *)(uintptr_t)ask->command.parts)[count].iov_base = ask->buffer;
	ask->command.lead = NULL;
	ask->command.lead_room = 0;
	return ask;
}

static void end_written(struct redis_job *job)
{
	struct kvt_tier_known known = redis_footer_known(&job->footer);

	kvt_presence_there(job->t->presence, job->request->keys, &known, kvt_now(job->t->s));
	redis_job_end(job, KVT_OK);
}

/* Ends a write that failed, and unlinks the parts that were set: they are useless without the
 * others. */
static void end_failed(struct redis_job *job)
{
	for (uint32_t i = 0; i < job->parts; i++) {
		if (job->asks[i] != NULL && job->asks[i]->command.reply == KVW_REDIS_ERROR)
			redis_refused(job->t, job->asks[i]->command.text);
	}
	if (job->parts > 1 && job->status != KVT_ECANCELED)
		redis_drop(job->t, job->request->keys);
	kvt_presence_forget(job->t->presence, job->request->keys);
	redis_job_end(job, job->status == KVT_ECORRUPT ? KVT_EIO : job->status);
}

static void part_set(struct redis_ask *ask)
{
	struct redis_job *job = ask->owner;
	enum kvt_status status = redis_ask_status(ask);

	if (status != KVT_OK && job->status != KVT_EIO)
		job->status = status;
	if (--job->left > 0)
		return;
	if (job->status != KVT_OK) {
		end_failed(job);
	} else if (ask->number == 0) {
		end_written(job);
	} else {
		job->left = 1;
		redis_ask_send(job->asks[0], part_set, job, job->deadline_ns);
	}
}

static void send_parts(struct redis_job *job)
{
	uint32_t parts = job->footer.parts;
	bool made = true;

	job->asks = calloc(parts, sizeof(struct redis_ask *));
	job->parts = job->asks != NULL ? parts : 0;
	for (uint32_t i = 0; i < job->parts; i++) {
		job->asks[i] = part_ask(job, i);
		made = made && job->asks[i] != NULL;
		if (job->asks[i] != NULL)
			job->asks[i]->number = i;
	}
	if (job->asks == NULL || !made) {
		redis_job_end(job, KVT_ENOMEM);
		return;
	}
	job->left = parts > 1 ? parts - 1 : 1;
	for (uint32_t i = parts > 1 ? 1 : 0; i < parts; i++)
		redis_ask_send(job->asks[i], part_set, job, job->deadline_ns);
}

/* --- preparation
 * -------------------------------------------------------------------------------- */

/* Takes those steps of a write that may wait, one after another. */
static enum kvt_status prepare(struct redis_job *job)
{
	struct redis_tier *t = job->t;
	const struct kvt_item *item = job->request->item;
	const struct kvt_tenant none = {{0}}, *tenant = item != NULL ? &item->tenant : &none;
	enum kvt_status status;

	if (t->sealer != NULL) {
		status = redis_tenant_key(job, tenant, true, false);
		if (status == KVT_OK)
			status = redis_job_bounce(job, job->request->bytes, go_on);
		if (status != KVT_OK)
			return status;
	}
	fill_footer(job);
	status = make_extra(job);
	if (status == KVT_MISS && !job->key_again) { /* the sealer has dropped its key meanwhile */
		job->key_again = true;
		status = redis_tenant_key(job, tenant, true, true);
	}
	return status;
}

static void go_on(struct redis_job *job)
{
	enum kvt_status status = redis_job_turn(job, go_on);

	if (status == KVT_OK)
		status = prepare(job);
	if (status == KVT_BUSY)
		return;
	if (status == KVT_OK)
		redis_quota_admit(job, send_parts);
	else
		redis_job_end(job, status);
}

void redis_write_begin(struct redis_job *job)
{
	const struct kvt_tier_request *r = job->request;

	job->resume = go_on;
	if (redis_part_count(r->bytes, job->t->part_bytes) > REDIS_MAX_PARTS)
		redis_job_end(job, KVT_ENOTSUP);
	else
		go_on(job);
}
