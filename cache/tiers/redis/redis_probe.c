/*
 * redis_probe.c - finds the chunks of a chain that are in Redis, in one round trip.
 *
 * For each key the probe reads the last bytes of its value, the footer: a truncated value has none.
 * No command waits for another: up to a window all are under way at once, and after a missing key
 * no more are sent. The further parts of a long chunk cost a second trip.
 *
 * Keys that the presence table knows are not requested again.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tiers/redis/redis_tier.h"

#define WINDOW 512u /* most commands of one probe under way at once */

static void ask_on(struct redis_job *job); /* sends more commands, or ends the probe */

static void set_absent(struct redis_job *job, size_t i, enum redis_answer_state state)
{
	job->answers[i].state = state;
	if (i < job->missing)
		job->missing = i;
}

/* Notes that a command of the key was refused or is late. */
static void set_failed(struct redis_job *job, size_t i, enum kvt_status status)
{
	set_absent(job, i, ANSWER_LATE);
	if (job->status != KVT_EIO)
		job->status = status == KVT_FULL || status == KVT_ECORRUPT ? KVT_EIO : status;
}

/* --- the end
 * ----------------------------------------------------------------------------------- */

static void remember(struct redis_job *job)
{
	const struct kvt_key *keys = job->request->keys;
	int64_t now_ns = kvt_now(job->t->s);

	for (size_t i = 0; i < job->request->key_count; i++) {
		struct redis_answer *a = &job->answers[i];

		if (a->state == ANSWER_THERE)
			kvt_presence_there(job->t->presence, &keys[i], &a->known, now_ns);
		else if (a->state == ANSWER_ABSENT)
			kvt_presence_missing(job->t->presence, &keys[i], now_ns);
	}
}

static bool may_be_found(const struct redis_job *job, size_t i)
{
	enum redis_answer_state state = job->answers[i].state;

	return state == ANSWER_THERE || state == ANSWER_BELIEVED_THERE;
}

/* Ends a probe. A key that was not answered in time counts as missing; the keys before it still
 * count. */
static void finish(struct redis_job *job)
{
	size_t n = job->request->key_count, found = 0;

	remember(job);
	while (found < n && may_be_found(job, found))
		found++;
	job->request->found = found;
	redis_job_end(job, job->status == KVT_MISS ? KVT_OK : job->status);
}

/* --- parts
 * ------------------------------------------------------------------------------------- */

static void counted(struct redis_ask *ask)
{
	struct redis_job *job = ask->owner;
	size_t i = ask->number;
	enum kvt_status status = redis_ask_status(ask);

	job->left--;
	if (status != KVT_OK) {
		set_failed(job, i, status);
	} else if (ask->command.reply != KVW_REDIS_INTEGER ||
		   ask->command.integer != (int64_t)redis_part_count(job->answers[i].known.bytes,
						   job->answers[i].known.extra) -
						   1) {
		set_absent(job, i, ANSWER_ABSENT);
	}
	redis_ask_free(ask);
	ask_on(job);
}

/* Asks how many of the chunk's further parts, which are in the first part's slot, exist. Returns
 * false if memory is short. */
static bool count_parts(struct redis_job *job, size_t i, uint32_t parts)
{
	struct redis_ask *ask = redis_ask_parts(job->t, "EXISTS", &job->request->keys[i], 1, parts);

	if (ask == NULL)
		return false;
	ask->number = (uint32_t)i;
	job->left++;
	redis_ask_send(ask, counted, job, job->deadline_ns);
	return true;
}

/* --- footers
 * ----------------------------------------------------------------------------------- */

static void read_footer(struct redis_job *job, size_t i, const struct redis_ask *ask)
{
	struct redis_tier *t = job->t;
	struct redis_answer *a = &job->answers[i];
	struct redis_footer f;
	bool sealed;

	if (ask->command.reply != KVW_REDIS_BULK ||
		redis_footer_decode(ask->buffer, ask->command.bulk_bytes, &f) != KVT_OK ||
		f.part != 0 || !redis_footer_is(&f, &t->fingerprint, &job->request->keys[i])) {
		set_absent(job, i, ANSWER_ABSENT);
		return;
	}
	sealed = (f.flags & REDIS_SEALED) != 0;
	if (sealed != (t->sealer != NULL)) {
		set_absent(job, i, ANSWER_ABSENT);
		return;
	}
	a->state = ANSWER_THERE;
	a->known = redis_footer_known(&f);
	if (f.parts > 1 && i < job->missing && !count_parts(job, i, f.parts))
		set_absent(job, i, ANSWER_LATE);
}

static void footer_came(struct redis_ask *ask)
{
	struct redis_job *job = ask->owner;
	size_t i = ask->number;
	enum kvt_status status = redis_ask_status(ask);

	job->left--;
	if (status == KVT_OK) {
		read_footer(job, i, ask);
	} else if (status == KVT_ECORRUPT) {
		/* the key holds a value of another type, which cannot be this chunk */
		set_absent(job, i, ANSWER_ABSENT);
	} else {
		set_failed(job, i, status);
	}
	redis_ask_free(ask);
	ask_on(job);
}

static bool ask_footer(struct redis_job *job, size_t i)
{
	struct redis_ask *ask = redis_ask_footer(job->t, &job->request->keys[i]);

	if (ask == NULL)
		return false;
	ask->number = (uint32_t)i;
	job->left++;
	redis_ask_send(ask, footer_came, job, job->deadline_ns);
	return true;
}

/* --- course
 * ------------------------------------------------------------------------------------ */

static void begin_key(struct redis_job *job, size_t i)
{
	struct redis_tier *t = job->t;
	const struct kvt_key *key = &job->request->keys[i];
	struct redis_answer *a = &job->answers[i];

	switch (kvt_presence_get(t->presence, key, job->begun_ns, &a->known)) {
	case KVT_PRESENCE_THERE:
		a->state = ANSWER_BELIEVED_THERE;
		return;
	case KVT_PRESENCE_MISSING:
		set_absent(job, i, ANSWER_BELIEVED_ABSENT);
		return;
	case KVT_PRESENCE_UNKNOWN:
		break;
	}
	if (!ask_footer(job, i))
		set_absent(job, i, ANSWER_LATE);
}

/* An answer may arrive while ask_on is still sending; `asking` keeps it from being entered
 * twice. */
static void ask_on(struct redis_job *job)
{
	if (job->asking)
		return;
	job->asking = true;
	while (job->left < WINDOW && job->at < job->request->key_count && job->at < job->missing)
		begin_key(job, job->at++);
	job->asking = false;
	if (job->left == 0)
		finish(job);
}

void redis_probe_begin(struct redis_job *job)
{
	size_t n = job->request->key_count;

	job->missing = n;
	job->answers = calloc(n > 0 ? n : 1, sizeof(*job->answers));
	if (job->answers == NULL || n > UINT32_MAX / 4) {
		redis_job_end(job, job->answers == NULL ? KVT_ENOMEM : KVT_EINVAL);
		return;
	}
	ask_on(job);
}
