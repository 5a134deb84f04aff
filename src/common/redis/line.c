/*
 * line.c - the line of waiting commands, and commands that servers answered or lost connections
 * returned.
 *
 * Order. Commands are sent in the order of arrival while there is room in flight. A command that
 * waits for its own server (connecting, or no route known) lets others pass; a command that waits
 * for room does not, so that small values do not starve large ones. A command larger than the whole
 * room goes alone.
 *
 * Cost. Commands that have to wait are not looked at again before something has changed for them
 * (`again`), so a long line costs nothing in the common case.
 *
 * Deadlines. One lower bound of all deadlines is kept; only when it passes are all commands looked
 * at and the bound computed again. As deadlines are much longer than a command's life, that happens
 * about once in a deadline's length.
 */
#include <stdio.h>
#include <string.h>

#include "redis/client.h"

/* a command ends after so many lost connections, since it may be the cause of their loss */
#define TRIES_MAX     5
#define REDIRECTS_MAX 16 /* without reply in between */
#define NOTE_QUIET_NS (10 * INT64_C(1000000000))

/* --- the ends of commands --------------------------------------------------------------------- */

void kvw_redis_line_finish(struct kvw_redis *r, struct kvw_redis_command *command,
	enum kvw_err status, const char *text)
{
	command->status = status;
	if (text != NULL) {
		command->reply = KVW_REDIS_NONE;
		snprintf(command->text, sizeof(command->text), "%s", text);
	}
	kvw_redis_commands_add(&r->finished, command);
}

static void note_reason(struct kvw_redis *r, const char *why)
{
	snprintf(r->stats.reason, sizeof(r->stats.reason), "%.*s", KVW_REDIS_REASON - 1, why);
}

static void finish_failed(struct kvw_redis *r, struct kvw_redis_command *command, const char *why)
{
	note_reason(r, why);
	kvw_redis_line_finish(r, command, KVW_EIO, why);
}

static void finish_late(struct kvw_redis *r, struct kvw_redis_command *command, const char *why)
{
	note_reason(r, why);
	r->stats.timeouts++;
	kvw_redis_line_finish(r, command, KVW_ETIMEDOUT, why);
}

/* --- joining and leaving the line ------------------------------------------------------------- */

static uint64_t weight_of(const struct kvw_redis_command *c)
{
	uint64_t bytes = c->lead_room;

	for (uint32_t i = 0; i < c->part_count; i++)
		bytes += c->parts[i].iov_len;
	for (uint32_t i = 0; i < c->into_count; i++)
		bytes += c->into[i].iov_len;
	return c->elements ? bytes + c->element_limit : bytes;
}

static void expect_deadline(struct kvw_redis *r, const struct kvw_redis_command *c)
{
	if (c->deadline_ns < r->deadline_ns)
		r->deadline_ns = c->deadline_ns;
}

void kvw_redis_line_add(struct kvw_redis *r, struct kvw_redis_command *command)
{
	command->progress.bytes = weight_of(command);
	expect_deadline(r, command);
	if (command->progress.exact) {
		kvw_redis_commands_add(&r->control, command);
		return;
	}
	kvw_redis_commands_add(&r->line, command);
	if (r->unseen == NULL)
		r->unseen = command;
}

static void leave_line(struct kvw_redis *r, struct kvw_redis_command *c)
{
	if (c->progress.exact) {
		kvw_redis_commands_remove(&r->control, c);
		return;
	}
	if (r->unseen == c)
		r->unseen = c->next;
	kvw_redis_commands_remove(&r->line, c);
}

/* Puts a command at the head of the line, because it has waited once already. */
static void rejoin(struct kvw_redis *r, struct kvw_redis_command *c)
{
	c->progress.sent = 0;
	expect_deadline(r, c);
	kvw_redis_commands_add_first(c->progress.exact ? &r->control : &r->line, c);
	r->again = true;
}

static void count_out(struct kvw_redis *r, struct kvw_redis_command *c)
{
	if (!c->progress.counted)
		return;
	c->progress.counted = false;
	r->in_flight--;
	r->in_flight_bytes -= c->progress.bytes;
}

static void count_in(struct kvw_redis *r, struct kvw_redis_command *c)
{
	c->progress.counted = true;
	r->in_flight++;
	r->in_flight_bytes += c->progress.bytes;
}

/* --- sending ---------------------------------------------------------------------------------- */

static bool fits(const struct kvw_redis *r, const struct kvw_redis_command *c)
{
	return c->progress.exact || r->in_flight == 0 ||
	       r->in_flight_bytes + c->progress.bytes <= r->options.inflight_bytes;
}

/* Lets the whole line be looked at again at this time. */
static void look_at(struct kvw_redis *r, int64_t at_ns)
{
	if (at_ns < r->look_ns)
		r->look_ns = at_ns;
}

/* Called for each waiting command of a server that is not reachable now: the command waits for a
 * new route, or ends. A waiting command's text becomes the reason, in case its deadline passes. */
static void server_down(
	struct kvw_redis *r, struct kvw_redis_command *c, const struct kvw_redis_server *server)
{
	if (server->patient && !c->progress.exact) {
		snprintf(c->text, sizeof(c->text), "%.60s:%u: %.120s", server->host, server->port,
			server->why);
		look_at(r, server->retry_ns);
		return;
	}
	leave_line(r, c);
	finish_failed(r, c, server->why);
}

/* Chooses the server of one command in line. Returns true if a link got the command. */
static bool send_one(struct kvw_redis *r, struct kvw_redis_command *c, int64_t now_ns)
{
	struct kvw_redis_server *server = c->progress.to;
	struct kvw_redis_link *link = NULL;
	const char *why = "";
	enum kvw_redis_route route = KVW_REDIS_ROUTE_TO;

	if (c->progress.not_before_ns > now_ns) {
		look_at(r, c->progress.not_before_ns);
		return false;
	}
	if (server == NULL)
		route = r->topology->ops->route(r->topology, c, &server, &why);
	if (route == KVW_REDIS_ROUTE_NONE) {
		leave_line(r, c);
		finish_failed(r, c, why);
	}
	if (route == KVW_REDIS_ROUTE_WAIT && why[0] != '\0')
		snprintf(c->text, sizeof(c->text), "%s", why);
	if (route != KVW_REDIS_ROUTE_TO)
		return false;
	switch (kvw_redis_server_offer(server, now_ns, &link)) {
	case KVW_REDIS_SERVER_LATER:
		if (server->retry_ns > now_ns)
			look_at(r, server->retry_ns);
		return false;
	case KVW_REDIS_SERVER_DOWN:
		server_down(r, c, server);
		return false;
	case KVW_REDIS_SERVER_READY:
		break;
	}
	leave_line(r, c);
	if (!c->progress.exact)
		c->progress.to = NULL;
	c->progress.tries++;
	count_in(r, c);
	kvw_redis_link_submit(link, c);
	return true;
}

static bool send_control(struct kvw_redis *r, int64_t now_ns)
{
	struct kvw_redis_command *following;
	bool sent = false;

	for (struct kvw_redis_command *c = r->control.first; c != NULL; c = following) {
		following = c->next;
		sent |= send_one(r, c, now_ns);
	}
	return sent;
}

bool kvw_redis_line_send(struct kvw_redis *r, int64_t now_ns, int64_t *next_ns)
{
	bool all = r->again || now_ns >= r->look_ns, sent;
	struct kvw_redis_command *c, *following;

	r->again = false;
	if (all)
		r->look_ns = INT64_MAX;
	sent = send_control(r, now_ns);
	for (c = all ? r->line.first : r->unseen; c != NULL && fits(r, c); c = following) {
		following = c->next;
		sent |= send_one(r, c, now_ns);
	}
	r->unseen = c;
	if (r->look_ns < *next_ns)
		*next_ns = r->look_ns;
	return sent;
}

/* --- coming back ------------------------------------------------------------------------------ */

/* Logs those error replies that an operator has to act on. */
static void note_error(struct kvw_redis *r, const struct kvw_redis_command *c, int64_t now_ns)
{
	static const char *const notable[] = {
		"NOPERM", "NOAUTH", "READONLY", "MISCONF", "OOM", "WRONGTYPE", "ERR"};
	bool found = false;

	for (size_t i = 0; i < sizeof(notable) / sizeof(notable[0]); i++)
		found |= strncmp(c->text, notable[i], strlen(notable[i])) == 0;
	if (!found || now_ns < r->note_ns)
		return;
	r->note_ns = now_ns + NOTE_QUIET_NS;
	kvw_redis_note(&r->options.env, KVW_LOG_WARN, "redis: a command was refused: %s", c->text);
}

static bool wanted_again(struct kvw_redis *r, struct kvw_redis_command *c,
	struct kvw_redis_server *server, int64_t now_ns)
{
	if (c->progress.exact ||
		r->topology->ops->error(r->topology, c, server) != KVW_REDIS_VERDICT_AGAIN)
		return false;
	r->stats.redirects++;
	return c->progress.redirects++ < REDIRECTS_MAX || c->progress.not_before_ns > now_ns;
}

static void settle_answered(struct kvw_redis *r, struct kvw_redis_server *server,
	struct kvw_redis_command *c, int64_t now_ns)
{
	r->stats.replies++;
	if (c->status == KVW_EPROTO) {
		note_reason(r, c->text);
	} else if (c->reply == KVW_REDIS_ERROR) {
		r->stats.errors++;
		c->progress.asking = false;
		if (wanted_again(r, c, server, now_ns)) {
			rejoin(r, c);
			return;
		}
		note_reason(r, c->text);
		note_error(r, c, now_ns);
	} else {
		r->stats.reason[0] = '\0';
	}
	kvw_redis_commands_add(&r->finished, c);
}

static void settle_returned(struct kvw_redis *r, struct kvw_redis_server *server,
	struct kvw_redis_command *c, bool counted)
{
	c->progress.asking = false;
	if (!counted)
		c->progress.tries--;
	if (c->progress.tries >= TRIES_MAX || (c->progress.exact && server->unwanted)) {
		finish_failed(r, c, kvw_redis_server_why(server));
		return;
	}
	r->stats.retries++;
	rejoin(r, c);
}

void kvw_redis_line_settle(struct kvw_redis *r, struct kvw_redis_server *server, int64_t now_ns,
	struct kvw_redis_commands *answered, struct kvw_redis_commands *returned, bool counted)
{
	struct kvw_redis_command *c;

	while ((c = kvw_redis_commands_take(answered)) != NULL) {
		count_out(r, c);
		settle_answered(r, server, c, now_ns);
	}
	/* begins with the last, since each goes to the head of the line */
	while ((c = returned->last) != NULL) {
		kvw_redis_commands_remove(returned, c);
		count_out(r, c);
		settle_returned(r, server, c, counted);
	}
}

/* --- deadlines -------------------------------------------------------------------------------- */

static void expire_list(struct kvw_redis *r, struct kvw_redis_command *first, int64_t now_ns)
{
	struct kvw_redis_command *following;
	char why[KVW_REDIS_TEXT];

	for (struct kvw_redis_command *c = first; c != NULL; c = following) {
		following = c->next;
		if (c->deadline_ns > now_ns) {
			expect_deadline(r, c);
			continue;
		}
		leave_line(r, c);
		snprintf(why, sizeof(why), "could not be sent within the deadline%s%.120s",
			c->text[0] != '\0' ? ": " : "", c->text);
		finish_late(r, c, why);
	}
}

void kvw_redis_line_expire(struct kvw_redis *r, int64_t now_ns)
{
	if (now_ns < r->deadline_ns)
		return;
	r->deadline_ns = INT64_MAX;
	for (struct kvw_redis_server *server = r->servers; server != NULL; server = server->next) {
		struct kvw_redis_commands late = {0}, returned = {0}, none = {0};
		struct kvw_redis_command *c;

		kvw_redis_server_expire(server, now_ns, &late, &returned, &r->deadline_ns);
		while ((c = kvw_redis_commands_take(&late)) != NULL) {
			count_out(r, c);
			finish_late(r, c, "no reply within the deadline");
		}
		kvw_redis_line_settle(r, server, now_ns, &none, &returned, false);
	}
	expire_list(r, r->control.first, now_ns);
	expire_list(r, r->line.first, now_ns);
}

/* --- the rest --------------------------------------------------------------------------------- */

void kvw_redis_line_forget(struct kvw_redis *r, const struct kvw_redis_server *server)
{
	struct kvw_redis_command *following;

	for (struct kvw_redis_command *c = r->line.first; c != NULL; c = c->next)
		if (c->progress.to == server)
			c->progress.to = NULL;
	for (struct kvw_redis_command *c = r->control.first; c != NULL; c = following) {
		following = c->next;
		if (c->progress.to != server)
			continue;
		leave_line(r, c);
		finish_failed(r, c, "this server is not in use any more");
	}
	r->again = true;
}

void kvw_redis_line_cancel(struct kvw_redis *r)
{
	struct kvw_redis_command *c;

	while ((c = kvw_redis_commands_take(&r->line)) != NULL ||
		(c = kvw_redis_commands_take(&r->control)) != NULL)
		kvw_redis_line_finish(r, c, KVW_ECLOSED, "the client ends");
	r->unseen = NULL;
}
