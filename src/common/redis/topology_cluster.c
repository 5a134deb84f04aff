/*
 * topology_cluster.c - Redis Cluster: commands go to the master that owns their key's slot.
 *
 * The topology asks any server that answers for the owners with CLUSTER SLOTS, over a separate
 * connection, so that the question never waits behind values. It asks for the map at the first
 * command, every three seconds or so while there are commands (the only way to notice a master that
 * hangs), and soon after any hint of a change: MOVED (which also corrects its one slot at once), an
 * unreachable server, for as long as that lasts, CLUSTERDOWN, a slot without an owner. Two
 * questions are at least 200 ms apart, however many commands fail.
 *
 * Servers are asked in this order: the server that a MOVED named, then servers with open
 * connections, then the others of the last map, then those that failed lately or answered
 * CLUSTERDOWN (the minority side of a split network has an old map), then the seeds of the URL,
 * whose names are resolved again. The cluster counts as gone only when no server answers: until one
 * does, commands end with KVW_EIO. A dead master alone makes its commands wait: the map is asked
 * for again and again until it names the replica that took over, or the command's deadline passes.
 *
 * 	member   a server that the map or a redirection names; its place is what owner[] holds
 * 	owner    slot -> member; always a member that exists, or KVW_REDIS_NO_OWNER
 *
 * Invariant: a member without `listed` owns no slot but those a MOVED gave it since the last map.
 * Members that the map does not list any more are dropped, their commands go back into the line; a
 * member named by a redirection is kept for some seconds, since a server that imports its first
 * slot is in no map yet.
 *
 * Cost: a route is one look-up in an array of 32 KB; a new map one pass over 16384 slots.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "redis/inquiry.h"
#include "redis/slots.h"

#define SECOND_NS    INT64_C(1000000000)
#define MAP_EVERY_NS (3 * SECOND_NS)
#define MAP_GAP_NS   (SECOND_NS / 5)  /* least time from the end of one question to the next */
#define GONE_GAP_NS  (SECOND_NS / 2)  /* the same if no server answered */
/* a redirection keeps a member from being dropped for this time */
#define SPARE_NS     (10 * SECOND_NS)
/* a failure makes a member one of the last to be asked for this time */
#define DOUBT_NS     (5 * SECOND_NS)
/* longest answer: 16384 ranges of one slot, with three servers each */
#define ANSWER_BYTES (16 << 20)
#define MAX_WAIT_NS  (2 * SECOND_NS)  /* limit of one answer */

/* A server of the cluster. */
struct member {
	struct kvw_redis_node node;      /* port 0: this place is unused */
	struct kvw_redis_server *server; /* NULL: no command was sent to this member yet */
	int64_t named_ns;                /* time of the last redirection to it; 0: never */
	int64_t doubted_ns; /* time of its last failure to connect or to serve; 0: never */
	bool lost;          /* unreachable */
	bool listed;        /* in the present map */
	bool asked;         /* it was asked in this round of questions */
};

struct cluster {
	struct kvw_redis_topology base;
	struct kvw_redis *r;
	const struct kvw_redis_options *options;
	struct member members[KVW_REDIS_SERVERS];
	uint16_t owner[KVW_REDIS_SLOTS];
	uint32_t masters; /* number of masters in the present map */
	bool known;       /* there is a map */
	bool gone;        /* no server answered in the last round; `reason` has the cause */
	bool used;        /* commands came since the last map */

	struct kvw_redis_inquiry inquiry;
	/* the server that is asked now or was asked last; may be NULL */
	struct kvw_redis_server *control;
	struct kvw_redis_node asked;      /* the server that was asked */
	bool seeds_asked[KVW_REDIS_URL_NODES];
	bool round;                    /* a round of questions is under way */
	const struct member *informed; /* the member to ask first; may be NULL */
	int64_t due_ns;                /* time of the next round of questions */
	int64_t earliest_ns;           /* no round before */

	struct kvw_redis_slot_map map; /* the last answer */
	char reason[KVW_REDIS_REASON];
};

static int64_t now_of(struct cluster *c)
{
	return kvw_redis_now(kvw_redis_client_env(c->r));
}

/* Asks for a map as soon as the gap between questions allows. */
static void want_map(struct cluster *c)
{
	c->used = true;
	if (c->due_ns > c->earliest_ns)
		c->due_ns = c->earliest_ns;
}

/* --- members ---------------------------------------------------------------------------------- */

/* Finds a member, or adds it. NULL: there is no room for a new one. */
static struct member *member_of(struct cluster *c, const struct kvw_redis_node *node)
{
	struct member *free_place = NULL;

	for (size_t i = 0; i < KVW_REDIS_SERVERS; i++) {
		struct member *m = &c->members[i];

		if (m->node.port == 0)
			free_place = free_place != NULL ? free_place : m;
		else if (kvw_redis_same_node(&m->node, node))
			return m;
	}
	if (free_place != NULL)
		*free_place = (struct member){.node = *node};
	return free_place;
}

/* NULL: no memory. */
static struct kvw_redis_server *server_of(struct cluster *c, struct member *m)
{
	if (m->server == NULL) {
		m->server = kvw_redis_client_server(
			c->r, m->node.host, m->node.port, KVW_REDIS_SERVER_DATA);
		if (m->server != NULL)
			kvw_redis_server_set_user(m->server, m);
	}
	return m->server;
}

/* Drops a member that owns no slot. */
static void member_drop(struct cluster *c, struct member *m)
{
	if (c->informed == m)
		c->informed = NULL;
	if (m->server != NULL)
		kvw_redis_client_drop_server(c->r, m->server);
	*m = (struct member){.node.port = 0};
}

/* --- a new map -------------------------------------------------------------------------------- */

/* Marks a server of the map as listed. If there is no room, drops members that the map does not
 * list, also those that a redirection named. */
static struct member *list_node(struct cluster *c, const struct kvw_redis_node *node)
{
	struct member *m = member_of(c, node);

	for (size_t i = 0; m == NULL && i < KVW_REDIS_SERVERS; i++) {
		if (c->members[i].listed)
			continue;
		member_drop(c, &c->members[i]);
		m = member_of(c, node);
	}
	if (m != NULL)
		m->listed = true;
	return m;
}

/* Drops the members that own no slot, unless a redirection named them lately. Replicas stay without
 * connections, as servers to ask. */
static void let_go(struct cluster *c, const bool *owns, int64_t now)
{
	for (size_t i = 0; i < KVW_REDIS_SERVERS; i++) {
		struct member *m = &c->members[i];

		if (m->node.port == 0 || owns[i] ||
			(m->named_ns != 0 && now - m->named_ns <= SPARE_NS))
			continue;
		if (!m->listed) {
			member_drop(c, m);
		} else if (m->server != NULL) {
			kvw_redis_client_drop_server(c->r, m->server);
			m->server = NULL;
			m->lost = false;
		}
	}
}

/* Uses the new map: sets the owner of every slot before it drops any member. */
static void adopt_map(struct cluster *c, int64_t now)
{
	const struct kvw_redis_slot_map *map = &c->map;
	uint16_t member_at[KVW_REDIS_SERVERS];
	bool owns[KVW_REDIS_SERVERS] = {false};

	for (size_t i = 0; i < KVW_REDIS_SLOTS; i++)
		c->owner[i] = KVW_REDIS_NO_OWNER;
	for (size_t i = 0; i < KVW_REDIS_SERVERS; i++)
		c->members[i].listed = false;
	for (size_t i = 0; i < map->node_count; i++) {
		struct member *m = list_node(c, &map->nodes[i]);

		member_at[i] = m != NULL ? (uint16_t)(m - c->members) : KVW_REDIS_NO_OWNER;
	}
	for (size_t i = 0; i < KVW_REDIS_SLOTS; i++) {
		if (map->owner[i] == KVW_REDIS_NO_OWNER)
			continue;
		c->owner[i] = member_at[map->owner[i]];
		if (c->owner[i] != KVW_REDIS_NO_OWNER)
			owns[c->owner[i]] = true;
	}
	let_go(c, owns, now);
	if (!c->known || c->masters != map->master_count)
		kvw_redis_note(kvw_redis_client_env(c->r), KVW_LOG_INFO,
			"redis: a cluster of %u masters, %u slots covered, as %s:%u says",
			map->master_count, map->covered, c->asked.host, c->asked.port);
	c->masters = map->master_count;
	c->known = true;
}

/* --- asking for it ---------------------------------------------------------------------------- */

/* Returns a member's rank as a server to ask for the map: a higher one is asked first; 0: it is not
 * asked. */
static unsigned rank_of(const struct cluster *c, const struct member *m, int64_t now)
{
	bool doubted = m->doubted_ns != 0 && now - m->doubted_ns < DOUBT_NS;

	if (m->node.port == 0 || m->asked)
		return 0;
	if (doubted)
		return 1;
	if (m == c->informed)
		return 4;
	return m->server != NULL && kvw_redis_server_ready(m->server) ? 3 : 2;
}

/* Chooses the next server to ask, at random among those of equal rank. Returns false if all were
 * asked. */
static bool next_to_ask(struct cluster *c, int64_t now, struct kvw_redis_node *out)
{
	uint32_t from = kvw_redis_client_random(c->r, KVW_REDIS_SERVERS);
	struct member *best = NULL;
	unsigned best_rank = 0;

	for (uint32_t i = 0; i < KVW_REDIS_SERVERS; i++) {
		struct member *m = &c->members[(from + i) % KVW_REDIS_SERVERS];
		unsigned rank = rank_of(c, m, now);

		if (rank > best_rank) {
			best = m;
			best_rank = rank;
		}
	}
	if (best != NULL) {
		best->asked = true;
		*out = best->node;
		return true;
	}
	for (size_t i = 0; i < c->options->url->node_count; i++) {
		if (c->seeds_asked[i])
			continue;
		c->seeds_asked[i] = true;
		*out = c->options->url->nodes[i];
		return true;
	}
	return false;
}

/* Returns whether a member of the map cannot be reached. */
static bool a_master_is_lost(const struct cluster *c)
{
	for (size_t i = 0; i < KVW_REDIS_SERVERS; i++)
		if (c->members[i].lost)
			return true;
	return false;
}

/* Ends a round of questions, whether it succeeded or not: commands in line are routed again. */
static void end_round(struct cluster *c, bool gone, int64_t now)
{
	c->gone = gone;
	c->round = false;
	c->used = false;
	c->informed = NULL;
	for (size_t i = 0; i < KVW_REDIS_SERVERS; i++)
		c->members[i].asked = false;
	memset(c->seeds_asked, 0, sizeof(c->seeds_asked));
	c->earliest_ns = now + (gone ? GONE_GAP_NS : MAP_GAP_NS);
	c->due_ns = c->earliest_ns;
	if (!a_master_is_lost(c))
		c->due_ns = now + MAP_EVERY_NS / 4 * 3 +
			    (int64_t)kvw_redis_client_random(c->r, MAP_EVERY_NS / 2 / 1000) * 1000;
	kvw_redis_client_rerouted(c->r);
}

static void ask_next(struct cluster *c, int64_t now)
{
	static const char *const words[] = {"CLUSTER", "SLOTS"};
	int64_t wait_ns = (int64_t)c->options->connect_ns;
	struct kvw_redis_node node;

	c->round = true;
	if (!next_to_ask(c, now, &node)) {
		end_round(c, true, now);
		return;
	}
	if (c->control != NULL && !kvw_redis_same_node(&c->asked, &node)) {
		kvw_redis_client_drop_server(c->r, c->control);
		c->control = NULL;
	}
	c->asked = node;
	if (c->control == NULL)
		c->control = kvw_redis_client_server(
			c->r, node.host, node.port, KVW_REDIS_SERVER_CONTROL);
	if (c->control == NULL) {
		snprintf(c->reason, sizeof(c->reason), "no memory");
		end_round(c, true, now);
		return;
	}
	if (wait_ns <= 0 || wait_ns > MAX_WAIT_NS)
		wait_ns = MAX_WAIT_NS;
	kvw_redis_inquiry_ask(&c->inquiry, c->r, c->control, words, 2, ANSWER_BYTES, now + wait_ns);
}

/* Reads the answer. Returns true if there is a new map. */
static bool read_answer(struct cluster *c, char *why, size_t room)
{
	const struct kvw_redis_command *command = &c->inquiry.command;
	enum kvw_err status;

	if (!kvw_redis_inquiry_answered(&c->inquiry, why, room))
		return false;
	status =
		kvw_redis_slot_map_read(&c->map, command->found, command->element_count, &c->asked);
	if (status == KVW_ELIMIT)
		snprintf(why, room, "more than %d masters", KVW_REDIS_SERVERS);
	else if (status != KVW_OK)
		snprintf(why, room, "an answer to CLUSTER SLOTS that makes no sense");
	else if (c->map.covered == 0)
		snprintf(why, room, "knows of no slots");
	return status == KVW_OK && c->map.covered > 0;
}

static void take_answer(struct cluster *c, int64_t now)
{
	char why[KVW_REDIS_TEXT];
	bool good = read_answer(c, why, sizeof(why));

	kvw_redis_inquiry_finish(&c->inquiry);
	if (good) {
		adopt_map(c, now);
		end_round(c, false, now);
		return;
	}
	snprintf(
		c->reason, sizeof(c->reason), "%.70s:%u: %.80s", c->asked.host, c->asked.port, why);
	ask_next(c, now);
}

static void cluster_step(struct kvw_redis_topology *t, int64_t now_ns, int64_t *next_ns)
{
	struct cluster *c = (struct cluster *)t;

	if (c->inquiry.state == KVW_REDIS_INQUIRY_BACK)
		take_answer(c, now_ns);
	if (c->inquiry.state != KVW_REDIS_INQUIRY_IDLE)
		return;
	c->used |= kvw_redis_client_busy(c->r);
	if (now_ns >= c->due_ns && c->used) {
		ask_next(c, now_ns);
		return;
	}
	if (c->due_ns < *next_ns && c->used)
		*next_ns = c->due_ns;
}

/* --- commands --------------------------------------------------------------------------------- */

/* Returns the owner of any slot that has one. */
static uint16_t any_owner(struct cluster *c)
{
	uint32_t from = kvw_redis_client_random(c->r, KVW_REDIS_SLOTS);

	for (uint32_t i = 0; i < KVW_REDIS_SLOTS; i++) {
		uint16_t owner = c->owner[(from + i) % KVW_REDIS_SLOTS];

		if (owner != KVW_REDIS_NO_OWNER)
			return owner;
	}
	return KVW_REDIS_NO_OWNER;
}

static enum kvw_redis_route cluster_route(struct kvw_redis_topology *t,
	const struct kvw_redis_command *command, struct kvw_redis_server **server, const char **why)
{
	struct cluster *c = (struct cluster *)t;
	uint16_t owner;

	c->used = true;
	if (!c->known || c->gone) {
		want_map(c);
		*why = c->reason;
		return c->gone ? KVW_REDIS_ROUTE_NONE : KVW_REDIS_ROUTE_WAIT;
	}
	owner = command->slot < KVW_REDIS_SLOTS ? c->owner[command->slot] : any_owner(c);
	if (owner == KVW_REDIS_NO_OWNER) {
		want_map(c);
		*why = "no server of the cluster has its slot";
		return KVW_REDIS_ROUTE_WAIT;
	}
	*server = server_of(c, &c->members[owner]);
	*why = "no memory";
	return *server != NULL ? KVW_REDIS_ROUTE_TO : KVW_REDIS_ROUTE_NONE;
}

/* Returns the member that a redirection names; NULL: there is no room or no memory. */
static struct member *named_member(
	struct cluster *c, const struct kvw_redis_node *node, int64_t now)
{
	struct member *m = member_of(c, node);

	if (m == NULL || server_of(c, m) == NULL)
		return NULL;
	m->named_ns = now;
	return m;
}

static enum kvw_redis_verdict cluster_error(struct kvw_redis_topology *t,
	struct kvw_redis_command *command, struct kvw_redis_server *server)
{
	struct cluster *c = (struct cluster *)t;
	struct kvw_redis_node asked = {.port = kvw_redis_server_port(server)};
	int64_t now = now_of(c);
	struct kvw_redis_redirect redirect;
	struct member *m = NULL;

	snprintf(asked.host, sizeof(asked.host), "%s", kvw_redis_server_host(server));
	kvw_redis_redirect_read(command->text, &asked, &redirect);
	if (redirect.kind == KVW_REDIS_REDIRECT_NONE)
		return KVW_REDIS_VERDICT_DELIVER;
	if (redirect.kind == KVW_REDIS_REDIRECT_MOVED || redirect.kind == KVW_REDIS_REDIRECT_ASK)
		m = named_member(c, &redirect.node, now);
	if (redirect.kind == KVW_REDIS_REDIRECT_MOVED && m != NULL) {
		c->owner[redirect.slot] = (uint16_t)(m - c->members);
		c->informed = m;
	}
	if (redirect.kind == KVW_REDIS_REDIRECT_ASK && m != NULL) {
		command->progress.to = m->server;
		command->progress.asking = true;
	}
	if (redirect.kind == KVW_REDIS_REDIRECT_DOWN && kvw_redis_server_user(server) != NULL)
		((struct member *)kvw_redis_server_user(server))->doubted_ns = now;
	if (redirect.kind != KVW_REDIS_REDIRECT_ASK && redirect.kind != KVW_REDIS_REDIRECT_LATER)
		want_map(c);
	command->progress.not_before_ns =
		now +
		kvw_redis_inquiry_pause_ns(c->r, command->progress.redirects + (m == NULL ? 3 : 0));
	return KVW_REDIS_VERDICT_AGAIN;
}

static bool cluster_down(
	struct kvw_redis_topology *t, struct kvw_redis_server *server, const char *why)
{
	struct cluster *c = (struct cluster *)t;
	struct member *m = kvw_redis_server_user(server);

	(void)why; /* the client keeps it */
	if (m == NULL)
		/* not a member: the server was only asked for the map, and that question fails */
		return false;
	m->lost = true;
	m->doubted_ns = now_of(c);
	want_map(c);
	return true;
}

static void cluster_up(struct kvw_redis_topology *t, struct kvw_redis_server *server)
{
	struct member *m = kvw_redis_server_user(server);

	(void)t;
	if (m == NULL)
		return;
	m->lost = false;
	m->doubted_ns = 0;
}

static void cluster_describe(struct kvw_redis_topology *t, char *out, size_t room)
{
	const struct cluster *c = (const struct cluster *)t;

	if (c->known)
		snprintf(out, room, "cluster of %u", c->masters);
	else
		snprintf(out, room, "cluster");
}

/* --- its life --------------------------------------------------------------------------------- */

static enum kvw_err cluster_create(struct kvw_redis *r, const struct kvw_redis_options *options,
	struct kvw_redis_topology **out)
{
	struct cluster *c = calloc(1, sizeof(*c));

	if (c == NULL)
		return KVW_ENOMEM;
	c->base.ops = &kvw_redis_topology_cluster;
	c->r = r;
	c->options = options;
	c->earliest_ns = now_of(c);
	c->due_ns = INT64_MAX;
	for (size_t i = 0; i < KVW_REDIS_SLOTS; i++)
		c->owner[i] = KVW_REDIS_NO_OWNER;
	*out = &c->base;
	return KVW_OK;
}

/* The client destroys the servers. */
static void cluster_destroy(struct kvw_redis_topology *t)
{
	struct cluster *c = (struct cluster *)t;

	if (c != NULL && c->inquiry.state == KVW_REDIS_INQUIRY_BACK)
		kvw_redis_inquiry_finish(&c->inquiry);
	free(c);
}

const struct kvw_redis_topology_ops kvw_redis_topology_cluster = {
	.create = cluster_create,
	.route = cluster_route,
	.error = cluster_error,
	.down = cluster_down,
	.up = cluster_up,
	.step = cluster_step,
	.describe = cluster_describe,
	.destroy = cluster_destroy,
};
