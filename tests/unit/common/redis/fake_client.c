/*
 * fake_client.c - a client without sockets.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake_client.h"

static int64_t fake_now(void *self)
{
	return ((struct kvw_redis *)self)->now_ns;
}

static void no_log(void *self, uint32_t level, const char *line)
{
	(void)self;
	(void)level;
	(void)line;
}

void fake_init(struct kvw_redis *r)
{
	memset(r, 0, sizeof(*r));
	r->env = (struct kvw_redis_env){.now_ns = fake_now, .clock_self = r, .log = no_log};
	r->now_ns = 1000 * MS;
	r->random = 7;
}

struct kvw_redis_server *fake_server(
	struct kvw_redis *r, uint16_t port, enum kvw_redis_server_role role)
{
	for (size_t i = 0; i < FAKE_SERVERS; i++)
		if (r->servers[i].alive && r->servers[i].port == port && r->servers[i].role == role)
			return &r->servers[i];
	return NULL;
}

size_t fake_alive(const struct kvw_redis *r)
{
	size_t alive = 0;

	for (size_t i = 0; i < FAKE_SERVERS; i++)
		alive += r->servers[i].alive;
	return alive;
}

/* --- answers ---------------------------------------------------------------------------------- */

static struct kvw_redis_command *take_question(struct kvw_redis *r, enum kvw_err status)
{
	struct kvw_redis_command *c = r->asked;

	assert(c != NULL);
	r->asked = NULL;
	r->asked_of = NULL;
	c->status = status;
	c->reply = KVW_REDIS_NONE;
	return c;
}

void fake_answer(struct kvw_redis *r, const char *const *texts, size_t n)
{
	struct kvw_redis_element *elements = n > 0 ? calloc(n, sizeof(*elements)) : NULL;

	for (size_t i = 0; i < n; i++) {
		elements[i].depth = (uint32_t)(texts[i][0] - '0');
		if (texts[i][1] == '\0')
			continue;
		elements[i].data = strdup(texts[i] + 1);
		elements[i].len = strlen(texts[i] + 1);
	}
	fake_answer_elements(r, elements, n);
}

void fake_answer_elements(struct kvw_redis *r, struct kvw_redis_element *elements, size_t n)
{
	struct kvw_redis_command *c = take_question(r, KVW_OK);

	c->reply = KVW_REDIS_ARRAY;
	c->found = elements;
	c->element_count = n;
	c->done(c);
}

void fake_answer_error(struct kvw_redis *r, const char *text)
{
	struct kvw_redis_command *c = take_question(r, KVW_OK);

	c->reply = KVW_REDIS_ERROR;
	snprintf(c->text, sizeof(c->text), "%s", text);
	c->done(c);
}

void fake_answer_nil(struct kvw_redis *r)
{
	struct kvw_redis_command *c = take_question(r, KVW_OK);

	c->reply = KVW_REDIS_NIL;
	c->done(c);
}

void fake_answer_none(struct kvw_redis *r, enum kvw_err status, const char *text)
{
	struct kvw_redis_command *c = take_question(r, status);

	snprintf(c->text, sizeof(c->text), "%s", text);
	c->done(c);
}

void fake_step(struct kvw_redis *r, struct kvw_redis_topology *t, int64_t more_ns)
{
	int64_t next = INT64_MAX;

	r->now_ns += more_ns;
	t->ops->step(t, r->now_ns, &next);
}

/* --- topology.h ------------------------------------------------------------------------------- */

struct kvw_redis_server *kvw_redis_client_server(
	struct kvw_redis *r, const char *host, uint16_t port, enum kvw_redis_server_role role)
{
	struct kvw_redis_server *unused = NULL;

	for (size_t i = 0; i < FAKE_SERVERS; i++) {
		struct kvw_redis_server *s = &r->servers[i];

		if (!s->alive)
			unused = unused != NULL ? unused : s;
		else if (s->port == port && s->role == role && strcmp(s->host, host) == 0)
			return s;
	}
	assert(unused != NULL);
	*unused = (struct kvw_redis_server){.port = port, .role = role, .alive = true};
	snprintf(unused->host, sizeof(unused->host), "%s", host);
	r->made++;
	return unused;
}

void kvw_redis_client_drop_server(struct kvw_redis *r, struct kvw_redis_server *server)
{
	assert(server->alive);
	server->alive = false;
	r->dropped++;
	if (r->asked_of == server)
		fake_answer_none(r, KVW_EIO, "dropped");
}

void kvw_redis_client_send(
	struct kvw_redis *r, struct kvw_redis_server *server, struct kvw_redis_command *command)
{
	assert(server->alive);
	assert(r->asked == NULL); /* one question at a time */
	assert(command->deadline_ns > r->now_ns);
	r->asked = command;
	r->asked_of = server;
	r->questions++;
}

void kvw_redis_client_rerouted(struct kvw_redis *r)
{
	r->rerouted++;
}

bool kvw_redis_client_busy(const struct kvw_redis *r)
{
	return r->busy;
}

uint32_t kvw_redis_client_random(struct kvw_redis *r, uint32_t limit)
{
	r->random ^= r->random << 13;
	r->random ^= r->random >> 7;
	r->random ^= r->random << 17;
	return (uint32_t)(r->random % limit);
}

const struct kvw_redis_env *kvw_redis_client_env(struct kvw_redis *r)
{
	return &r->env;
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
	assert(server->alive);
	return server->ready;
}

const char *kvw_redis_server_info(const struct kvw_redis_server *server)
{
	(void)server;
	return "";
}

void kvw_redis_server_set_user(struct kvw_redis_server *server, void *user)
{
	server->user = user;
}

void *kvw_redis_server_user(const struct kvw_redis_server *server)
{
	return server->user;
}
