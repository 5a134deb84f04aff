/*
 * login.h - the first commands on a new connection: AUTH, SELECT and INFO server, pipelined.
 *
 * The link sends no other command before all are answered, so that none runs as another user or in
 * another database. The server may refuse INFO (by ACL), since the reply only names its product and
 * proves that it answers.
 *
 * Threads: one. Memory with the password in it is overwritten before it is freed.
 */
#ifndef KVW_REDIS_LOGIN_H
#define KVW_REDIS_LOGIN_H

#include "redis/commands.h"

#define KVW_REDIS_LOGIN_COMMANDS   3
#define KVW_REDIS_LOGIN_INFO_BYTES 8192

/* User and password that the client gives to a server. */
struct kvw_redis_link_login {
	const char *username, *password; /* NULL or "": none */
	uint32_t database;
	bool optional; /* ignore a refused AUTH */
};

/* A login. All zeroes: there is nothing to release. */
struct kvw_redis_login {
	struct kvw_redis_command commands[KVW_REDIS_LOGIN_COMMANDS];
	struct iovec parts[KVW_REDIS_LOGIN_COMMANDS];
	enum kvw_redis_login_step {
		KVW_REDIS_LOGIN_AUTH,
		KVW_REDIS_LOGIN_SELECT,
		KVW_REDIS_LOGIN_INFO
	} steps[KVW_REDIS_LOGIN_COMMANDS];
	size_t count;
	bool optional; /* AUTH may be refused */
	char *bytes;   /* owned: the requests */
	size_t byte_count;
	char info[KVW_REDIS_LOGIN_INFO_BYTES + 1]; /* the reply to INFO; "": there is none */
};

/* Adds the login's commands to `queue`; they belong to *login. KVW_ENOMEM. */
enum kvw_err kvw_redis_login_begin(struct kvw_redis_login *login,
	const struct kvw_redis_link_login *who, struct kvw_redis_commands *queue) KVW_MUST_CHECK;

/* Checks an answer. NULL: it is good; otherwise the server's error text, which is valid as long as
 * *login. */
const char *kvw_redis_login_judge(
	struct kvw_redis_login *login, struct kvw_redis_command *answered);

/* Frees the requests, but not `info`. Needed after each begin, also after a failed one. */
void kvw_redis_login_end(struct kvw_redis_login *login);

#endif
