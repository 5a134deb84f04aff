/*
 * fake_client.h - what redis.c gives a topology, without sockets: servers are rows in a table,
 * commands of the topology's own lie there until the test answers them, time is a number. What a
 * topology may not do (use a server that it dropped, ask twice at once) aborts.
 */
#ifndef FAKE_CLIENT_H
#define FAKE_CLIENT_H

#include "redis/topology.h"

#define FAKE_SERVERS 600
#define MS           INT64_C(1000000)

struct kvw_redis_server {
	char host[KVW_REDIS_URL_TEXT];
	uint16_t port;
	enum kvw_redis_server_role role;
	bool alive; /* made and not dropped */
	bool ready;
	void *user;
};

struct kvw_redis {
	struct kvw_redis_env env;
	int64_t now_ns;
	uint64_t random;
	struct kvw_redis_server servers[FAKE_SERVERS];
	size_t made, dropped, rerouted;
	struct kvw_redis_command *asked; /* the topology's own, without an answer yet */
	struct kvw_redis_server *asked_of;
	size_t questions;
	bool busy;
};

void fake_init(struct kvw_redis *r);

/* The server that is alive under this name, or NULL. */
struct kvw_redis_server *fake_server(
	struct kvw_redis *r, uint16_t port, enum kvw_redis_server_role role);
size_t fake_alive(const struct kvw_redis *r);

/* Answers the question under way; fails the test if there is none. texts as in slots_test.c: a
 * digit of depth, then the text; the depth alone: nil. */
void fake_answer(struct kvw_redis *r, const char *const *texts, size_t n);
/* As they are; takes the elements. */
void fake_answer_elements(struct kvw_redis *r, struct kvw_redis_element *elements, size_t n);
void fake_answer_error(struct kvw_redis *r, const char *text);
void fake_answer_nil(struct kvw_redis *r);
void fake_answer_none(struct kvw_redis *r, enum kvw_err status, const char *text);

/* Lets time pass and the topology work. */
void fake_step(struct kvw_redis *r, struct kvw_redis_topology *t, int64_t more_ns);

#define FAKE_ANSWER(r, ...)                                                                        \
	fake_answer(r, (const char *const[]){__VA_ARGS__},                                         \
		sizeof((const char *const[]){__VA_ARGS__}) / sizeof(const char *))

#endif
