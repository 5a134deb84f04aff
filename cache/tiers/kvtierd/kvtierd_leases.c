/*
 * kvtierd_leases.c - reads leases from answers, keeps some leases for a moment, and sends releases.
 *
 * A probe leases a chunk only to read its footer. Mostly a read of the same chunk follows at once;
 * so the tier keeps the lease for KVTIERD_KEPT_NS, and the read needs no request at all. Kept
 * leases pin memory in the daemon, so they are bounded in number, in bytes (the tier's inflight)
 * and in time, and a new lease replaces the oldest.
 *
 * The tier sends a release without waiting for its answer, and repeats it until it is answered or
 * the lease has timed out. If too many releases wait, the newest is dropped, and the daemon ends
 * that lease after its timeout.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tiers/kvtierd/kvtierd.h"

#define MARGIN_NS     2000000 /* a lease that ends within this time counts as over */
#define RELEASE_AGAIN 100000000
#define MAX_RELEASES  1024u

/* A lease that is to be released. */
struct kvtierd_release {
	struct kvtierd *t;
	struct kvtierd_release *next;
	struct kvtierd_exchange x;
	char id[KVTIERD_ID_BYTES];
	int64_t until_ns, again_ns;
	bool under_way, over;
};

/* --- releases --------------------------------------------------------------------------------- */

static void release_done(struct kvtierd_exchange *x)
{
	struct kvtierd_release *r = x->user;
	int64_t now_ns = kvt_now(r->t->s);

	r->under_way = false;
	/* Any answer ends the release, except one that asks to try later. */
	r->over = x->status == KVT_ECANCELED ||
		  (x->status == KVT_OK && x->answer->status != 503 && x->answer->status != 429);
	r->again_ns = now_ns + RELEASE_AGAIN;
	r->t->release_look_ns = 0;
}

static void release_send(struct kvtierd_release *r)
{
	kvtierd_ask_release(&r->t->place, r->id, &r->x);
	r->x.deadline_ns = r->until_ns;
	r->x.done = release_done;
	r->x.user = r;
	r->under_way = true;
	kvtierd_http_submit(r->t->http, &r->x);
}

static void release_id(struct kvtierd *t, const char *id, int64_t until_ns)
{
	struct kvtierd_release *r;

	if (id[0] == '\0' || kvt_now(t->s) >= until_ns)
		return;
	r = t->release_count < MAX_RELEASES ? calloc(1, sizeof(*r)) : NULL;
	if (r == NULL) {
		kvtierd_count(t, &t->counts.releases_lost, 1);
		return;
	}
	r->t = t;
	memcpy(r->id, id, strlen(id) + 1);
	r->until_ns = until_ns;
	r->next = t->releases;
	t->releases = r;
	t->release_count++;
	release_send(r);
}

void kvtierd_release(struct kvtierd *t, struct kvtierd_held *held)
{
	release_id(t, held->lease.id, held->until_ns);
	kvtierd_lease_finish(&held->lease);
}

static size_t releases_step(struct kvtierd *t, int64_t now_ns, int64_t *next_ns)
{
	struct kvtierd_release **at = &t->releases, *r;
	int64_t look_ns = INT64_MAX;
	size_t n = 0;

	if (now_ns >= t->release_look_ns) {
		while ((r = *at) != NULL) {
			if (!r->under_way && (r->over || now_ns >= r->until_ns)) {
				*at = r->next;
				t->release_count--;
				free(r);
				n++;
				continue;
			}
			if (!r->under_way && now_ns >= r->again_ns) {
				release_send(r);
				n++;
			}
			if (!r->under_way && r->again_ns < look_ns)
				look_ns = r->again_ns;
			at = &r->next;
		}
		t->release_look_ns = look_ns;
	}
	if (t->release_look_ns < *next_ns)
		*next_ns = t->release_look_ns;
	return n;
}

/* --- answers ---------------------------------------------------------------------------------- */

void kvtierd_late_lease(void *self, const struct kvtierd_reader *answer)
{
	struct kvtierd *t = self;
	struct kvtierd_lease lease;

	if (answer->status != 200 || answer->cut)
		return;
	/* Only the lease's id is needed here. If memory is short, the daemon ends the lease after
	 * its timeout. */
	(void)!kvtierd_lease_parse(answer->text, answer->text_len, &lease);
	release_id(t, lease.id, kvt_now(t->s) + (int64_t)t->lease_ns);
	kvtierd_lease_finish(&lease);
}

static enum kvt_status read_lease(
	struct kvtierd *t, const struct kvtierd_exchange *x, struct kvtierd_held *held)
{
	const struct kvtierd_reader *a = x->answer;
	enum kvt_status status = KVT_ECORRUPT;

	if (!a->cut)
		status = kvtierd_lease_parse(a->text, a->text_len, &held->lease);
	if (status == KVT_ECORRUPT || (status == KVT_OK && !a->json)) {
		kvtierd_say(t, "the daemon's lease makes no sense");
		status = KVT_EIO;
	}
	if (status != KVT_OK) {
		release_id(t, held->lease.id, held->until_ns);
		kvtierd_lease_finish(&held->lease);
	}
	return status;
}

enum kvt_status kvtierd_lease_answer(
	struct kvtierd *t, const struct kvtierd_exchange *x, struct kvtierd_held *held, bool *sure)
{
	*held = (struct kvtierd_held){.until_ns = x->sent_ns + (int64_t)t->lease_ns};
	*sure = false;
	if (x->status != KVT_OK)
		return kvtierd_failed(t, x);
	switch (x->answer->status) {
	case 200:
		return read_lease(t, x, held);
	case 404:
	case 504:
		/* stock daemons answer so for a missing chunk, kvtierd for a chunk that did not
		 * come in time */
		*sure = !x->answer->later && (x->answer->status == 404 || !x->answer->kvtierd);
		return KVT_MISS;
	default:
		return kvtierd_refused(t, x);
	}
}

bool kvtierd_held_lasts(struct kvtierd *t, const struct kvtierd_held *held)
{
	bool lasts = kvt_now(t->s) < held->until_ns - MARGIN_NS;

	if (!lasts)
		kvtierd_count(t, &t->counts.expired_leases, 1);
	return lasts;
}

/* --- kept leases ------------------------------------------------------------------------------ */

static void let_go(struct kvtierd *t, struct kvtierd_kept *k)
{
	t->kept_bytes -= k->held.lease.bytes;
	kvtierd_release(t, &k->held);
}

static struct kvtierd_kept *oldest_kept(struct kvtierd *t)
{
	struct kvtierd_kept *oldest = NULL;

	for (uint32_t i = 0; i < KVTIERD_KEPT; i++) {
		struct kvtierd_kept *k = &t->kept[i];

		if (k->held.lease.id[0] != '\0' && (oldest == NULL || k->kept_ns < oldest->kept_ns))
			oldest = k;
	}
	return oldest;
}

static struct kvtierd_kept *place_for(struct kvtierd *t, uint64_t bytes)
{
	struct kvtierd_kept *oldest;

	while (t->kept_bytes + bytes > t->inflight && (oldest = oldest_kept(t)) != NULL)
		let_go(t, oldest);
	for (uint32_t i = 0; i < KVTIERD_KEPT; i++)
		if (t->kept[i].held.lease.id[0] == '\0')
			return &t->kept[i];
	oldest = oldest_kept(t);
	let_go(t, oldest);
	return oldest;
}

static struct kvtierd_kept *find_kept(struct kvtierd *t, const struct kvt_key *key)
{
	for (uint32_t i = 0; i < KVTIERD_KEPT; i++) {
		struct kvtierd_kept *k = &t->kept[i];

		if (k->held.lease.id[0] != '\0' && memcmp(&k->key, key, sizeof(*key)) == 0)
			return k;
	}
	return NULL;
}

void kvtierd_keep(struct kvtierd *t, const struct kvt_key *key, struct kvtierd_held *held)
{
	struct kvtierd_kept *k = find_kept(t, key);

	if (k != NULL)
		let_go(t, k);
	if (held->lease.bytes > t->inflight || t->ending) {
		kvtierd_release(t, held);
		return;
	}
	k = place_for(t, held->lease.bytes);
	k->key = *key;
	k->held = *held;
	k->kept_ns = kvt_now(t->s);
	t->kept_bytes += held->lease.bytes;
	*held = (struct kvtierd_held){.until_ns = 0};
	if (k->kept_ns + KVTIERD_KEPT_NS < t->kept_look_ns)
		t->kept_look_ns = k->kept_ns + KVTIERD_KEPT_NS;
}

bool kvtierd_kept_take(struct kvtierd *t, const struct kvt_key *key, struct kvtierd_held *held)
{
	struct kvtierd_kept *k = find_kept(t, key);

	if (k == NULL)
		return false;
	if (kvt_now(t->s) >= k->held.until_ns - MARGIN_NS) {
		let_go(t, k);
		return false;
	}
	t->kept_bytes -= k->held.lease.bytes;
	*held = k->held;
	k->held = (struct kvtierd_held){.until_ns = 0};
	kvtierd_count(t, &t->counts.kept_used, 1);
	return true;
}

static size_t kept_step(struct kvtierd *t, int64_t now_ns, int64_t *next_ns)
{
	size_t n = 0;

	if (now_ns >= t->kept_look_ns) {
		t->kept_look_ns = INT64_MAX;
		for (uint32_t i = 0; i < KVTIERD_KEPT; i++) {
			struct kvtierd_kept *k = &t->kept[i];
			int64_t due_ns = k->kept_ns + KVTIERD_KEPT_NS;

			if (k->held.lease.id[0] == '\0')
				continue;
			if (due_ns <= now_ns) {
				let_go(t, k);
				n++;
			} else if (due_ns < t->kept_look_ns) {
				t->kept_look_ns = due_ns;
			}
		}
	}
	if (t->kept_look_ns < *next_ns)
		*next_ns = t->kept_look_ns;
	return n;
}

/* --- kept leases and releases ----------------------------------------------------------------- */

size_t kvtierd_leases_step(struct kvtierd *t, int64_t now_ns, int64_t *next_ns)
{
	size_t n = kept_step(t, now_ns, next_ns);

	return n + releases_step(t, now_ns, next_ns);
}

void kvtierd_leases_let_go(struct kvtierd *t)
{
	for (uint32_t i = 0; i < KVTIERD_KEPT; i++)
		if (t->kept[i].held.lease.id[0] != '\0')
			let_go(t, &t->kept[i]);
}

bool kvtierd_leases_quiet(const struct kvtierd *t)
{
	return t->releases == NULL;
}

void kvtierd_leases_close(struct kvtierd *t)
{
	struct kvtierd_release *r;

	for (uint32_t i = 0; i < KVTIERD_KEPT; i++)
		kvtierd_lease_finish(&t->kept[i].held.lease);
	while ((r = t->releases) != NULL) {
		t->releases = r->next;
		free(r);
	}
	t->release_count = 0;
}
