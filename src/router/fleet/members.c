/*
 * members.c - decides the fleet's members; members.h has the rules.
 *
 * A member has an entry as long as a source lists it, or while it leaves. An entry owns a copy of
 * each source's settings; which one is effective is looked up, not stored. An entry is one worker,
 * or one for each of its data-parallel ranks: rank 0, the lead, joins first and is removed last. A
 * new list is first written into the entries, then the fleet is changed to match every entry
 * (settle), so that the order of the sources' reports does not matter.
 */
#include "fleet/members.h"

#include <stdlib.h>
#include <string.h>

#include <event2/event.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/search.h"
#include "fleet/expected.h"
#include "fleet/member.h"
#include "fleet/resolver.h"

#define TICK_MS        50
#define REFUSED_NS     KVW_NS_PER_S
/* Until then a loop may still pick the worker from an older table. */
#define LEAST_LEAVE_NS (100 * KVW_NS_PER_MS)
#define GONE_PER_TICK  100 /* limit per tick: the thread has other work */

/* A worker in the fleet. A leaving worker may have a successor of the same URL. */
struct place {
	struct place *next; /* next leaving one */
	struct kvw_members *members;
	struct kvw_worker *worker;
	/* NULL: its URL has a numeric address */
	struct kvw_resolver_watch *watch;
	bool leaving;
	/* start and latest end of leaving */
	int64_t leaves_ns, until_ns;
};

struct kvw_members {
	struct kvw_fleet *fleet;
	struct kvw_prober *prober;
	struct kvw_resolver *resolver;
	struct event *tick;
	struct kvw_member **items; /* [count], ascending by URL */
	size_t count, room;
	struct place *leaving;
	uint32_t mark;
	int64_t again_ns; /* when members that could not join are tried again; 0: none */
	bool ranks_changed; /* the metrics of a member show other ranks than before */
	struct kvw_member_listing listings[KVW_SOURCE_COUNT];
};

/* --- entries --- */

/* Returns the length of the URL without its rank and without slashes at its end. */
static size_t url_len(const char *url)
{
	size_t len;

	(void)kvw_rank_split(url, &len);
	while (len > 0 && url[len - 1] == '/')
		len--;
	return len;
}

static int compare_url(const void *key, const void *items, size_t at)
{
	return kvw_search_order(
		*(const struct kvw_slice *)key, ((struct kvw_member *const *)items)[at]->url);
}

/* Returns the index of a URL, or the index at which to insert it. */
static size_t place_of(const struct kvw_members *members, const char *url, bool *there)
{
	struct kvw_slice key = {url, url_len(url)};

	return kvw_search(&key, members->items, members->count, compare_url, there);
}

static struct kvw_member *find_member(const struct kvw_members *members, const char *url)
{
	bool there;
	size_t at = place_of(members, url, &there);

	return there ? members->items[at] : NULL;
}

static struct kvw_member *find_or_make(struct kvw_members *members, const char *url)
{
	bool there;
	size_t at = place_of(members, url, &there);
	struct kvw_member *member;

	if (there)
		return members->items[at];
	if (members->count == members->room) {
		size_t room = members->room == 0 ? 16 : 2 * members->room;
		struct kvw_member **grown = realloc(members->items, room * sizeof(*grown));

		if (grown == NULL)
			return NULL;
		members->items = grown;
		members->room = room;
	}
	member = calloc(1, sizeof(*member));
	if (member == NULL || (member->url = strndup(url, url_len(url))) == NULL) {
		free(member);
		return NULL;
	}
	memmove(&members->items[at + 1], &members->items[at],
		(members->count - at) * sizeof(members->items[0]));
	member->seen_ranks = kvw_fleet_expected_ranks(members->fleet, member->url);
	members->items[at] = member;
	members->count++;
	return member;
}

/* --- joining and leaving --- */

static void on_addresses(
	void *arg, const struct sockaddr_storage *addresses, size_t count, const char *why)
{
	struct place *place = arg;
	struct kvw_members *members = place->members;
	bool waited = (atomic_load(&place->worker->barred) & KVW_BARRED_NO_ADDRESS) != 0;

	if (why != NULL) {
		kvw_warn("fleet",
			waited ? "worker's name does not resolve, and is asked for again url=%s "
				 "why=\"%s\""
			       : "worker's name does not resolve any more; its addresses are kept "
				 "url=%s why=\"%s\"",
			place->worker->url, why);
		return;
	}
	kvw_fleet_set_addresses(members->fleet, place->worker, addresses, count);
	kvw_debug("fleet", "worker's name has %zu addresses url=%s", count, place->worker->url);
	if (waited && members->prober != NULL)
		kvw_prober_hurry(members->prober, place->worker);
}

/* Makes the place of a worker in the fleet. */
static struct place *place_create(struct kvw_members *members, struct kvw_worker *worker)
{
	struct place *place = calloc(1, sizeof(*place));

	if (place == NULL)
		return NULL;
	place->members = members;
	place->worker = worker;
	if (worker->lead != worker || members->resolver == NULL ||
		(atomic_load(&worker->barred) & KVW_BARRED_NO_ADDRESS) == 0)
		return place;
	if (kvw_resolver_watch(members->resolver, worker->dns_name, worker->port, on_addresses,
		    place, &place->watch) != KVW_OK)
		kvw_error("fleet", "out of memory: worker's name is not looked up url=%s",
			worker->url);
	return place;
}

static void place_destroy(struct place *place)
{
	kvw_resolver_unwatch(place->watch);
	free(place);
}

static void start_leaving(struct kvw_members *members, struct place *place, bool at_once)
{
	int64_t now_ns = kvw_clock_ns();

	kvw_fleet_bar(members->fleet, place->worker, KVW_BARRED_DRAINING, true);
	place->leaving = true;
	place->leaves_ns = now_ns;
	place->until_ns = now_ns;
	if (!at_once)
		place->until_ns += members->fleet->config->drain_worker_ms * KVW_NS_PER_MS;
	place->next = members->leaving;
	members->leaving = place;
	kvw_info("fleet", "worker leaves url=%s inflight=%u limit_ms=%lld", place->worker->url,
		kvw_load_own_inflight(&place->worker->load),
		(long long)((place->until_ns - now_ns) / KVW_NS_PER_MS));
}

static void remove_place(struct kvw_members *members, struct place *place)
{
	uint32_t inflight = kvw_load_own_inflight(&place->worker->load);

	if (inflight > 0)
		kvw_warn("fleet",
			"worker is removed while requests run on it: those that wait go elsewhere, "
			"others are cut url=%s inflight=%u",
			place->worker->url, inflight);
	if (members->prober != NULL)
		kvw_prober_remove(members->prober, place->worker);
	kvw_fleet_remove(members->fleet, place->worker);
	place_destroy(place);
}

/* Removes leaving workers without requests or time, not too many in one tick. */
static void let_leave(struct kvw_members *members)
{
	struct place **link = &members->leaving, *place;
	int64_t now_ns = kvw_clock_ns();
	size_t removed = 0;

	while ((place = *link) != NULL && removed < GONE_PER_TICK) {
		bool idle = kvw_load_own_inflight(&place->worker->load) == 0;

		if (atomic_load(&place->worker->followers) > 0 ||
			now_ns - place->leaves_ns < LEAST_LEAVE_NS ||
			(!idle && now_ns < place->until_ns)) {
			link = &place->next;
			continue;
		}
		*link = place->next;
		remove_place(members, place);
		removed++;
	}
}

/* Makes metrics show this worker under its URL, and none that is leaving. */
static void show_alone(struct kvw_members *members, struct kvw_worker *worker)
{
	for (struct place *place = members->leaving; place != NULL; place = place->next)
		if (strcmp(place->worker->url, worker->url) == 0)
			atomic_store(&place->worker->hidden, true);
	atomic_store(&worker->hidden, false);
}

/* Begins slow start for a worker of a new server; one new rank does not make its server new. */
static void start_slowly(
	struct kvw_members *members, const struct kvw_member *member, struct kvw_worker *worker)
{
	const struct kvw_worker *known =
		member->places[0] == NULL ? NULL : member->places[0]->worker;

	if (known != NULL && (known->rank == KVW_RANK_NONE) == (worker->rank == KVW_RANK_NONE) &&
		known != worker->lead)
		known = NULL;
	if (known != NULL && strcmp(known->config.identity, worker->config.identity) == 0)
		atomic_store(&worker->slow_since_ns, atomic_load(&known->slow_since_ns));
	else
		kvw_fleet_start_slowly(members->fleet, worker);
}

/* Adds a new worker to the fleet, as place `at` of the member. */
static bool join(struct kvw_members *members, struct kvw_member *member, size_t at,
	const struct kvw_worker_config *config, struct kvw_members_change *change)
{
	struct kvw_worker *worker;
	struct place *place = NULL;
	enum kvw_err err =
		kvw_fleet_add(members->fleet, config, change->why, sizeof(change->why), &worker);

	if (err == KVW_OK) {
		place = place_create(members, worker);
		if (place == NULL)
			kvw_fleet_remove(members->fleet, worker);
	}
	if (place == NULL) {
		change->err = err == KVW_OK ? KVW_ENOMEM : err;
		if (!member->refused)
			kvw_error("fleet", "worker cannot join url=%s why=\"%s\"", config->url,
				change->why);
		member->refused = true;
		members->again_ns = kvw_clock_ns() + REFUSED_NS;
		return false;
	}
	start_slowly(members, member, worker);
	member->places[at] = place;
	member->refused = false;
	show_alone(members, worker);
	kvw_fleet_bar(members->fleet, worker, KVW_BARRED_DRAINING, kvw_member_rests(member, at));
	if (members->prober != NULL && kvw_prober_add(members->prober, worker) != KVW_OK)
		kvw_error("fleet", "out of memory: worker is not probed url=%s", worker->url);
	kvw_info("fleet", "worker joins url=%s workers=%zu", worker->url,
		(size_t)members->fleet->live);
	return true;
}

/* --- changes --- */

/* Returns whether keys differ that a live worker can take over; other changes need a new worker. */
static bool differ_in_place(const struct kvw_worker_config *a, const struct kvw_worker_config *b)
{
	struct kvw_worker_config masked = *a;

	masked.models = b->models;
	masked.weight = b->weight;
	masked.ranks = b->ranks;
	return kvw_worker_config_equal(&masked, b);
}

static void change_in_place(struct kvw_members *members, struct kvw_worker *worker,
	const struct kvw_worker_config *config)
{
	if (kvw_fleet_change(members->fleet, worker, config) != KVW_OK)
		kvw_error(
			"fleet", "out of memory: worker keeps its old models url=%s", worker->url);
	if (config->models.count == 0 && members->prober != NULL)
		kvw_prober_hurry(members->prober, worker);
	kvw_info("fleet", "worker has new settings url=%s", worker->url);
}

/* Keeps a leaving worker that is listed again with the same settings. lead: rank 0's worker, for a
 * rank above 0; else NULL. */
static struct place *call_back(struct kvw_members *members,
	const struct kvw_worker_config *config, const struct kvw_worker *lead)
{
	for (struct place **link = &members->leaving; *link != NULL; link = &(*link)->next) {
		struct place *place = *link;

		if (!differ_in_place(&place->worker->config, config) ||
			(lead != NULL && place->worker->lead != lead))
			continue;
		*link = place->next;
		place->next = NULL;
		place->leaving = false;
		return place;
	}
	return NULL;
}

static void retire(struct kvw_members *members, struct kvw_member *member, size_t at, bool at_once)
{
	struct place *place = member->places[at];

	member->places[at] = NULL;
	start_leaving(members, place, at_once);
}

/* Replaces a worker by one with other settings; keeps it if the new one cannot join. */
static bool replace(struct kvw_members *members, struct kvw_member *member, size_t at,
	const struct kvw_worker_config *config, struct kvw_members_change *change)
{
	struct place *before = member->places[at];

	if (!join(members, member, at, config, change))
		return false;
	atomic_store(&before->worker->hidden, true);
	start_leaving(members, before, false);
	return true;
}

/* Makes the fleet match the member's place `at`, which must have a worker. False: the worker cannot
 * join. */
static bool settle_place(struct kvw_members *members, struct kvw_member *member, size_t at,
	const struct kvw_worker_config *config, struct kvw_members_change *change)
{
	struct place *place = member->places[at];
	bool changes = true;

	if (place != NULL && kvw_worker_config_equal(&place->worker->config, config))
		return true;
	if (place != NULL && differ_in_place(&place->worker->config, config)) {
		change_in_place(members, place->worker, config);
		change->changed++;
		return true;
	}
	if (place != NULL) {
		changes = replace(members, member, at, config, change);
		change->changed += changes;
		change->refused += !changes;
		return changes;
	}
	place = call_back(members, config, at == 0 ? NULL : member->places[0]->worker);
	if (place != NULL) {
		member->places[at] = place;
		kvw_fleet_bar(members->fleet, place->worker, KVW_BARRED_DRAINING,
			kvw_member_rests(member, at));
		show_alone(members, place->worker);
		kvw_info("fleet", "worker stays url=%s", place->worker->url);
		if (!kvw_worker_config_equal(&place->worker->config, config))
			change_in_place(members, place->worker, config);
		change->joined++;
		return true;
	}
	changes = join(members, member, at, config, change);
	change->joined += changes;
	change->refused += !changes;
	return changes;
}

/* Makes the fleet match one member: its workers from rank 0 on, until one cannot join. */
static void settle_member(struct kvw_members *members, struct kvw_member *member,
	struct kvw_members_change *change)
{
	const struct kvw_worker_config *config = kvw_member_wanted(member);
	struct kvw_worker_config own;
	uint32_t ranks = config == NULL ? 0 : kvw_ranks_configured(members->fleet->config, config);
	bool joined = true;

	if (config != NULL && ranks == 0)
		ranks = member->seen_ranks > 0 ? member->seen_ranks : 1;
	for (uint32_t at = 0; at < ranks && joined; at++) {
		if (ranks == 1) {
			joined = settle_place(members, member, at, config, change);
		} else if (kvw_rank_config(config, ranks, at, &own) == KVW_OK) {
			joined = settle_place(members, member, at, &own, change);
			kvw_worker_config_release(&own);
		} else {
			change->err = KVW_ENOMEM;
			change->refused++;
			members->again_ns = kvw_clock_ns() + REFUSED_NS;
			joined = false;
		}
	}
	for (size_t at = ranks; at < KVW_RANKS_MOST; at++) {
		if (member->places[at] == NULL)
			continue;
		retire(members, member, at, false);
		change->left++;
	}
}

/* Drops entries that no source lists. */
static void forget_unlisted(struct kvw_members *members)
{
	size_t kept = 0;

	for (size_t i = 0; i < members->count; i++) {
		struct kvw_member *member = members->items[i];
		bool listed = false;

		for (int s = 0; s < KVW_SOURCE_COUNT; s++)
			listed = listed || member->said[s].url != NULL;
		if (listed)
			members->items[kept++] = member;
		else
			kvw_member_destroy(member);
	}
	members->count = kept;
}

/* Members that leave come first, since they make room. */
static void settle_all(struct kvw_members *members, struct kvw_members_change *change)
{
	for (int joining = 0; joining < 2; joining++)
		for (size_t i = 0; i < members->count; i++)
			if ((kvw_member_wanted(members->items[i]) != NULL) == joining)
				settle_member(members, members->items[i], change);
	forget_unlisted(members);
}

/* Tries again to add members that could not join: a slot may be free now. */
static void try_again(struct kvw_members *members)
{
	struct kvw_members_change change = {0};

	if (members->again_ns == 0 || kvw_clock_ns() < members->again_ns)
		return;
	members->again_ns = 0;
	settle_all(members, &change);
}

static void on_tick(evutil_socket_t fd, short what, void *arg)
{
	struct kvw_members *members = arg;
	struct kvw_members_change change = {0};

	(void)fd;
	(void)what;
	let_leave(members);
	(void)kvw_fleet_reap(members->fleet);
	try_again(members);
	if (members->ranks_changed) {
		members->ranks_changed = false;
		settle_all(members, &change);
	}
}

/* Records how many ranks a server's metrics show; the next tick adds or removes workers. */
static void on_ranks(void *arg, struct kvw_worker *worker, uint32_t ranks)
{
	struct kvw_members *members = arg;
	struct kvw_member *member = find_member(members, worker->url);
	const struct kvw_worker_config *config = member == NULL ? NULL : kvw_member_wanted(member);
	uint32_t configured, shown = ranks > KVW_RANKS_MOST ? 1 : ranks;
	bool odd;

	if (config == NULL || member->places[0] == NULL || member->places[0]->worker != worker)
		return;
	configured = kvw_ranks_configured(members->fleet->config, config);
	if (configured == 1 || !kvw_member_believes(member, shown))
		return;
	odd = ranks > KVW_RANKS_MOST || (configured > 0 && configured != ranks);
	if (!member->odd_ranks && odd)
		kvw_warn("fleet",
			ranks > KVW_RANKS_MOST
				? "its metrics show more than %d data-parallel ranks, the most "
				  "that kvway tells apart: they are one worker url=%s"
				: "its metrics show %d data-parallel ranks, and its `ranks` are "
				  "others url=%s",
			ranks > KVW_RANKS_MOST ? KVW_RANKS_MOST : (int)ranks, member->url);
	member->odd_ranks = odd;
	members->ranks_changed =
		members->ranks_changed || (configured == 0 && member->seen_ranks != shown);
	member->seen_ranks = shown;
}

static void note_list(struct kvw_members *members, enum kvw_member_source source, size_t count)
{
	struct kvw_member_listing *listing = &members->listings[source];

	atomic_store(&listing->used, true);
	atomic_store(&listing->listed, (uint32_t)count);
	atomic_store(&listing->listed_s, kvw_clock_wall_ns() / KVW_NS_PER_S);
}

void kvw_members_unreadable(
	struct kvw_members *members, enum kvw_member_source source, bool unreadable)
{
	struct kvw_member_listing *listing = &members->listings[source];

	atomic_store(&listing->used, true);
	if (unreadable && !atomic_load(&listing->unreadable))
		atomic_store(&listing->unreadable_since_ns, kvw_clock_ns());
	atomic_store(&listing->unreadable, unreadable);
}

const struct kvw_member_listing *kvw_members_listings(const struct kvw_members *members)
{
	return members->listings;
}

enum kvw_err kvw_members_set(struct kvw_members *members, enum kvw_member_source source,
	const struct kvw_worker_config *workers, size_t count, struct kvw_members_change *change)
{
	enum kvw_err err = KVW_OK;

	*change = (struct kvw_members_change){0};
	members->mark++;
	for (size_t i = 0; i < count && err == KVW_OK; i++) {
		struct kvw_member *member = find_or_make(members, workers[i].url);

		err = member == NULL ? KVW_ENOMEM : kvw_member_say(member, source, &workers[i]);
		if (member != NULL)
			member->mark = members->mark;
	}
	for (size_t i = 0; i < members->count && err == KVW_OK; i++)
		if (members->items[i]->mark != members->mark)
			kvw_worker_config_release(&members->items[i]->said[source]);
	note_list(members, source, count);
	settle_all(members, change);
	if (change->joined + change->left + change->changed + change->refused > 0)
		kvw_info("fleet",
			"list of workers source=%s listed=%zu joined=%zu left=%zu changed=%zu "
			"refused=%zu",
			kvw_member_source_name(source), count, change->joined, change->left,
			change->changed, change->refused);
	return err;
}

void kvw_members_forgive(struct kvw_members *members)
{
	struct kvw_members_change change = {0};

	for (size_t i = 0; i < members->count; i++)
		members->items[i]->removed = false;
	settle_all(members, &change);
}

/* --- the admin address --- */

/* Overwrites the effective settings and applies them; undoes both if the fleet refuses them. */
static enum kvw_err set_one(struct kvw_members *members, struct kvw_member *member,
	const struct kvw_worker_config *worker, char *why, size_t room)
{
	enum kvw_member_source source = kvw_member_lister(member);
	struct kvw_members_change change = {0};
	struct kvw_worker_config before;
	enum kvw_err err = kvw_worker_config_copy(&member->said[source], &before);

	if (err != KVW_OK)
		return err;
	err = kvw_member_say(member, source, worker);
	if (err == KVW_OK)
		settle_member(members, member, &change);
	if (err == KVW_OK && change.refused > 0) {
		(void)snprintf(why, room, "%s", change.why);
		(void)!kvw_member_say(member, source, &before);
		settle_member(members, member, &(struct kvw_members_change){0});
		err = change.err;
	}
	kvw_worker_config_release(&before);
	return err;
}

enum kvw_err kvw_members_add(struct kvw_members *members, const struct kvw_worker_config *worker,
	char *why, size_t room)
{
	struct kvw_member *member = find_member(members, worker->url);
	bool removed = member != NULL && member->removed;
	enum kvw_err err;

	if (member != NULL && !member->removed && kvw_member_wanted(member) != NULL) {
		(void)snprintf(why, room, "`%s` is a worker already", member->url);
		return KVW_EINVAL;
	}
	if (members->fleet->live >= KVW_MAX_WORKERS) {
		(void)snprintf(why, room, "there are %d workers already", KVW_MAX_WORKERS);
		return KVW_ELIMIT;
	}
	member = find_or_make(members, worker->url);
	err = member == NULL ? KVW_ENOMEM : kvw_member_say(member, KVW_SOURCE_ADMIN, worker);
	if (err == KVW_OK) {
		member->removed = false;
		member->rests = 0;
		err = set_one(members, member, worker, why, room);
	}
	if (err != KVW_OK && member != NULL) {
		kvw_worker_config_release(&member->said[KVW_SOURCE_ADMIN]);
		member->removed = removed;
		settle_member(members, member, &(struct kvw_members_change){0});
	}
	forget_unlisted(members);
	return err;
}

enum kvw_err kvw_members_change(struct kvw_members *members, const struct kvw_worker_config *worker,
	char *why, size_t room)
{
	struct kvw_member *member = find_member(members, worker->url);

	if (member == NULL || kvw_member_wanted(member) == NULL) {
		(void)snprintf(why, room, "`%s` is not a worker", worker->url);
		return KVW_ENOTFOUND;
	}
	return set_one(members, member, worker, why, room);
}

enum kvw_err kvw_members_rest(struct kvw_members *members, const char *url, bool rest)
{
	struct kvw_member *member = find_member(members, url);
	size_t len;
	int rank = kvw_rank_split(url, &len);
	uint64_t bits = rank == KVW_RANK_NONE ? UINT64_MAX : UINT64_C(1) << rank;

	if (member == NULL || kvw_member_wanted(member) == NULL)
		return KVW_ENOTFOUND;
	if ((member->rests & bits) != (rest ? bits : 0))
		kvw_info("fleet", rest ? "worker rests: it gets no new requests url=%s"
				       : "worker works again url=%s", url);
	member->rests = rest ? member->rests | bits : member->rests & ~bits;
	for (size_t at = 0; at < KVW_RANKS_MOST; at++)
		if (member->places[at] != NULL)
			kvw_fleet_bar(members->fleet, member->places[at]->worker,
				KVW_BARRED_DRAINING, kvw_member_rests(member, at));
	return KVW_OK;
}

enum kvw_err kvw_members_remove(struct kvw_members *members, const char *url, bool at_once)
{
	struct kvw_member *member = find_member(members, url);
	size_t len;

	if (member == NULL || kvw_member_wanted(member) == NULL)
		return KVW_ENOTFOUND;
	if (kvw_rank_split(url, &len) != KVW_RANK_NONE)
		return KVW_EINVAL;
	kvw_worker_config_release(&member->said[KVW_SOURCE_ADMIN]);
	member->removed = true;
	member->rests = 0;
	for (size_t at = 0; at < KVW_RANKS_MOST; at++)
		if (member->places[at] != NULL)
			retire(members, member, at, at_once);
	forget_unlisted(members);
	return KVW_OK;
}

const struct kvw_worker_config *kvw_members_find(struct kvw_members *members, const char *url)
{
	struct kvw_member *member = find_member(members, url);

	return member == NULL ? NULL : kvw_member_wanted(member);
}

static bool view_leaving(
	struct kvw_members *members, size_t index, struct kvw_member_view *out)
{
	const struct place *place = members->leaving;
	int64_t left_ns;

	for (; place != NULL && index > 0; index--)
		place = place->next;
	if (place == NULL)
		return false;
	left_ns = place->until_ns - kvw_clock_ns();
	*out = (struct kvw_member_view){.url = place->worker->url,
		.worker = place->worker,
		.leaves = true,
		.leaves_in_ms = left_ns > 0 ? left_ns / KVW_NS_PER_MS : 0};
	return true;
}

bool kvw_members_view(struct kvw_members *members, size_t index, struct kvw_member_view *out)
{
	const struct kvw_member *member;
	size_t i = 0, rows;

	for (; i < members->count && index >= (rows = kvw_member_rows(members->items[i])); i++)
		index -= rows;
	if (i == members->count)
		return view_leaving(members, index, out);
	member = members->items[i];
	*out = (struct kvw_member_view){
		.url = member->url, .rests = kvw_member_rests(member, index)};
	if (member->places[index] != NULL) {
		out->worker = member->places[index]->worker;
		out->url = out->worker->url;
	}
	for (int s = 0; s < KVW_SOURCE_COUNT; s++)
		if (member->said[s].url != NULL)
			out->sources |= 1u << s;
	return true;
}

/* --- life --- */

/* Makes entries for the workers with which the fleet was created. */
static enum kvw_err adopt(struct kvw_members *members)
{
	struct kvw_fleet *fleet = members->fleet;
	const struct kvw_config *config = fleet->config;
	struct kvw_members_change change = {0};

	for (size_t i = 0; i < config->worker_count; i++) {
		struct kvw_member *member = find_or_make(members, config->workers[i].url);

		if (member == NULL ||
			kvw_member_say(member, KVW_SOURCE_CONFIG, &config->workers[i]) != KVW_OK)
			return KVW_ENOMEM;
	}
	for (size_t i = 0; i < fleet->count; i++) {
		struct kvw_worker *worker = kvw_fleet_worker(fleet, i);
		struct kvw_member *member =
			worker == NULL ? NULL : find_member(members, worker->url);
		size_t at = worker == NULL || worker->rank < 0 ? 0 : (size_t)worker->rank;

		if (member == NULL)
			continue;
		member->places[at] = place_create(members, worker);
		if (member->places[at] == NULL)
			return KVW_ENOMEM;
	}
	note_list(members, KVW_SOURCE_CONFIG, config->worker_count);
	settle_all(members, &change); /* adds the ranks that a former process of kvway knew */
	return KVW_OK;
}

enum kvw_err kvw_members_create(struct event_base *base, struct kvw_fleet *fleet,
	struct kvw_prober *prober, struct kvw_resolver *resolver, struct kvw_members **out)
{
	const struct timeval period = {.tv_usec = TICK_MS * 1000};
	struct kvw_members *members = calloc(1, sizeof(*members));
	enum kvw_err err;

	if (members == NULL)
		return KVW_ENOMEM;
	members->fleet = fleet;
	members->prober = prober;
	members->resolver = resolver;
	if (prober != NULL)
		kvw_prober_on_ranks(prober, on_ranks, members);
	members->tick = event_new(base, -1, EV_PERSIST, on_tick, members);
	err = members->tick == NULL || event_add(members->tick, &period) != 0 ? KVW_ENOMEM
									      : adopt(members);
	if (err == KVW_OK)
		*out = members;
	else
		kvw_members_destroy(members);
	return err;
}

void kvw_members_destroy(struct kvw_members *members)
{
	struct place *place;

	if (members == NULL)
		return;
	if (members->prober != NULL)
		kvw_prober_on_ranks(members->prober, NULL, NULL);
	if (members->tick != NULL)
		event_free(members->tick);
	while ((place = members->leaving) != NULL) {
		members->leaving = place->next;
		place_destroy(place);
	}
	for (size_t i = 0; i < members->count; i++) {
		for (size_t at = 0; at < KVW_RANKS_MOST; at++)
			if (members->items[i]->places[at] != NULL)
				place_destroy(members->items[i]->places[at]);
		kvw_member_destroy(members->items[i]);
	}
	free(members->items);
	free(members);
}
