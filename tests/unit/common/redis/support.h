/*
 * support.h - a client in a world of its own (clock and log are the test's), and a server that does
 * what the test says, step by step, in the same thread: each wait of the one lets the other
 * work, so nothing here depends on how fast the machine is.
 */
#ifndef KVW_REDIS_SUPPORT_H
#define KVW_REDIS_SUPPORT_H

#include <stdbool.h>

#include "redis/redis.h"

#define MS       INT64_C(1000000)
#define LOG_ROOM 16384

struct world {
	int64_t now_ns; /* the clock, moved by the test */
	char log[LOG_ROOM];
	struct kvw_redis_url url;
	struct kvw_redis_options options; /* defaults: 1 connection, 1 s to connect */
	struct kvw_redis *r;
	int64_t next_ns; /* as the last step said */
};

/* Parses the URL; the client is made by world_start. */
void world_init(struct world *w, const char *url);
void world_start(struct world *w);
void world_finish(struct world *w);
void world_step(struct world *w);                    /* once, without waiting */
struct kvw_redis_stats world_stats(struct world *w); /* after a step */
bool world_logged(const struct world *w, const char *text);

/* A command with room for what it needs. */
struct order {
	struct kvw_redis_command c;
	char head[256];
	struct iovec parts[3];
	struct iovec segments[8];
	bool done;
	uint32_t done_count;
	void *user;
};

/* Requests: each word is an argument; the last one may be a value of its own. deadline_ns counts
 * from now. */
void order_make(struct order *o, struct world *w, int64_t deadline_ns, size_t count,
	const char *const *words);
#define ORDER(o, w, deadline_ns, ...)                                                              \
	order_make(o, w, deadline_ns, sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *),      \
		(const char *[]){__VA_ARGS__})
void order_value(struct order *o, const void *value, size_t len); /* one more argument */
void order_into(struct order *o, void *memory, size_t len, size_t pieces);
void order_submit(struct order *o, struct world *w);
void order_wait(struct order *o, struct world *w); /* until it is done */

/* A server on a free port of 127.0.0.1. */
struct fake {
	struct world *w;
	int listener;
	uint16_t port;
	char url[64];
};

void fake_init(struct fake *f, struct world *w);
void fake_finish(struct fake *f);   /* its port refuses from now on */
void fake_reopen(struct fake *f);   /* on the same port */
int fake_accept(struct fake *f);    /* the next connection */
bool fake_has_none(struct fake *f); /* no client wants to connect */
int fake_login(struct fake *f);     /* accepts and answers INFO */
void fake_hear(struct fake *f, int fd, const char *expected, size_t len);
bool fake_hears_nothing(struct fake *f, int fd);
void fake_say(struct fake *f, int fd, const char *text, size_t len);
void fake_hear_end(struct fake *f, int fd); /* until the client hangs up */
void fake_close(int fd);

#define HEAR(f, fd, text) fake_hear(f, fd, text, sizeof(text) - 1)
#define SAY(f, fd, text)  fake_say(f, fd, text, sizeof(text) - 1)

#endif
