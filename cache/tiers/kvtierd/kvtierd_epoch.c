/*
 * kvtierd_epoch.c - how all chunks, or all of a tenant's, become unreadable without being listed.
 *
 * Every value carries two random numbers, the epochs of all chunks and of its tenant's, as they were
 * when it was written. A value whose numbers are not those of now is a miss. The numbers are kept
 * as marks in the same bucket, so that every process sees the same ones; an erase puts another
 * number there.
 *
 * Why random numbers and not counters: the daemon is a cache and may lose any object. A counter that
 * is lost would begin again, and values from before the erase would come back. A random number that
 * is lost is replaced by another one, and everything written before is a miss: cached chunks are
 * lost, which is allowed, and nothing comes back. For the same reason a number is never sent twice.
 * Processes that replace it at the same moment look afterwards whose number it became. So that numbers
 * are not lost while chunks are there, a look asks kvtierd not to evict them (keep=1).
 *
 * Values of an erase would stay in the daemon until they are pushed out, and count for their tenant's
 * quota. So the tier first names them to kvtierd, which drops them; another daemon, or one that does
 * not answer, keeps them, unreadable. For a short time only (FORGET_NS): until the new number is there, others may
 * read. Not after it, or what was written under that one would be lost, too.
 *
 * Numbers are looked at again after the time for which answers are believed (l2.seen_time), half of
 * it in advance while they are used, so that reads do not wait for it. Within that time another
 * process may still read what was erased here; this one cannot. Numbers that no request needs are looked at by the
 * clock while this handle holds chunks under them, in its memory or on its disk: it could serve those for ever.
 *
 * Was it an erase, or did the daemon lose the number? After an erase this handle erases the same in itself, which
 * after a loss would make each restart of a daemon a cold start for all. So a mark also names the last erase that its
 * writer knew of, by a random number and its time. A process that replaces a lost mark names the erase that it knew. One that
 * finds another erase than the last ones that it knows takes it for new; one that sees a mark for the first time takes it
 * for new if it is younger than this handle, by the wall clock that both share, being on one machine. A mark that is lost
 * before a process has looked at it takes its erase with it, unless another process that has seen it replaces it. So
 * a process that erases looks first at the mark that its own replaces; one that comes in that round trip is not seen.
 *
 * What was put before such an erase must not be stored after it, or it would be stamped as young. So no WRITE of
 * these tenants begins that was submitted before the caller has taken the erase (late_up_to).
 */
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "tiers/kvtierd/kvtierd.h"

#define LEAST_NS 100000000 /* between two looks */
#define MOST_NS  10000000000
#define AGAIN_NS 1000000000 /* after a failure, while an erase waits for it */
#define HEAR_NS  1000000000 /* that an erase waits for the mark that it replaces */
#define WAIT_NS  200000000  /* that a daemon may take to find a mark in its lower tiers */

#define FORGET_AGAIN_NS 60000000000
#define FORGETS_MOST    256 /* of a round */
#define FORGET_NS       2000000000 /* ... and how long before the number is made all the same */

#define LOOK_EVERY_NS 50000000   /* between searches for what is to be looked at by the clock */
#define LOOK_LEAST_NS 500000000  /* between two looks at one by the clock */

static void ask(struct kvtierd_epoch *e);
static void make(struct kvtierd_epoch *e);
static void forget(struct kvtierd_epoch *e, const char *after);

static int64_t believed_ns(const struct kvtierd *t)
{
	int64_t ns = t->seen_ns > MOST_NS ? MOST_NS : (int64_t)t->seen_ns;

	return ns < LEAST_NS ? LEAST_NS : ns;
}

/* --- rounds ----------------------------------------------------------------------------------- */

static void call(struct kvtierd_waiter *list, enum kvt_status status)
{
	while (list != NULL) {
		struct kvtierd_waiter *w = list;

		list = w->next;
		w->fn(w, status);
	}
}

static void end_round(struct kvtierd_epoch *e, enum kvt_status status)
{
	struct kvtierd_waiter *waiters = e->waiters;

	if (e->by_clock) {
		e->by_clock = false;
		e->t->epochs.looks--;
		e->t->epochs.look_failed = status != KVT_OK;
	}
	e->waiters = NULL;
	e->state = KVTIERD_EPOCH_IDLE;
	e->last = status;
	e->again_ns = kvt_now(e->t->s) + AGAIN_NS;
	free(e->x);
	e->x = NULL;
	call(waiters, status); /* may forget e */
}

static void begin_round(struct kvtierd_epoch *e)
{
	bool dirty;

	pthread_mutex_lock(&e->t->lock);
	dirty = e->dirty;
	e->new_erases = e->erases;
	pthread_mutex_unlock(&e->t->lock);
	e->made = e->news = false;
	e->forgets = 0;
	e->round_ns = kvt_now(e->t->s);
	e->forget_until_ns = e->round_ns + FORGET_NS;
	if (dirty)
		forget(e, "");
	else
		ask(e);
}

/* This number counts from now on, unless there was an erase meanwhile. */
static void adopt(struct kvtierd_epoch *e, uint64_t value)
{
	struct kvtierd *t = e->t;
	uint64_t before;
	bool holds;

	pthread_mutex_lock(&t->lock);
	holds = e->erases == e->new_erases;
	before = e->value;
	if (holds) {
		e->value = value;
		e->dirty = e->own_erase = false;
		e->looked = true;
		e->checked_ns = kvt_now(t->s);
	}
	pthread_mutex_unlock(&t->lock);
	if (!holds) {
		begin_round(e);
		return;
	}
	if (before != 0 && before != value) {
		kvt_presence_forget_tenant(t->presence, e->all ? NULL : &e->tenant);
		if (!e->news)
			kvt_note(t->s, KVT_LOG_INFO,
				"kvtierd: what %s stored until now is a miss: the daemon lost its mark",
				e->all ? "all" : "a tenant");
	}
	end_round(e, KVT_OK);
}

static bool is_retired(struct kvtierd_epoch *e, uint64_t value)
{
	bool is = false;

	pthread_mutex_lock(&e->t->lock);
	for (uint32_t i = 0; i < KVTIERD_RETIRED; i++)
		is = is || e->retired[i] == value;
	pthread_mutex_unlock(&e->t->lock);
	return is;
}

static void name_of(const struct kvtierd_epoch *e, char out[KVTIERD_NAME_ROOM])
{
	kvtierd_epoch_name(&e->t->fingerprint, e->all ? NULL : &e->tenant, out);
}

/* --- what others erased ------------------------------------------------------------------------ */

/* Under lock. */
static bool is_known(const struct kvtierd_epoch *e, uint64_t erase)
{
	for (uint32_t i = 0; i < KVTIERD_ERASES; i++)
		if (e->known[i] == erase)
			return true;
	return erase == e->erase;
}

/* Under lock. */
static void know(struct kvtierd_epoch *e, uint64_t erase)
{
	e->known[e->known_count++ % KVTIERD_ERASES] = erase;
}

/* What a mark names. Of those known, the last one stays: a mark may be from before it, or of a process that missed it. */
static void heed(struct kvtierd_epoch *e, const struct kvtierd_mark *mark)
{
	struct kvtierd *t = e->t;

	pthread_mutex_lock(&t->lock);
	if (mark->erase != 0 && !is_known(e, mark->erase)) {
		know(e, mark->erase);
		if (e->looked || mark->erased_wall_ns >= t->epochs.created_wall_ns) {
			e->news = true;
			e->late_up_to = UINT64_MAX;
			kvt_elsewhere_note(&t->epochs.elsewhere, e->all ? NULL : &e->tenant,
				KVT_ELSEWHERE_ALL);
			atomic_store(&t->base.elsewhere, true);
		}
		if (!e->own_erase) {
			e->erase = mark->erase;
			e->erased_wall_ns = mark->erased_wall_ns;
		}
	}
	e->looked = true;
	pthread_mutex_unlock(&t->lock);
}

bool kvtierd_epochs_late(struct kvtierd *t, const struct kvtierd_job *job)
{
	const struct kvtierd_epoch *own;
	bool late;

	pthread_mutex_lock(&t->lock);
	own = kvtierd_epoch_find(t, &job->footer.tenant, true);
	late = own == NULL || job->number <= own->late_up_to ||
	       job->number <= t->epochs.all.late_up_to;
	pthread_mutex_unlock(&t->lock);
	return late;
}

void kvtierd_epochs_take(struct kvtierd *t, struct kvt_elsewhere *out)
{
	pthread_mutex_lock(&t->lock);
	*out = t->epochs.elsewhere;
	t->epochs.elsewhere = (struct kvt_elsewhere){.count = 0};
	atomic_store(&t->base.elsewhere, false);
	for (size_t i = 0; i <= 256; i++) {
		struct kvtierd_epoch *e = i == 256 ? &t->epochs.all : t->epochs.buckets[i];

		for (; e != NULL; e = e->next)
			if (e->late_up_to == UINT64_MAX)
				e->late_up_to = t->numbers;
	}
	pthread_mutex_unlock(&t->lock);
}

/* --- asking ----------------------------------------------------------------------------------- */

/* The number under a lease; 0: none that counts. */
static enum kvt_status read_mark(
	struct kvtierd_epoch *e, const struct kvtierd_held *held, uint64_t *value)
{
	struct kvtierd *t = e->t;
	uint8_t bytes[KVTIERD_MARK];
	struct kvt_segment to = {.base = bytes, .bytes = sizeof(bytes)};
	struct kvt_checksum unused;
	struct kvtierd_mark mark;
	enum kvt_status status = kvtierd_segment_refresh(&t->segment);

	*value = 0;
	if (status != KVT_OK) {
		kvtierd_say(t, t->segment.why);
		return status;
	}
	if (held->lease.bytes != KVTIERD_MARK ||
		kvtierd_segment_take(&t->segment, &held->lease, 0, KVTIERD_MARK, &to, 1, &unused) !=
			KVT_OK ||
		kvtierd_mark_decode(bytes, &mark) != KVT_OK ||
		memcmp(&mark.fingerprint, &t->fingerprint, sizeof(mark.fingerprint)) != 0 ||
		mark.kind != (e->all ? KVTIERD_EPOCH_ALL : KVTIERD_EPOCH_TENANT) ||
		(!e->all && memcmp(&mark.tenant, &e->tenant, sizeof(mark.tenant)) != 0))
		return KVT_OK;
	heed(e, &mark);
	if (!is_retired(e, mark.value))
		*value = mark.value;
	return KVT_OK;
}

static void asked(struct kvtierd_exchange *x)
{
	struct kvtierd_epoch *e = x->user;
	struct kvtierd *t = e->t;
	struct kvtierd_held held;
	uint64_t value = 0;
	bool sure;
	enum kvt_status status = kvtierd_lease_answer(t, x, &held, &sure);

	if (status == KVT_OK) {
		status = read_mark(e, &held, &value);
		kvtierd_release(t, &held);
	} else if (status == KVT_MISS && sure) {
		status = KVT_OK;
	}
	if (status != KVT_OK)
		end_round(e, status);
	else if (value != 0)
		adopt(e, value);
	else if (e->made)
		adopt(e, e->new_value); /* the daemon did not keep it: no process has another */
	else if (e->by_clock && e->waiters == NULL)
		end_round(e, KVT_OK); /* the next request that needs it makes one */
	else
		make(e);
}

static bool has_exchange(struct kvtierd_epoch *e)
{
	if (e->x == NULL)
		e->x = calloc(1, sizeof(*e->x));
	if (e->x == NULL)
		return false;
	e->x->user = e;
	e->x->deadline_ns = kvt_now(e->t->s) + 2 * (int64_t)e->t->deadline_ns;
	return true;
}

static void send_ask(struct kvtierd_epoch *e, void (*done)(struct kvtierd_exchange *x))
{
	char name[KVTIERD_NAME_ROOM];

	e->state = KVTIERD_EPOCH_ASKING;
	e->x->tail_bytes = 0;
	e->x->once = false;
	name_of(e, name);
	kvtierd_ask_mark_lease(&e->t->place, name, WAIT_NS, e->t->lease_ns, e->x);
	e->x->done = done;
	kvtierd_http_submit(e->t->http, e->x);
}

static void ask(struct kvtierd_epoch *e)
{
	if (has_exchange(e))
		send_ask(e, asked);
	else
		end_round(e, KVT_ENOMEM);
}

/* The mark's number no longer counts, whichever it is; and without an answer the erase takes place all the same. */
static void heard(struct kvtierd_exchange *x)
{
	struct kvtierd_epoch *e = x->user;
	struct kvtierd_held held;
	uint64_t value;
	bool sure;

	if (x->status == KVT_ECANCELED) {
		end_round(e, KVT_ECANCELED);
		return;
	}
	if (kvtierd_lease_answer(e->t, x, &held, &sure) == KVT_OK) {
		(void)read_mark(e, &held, &value);
		kvtierd_release(e->t, &held);
	}
	make(e);
}

/* Our own erase takes a mark's place: what that one names is heard of before. */
static void hear(struct kvtierd_epoch *e)
{
	int64_t until_ns = kvt_now(e->t->s) + HEAR_NS;

	if (!has_exchange(e)) {
		end_round(e, KVT_ENOMEM);
		return;
	}
	if (until_ns < e->x->deadline_ns)
		e->x->deadline_ns = until_ns;
	send_ask(e, heard);
}

/* --- forgetting ------------------------------------------------------------------------------- */

/* Whatever came of it, the number is made: it is what the erase rests on. */
static void forgotten(struct kvtierd_exchange *x)
{
	struct kvtierd_epoch *e = x->user;
	struct kvtierd *t = e->t;
	const struct kvtierd_reader *a = x->answer;
	char next[KVTIERD_NEXT_BYTES] = "";

	if (x->status == KVT_ECANCELED) {
		end_round(e, KVT_ECANCELED);
		return;
	}
	if (x->status == KVT_OK && a->status == 200 && !a->cut)
		kvtierd_next_parse(a->text, a->text_len, next);
	else if (x->status == KVT_OK && (a->status < 500 || a->status == 501))
		t->forget_again_ns = kvt_now(t->s) + FORGET_AGAIN_NS; /* another daemon */
	if (next[0] != '\0' && e->forgets < FORGETS_MOST && kvt_now(t->s) < e->forget_until_ns)
		forget(e, next);
	else
		hear(e);
}

/* The daemon may drop what this erase is of. Before there is another number, so that nothing that is written under that
 * one is lost with it. */
static void forget(struct kvtierd_epoch *e, const char *after)
{
	struct kvtierd *t = e->t;

	if (kvt_now(t->s) < t->forget_again_ns || !has_exchange(e)) {
		hear(e);
		return;
	}
	e->state = KVTIERD_EPOCH_MAKING;
	e->forgets++;
	e->x->tail_bytes = 0;
	e->x->once = false;
	kvtierd_ask_forget(&t->place, &t->fingerprint, e->all ? NULL : &e->tenant, after, e->x);
	e->x->done = forgotten;
	kvtierd_http_submit(t->http, e->x);
}

/* --- making ----------------------------------------------------------------------------------- */

static void put_done(struct kvtierd_exchange *x)
{
	struct kvtierd_epoch *e = x->user;
	struct kvtierd *t = e->t;
	enum kvt_status status = kvtierd_put_answer(t, x);
	bool dirty;

	if (status != KVT_OK) {
		end_round(e, status);
		return;
	}
	pthread_mutex_lock(&t->lock);
	dirty = e->dirty;
	pthread_mutex_unlock(&t->lock);
	e->made = true;
	if (dirty)
		adopt(e, e->new_value);
	else
		ask(e); /* whose is it? */
}

static void make(struct kvtierd_epoch *e)
{
	struct kvtierd *t = e->t;
	char name[KVTIERD_NAME_ROOM];
	struct kvtierd_mark mark = {
		.kind = e->all ? KVTIERD_EPOCH_ALL : KVTIERD_EPOCH_TENANT,
		.fingerprint = t->fingerprint,
		.tenant = e->tenant,
		.written_wall_ns = kvt_wall(t->s),
	};

	if (!has_exchange(e)) {
		end_round(e, KVT_ENOMEM);
		return;
	}
	do {
		if (getrandom(&e->new_value, sizeof(e->new_value), 0) !=
			(ssize_t)sizeof(e->new_value)) {
			end_round(e, KVT_EIO);
			return;
		}
	} while (e->new_value == 0);
	mark.value = e->new_value;
	pthread_mutex_lock(&t->lock);
	mark.erase = e->erase;
	mark.erased_wall_ns = e->erased_wall_ns;
	pthread_mutex_unlock(&t->lock);
	kvtierd_mark_encode(&mark, e->mark);
	e->state = KVTIERD_EPOCH_MAKING;
	e->x->tail = e->mark;
	e->x->tail_bytes = sizeof(e->mark);
	e->x->once = true;
	name_of(e, name);
	kvtierd_ask_put(&t->place, name, NULL, e->x);
	e->x->done = put_done;
	kvtierd_http_submit(t->http, e->x);
}

/* --- what others ask -------------------------------------------------------------------------- */

/* Known and fresh? Else *wait is set; *early: known, and soon to be looked at again. */
static bool usable(struct kvtierd *t, struct kvtierd_epoch *e, int64_t now_ns,
	struct kvtierd_epoch **wait, struct kvtierd_epoch **early)
{
	if (e->value == 0 || e->dirty || now_ns - e->checked_ns >= believed_ns(t)) {
		*wait = e;
		return false;
	}
	if (now_ns - e->checked_ns >= believed_ns(t) / 2)
		*early = e;
	return true;
}

enum kvt_status kvtierd_epochs_now(struct kvtierd *t, const struct kvt_tenant *tenant,
	struct kvtierd_stamp *out, struct kvtierd_waiter *w)
{
	struct kvtierd_epoch *wait = NULL, *early = NULL, *own;
	int64_t now_ns = kvt_now(t->s);

	pthread_mutex_lock(&t->lock);
	own = kvtierd_epoch_find(t, tenant, true);
	if (own != NULL && usable(t, &t->epochs.all, now_ns, &wait, &early) &&
		usable(t, own, now_ns, &wait, &early))
		*out = (struct kvtierd_stamp){.all = t->epochs.all.value, .tenant = own->value};
	pthread_mutex_unlock(&t->lock);
	if (own == NULL)
		return KVT_FULL;
	if (wait == NULL) {
		if (early != NULL && w != NULL && early->state == KVTIERD_EPOCH_IDLE)
			begin_round(early);
		return KVT_OK;
	}
	if (w == NULL)
		return KVT_BUSY;
	w->next = wait->waiters;
	wait->waiters = w;
	pthread_mutex_lock(&t->lock);
	t->epochs.unsettled = true;
	pthread_mutex_unlock(&t->lock);
	if (wait->state == KVTIERD_EPOCH_IDLE)
		begin_round(wait);
	return KVT_BUSY;
}

enum kvt_status kvtierd_epochs_hold(
	struct kvtierd *t, const struct redis_footer *footer, struct kvtierd_waiter *w)
{
	struct kvtierd_stamp now;
	enum kvt_status status = kvtierd_epochs_now(t, &footer->tenant, &now, w);

	if (status != KVT_OK)
		return status;
	return now.all == footer->epoch && now.tenant == footer->tenant_epoch ? KVT_OK : KVT_MISS;
}

enum kvt_status kvtierd_epochs_erase(
	struct kvtierd *t, const struct kvt_tenant *tenant, bool for_others)
{
	int64_t wall_ns = kvt_wall(t->s);
	struct kvtierd_epoch *e;
	uint64_t erase = 0;

	if (for_others && (getrandom(&erase, sizeof(erase), 0) != (ssize_t)sizeof(erase) || erase == 0))
		erase = (uint64_t)wall_ns | 1;

	pthread_mutex_lock(&t->lock);
	e = kvtierd_epoch_find(t, tenant, false);
	if (e != NULL) {
		if (e->value != 0)
			e->retired[e->retired_count++ % KVTIERD_RETIRED] = e->value;
		e->value = 0;
		if (for_others) {
			know(e, erase);
			e->own_erase = true;
			e->erase = erase;
			e->erased_wall_ns = wall_ns;
		}
		e->dirty = true;
		e->erases++;
		t->epochs.unsettled = true;
	}
	pthread_mutex_unlock(&t->lock);
	if (e == NULL)
		return KVT_FULL;
	kvt_presence_forget_tenant(t->presence, tenant);
	return KVT_OK;
}

/* --- step ------------------------------------------------------------------------------------- */

/* What a step finds. */
struct found {
	struct kvtierd_waiter *over; /* waits that are over */
	struct kvtierd_epoch *due;   /* one that an erase waits for */
	bool unsettled;
	int64_t next_ns;
};

static void take_late(struct kvtierd_epoch *e, int64_t now_ns, struct found *f)
{
	struct kvtierd_waiter **at = &e->waiters, *w;

	while ((w = *at) != NULL) {
		if (w->deadline_ns <= now_ns) {
			*at = w->next;
			w->next = f->over;
			f->over = w;
			continue;
		}
		if (w->deadline_ns < f->next_ns)
			f->next_ns = w->deadline_ns;
		at = &w->next;
	}
}

/* Under lock. */
static void look_at(struct kvtierd_epoch *e, int64_t now_ns, struct found *f)
{
	f->unsettled = f->unsettled || e->dirty || e->waiters != NULL;
	take_late(e, now_ns, f);
	if (!e->dirty || e->state != KVTIERD_EPOCH_IDLE)
		return;
	if (e->last == KVT_OK || now_ns >= e->again_ns)
		f->due = e;
	else if (e->again_ns < f->next_ns)
		f->next_ns = e->again_ns;
}

/* --- by the clock --- */

/* Under lock. It is held, and was not looked at for a while. */
static bool is_due(const struct kvtierd_epoch *e, int64_t now_ns)
{
	int64_t since_ns = now_ns - (e->round_ns > e->checked_ns ? e->round_ns : e->checked_ns);
	int64_t pause_ns = believed_ns(e->t) / 4 * 3;

	return kvtierd_epoch_is_held(e, now_ns) && e->state == KVTIERD_EPOCH_IDLE && !e->dirty &&
	       since_ns >= (pause_ns > LOOK_LEAST_NS ? pause_ns : LOOK_LEAST_NS);
}

/* A few at a time, so that connections are left for others, and one a second while the daemon does not answer. */
static size_t look_by_clock(struct kvtierd *t, int64_t now_ns, int64_t *next_ns)
{
	struct kvtierd_epochs *all = &t->epochs;
	struct kvtierd_epoch *due[KVTIERD_LOOKS];
	uint32_t most = t->connections / 2 < KVTIERD_LOOKS ? t->connections / 2 : KVTIERD_LOOKS, n = 0;
	uint32_t from = all->look_at;
	bool held = false;

	if (all->look_failed || most == 0)
		most = 1;
	pthread_mutex_lock(&t->lock);
	kvtierd_epochs_take_holds(t, now_ns);
	if (all->held && now_ns >= all->look_ns) {
		all->look_ns = now_ns + (all->look_failed ? AGAIN_NS : LOOK_EVERY_NS);
		for (size_t i = 0; i <= 256; i++) {
			uint32_t at = (from + (uint32_t)i) % 257; /* each has its turn */
			struct kvtierd_epoch *e = at == 0 ? &all->all : all->buckets[at - 1];

			for (; e != NULL; e = e->next) {
				held = held || kvtierd_epoch_is_held(e, now_ns);
				if (all->looks >= most || !is_due(e, now_ns))
					continue;
				e->by_clock = true;
				all->looks++;
				all->look_at = at + 1;
				due[n++] = e;
			}
		}
		all->held = held;
	}
	if (all->held && all->look_ns < *next_ns)
		*next_ns = all->look_ns;
	pthread_mutex_unlock(&t->lock);
	for (uint32_t i = 0; i < n; i++)
		begin_round(due[i]);
	return n;
}

size_t kvtierd_epochs_step(struct kvtierd *t, int64_t now_ns, int64_t *next_ns)
{
	struct found f = {.next_ns = INT64_MAX};

	pthread_mutex_lock(&t->lock);
	if (t->epochs.unsettled) {
		look_at(&t->epochs.all, now_ns, &f);
		for (size_t i = 0; t->epochs.count > 0 && i < 256; i++)
			for (struct kvtierd_epoch *e = t->epochs.buckets[i]; e != NULL; e = e->next)
				look_at(e, now_ns, &f);
		t->epochs.unsettled = f.unsettled;
	}
	pthread_mutex_unlock(&t->lock);
	if (f.next_ns < *next_ns)
		*next_ns = f.next_ns;
	if (f.due != NULL)
		begin_round(f.due); /* one in each step, which is called again */
	if (f.over != NULL)
		call(f.over, kvtierd_http_stalled(t->http) ? KVT_EIO : KVT_MISS);
	return (f.due != NULL) + (f.over != NULL) + look_by_clock(t, now_ns, next_ns);
}

enum kvt_status kvtierd_epochs_settled(struct kvtierd *t)
{
	enum kvt_status status = KVT_OK;

	pthread_mutex_lock(&t->lock);
	for (size_t i = 0; i <= 256; i++) {
		struct kvtierd_epoch *e = i == 256 ? &t->epochs.all : t->epochs.buckets[i];

		for (; e != NULL; e = e->next) {
			if (!e->dirty)
				continue;
			status = KVT_BUSY;
			if (e->state == KVTIERD_EPOCH_IDLE && e->last != KVT_OK) {
				pthread_mutex_unlock(&t->lock);
				return KVT_EIO;
			}
		}
	}
	pthread_mutex_unlock(&t->lock);
	return status;
}

void kvtierd_epochs_hurry(struct kvtierd *t)
{
	pthread_mutex_lock(&t->lock);
	for (size_t i = 0; i <= 256; i++) {
		struct kvtierd_epoch *e = i == 256 ? &t->epochs.all : t->epochs.buckets[i];

		for (; e != NULL; e = e->next)
			if (e->state == KVTIERD_EPOCH_IDLE)
				e->last = KVT_OK;
	}
	pthread_mutex_unlock(&t->lock);
}

/* --- life ------------------------------------------------------------------------------------- */

void kvtierd_epochs_init(struct kvtierd *t)
{
	t->epochs.created_wall_ns = kvt_wall(t->s);
	t->epochs.all.t = t;
	t->epochs.all.all = true;
}

void kvtierd_epochs_finish(struct kvtierd *t)
{
	for (size_t i = 0; i < 256; i++) {
		struct kvtierd_epoch *e;

		while ((e = t->epochs.buckets[i]) != NULL) {
			t->epochs.buckets[i] = e->next;
			free(e->x);
			free(e);
		}
	}
	free(t->epochs.all.x);
}
