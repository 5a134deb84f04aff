/*
 * redis_erase.c - removes values from Redis: those of erased keys, and corrupt ones.
 *
 * One command unlinks a chunk with all its parts: the chunk's footer gives their number, and all
 * are in one slot of a Cluster. If the server of a chunk cannot be reached, the chunk is not
 * erased, and the request's status says so.
 */
#include <stdlib.h>

#include "tiers/redis/redis_tier.h"

#define WINDOW      256u /* most UNLINK commands of one request under way */
/* a chunk without a readable footer is assumed to have at most this many parts */
#define GUESS_PARTS 16u

/* A chunk that is being unlinked. */
struct unlinking {
	struct redis_tier *t;
	struct redis_job *job; /* NULL: no request waits for this UNLINK */
	struct kvt_key key;
	enum kvt_status status;
};

static void ask_on(struct redis_job *job);

static void end_unlinking(struct unlinking *u)
{
	struct redis_job *job = u->job;

	if (job != NULL) {
		if (u->status == KVT_OK)
			REDIS_COUNT(u->t, erased, 1);
		/* KVT_MISS from an erase would mean that the chunk is erased, which is not known
		 * here. */
		else if (job->status != KVT_ECANCELED)
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

	u->status = redis_ask_status(ask);
	redis_ask_free(ask);
	end_unlinking(u);
}

/* Sends the command in `ask`. An ask of NULL, for lack of memory, fails the job. */
static void send_ask(struct unlinking *u, struct redis_ask *ask, void (*answered)(struct redis_ask *ask))
{
	if (ask == NULL) {
		u->status = KVT_ENOMEM;
		end_unlinking(u);
		return;
	}
	redis_ask_send(ask, answered, u, kvt_now(u->t->s) + (int64_t)u->t->deadline_ns);
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
		send_ask(u, redis_ask_parts(u->t, "UNLINK", &u->key, 0, parts), unlinked);
	} else {
		u->status = status;
		end_unlinking(u);
	}
}

/* Returns false if memory is short. */
static bool begin(struct redis_tier *t, struct redis_job *job, const struct kvt_key *key)
{
	struct unlinking *u = calloc(1, sizeof(*u));

	if (u == NULL)
		return false;
	*u = (struct unlinking){.t = t, .job = job, .key = *key};
	if (job != NULL)
		job->left++;
	send_ask(u, redis_ask_footer(t, key), looked);
	return true;
}

void redis_drop(struct redis_tier *t, const struct kvt_key *key)
{
	(void)begin(t, NULL, key);
}

static void ask_on(struct redis_job *job)
{
	if (job->asking)
		return;
	job->asking = true;
	while (job->left < WINDOW && job->at < job->request->key_count)
		if (!begin(job->t, job, &job->request->keys[job->at++]))
			job->status = KVT_ENOMEM;
	job->asking = false;
	if (job->left == 0)
		redis_job_end(job, job->status);
}

void redis_erase_begin(struct redis_job *job)
{
	for (size_t i = 0; i < job->request->key_count; i++)
		kvt_presence_forget(job->t->presence, &job->request->keys[i]);
	ask_on(job);
}
