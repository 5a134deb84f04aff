/*
 * login.c - makes the first commands on a new connection, and checks their answers.
 */
#include "redis/login.h"

#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "redis/words.h"

#define ARGUMENTS     4
#define DATABASE_TEXT 16

static bool is_given(const char *text)
{
	return text != NULL && text[0] != '\0';
}

/* Appends a request with the arguments before a NULL. `out` must have room. */
static char *write_request(char *out, const char *const *arguments)
{
	size_t count = 0;

	while (arguments[count] != NULL)
		count++;
	out = kvw_redis_put_count(out, count);
	for (size_t i = 0; i < count; i++)
		out = kvw_redis_put_text(out, arguments[i]);
	return out;
}

static char *add_command(struct kvw_redis_login *login, enum kvw_redis_login_step step, char *at,
	const char *const *arguments, struct kvw_redis_commands *queue)
{
	size_t i = login->count++;
	char *end = write_request(at, arguments);
	struct kvw_redis_command *c = &login->commands[i];

	login->steps[i] = step;
	login->parts[i] = (struct iovec){.iov_base = at, .iov_len = (size_t)(end - at)};
	*c = (struct kvw_redis_command){.parts = &login->parts[i], .part_count = 1};
	if (step == KVW_REDIS_LOGIN_INFO) {
		c->lead = login->info;
		c->lead_room = KVW_REDIS_LOGIN_INFO_BYTES;
	}
	kvw_redis_commands_add(queue, c);
	return end;
}

enum kvw_err kvw_redis_login_begin(struct kvw_redis_login *login,
	const struct kvw_redis_link_login *who, struct kvw_redis_commands *queue)
{
	const char *user = is_given(who->username) ? who->username : NULL;
	const char *password = who->password != NULL ? who->password : "";
	const char *auth[ARGUMENTS] = {
		"AUTH", user != NULL ? user : password, user != NULL ? password : NULL};
	char database[DATABASE_TEXT], *at;

	login->count = 0;
	login->info[0] = '\0';
	login->optional = who->optional;
	login->byte_count = KVW_REDIS_LOGIN_COMMANDS * ARGUMENTS * KVW_REDIS_WORD_ROOM +
			    strlen(password) + (user != NULL ? strlen(user) : 0);
	login->bytes = at = malloc(login->byte_count);
	if (at == NULL)
		return KVW_ENOMEM;
	snprintf(database, sizeof(database), "%u", who->database);
	if (user != NULL || is_given(password))
		at = add_command(login, KVW_REDIS_LOGIN_AUTH, at, auth, queue);
	if (who->database != 0)
		at = add_command(login, KVW_REDIS_LOGIN_SELECT, at,
			(const char *[]){"SELECT", database, NULL}, queue);
	(void)add_command(
		login, KVW_REDIS_LOGIN_INFO, at, (const char *[]){"INFO", "server", NULL}, queue);
	return KVW_OK;
}

static bool text_begins(const char *text, const char *with)
{
	return strncmp(text, with, strlen(with)) == 0;
}

const char *kvw_redis_login_judge(struct kvw_redis_login *login, struct kvw_redis_command *answered)
{
	enum kvw_redis_login_step step = login->steps[answered - login->commands];

	if (answered->reply == KVW_REDIS_ERROR) {
		bool harmless =
			(step == KVW_REDIS_LOGIN_INFO &&
				(text_begins(answered->text, "NOPERM") ||
					text_begins(answered->text, "ERR unknown command"))) ||
			(step == KVW_REDIS_LOGIN_AUTH && login->optional);

		return harmless ? NULL : answered->text;
	}
	if (step == KVW_REDIS_LOGIN_INFO) {
		login->info[answered->status == KVW_OK ? answered->lead_bytes : 0] = '\0';
		return answered->reply == KVW_REDIS_BULK ? NULL
							 : "INFO was answered with something else";
	}
	return answered->reply == KVW_REDIS_STATUS ? NULL
						   : "login was answered with something else";
}

void kvw_redis_login_end(struct kvw_redis_login *login)
{
	if (login->bytes != NULL)
		OPENSSL_cleanse(login->bytes, login->byte_count);
	free(login->bytes);
	login->bytes = NULL;
}
