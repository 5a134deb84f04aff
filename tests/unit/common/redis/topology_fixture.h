/*
 * topology_fixture.h - the fixture of tests of a topology: it, and the client without sockets that it
 * works for.
 */
#ifndef TOPOLOGY_FIXTURE_H
#define TOPOLOGY_FIXTURE_H

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake_client.h"
#include "tests/unit/suite.h"

static struct kvw_redis *r;
static struct kvw_redis_url *url;
static struct kvw_redis_options options;
static struct kvw_redis_topology *t;
static const char *why;

static void create(const struct kvw_redis_topology_ops *ops, const char *text)
{
	r = calloc(1, sizeof(*r));
	url = calloc(1, sizeof(*url));
	fake_init(r);
	ck_assert_ptr_null(kvw_redis_url_parse(text, url));
	options = (struct kvw_redis_options){.url = url,
		.service = "redismaster",
		.connect_ns = 500 * MS,
		.connections = 2,
		.env = r->env};
	ck_assert_int_eq(ops->create(r, &options, &t), KVW_OK);
	ck_assert_ptr_eq(t->ops, ops);
}

static void teardown(void)
{
	if (r->asked != NULL)
		fake_answer_none(r, KVW_ECLOSED, "");
	t->ops->destroy(t);
	free(url);
	free(r);
}

static enum kvw_redis_route route(uint32_t slot, struct kvw_redis_server **server)
{
	struct kvw_redis_command command = {.slot = slot};

	*server = NULL;
	return t->ops->route(t, &command, server, &why);
}

static void check_goes(uint32_t slot, uint16_t port)
{
	struct kvw_redis_server *server;

	ck_assert_int_eq(route(slot, &server), KVW_REDIS_ROUTE_TO);
	ck_assert(server->alive);
	ck_assert_uint_eq(server->port, port);
	ck_assert_int_eq(server->role, KVW_REDIS_SERVER_DATA);
}

#endif
