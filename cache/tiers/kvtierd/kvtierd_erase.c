/*
 * kvtierd_erase.c - erases chunks, by key.
 *
 * The protocol of tiered-storage daemons has no DELETE, but kvtierd and some other daemons serve
 * it. So the tier tries DELETE, and if the daemon cannot delete, overwrites the chunk by a mark
 * that is no value. The tier believes "404" only from kvtierd, or from a daemon that has deleted
 * before: another daemon's 404 may mean that it does not know the method.
 *
 * A PUT of the chunk that ended without an answer may still be stored after the chunk was deleted.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "tiers/kvtierd/kvtierd.h"

#define DELETE_AGAIN_NS 60000000000

struct ask {
	struct kvtierd_job *job;
	struct kvtierd_exchange x;
	uint8_t mark[KVTIERD_MARK];
	size_t index;
	bool busy;
};

struct erase {
	size_t next;
	uint32_t busy;
	enum kvt_status status;
	bool going;
	uint32_t count;
	struct ask asks[];
};

/* --- one key ---------------------------------------------------------------------------------- */

static void go_on(struct kvtierd_job *job);

static void settled(struct ask *a, enum kvt_status status)
{
	struct erase *e = a->job->parts;

	if (status == KVT_OK)
		kvtierd_count(a->job->t, &a->job->t->counts.erased, 1);
	else
		e->status = status;
	a->busy = false;
	e->busy--;
	go_on(a->job);
}

static void marked(struct kvtierd_exchange *x)
{
	struct ask *a = x->user;

	settled(a, kvtierd_put_answer(a->job->t, x) == KVT_OK ? KVT_OK : KVT_EIO);
}

static void overwrite(struct ask *a)
{
	struct kvtierd *t = a->job->t;
	const struct kvt_key *key = &a->job->request->keys[a->index];
	char name[KVTIERD_NAME_ROOM];
	struct kvtierd_mark mark = {
		.fingerprint = t->fingerprint,
		.key = *key,
		.written_wall_ns = kvt_wall(t->s),
	};

	if (getrandom(&mark.value, sizeof(mark.value), 0) != (ssize_t)sizeof(mark.value))
		mark.value = (uint64_t)mark.written_wall_ns;
	kvtierd_mark_encode(&mark, a->mark);
	a->x.tail = a->mark;
	a->x.tail_bytes = sizeof(a->mark);
	kvtierd_chunk_name(&t->fingerprint, key, name);
	kvtierd_ask_put(&t->place, name, NULL, &a->x);
	a->x.deadline_ns = kvt_now(t->s) + 2 * (int64_t)t->deadline_ns;
	a->x.done = marked;
	kvtierd_http_submit(t->http, &a->x);
}

static void deleted(struct kvtierd_exchange *x)
{
	struct ask *a = x->user;
	struct kvtierd *t = a->job->t;
	int status = x->status == KVT_OK ? x->answer->status : 0;

	if (x->status != KVT_OK) {
		(void)!kvtierd_failed(t, x);
		settled(a, KVT_EIO);
	} else if (status == 200 || status == 204) {
		t->deletes_in = t->segment.generation;
		settled(a, KVT_OK);
	} else if (status == 404 &&
		   (x->answer->kvtierd ||
			   (t->deletes_in != 0 && t->deletes_in == t->segment.generation))) {
		settled(a, KVT_OK);
	} else if (status >= 500 && status != 501) {
		(void)!kvtierd_refused(t, x);
		settled(a, KVT_EIO);
	} else {
		if (status != 404)
			t->delete_again_ns = kvt_now(t->s) + DELETE_AGAIN_NS;
		overwrite(a);
	}
}

static void begin_ask(struct kvtierd_job *job, struct ask *a, size_t index)
{
	struct kvtierd *t = job->t;
	struct erase *e = job->parts;
	const struct kvt_key *key = &job->request->keys[index];
	int64_t now_ns = kvt_now(t->s);
	struct kvtierd_held held;
	char name[KVTIERD_NAME_ROOM];

	a->index = index;
	a->busy = true;
	e->busy++;
	kvt_presence_missing(t->presence, key, now_ns);
	if (kvtierd_kept_take(t, key, &held))
		kvtierd_release(t, &held);
	a->x.user = a;
	if (now_ns < t->delete_again_ns) {
		overwrite(a);
		return;
	}
	kvtierd_chunk_name(&t->fingerprint, key, name);
	a->x.tail_bytes = 0;
	kvtierd_ask_delete(&t->place, name, &a->x);
	a->x.deadline_ns = now_ns + 2 * (int64_t)t->deadline_ns;
	a->x.done = deleted;
	kvtierd_http_submit(t->http, &a->x);
}

/* --- all keys --------------------------------------------------------------------------------- */

static struct ask *free_ask(struct erase *e)
{
	for (uint32_t i = 0; i < e->count; i++)
		if (!e->asks[i].busy)
			return &e->asks[i];
	return NULL;
}

static void go_on(struct kvtierd_job *job)
{
	struct erase *e = job->parts;
	size_t n = job->request->key_count;
	struct ask *a;

	if (e->going)
		return;
	e->going = true;
	while (e->next < n && e->status == KVT_OK && (a = free_ask(e)) != NULL)
		begin_ask(job, a, e->next++);
	e->going = false;
	if (e->busy == 0 && (e->next == n || e->status != KVT_OK))
		kvtierd_job_done(job, e->status);
}

void kvtierd_erase_begin(struct kvtierd_job *job)
{
	uint32_t count = job->t->connections;
	struct erase *e;

	if (count > job->request->key_count)
		count = (uint32_t)job->request->key_count;
	e = calloc(1, sizeof(*e) + count * sizeof(e->asks[0]));
	if (e == NULL) {
		kvtierd_job_done(job, KVT_ENOMEM);
		return;
	}
	e->count = count;
	for (uint32_t i = 0; i < count; i++)
		e->asks[i].job = job;
	job->parts = e;
	go_on(job);
}
