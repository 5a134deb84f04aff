/*
 * redis_compatible.c - chunks as stock LMCache keeps them: read, written and found.
 *
 * Three keys, NAMEkv_bytes, NAMEmetadata and our NAMEkvtier (the mark), all asked for at once. The
 * metadata must say what the configuration's layout says, to the last number, and the bytes be as
 * long as it says. Where there is a mark it must name this chunk and prove its bytes; a value that
 * contradicts its mark is unlinked with it, whether it was damaged or LMCache has written another
 * over it: which of both cannot be known. What has no mark is counted as unverified, and is not
 * read at all once anything was erased by tenant or as a whole, since it does not say whose it is.
 *
 * Bytes and mark are set first, the metadata, which LMCache looks at, when they are there.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tiers/redis/redis_tier.h"

#define VALUE_MOST ((uint64_t)512 << 20) /* of any value in Redis */

enum { BYTES, METADATA, MARK, KEYS };

static const char *const ends[KEYS] = {"kv_bytes", "metadata", "kvtier"};

/* The name of one of the keys; 0: no caller gave it. */
static size_t name_of(
	struct redis_tier *t, const struct kvt_key *key, int which, char out[LMCACHE_NAME_MAX + 16])
{
	size_t len = redis_names_find(t->names, key, out, LMCACHE_NAME_MAX + 1);

	if (len == 0)
		return 0;
	memcpy(out + len, ends[which], strlen(ends[which]) + 1);
	return len + strlen(ends[which]);
}

static struct redis_ask *ask_for(struct redis_tier *t, const char *verb, const struct kvt_key *key,
	int which, const struct kvt_tier_request *into)
{
	static const uint32_t rooms[KEYS] = {0, LMCACHE_METADATA, REDIS_MARK};
	char name[LMCACHE_NAME_MAX + 16];
	size_t len = name_of(t, key, which, name);
	struct redis_word words[2] = {{verb, strlen(verb)}, {name, len}};

	if (len == 0)
		return NULL;
	return redis_ask_new(t, words, 2, into != NULL ? into->segments : NULL,
		into != NULL ? into->segment_count : 0, rooms[which]);
}

/* Is this the mark of this chunk? KVT_MISS: of another one, or of a newer kind. */
static enum kvt_status read_mark(const struct redis_tier *t, const struct kvt_key *key,
	const struct redis_ask *ask, struct redis_mark *mark)
{
	enum kvt_status status;

	if (ask->command.status == KVW_ELIMIT || ask->command.reply != KVW_REDIS_BULK)
		return KVT_ECORRUPT;
	status = redis_mark_decode(ask->buffer, ask->command.bulk_bytes, mark);
	if (status != KVT_OK)
		return status == KVT_EFORMAT ? KVT_MISS : status;
	if (memcmp(&mark->key, key, sizeof(*key)) != 0 ||
		memcmp(&mark->fingerprint, &t->fingerprint, sizeof(t->fingerprint)) != 0)
		return KVT_MISS;
	return KVT_OK;
}

static struct kvt_tier_known known_of(const struct redis_mark *mark)
{
	return (struct kvt_tier_known){
		.bytes = mark->bytes,
		.checksum = mark->checksum,
		.tokens = mark->tokens,
		.tenant = mark->tenant,
		.has_parent = mark->has_parent,
		.parent = mark->parent,
		.ttl_ns = mark->ttl_ns,
	};
}

/* --- reading ----------------------------------------------------------------------------------- */

/* Everything has come; goes on here when an epoch has, too. */
static void prove(struct redis_job *job)
{
	struct redis_tier *t = job->t;
	struct kvt_tier_request *r = job->request;
	bool marked = job->asks[MARK]->command.reply != KVW_REDIS_NIL;
	struct kvt_tier_known known = {.bytes = r->bytes};
	struct redis_mark mark;
	struct redis_epochs now;
	enum kvt_status status = KVT_OK;

	known.tokens = lmcache_tokens(&t->layout, r->bytes);
	if (marked)
		status = read_mark(t, r->keys, job->asks[MARK], &mark);
	if (status == KVT_OK && marked && mark.bytes != r->bytes)
		status = KVT_ECORRUPT;
	if (status == KVT_OK)
		status = redis_epochs_get(job, marked ? &mark.tenant : NULL, false, &now);
	if (status == KVT_BUSY)
		return;
	if (status == KVT_OK && (marked ? mark.epoch != now.all || mark.tenant_epoch != now.tenant
					: !now.unverified))
		status = redis_epochs_doubt(job);
	if (status == KVT_BUSY) {
		prove(job);
		return;
	}
	if (status == KVT_OK) {
		kvt_checksum_segments(r->segments, r->segment_count, r->bytes, &r->checksum);
		if (marked && !kvt_checksum_equal(&r->checksum, &mark.checksum))
			status = KVT_ECORRUPT;
	}
	if (status == KVT_OK && redis_job_stale(job))
		status = KVT_MISS;
	if (status == KVT_ECORRUPT) {
		redis_read_corrupt(job);
		return;
	}
	if (status == KVT_MISS || status == KVT_FULL) {
		redis_read_missing(job);
		return;
	}
	if (status == KVT_OK) {
		if (marked)
			known = known_of(&mark);
		else
			REDIS_COUNT(t, unverified, 1);
		redis_tell_there(job, r->keys, &known);
	}
	redis_job_end(job, status);
}

/* What the commands came back with. A mark that is too long is a wrong one. */
static enum kvt_status outcome(const struct redis_job *job)
{
	enum kvt_status worst = KVT_OK;

	for (int i = 0; i < KEYS; i++) {
		const struct redis_ask *ask = job->asks[i];
		enum kvt_status status = redis_ask_status(ask);

		if (ask->command.status == KVW_ELIMIT)
			status = i == MARK ? KVT_OK : KVT_MISS;
		else if (status == KVT_FULL)
			status = KVT_EIO;
		if (status == KVT_OK && i != MARK && ask->command.reply != KVW_REDIS_BULK)
			status = KVT_MISS;
		if (status == KVT_ECORRUPT) /* another type: not ours to remove */
			status = KVT_MISS;
		if (status != KVT_OK && worst != KVT_EIO)
			worst = status;
	}
	return worst;
}

static void answered(struct redis_ask *ask)
{
	struct redis_job *job = ask->owner;
	struct redis_tier *t = job->t;
	enum kvt_status status;
	uint64_t bytes;
	uint32_t tokens;

	if (--job->left > 0)
		return;
	status = outcome(job);
	if (status == KVT_OK &&
		(lmcache_metadata_decode(&t->layout, job->asks[METADATA]->buffer,
			 job->asks[METADATA]->command.bulk_bytes, &bytes, &tokens) != KVT_OK ||
			bytes != job->request->bytes ||
			job->asks[BYTES]->command.bulk_bytes != bytes))
		status = KVT_MISS;
	if (status == KVT_MISS)
		redis_read_missing(job);
	else if (status != KVT_OK)
		redis_job_end(job, status);
	else
		prove(job);
}

static void begin_reading(struct redis_job *job)
{
	struct redis_tier *t = job->t;
	const struct kvt_tier_request *r = job->request;
	bool made = true;

	if (redis_job_turn(job, begin_reading) == KVT_BUSY)
		return;
	job->resume = prove;
	job->asks = calloc(KEYS, sizeof(struct redis_ask *));
	job->parts = job->asks != NULL ? KEYS : 0;
	for (int i = 0; i < KEYS && job->asks != NULL; i++) {
		job->asks[i] = ask_for(t, "GET", r->keys, i, i == BYTES ? r : NULL);
		made = made && job->asks[i] != NULL;
	}
	if (job->asks == NULL || !made) {
		redis_job_end(job, KVT_ENOMEM);
		return;
	}
	job->left = KEYS;
	for (int i = 0; i < KEYS; i++)
		redis_ask_send(job->asks[i], answered, job, job->deadline_ns);
}

void redis_lm_read_begin(struct redis_job *job)
{
	struct redis_tier *t = job->t;
	const struct kvt_key *key = job->request->keys;

	if (redis_is_gone(t, key) || !redis_names_has(t->names, key))
		redis_job_end(job, KVT_MISS);
	else
		begin_reading(job);
}

/* --- writing ----------------------------------------------------------------------------------- */

static struct redis_ask *set_ask(struct redis_job *job, int which, uint64_t len)
{
	struct redis_tier *t = job->t;
	const struct kvt_tier_request *r = job->request;
	struct kvt_segment own[KEYS] = {
		[METADATA] = {.base = job->metadata, .bytes = LMCACHE_METADATA},
		[MARK] = {.base = job->mark, .bytes = REDIS_MARK},
	};
	struct kvt_segment pieces[REDIS_SEGMENTS];
	char name[LMCACHE_NAME_MAX + 16], ttl[24];
	uint64_t ms = redis_ttl_ms(t, r->item);
	struct redis_word words[5] = {REDIS_WORD("SET"), {name, name_of(t, r->keys, which, name)},
		{NULL, len}, REDIS_WORD("PX")};
	uint32_t count = 1;

	pieces[0] = own[which];
	if (which == BYTES)
		count = redis_job_slice(job, 0, len, pieces);
	words[4] = (struct redis_word){
		ttl, (size_t)snprintf(ttl, sizeof(ttl), "%llu", (unsigned long long)ms)};
	if (words[1].len == 0)
		return NULL; /* forgotten since */
	return redis_ask_new(t, words, ms > 0 ? 5 : 3, pieces, count, 0);
}

static void fill_mark(
	struct redis_job *job, const struct redis_epochs *epochs, struct redis_mark *mark)
{
	const struct kvt_tier_request *r = job->request;
	const struct kvt_item *item = r->item;

	*mark = (struct redis_mark){
		.key = r->keys[0],
		.fingerprint = job->t->fingerprint,
		.bytes = r->bytes,
		.epoch = epochs->all,
		.tenant_epoch = epochs->tenant,
		.checksum = r->checksum,
		.tokens = lmcache_tokens(&job->t->layout, r->bytes),
	};
	if (item == NULL)
		return;
	mark->tenant = item->tenant;
	mark->ttl_ns = item->ttl_ns;
	mark->has_parent = item->parent != NULL;
	if (item->parent != NULL)
		mark->parent = *item->parent;
}

static void end_failed(struct redis_job *job)
{
	for (int i = 0; i < KEYS; i++) {
		if (job->asks[i]->command.reply == KVW_REDIS_ERROR)
			redis_refused(job->t, job->asks[i]->command.text);
	}
	kvt_presence_forget(job->t->presence, job->request->keys);
	redis_job_end(job, job->status == KVT_ECORRUPT ? KVT_EIO : job->status);
}

static void was_set(struct redis_ask *ask)
{
	struct redis_job *job = ask->owner;
	enum kvt_status status = redis_ask_status(ask);
	struct redis_mark mark;
	struct kvt_tier_known known;

	if (status != KVT_OK && job->status != KVT_EIO)
		job->status = status;
	if (--job->left > 0)
		return;
	if (job->status != KVT_OK) {
		end_failed(job);
	} else if (ask->number != METADATA) {
		job->left = 1;
		redis_ask_send(job->asks[METADATA], was_set, job, job->deadline_ns);
	} else {
		if (redis_mark_decode(job->mark, REDIS_MARK, &mark) == KVT_OK) {
			known = known_of(&mark);
			redis_tell_there(job, job->request->keys, &known);
		}
		redis_job_end(job, KVT_OK);
	}
}

static void go_on(struct redis_job *job)
{
	struct redis_tier *t = job->t;
	const struct kvt_tier_request *r = job->request;
	const uint64_t lengths[KEYS] = {r->bytes, LMCACHE_METADATA, REDIS_MARK};
	const struct kvt_tenant none = {{0}};
	struct redis_mark mark;
	struct redis_epochs epochs;
	enum kvt_status status =
		redis_epochs_get(job, r->item != NULL ? &r->item->tenant : &none, true, &epochs);

	if (status == KVT_BUSY)
		return;
	job->asks = status == KVT_OK ? calloc(KEYS, sizeof(struct redis_ask *)) : NULL;
	if (job->asks == NULL) {
		redis_job_end(job, status == KVT_OK ? KVT_ENOMEM : status);
		return;
	}
	job->parts = KEYS;
	fill_mark(job, &epochs, &mark);
	redis_mark_encode(&mark, job->mark);
	lmcache_metadata_encode(&t->layout, mark.tokens, job->metadata);
	for (int i = 0; i < KEYS; i++) {
		job->asks[i] = set_ask(job, i, lengths[i]);
		if (job->asks[i] == NULL) {
			redis_job_end(job, KVT_ENOMEM);
			return;
		}
		job->asks[i]->number = (uint32_t)i;
	}
	job->left = 2;
	redis_ask_send(job->asks[BYTES], was_set, job, job->deadline_ns);
	redis_ask_send(job->asks[MARK], was_set, job, job->deadline_ns);
}

void redis_lm_write_begin(struct redis_job *job)
{
	struct redis_tier *t = job->t;
	const struct kvt_tier_request *r = job->request;

	if (r->item != NULL && r->item->alias != NULL)
		redis_names_tell(t->names, r->keys, r->item->alias);
	job->resume = go_on;
	if (redis_is_gone(t, r->keys))
		redis_job_end(job, KVT_BUSY);
	else if (!redis_names_has(t->names, r->keys) || r->bytes > VALUE_MOST ||
		 lmcache_tokens(&t->layout, r->bytes) == 0)
		redis_job_end(job, KVT_ENOTSUP); /* it has no name there, or not that shape */
	else
		go_on(job);
}

/* --- finding ----------------------------------------------------------------------------------- */

static void probed(struct redis_ask *ask)
{
	struct redis_job *job = ask->owner;
	struct redis_tier *t = job->t;
	size_t i = ask->number / KEYS;
	int which = (int)(ask->number % KEYS);
	struct redis_answer *a = &job->answers[i];
	const struct kvw_redis_command *c = &ask->command;
	enum kvt_status status = redis_ask_status(ask);
	struct redis_mark mark;

	job->left--;
	a->waits--;
	if (c->status == KVW_ELIMIT || status == KVT_ECORRUPT) {
		redis_probe_absent(job, i, ANSWER_ABSENT);
	} else if (status != KVT_OK) {
		redis_probe_failed(job, i, status);
	} else if (which == BYTES) {
		a->length = c->reply == KVW_REDIS_INTEGER ? (uint64_t)c->integer : 0;
	} else if (which == METADATA) {
		if (c->reply != KVW_REDIS_BULK ||
			lmcache_metadata_decode(&t->layout, ask->buffer, c->bulk_bytes,
				&a->known.bytes, &a->known.tokens) != KVT_OK)
			redis_probe_absent(job, i, ANSWER_ABSENT);
	} else if (c->reply != KVW_REDIS_NIL) {
		a->unverified = false;
		if (read_mark(t, &job->request->keys[i], ask, &mark) != KVT_OK) {
			redis_probe_absent(job, i, ANSWER_ABSENT);
		} else {
			a->epoch = mark.epoch;
			a->tenant_epoch = mark.tenant_epoch;
			a->mark = known_of(&mark);
		}
	}
	if (a->waits == 0 && a->state == ANSWER_NONE) {
		bool fits = a->known.bytes == a->length &&
			    (a->unverified || a->mark.bytes == a->length);

		if (!a->unverified)
			a->known = a->mark;
		a->state = ANSWER_THERE;
		if (!fits)
			redis_probe_absent(job, i, ANSWER_ABSENT);
	}
	redis_ask_free(ask);
	redis_probe_on(job);
}

bool redis_lm_ask(struct redis_job *job, size_t i)
{
	const struct kvt_key *key = &job->request->keys[i];
	struct redis_answer *a = &job->answers[i];
	struct redis_ask *asks[KEYS];
	bool made = true;

	if (!redis_names_has(job->t->names, key)) {
		redis_probe_absent(job, i, ANSWER_BELIEVED_ABSENT);
		return true;
	}
	for (int which = 0; which < KEYS; which++) {
		asks[which] = ask_for(job->t, which == BYTES ? "STRLEN" : "GET", key, which, NULL);
		made = made && asks[which] != NULL;
	}
	a->unverified = true;
	a->waits = KEYS;
	job->left += made ? KEYS : 0;
	for (int which = 0; which < KEYS; which++) {
		if (!made) {
			redis_ask_free(asks[which]);
			continue;
		}
		asks[which]->number = (uint32_t)i * KEYS + (uint32_t)which;
		redis_ask_send(asks[which], probed, job, job->deadline_ns);
	}
	return made;
}
