/*
 * members.c - see members.h.
 *
 * A member has an entry as long as a source lists it, or while it leaves. An entry owns a copy of
 * each source's settings; the effective one is looked up, not stored. A new list is first written
 * into the entries, then every entry is brought into line with the fleet (settle), so that the
 * order of the sources' reports does not matter.
 */
#include "fleet/members.h"

#include <stdlib.h>
#include <string.h>

#include <event2/event.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/search.h"
#include "fleet/resolver.h"

#define TICK_MS        50
#define REFUSED_NS     KVW_NS_PER_S
/* Time until no loop picks the worker from an older table any more. */
#define LEAST_LEAVE_NS (100 * KVW_NS_PER_MS)
#define GONE_PER_TICK  100                   /* most removals per tick: the thread has other work */

/* A worker in the fleet. A leaving one may have a successor of the same URL. */
struct place {
	struct place *next; /* next leaving one */
	struct kvw_members *members;
	struct kvw_worker *worker;
	struct kvw_resolver_watch *watch; /* NULL: its URL has a numeric address */
	bool leaving;
	int64_t leaves_ns, until_ns; /* start and latest end of leaving */
};

struct member {
	char *url;                                     /* owned, as the fleet writes it */
	/* settings by source, owned; url NULL: that source does not list it. */
	struct kvw_worker_config said[KVW_SOURCE_COUNT];
	struct place *place;                           /* NULL: not in the fleet, or leaving */
	bool rests, removed, refused;                  /* by the admin address; by the fleet */
	uint32_t mark;                                 /* of the list that was read last */
};

struct kvw_members {
	struct kvw_fleet *fleet;
	struct kvw_prober *prober;
	struct kvw_resolver *resolver;
	struct event *tick;
	struct member **items; /* [count], ascending by URL */
	size_t count, room;
	struct place *leaving;
	uint32_t mark;
	int64_t again_ns; /* time to retry members that could not join; 0: none */
	struct kvw_member_listing listings[KVW_SOURCE_COUNT];
};

const char *kvw_member_source_name(enum kvw_member_source source)
{
	static const char *const names[KVW_SOURCE_COUNT] = {
		"config", "file", "admin", "dns", "kubernetes"};

	return names[source];
}

/* --- entries --- */

/* The URL without the slashes at its end. */
static size_t url_len(const char *url)
{
	size_t len = strlen(url);

	while (len > 0 && url[len - 1] == '/')
		len--;
	return len;
}

static int compare_url(const void *key, const void *items, size_t at)
{
	return kvw_search_order(
		*(const struct kvw_slice *)key, ((struct member *const *)items)[at]->url);
}

/* Index of a URL, or of its insertion. */
static size_t place_of(const struct kvw_members *members, const char *url, bool *there)
{
	struct kvw_slice key = {url, url_len(url)};

	return kvw_search(&key, members->items, members->count, compare_url, there);
}

static struct member *find_member(const struct kvw_members *members, const char *url)
{
	bool there;
	size_t at = place_of(members, url, &there);

	return there ? members->items[at] : NULL;
}

static struct member *find_or_make(struct kvw_members *members, const char *url)
{
	bool there;
	size_t at = place_of(members, url, &there);
	struct member *member;

	if (there)
		return members->items[at];
	if (members->count == members->room) {
		size_t room = members->room == 0 ? 16 : 2 * members->room;
		struct member **grown = realloc(members->items, room * sizeof(*grown));

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
	members->items[at] = member;
	members->count++;
	return member;
}

static void member_destroy(struct member *member)
{
	for (int s = 0; s < KVW_SOURCE_COUNT; s++)
		kvw_worker_config_release(&member->said[s]);
	free(member->url);
	free(member);
}

/* The source whose settings are effective; KVW_SOURCE_COUNT: none lists it. */
static enum kvw_member_source lister(const struct member *member)
{
	int s = 0;

	while (s < KVW_SOURCE_COUNT && member->said[s].url == NULL)
		s++;
	return (enum kvw_member_source)s;
}

/* The effective settings; NULL: no source lists it, or the admin address has removed it. */
static const struct kvw_worker_config *wanted(const struct member *member)
{
	enum kvw_member_source source = lister(member);

	return member->removed || source == KVW_SOURCE_COUNT ? NULL : &member->said[source];
}

static enum kvw_err say(struct member *member, enum kvw_member_source source,
	const struct kvw_worker_config *config)
{
	struct kvw_worker_config copy;
	enum kvw_err err;

	if (member->said[source].url != NULL &&
		kvw_worker_config_equal(&member->said[source], config))
		return KVW_OK;
	err = kvw_worker_config_copy(config, &copy);
	if (err != KVW_OK)
		return err;
	kvw_worker_config_release(&member->said[source]);
	member->said[source] = copy;
	return KVW_OK;
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
	if ((atomic_load(&worker->barred) & KVW_BARRED_NO_ADDRESS) == 0 ||
		members->resolver == NULL)
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

/* Removes leaving workers that are done or out of time; many of them over several ticks. */
static void let_leave(struct kvw_members *members)
{
	struct place **link = &members->leaving, *place;
	int64_t now_ns = kvw_clock_ns();
	size_t removed = 0;

	while ((place = *link) != NULL && removed < GONE_PER_TICK) {
		bool idle = kvw_load_own_inflight(&place->worker->load) == 0;

		if (now_ns - place->leaves_ns < LEAST_LEAVE_NS ||
			(!idle && now_ns < place->until_ns)) {
			link = &place->next;
			continue;
		}
		*link = place->next;
		remove_place(members, place);
		removed++;
	}
}

/* Makes metrics show this worker of its URL, and no leaving one. */
static void show_alone(struct kvw_members *members, struct kvw_worker *worker)
{
	for (struct place *place = members->leaving; place != NULL; place = place->next)
		if (strcmp(place->worker->url, worker->url) == 0)
			atomic_store(&place->worker->hidden, true);
	atomic_store(&worker->hidden, false);
}

static bool join(struct kvw_members *members, struct member *member,
	const struct kvw_worker_config *config, struct kvw_members_change *change)
{
	struct kvw_worker *worker;
	enum kvw_err err =
		kvw_fleet_add(members->fleet, config, change->why, sizeof(change->why), &worker);

	if (err == KVW_OK) {
		member->place = place_create(members, worker);
		if (member->place == NULL)
			kvw_fleet_remove(members->fleet, worker);
	}
	if (member->place == NULL) {
		change->err = err == KVW_OK ? KVW_ENOMEM : err;
		if (!member->refused)
			kvw_error("fleet", "worker cannot join url=%s why=\"%s\"", member->url,
				change->why);
		member->refused = true;
		members->again_ns = kvw_clock_ns() + REFUSED_NS;
		return false;
	}
	member->refused = false;
	show_alone(members, worker);
	kvw_fleet_bar(members->fleet, worker, KVW_BARRED_DRAINING, member->rests);
	kvw_fleet_start_slowly(members->fleet, worker);
	if (members->prober != NULL && kvw_prober_add(members->prober, worker) != KVW_OK)
		kvw_error("fleet", "out of memory: worker is not probed url=%s", worker->url);
	kvw_info("fleet", "worker joins url=%s workers=%zu", worker->url,
		(size_t)members->fleet->live);
	return true;
}

/* --- changes --- */

/* Whether settings differ that a live worker can take over; other changes need a new worker. */
static bool differ_in_place(const struct kvw_worker_config *a, const struct kvw_worker_config *b)
{
	struct kvw_worker_config masked = *a;

	masked.models = b->models;
	masked.weight = b->weight;
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

/* Takes back a leaving worker that is listed again with the same settings. */
static struct place *call_back(struct kvw_members *members, const char *url,
	const struct kvw_worker_config *config)
{
	for (struct place **link = &members->leaving; *link != NULL; link = &(*link)->next) {
		struct place *place = *link;

		if (strcmp(place->worker->url, url) != 0 ||
			!differ_in_place(&place->worker->config, config))
			continue;
		*link = place->next;
		place->next = NULL;
		place->leaving = false;
		return place;
	}
	return NULL;
}

static void retire(struct kvw_members *members, struct member *member, bool at_once)
{
	struct place *place = member->place;

	member->place = NULL;
	start_leaving(members, place, at_once);
}

/* Replaces the member's worker by one with other settings; keeps the old one if the new one cannot
 * join. */
static bool replace(struct kvw_members *members, struct member *member,
	const struct kvw_worker_config *config, struct kvw_members_change *change)
{
	struct place *before = member->place;

	member->place = NULL;
	if (!join(members, member, config, change)) {
		member->place = before;
		return false;
	}
	atomic_store(&before->worker->hidden, true);
	start_leaving(members, before, false);
	return true;
}

/* Brings one member into line with the fleet. */
static void settle_member(struct kvw_members *members, struct member *member,
	struct kvw_members_change *change)
{
	const struct kvw_worker_config *config = wanted(member);

	if (config == NULL) {
		if (member->place != NULL) {
			retire(members, member, false);
			change->left++;
		}
		return;
	}
	if (member->place != NULL &&
		kvw_worker_config_equal(&member->place->worker->config, config))
		return;
	if (member->place != NULL && differ_in_place(&member->place->worker->config, config)) {
		change_in_place(members, member->place->worker, config);
		change->changed++;
		return;
	}
	if (member->place != NULL) {
		if (replace(members, member, config, change))
			change->changed++;
		else
			change->refused++;
		return;
	}
	member->place = call_back(members, member->url, config);
	if (member->place != NULL) {
		kvw_fleet_bar(
			members->fleet, member->place->worker, KVW_BARRED_DRAINING, member->rests);
		show_alone(members, member->place->worker);
		kvw_info("fleet", "worker stays url=%s", member->url);
		if (!kvw_worker_config_equal(&member->place->worker->config, config))
			change_in_place(members, member->place->worker, config);
		change->joined++;
	} else if (join(members, member, config, change)) {
		change->joined++;
	} else {
		change->refused++;
	}
}

/* Drops entries that no source lists. */
static void forget_unlisted(struct kvw_members *members)
{
	size_t kept = 0;

	for (size_t i = 0; i < members->count; i++) {
		struct member *member = members->items[i];
		bool listed = false;

		for (int s = 0; s < KVW_SOURCE_COUNT; s++)
			listed = listed || member->said[s].url != NULL;
		if (listed)
			members->items[kept++] = member;
		else
			member_destroy(member);
	}
	members->count = kept;
}

/* Leaving members first: they make room. */
static void settle_all(struct kvw_members *members, struct kvw_members_change *change)
{
	for (int joining = 0; joining < 2; joining++)
		for (size_t i = 0; i < members->count; i++)
			if ((wanted(members->items[i]) != NULL) == joining)
				settle_member(members, members->items[i], change);
	forget_unlisted(members);
}

/* Retries members that could not join: a slot may be free now. */
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

	(void)fd;
	(void)what;
	let_leave(members);
	(void)kvw_fleet_reap(members->fleet);
	try_again(members);
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

uint64_t kvw_member_listing_unreadable_s(const struct kvw_member_listing *listing, int64_t now_ns)
{
	int64_t ns = now_ns - atomic_load(&listing->unreadable_since_ns);

	if (!atomic_load(&listing->unreadable))
		return 0;
	return ns < KVW_NS_PER_S ? 1 : (uint64_t)(ns / KVW_NS_PER_S);
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
		struct member *member = find_or_make(members, workers[i].url);

		err = member == NULL ? KVW_ENOMEM : say(member, source, &workers[i]);
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
static enum kvw_err set_one(struct kvw_members *members, struct member *member,
	const struct kvw_worker_config *worker, char *why, size_t room)
{
	enum kvw_member_source source = lister(member);
	struct kvw_members_change change = {0};
	struct kvw_worker_config before;
	enum kvw_err err = kvw_worker_config_copy(&member->said[source], &before);

	if (err != KVW_OK)
		return err;
	err = say(member, source, worker);
	if (err == KVW_OK)
		settle_member(members, member, &change);
	if (err == KVW_OK && change.refused > 0) {
		(void)snprintf(why, room, "%s", change.why);
		(void)!say(member, source, &before);
		err = change.err;
	}
	kvw_worker_config_release(&before);
	return err;
}

enum kvw_err kvw_members_add(struct kvw_members *members, const struct kvw_worker_config *worker,
	char *why, size_t room)
{
	struct member *member = find_member(members, worker->url);
	bool removed = member != NULL && member->removed;
	enum kvw_err err;

	if (member != NULL && !member->removed && wanted(member) != NULL) {
		(void)snprintf(why, room, "`%s` is a worker already", member->url);
		return KVW_EINVAL;
	}
	if (members->fleet->live >= KVW_MAX_WORKERS) {
		(void)snprintf(why, room, "there are %d workers already", KVW_MAX_WORKERS);
		return KVW_ELIMIT;
	}
	member = find_or_make(members, worker->url);
	err = member == NULL ? KVW_ENOMEM : say(member, KVW_SOURCE_ADMIN, worker);
	if (err == KVW_OK) {
		member->removed = member->rests = false;
		err = set_one(members, member, worker, why, room);
	}
	if (err != KVW_OK && member != NULL) {
		kvw_worker_config_release(&member->said[KVW_SOURCE_ADMIN]);
		member->removed = removed;
	}
	forget_unlisted(members);
	return err;
}

enum kvw_err kvw_members_change(struct kvw_members *members, const struct kvw_worker_config *worker,
	char *why, size_t room)
{
	struct member *member = find_member(members, worker->url);

	if (member == NULL || wanted(member) == NULL) {
		(void)snprintf(why, room, "`%s` is not a worker", worker->url);
		return KVW_ENOTFOUND;
	}
	return set_one(members, member, worker, why, room);
}

enum kvw_err kvw_members_rest(struct kvw_members *members, const char *url, bool rests)
{
	struct member *member = find_member(members, url);

	if (member == NULL || wanted(member) == NULL)
		return KVW_ENOTFOUND;
	if (member->rests != rests)
		kvw_info("fleet", rests ? "worker rests: it gets no new requests url=%s"
					: "worker works again url=%s", member->url);
	member->rests = rests;
	if (member->place != NULL)
		kvw_fleet_bar(members->fleet, member->place->worker, KVW_BARRED_DRAINING, rests);
	return KVW_OK;
}

enum kvw_err kvw_members_remove(struct kvw_members *members, const char *url, bool at_once)
{
	struct member *member = find_member(members, url);

	if (member == NULL || wanted(member) == NULL)
		return KVW_ENOTFOUND;
	kvw_worker_config_release(&member->said[KVW_SOURCE_ADMIN]);
	member->removed = true;
	member->rests = false;
	if (member->place != NULL)
		retire(members, member, at_once);
	forget_unlisted(members);
	return KVW_OK;
}

const struct kvw_worker_config *kvw_members_find(struct kvw_members *members, const char *url)
{
	struct member *member = find_member(members, url);

	return member == NULL ? NULL : wanted(member);
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
	const struct member *member;

	if (index >= members->count)
		return view_leaving(members, index - members->count, out);
	member = members->items[index];
	*out = (struct kvw_member_view){.url = member->url,
		.worker = member->place == NULL ? NULL : member->place->worker,
		.rests = member->rests};
	for (int s = 0; s < KVW_SOURCE_COUNT; s++)
		if (member->said[s].url != NULL)
			out->sources |= 1u << s;
	return true;
}

/* --- life --- */

/* Adopts the workers of the configuration, with which the fleet was created. */
static enum kvw_err adopt(struct kvw_members *members)
{
	struct kvw_fleet *fleet = members->fleet;

	for (size_t i = 0; i < fleet->count; i++) {
		struct kvw_worker *worker = kvw_fleet_worker(fleet, i);
		struct member *member = worker == NULL ? NULL : find_or_make(members, worker->url);

		if (worker == NULL)
			continue;
		if (member == NULL ||
			say(member, KVW_SOURCE_CONFIG, &worker->config) != KVW_OK)
			return KVW_ENOMEM;
		member->place = place_create(members, worker);
		if (member->place == NULL)
			return KVW_ENOMEM;
	}
	note_list(members, KVW_SOURCE_CONFIG, fleet->live);
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
	if (members->tick != NULL)
		event_free(members->tick);
	while ((place = members->leaving) != NULL) {
		members->leaving = place->next;
		place_destroy(place);
	}
	for (size_t i = 0; i < members->count; i++) {
		if (members->items[i]->place != NULL)
			place_destroy(members->items[i]->place);
		member_destroy(members->items[i]);
	}
	free(members->items);
	free(members);
}
