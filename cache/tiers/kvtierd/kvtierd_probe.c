/*
 * kvtierd_probe.c - finds how many chunks of a chain are there, by leases requested in parallel.
 *
 * The probe requests keys in the chain's order, as many at once as there are connections; the first
 * missing key ends the probe, and requests beyond it are abandoned or their leases released. Keys
 * known from before are not requested again. Each granted lease shows the chunk's footer, and is
 * kept for the read that mostly follows.
 *
 * The probe gives the daemon no time to wait: stock daemons use all of it before they answer 504
 * for a missing chunk. A daemon that answers 404 instead (kvtierd) knows a miss at once, and needs
 * time only to bring a chunk from its own lower tiers: it may use half of the remaining time. If it
 * then uses that time for a miss after all, it gets none any more.
 */
#include <stdlib.h>

#include "tiers/kvtierd/kvtierd.h"

struct ask {
	struct kvtierd_job *job;
	struct kvtierd_exchange x;
	struct kvtierd_held held;
	struct redis_footer footer;
	size_t index;
	int64_t wait_ns; /* how long the daemon may wait for the chunk, by the request */
	bool busy;
};

struct probe {
	size_t next;  /* the first key that was not requested yet */
	size_t limit; /* the first key known to be missing */
	uint32_t busy;
	enum kvt_status bad; /* the status, such as KVT_EIO, for which a key counts as missing */
	bool settling;
	uint32_t count;
	struct ask asks[];
};

static void go_on(struct kvtierd_job *job);

static void settled(struct ask *a, enum kvt_status status)
{
	struct kvtierd_job *job = a->job;
	struct probe *p = job->parts;
	struct kvtierd *t = job->t;

	if (status == KVT_OK && a->index < p->limit)
		kvtierd_keep(t, &job->request->keys[a->index], &a->held);
	kvtierd_release(t, &a->held);
	if (status != KVT_OK && a->index < p->limit) {
		p->limit = a->index;
		if (status != KVT_MISS && status != KVT_ECORRUPT)
			p->bad = status;
	}
	a->busy = false;
	p->busy--;
	go_on(job);
}

static void look(struct ask *a)
{
	struct kvtierd *t = a->job->t;
	const struct kvt_key *key = &a->job->request->keys[a->index];
	int64_t now_ns = kvt_now(t->s);
	struct kvt_tier_known known;
	enum kvt_status status = kvtierd_look(t, key, &a->held, &a->footer);

	if (status == KVT_ECORRUPT)
		kvtierd_is_corrupt(t, key, "its footer is wrong");
	if (status == KVT_OK) {
		known = redis_footer_known(&a->footer);
		kvt_presence_there(t->presence, key, &known, now_ns);
	} else if (status == KVT_MISS || status == KVT_ECORRUPT) {
		kvt_presence_missing(t->presence, key, now_ns);
	}
	settled(a, status);
}

static void send_ask(struct ask *a);

/* Notes how this daemon reports a missing chunk. Returns true if the key should be requested again,
 * with time to wait. */
static bool learn(struct kvtierd *t, const struct ask *a)
{
	int64_t took_ns = kvt_now(t->s) - a->x.sent_ns;

	if (a->x.status != KVT_OK)
		return false;
	if (a->wait_ns > 0 && (a->x.answer->status == 404 || a->x.answer->status == 504) &&
		took_ns >= a->wait_ns / 4 * 3)
		t->misses = KVTIERD_MISSES_WAIT;
	if (a->x.answer->status != 404 || t->misses != KVTIERD_MISSES_UNKNOWN)
		return false;
	t->misses = KVTIERD_MISSES_AT_ONCE;
	return a->wait_ns == 0; /* the daemon may have the chunk, but not in memory */
}

static void leased(struct kvtierd_exchange *x)
{
	struct ask *a = x->user;
	struct kvtierd *t = a->job->t;
	bool again = learn(t, a), sure;
	enum kvt_status status = kvtierd_lease_answer(t, x, &a->held, &sure);

	if (status == KVT_OK) {
		look(a);
	} else if (again) {
		send_ask(a);
	} else {
		if (status == KVT_MISS && sure)
			kvt_presence_missing(
				t->presence, &a->job->request->keys[a->index], kvt_now(t->s));
		settled(a, status);
	}
}

static void send_ask(struct ask *a)
{
	struct kvtierd_job *job = a->job;
	struct kvtierd *t = job->t;
	int64_t left_ns = job->deadline_ns - kvt_now(t->s);
	char name[KVTIERD_NAME_ROOM];

	a->wait_ns = t->misses == KVTIERD_MISSES_AT_ONCE && left_ns > 0 ? left_ns / 2 : 0;
	kvtierd_chunk_name(&t->fingerprint, &job->request->keys[a->index], name);
	kvtierd_ask_lease(&t->place, name, (uint64_t)a->wait_ns, t->lease_ns, &a->x);
	a->x.deadline_ns = job->deadline_ns;
	a->x.done = leased;
	a->x.user = a;
	kvtierd_http_submit(t->http, &a->x);
}

static void begin_ask(struct kvtierd_job *job, struct ask *a, size_t index)
{
	struct probe *p = job->parts;

	a->index = index;
	a->busy = true;
	p->busy++;
	send_ask(a);
}

static struct ask *free_ask(struct probe *p)
{
	for (uint32_t i = 0; i < p->count; i++)
		if (!p->asks[i].busy)
			return &p->asks[i];
	return NULL;
}

/* Returns the index of the first key that is not to be requested yet: when an earlier key is slow,
 * it may be the missing one. */
static size_t horizon(const struct probe *p)
{
	size_t first = p->next;

	for (uint32_t i = 0; i < p->count; i++)
		if (p->asks[i].busy && p->asks[i].index < first)
			first = p->asks[i].index;
	return first + 4 * (size_t)p->count;
}

/* Sends requests for further keys, as long as their answers may be needed. */
static void ask_on(struct kvtierd_job *job)
{
	struct probe *p = job->parts;
	struct kvtierd *t = job->t;
	int64_t now_ns = kvt_now(t->s);
	struct kvt_tier_known known;
	struct ask *a;

	while (p->next < p->limit) {
		enum kvt_presence_word word =
			kvt_presence_get(t->presence, &job->request->keys[p->next], now_ns, &known);

		if (word == KVT_PRESENCE_MISSING) {
			p->limit = p->next;
		} else if (word == KVT_PRESENCE_THERE) {
			p->next++;
		} else {
			a = p->next < horizon(p) ? free_ask(p) : NULL;
			if (a == NULL)
				break;
			begin_ask(job, a, p->next++);
		}
	}
	for (uint32_t i = 0; i < p->count; i++)
		if (p->asks[i].busy && p->asks[i].index > p->limit)
			kvtierd_http_abandon(t->http, &p->asks[i].x);
}

/* Called whenever a key is settled, also by requests that ask_on abandons. */
static void go_on(struct kvtierd_job *job)
{
	struct probe *p = job->parts;
	enum kvt_status status = KVT_OK;

	if (p->settling)
		return;
	p->settling = true;
	ask_on(job);
	p->settling = false;
	if (p->busy > 0 || p->next < p->limit)
		return;
	job->request->found = p->limit;
	if (p->limit == 0 && p->bad != KVT_OK)
		status = p->bad;
	kvtierd_job_done(job, status);
}

void kvtierd_probe_begin(struct kvtierd_job *job)
{
	uint32_t count = job->t->connections;
	struct probe *p;

	job->request->found = 0;
	if (count > job->request->key_count)
		count = (uint32_t)job->request->key_count;
	p = calloc(1, sizeof(*p) + count * sizeof(p->asks[0]));
	if (p == NULL) {
		kvtierd_job_done(job, KVT_ENOMEM);
		return;
	}
	p->limit = job->request->key_count;
	p->count = count;
	for (uint32_t i = 0; i < count; i++)
		p->asks[i].job = job;
	job->parts = p;
	go_on(job);
}
