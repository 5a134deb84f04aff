/*
 * topology_sentinel.c - one master, whose address Sentinels know.
 *
 * The topology asks the Sentinels of the URL in turn (SENTINEL GET-MASTER-ADDR-BY-NAME), beginning
 * with the last one that was right, and checks their answer: the named server itself must answer
 * ROLE with "master", since a Sentinel that was cut off names the old master for a while. A server
 * whose ACL refuses ROLE counts as a master; if it is none, READONLY shows that.
 *
 * It asks at the first command, every three seconds or so while there are commands, and soon after
 * any hint of a change: READONLY, MASTERDOWN, no connection to the master, or a new connection to
 * it (a Sentinel that promotes another server ends the old master's connections). So no
 * subscription is needed. Questions are at least 200 ms apart.
 *
 * 	IDLE -> ASKING (a Sentinel) -> CHECKING (the server it named) -> IDLE
 * 	           ^---- next Sentinel: no answer, or no master ----'
 *
 * While no Sentinel names a master, the present one stays: if no Sentinel answers, the topology
 * asks the master itself for its ROLE and keeps it. After its loss, commands wait for the next
 * master as long as a Sentinel answers (a failover is under way). If none answers, or there never
 * was a master (a wrong password, a name that no Sentinel knows), commands end with KVW_EIO and the
 * reason.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "redis/inquiry.h"
#include "redis/slots.h"

#define SECOND_NS    INT64_C(1000000000)
#define ASK_EVERY_NS (3 * SECOND_NS)
#define ASK_GAP_NS   (SECOND_NS / 5)
#define GONE_GAP_NS  (SECOND_NS / 2)
#define ANSWER_BYTES (1 << 20) /* ROLE lists the replicas */
#define MAX_WAIT_NS  (2 * SECOND_NS)
#define SERVICE_MAX  255

struct sentinel {
	struct kvw_redis_topology base;
	struct kvw_redis *r;
	const struct kvw_redis_options *options;
	struct kvw_redis_server *master; /* NULL: none is known */
	struct kvw_redis_node master_node;
	bool suspect; /* the master is lost, or no longer a master: commands wait */
	bool gone;    /* no Sentinel answered in the last round; `reason` has the cause */
	bool used;    /* commands came since the last round */

	enum { SENTINEL_IDLE, SENTINEL_ASKING, SENTINEL_CHECKING } state;
	struct kvw_redis_inquiry inquiry;
	struct kvw_redis_server
		*control[KVW_REDIS_URL_NODES]; /* the Sentinels; NULL: not asked yet */
	/* the server that is being checked; may be the present master */
	struct kvw_redis_server *candidate;
	struct kvw_redis_node candidate_node;
	size_t at;           /* index of the Sentinel that is asked now, or that was right last */
	size_t asked;        /* number of Sentinels asked in this round */
	bool answered;       /* a Sentinel has answered in this round */
	bool checked_master; /* the master itself was asked in this round */
	int64_t due_ns;      /* time of the next round of questions */
	int64_t earliest_ns; /* no round before */
	char reason[KVW_REDIS_REASON];
};

static int64_t now_of(struct sentinel *s)
{
	return kvw_redis_now(kvw_redis_client_env(s->r));
}

static void want_master(struct sentinel *s)
{
	s->used = true;
	if (s->due_ns > s->earliest_ns)
		s->due_ns = s->earliest_ns;
}

static int64_t patience_of(const struct sentinel *s)
{
	int64_t wait_ns = (int64_t)s->options->connect_ns;

	return wait_ns > 0 && wait_ns < MAX_WAIT_NS ? wait_ns : MAX_WAIT_NS;
}

/* --- a round of questions --------------------------------------------------------------------- */

static void end_round(struct sentinel *s, int64_t now)
{
	s->state = SENTINEL_IDLE;
	s->gone = s->asked > 0 && (s->master == NULL || (s->suspect && !s->answered));
	s->used = false;
	s->asked = 0;
	s->earliest_ns = now + (s->gone ? GONE_GAP_NS : ASK_GAP_NS);
	s->due_ns = now + ASK_EVERY_NS / 4 * 3 +
		    (int64_t)kvw_redis_client_random(s->r, ASK_EVERY_NS / 2 / 1000) * 1000;
	kvw_redis_client_rerouted(s->r);
}

static void ask_role(struct sentinel *s, const struct kvw_redis_node *node, int64_t now)
{
	static const char *const words[] = {"ROLE"};

	s->candidate = kvw_redis_client_server(s->r, node->host, node->port, KVW_REDIS_SERVER_DATA);
	s->candidate_node = *node;
	s->checked_master |= s->candidate == s->master;
	if (s->candidate == NULL) {
		snprintf(s->reason, sizeof(s->reason), "no memory");
		end_round(s, now);
		return;
	}
	s->state = SENTINEL_CHECKING;
	kvw_redis_inquiry_ask(
		&s->inquiry, s->r, s->candidate, words, 1, ANSWER_BYTES, now + patience_of(s));
}

static void ask_next(struct sentinel *s, int64_t now)
{
	const char *const words[] = {"SENTINEL", "GET-MASTER-ADDR-BY-NAME", s->options->service};
	const struct kvw_redis_url *url = s->options->url;
	const struct kvw_redis_node *node;

	if (s->asked == url->node_count) {
		if (s->answered || s->master == NULL || s->checked_master)
			end_round(s, now);
		else
			ask_role(s, &s->master_node, now);
		return;
	}
	if (s->asked == 0)
		s->answered = s->checked_master = false;
	else
		s->at = (s->at + 1) % url->node_count;
	s->asked++;
	node = &url->nodes[s->at];
	if (s->control[s->at] == NULL)
		s->control[s->at] = kvw_redis_client_server(
			s->r, node->host, node->port, KVW_REDIS_SERVER_SENTINEL);
	if (s->control[s->at] == NULL) {
		snprintf(s->reason, sizeof(s->reason), "no memory");
		end_round(s, now);
		return;
	}
	s->state = SENTINEL_ASKING;
	kvw_redis_inquiry_ask(
		&s->inquiry, s->r, s->control[s->at], words, 3, ANSWER_BYTES, now + patience_of(s));
}

/* --- the answers ------------------------------------------------------------------------------ */

static void drop_candidate(struct sentinel *s)
{
	if (s->candidate != NULL && s->candidate != s->master)
		kvw_redis_client_drop_server(s->r, s->candidate);
	s->candidate = NULL;
}

/* Reads an answer of two elements, HOST and PORT. */
static bool read_address(const struct sentinel *s, struct kvw_redis_node *out)
{
	const struct kvw_redis_command *c = &s->inquiry.command;
	char *end;
	unsigned long port;

	if (c->element_count != 2 || c->found[0].data == NULL || c->found[1].data == NULL ||
		c->found[0].len == 0 || c->found[0].len >= sizeof(out->host) ||
		strlen(c->found[0].data) != c->found[0].len)
		return false;
	port = strtoul(c->found[1].data, &end, 10);
	if (*end != '\0' || c->found[1].len == 0 || port == 0 || port > UINT16_MAX)
		return false;
	memcpy(out->host, c->found[0].data, c->found[0].len + 1);
	out->port = (uint16_t)port;
	return true;
}

/* Returns whether the answer to ROLE shows a master. An error counts as one, too: servers before
 * 2.8.12 have no ROLE, and an ACL may refuse it. */
static bool is_master(const struct sentinel *s, char *why, size_t room)
{
	const struct kvw_redis_command *c = &s->inquiry.command;

	if (c->status == KVW_OK && c->reply == KVW_REDIS_ERROR &&
		(strncmp(c->text, "NOPERM", 6) == 0 || strncmp(c->text, "ERR unknown", 11) == 0))
		return true;
	if (!kvw_redis_inquiry_answered(&s->inquiry, why, room))
		return false;
	snprintf(why, room, "is no master");
	return c->element_count > 0 && c->found[0].data != NULL &&
	       strcmp(c->found[0].data, "master") == 0;
}

/* Makes the candidate the master. The commands of the old master go back into the line, and then to
 * the new one. */
static void adopt_candidate(struct sentinel *s)
{
	if (s->candidate != s->master) {
		kvw_redis_note(kvw_redis_client_env(s->r), KVW_LOG_INFO,
			"redis: %s:%u is the master of %s", s->candidate_node.host,
			s->candidate_node.port, s->options->service);
		if (s->master != NULL)
			kvw_redis_client_drop_server(s->r, s->master);
		s->master = s->candidate;
		s->master_node = s->candidate_node;
	}
	s->candidate = NULL;
	s->suspect = false;
}

static void take_address(struct sentinel *s, int64_t now)
{
	const struct kvw_redis_node *from = &s->options->url->nodes[s->at];
	struct kvw_redis_node node;
	char why[KVW_REDIS_TEXT];
	bool came = kvw_redis_inquiry_answered(&s->inquiry, why, sizeof(why));
	bool good = came && read_address(s, &node);

	if (came && !good)
		snprintf(why, sizeof(why), "an answer that makes no sense");
	kvw_redis_inquiry_finish(&s->inquiry);
	if (good) {
		s->answered = true;
		ask_role(s, &node, now);
		return;
	}
	snprintf(s->reason, sizeof(s->reason), "Sentinel %.60s:%u: %.70s", from->host, from->port,
		why);
	ask_next(s, now);
}

static void take_role(struct sentinel *s, int64_t now)
{
	char why[KVW_REDIS_TEXT];
	bool good = is_master(s, why, sizeof(why));

	kvw_redis_inquiry_finish(&s->inquiry);
	if (good) {
		adopt_candidate(s);
		end_round(s, now);
		return;
	}
	snprintf(s->reason, sizeof(s->reason), "%.70s:%u: %.70s", s->candidate_node.host,
		s->candidate_node.port, why);
	drop_candidate(s);
	ask_next(s, now);
}

static void sentinel_step(struct kvw_redis_topology *t, int64_t now_ns, int64_t *next_ns)
{
	struct sentinel *s = (struct sentinel *)t;

	if (s->inquiry.state == KVW_REDIS_INQUIRY_BACK) {
		if (s->state == SENTINEL_ASKING)
			take_address(s, now_ns);
		else
			take_role(s, now_ns);
	}
	if (s->state != SENTINEL_IDLE)
		return;
	s->used |= kvw_redis_client_busy(s->r);
	if (!s->used)
		return;
	if (now_ns >= s->due_ns)
		ask_next(s, now_ns);
	else if (s->due_ns < *next_ns)
		*next_ns = s->due_ns;
}

/* --- commands --------------------------------------------------------------------------------- */

static enum kvw_redis_route sentinel_route(struct kvw_redis_topology *t,
	const struct kvw_redis_command *command, struct kvw_redis_server **server, const char **why)
{
	struct sentinel *s = (struct sentinel *)t;

	(void)command; /* there is one master */
	s->used = true;
	if (s->master != NULL && !s->suspect) {
		*server = s->master;
		return KVW_REDIS_ROUTE_TO;
	}
	want_master(s);
	*why = s->reason;
	return s->gone ? KVW_REDIS_ROUTE_NONE : KVW_REDIS_ROUTE_WAIT;
}

static enum kvw_redis_verdict sentinel_error(struct kvw_redis_topology *t,
	struct kvw_redis_command *command, struct kvw_redis_server *server)
{
	struct sentinel *s = (struct sentinel *)t;
	struct kvw_redis_redirect redirect;

	kvw_redis_redirect_read(command->text, &s->master_node, &redirect);
	if (redirect.kind != KVW_REDIS_REDIRECT_LATER &&
		redirect.kind != KVW_REDIS_REDIRECT_REPLICA)
		return KVW_REDIS_VERDICT_DELIVER;
	if (redirect.kind == KVW_REDIS_REDIRECT_REPLICA && server == s->master) {
		s->suspect = true;
		want_master(s);
	}
	command->progress.not_before_ns =
		now_of(s) + kvw_redis_inquiry_pause_ns(s->r, command->progress.redirects + 3);
	return KVW_REDIS_VERDICT_AGAIN;
}

/* Asks for the master again after it became unreachable; its commands wait until a Sentinel
 * answers. */
static bool sentinel_down(
	struct kvw_redis_topology *t, struct kvw_redis_server *server, const char *why)
{
	struct sentinel *s = (struct sentinel *)t;

	if (server != s->master)
		return false;
	if (s->gone)
		snprintf(s->reason, sizeof(s->reason), "%.150s", why);
	s->suspect = true;
	want_master(s);
	return true;
}

static void sentinel_up(struct kvw_redis_topology *t, struct kvw_redis_server *server)
{
	struct sentinel *s = (struct sentinel *)t;

	if (server == s->master)
		want_master(s);
}

static void sentinel_describe(struct kvw_redis_topology *t, char *out, size_t room)
{
	(void)t;
	snprintf(out, room, "sentinel");
}

/* --- its life --------------------------------------------------------------------------------- */

static enum kvw_err sentinel_create(struct kvw_redis *r, const struct kvw_redis_options *options,
	struct kvw_redis_topology **out)
{
	struct sentinel *s;

	if (options->service == NULL || options->service[0] == '\0' ||
		strlen(options->service) > SERVICE_MAX)
		return KVW_EINVAL;
	s = calloc(1, sizeof(*s));
	if (s == NULL)
		return KVW_ENOMEM;
	s->base.ops = &kvw_redis_topology_sentinel;
	s->r = r;
	s->options = options;
	s->earliest_ns = now_of(s);
	s->due_ns = INT64_MAX;
	*out = &s->base;
	return KVW_OK;
}

/* The client destroys the servers. */
static void sentinel_destroy(struct kvw_redis_topology *t)
{
	struct sentinel *s = (struct sentinel *)t;

	if (s != NULL && s->inquiry.state == KVW_REDIS_INQUIRY_BACK)
		kvw_redis_inquiry_finish(&s->inquiry);
	free(s);
}

const struct kvw_redis_topology_ops kvw_redis_topology_sentinel = {
	.create = sentinel_create,
	.route = sentinel_route,
	.error = sentinel_error,
	.down = sentinel_down,
	.up = sentinel_up,
	.step = sentinel_step,
	.describe = sentinel_describe,
	.destroy = sentinel_destroy,
};
