/*
 * fake_fixture.h - the fixture of client_test.c and connection_test.c: a client, w, whose only server
 * is the fake f, and the beginnings and ends that most of their tests share.
 */
#ifndef KVW_REDIS_FAKE_FIXTURE_H
#define KVW_REDIS_FAKE_FIXTURE_H

#include <check.h>
#include <stdio.h>
#include <string.h>

#include "support.h"
#include "tests/unit/suite.h"

#define GET_A "*2\r\n$3\r\nGET\r\n$1\r\na\r\n"
#define GET_B "*2\r\n$3\r\nGET\r\n$1\r\nb\r\n"
#define INFO  "*2\r\n$4\r\nINFO\r\n$6\r\nserver\r\n"
#define PING  "*1\r\n$4\r\nPING\r\n"

static struct world w;
static struct fake f;

static void setup(void)
{
	world_init(&w, "redis://127.0.0.1:1");
	fake_init(&f, &w);
	ck_assert_ptr_null(kvw_redis_url_parse(f.url, &w.url));
}

static void teardown(void)
{
	world_finish(&w);
	fake_finish(&f);
}

static struct kvw_redis_stats stats(void)
{
	return world_stats(&w);
}

/* Submits PING, with a second to its deadline. */
static void submit_ping(struct order *o)
{
	ORDER(o, &w, 1000 * MS, "PING");
	order_submit(o, &w);
}

/* Submits GET a into memory, with a second to its deadline. */
static void submit_get(struct order *o, void *memory, size_t len, size_t pieces)
{
	ORDER(o, &w, 1000 * MS, "GET", "a");
	order_into(o, memory, len, pieces);
	order_submit(o, &w);
}

/* The server hears PING and answers it; waits until that reaches the command. */
static void answer_ping(int fd, struct order *o)
{
	HEAR(&f, fd, PING);
	SAY(&f, fd, "+PONG\r\n");
	order_wait(o, &w);
	ck_assert_int_eq(o->c.status, KVW_OK);
	ck_assert_str_eq(o->c.text, "PONG");
}

#endif
