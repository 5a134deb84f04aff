/*
 * client.h - the client's inside, for redis.c (the public functions) and line.c (commands that
 * wait, and what becomes of those that come back) alone.
 *
 * 	submit -> line -> server's link -> answered -> finished -> done
 * 	            ^--- returned by a lost link, or an error that a topology wants tried again
 *
 * A command is on one list: control or line (waiting), a link's (under way), finished. Only
 * `deliver` calls done, and nothing in here is iterated over at that time, so that done may submit.
 */
#ifndef KVW_REDIS_CLIENT_H
#define KVW_REDIS_CLIENT_H

#include <pthread.h>

#include "redis/server.h"

struct kvw_redis {
	/* of create */
	struct kvw_redis_url url;
	struct kvw_redis_options options; /* texts are owned, in `texts` */
	char *texts[3];                   /* username, password, service */
	int epoll, wake;
	struct kvw_redis_server_settings settings;
	struct kvw_redis_topology *topology;

	struct kvw_redis_server *servers;
	struct kvw_redis_server_stats gone; /* of servers that are no more */

	struct kvw_redis_commands control; /* of kvw_redis_client_send */
	struct kvw_redis_commands line;    /* in order of arrival */
	struct kvw_redis_command *unseen;  /* of the line: it and those behind were not looked at */
	bool again;                        /* all of the line is to be looked at, */
	int64_t look_ns;                   /* ... or at this time */
	struct kvw_redis_commands finished;
	bool closing;

	uint64_t in_flight, in_flight_bytes;
	int64_t deadline_ns; /* no command's is earlier */

	struct kvw_redis_stats stats; /* the step's thread's */
	int64_t note_ns;              /* no error reply is logged before */
	uint64_t mode_at;             /* connections that there were when stats.mode was made */
	pthread_mutex_t lock;         /* shown */
	struct kvw_redis_stats shown;
};

/* line.c */

/* A new command joins the line. */
void kvw_redis_line_add(struct kvw_redis *r, struct kvw_redis_command *command);

/* Sends what may be sent; ends what cannot be sent at all. True: something was handed to a link. */
bool kvw_redis_line_send(struct kvw_redis *r, int64_t now_ns, int64_t *next_ns);

/* Commands with replies, and commands that a lost link gave back; counted: that was a try of
 * theirs. Both lists are empty afterwards. */
void kvw_redis_line_settle(struct kvw_redis *r, struct kvw_redis_server *server, int64_t now_ns,
	struct kvw_redis_commands *answered, struct kvw_redis_commands *returned, bool counted);

/* Ends all whose deadline has passed. */
void kvw_redis_line_expire(struct kvw_redis *r, int64_t now_ns);

/* Ends one; it is on no list. text may be NULL. */
void kvw_redis_line_finish(struct kvw_redis *r, struct kvw_redis_command *command,
	enum kvw_err status, const char *text);

/* Forgets a server that commands in line are meant for. */
void kvw_redis_line_forget(struct kvw_redis *r, const struct kvw_redis_server *server);

/* Ends all that wait. */
void kvw_redis_line_cancel(struct kvw_redis *r);

#endif
