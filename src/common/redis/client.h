/*
 * client.h - internals of the client, only for redis.c (the public functions) and line.c (commands
 * that wait, and commands that servers answered or lost connections returned).
 *
 *	submit -> line -> server's link -> answered -> finished -> done
 *	            ^--- returned by a lost link, or an error that a topology wants tried again
 *
 * A command is on one list: control or line (waiting), a link's (under way), finished. Only
 * `deliver` calls done, at a time when no list is being iterated, so that done may submit.
 */
#ifndef KVW_REDIS_CLIENT_H
#define KVW_REDIS_CLIENT_H

#include <pthread.h>

#include "redis/server.h"

struct kvw_redis {
	/* arguments of create */
	struct kvw_redis_url url;
	struct kvw_redis_options options; /* the options; their texts are owned, in `texts` */
	char *texts[3];                   /* username, password, service */
	int epoll, wake;
	struct kvw_redis_server_settings settings;
	struct kvw_redis_topology *topology;

	struct kvw_redis_server *servers;
	struct kvw_redis_server_stats gone; /* counts of dropped servers */

	struct kvw_redis_commands control; /* commands of kvw_redis_client_send */
	struct kvw_redis_commands line;    /* in order of arrival */
	struct kvw_redis_command *unseen; /* first command of the line that was not looked at yet */
	bool again; /* all commands of the line must be looked at again, ... */
	int64_t look_ns;                   /* ... or at this time */
	struct kvw_redis_commands finished;
	bool closing;

	uint64_t in_flight, in_flight_bytes;
	int64_t deadline_ns; /* no command has an earlier deadline */

	struct kvw_redis_stats stats; /* used by the step's thread only */
	int64_t note_ns;              /* time before which no other error reply is logged */
	uint64_t mode_at;             /* number of connections when stats.mode was made */
	pthread_mutex_t lock;         /* shown */
	struct kvw_redis_stats shown;
};

/* line.c */

/* Appends a new command to the line. */
void kvw_redis_line_add(struct kvw_redis *r, struct kvw_redis_command *command);

/* Sends those commands in line that may be sent, and ends those that cannot be. Returns true if a
 * link got a command. */
bool kvw_redis_line_send(struct kvw_redis *r, int64_t now_ns, int64_t *next_ns);

/* Handles commands that a server answered, and commands that a lost link returned. counted: the
 * loss counts as one of the command's tries. Both lists are empty afterwards. */
void kvw_redis_line_settle(struct kvw_redis *r, struct kvw_redis_server *server, int64_t now_ns,
	struct kvw_redis_commands *answered, struct kvw_redis_commands *returned, bool counted);

/* Ends all commands whose deadline has passed. */
void kvw_redis_line_expire(struct kvw_redis *r, int64_t now_ns);

/* Ends a command that is on no list. text is the reason, or NULL. */
void kvw_redis_line_finish(struct kvw_redis *r, struct kvw_redis_command *command,
	enum kvw_err status, const char *text);

/* Makes the commands in line that were to go to this server forget it. */
void kvw_redis_line_forget(struct kvw_redis *r, const struct kvw_redis_server *server);

/* Ends all waiting commands. */
void kvw_redis_line_cancel(struct kvw_redis *r);

#endif
