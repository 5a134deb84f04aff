/*
 * server.c - one server: resolves its name, connects its links, and tries again after failures.
 */
#include "redis/server.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"

#define MS                INT64_C(1000000)
#define RETRY_LEAST_NS    (50 * MS)
#define RETRY_DOUBLINGS   6 /* then RETRY_MOST_NS */
#define RETRY_MOST_NS     (2000 * MS)
#define ADDRESSES_LIVE_NS (10000 * MS)
#define QUIET_SAME_NS     (30000 * MS) /* time before the same reason is logged again */
#define QUIET_NS          (1000 * MS)

struct kvw_redis_server *kvw_redis_server_create(struct kvw_redis_server_settings *settings,
	const char *host, uint16_t port, enum kvw_redis_server_role role)
{
	struct kvw_redis_server *server = calloc(1, sizeof(*server));

	if (server == NULL)
		return NULL;
	server->settings = settings;
	server->role = role;
	server->port = port;
	snprintf(server->host, sizeof(server->host), "%s", host);
	server->retry_ns = server->quiet_ns = INT64_MIN;
	server->slot_count = role == KVW_REDIS_SERVER_DATA ? settings->connections : 1;
	server->slots = calloc(server->slot_count, sizeof(*server->slots));
	if (server->slots == NULL)
		goto fail;
	for (uint32_t i = 0; i < server->slot_count; i++) {
		server->slots[i].link = kvw_redis_link_create(settings->epoll, server);
		if (server->slots[i].link == NULL)
			goto fail;
	}
	if (kvw_resolve_literal(host, port, &server->addresses))
		server->addresses_ns = INT64_MAX;
	return server;
fail:
	kvw_redis_server_discard(server);
	return NULL;
}

void kvw_redis_server_discard(struct kvw_redis_server *server)
{
	if (server == NULL)
		return;
	for (uint32_t i = 0; server->slots != NULL && i < server->slot_count; i++)
		kvw_redis_link_destroy(server->slots[i].link);
	kvw_resolve_drop(server->question);
	free(server->slots);
	free(server);
}

/* --- log -------------------------------------------------------------------------------------- */

static void print_name(const struct kvw_redis_server *server, char *out, size_t room)
{
	if (server->port == 0)
		snprintf(out, room, "%s", server->host);
	else
		snprintf(out, room, strchr(server->host, ':') != NULL ? "[%s]:%u" : "%s:%u",
			server->host, server->port);
}

/* Logs a reason, and logs it again after QUIET_SAME_NS; at most one line per second. */
static void log_trouble(struct kvw_redis_server *server, const char *why, int64_t now_ns)
{
	char name[KVW_REDIS_URL_TEXT + 16];
	bool same = server->logged_down && strcmp(server->logged, why) == 0;

	snprintf(server->why, sizeof(server->why), "%s", why);
	if (now_ns < server->quiet_ns ||
		(same && now_ns < server->quiet_ns - QUIET_NS + QUIET_SAME_NS))
		return;
	server->quiet_ns = now_ns + QUIET_NS;
	server->logged_down = true;
	snprintf(server->logged, sizeof(server->logged), "%s", why);
	print_name(server, name, sizeof(name));
	kvw_redis_note(server->settings->env, KVW_LOG_WARN, "redis: %s: %s", name, why);
}

static void log_works(struct kvw_redis_server *server)
{
	char name[KVW_REDIS_URL_TEXT + 16];

	if (server->logged_up && !server->logged_down)
		return;
	print_name(server, name, sizeof(name));
	kvw_redis_note(server->settings->env, KVW_LOG_INFO, "redis: %s: %s", name,
		server->logged_down ? "works again" : "connected");
	server->logged_up = true;
	server->logged_down = false;
}

/* --- attempts --------------------------------------------------------------------------------- */

/* Sets retry_ns to a time that is later with each failure, by a random quarter more or less. */
static void back_off(struct kvw_redis_server *server, int64_t now_ns)
{
	int64_t delay_ns = server->failures < RETRY_DOUBLINGS ? RETRY_LEAST_NS << server->failures
							      : RETRY_MOST_NS;

	if (delay_ns > RETRY_MOST_NS)
		delay_ns = RETRY_MOST_NS;
	delay_ns += delay_ns / 4 - (int64_t)kvw_random_below(
					   &server->settings->random, (uint32_t)(delay_ns / 2));
	server->failures++;
	server->retry_ns = now_ns + delay_ns;
}

static unsigned attempt_failed(struct kvw_redis_server *server, const char *why, int64_t now_ns)
{
	back_off(server, now_ns);
	log_trouble(server, why, now_ns);
	if (server->addresses_ns != INT64_MAX)
		/* the name may have another address now, so it is resolved again */
		server->addresses_ns = INT64_MIN;
	if (server->ready > 0)
		return KVW_REDIS_SERVER_CHANGED;
	server->down = true;
	return KVW_REDIS_SERVER_WENT_DOWN;
}

static void open_slot(
	struct kvw_redis_server *server, struct kvw_redis_link_slot *slot, int64_t give_up_ns)
{
	const struct kvw_redis_server_settings *settings = server->settings;
	const struct kvw_resolve_address *address;
	struct kvw_redis_link_target target;

	if (slot->address >= server->addresses.count)
		slot->address = 0;
	address = &server->addresses.items[slot->address];
	target = (struct kvw_redis_link_target){
		.address = &address->to.any,
		.address_len = address->len,
		.host = server->host,
		.tls = server->port == 0 ? NULL : settings->tls,
		.login = &settings->logins[server->role],
	};
	slot->open = true;
	kvw_redis_link_open(slot->link, &target, give_up_ns);
}

static bool have_addresses(const struct kvw_redis_server *server, int64_t now_ns)
{
	return server->addresses.count > 0 &&
	       (server->addresses_ns == INT64_MAX ||
		       (server->addresses_ns != INT64_MIN &&
			       now_ns - server->addresses_ns < ADDRESSES_LIVE_NS));
}

/* Opens closed links: only one while none is ready, else all. */
static void open_links(struct kvw_redis_server *server, int64_t give_up_ns)
{
	uint32_t under_way = 0;

	for (uint32_t i = 0; i < server->slot_count; i++)
		under_way += server->slots[i].open;
	for (uint32_t i = 0; i < server->slot_count; i++) {
		struct kvw_redis_link_slot *slot = &server->slots[i];

		if (slot->open)
			continue;
		if (server->ready == 0 && under_way > 0)
			return;
		slot->untried = server->addresses.count - 1;
		open_slot(server, slot, give_up_ns);
		under_way++;
	}
}

/* Begins an attempt to connect if one is due and a link is closed. */
static void attempt(struct kvw_redis_server *server, int64_t now_ns)
{
	int64_t give_up_ns = now_ns + server->settings->connect_ns;
	const char *host = server->host;

	if (now_ns < server->retry_ns || server->give_up_ns != 0)
		return;
	if (have_addresses(server, now_ns)) {
		open_links(server, give_up_ns);
		return;
	}
	if (server->question == NULL &&
		kvw_resolve_begin(host, server->port, server->settings->wake, &server->question) !=
			KVW_OK)
		/* the attempt ends at its time limit, and is logged then */
		server->question = NULL;
	server->give_up_ns = give_up_ns;
}

static unsigned resolve_turn(struct kvw_redis_server *server, int64_t now_ns, int64_t *next_ns)
{
	int64_t give_up_ns = server->give_up_ns;
	const char *why = NULL;
	char text[KVW_REDIS_REASON];

	if (server->question != NULL &&
		kvw_resolve_answered(server->question, &server->addresses, &why)) {
		kvw_resolve_drop(server->question);
		server->question = NULL;
		server->addresses_ns = now_ns;
	} else if (give_up_ns == 0 || now_ns < give_up_ns) {
		if (give_up_ns != 0 && give_up_ns < *next_ns)
			*next_ns = give_up_ns;
		return 0;
	} else {
		why = "no answer in time";
	}
	if (give_up_ns == 0)
		return 0;
	server->give_up_ns = 0;
	if (why == NULL) {
		open_links(server, give_up_ns);
		return 0;
	}
	snprintf(text, sizeof(text), "cannot find its address: %.100s", why);
	return attempt_failed(server, text, now_ns);
}

/* --- commands --------------------------------------------------------------------------------- */

enum kvw_redis_server_offer kvw_redis_server_offer(
	struct kvw_redis_server *server, int64_t now_ns, struct kvw_redis_link **out)
{
	struct kvw_redis_link *best = NULL;
	bool closed = false;

	for (uint32_t i = 0; i < server->slot_count; i++) {
		struct kvw_redis_link *link = server->slots[i].link;

		closed |= !server->slots[i].open;
		if (kvw_redis_link_state(link) == KVW_REDIS_LINK_READY &&
			server->slots[i].was_ready &&
			(best == NULL || kvw_redis_link_bytes(link) < kvw_redis_link_bytes(best)))
			best = link;
	}
	if (closed)
		attempt(server, now_ns);
	if (best != NULL) {
		*out = best;
		return KVW_REDIS_SERVER_READY;
	}
	return server->down && now_ns < server->retry_ns ? KVW_REDIS_SERVER_DOWN
							 : KVW_REDIS_SERVER_LATER;
}

static void take_all(struct kvw_redis_link *link, struct kvw_redis_commands *to)
{
	struct kvw_redis_command *c;

	while ((c = kvw_redis_link_take(link)) != NULL)
		kvw_redis_commands_add(to, c);
}

/* --- turns ------------------------------------------------------------------------------------ */

static unsigned became_ready(
	struct kvw_redis_server *server, struct kvw_redis_link_slot *slot, int64_t now_ns)
{
	slot->was_ready = true;
	slot->answered = false;
	slot->readies++;
	server->down = false;
	log_works(server);
	if (server->ready++ > 0)
		return KVW_REDIS_SERVER_CHANGED;
	if (now_ns >= server->retry_ns)
		open_links(server, now_ns + server->settings->connect_ns);
	return KVW_REDIS_SERVER_WENT_UP;
}

/* Called when a link is found closed. in_use: it had commands, whose results show the failure. */
static unsigned became_closed(struct kvw_redis_server *server, struct kvw_redis_link_slot *slot,
	bool in_use, int64_t now_ns)
{
	struct kvw_redis_link *link = slot->link;
	bool was_ready = slot->was_ready;

	slot->was_ready = slot->open = false;
	if (was_ready) {
		server->ready--;
		snprintf(server->why, sizeof(server->why), "%s", kvw_redis_link_why(link));
		if (in_use)
			log_trouble(server, kvw_redis_link_why(link), now_ns);
		if (!slot->answered)
			back_off(server, now_ns);
		return KVW_REDIS_SERVER_CHANGED;
	}
	slot->address++;
	if (!kvw_redis_link_refused(link) && slot->untried > 0 &&
		now_ns < kvw_redis_link_give_up_ns(link)) {
		slot->untried--;
		open_slot(server, slot, kvw_redis_link_give_up_ns(link));
		return 0;
	}
	return attempt_failed(server, kvw_redis_link_why(link), now_ns);
}

static void give_up(struct kvw_redis_server *server, struct kvw_redis_link *link)
{
	static const char *const at[] = {
		[KVW_REDIS_LINK_CONNECTING] = "connecting",
		[KVW_REDIS_LINK_SECURING] = "TLS handshake",
		[KVW_REDIS_LINK_LOGIN] = "login",
	};
	char why[KVW_REDIS_REASON];

	snprintf(why, sizeof(why), "%s: no answer within %lld ms", at[kvw_redis_link_state(link)],
		(long long)(server->settings->connect_ns / MS));
	kvw_redis_link_close(link, why);
}

static unsigned slot_turn(struct kvw_redis_server *server, struct kvw_redis_link_slot *slot,
	int64_t now_ns, struct kvw_redis_commands *answered, struct kvw_redis_commands *returned,
	int64_t *next_ns)
{
	struct kvw_redis_link *link = slot->link;
	size_t before = answered->count;
	unsigned news = 0;
	enum kvw_redis_link_state state;

	if (!slot->open)
		return 0;
	if (kvw_redis_link_turn(link, answered))
		*next_ns = now_ns;
	state = kvw_redis_link_state(link);
	if (state != KVW_REDIS_LINK_CLOSED && state != KVW_REDIS_LINK_READY) {
		if (now_ns >= kvw_redis_link_give_up_ns(link))
			give_up(server, link);
		else if (kvw_redis_link_give_up_ns(link) < *next_ns)
			*next_ns = kvw_redis_link_give_up_ns(link);
		state = kvw_redis_link_state(link);
	}
	if (state == KVW_REDIS_LINK_READY && !slot->was_ready)
		news = became_ready(server, slot, now_ns);
	if (answered->count > before) {
		slot->answered = true;
		server->failures = 0;
	}
	if (state == KVW_REDIS_LINK_CLOSED) {
		bool in_use = kvw_redis_link_commands(link)->count > 0 || slot->late;

		slot->late = false;
		take_all(link, returned);
		news |= became_closed(server, slot, in_use, now_ns);
	}
	return news;
}

unsigned kvw_redis_server_turn(struct kvw_redis_server *server, int64_t now_ns,
	struct kvw_redis_commands *answered, struct kvw_redis_commands *returned, int64_t *next_ns)
{
	unsigned news = resolve_turn(server, now_ns, next_ns);

	for (uint32_t i = 0; i < server->slot_count; i++)
		news |= slot_turn(server, &server->slots[i], now_ns, answered, returned, next_ns);
	return news;
}

static void expire_slot(struct kvw_redis_link_slot *slot, int64_t now_ns,
	struct kvw_redis_commands *late, struct kvw_redis_commands *returned, int64_t *next_ns)
{
	struct kvw_redis_link *link = slot->link;
	struct kvw_redis_command *c = kvw_redis_link_commands(link)->first, *following;

	for (; c != NULL; c = following) {
		following = c->next;
		if (c->deadline_ns > now_ns) {
			if (c->deadline_ns < *next_ns)
				*next_ns = c->deadline_ns;
			continue;
		}
		kvw_redis_link_cancel(link, c);
		kvw_redis_commands_add(late, c);
	}
	if (!slot->open || kvw_redis_link_state(link) != KVW_REDIS_LINK_CLOSED)
		return;
	slot->late = true;
	take_all(link, returned);
}

void kvw_redis_server_expire(struct kvw_redis_server *server, int64_t now_ns,
	struct kvw_redis_commands *late, struct kvw_redis_commands *returned, int64_t *next_ns)
{
	for (uint32_t i = 0; i < server->slot_count; i++)
		expire_slot(&server->slots[i], now_ns, late, returned, next_ns);
}

void kvw_redis_server_renew(struct kvw_redis_server *server)
{
	if (server->addresses_ns != INT64_MAX)
		server->addresses_ns = INT64_MIN;
	for (uint32_t i = 0; i < server->slot_count; i++) {
		if (!server->slots[i].was_ready)
			continue;
		server->slots[i].answered = true; /* a link without commands has not failed */
		kvw_redis_link_close(server->slots[i].link, "connecting again");
	}
}

void kvw_redis_server_close(
	struct kvw_redis_server *server, struct kvw_redis_commands *returned, const char *why)
{
	for (uint32_t i = 0; i < server->slot_count; i++) {
		kvw_redis_link_close(server->slots[i].link, why);
		take_all(server->slots[i].link, returned);
	}
}

/* --- eyes ------------------------------------------------------------------------------------- */

void kvw_redis_server_stats(
	const struct kvw_redis_server *server, struct kvw_redis_server_stats *out)
{
	for (uint32_t i = 0; i < server->slot_count; i++) {
		const struct kvw_redis_link_slot *slot = &server->slots[i];

		out->reconnects += slot->readies > 1 ? slot->readies - 1 : 0;
		out->sent_bytes += kvw_redis_link_sent_bytes(slot->link);
		out->received_bytes += kvw_redis_link_received_bytes(slot->link);
	}
	out->connections += server->ready;
}

const char *kvw_redis_server_why(const struct kvw_redis_server *server)
{
	return server->why;
}

const char *kvw_redis_server_host(const struct kvw_redis_server *server)
{
	return server->host;
}

uint16_t kvw_redis_server_port(const struct kvw_redis_server *server)
{
	return server->port;
}

bool kvw_redis_server_ready(const struct kvw_redis_server *server)
{
	for (uint32_t i = 0; i < server->slot_count; i++)
		if (server->slots[i].was_ready &&
			kvw_redis_link_state(server->slots[i].link) == KVW_REDIS_LINK_READY)
			return true;
	return false;
}

const char *kvw_redis_server_info(const struct kvw_redis_server *server)
{
	for (uint32_t i = 0; i < server->slot_count; i++)
		if (server->slots[i].was_ready)
			return kvw_redis_link_info(server->slots[i].link);
	return kvw_redis_link_info(server->slots[0].link);
}

void kvw_redis_server_set_user(struct kvw_redis_server *server, void *user)
{
	server->user = user;
}

void *kvw_redis_server_user(const struct kvw_redis_server *server)
{
	return server->user;
}
