/*
 * redis_erase.c - keys that must not be read any more, until Redis has forgotten them.
 *
 * An erased key is hidden in this handle first, then unlinked with all its parts: its footer says
 * how many there are, and they are in one slot, so that one command does it. When Redis cannot be
 * reached the key stays hidden, the request ends with KVT_EIO, flushes fail, and the unlinking is
 * tried again until it is done. What a process that ends before that has not erased is still in
 * Redis until its TTL.
 *
 * The memory for hidden keys is bounded. When it is full, all of this fingerprint is erased by its
 * epoch instead: losing chunks is allowed, reading erased ones is not.
 */
#include <stdlib.h>
#include <string.h>

#include "tiers/redis/redis_tier.h"

#define WINDOW      256u /* unlinks of one request, and of one round of tries, under way */
#define GUESS_PARTS 16u  /* of a chunk that has no footer */

/* A chunk that is being unlinked. */
struct unlinking {
	struct redis_tier *t;
	struct redis_job *job; /* NULL: no request waits */
	struct kvt_key key;
	bool hidden; /* it is among the erased keys */
	enum kvt_status status;
};

static void ask_on(struct redis_job *job);

/* --- hidden keys ------------------------------------------------------------------------------- */

static struct redis_gone **bucket_of(const struct redis_tier *t, const struct kvt_key *key)
{
	uint32_t hash;

	memcpy(&hash, key->bytes, sizeof(hash));
	return (struct redis_gone **)(uintptr_t)&t->erasing.buckets[hash % REDIS_GONE_BUCKETS];
}

static struct redis_gone *find(const struct redis_tier *t, const struct kvt_key *key)
{
	struct redis_gone *gone = *bucket_of(t, key);

	while (gone != NULL && memcmp(&gone->key, key, sizeof(*key)) != 0)
		gone = gone->next;
	return gone;
}

bool redis_is_gone(const struct redis_tier *t, const struct kvt_key *key)
{
	return t->erasing.count > 0 && find(t, key) != NULL;
}

static void remove_gone(struct redis_tier *t, struct redis_gone *gone)
{
	struct redis_gone **at = bucket_of(t, &gone->key);

	while (*at != gone)
		at = &(*at)->next;
	*at = gone->next;
	t->erasing.count--;
	t->erasing.owed -= gone->owed;
	free(gone);
}

/* NULL: there is no room for one more. */
static struct redis_gone *hide(struct redis_tier *t, const struct kvt_key *key)
{
	struct redis_gone **bucket = bucket_of(t, key), *gone = find(t, key);

	if (gone != NULL)
		return gone;
	if (t->erasing.count >= REDIS_GONE_MOST || (gone = calloc(1, sizeof(*gone))) == NULL)
		return NULL;
	gone->key = *key;
	gone->next = *bucket;
	*bucket = gone;
	t->erasing.count++;
	return gone;
}

static void set_owed(struct redis_tier *t, struct redis_gone *gone, bool owed)
{
	t->erasing.owed += (uint32_t)owed - (uint32_t)gone->owed;
	gone->owed = owed;
}

/* Too many to hide them one by one. */
static void erase_all(struct redis_tier *t)
{
	redis_tenant_raise(&t->tenants.all);
	for (size_t i = 0; i < REDIS_GONE_BUCKETS; i++) {
		struct redis_gone *gone = t->erasing.buckets[i], *next;

		for (; gone != NULL; gone = next) {
			next = gone->next;
			if (gone->under_way == 0)
				remove_gone(t, gone);
		}
	}
}

void redis_erase_finish(struct redis_tier *t)
{
	for (size_t i = 0; i < REDIS_GONE_BUCKETS; i++) {
		while (t->erasing.buckets[i] != NULL)
			remove_gone(t, t->erasing.buckets[i]);
	}
}

/* --- one chunk --------------------------------------------------------------------------------- */

/* It is over for the key's place among the hidden ones. */
static void settle_gone(struct unlinking *u)
{
	struct redis_tier *t = u->t;
	struct redis_gone *gone = find(t, &u->key);

	if (gone == NULL)
		return;
	gone->under_way--;
	set_owed(t, gone, u->status != KVT_OK);
	if (u->status != KVT_OK)
		t->erasing.again_ns = kvt_now(t->s) + REDIS_RETRY_NS;
	else if (gone->under_way == 0)
		remove_gone(t, gone);
}

static void end_unlinking(struct unlinking *u)
{
	struct redis_job *job = u->job;

	if (u->hidden)
		settle_gone(u);
	if (u->hidden && job == NULL)
		u->t->erasing.retrying--;
	if (u->status == KVT_OK && u->hidden)
		REDIS_COUNT(u->t, erased, 1);
	if (job != NULL) {
		/* A miss would say that it is done. */
		if (u->status != KVT_OK && job->status != KVT_ECANCELED)
			job->status = u->status == KVT_ECANCELED ? KVT_ECANCELED : KVT_EIO;
		job->left--;
	}
	free(u);
	if (job != NULL)
		ask_on(job);
}

static void unlinked(struct redis_ask *ask)
{
	struct unlinking *u = ask->owner;
	enum kvt_status status = redis_ask_status(ask);

	if (status != KVT_OK)
		u->status = status;
	redis_ask_free(ask);
	end_unlinking(u);
}

/* NULL: no memory for it. */
static void send_unlink(struct unlinking *u, struct redis_ask *ask)
{
	if (ask == NULL) {
		u->status = KVT_ENOMEM;
		end_unlinking(u);
		return;
	}
	redis_ask_send(ask, unlinked, u, kvt_now(u->t->s) + (int64_t)u->t->deadline_ns);
}

static void looked(struct redis_ask *ask)
{
	struct unlinking *u = ask->owner;
	enum kvt_status status = redis_ask_status(ask);
	uint32_t parts = GUESS_PARTS;
	struct redis_footer f;

	if (status == KVT_OK && ask->command.reply == KVW_REDIS_BULK &&
		redis_footer_decode(ask->buffer, ask->command.bulk_bytes, &f) == KVT_OK &&
		redis_footer_is(&f, &u->t->fingerprint, &u->key))
		parts = f.parts;
	redis_ask_free(ask);
	if (status == KVT_OK || status == KVT_ECORRUPT) {
		send_unlink(u, redis_ask_parts(u->t, "UNLINK", &u->key, 0, parts));
	} else {
		u->status = status;
		end_unlinking(u);
	}
}

static void begin_unlinking(struct unlinking *u)
{
	struct redis_ask *ask = redis_ask_footer(u->t, &u->key);

	if (ask == NULL) {
		u->status = KVT_ENOMEM;
		end_unlinking(u);
		return;
	}
	redis_ask_send(ask, looked, u, kvt_now(u->t->s) + (int64_t)u->t->deadline_ns);
}

static struct unlinking *unlinking_new(
	struct redis_tier *t, struct redis_job *job, const struct kvt_key *key, bool hidden)
{
	struct unlinking *u = calloc(1, sizeof(*u));

	if (u != NULL)
		*u = (struct unlinking){.t = t, .job = job, .key = *key, .hidden = hidden};
	return u;
}

void redis_drop(struct redis_tier *t, const struct kvt_key *key)
{
	struct unlinking *u = unlinking_new(t, NULL, key, false);

	if (u != NULL)
		begin_unlinking(u);
}

/* --- requests ---------------------------------------------------------------------------------- */

/* Jobs under way that must not report any more what they found. */
static void spoil(struct redis_tier *t, struct redis_jobs *list)
{
	struct redis_job *job;

	TAILQ_FOREACH(job, list, entry) {
		if (job->request->verb == KVT_TIER_PROBE ||
			((job->request->verb == KVT_TIER_READ ||
				 job->request->verb == KVT_TIER_WRITE) &&
				redis_is_gone(t, job->request->keys)))
			job->erased = true;
	}
}

static void begin_key(struct redis_job *job, const struct kvt_key *key)
{
	struct redis_tier *t = job->t;
	struct redis_gone *gone = find(t, key);
	struct unlinking *u;

	u = unlinking_new(t, job, key, gone != NULL);
	if (u == NULL) {
		job->status = KVT_ENOMEM;
		if (gone != NULL)
			set_owed(t, gone, true);
		return;
	}
	if (gone != NULL)
		gone->under_way++;
	job->left++;
	begin_unlinking(u);
}

static void ask_on(struct redis_job *job)
{
	if (job->asking)
		return;
	job->asking = true;
	while (job->left < WINDOW && job->at < job->request->key_count)
		begin_key(job, &job->request->keys[job->at++]);
	job->asking = false;
	if (job->left == 0)
		redis_job_end(job, job->status);
}

void redis_erase_begin(struct redis_job *job)
{
	struct redis_tier *t = job->t;
	const struct kvt_tier_request *r = job->request;
	bool full = false;

	for (size_t i = 0; i < r->key_count; i++)
		full = hide(t, &r->keys[i]) == NULL || full;
	spoil(t, &t->active);
	spoil(t, &t->parked);
	if (full)
		erase_all(t);
	for (size_t i = 0; i < r->key_count; i++)
		kvt_presence_forget(t->presence, &r->keys[i]);
	ask_on(job);
}

/* --- once more --------------------------------------------------------------------------------- */

static void try_bucket(struct redis_tier *t, struct redis_gone *gone)
{
	struct redis_gone *next;

	for (; gone != NULL; gone = next) {
		struct unlinking *u;

		next = gone->next; /* an unlinking may end at once */
		if (gone->under_way > 0 || !gone->owed ||
			(u = unlinking_new(t, NULL, &gone->key, true)) == NULL)
			continue;
		gone->under_way++;
		t->erasing.retrying++;
		begin_unlinking(u);
	}
}

size_t redis_erase_step(struct redis_tier *t, int64_t now_ns, int64_t *next_ns)
{
	struct redis_erasing *e = &t->erasing;

	if (e->owed == 0 || e->retrying > 0)
		return 0;
	if (now_ns < e->again_ns) {
		if (e->again_ns < *next_ns)
			*next_ns = e->again_ns;
		return 0;
	}
	e->again_ns = now_ns + REDIS_RETRY_NS;
	for (size_t i = 0; i < REDIS_GONE_BUCKETS && e->retrying < WINDOW; i++) {
		e->cursor = (e->cursor + 1) % REDIS_GONE_BUCKETS;
		try_bucket(t, e->buckets[e->cursor]);
	}
	return e->retrying;
}
